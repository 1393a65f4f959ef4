"""The history rules at 10,000 messages: checked whole, mended, and message by message."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from benchmarks.table import Row
from perdure.core import rules
from perdure.core.messages import Message, ToolCall, assistant, tool_result, user

TITLE = "History rules, 10,000 messages"


def rows() -> Iterator[Row]:
    valid = _history(2_500)
    broken = [m for i, m in enumerate(valid) if i % 37]
    yield Row("a valid history passes", _best_ms(lambda: rules.repair(valid)), "ms", "< 10")
    yield Row("a broken history is mended", _best_ms(lambda: rules.repair(broken)), "ms", "< 30")
    check = rules.HistoryCheck()
    for m in valid:
        check.push(m)
    yield Row("one more message is checked", _best_ms(lambda: check.push(valid[0])) * 1_000, "µs", "< 10")


def _history(turns: int) -> list[Message]:
    out: list[Message] = []
    for i in range(turns):
        call = ToolCall(f"call_{i}", "terminal", '{"command":"ls"}')
        out += [user("next"), assistant(None, (call,)), tool_result(call.id, "a.py"), assistant("done")]
    return out


def _best_ms(work: Callable[[], object], tries: int = 9) -> float:
    def once() -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    return min(once() for _ in range(tries)) * 1_000
