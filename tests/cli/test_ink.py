"""Plain text on a terminal: fitted to its width, with nothing in it that steers."""

from __future__ import annotations

import itertools

import pytest

from perdure.cli.style import fit_lines, fit_parts, safe, wrap_lines
from perdure.commands.format import bar


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_a_bar_gives_way_before_words_are_wrapped(width: int) -> None:
    line = f"tool outputs {bar(4_000, 8_000, width=24, mark=6_000)}     4,000  50%"
    (first, *rest) = fit_lines([line], width)
    assert all(len(shown) <= width for shown in (first, *rest))
    if width >= 40:
        assert rest == []
        assert first.endswith("4,000  50%")
        cells = "".join(c for c in first if c in "█░│")
        assert cells.count("│") == 1
        assert abs(cells.count("█") / len(cells) - 0.5) <= 0.1
        assert abs(cells.index("│") / len(cells) - 0.75) <= 0.1


def test_a_narrow_bar_has_one_mark() -> None:
    for mark, width in itertools.product(range(0, 12_001, 250), range(34, 60)):
        (line, *_) = fit_lines([f"context {bar(7_058, 12_000, mark=mark)} 7,058 of 12,000 tokens"], width)
        assert line.count("│") == 1, (mark, width, line)


_GAUGE = bar(2_637, 1_000_000, width=16, mark=500_000)
_STATUS = f"sim-1 · {_GAUGE} 2,637/1,000,000 · edits · cost $0.0312 · cache 88% · retry policy for all the payments"


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (200, _STATUS),
        (92, f"sim-1 · {_GAUGE} 2,637/1,000,000 · edits · cost $0.0312 · cache 88% · retry policy…"),
        (80, f"sim-1 · {_GAUGE} 2,637/1,000,000 · edits · cost $0.0312 · cache 88%"),
        (68, f"sim-1 · {_GAUGE} 2,637/1,000,000 · edits · cost $0.0312"),
        (50, "sim-1 · 2,637/1,000,000 · edits · cost $0.0312"),
        (40, "sim-1 · 2,637/1,000,000 · edits"),
        (25, "sim-1 · 2,637/1,000,000"),
        (8, "sim-1"),
        (3, "si…"),
    ],
)
def test_a_status_keeps_what_matters_and_leaves_out_whole_parts(width: int, shown: str) -> None:
    assert fit_parts(_STATUS, width, essential=4) == shown


def test_the_bar_of_a_status_gives_way_to_its_cost() -> None:
    shown = fit_parts(_STATUS, 59, essential=4)
    assert len(shown) == 59
    assert shown.endswith(" 2,637/1,000,000 · edits · cost $0.0312")
    assert "│" in shown


def test_what_could_steer_a_terminal_is_left_out() -> None:
    assert safe("a\x1b]0;title\x07b\x9bc\u202ed\te\n") == "a]0;titlebcd\te\n"


def test_a_list_of_commands_keeps_its_second_column() -> None:
    words = "open what a handoff stands for " * 2
    lines = ["/new                  start a new conversation", f"/expand [id] [last]   {words}"]
    fitted = list(fit_lines(lines, 50))
    assert fitted[0] == lines[0]
    assert fitted[1].startswith("/expand [id] [last]   open what")
    assert all(line.startswith(" " * 22) and line[22] != " " for line in fitted[2:])
    assert max(map(len, fitted)) <= 50


@pytest.mark.parametrize(
    "label",
    ["Ctrl-X Ctrl-E, Ctrl-V       ", "Esc, Ctrl-C                 ", "the user's rules:  ", "last tests:        "],
)
def test_a_label_of_several_words_keeps_its_column_in_a_narrow_window(label: str) -> None:
    lines = list(fit_lines([f"{label}write in $EDITOR; attach the image in the clipboard, and more of it"], 60))
    assert lines[0].startswith(f"{label}write in")
    assert len(lines) > 1
    assert all(line.startswith(" " * len(label) + line.strip()[:1]) and len(line) <= 60 for line in lines[1:])


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_short_label_keeps_its_column_when_its_words_are_wrapped(width: int) -> None:
    lines = list(fit_lines(["→ ask    asks before every edit and every command that may change something"], width))
    assert len(lines) > 1 or width == 80
    assert lines[0].startswith("→ ask    asks before")
    assert all(line.startswith(" " * 9 + line.strip()[:1]) and len(line) <= width for line in lines[1:])


def test_foreign_lines_are_wrapped_between_words_and_keep_their_blanks() -> None:
    text = ["    if    ready:   run(the_command_with_a_long_name)   # and a comment behind it", "", "x" * 90]
    lines = list(wrap_lines(text, 40))
    assert lines[0] == "    if    ready:"
    assert lines[1] == "run(the_command_with_a_long_name)   #"
    assert lines[3:] == ["", "x" * 40, "x" * 40, "x" * 10]


def test_an_address_wider_than_its_column_has_a_row_that_can_be_copied() -> None:
    address = "http://127.0.0.1:8421/#token=pdr_kT0jiP9_a-6_bFNHwCd7msvNRVAR79vDnBeY"
    line = f"Open                    {address}"
    assert list(fit_lines([line], 100)) == [line]
    assert list(fit_lines([line], 80)) == [f"Open  {address}"]
    assert [row.strip() for row in fit_lines([line], 70)] == ["Open", address]


def test_blanks_of_foreign_text_stay_as_they_are() -> None:
    line = "content: def greet(name):\\n    return 'Hello, ' + name + '!' and some more words"
    assert "\\n    return" in "\n".join(fit_lines([line], 60, keeps_blanks=True))
    assert "\\n    return" not in "\n".join(fit_lines([line], 60))


@pytest.mark.parametrize("width", [60, 80])
def test_an_address_wider_than_the_indented_row_begins_at_the_left_edge(width: int) -> None:
    address = f"http://127.0.0.1:8421/#token=pdr_{'x' * 43}"
    assert list(fit_lines([f"Open                    {address}"], width)) == ["Open", address]
    assert list(fit_lines([f"Open                    {address}"], 120)) == [f"Open                    {address}"]
