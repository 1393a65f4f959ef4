"""Tables of risky invocations: one row per risk, each with a sample command. Read `rule.py` first."""

from __future__ import annotations
