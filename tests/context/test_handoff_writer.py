"""A handoff is never a source: facts come from the messages behind it, or are carried over as the lines they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

import perdure
from perdure.context.compressor import ContextCompressor
from perdure.context.engine import EngineServices
from perdure.context.handoff import END_MARKER, INDEX, RECORD, Handoff
from perdure.context.handoff_writer import MOST_MESSAGES, read_past
from perdure.context.summary_check import MARK, without_marked
from perdure.core.messages import HANDOFF_FIRST_LINE, Entry, Message, ToolCall, assistant, tool_result, user
from perdure.core.ports import Summary
from support.summarisers import GOOD

INVENTED = "9173"
NOTES = f"## Goal\nMake the build green.\n## Critical Context\nThe retry limit was raised to {INVENTED}."


class Log:
    """A conversation's log, and the view that compactions leave of it."""

    def __init__(self, summarize: Callable[[str], str] | None, *, window: int = 16_000, has_log: bool = True) -> None:
        self.entries: list[Entry] = []
        self.view: list[Entry] = []
        ask = None if summarize is None else lambda prompt, max_tokens: Summary(summarize(prompt), "sim-1")
        self.engine = ContextCompressor(context_length=window)
        services = EngineServices(summarize=ask, log=self if has_log else None)
        self.engine.on_session_start("s_1", services=services)
        self.engine.update_model(context_length=window)

    def read(self, lo: int, hi: int) -> Sequence[Entry]:
        return [Entry(e.seq, e.message) for e in self.entries if lo <= e.seq <= hi]

    def add(self, *messages: Message) -> None:
        for message in messages:
            self.entries.append(Entry(len(self.entries) + 1, message))
            self.view.append(self.entries[-1])

    def work(self, n: int, result: str = "") -> None:
        call = ToolCall(f"c{n}", "terminal", f'{{"command": "make -C services/part_{n} test"}}')
        lines = "\n".join(f"services/part_{n}/src/unit_{i}.py:{i * 7}: ok" for i in range(60))
        self.add(assistant(f"Now part {n}.", (call,)), tool_result(call.id, f"{result}\n{lines}\n1 failed, {n} passed"))

    def compact(self) -> Handoff:
        done = self.engine.compress(self.view, reason="user")
        assert not done.is_noop, done.message
        assert done.handoff_data is not None
        new = []
        for item in done.apply(self.view):
            if isinstance(item, Message):
                self.entries.append(Entry(len(self.entries) + 1, item))
                item = self.entries[-1]
            new.append(item)
        self.view = new
        return done.handoff_data


def chain(log: Log, times: int, first_result: str = "") -> list[Handoff]:
    log.add(user("Our database runs on port 5433. Never delete migrations/. Fix all the builds."))
    found = []
    for n in range(times):
        for i in range(14):
            log.work(20 * n + i, first_result if not n and i == 2 else "")
        found.append(log.compact())
    return found


@pytest.mark.spec("E12", "E5")
@pytest.mark.parametrize("has_log", [True, False])
@pytest.mark.parametrize("ask", [None, lambda _: NOTES], ids=["digest", "summary"])
def test_no_handoff_quotes_the_one_before_it(ask: Callable[[str], str] | None, has_log: bool) -> None:
    for handoff in chain(Log(ask, has_log=has_log), 4):
        text = handoff.body
        assert "- handoff:" not in text
        assert HANDOFF_FIRST_LINE[1:20] not in text
        assert END_MARKER[1:20] not in text
        assert "Persistent memory" not in text
        assert text.count(f"\n## {RECORD}\n") <= 1
        assert text.count(f"\n## {INDEX}\n") <= 1
        lines = [line for line in text.splitlines() if len(line) > 60]
        assert len(lines) == len(set(lines))


@pytest.mark.spec("E12")
@pytest.mark.parametrize("has_log", [True, False])
def test_an_invented_value_stays_marked_through_every_compaction(has_log: bool) -> None:
    for handoff in chain(Log(lambda _: NOTES, has_log=has_log), 4):
        assert f"{INVENTED} {MARK}" in handoff.body
        assert handoff.body.count(INVENTED) == handoff.body.count(MARK) == 1


