"""Count the character classes of a text (letters, digits, spaces …), from which its tokens are estimated."""

from __future__ import annotations

import string
from binascii import unhexlify
from dataclasses import dataclass
from functools import cache, lru_cache
from operator import add, sub

# No longer pieces than this: they stay in the processor's cache and bound the memory a huge text takes.
LONGEST_BYTES = 32_768
# A stretch begins with the end of the one before it, so that runs are followed across the seam: as far back as any
# count looks. It is there to be looked at and is not counted again.
_SEAM = 16
# Shorter texts are one stretch: splitting them costs more than it saves.
_ONE_STRETCH_BYTES = 512

# The four bits. Two of them together are a class of their own.
_LETTER, _MARK, _DIGIT, _OTHER = 8, 4, 2, 1
_LOWER, _SLASH, _SPACE, _NEWLINE, _TAB = _LETTER | _OTHER, _MARK | _OTHER, _DIGIT | _OTHER, _OTHER, _LETTER | _MARK


def count_ascii(raw: bytes) -> tuple[int, ...]:
    """Count the character classes named in `ASCII_COUNTS` in 1 to LONGEST_BYTES bytes of UTF-8, by bit operations."""
    counted, letter, mark, digit, other = _four_planes(raw) if len(raw) > _ONE_STRETCH_BYTES else _planes(raw)
    tab = 0
    if b"\t" in raw:
        tab = letter & mark
        letter, mark = letter ^ tab, mark ^ tab
    # `a ^ (a & b)` is "a but not b": an inverted integer is a negative one, and those are slow.
    lower, slash, space = letter & other, mark & other, digit & other
    upper, digit, newline = letter ^ lower, digit ^ space, other ^ lower ^ slash ^ space
    after_letter, after_upper, after_digit = letter >> 4, upper >> 4, digit >> 4
    after_mark, after_space, after_newline = mark >> 4, space >> 4, newline >> 4
    same_case = lower & (after_letter ^ after_upper) | upper & after_upper
    long_letter, tab_begins = _fifteenths(same_case), tab ^ (tab & (tab >> 4))
    if counted is not None:
        letter, lower, upper, digit = letter & counted, lower & counted, upper & counted, digit & counted
        mark, slash, space, newline = mark & counted, slash & counted, space & counted, newline & counted
        long_letter, tab_begins = long_letter & counted, tab_begins & counted
    second_upper, second_digit = upper & after_upper, digit & after_digit
    second_mark, second_space = mark & after_mark, space & after_space
    third_digit, third_mark = second_digit & (after_digit >> 4), second_mark & (after_mark >> 4)
    fourth_mark = third_mark & (after_mark >> 8)
    capitals, numbers = (upper ^ second_upper).bit_count(), (digit ^ second_digit).bit_count()
    tab_indents = (tab_begins & after_newline).bit_count()
    return (
        letter.bit_count(),
        (lower ^ (lower & after_letter)).bit_count() + capitals,
        long_letter.bit_count(),
        capitals,
        (second_upper ^ (second_upper & (after_upper >> 4))).bit_count(),
        (upper & after_digit | digit & after_upper).bit_count(),
        numbers,
        numbers - (second_digit ^ third_digit).bit_count(),
        (third_digit & (after_digit >> 8)).bit_count(),
        mark.bit_count(),
        (mark ^ second_mark).bit_count(),
        (second_mark ^ third_mark).bit_count(),
        (fourth_mark ^ (fourth_mark & (after_mark >> 12))).bit_count(),
        slash.bit_count(),
        (space & after_mark).bit_count(),
        (mark & after_space).bit_count(),
        (second_space ^ (second_space & (after_space >> 4))).bit_count(),
        (digit & after_space).bit_count(),
        tab_begins.bit_count() - tab_indents,
        tab_indents,
        (newline ^ (newline & after_newline)).bit_count(),
    )


def _fifteenths(plane: int) -> int:
    """Return a bit set of the positions that are at least the fifteenth of a run of set bits."""
    run = plane & (plane >> 4)
    run &= run >> 8
    run &= run >> 16
    return run & (run >> 28)


