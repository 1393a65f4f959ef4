"""The counts taken over bit planes agree with what plain searches find, wherever the stretches of a piece meet."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.models.text_stats import ASCII_COUNTS, LONGEST_BYTES, count_ascii

_MARK = r"[^A-Za-z0-9 \r\n\t\x80-\xff]"
# Every class, both cases, both line ends, the slash that is a mark too, and a byte outside ASCII.
_BYTES = "aB7 /.\n\r\t\xe9"

runs = st.tuples(st.sampled_from(_BYTES), st.integers(1, 20)).map(lambda run: run[0] * run[1])


def searched(text: str) -> dict[str, int]:
    """The same counts, each by a search of its own; every character is a byte here."""

    def lengths(pattern: str) -> list[int]:
        return [len(run[0]) for run in re.finditer(pattern, text)]

    cases, digits, marks = lengths("[a-z]+|[A-Z]+"), lengths("[0-9]+"), lengths(f"{_MARK}+")
    capitals = lengths("[A-Z]+")
    return {
        "letters": sum(cases),
        "words": len(capitals) + len(lengths("(?<![A-Za-z])[a-z]+")),
        "long_letters": sum(max(0, n - 15) for n in cases),
        "capitals": len(capitals),
        "shouts": sum(n >= 2 for n in capitals),
        "mixed": len(lengths("(?<=[0-9])[A-Z]")) + len(lengths("(?<=[A-Z])[0-9]")),
        "numbers": len(digits),
        "lone_digits": digits.count(1),
        "long_digits": sum(max(0, n - 3) for n in digits),
        "marks": sum(marks),
        "mark_runs": len(marks),
        "mark_pairs": sum(n >= 2 for n in marks),
        "mark_bars": sum(n >= 4 for n in marks),
        "slashes": text.count("/"),
        "mark_space": len(lengths(f"(?<={_MARK}) ")),
        "space_mark": len(lengths(f"(?<= ){_MARK}")),
        "indents": len(lengths(" {2,}")),
        "space_number": len(lengths("(?<= )[0-9]")),
        "tab_runs": len(lengths(r"(?<![\t\r\n])\t+")),
        "tab_indents": len(lengths(r"(?<=[\r\n])\t+")),
        "line_ends": len(lengths(r"[\r\n]+")),
    }


def counted(text: str) -> dict[str, int]:
    return dict(zip(ASCII_COUNTS, count_ascii(text.encode("latin-1")), strict=True))


@pytest.mark.spec("B2")
@given(st.lists(runs, min_size=1, max_size=200).map("".join))
def test_every_count_is_what_a_search_finds(text: str) -> None:
    assert counted(text) == searched(text)


@pytest.mark.spec("B2")
@pytest.mark.parametrize("size", [1, 2, 511, 512, 513, 514, 515, 516, 517, 2_049, 8_191, LONGEST_BYTES])
def test_a_piece_of_any_size_is_counted_to_its_last_byte(size: int) -> None:
    random = Random(size)
    for _ in range(4):
        text = "".join(random.choice(_BYTES) * random.randint(1, 20) for _ in range(size))[:size]
        assert counted(text) == searched(text)


@pytest.mark.spec("B2")
@pytest.mark.parametrize("byte", _BYTES)
def test_a_single_run_is_one_run_across_every_seam(byte: str) -> None:
    text = byte * 4_001
    assert counted(text) == searched(text)
