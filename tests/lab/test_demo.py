"""The demo holds a real conversation; only its model is scripted."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from perdure.cli.demo import summary_lines
from perdure.cli.main import cli
from perdure.cli.style import Style, break_command
from perdure.core.events import Event, ToolFinished
from perdure.lab.demo.run import WINDOW, Demo, DemoSummary, QuizResult
from perdure.lab.demo.script import QUIZ


def test_the_demo_outgrows_its_window_and_still_answers(tmp_path: Path) -> None:
    events: list[Event] = []
    demo = Demo(tmp_path / "demo", on_event=events.append)
    with demo.open():
        answers = [demo.take_turn(number) for number in range(len(demo.messages))]
        summary = demo.summarize()
        assert summary.context_tokens == demo.usage.tokens, "the figure of the bar above the summary"
        # A chat that resumes it has no model, so it shows what is stored of the last call.
        stored = demo.store.ledger.context_usage(summary.conversation_id)
        assert stored is not None
        assert summary.context_tokens == stored.tokens
        assert demo.store.conversations.get(summary.conversation_id).title.startswith("Demo: ")
        assert demo.violations == []
    assert summary.compactions >= 3
    assert summary.history_tokens > WINDOW
    assert summary.context_tokens < WINDOW
    assert summary.spilled >= 1
    assert summary.cost_usd
    assert answers[-1] == "Never touch anything under `migrations/`, and report every duration in seconds."
    failed = [e.call.arguments for e in events if isinstance(e, ToolFinished) and e.is_error]
    # The bug, and the deletion that the user refuses.
    assert len(failed) == 2, failed
    places = [result.where for result in summary.quiz]
    assert "lost" not in places, summary.quiz
    assert (demo.workspace / "archive/2024.csv").exists()


def test_the_command_ends_with_hints_that_can_be_typed(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    result = CliRunner().invoke(cli, ["demo", "--fast", "--folder", str(folder)])
    assert result.exit_code == 0, result.output
    assert "Quiz: is it still known?" in result.output
    hints = result.output[result.output.index("Quiz:") :]
    assert f"PERDURE_HOME={folder}/home" in hints
    assert "/handoff shows what the model reads now" in " ".join(hints.split())
    # A command stands alone on its line, so that it can be copied whole.
    commands = [line.strip() for line in hints.replace(" \\\n  ", " ").splitlines() if "PERDURE_HOME=" in line]
    assert [c.split(" ")[-1] for c in commands][:2] == ["last", "serve"]
    assert all(c.startswith("PERDURE_HOME=") for c in commands)


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_every_answer_of_the_quiz_is_shown_whatever_the_width(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    quiz = tuple(QuizResult(q.question, q.answer, "one question away") for q in QUIZ)
    summary = DemoSummary("c_1", 9, 3, 1, 40_000, 12_000, 90_000, 0.8, 0.1, quiz)
    lines = list(summary_lines(summary, Style(is_color=False)))
    rows = lines[lines.index("Quiz: is it still known?") + 1 :]
    assert all(len(row) < max(columns, 44) for row in rows)
    words = " ".join(" ".join(rows).split())
    assert all(f"{q.question} {q.answer}" in words for q in QUIZ)


def test_an_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["demo", "--folder", str(tmp_path)])
    assert result.exit_code == 2
    assert "exists already" in result.output


def test_a_command_that_is_wider_than_the_terminal_is_broken_between_its_parts() -> None:
    pieces = ("PERDURE_HOME=/tmp/perdure-demo-mvpjbxj5/home", ".venv/bin/perdure", "chat --resume last")
    assert list(break_command(pieces, 100)) == [f"  {' '.join(pieces)}"]
    narrow = list(break_command(pieces, 56))
    assert narrow == [f"  {pieces[0]} \\", "  .venv/bin/perdure chat --resume last"]