# What of them is counted, None for all, and the planes of letters, marks, digits and others.
_Planes = tuple[int | None, int, int, int, int]


def _planes(raw: bytes) -> _Planes:
    """Return a bit set for each character class of a short text, which uses every fourth bit only."""
    tables = _tables()
    codes, first = _from_hex(raw.translate(tables.codes)), tables.first
    return None, codes >> 3 & first, codes >> 2 & first, codes >> 1 & first, codes & first


def _four_planes(raw: bytes) -> _Planes:
    """Return the mask and the four code planes of a long text, read as four interleaved stretches.

    A class is a combination of planes; the mask leaves out the seams between the stretches.
    """
    tables = _tables()
    low, high, even, odd = tables.low, tables.high, tables.even, tables.odd
    size = (len(raw) + 3) // 4
    ends = size + _SEAM
    codes = b"%b%b000" % (b"0" * _SEAM, raw.translate(tables.codes))
    a, b, c, d = [_from_hex(codes[at : at + ends]) for at in range(0, 4 * size, size)]
    # Codes become planes as a square is turned over, of four bits by four: first its quarters, then within them.
    a, c = a & low | (c & low) << 2, (a & high) >> 2 | c & high
    b, d = b & low | (d & low) << 2, (b & high) >> 2 | d & high
    other, digit = a & even | (b & even) << 1, (a & odd) >> 1 | b & odd
    mark, letter = c & even | (d & even) << 1, (c & odd) >> 1 | d & odd
    return (1 << 4 * size) - 1, letter, mark, digit, other


def _from_hex(digits: bytes) -> int:
    """Return the number that hexadecimal digits stand for, in half the time of `int(digits, 16)`."""
    return int.from_bytes(unhexlify(digits if len(digits) % 2 == 0 else b"0" + digits), "big")


@dataclass(frozen=True, slots=True)
class _PlaneTables:
    # A byte's class as a hexadecimal digit: `int(…, 16)` is then four bits a byte, the first byte uppermost.
    codes: bytes
    # Of every four bits the first, the lower and the upper two, the first and third, the second and fourth.
    first: int
    low: int
    high: int
    even: int
    odd: int


@cache
def _tables() -> _PlaneTables:
    longest = LONGEST_BYTES // 4 + _SEAM
    return _PlaneTables(_codes(), *(int(bits * longest, 16) for bits in "13c5a"))


def _codes() -> bytes:
    table = [_MARK if byte < 0x80 else 0 for byte in range(256)]
    for chars, code in (
        (string.ascii_lowercase, _LOWER),
        (string.ascii_uppercase, _LETTER),
        (string.digits, _DIGIT),
        (" ", _SPACE),
        ("\r\n", _NEWLINE),
        ("\t", _TAB),
        ("/", _SLASH),
    ):
        for char in chars.encode():
            table[char] = code
    return "".join(f"{code:x}" for code in table).encode()


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
    """Counts from which tokens are estimated, for one message or many; they add up, so a history is a running sum."""

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
        """Return the difference of the counts."""
        return TokenFeatures(
            counts=_subtract_counts(self.counts, other.counts),
            reasoning=_subtract_counts(self.reasoning, other.reasoning),
            images=self.images - other.images,
            messages=self.messages - other.messages,
            calls=self.calls - other.calls,
        )


NO_FIGURES = TokenFeatures()


def add_counts(a: Counts, b: Counts) -> Counts:
    if b is NO_COUNTS:
        return a
    return tuple(map(add, a, b)) if a is not NO_COUNTS else b


def _subtract_counts(a: Counts, b: Counts) -> Counts:
    return tuple(map(sub, a, b)) if b is not NO_COUNTS else a


def count_text(text: str) -> Counts:
    """Count the character classes of a text of any length, piece by piece."""
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
    tables = _figures_tables()
    # Keep the first byte of each character, and spaces, so that words can be counted.
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
def _figures_tables() -> _ClassTables:
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
