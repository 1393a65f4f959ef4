"""A question fits the window: the command wrapped and paged, the reason and the choices always in view."""

from __future__ import annotations

import pytest
from prompt_toolkit.utils import get_cwidth

from perdure.cli.chat.question_panel import QuestionPanel, lasting_rows
from perdure.cli.chat.questions import APPROVAL_HINT, PendingQuestion
from perdure.cli.style import Style, wrap_lines

PLAIN = Style(is_color=False)
REASON = "it deletes files that cannot be brought back: rm -rf data_of_mine"
COVERS = (
    "“always” allows everything of the kind delete-tree, in every folder and conversation, until revoked; "
    "“session” until the program ends."
)
ONE_LINE = (
    "cd sub && ls -la && echo 'preparing the workspace for the next step of the build, please wait' && make clean ; "
    "rm -rf data_of_mine ; curl -s http://collector.example.org/upload -d @results.json"
)
MANY_LINES = "\n".join(["set -e", *(f"echo step {n}" for n in range(60)), "rm -rf data_of_mine", "echo done"])
ENDLESS = "rm -rf data_of_mine " + "漢字" * 3_000 + " x" * 500
SIZES = [(60, 20), (80, 24), (100, 30), (40, 12)]


def _panel(command: str) -> QuestionPanel:
    text = f"May this run?  {command}"
    return QuestionPanel(PendingQuestion(text, APPROVAL_HINT, notes=(REASON, COVERS), marked=("rm -rf data_of_mine",)))


@pytest.mark.parametrize(("answer", "is_shown"), [("always", True), ("session", False), ("yes", False), ("no", False)])
def test_what_always_has_stored_stays_on_the_screen(answer: str, is_shown: bool) -> None:
    standing = "Allowed from now on: everything of the kind delete-tree. Revoke it with `perdure approvals revoke x`."
    question = PendingQuestion("May this run?  rm -rf x", APPROVAL_HINT, standing=standing)
    question.reply(answer)
    shown = " ".join(lasting_rows(question, 60, PLAIN))
    assert (standing in shown) == is_shown


def test_a_refused_diff_stays_on_the_screen_indented_as_finished_ones_are() -> None:
    question = PendingQuestion("May this run?  patch(a.py)\n- one\n+ two", APPROVAL_HINT, has_diff=True)
    question.reply("no")
    assert list(lasting_rows(question, 60, PLAIN))[1:3] == ["  - one", "  + two"]


def _words(lines: list[str]) -> str:
    return "".join("".join(lines).split())


@pytest.mark.parametrize(("columns", "rows"), SIZES)
@pytest.mark.parametrize("command", [ONE_LINE, MANY_LINES, ENDLESS])
def test_reason_and_choices_stay_in_view_and_nothing_is_cut_at_the_edge(command: str, columns: int, rows: int) -> None:
    lines = _panel(command).lines(columns, rows - 4, PLAIN)
    assert len(lines) <= rows - 4
    assert all(get_cwidth(line) <= columns for line in lines)
    assert _words([REASON]) in _words(lines)
    assert _words(lines).endswith(_words([APPROVAL_HINT]))


@pytest.mark.parametrize(("columns", "rows"), SIZES)
@pytest.mark.parametrize("command", [ONE_LINE, MANY_LINES, ENDLESS])
def test_every_part_of_the_command_can_be_reached(command: str, columns: int, rows: int) -> None:
    panel = _panel(command)
    seen: list[str] = []
    while True:
        lines = panel.lines(columns, rows - 4, PLAIN)
        body = [line for line in lines if line.startswith(("▶ ", "  "))]
        fresh = [line for line in body if line not in seen[-rows:]]
        seen += fresh
        panel.turn(1)
        if panel.lines(columns, rows - 4, PLAIN) == lines:
            break
    text = _words([line[2:] for line in seen])
    for piece in (command[:30], command[-30:], "rm -rf data_of_mine"):
        assert _words([piece]) in text


def test_a_short_command_needs_no_pages_and_the_dangerous_part_is_pointed_at() -> None:
    lines = _panel(ONE_LINE).lines(80, 20, PLAIN)
    assert not any("PgDn" in line for line in lines)
    panel = _panel(ONE_LINE)
    panel.lines(80, 20, PLAIN)
    assert not panel.is_paged
    assert [line.startswith("▶ ") for line in lines].count(True) in (1, 2)
    painted = "\n".join(_panel(ONE_LINE).lines(200, 20, Style(is_color=True)))
    assert "\x1b[31mrm -rf data_of_mine\x1b[0m" in painted


