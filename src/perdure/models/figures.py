"""The size figures of a text: how many runs, letters, digits, marks and characters of each script it has.

Tokenizers cut text at changes of character class (letter, digit, mark, space), so the number of such changes says most
of what there is to know about its tokens. Figures are plain sums: they add up over messages, and a change of model is
one multiplication by other weights, never a second look at the text.

How it is fast: every byte becomes one bit of a big integer (eight classes, eight bits a byte), so that "a digit after a
space" is a shift, an `and` and a population count over the whole text at once.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from functools import cache, lru_cache
from operator import add

# Bit i of a byte's mask is class i. The order matters: a shift by 9 pairs each class with the next higher one, a shift
# by 7 with the next lower, so that the pairs that say something (mark-space, digit-upper, …) lie side by side.
_MARK, _SPACE, _DIGIT, _UPPER, _LOWER, _NEWLINE, _TAB, _SLASH = range(8)

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

# Pieces this long stay in the processor's cache and bound the memory a huge text takes.
_PIECE_CHARS = 8_192
# Texts this short are mostly names of tools, the same ones again and again.
_SHORT_CHARS = 32
# A character is at most four bytes.
_MASK_BYTES = 4 * _PIECE_CHARS


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one message or of many: additive, so that a history's size is a running sum."""

    counts: Counts = NO_COUNTS
    # Thinking in readable form; only some routes send it back.
    reasoning: Counts = NO_COUNTS
    images: int = 0
    messages: int = 0
    calls: int = 0

    def __add__(self, other: Figures) -> Figures:
        return Figures(
            counts=add_counts(self.counts, other.counts),
            reasoning=add_counts(self.reasoning, other.reasoning),
            images=self.images + other.images,
            messages=self.messages + other.messages,
            calls=self.calls + other.calls,
        )

    def __sub__(self, other: Figures) -> Figures:
        """What is left when a part of the sum is taken away again."""
        return Figures(
            counts=tuple(a - b for a, b in zip(self.counts, other.counts, strict=True)),
            reasoning=tuple(a - b for a, b in zip(self.reasoning, other.reasoning, strict=True)),
            images=self.images - other.images,
            messages=self.messages - other.messages,
            calls=self.calls - other.calls,
        )


NO_FIGURES = Figures()


def add_counts(a: Counts, b: Counts) -> Counts:
    if b is NO_COUNTS:
        return a
    return tuple(map(add, a, b)) if a is not NO_COUNTS else b


def count_text(text: str) -> Counts:
    """The counts of a text of any length, in one pass over pieces of it."""
    if len(text) <= _SHORT_CHARS:
        return _count_short(text) if text else NO_COUNTS
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
    counts = _count_ascii(raw)
    return counts + (_NO_SCRIPTS if text.isascii() else _count_scripts(raw))


def _count_ascii(raw: bytes) -> Counts:
    tables = _tables()
    mark, space, digit, upper, lower, newline, tab, slash = tables.masks
    letter = tables.letter_mask
    at = int.from_bytes(raw.translate(tables.classes), "little")
    twice = at & (at << 8)
    four = twice & (twice << 16)
    eight = four & (four << 32)
    sixteen = eight & (eight << 64)
    begins = at ^ twice
    # An inverted integer is a negative one, and those are slow.
    begins_pair = twice ^ (twice & (twice << 8))
    begins_four = four ^ (four & (four << 8))
    after_lower_class = at & (at << 9)
    after_upper_class = at & (at << 7)
    capitals, numbers = (begins & upper).bit_count(), (begins & digit).bit_count()
    has_tab = b"\t" in raw
    tab_indents = (after_lower_class & begins & tab).bit_count() if has_tab else 0
    return (
        (at & letter).bit_count(),
        (begins & lower).bit_count() + capitals - (after_lower_class & lower).bit_count(),
        (sixteen & letter).bit_count(),
        capitals,
        (begins_pair & upper).bit_count(),
        (after_lower_class & upper).bit_count() + (after_upper_class & digit).bit_count(),
        numbers,
        numbers - (begins_pair & digit).bit_count(),
        (four & digit).bit_count(),
        (at & mark).bit_count(),
        (begins & mark).bit_count(),
        (begins_pair & mark).bit_count(),
        (begins_four & mark).bit_count(),
        (at & slash).bit_count(),
        (after_lower_class & space).bit_count(),
        (after_upper_class & mark).bit_count(),
        (begins_pair & space).bit_count(),
        (after_lower_class & digit).bit_count(),
        (begins & tab).bit_count() - tab_indents if has_tab else 0,
        tab_indents,
        (begins & newline).bit_count(),
    )


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
class _Tables:
    classes: bytes
    masks: tuple[int, ...]
    letter_mask: int
    leads: bytes
    not_leads: bytes


@cache
def _tables() -> _Tables:
    masks = tuple(int.from_bytes(bytes([1 << i]) * _MASK_BYTES, "little") for i in range(8))
    return _Tables(
        classes=_class_table(),
        masks=masks,
        letter_mask=masks[_UPPER] | masks[_LOWER],
        leads=_lead_table(),
        not_leads=bytes(b for b in range(0xC0) if b not in b" \n"),
    )


def _class_table() -> bytes:
    table = bytearray(1 << _MARK if byte < 0x80 else 0 for byte in range(256))
    for chars, kind in (
        (string.ascii_lowercase, _LOWER),
        (string.ascii_uppercase, _UPPER),
        (string.digits, _DIGIT),
        (" ", _SPACE),
        ("\r\n", _NEWLINE),
        ("\t", _TAB),
    ):
        for char in chars.encode():
            table[char] = 1 << kind
    table[ord("/")] |= 1 << _SLASH
    return bytes(table)


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
