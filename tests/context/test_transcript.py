"""What the summariser is really given of the middle: one informative line where there was a page."""

from __future__ import annotations

import json

import pytest

import perdure
from perdure.config.settings import CompressionSettings
from perdure.context.summary_input import CLEARED, MESSAGE_CHARS, transcribe
from perdure.core.messages import Entry, ImagePart, Message, TextPart, ToolCall, assistant, tool_result
from perdure.models.tokens import estimate_text
from perdure.models.windows import window_budgets
from support.long_histories import working_session
from support.summarisers import GOOD, Scripted


def told(*messages: Message) -> list[str]:
    return transcribe([Entry(i, m) for i, m in enumerate(messages)]).blocks


def ran(n: int, command: str, result: str) -> list[Message]:
    call = ToolCall(f"c{n}", "terminal", json.dumps({"command": command}))
    return [assistant(None, (call,)), tool_result(call.id, result, "terminal")]


@pytest.mark.spec("D1")
def test_a_long_result_is_told_in_one_line_and_a_short_one_as_it_is() -> None:
    long, short = "collected 3 items\n" * 40 + "exit code: 1\n3 failed", "x" * 200
    told_long, told_short, told_over = (told(*ran(0, "pytest tests/", r))[1] for r in (long, short, short + "x"))
    assert told_long.startswith("[terminal] ran `pytest tests/` → exit 1, 42 lines")
    assert "\n" not in told_long
    assert told_short == f"[terminal] result: {short}"
    assert "201 characters" in told_over
    assert told(tool_result("nobody", "y" * 201)) == [CLEARED]


@pytest.mark.spec("D1")
def test_identical_results_are_told_once_at_the_last() -> None:
    same = "the same long listing\n" * 30
    _, first, _, last = told(*ran(0, "ls a", same), *ran(1, "ls b", same))
    assert first == "[terminal] ran `ls a` → the same output as a later call"
    assert "30 lines" in last


@pytest.mark.spec("D1")
def test_large_arguments_are_shortened_and_stay_json() -> None:
    arguments = {"path": "a.py", "content": "x = 1\n" * 9_000, "mode": 420, "force": True}
    (line,) = told(assistant(None, (ToolCall("c", "write_file", json.dumps(arguments)),)))
    assert len(line) < 1_000
    kept = json.loads(line.split("write_file ", 1)[1])
    assert (kept["path"], kept["mode"], kept["force"]) == ("a.py", 420, True)


@pytest.mark.spec("D1", "D5")
def test_a_pasted_book_is_told_by_its_ends_and_a_picture_by_a_word() -> None:
    picture = ImagePart("data:image/png;base64," + "A" * 9_000)
    (line,) = told(Message("user", (TextPart("Begin. " + "word " * 9_000 + "End."), picture)))
    assert len(line) < MESSAGE_CHARS + 200
    assert "USER: Begin." in line
    assert "End.\n[1 image]" in line


@pytest.mark.spec("D1")
def test_the_summariser_is_given_these_lines_and_no_page() -> None:
    ask = Scripted(GOOD)
    perdure.compress(working_session(30, chars=3_000), context_length=64_000, summarize=ask)
    transcript = ask.prompts[0].split("<transcript>")[1]
    assert "→ `make target_" in transcript
    assert max(map(len, transcript.splitlines())) < 1_000
    assert len(transcript) < 30 * 3_000


@pytest.mark.spec("C2")
@pytest.mark.parametrize("window", [32_000, 64_000, 200_000])
def test_record_and_index_keep_to_their_own_budget(window: int) -> None:
    raw = [
        m for n in range(120) for m in ({"role": "user", "content": _names(n)}, {"role": "assistant", "content": "ok"})
    ]
    with_record = perdure.compress(raw, context_length=window, summarize=lambda _: GOOD)
    without = perdure.compress(raw, context_length=window, summarize=lambda _: GOOD, settings={"record_ratio": 0})
    added = estimate_text(with_record.handoff) - estimate_text(without.handoff)
    # What is said in a dialogue has twice the room, within the limit.
    most = min(2 * window_budgets(window).record_tokens, CompressionSettings().record_max_tokens)
    # Paths and numbers are more tokens than prose of the same length.
    assert 0.5 * most < added <= 1.25 * most
    assert without.record is not None
    assert not without.record.record


def _names(n: int) -> str:
    return " and ".join(f"src/area_{n}_{k}/part_{n * 31 + k}.py at {n * 7919 + k * 104_729}" for k in range(60))
