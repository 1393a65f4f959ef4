"""How long `compress()` takes, model time excluded: cold on real messages, and warm on ten thousand."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterable, Sequence
from random import Random

import perdure
from benchmarks.data import Skip, sessions
from benchmarks.table import Row
from perdure.context.compressor import ContextCompressor
from perdure.core.messages import Entry, Message, assistant, tool_result, user
from perdure.core.ports import Summary
from perdure.models.tokens import estimate_message

TITLE = "compress(), model time excluded"
WINDOW = 200_000
SECONDS = 12.0
# What it names must be looked for in everything it stands for, the last file in vain.
SUMMARY = """## Goal
Bring every component up to date.
## Completed Actions
1. SEARCHED src/part_7/module_36.py, src/part_12/module_240.py — 40 lines each [tool: terminal]
2. BUILT the components — all but two compile [tool: terminal]
## Relevant Files
- src/part_3/component_1200.py
- src/part_3/never_was.py
"""


def rows() -> Iterable[Row]:
    try:
        real = real_messages()
    except Skip as why:
        yield Row(f"a full {WINDOW:,}-token window of real messages, cold: skipped, {why}", 0)
    else:
        for name, ask in ASKS.items():
            took = best_ms(lambda ask=ask: cold(real, ask))
            yield Row(
                f"a full 200K-token window of real messages, cold, {name}", took, "ms", "< 150", f"{len(real)} messages"
            )
        raw = [m.to_dict() for m in real]
        took = best_ms(lambda: perdure.compress(raw, context_length=WINDOW))
        yield Row("the same as plain dicts, by `perdure.compress`, digest", took, "ms", "< 150")
    entries = many_entries()
    watching = ContextCompressor(context_length=WINDOW)
    started = time.process_time()
    watching.observe(entries)
    each = (time.process_time() - started) * 1e6 / len(entries)
    yield Row("per-message work as a message is appended", each, "µs", None, "tokens, facts, one-line notes")
    for name, ask in ASKS.items():
        engine = ContextCompressor(context_length=WINDOW, summarize=ask)
        took = best_ms(lambda engine=engine: engine.compress(entries))
        yield Row(f"10,000 messages, ~3,000-character results, observed, {name}", took, "ms", "< 70")


def answer(prompt: str, *, max_tokens: int) -> Summary:
    return Summary(SUMMARY, model="bench")


ASKS: dict[str, Callable[..., Summary] | None] = {"digest": None, "summary": answer}


def cold(messages: Sequence[Message], ask: Callable[..., Summary] | None) -> None:
    """Everything from nothing: no figure of any message is known."""
    done = ContextCompressor(context_length=WINDOW, summarize=ask).compress(
        [Entry(i, m) for i, m in enumerate(messages)]
    )
    assert not done.is_noop, done.message


def real_messages() -> list[Message]:
    """Recorded messages up to one full window."""
    found: list[Message] = []
    total = 0
    for session in sessions("entire_cli"):
        for raw in session["messages"]:
            message = Message.from_dict(raw)
            total += estimate_message(message)
            if total > WINDOW:
                return found
            found.append(message)
    return found


def many_entries(count: int = 10_000) -> list[Entry]:
    """A long working session: requests, calls, results of about 3,000 characters full of paths and figures."""
    random = Random(7)
    words = [f"{a}{b}" for a in ("load", "parse", "merge", "index", "render") for b in ("ing", "ed", "er", "s", "able")]
    out: list[Message] = []
    step = 0
    while len(out) < count:
        if step % 12 == 0:
            out.append(user(f"Please bring component_{step} up to date in src/part_{step % 40}/component_{step}.py."))
        path = f"src/part_{random.randrange(40)}/module_{random.randrange(400)}.py"
        call = {
            "id": f"call_{step}",
            "function": {"name": "terminal", "arguments": json.dumps({"command": f"grep -n def {path}"})},
        }
        out.append(Message.from_dict({"role": "assistant", "content": f"Looking at {path}.", "tool_calls": [call]}))
        lines = (f"{path}:{random.randrange(2_000)}: {' '.join(random.choices(words, k=6))}" for _ in range(40))
        out.append(tool_result(f"call_{step}", "\n".join(lines), "terminal"))
        if step % 12 == 11:
            out.append(assistant(f"component_{step} is up to date."))
        step += 1
    return [Entry(i, m) for i, m in enumerate(out[:count])]


def best_ms(work: Callable[[], object]) -> float:
    """Processor time of the best run: the machine may be busy, and a shared one slows down for seconds at a time."""
    best = float("inf")
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        gc.collect()
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best * 1000