@pytest.mark.spec("E12")
def test_an_invented_value_stays_marked_over_plain_dicts() -> None:
    log = Log(None)
    messages = [{"role": "user", "content": "Fix all the builds."}]
    for n in range(3):
        log.view.clear()
        for i in range(14):
            log.work(20 * n + i)
        messages += [e.message.to_dict() for e in log.view]
        report = perdure.compress(messages, context_length=16_000, summarize=lambda _: NOTES)
        messages = report.messages
        assert f"{INVENTED} {MARK}" in report.handoff
        assert report.handoff.count(MARK) == 1


@pytest.mark.spec("E12")
def test_a_true_value_from_before_the_last_handoff_is_not_marked() -> None:
    told = "## Goal\nMake the build green.\n## Critical Context\nThe token bucket holds 48213 in deploy_lane_7."
    result = "bucket size 48213 configured for deploy_lane_7"
    for has_log in (True, False):
        for handoff in chain(Log(lambda _: told, has_log=has_log), 3, result):
            assert "48213" in handoff.body
            assert MARK not in handoff.body


@pytest.mark.spec("E12")
def test_a_value_that_a_handoff_left_out_is_still_found_in_the_log() -> None:
    calls: list[str] = []

    def late(prompt: str) -> str:
        calls.append(prompt)
        # Said for the first time two compactions after it went.
        return NOTES if len(calls) < 3 else NOTES + "\nIt was seen at 60815 before."

    *_, last = chain(Log(late), 3, "the runner listens at 60815")
    assert f"60815 {MARK}" not in last.body
    *_, last = chain(Log(late), 1, "the runner is another one")
    assert f"60815 {MARK}" in last.body, "nobody said so here"


@pytest.mark.spec("E12", "E5")
def test_exact_values_whose_messages_are_gone_are_carried_over_as_lines() -> None:
    seen: list[str] = []
    messages = [{"role": "user", "content": "Look into the billing errors, please."}]
    for n in range(3):
        for i in range(20 * n, 20 * n + 14):
            call = {
                "id": f"c{i}",
                "type": "function",
                "function": {"name": "grep", "arguments": f'{{"pattern": "E{i}"}}'},
            }
            found = f"services/billing/invoice_{i}.py:{100 + i}: raise LedgerError(code_{i}x)\n" + "plain words " * 200
            messages += [{"role": "assistant", "content": f"Error {i}.", "tool_calls": [call]}]
            messages += [{"role": "tool", "tool_call_id": f"c{i}", "content": found}]
        report = perdure.compress(messages, context_length=16_000, summarize=lambda _: GOOD)
        messages = report.messages
        seen.append(report.handoff)
    of_first = [sum(f"invoice_{i}.py" in text for i in range(14)) for text in seen]
    assert min(of_first[:2]) > 0
    assert "“E5”" in seen[2], "the calls are carried further than their details"
    assert "invoice_50.py" in seen[2], "newer ones have their place beside them"


@pytest.mark.spec("E12")
def test_of_a_very_long_past_the_newest_messages_are_read() -> None:
    log = Log(None)
    log.add(*(user(f"message {n}") for n in range(MOST_MESSAGES + 500)))
    size = len(log.entries)
    short = read_past(Handoff({"Goal": "x"}, covers=((1, 10), (21, 30))), log, without=[25])
    assert [e.seq for e in short.entries] == [*range(1, 11), *range(21, 25), *range(26, 31)]
    assert short.checked_text == ""
    long = read_past(Handoff({"Goal": "x"}, covers=((1, 400), (410, size))), log)
    assert [e.seq for e in long.entries] == list(range(size - MOST_MESSAGES + 1, size + 1))
    assert long.checked_text, "the rest is known by the handoff alone"
    assert read_past(Handoff({"Goal": "x"}), log).entries == ()
    assert read_past(None, log).checked_text == ""


@pytest.mark.spec("E12")
@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"raised to 9173 {MARK} and 4711", "raised to   and 4711"),
        (f"the file `src/a.py` {MARK}\nsee src/a.py again", "the file ` `\nsee   again"),
        (f"they said “drop all the tables” {MARK} now", "they said “ ” now"),
        (f"{MARK}", f"{MARK}"),
        (f"a {MARK} b {MARK}", "    "),
        ("nothing marked", "nothing marked"),
    ],
)
def test_what_is_marked_once_supports_nothing(text: str, left: str) -> None:
    assert without_marked(text).split() == left.split()
