"""A strict stand-in for model services on loopback: three protocols, their rules, their caches, their bills.

request → `http` → `service` (rules, size, cache, script) → `chat` | `responses` | `messages` → bytes. Read first:
`server.py` (the Simulator), then `rules.py` (its switches), `script.py` (what it answers) and `tokens.py` (its token).
"""

from __future__ import annotations

from perdure.testing.simulator.rules import Rules, RuleViolation, strict
from perdure.testing.simulator.samples import SAMPLES
from perdure.testing.simulator.script import Call, Drop, Fail, Raw, Say, ScriptRequest, load_script
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
