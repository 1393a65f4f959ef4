"""How Claude models, and those that speak their protocol, are asked to think; and how much they may say by default."""

from __future__ import annotations

import re
from typing import Any

# The wire demands max_tokens; where nobody set it, what the model family allows without asking for more.
_OUTPUT_DEFAULTS: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile(r"claude-3-(?:opus|haiku|sonnet)|claude-2|claude-instant"), 4_096),
    (re.compile(r"claude-3[-.]5"), 8_192),
    (re.compile(r"claude"), 32_000),
)
_OUTPUT_DEFAULT = 8_192

# Models up to these are given a budget; later ones choose for themselves and are told an effort.
_BUDGETED = re.compile(
    r"claude-3[-.]7|claude-(?:opus|sonnet|haiku)-4(?:$|[-.][0-5](?:$|[-@:])|-20|[@:])|claude-4-(?:opus|sonnet)"
)
_NEVER = re.compile(r"claude-3-(?:opus|haiku|sonnet)|claude-3[-.]5|claude-2|claude-instant")
_BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 32_000, "max": 48_000}
_EFFORTS = {"minimal": "low"}
_LEAST_BUDGET = 1_024
# What is left for the answer itself when a budget has to be cut to fit under max_tokens.
_ANSWER_SHARE = 0.25


def output_default(model: str) -> int:
    """The max_tokens to send where none was set."""
    name = model.lower()
    return next((cap for pattern, cap in _OUTPUT_DEFAULTS if pattern.search(name)), _OUTPUT_DEFAULT)


def thinking_keys(model: str, effort: str | None, max_tokens: int) -> dict[str, Any]:
    """The wire keys that ask for this much thinking; none where the model cannot, or there is no room for it."""
    name = model.lower()
    if not effort or effort == "none" or _NEVER.search(name):
        return {}
    if "claude" in name and not _BUDGETED.search(name):
        return {
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": _EFFORTS.get(effort, effort)},
        }
    budget = min(_BUDGETS.get(effort, _BUDGETS["medium"]), int(max_tokens * (1 - _ANSWER_SHARE)))
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget >= _LEAST_BUDGET else {}
