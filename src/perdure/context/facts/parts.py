"""What a path or a compound name shows beside itself: its folders, its file's name, the names it is put together of."""

from __future__ import annotations

import re

from perdure.context.facts.scan import is_plain, pieces_of

# `HTTPServer2_test.py` is HTTP, Server, 2, test and py, each with what parts it from the one before.
_ATOM = re.compile(r"[^A-Za-z0-9]*(?:[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+)|[^A-Za-z0-9]+$")
_MARKS = re.compile(r"^[^A-Za-z0-9]+")
# No fact is shorter than this, and no plain word is one.
_SHORTEST = 4
_MIXED = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
_MOST_ATOMS = 12
_MOST_PIECES = 1 << 13


def parts_in(text: str) -> set[str]:
    """What may be a fact and stands in a text as a part of something longer."""
    return set().union(*map(_PARTS.__getitem__, pieces_of(text)))


class _PartsMemo(dict[bytes, tuple[str, ...]]):
    """The parts of each piece ever met, within bounds: pieces recur."""

    def __missing__(self, raw: bytes) -> tuple[str, ...]:
        if len(self) >= _MOST_PIECES:
            self.clear()
        found = self[raw] = () if is_plain(raw) else _parts(raw.decode("utf-8", "replace"))
        return found


_PARTS = _PartsMemo()


def _parts(piece: str) -> tuple[str, ...]:
    atoms = _ATOM.findall(piece)[-_MOST_ATOMS:]
    found: set[str] = set()
    for first, atom in enumerate(atoms):
        part = _MARKS.sub("", atom)
        for more in ("", *atoms[first + 1 :]):
            part += more
            if (len(part) >= _SHORTEST and not part.isalpha()) or _MIXED.search(part):
                found.add(part)
    return tuple(found)
