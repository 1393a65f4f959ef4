"""A strict simulator of model services on loopback: three protocols with their validation, caches and usage.

request → `http` → `service` (rules, size, cache, script) → `chat` | `responses` | `messages` → bytes. Read first:
`server.py` (the Simulator), then `rules.py` (its options), `script.py` (its replies) and `tokens.py` (its tokenizer).
"""

from __future__ import annotations

from perdure.testing.simulator.rules import Rules, RuleViolation, strict
from perdure.testing.simulator.script import SAMPLES, Call, Drop, Fail, Raw, Say, ScriptRequest, load_script
from perdure.testing.simulator.server import Simulator
from perdure.testing.simulator.tokens import count_text

__all__ = [
    "SAMPLES",
    "Call",
    "Drop",
    "Fail",
    "Raw",
    "RuleViolation",
    "Rules",
    "Say",
    "ScriptRequest",
    "Simulator",
    "count_text",
    "load_script",
    "strict",
]
