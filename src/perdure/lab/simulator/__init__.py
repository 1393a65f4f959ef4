"""A strict stand-in for model services on loopback: three protocols, their rules, their caches, their bills.

request → `http` → `service` (rules, size, cache, script) → `chat` | `responses` | `messages` → bytes. Read first:
`server.py` (the Simulator), then `rules.py` (its switches), `script.py` (what it answers) and `tokens.py` (its token).
"""

from perdure.lab.simulator.rules import Rules, Violation, strict
from perdure.lab.simulator.samples import SAMPLES
from perdure.lab.simulator.script import Asked, Call, Drop, Fail, Raw, Say, load_script
from perdure.lab.simulator.server import Simulator
from perdure.lab.simulator.tokens import count_text

__all__ = [
    "SAMPLES",
    "Asked",
    "Call",
    "Drop",
    "Fail",
    "Raw",
    "Rules",
    "Say",
    "Simulator",
    "Violation",
    "count_text",
    "load_script",
    "strict",
]
