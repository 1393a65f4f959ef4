"""Recorded sessions made for tests: work on files with long outputs, and facts that are needed much later."""

from __future__ import annotations

import json
from typing import Any

from perdure.lab.replay.sessions import RecordedMessage, RecordedSession

PORT = "54817"


def recorded_session(turns: int = 8, *, name: str = "made", seconds: float | None = 20.0) -> RecordedSession:
    """A session in which each turn reads two files; the last one uses what only the first one said."""
    rows: list[dict[str, Any]] = []
    for turn in range(turns):
        rows.append({"role": "user", "content": f"Look at module_{turn:02}/settings.py and tell me what it does."})
        for part in ("settings", "service"):
            call_id = f"call_{turn}_{part}"
            path = f"module_{turn:02}/{part}.py"
            rows.append(assistant(f"I read {part} of module {turn}.", call_id, "read", {"path": path}))
            rows.append({"role": "tool", "tool_call_id": call_id, "content": file_text(turn, part)})
        rows.append({"role": "assistant", "content": f"Module {turn} sets up its service and nothing else."})
    rows[0]["content"] += f" Always answer in one sentence. The database listens on port {PORT}."
    rows.append({"role": "user", "content": "Now connect to the database."})
    rows.append(assistant("I connect.", "call_last", "run", {"command": f"psql --port {PORT} module_00/settings.py"}))
    rows.append({"role": "tool", "tool_call_id": "call_last", "content": "connected"})
    rows.append({"role": "assistant", "content": "It is connected."})
    times = [None if seconds is None else 1_700_000_000.0 + seconds * i for i in range(len(rows))]
    messages = tuple(RecordedMessage(row, at_s) for row, at_s in zip(rows, times, strict=True))
    return RecordedSession(name, messages, "openai")


def assistant(text: str, call_id: str, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": text,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def file_text(turn: int, part: str) -> str:
    lines = [f"    value_{turn}_{n} = combine({turn * 1000 + n * 7}, '{part} step {n}')" for n in range(110)]
    return f"# module_{turn:02}/{part}.py\n" + "\n".join(lines)


def as_json(session: RecordedSession) -> str:
    return json.dumps([dict(m.body) for m in session.messages])
