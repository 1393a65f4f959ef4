"""What a finished call shows below its line: output, diffs, errors; the whole of it on request."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from perdure.cli.chat.tool_output import output_lines
from perdure.cli.chat.transcript import ChatTranscript
from perdure.cli.style import Style
from perdure.core.concurrency import SystemClock
from perdure.core.events import Event, ToolFinished, ToolStarted, ToolState, TurnFinished
from perdure.core.messages import Message, ToolCall
from perdure.core.ports import StoredOutput
from perdure.tools.builtin.files import FileEditor
from perdure.tools.output_limits import persisted_block
from perdure.tools.runtime import ToolRuntime, ToolScope
from perdure.tools.tool import ToolRegistry
from perdure.tools.workspace import Workspace

PLAIN = Style(is_color=False)


def _finished(
    name: str, result: str, *, state: ToolState = "completed", exit_code: int | None = None, command: str = "make"
) -> ToolFinished:
    call = ToolCall("c1", name, json.dumps({"command": command}))
    message = Message("tool", result, tool_call_id="c1", name=name)
    return ToolFinished(call, message, 0.5, is_error=state != "completed", state=state, exit_code=exit_code)


def _lines(event: ToolFinished, most: int = 6, width: int = 80, style: Style = PLAIN) -> list[str]:
    return list(output_lines(event, most=most, width=width, ink=style))


def _shown(*events: object) -> tuple[str, ChatTranscript]:
    written: list[str] = []
    transcript = ChatTranscript(written.append, width=lambda: 80, ink=PLAIN)
    for event in events:
        transcript.show(event)  # type: ignore[arg-type]  # any event
    return "".join(written), transcript


def test_a_short_output_is_shown_whole_without_its_exit_status() -> None:
    assert _lines(_finished("terminal", "[exit 0]\none\ntwo")) == ["  one", "  two"]


def test_a_long_output_shows_both_ends_and_says_how_much_is_missing() -> None:
    lines = _lines(_finished("terminal", "[exit 0]\n" + "\n".join(f"line {n}" for n in range(100))))
    assert lines[:2] == ["  line 0", "  line 1"]
    assert lines[2] == "  … 94 more lines; Ctrl-O shows all of it"
    assert lines[3:] == ["  line 96", "  line 97", "  line 98", "  line 99"]


def test_a_failed_command_shows_its_exit_code_and_its_output() -> None:
    text, _ = _shown(_finished("terminal", "[exit 3]\ncat: /no/such/file", state="failed", exit_code=3))
    assert "✗ terminal make · exit 3 ·" in text
    assert "  cat: /no/such/file\n" in text


def test_a_patch_shows_its_diff_in_colour() -> None:
    result = "Patched a.py:\n@@ -1,2 +1,2 @@\n def f():\n-    return 1\n+    return 2"
    lines = _lines(_finished("patch", result), style=Style(is_color=True))
    assert "\x1b[31m  -    return 1\x1b[0m" in lines
    assert "\x1b[32m  +    return 2\x1b[0m" in lines
    assert not any("Patched" in line for line in lines)


def test_reading_a_file_shows_nothing_more_but_its_error_does() -> None:
    assert _lines(_finished("read_file", "     1|secret")) == []
    assert _lines(_finished("read_file", "Error: no such file", state="failed")) == ["  Error: no such file"]


def test_zero_lines_show_none() -> None:
    assert _lines(_finished("terminal", "[exit 0]\nx"), most=0) == []


@pytest.mark.parametrize("width", [12, 60, 80])
def test_no_line_is_wider_than_the_terminal_and_none_steers_it(width: int) -> None:
    lines = _lines(_finished("terminal", "[exit 0]\n" + "\t" * 9 + "x" * 500 + "\x1b[2Jgone"), width=width)
    assert lines
    assert all(len(line) <= max(width, 13) for line in lines)
    assert "\x1b" not in "".join(lines)


def test_a_chat_without_a_tool_call_says_so() -> None:
    transcript = ChatTranscript(lambda _: None, width=lambda: 80, ink=Style(is_color=False))
    assert transcript.unfold() == "No tool has run in this conversation yet."


def test_the_newest_output_can_be_unfolded() -> None:
    result = "\n".join(f"line {n}" for n in range(100))
    _, transcript = _shown(_finished("terminal", f"[exit 0]\n{result}"))
    assert transcript.unfold() == f"terminal make\n{result}"


def test_the_key_pressed_again_unfolds_the_output_before(monkeypatch: pytest.MonkeyPatch) -> None:
    _, transcript = _shown(
        _finished("terminal", "[exit 0]\nall of one", command="one"),
        _finished("terminal", "[exit 0]", command="two"),
    )
    newest = ["terminal two: no output", "(Ctrl-O again: terminal one)"]
    assert [transcript.unfold_lines(80) for _ in range(4)] == [
        newest,
        ["terminal one", "all of one"],
        ["No earlier output is kept; Ctrl-O begins with the newest again."],
        newest,
    ]
    transcript.show(_finished("terminal", "[exit 0]\n3", command="three"))
    assert transcript.unfold().startswith("terminal three\n3")
    monkeypatch.setattr("perdure.cli.chat.transcript._STEP_BACK_S", 0.0)
    assert transcript.unfold().startswith("terminal two")
    assert transcript.unfold().startswith("terminal three")


def test_a_pager_names_the_key_that_leaves_it_before_the_key_for_the_output_before() -> None:
    long = "\n".join(f"line {n}" for n in range(30))
    _, transcript = _shown(
        _finished("terminal", "[exit 0]\nall of one", command="one"), _finished("terminal", f"[exit 0]\n{long}")
    )
    assert transcript.unfold_lines(80, paged_from=20)[-1] == "(after q, Ctrl-O shows terminal one)"
    transcript.remember([])
    transcript.show(_finished("terminal", "[exit 0]\nall of one", command="one"))
    transcript.show(_finished("terminal", f"[exit 0]\n{long}"))
    assert transcript.unfold_lines(80)[-1] == "(Ctrl-O again: terminal one)"


def _edited(folder: Path, name: str, **arguments: str) -> ToolFinished:
    """A call of a real editing tool, finished."""
    runtime = ToolRuntime(ToolRegistry(FileEditor(Workspace(folder)).tools()), clock=SystemClock())
    events: list[Event] = []
    call = ToolCall("c1", name, json.dumps(arguments))
    asyncio.run(runtime.batch([call], ToolScope(task_id="t"), events.append).run())
    return next(e for e in events if isinstance(e, ToolFinished))


def test_a_new_file_can_be_unfolded_whole(tmp_path: Path) -> None:
    content = "".join(f"line {n}\n" for n in range(40))
    shown, transcript = _shown(_edited(tmp_path, "write_file", path="big.py", content=content))
    assert "… 29 more lines; Ctrl-O shows all of it" in shown
    added = "\n".join(f"+line {n}" for n in range(40))
    assert transcript.unfold() == f"write_file big.py\nCreated big.py: 40 lines\n@@ 40 lines @@\n{added}"


def test_a_file_that_is_replaced_shows_the_lines_that_were_lost(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# demo\nkeep\nlost\n")
    shown, transcript = _shown(_edited(tmp_path, "write_file", path="a.md", content="# new\nkeep\n"))
    assert "  @@ -1,3 +1,2 @@\n  -# demo\n  +# new\n   keep\n  -lost\n" in shown
    assert transcript.unfold().endswith("@@ -1,3 +1,2 @@\n-# demo\n+# new\n keep\n-lost")
    shown, _ = _shown(_edited(tmp_path, "write_file", path="a.md", content=""))
    assert "-# new\n  -keep\n" in shown


def test_a_long_file_that_is_replaced_can_be_unfolded_with_every_lost_line(tmp_path: Path) -> None:
    old, new = ([f"{word} {n}" for n in range(1_500)] for word in ("old", "new"))
    (tmp_path / "a.txt").write_text("\n".join(["same"] * 9 + old + ["end"] * 9))
    content = "\n".join(["same"] * 9 + new + ["end"] * 9)
    _, transcript = _shown(_edited(tmp_path, "write_file", path="a.txt", content=content))
    lines = transcript.unfold().split("\n")
    assert lines[2:6] == ["@@ -7,1506 +7,1506 @@", " same", " same", " same"]
    assert lines[6:] == [*(f"-{line}" for line in old), *(f"+{line}" for line in new), " end", " end", " end"]


@pytest.mark.parametrize("count", [60, 400])
def test_a_long_patch_can_be_unfolded_whole(tmp_path: Path, count: int) -> None:
    before, after = ("\n".join(f"{word} {n}" for n in range(count)) for word in ("old", "new"))
    (tmp_path / "a.py").write_text(f"first\nsecond\n{before}\nlast\n")
    event = _edited(tmp_path, "patch", path="a.py", old=f"second\n{before}\n", new=f"second\n{after}\n")
    _, transcript = _shown(event)
    lines = transcript.unfold().split("\n")
    assert lines[:2] == ["patch a.py", "Patched a.py:"]
    assert [line for line in lines if line.startswith("-old")] == [f"-old {n}" for n in range(count)]
    assert [line for line in lines if line.startswith("+new")] == [f"+new {n}" for n in range(count)]
    assert "more" not in transcript.unfold()
    if count == 60:
        assert lines[2:5] == ["@@ from line 2 @@", " second", "-old 0"]


def test_a_call_without_a_result_stays_on_the_screen_when_the_turn_is_stopped() -> None:
    call = ToolCall("c1", "terminal", '{"command": "sleep 60"}')
    text, _ = _shown(ToolStarted(call), TurnFinished("interrupted", ""))
    assert "■ terminal sleep 60 · stopped" in text


def test_a_file_written_whole_shows_its_lines_as_added() -> None:
    call = ToolCall("c1", "write_file", json.dumps({"path": "a.py", "content": "one\ntwo\n"}))
    event = ToolFinished(call, Message("tool", "Created a.py: 2 lines", tool_call_id="c1"), 0.1)
    assert _lines(event) == ["  @@ 2 lines @@", "  +one", "  +two"]


def test_a_call_that_a_mode_or_a_rule_forbids_says_which() -> None:
    plan = "Error: terminal was not run: plan mode is on, in which nothing is changed."
    assert _lines(_finished("terminal", plan, state="refused")) == ["  plan mode is on"]
    rule = "Error: terminal was not run: the rule “terminal(git push *)” (your settings) forbids it. Do not try."
    assert _lines(_finished("terminal", rule, state="refused")) == [
        "  the rule “terminal(git push *)” (your settings) forbids it"
    ]
    refused = "Error: terminal was not run, the user refused: it deletes files."
    assert _lines(_finished("terminal", refused, state="refused")) == []


def test_the_line_of_an_edit_counts_the_lines_it_changed() -> None:
    def finished(name: str, result: str, diff: tuple[str, ...] = (), **arguments: object) -> str:
        call = ToolCall("c1", name, json.dumps({"path": "a.py", **arguments}))
        message = Message("tool", result, tool_call_id="c1", name=name)
        return _shown(ToolFinished(call, message, 0.5, is_error=False, state="completed", diff=diff))[0].split("\n")[0]

    assert finished("patch", "Patched a.py:\n@@ -1,2 +1,3 @@\n a\n-b\n+c\n+d").endswith("· 0.5 s · +2 -1 lines")
    assert finished("write_file", "Created a.py: 2 lines", content="x\ny\n").endswith("· +2 -0 lines")
    assert finished("write_file", "Replaced a.py: 1 line", ("@@ -1 +1 @@", "-x", "+y")).endswith("· +1 -1 lines")
    assert finished("write_file", "Replaced a.py: 1 line", ("@@ the same lines @@",)).endswith("· no change")
    # Not known: what a stored call replaced, a binary file, every match.
    assert finished("write_file", "Replaced a.py: 1 line", content="x").endswith(" · 21 characters")
    lost = ("@@ replaces a binary file, 2 bytes @@", "+x")
    assert finished("write_file", "Replaced a.py: 1 line", lost).endswith(" · 21 characters")
    assert finished("patch", "Patched a.py:\n-b\n+c", replace_all=True).endswith(" characters")


def _spilled(text: str) -> str:
    """The result of a call whose output was stored, as the model gets it."""
    stored = StoredOutput("o_1", "c_1", "call_1", len(text), "", "/data/outputs/o_1.txt")
    return f"[exit 0]\n{persisted_block(stored, text[:20], text[-20:], lines=text.count(chr(10)))}"


def test_a_stored_output_is_unfolded_by_its_address_without_advice_for_the_model() -> None:
    text = "".join(f"line {n}\n" for n in range(4_000))
    shown, transcript = _shown(_finished("terminal", _spilled(text)))
    assert "kept at output:o_1" in shown
    assert "  … Ctrl-O shows all of it\n" in shown
    unfolded = transcript.unfold()
    assert transcript.unfolded_address == "output:o_1"
    assert unfolded.startswith("terminal make\nline 0\nline 1\n")
    assert "\nline 3999\n(All of it, 38,890 characters (37 KB) in 4,000 lines: /expand output:o_1)" in unfolded
    assert not [word for word in ("persisted-output", "read_file", "session_search", "First 20") if word in unfolded]
    transcript.show(_finished("terminal", "[exit 0]\nshort"))
    transcript.unfold()
    assert transcript.unfolded_address == ""