def test_pages_say_where_they_are_and_where_the_danger_is() -> None:
    panel = _panel(MANY_LINES)
    position = next(line for line in panel.lines(60, 16, PLAIN) if "PgDn" in line)
    assert position == "── lines 1–8 of 63 · ▶ also on line 62 · PgDn, PgUp, Ctrl-O"
    assert panel.is_paged
    panel.turn(100)
    assert any(line == "▶ rm -rf data_of_mine" for line in panel.lines(60, 16, PLAIN))
    panel.turn(-100)
    assert panel.lines(60, 16, PLAIN)[0] == "  May this run?  set -e"


def test_a_reason_longer_than_the_window_leaves_room_for_the_choices() -> None:
    question = PendingQuestion("May this run?  x", APPROVAL_HINT, notes=("because " * 500, COVERS))
    lines = QuestionPanel(question).lines(60, 16, PLAIN)
    assert len(lines) <= 16
    assert lines[0] == "  May this run?  x"
    assert _words(lines).endswith(_words([APPROVAL_HINT]))


def test_a_diff_is_painted_and_not_repeated_once_it_is_allowed() -> None:
    ink = Style(is_color=True)
    text = "May this run?  patch(path='a.py')\n@@ -1,2 +1,2 @@\n same\n-old " + "x" * 50 + "\n+new"
    question = PendingQuestion(text, APPROVAL_HINT, is_approval=True, has_diff=True)
    lines = QuestionPanel(question).lines(40, 20, ink)
    assert f"  {ink.good('+new')}" in lines
    assert f"  {ink.dim('@@ -1,2 +1,2 @@')}" in lines
    assert sum("\x1b[31m" in line for line in lines) == 2  # the removed line and its rest
    question.reply("y")
    assert question.lasting_text == "May this run?  patch(path='a.py')"
    refused = PendingQuestion(text, APPROVAL_HINT, is_approval=True, has_diff=True)
    refused.reply("no, not this one")
    assert refused.lasting_text == text
    command = PendingQuestion("May this run?  cat <<E\n-a\nE", APPROVAL_HINT, is_approval=True)
    assert not any("\x1b[31m" in line for line in QuestionPanel(command).lines(40, 20, ink))


def test_a_wrapped_line_of_a_diff_is_seen_to_be_one() -> None:
    diff = ["@@ -1,2 +1,2 @@", "-old = 'short'", "+new = '" + "long words " * 12 + "'", " kept = 1"]
    text = "\n".join(["May this run?  patch calc.py", *diff])
    question = PendingQuestion(text, APPROVAL_HINT, is_approval=True, has_diff=True)
    for rows in (QuestionPanel(question).lines(60, 30, PLAIN), list(lasting_rows(question, 58, PLAIN))):
        lines = [row.strip() for row in rows]
        start = next(n for n, line in enumerate(lines) if line.startswith("+new"))
        assert [line[:1] for line in lines[start + 1 : start + 3]] == ["↳", "↳"]
        assert sum(line.startswith(("+", "-")) for line in lines) == 2
        assert all(get_cwidth(row) <= 60 for row in rows)
        joined = " ".join(lines).replace("↳ ", "")
        assert " ".join(diff[2].split()) in " ".join(joined.split()), "nothing is left out"
    painted = QuestionPanel(question).lines(60, 30, Style(is_color=True))
    assert all(row.strip().startswith("\x1b[32m") for row in painted if "↳" in row), "in the colour of its line"


@pytest.mark.parametrize("width", [20, 33, 60])
def test_wide_characters_are_wrapped_by_their_columns(width: int) -> None:
    text = "漢字かな交じり文 mixed with words 😀😀 " * 9
    rows = list(wrap_lines([text, "", "a"], width))
    assert all(get_cwidth(row) <= width for row in rows)
    assert "".join("".join(rows).split()) == "".join(text.split()) + "a"
    assert rows[-2:] == ["", "a"]


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_a_command_in_a_note_is_not_broken(columns: int) -> None:
    command = "`.venv/bin/perdure approvals revoke edit-file`"
    covers = (
        f"“always” allows everything of the kind edit-file, in every folder, until revoked with {command}; and so on."
    )
    panel = QuestionPanel(PendingQuestion("May this run?  patch", APPROVAL_HINT, notes=(REASON, covers)))
    assert [line for line in panel.lines(columns, 20, PLAIN) if command in line]
