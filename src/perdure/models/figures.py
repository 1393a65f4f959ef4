"""The size figures of a text: how many runs, letters, digits, marks and characters of each script it has.

Tokenizers cut text at changes of character class (letter, digit, mark, space), so the number of such changes says most
of what there is to know about its tokens. Figures are plain sums: they add up over messages, and a change of model is
one multiplication by other weights, never a second look at the text.

How the ASCII ones are fast stands in `planes`; those of other scripts are counts of the bytes their characters begin
with.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from operator import add

from perdure.models.planes import LONGEST_BYTES, count_ascii

ASCII_COUNTS = (
    "letters",
    "words",  # runs of letters, a change to upper case begins a new one
    "long_letters",  # letters beyond the 15th of a run: no vocabulary holds such words
    "capitals",  # runs of upper case
    "shouts",  # runs of two or more capitals
    "mixed",  # digit next to upper case, as in base64
    "numbers",  # runs of digits
    "lone_digits",  # numbers of one digit
    "long_digits",  # digits beyond the third of a run
    "marks",  # every ASCII character that is neither letter, digit nor space
    "mark_runs",
    "mark_pairs",  # runs of two or more
    "mark_bars",  # runs of four or more
    "slashes",
    "mark_space",  # a mark followed by a space
    "space_mark",
    "indents",  # runs of two or more spaces
    "space_number",
    "tab_runs",  # inside a line
    "tab_indents",  # at its start
    "line_ends",  # runs of line ends
)
SCRIPT_COUNTS = (
    "han",
    "hangul",
    "kana",
    "latin",  # letters with accents
    "greek_cyrillic",
    "hebrew_arabic",
    "indic",
    "viet_georgian",
    "symbols",  # dashes, quotes, arrows
    "symbol_bars",  # four symbols in a row: drawn lines and boxes
    "wide",  # full-width forms
    "emoji",
    "hangul_words",
    "hangul_long",  # syllables beyond the third of a word
    "greek_cyrillic_words",
    "hebrew_arabic_words",
    "cjk_marks",
)
COUNT_NAMES = ASCII_COUNTS + SCRIPT_COUNTS

Counts = tuple[int, ...]
NO_COUNTS: Counts = (0,) * len(COUNT_NAMES)
_NO_SCRIPTS: Counts = (0,) * len(SCRIPT_COUNTS)

# A character is at most four bytes.
_PIECE_CHARS = LONGEST_BYTES // 4
# Texts this short are mostly names of tools, the same ones again and again.
_SHORT_CHARS = 32


@dataclass(frozen=True, slots=True)
class TokenFeatures:
    """The figures of one message or of many: additive, so that a history's size is a running sum."""

    counts: Counts = NO_COUNTS
    # Thinking in readable form; only some routes send it back.
    reasoning: Counts = NO_COUNTS
    images: int = 0
    messages: int = 0
    calls: int = 0

    def __add__(self, other: TokenFeatures) -> TokenFeatures:
        return TokenFeatures(
            counts=add_counts(self.counts, other.counts),
            reasoning=add_counts(self.reasoning, other.reasoning),
            images=self.images + other.images,
            messages=self.messages + other.messages,
            calls=self.calls + other.calls,
        )

    def __sub__(self, other: TokenFeatures) -> TokenFeatures:
        """What is left when a part of the sum is taken away again."""
        return TokenFeatures(
            counts=tuple(a - b for a, b in zip(self.counts, other.counts, strict=True)),
            reasoning=tuple(a - b for a, b in zip(self.reasoning, other.reasoning, strict=True)),
            images=self.images - other.images,
            messages=self.messages - other.messages,
            calls=self.calls - other.calls,
        )


NO_FIGURES = TokenFeatures()


def add_counts(a: Counts, b: Counts) -> Counts:
    if b is NO_COUNTS:
        return a
    return tuple(map(add, a, b)) if a is not NO_COUNTS else b


def count_text(text: str) -> Counts:
    """The counts of a text of any length, in one pass over pieces of it."""
    if len(text) <= _SHORT_CHARS:
        return _count_short(text) if text else NO_COUNTS
    if len(text) <= _PIECE_CHARS:
        return _count_piece(text)
    total = NO_COUNTS
    for start in range(0, len(text), _PIECE_CHARS):
        total = add_counts(total, _count_piece(text[start : start + _PIECE_CHARS]))
    return total


@lru_cache(maxsize=1 << 10)
def _count_short(text: str) -> Counts:
    return _count_piece(text)


def _count_piece(text: str) -> Counts:
    # A lone surrogate becomes "?": it has no bytes, and must not stop a request from being measured.
    raw = text.encode("utf-8", "replace")
    return count_ascii(raw) + (_NO_SCRIPTS if text.isascii() else _count_scripts(raw))


def _count_scripts(raw: bytes) -> Counts:
    tables = _tables()
    # Only the first byte of each character stays, and spaces, so that words can be told.
    leads = b"_" + raw.translate(tables.leads, tables.not_leads)
    hangul, kana, symbols = leads.count(b"k"), leads.count(b"j"), leads.count(b"e")
    greek_cyrillic, hebrew_arabic = leads.count(b"g"), leads.count(b"s")
    # Pairs are looked for only where they can be: they cost three times a single letter's count.
    bars = leads.count(b"eeee") if symbols else 0
    cjk_marks = raw.count(b"\xe3\x80") if kana else 0
    hangul_words = leads.count(b"_k") if hangul else 0
    short = hangul_words + leads.count(b"_kk") + leads.count(b"_kkk") if hangul else 0
    return (
        leads.count(b"h"),
        hangul,
        kana - cjk_marks,
        leads.count(b"l"),
        greek_cyrillic,
        hebrew_arabic,
        leads.count(b"t"),
        leads.count(b"v"),
        symbols - 4 * bars,
        bars,
        leads.count(b"f"),
        leads.count(b"w"),
        hangul_words,
        hangul - short,
        leads.count(b"_g") if greek_cyrillic else 0,
        leads.count(b"_s") if hebrew_arabic else 0,
        cjk_marks,
    )


@dataclass(frozen=True, slots=True)
class _ClassTables:
    leads: bytes
    not_leads: bytes


@cache
def _tables() -> _ClassTables:
    return _ClassTables(leads=_lead_table(), not_leads=bytes(b for b in range(0xC0) if b not in b" \n"))


def _lead_table() -> bytes:
    table = bytearray(b"_" * 256)
    for lo, hi, kind in (
        (0xC2, 0xCA, "l"),
        (0xCB, 0xD3, "g"),
        (0xD4, 0xDF, "s"),
        (0xE0, 0xE0, "t"),
        (0xE1, 0xE1, "v"),
        (0xE2, 0xE2, "e"),
        (0xE3, 0xE3, "j"),
        (0xE4, 0xE9, "h"),
        (0xEA, 0xED, "k"),
        (0xEE, 0xEF, "f"),
        (0xF0, 0xF7, "w"),
    ):
        for byte in range(lo, hi + 1):
            table[byte] = ord(kind)
    return bytes(table)
