"""Active Task comes from what the user really said."""

from __future__ import annotations

import json

import pytest

import perdure
from perdure.context.record.record import call_lines
from perdure.context.task_state.active_task import (
    ALL_ANSWERED,
    OPEN,
    parse_active_task,
    write_active_task,
)
from perdure.context.task_state.reader import read_state
from perdure.context.task_state.sections import write_sections
from perdure.context.task_state.state import TaskState, UserRequest
from perdure.context.user_text.intent import goes_on, is_bare
from perdure.core.messages import Entry, Message, ToolCall, assistant, tool_result, user

STEP = [assistant(None, (ToolCall("c", "terminal"),)), tool_result("c", "ok")]


def _state(*messages: Message, previous: str = "") -> TaskState:
    entries = [Entry(n, m) for n, m in enumerate(messages)]
    return read_state(entries, call_lines(entries), previous={"Active Task": previous})


def _waiting(*messages: Message, previous: str = "") -> list[str]:
    return [r.own_words for r in _state(*messages, previous=previous).open_requests]


@pytest.mark.spec("E2")
def test_an_unanswered_request_is_quoted_word_for_word() -> None:
    text = write_active_task(_state(user("Fix the parser.\nKeep the tests green."), *STEP))
    assert text.startswith(f"{OPEN}\n> Fix the parser.\n> Keep the tests green.\n\n- Done since then:")


@pytest.mark.spec("E2")
def test_every_unfinished_request_newest_last() -> None:
    found = _waiting(user("Fix the parser."), *STEP, user("Use tabs, please: the linter wants them."), *STEP)
    assert found == ["Fix the parser.", "Use tabs, please: the linter wants them."]


@pytest.mark.spec("E2")
def test_a_reply_closes_what_was_asked_and_none_is_open() -> None:
    state = _state(user("Fix the parser."), *STEP, assistant("Fixed."))
    assert state.open_requests == ()
    assert write_active_task(state) == f"{ALL_ANSWERED}\n> Fix the parser."
    assert write_active_task(_state()) == "None"


@pytest.mark.spec("E2")
def test_a_reply_that_asks_back_leaves_the_request_open() -> None:
    assert _waiting(user("Fix the parser."), assistant("Which of the two?")) == ["Fix the parser."]


@pytest.mark.spec("E2")
@pytest.mark.parametrize(
    "word",
    ["continue", "Continue.", "go on", "please continue", "keep going!", "继续", "请继续。", "続けて", "続けてください",
     "계속", "계속해줘", "weiter", "mach weiter", "continúa", "продолжай"],
)  # fmt: skip
def test_a_bare_continue_takes_the_task_up_again(word: str) -> None:
    asked = [user("Port the lexer, the parser and the printer."), assistant("The lexer is done."), user(word)]
    assert _waiting(*asked, *STEP) == ["Port the lexer, the parser and the printer."]


@pytest.mark.spec("E2")
@pytest.mark.parametrize(
    "word",
    [
        "thanks",
        "Thank you!",
        "ok",
        "OK, great",
        "yes",
        "好的",
        "谢谢！",
        "ありがとう",
        "了解です",
        "네, 감사합니다",
        "merci",
        "👍",
    ],
)
def test_a_bare_thanks_replaces_nothing(word: str) -> None:
    assert _waiting(user("Fix the parser."), *STEP, user(word), *STEP) == ["Fix the parser."]
    assert _waiting(user("Fix the parser."), assistant("Done."), user(word)) == []


@pytest.mark.spec("E2")
@pytest.mark.parametrize(
    "text",
    ["continue with the printer", "ok, now deploy", "yes, option 2", "2", "fix it", "好的，把测试也修一下",
     "続けてテストも直して", "계속해서 테스트도 고쳐줘", "go to /tmp", "thanks, but revert that",
     "run it again with -v", "stop"],
)  # fmt: skip
def test_a_request_is_not_bare(text: str) -> None:
    assert not is_bare(text)


def test_going_on_is_told_from_thanking() -> None:
    assert goes_on("please continue")
    assert goes_on("继续吧")
    assert not goes_on("thank you")
    assert not goes_on("好的")


@pytest.mark.spec("E2", "E5")
def test_open_requests_survive_from_one_handoff_to_the_next() -> None:
    first = write_active_task(_state(user("Fix the parser."), *STEP, user("And the\n\nprinter."), *STEP))
    assert parse_active_task(first).open == ("Fix the parser.", "And the\n\nprinter.")
    # The newest request also stands behind the handoff, word for word: it must not be quoted twice.
    found = _waiting(user("And the\n\nprinter."), *STEP, previous=first)
    assert found == ["Fix the parser.", "And the\n\nprinter."]
    assert _waiting(*STEP, assistant("All done."), previous=first) == []
    answered = write_active_task(_state(assistant("All done."), previous=first))
    assert _waiting(user("continue"), *STEP, previous=answered) == ["And the\n\nprinter."]


@pytest.mark.spec("E2", "D4")
def test_handoffs_and_notes_are_nobodys_request() -> None:
    note = Message("user", "[System note] be brief", kind="note")
    assert _waiting(note, Message("user", "x", kind="handoff")) == []


