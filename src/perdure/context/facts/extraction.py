"""Extract exact values (paths, ids, numbers, identifiers) from texts."""

from __future__ import annotations

import re
from typing import Literal

from perdure.core.datastructures import Memo

FactKind = Literal["url", "path", "pair", "file", "number", "id", "code", "name", "dotted"]

# File extensions, to tell file names from attributes: `report.find` is no file.
# fmt: off
_EXTENSIONS = frozenset((
    "py", "pyi", "ipynb", "js", "jsx", "mjs", "cjs", "ts", "tsx", "vue", "svelte", "java", "kt", "scala",
    "gradle", "c", "cc", "cpp", "cxx", "h", "hpp", "cs", "go", "mod", "sum", "rs", "rb", "php", "swift",
    "lua", "pl", "r", "jl", "sh", "bash", "zsh", "ps1", "bat", "sql", "md", "mdx", "rst", "txt", "tex", "org",
    "adoc", "json", "jsonl", "json5", "yaml", "yml", "toml", "ini", "cfg", "conf", "env", "lock",
    "properties", "xml", "html", "htm", "css", "scss", "less", "svg", "csv", "tsv", "parquet", "log", "db",
    "sqlite", "zip", "gz", "tar", "tgz", "png", "jpg", "jpeg", "gif", "webp", "mp3", "mp4", "wav", "pdf",
    "doc", "docx", "xls", "xlsx", "ppt", "pptx", "eml", "proto", "graphql", "tf", "diff", "patch",
))
# fmt: on
_HEX = re.compile(r"[0-9a-fA-F]{7,}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NAME = re.compile(r"\w+")
_MIXED = re.compile(r"[a-z][A-Z]")

PLACES: frozenset[FactKind] = frozenset(("path", "file", "url"))


def kind_of(fact: str) -> FactKind:
    """Classify a fact; a "pair" is two words with a slash, a "code" mixes letters and digits."""
    return _KINDS[fact]


def _kind_of(fact: str) -> FactKind:
    if "://" in fact:
        return "url"
    end = fact.rpartition(".")[2].lower()
    if "/" in fact or "\\" in fact:
        is_path = fact[0] in "/~." or end in _EXTENSIONS or fact.count("/") > 1 or "_" in fact or "-" in fact
        return "path" if is_path else "pair"
    if fact.isdigit():
        return "number"
    if end in _EXTENSIONS and "." in fact:
        return "file"
    has_digit = any(map(str.isdigit, fact))
    if has_digit and _HEX.fullmatch(fact):
        return "id"
    if not _NAME.fullmatch(fact):
        return "code" if has_digit else "dotted"
    return "code" if has_digit and "_" not in fact and not _MIXED.search(fact) else "name"


_KINDS: Memo[str, FactKind] = Memo(_kind_of, max_bytes=8_000_000, bytes_per_char=4)


# Characters that never occur in a path, identifier or number separate pieces. Bytes, because `translate` on non-ASCII
# text is six times slower; non-ASCII characters are handled when a piece is classified.
_ENDS = b"\"'`<>()[]{},;:=|*#!?&%$^\\"
_TABLE = bytes.maketrans(_ENDS, b" " * len(_ENDS))

_URL = re.compile(r"https?://[^\s'\"<>)\]},\\`，。、；（）「」】]+")
_WINDOWS_PATH = re.compile(r"\b[A-Za-z]:\\(?:[\w.@+ -]+\\)*[\w.@+-]+")
_RUN = re.compile(r"[\w.@+/~-]+")
_ASCII_RUN = re.compile(r"[\w.@+/~-]+", re.ASCII)
_PART = re.compile(r"[^\W_]+(?:_[^\W_]+)*")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_EXTENSION = re.compile(r"\w[\w-]*(?:\.[\w-]+)*\.[A-Za-z]\w{0,7}")
_CONTEXT_LINE = re.compile(r"(\.[A-Za-z]\w{0,7})-\d+(?:-.*)?$")
_MIXED_CASE = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")

_ARROW = "→".encode()
_LINE_NUMBER = re.compile(rb"\n *\d+\xe2\x86\x92")

LONGEST = 200
_SHORTEST = 4
_SHORTEST_NAME = 6
_MEMO_BYTES = 24_000_000


def scan(text: str) -> frozenset[str]:
    """Extract the distinct facts of a text."""
    facts: set[str] = set()
    if "://" in text:
        facts.update(u.rstrip(".,:;") for u in _URL.findall(text))
    if ":\\" in text:
        facts.update(_WINDOWS_PATH.findall(text))
    data = text.encode("utf-8", "replace")
    if _ARROW in data:
        # Line numbers of a file viewer are no facts; any other arrow is a separator.
        data = _LINE_NUMBER.sub(b" ", b"\n" + data).replace(_ARROW, b" ")
    # Most pieces are words without facts: known ones are skipped in one set operation.
    pieces = set(data.translate(_TABLE).split()) - _NO_FACTS
    return frozenset(facts.union(*map(_MEMO.__getitem__, pieces)))


def pieces_of(text: str) -> set[bytes]:
    """The distinct pieces of a text."""
    return set(text.encode("utf-8", "replace").translate(_TABLE).split())


def is_plain(piece: bytes) -> bool:
    """Whether a piece is a plain word, or too short to hold a fact."""
    return len(piece) < _SHORTEST or (piece.isalpha() and (piece[1:].islower() or piece.isupper()))


class _FactsMemo(Memo[bytes, tuple[str, ...]]):
    """Cache of the facts in each piece; pieces without facts are in a separate set."""

    def remember(self, key: bytes, value: tuple[str, ...]) -> None:
        if value:
            self[key] = value
        else:
            _NO_FACTS.add(key)

    def clear(self) -> None:
        super().clear()
        _NO_FACTS.clear()


_NO_FACTS: set[bytes] = set()


def _facts_in(raw: bytes) -> tuple[str, ...]:
    if is_plain(raw):
        return ()
    piece = raw.decode("utf-8", "replace")
    runs = [piece]
    if not piece.isascii():
        # A name adjacent to CJK words counts on its own, and with them as a path where it has a slash.
        whole = _RUN.findall(piece)
        runs = [r for w in whole for r in _ASCII_RUN.findall(w)] + [w for w in whole if "/" in w and not w.isascii()]
    return tuple({f for r in runs for f in _readings(r.rstrip(".-+@~/")) if _SHORTEST <= len(f) <= LONGEST})


_MEMO = _FactsMemo(_facts_in, max_bytes=_MEMO_BYTES, bytes_per_char=20)


def _readings(piece: str) -> list[str]:
    """The whole piece if it is a path, file name or id, else the names and numbers in it."""
    if "/" in piece:
        # grep prints context lines as `path-12-text`; only the path counts.
        piece = _CONTEXT_LINE.sub(r"\1", piece)
        # Two leading slashes: the rest of a URL, or a comment.
        return [piece] if not piece.startswith("//") and any(map(str.isalnum, piece)) else []
    if _UUID.fullmatch(piece):
        return [piece]
    names = [p for p in _PART.findall(piece) if _is_name(p)]
    if not piece.isdigit() and (_EXTENSION.fullmatch(piece) or any(map(str.isdigit, piece))):
        return [piece, *names] if piece not in names else names
    return names


def _is_name(part: str) -> bool:
    if part.isdigit():
        # A bare year is not specific enough.
        return len(part) >= 4 and not (len(part) == 4 and part[:2] in ("19", "20"))
    if len(part) < _SHORTEST_NAME:
        return False
    return "_" in part or any(map(str.isdigit, part)) or _MIXED_CASE.search(part) is not None


# Splits `HTTPServer2_test.py` into HTTP, Server, 2, test and py, each with its separator.
_ATOM = re.compile(r"[^A-Za-z0-9]*(?:[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+)|[^A-Za-z0-9]+$")
_MARKS = re.compile(r"^[^A-Za-z0-9]+")
_parts_MIXED = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
_MOST_ATOMS = 12
_MOST_PIECES = 1 << 13


def parts_in(text: str) -> set[str]:
    """Possible facts that occur in a text as parts of longer names."""
    return set().union(*map(_PARTS.__getitem__, pieces_of(text)))


class _PartsMemo(dict[bytes, tuple[str, ...]]):
    """Bounded cache of the parts of each piece."""

    def __missing__(self, raw: bytes) -> tuple[str, ...]:
        if len(self) >= _MOST_PIECES:
            self.clear()
        parts = self[raw] = () if is_plain(raw) else _parts(raw.decode("utf-8", "replace"))
        return parts


_PARTS = _PartsMemo()


def _parts(piece: str) -> tuple[str, ...]:
    atoms = _ATOM.findall(piece)[-_MOST_ATOMS:]
    names: set[str] = set()
    for first, atom in enumerate(atoms):
        part = _MARKS.sub("", atom)
        for more in ("", *atoms[first + 1 :]):
            part += more
            if (len(part) >= _SHORTEST and not part.isalpha()) or _parts_MIXED.search(part):
                names.add(part)
    return tuple(names)
