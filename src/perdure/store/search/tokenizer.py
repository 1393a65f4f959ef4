"""Tokenizer for both databases, used for indexed texts and queries alike.

parts    in order, so that adjacent parts stay adjacent: words, parts of identifiers and paths, CJK characters
wholes   without duplicates: identifiers and paths as written, pairs of CJK characters

"src/turnGate.py 模型能"  →  parts  src turn gate py 模 型 能     wholes  src/turngate.py turngate.py turngate 模型 型能
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from perdure.core.datastructures import Memo
from perdure.core.messages import Message, clean

# Increment with every change of the tokens: stores then rebuild their index when opened.
VERSION = 1
_LONGEST_PART = 64
_LONGEST_WHOLE = 120
_MEMO_BYTES = 48_000_000

JOINERS = "_./:@#+-"
_CJK = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_FIRST_CJK = "\u3005"
_CJK_RUN = re.compile(f"[{_CJK}]+")
_ASCII_CHUNK = re.compile(r"[A-Za-z0-9]+(?:[_./:@#+-]+[A-Za-z0-9]+)*")
_CHUNK = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+(?:[_./:@#+-]+[^\W_{_CJK}]+)*")
_JOINT = re.compile(r"[_./:@#+-]+")
_NAME_JOINT = re.compile(r"[./:@#+-]+")
_HUMPS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z0-9]+|[^A-Za-z0-9]+")
_MARKS = re.compile("[\u0300-\u036f]")


@dataclass(frozen=True, slots=True)
class IndexTokens:
    parts: tuple[str, ...]
    wholes: tuple[str, ...]


def tokenize(text: str) -> IndexTokens:
    """Split a text into tokens. Never raises."""
    parts: list[str] = []
    wholes: list[str] = []
    for chunk in split_chunks(text):
        pieces, names = _cjk(chunk) if chunk >= _FIRST_CJK and is_cjk(chunk[0]) else _NAMES[chunk]
        parts += pieces
        if names:
            wholes += names
    return IndexTokens(tuple(parts), tuple(dict.fromkeys(wholes)))


def split_chunks(text: str) -> list[str]:
    """Split a text into words, names and runs of CJK characters, as written but without accents."""
    plain = strip_accents(text)
    return (_ASCII_CHUNK if plain.isascii() else _CHUNK).findall(plain)


def strip_accents(text: str) -> str:
    """Normalize a text: no accents, no full-width forms, forward slashes. Case is kept."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", clean(text))
        # Only Latin, Greek and Cyrillic accents: in kana and Hangul, marks distinguish letters.
        text = unicodedata.normalize("NFC", _MARKS.sub("", unicodedata.normalize("NFD", text)))
    return text.replace("\\", "/")


def fold_text(text: str) -> str:
    """Normalize a text for comparison: no accents, one case, single spaces."""
    return " ".join(strip_accents(text).casefold().split())


def is_cjk(char: str) -> bool:
    return _CJK_RUN.match(char) is not None


def searchable_text(message: Message) -> str:
    """Return the searchable text of a message: its text and its tool calls' names and arguments."""
    if not message.tool_calls:
        return message.text
    pieces = [message.text]
    for call in message.tool_calls:
        arguments = call.parsed_arguments()
        pieces += [call.name, *(strings_of(arguments) if arguments is not None else [call.arguments])]
    return "\n".join(p for p in pieces if p)


def _cjk(run: str) -> tuple[Sequence[str], Sequence[str]]:
    return run, [run[i : i + 2] for i in range(len(run) - 1)]


def _split_name(chunk: str) -> tuple[Sequence[str], Sequence[str]]:
    """Split a word, identifier or path into its parts and wholes."""
    if chunk.isalnum() and (chunk.islower() or chunk.isdecimal()):
        return (chunk[:_LONGEST_PART],), ()
    pieces = _JOINT.split(chunk)
    humps = [h for p in pieces for h in (_HUMPS.findall(p) if not p.islower() else [p])]
    parts = tuple(h.casefold()[:_LONGEST_PART] for h in humps)
    if len(parts) < 2:
        return parts, ()
    names = [chunk]
    if len(pieces) > 1:
        for name in chunk.split("/"):
            inner = [n for n in _NAME_JOINT.split(name) if "_" in n or len(_HUMPS.findall(n)) > 1]
            names += [name.strip(JOINERS), *(n.strip("_") for n in inner)]
    return parts, tuple(dict.fromkeys(n.casefold() for n in names if 1 < len(n) <= _LONGEST_WHOLE))


# Words and names repeat, so most are split only once.
_NAMES: Memo[str, tuple[Sequence[str], Sequence[str]]] = Memo(
    _split_name, max_bytes=_MEMO_BYTES, bytes_per_char=64, longest_key=_LONGEST_WHOLE
)


def strings_of(value: object) -> list[str]:
    """Return every string in a JSON value, including keys."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [s for k, v in value.items() for s in (str(k), *strings_of(v))]
    if isinstance(value, list):
        return [s for v in value for s in strings_of(v)]
    return [] if value is None else [str(value)]
