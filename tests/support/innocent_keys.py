"""Lines that speak of keys, tokens and passwords beside values that are none: hashes, ids, addresses."""

from __future__ import annotations

import re
import string
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from random import Random

_TEMPLATES = Path(__file__).parent / "data" / "innocent_keys.txt"
_SLOT = re.compile(r"«(?P<kind>[a-zA-Z]+?)(?P<count>\d*)»")
_ALNUM = string.ascii_letters + string.digits


def _fill(slot: re.Match[str], rng: Random) -> str:
    kind, count = slot["kind"], int(slot["count"] or 0)
    if kind == "uuid":
        return "-".join("".join(rng.choices("0123456789abcdef", k=n)) for n in (8, 4, 4, 4, 12))
    if kind == "base":
        return b64encode(rng.randbytes(64)).decode()
    alphabet = {"hex": "0123456789abcdef", "HEX": "0123456789ABCDEF", "mix": _ALNUM}[kind]
    return "".join(rng.choices(alphabet, k=count))


def innocent_key_lines(seed: int = 0) -> Iterator[str]:
    """One line for each template, with values drawn anew."""
    rng = Random(seed)
    for template in _TEMPLATES.read_text("utf-8").splitlines():
        yield _SLOT.sub(lambda slot: _fill(slot, rng), template)
