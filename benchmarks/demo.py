"""Records docs/demo.svg: a real chat in a real terminal that outgrows its window, `python -m benchmarks.demo`.

The model is the simulator, so that everyone gets the same picture; everything else is Perdure as it is. Needs tmux.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from perdure.app import Agent
from perdure.store.store import open_store
from perdure.testing.simulator import Call, Say, Simulator

COLUMNS, ROWS = 104, 46
WINDOW = 6_000
SUMMARY = """## Active Task
User asked: "Which port did I say the database listens on?"
## Goal
A retry policy for the payments client.
## Constraints & Preferences
At most 5 attempts; never retry a card that was declined.
## Completed Actions
1. WROTE src/payments/retry.py — exponential back-off with jitter
2. WROTE tests/test_retry.py — 12 tests pass
## Active State
Branch payments-retry; the database listens on port 54321.
## Key Decisions
Idempotency keys are made once per payment, not per attempt.
## Remaining Work
None.
## Critical Context
PAYMENTS_DB_PORT=54321
"""
ANSWERS = {
    "retry": """Here is the policy, in `src/payments/retry.py`:

```python
def delay_s(attempt: int) -> float:
    return min(30.0, 0.5 * 2**attempt) * random.uniform(0.8, 1.2)
```

- at most **5 attempts**, and never after a *declined* card
- one idempotency key per payment, made before the first attempt""",
    "tests": "Done: **12 tests** pass; the slowest takes 40 ms, for no test really waits.",
    "port": "You said **54321** (`PAYMENTS_DB_PORT`), in your first message.",
}
BEFORE = "Our database listens on port 54321. Write a retry policy for the payments client."
TALK = (
    ("retry", "Show me the retry policy once more."),
    ("tests", "Now write the tests."),
    ("port", "Which port did I say the database listens on?"),
)


def answer(request: Any) -> Say:
    """What the simulator says: a summary to the summariser, else the answer to the newest question."""
    said = [m for m in request.body["messages"] if m["role"] == "user"]
    newest = str(said[-1]["content"])
    if "Completed Actions" in newest and "token" in newest:
        return Say(SUMMARY)
    if TALK[1][1] in newest and request.body["messages"][-1]["role"] != "tool":
        text = "".join(f"def test_attempt_{n}():\n    assert delay_s({n}) <= 36\n\n\n" for n in range(12))
        path = "tests/test_retry.py"
        return Say(
            calls=(Call("write_file", {"path": path, "content": text}), Call("terminal", {"command": f"wc -l {path}"}))
        )
    for key, question in TALK:
        if question in newest:
            return Say(ANSWERS[key], chunk_delay_s=0.002)
    return Say("All right.")


def record(place: Path) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from support.tmux import terminal

    with tempfile.TemporaryDirectory() as folder, Simulator(script=answer, window=WINDOW) as sim:
        home = Path(folder) / "home"
        home.mkdir()
        (home / "config.yaml").write_text(
            f"model:\n  name: sim-1\n  base_url: {sim.base_url}\n  context_length: {WINDOW}\n", encoding="utf-8"
        )
        session_id = _a_long_morning(home)
        with terminal(home, columns=COLUMNS, rows=ROWS, folder=Path(folder)) as term:
            term.run("chat", "--resume", session_id)
            term.see("/help lists")
            for key, question in TALK:
                term.say(question)
                term.see(question, re.sub(r"[*`]", "", ANSWERS[key])[-20:].split("\n")[-1])
            time.sleep(2.0)  # the last turn's end: a command that is sent before it is answered above the answer
            term.say("/context")
            term.see("tail ")
            term.say("/search 54321")
            screen = term.see("Open one with") and term.colored
    place.write_text(as_svg(screen), encoding="utf-8")


def _a_long_morning(home: Path) -> str:
    """What was said before the picture begins: enough to come near the threshold."""
    agent = Agent(store=home / "perdure.db", home=home, source="terminal")
    agent.chat(BEFORE)
    for n in range(30):
        if agent.gauge.threshold and agent.gauge.tokens > agent.gauge.threshold - 350:
            break
        lines = "\n".join(f"{n:02}:{i:02} worker {i % 7} paid invoice {1000 + 31 * n + i}" for i in range(12))
        agent.chat(f"Log of batch {n}, for later:\n{lines}")
    session_id = agent.session_id or ""
    open_store(home / "perdure.db").conversations.set_title(session_id, "retry policy for payments")
    agent.close()
    return session_id


def as_svg(screen: str) -> str:
    """The screen with its colours, as one picture."""
    lines = screen.rstrip().split("\n")
    # What tmux keeps of the very first prompt is no part of what a person sees.
    start = next(i for i, line in enumerate(lines) if "Perdure ·" in line)
    # The last turns of the resumed conversation would take most of the picture.
    replayed = next(i for i, line in enumerate(lines) if "Log of batch" in line)
    asked = next(i for i, line in enumerate(lines) if TALK[0][1] in line)
    lines = [*lines[start:replayed], *lines[asked:]]
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi("\n".join(lines)), soft_wrap=True)
    return console.export_svg(title="perdure chat", theme=MONOKAI, unique_id="perdure")


if __name__ == "__main__":
    record(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/demo.svg"))
