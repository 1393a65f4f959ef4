"""The ASCII counts of a piece of text, taken over bit planes.

A byte's class (letter, digit, mark, space …) is a code of four bits, and a *plane* is one of these bits for every byte
of the piece, as one big integer. So "a digit after a space" is a shift, an `and` and a population count over the whole
piece at once. Population counts cost the most by far, and they cost by the length of the integer whatever is in it: so
a long piece is laid out in four stretches side by side, one bit of each in turn, and not a bit of a plane is idle.

    A piece's bytes       abcd efgh ijkl mnop      in four stretches
    A plane's bits        a e i m  b f j n  c g k o  d h l p      the byte before one is always four bits further up
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from functools import cache

# No longer pieces than this: they stay in the processor's cache and bound the memory a huge text takes.
LONGEST_BYTES = 32_768
# A stretch begins with the end of the one before it, so that runs are followed across the seam: as far back as any
# count looks. It is there to be looked at and is not counted again.
_SEAM = 16
# Shorter pieces are one stretch: what it takes to lay out four is more than their counts cost.
_ONE_STRETCH_BYTES = 512

# The four bits. Two of them together are a class of their own.
_LETTER, _MARK, _DIGIT, _OTHER = 8, 4, 2, 1
_LOWER, _SLASH, _SPACE, _NEWLINE, _TAB = _LETTER | _OTHER, _MARK | _OTHER, _DIGIT | _OTHER, _OTHER, _LETTER | _MARK


def count_ascii(raw: bytes) -> tuple[int, ...]:
    """The counts named in `figures.ASCII_COUNTS`, in their order, of at most LONGEST_BYTES of UTF-8, at least one."""
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
    """Where a run has come to its fifteenth or is beyond it."""
    run = plane & (plane >> 4)
    run &= run >> 8
    run &= run >> 16
    return run & (run >> 28)


# What of them is counted, None for all, and the planes of letters, marks, digits and others.
_Planes = tuple[int | None, int, int, int, int]


def _planes(raw: bytes) -> _Planes:
    """The planes of a short piece, only every fourth bit of them in use."""
    tables = _tables()
    codes, first = int(raw.translate(tables.codes), 16), tables.first
    return None, codes >> 3 & first, codes >> 2 & first, codes >> 1 & first, codes & first


def _four_planes(raw: bytes) -> _Planes:
    """The same of a long one, all of their bits in use."""
    tables = _tables()
    low, high, even, odd = tables.low, tables.high, tables.even, tables.odd
    size = (len(raw) + 3) // 4
    ends = size + _SEAM
    codes = b"%b%b000" % (b"0" * _SEAM, raw.translate(tables.codes))
    a, b, c, d = [int(codes[at : at + ends], 16) for at in range(0, 4 * size, size)]
    # Codes become planes as a square is turned over, of four bits by four: first its quarters, then within them.
    a, c = a & low | (c & low) << 2, (a & high) >> 2 | c & high
    b, d = b & low | (d & low) << 2, (b & high) >> 2 | d & high
    other, digit = a & even | (b & even) << 1, (a & odd) >> 1 | b & odd
    mark, letter = c & even | (d & even) << 1, (c & odd) >> 1 | d & odd
    return (1 << 4 * size) - 1, letter, mark, digit, other


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
