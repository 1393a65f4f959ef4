"""Fifty compactions in a row: what binds stays in view, nothing is shown twice, and long output stays short."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.context.compressor import ContextCompressor
from perdure.context.engine import EngineServices
from perdure.context.handoff import Handoff, parse_handoff
from perdure.core.messages import Entry, Message, ToolCall, assistant, tool_result, user
from perdure.store.store import open_store
from support.compaction import Shelf

WINDOW = 32_000
ROUND_CHARS = 60_000
REFUSED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected. To tell you how to proceed, the"
    " user said:\n"
)


class MemoryLog:
    """A log in memory, and the view that compactions leave of it."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.view: list[Entry] = []

    def read(self, lo: int, hi: int) -> list[Entry]:
        # As a store does, with entries that know nothing of earlier reads.
        return [Entry(e.seq, e.message) for e in self.entries[lo : hi + 1]]

    def append(self, *messages: Message) -> None:
        for message in messages:
            self.entries.append(Entry(len(self.entries), message))
            self.view.append(self.entries[-1])

    @property
    def text(self) -> str:
        return "\n".join(e.message.text for e in self.view)


def _call(name: str, call_id: str, result: str, **arguments: object) -> tuple[Message, Message]:
    return assistant("Let me look.", (ToolCall(call_id, name, json.dumps(arguments)),)), tool_result(call_id, result)


def _binding(log: MemoryLog, n: int) -> Iterator[str]:
    """Add what the user lays down in a round, and yield it."""
    if n % 5 == 0:
        yield f"Never touch the file legacy_{n}.cfg, it belongs to team {n}."
        log.append(user(f"Never touch the file legacy_{n}.cfg, it belongs to team {n}."), assistant("Understood."))
    if n % 7 == 0:
        yield f"No, that's wrong: the limit for region {n} must be {1000 + n} requests."
        log.append(user(f"No, that's wrong: the limit for region {n} must be {1000 + n} requests."), assistant("Done."))
    if n % 9 == 0:
        yield f"wait for the sign-off of reviewer {n}"
        refused = REFUSED + f"wait for the sign-off of reviewer {n}"
        log.append(*_call("bash", f"r{n}", refused, command=f"git push origin release-{n}"), assistant("I wait."))


def _work(log: MemoryLog, n: int) -> None:
    log.append(
        user(f"Why does tenant {n} fail?"),
        *_call("bash", f"c{n}", f"HTTP 502\nx-trace: tr-{9000 + n}\n", command=f"curl https://t{n}.example/health"),
        assistant(f"Tenant {n} answers with PX-{7000 + n} because its certificate expired."),
    )
    size = sum(len(e.message.text) for e in log.view)
    step = len(log.entries)
    while size < ROUND_CHARS:
        page = "\n".join(f"def function_{step}_{i}(argument): return {i}" for i in range(120))
        log.append(*_call("read_file", f"x{step}", page, path=f"src/part_{step % 40}/module_{step}.py"))
        size, step = size + len(page), step + 1


def _duplicates(handoff: Handoff) -> list[str]:
    sections = [t for n, t in handoff.sections.items() if n != "Active Task"]
    lines = "\n".join((*sections, handoff.record)).splitlines()
    long = [re.sub(r"^\W*(?:\w+ \[\d+\]: )?|\W*(?:\(m:[\d,]+\))?$", "", line) for line in lines if len(line) > 80]
    return [line for line in set(long) if len(line) > 80 and long.count(line) > 1]


@pytest.mark.spec("E1b", "E5", "O5")
def test_after_fifty_compactions_everything_that_binds_is_in_view_word_for_word(tmp_path: Path) -> None:
    log = MemoryLog()
    engine = ContextCompressor(context_length=WINDOW)
    engine.on_session_start("s0", services=EngineServices(log=log, state=Shelf()))
    binding: list[str] = []
    for n in range(50):
        binding += _binding(log, n)
        _work(log, n)
        done = engine.compress(log.view)
        assert not done.is_noop, done.message
        view, log.view = done.apply(log.view), []
        for item in view:
            if isinstance(item, Message):
                log.append(item)
            else:
                log.view.append(item)
        engine.on_session_start(f"s{n + 1}", reason="compression", previous=f"s{n}")
        headings = [line for line in log.text.splitlines() if line.startswith("## ")]
        assert len(headings) == len(set(headings))
    assert len(binding) == 24
    assert [text for text in binding if text not in log.text] == []
    newest = parse_handoff(next(e.message.text for e in log.view if e.message.kind == "handoff"))
    assert newest is not None
    assert _duplicates(newest) == []
    assert all(f"PX-{7000 + n}" in log.text for n in range(46, 50))
    within_reach = [*(_is_within_reach(tmp_path, log, _questions()))]
    assert sum(within_reach) >= 0.95 * len(within_reach)


