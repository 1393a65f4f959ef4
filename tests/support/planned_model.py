"""A simulated model that does what the last user message plans: one JSON object for each of its replies."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

from perdure.testing.simulator import Say
from perdure.testing.simulator.script import Call, ScriptRequest, Step
from support.gateway_process import last_user_text

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}

# A reply with the name of a gate is not given before a test opens it; without the test, not for ever.
GATES: dict[str, threading.Event] = {}
GATE_S = 30.0


def plan(*replies: Mapping[str, Any] | str) -> str:
    """The text of a user message: each reply has `say`, `calls`, `gate` and, after a rejected one, `repaired`."""
    return "plan " + json.dumps([{"say": reply} if isinstance(reply, str) else reply for reply in replies])


def planned(asked: ScriptRequest) -> Step:
    """Reply as planned: the reply's number is how many the model gave since the last user message."""
    messages = asked.body["messages"]
    text = last_user_text(asked.body)
    at = max(i for i, m in enumerate(messages) if m["role"] == "user")
    # A handoff may stand before it in the same message.
    start = text.rfind("plan [")
    if start < 0:
        return Say(f"heard: {text}")
    replies, _ = json.JSONDecoder().raw_decode(text[start + len("plan ") :])
    reply = replies[min(sum(m["role"] == "assistant" for m in messages[at:]), len(replies) - 1)]
    system = json.dumps([m["content"] for m in messages if m["role"] == "system"])
    if "was rejected" in system and "repaired" in reply:
        reply = reply["repaired"]
    if "gate" in reply:
        GATES[reply["gate"]].wait(GATE_S)
    calls = tuple(Call(name, arguments) for name, arguments in reply.get("calls", ()))
    return Say(reply.get("say", ""), calls=calls, chunk_chars=5, thinking=reply.get("think", ""))