@pytest.mark.spec("E9")
def test_quotes_are_redacted() -> None:
    key = "ghp_" + "aB3dE6gH9j" * 3 + "kLmNoP"
    assert key not in write_active_task(_state(user(f"Push it with {key} now.")))


@pytest.mark.spec("E2")
def test_a_very_long_request_is_quoted_by_its_ends() -> None:
    text = write_active_task(_state(user("Begin here. " + "middle words " * 2_000 + "End there.")), 1_600)
    assert "Begin here." in text
    assert "End there." in text
    assert len(text) < 2_000


@pytest.mark.spec("E2")
def test_a_long_request_is_quoted_once_and_the_same_however_often_it_is_handed_over() -> None:
    request = " ".join(f"Part {n} of the plan matters." for n in range(300))
    first = write_active_task(_state(user(request)), 1_600)
    # The request stands behind the handoff that quotes it: it is still one.
    again = write_active_task(_state(user(request), previous=first), 1_600)
    carried = write_active_task(_state(previous=again), 1_600)
    assert again == first == carried


@pytest.mark.spec("E12")
@pytest.mark.parametrize(
    "summary",
    [
        "This session is being continued from a previous conversation that ran out of context. Fix the login bug.",
        "The conversation history before this point was compacted into the following summary:\n<summary>Fix</summary>",
    ],
)
def test_work_after_a_promise_and_a_foreign_summary_leaves_the_request_open(summary: str) -> None:
    messages: list[dict[str, object]] = [
        {"role": "user", "content": "Please port the billing job to Rust, and keep the CSV format."},
        {"role": "assistant", "content": "On it."},
        {"role": "user", "content": summary},
    ]
    for number in range(60):
        function = {"name": "terminal", "arguments": '{"command": "cargo test"}'}
        call = {"id": f"c{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"test result {number} ok\n" * 40})
    handoff = perdure.compress(messages, context_length=16_000).handoff
    active = handoff.partition("## Active Task")[2].partition("\n## ")[0]
    assert "> Please port the billing job to Rust" in active
    assert "ANSWERED" not in handoff


def _open_task(requests: list[str], window: int) -> str:
    """The Active Task of a long history in which every request is still open."""
    work = [m for n in range(60) for m in _read(n)]
    messages = [user("Hello."), assistant("Hello, what is it?"), user("We look at the shop."), assistant("Fine.")]
    messages += [m for n, text in enumerate(requests) for m in (user(text), *_read(1_000 + n))]
    log = [m.to_dict() for m in [*messages, *work, user("And tell me the time when you are done with it.")]]
    handoff = perdure.compress(log, context_length=window).handoff
    return handoff.split("## Active Task\n", 1)[1].split("\n## ", 1)[0]


def _read(n: int) -> list[Message]:
    call = ToolCall(f"c{n}", "read_file", json.dumps({"path": f"src/m{n}.py"}))
    return [assistant(None, (call,)), tool_result(f"c{n}", f"def function_{n}(): return {n}\n" * 120)]


@pytest.mark.spec("E2")
def test_more_than_six_open_requests_are_all_quoted() -> None:
    requests = [f"Please also migrate the table number {n} to the new schema of team {n * 7}." for n in range(12)]
    task = _open_task(requests, 64_000)
    assert [r for r in requests if r not in task] == []


@pytest.mark.spec("E2")
def test_a_long_request_has_more_room_in_a_larger_window() -> None:
    words = " ".join(f"Please check the region {n} and its shops." for n in range(120))
    state = TaskState(requests=(UserRequest(words, 3, own_words=words),))
    small, large = (write_sections(state, budget_chars=chars)["Active Task"] for chars in (2_000, 8_000))
    assert len(small) < 3_300
    assert "characters left out: m:3 …]" in small
    assert words in large


@pytest.mark.spec("E2")
def test_a_short_request_does_not_close_a_longer_one_that_has_its_words() -> None:
    requests = ["Please port the billing job to Rust, and keep the CSV format of the export.", "Keep the CSV format."]
    task = _open_task(requests, 64_000)
    assert [r for r in requests if r not in task] == []


@pytest.mark.spec("E2", "E1c")
def test_requests_without_room_are_counted_with_their_addresses() -> None:
    requests = tuple(
        UserRequest(f"Request {n}: {'do it ' * 60}", n, own_words=f"Request {n}: do it") for n in range(30)
    )
    task = write_active_task(TaskState(requests=requests), 1_000)
    assert task.splitlines()[1] == f"[24 earlier open requests are in the record (m:{','.join(map(str, range(24)))})]"
    assert "Request 24: do it" in task


@pytest.mark.spec("E2")
def test_what_is_left_out_of_a_request_has_its_address() -> None:
    words = "Begin here. " + "middle words " * 2_000 + "End there."
    task = write_active_task(TaskState(requests=(UserRequest(words, 12, own_words=words),)), 900)
    assert "characters left out: m:12 …]" in task
    assert task.rstrip().endswith("End there.")