def _questions() -> Iterator[tuple[str, str]]:
    """What was found out in each round, by the assistant and by a call, and the question somebody would ask."""
    for n in range(50):
        yield f"PX-{7000 + n}", f"Why did tenant {n} fail?"
        yield f"tr-{9000 + n}", f"Which x-trace did t{n}.example/health return?"


def _is_within_reach(folder: Path, log: MemoryLog, questions: Iterator[tuple[str, str]]) -> Iterator[bool]:
    """Whether each value is in view, or in one of the first five hits of its question."""
    with open_store(folder / "p.db") as store:
        session = store.create(system_prompt="")
        store.append(session.id, [e.message for e in log.entries if e.message.kind != "handoff"])
        for value, question in questions:
            hits = [] if value in log.text else store.search(question, limit=5)
            texts = [store.open(hit.address, conversation_id=hit.conversation_id).text for hit in hits]
            yield value in log.text or any(value in text for text in texts)


def _pytest_log() -> str:
    passed = "\n".join(f"tests/test_area_{n % 40}.py::test_case_{n} PASSED [{n // 30:3}%]" for n in range(3_000))
    failure = (
        "=================================== FAILURES ===================================\n"
        "_______________________________ test_total_rounds ______________________________\n"
        "    def test_total_rounds() -> None:\n>       assert total([1, 2]) == 4\nE       assert 3 == 4\n"
        "tests/test_sums.py:41: AssertionError\n"
        "=========================== short test summary info ============================\n"
        "FAILED tests/test_sums.py::test_total_rounds - assert 3 == 4\n"
        "================== 1 failed, 2999 passed in 61.20s ==================\n"
    )
    return f"{passed}\ntests/test_sums.py::test_total_rounds FAILED [100%]\n{failure}"


def _ninja_log() -> str:
    lines = [f"[{n}/3000] Building CXX object src/CMakeFiles/app.dir/unit_{n}.cpp.o" for n in range(1, 2_990)]
    return "\n".join(
        [
            *lines,
            "FAILED: src/CMakeFiles/app.dir/net.cpp.o",
            "src/net.cpp:88:12: error: use of undeclared identifier 'socket_fd'",
            "ninja: build stopped: subcommand failed.",
        ]
    )


def _service_log() -> str:
    lines = [
        f"2026-03-02T10:{n // 60 % 60:02}:{n % 60:02}Z INFO request {n} served in {n % 90} ms" for n in range(3_000)
    ]
    lines[1_700] = "2026-03-02T10:28:20Z ERROR payment worker died: connection refused by db-3.internal:5432"
    return "\n".join(lines)


def _json_page() -> str:
    rows = [{"id": n, "name": f"item {n}", "state": "open" if n % 2 else "closed", "score": n * 7} for n in range(800)]
    return json.dumps({"total": 800, "items": rows}, indent=1)


@pytest.mark.spec("E1b", "F1")
@pytest.mark.parametrize(
    ("command", "output", "wanted"),
    [
        ("pytest -v", _pytest_log(), ("test_total_rounds", "tests/test_sums.py:41", "3 == 4")),
        ("ninja", _ninja_log(), ("src/net.cpp:88", "socket_fd")),
        ("journalctl -u shop", _service_log(), ("db-3.internal:5432",)),
        ("curl -s https://api.example/items", _json_page(), ("800",)),
    ],
    ids=["pytest", "ninja", "service", "json"],
)
def test_a_long_log_is_a_few_lines_with_what_matters_in_it(command: str, output: str, wanted: tuple[str, ...]) -> None:
    opening = [user("Hello there."), assistant("Hello."), user("We work on the shop."), assistant("Fine.")]
    opening.append(user("Run it and tell me."))
    messages = [assistant("One thing failed."), user("Look at the docs meanwhile.")]
    for n in range(30):
        messages += _call("read_file", f"d{n}", "plain words of a page\n" * 60, path=f"docs/page_{n}.md")
    messages += [assistant("The docs are fine."), user("Thanks, what next?")]
    reports = [
        perdure.compress(
            [m.to_dict() for m in [*opening, *_call("bash", "c1", text, command=command), *messages]],
            context_length=64_000,
        )
        for text in (output, "ok")
    ]
    with_log, without = reports
    view = "\n".join(str(m["content"]) for m in with_log.messages)
    assert [w for w in wanted if w not in view] == []
    of_log = set(with_log.handoff.splitlines()) - set(without.handoff.splitlines())
    assert len(of_log) <= 30, sorted(of_log)
