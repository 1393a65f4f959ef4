"""What to do about a failed call: one table from verdict to action, nothing else decides.

A call has at most three compactions, one lowered output cap per stated limit, one credential refresh per route. What is
left over ends the turn with advice; the history is intact either way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from perdure.core.errors import ErrorKind, ErrorVerdict

Action = Literal["compact", "lower_output", "refresh", "next_route", "give_up"]

# Fixed: three passes that did not help will not help a fourth time.
MAX_COMPACTIONS = 3
MAX_LOWERED = 3
LEAST_OUTPUT_TOKENS = 16

# What is tried for each kind, first to last; an action that is used up or impossible is passed over.
TABLE: dict[ErrorKind, tuple[Action, ...]] = {
    "prompt_too_long": ("compact",),
    "output_cap": ("lower_output", "compact"),
    "rate_limit": ("next_route",),
    "overloaded": ("next_route",),
    "auth": ("refresh", "next_route"),
    "quota": ("next_route",),
    "transport": ("next_route",),
    "unknown": ("next_route",),
    "bad_request": (),
}

ADVICE: dict[ErrorKind, str] = {
    "prompt_too_long": "The conversation does not fit the model's window, even compacted. Start afresh with /new, "
    "compact around one topic with /compress TOPIC, or choose a model with a larger window with /model.",
    "output_cap": "The service refuses the output allowance. Lower model.max_tokens.",
    "rate_limit": "The service asks for patience. Try again in a while, or add fallback_providers.",
    "overloaded": "The service is overloaded. Try again in a while, or add fallback_providers.",
    "auth": "The service refuses the key. Check it with `perdure doctor`, or set credentials.command.",
    "quota": "The account has no credit left for this. Top it up, or add fallback_providers.",
    "transport": "The service cannot be reached. Check the network and model.base_url.",
    "unknown": "The service failed in a way Perdure does not know. Try again; the conversation is intact.",
    "bad_request": "The service refuses the request as it is. Check model.name and the settings it names.",
}


@dataclass(slots=True)
class Attempts:
    """What has been tried for one call already."""

    compactions: int = 0
    lowered: int = 0
    refreshed: set[str] = field(default_factory=set)

    def next_action(self, verdict: ErrorVerdict, *, route: str, has_next_route: bool, may_compact: bool) -> Action:
        """The next thing to try; "give_up" when nothing is left."""
        for action in TABLE[verdict.kind]:
            if self._is_open(action, route=route, has_next_route=has_next_route, may_compact=may_compact):
                return action
        return "give_up"

    def note(self, action: Action, route: str) -> None:
        if action == "compact":
            self.compactions += 1
        elif action == "lower_output":
            self.lowered += 1
        elif action == "refresh":
            self.refreshed.add(route)

    def _is_open(self, action: Action, *, route: str, has_next_route: bool, may_compact: bool) -> bool:
        match action:
            case "compact":
                return may_compact and self.compactions < MAX_COMPACTIONS
            case "lower_output":
                return self.lowered < MAX_LOWERED
            case "refresh":
                return route not in self.refreshed
            case _:
                return has_next_route


def lowered_output(verdict: ErrorVerdict, asked_tokens: int | None) -> int:
    """The output allowance to try next: what the service stated, else half of what was asked for."""
    if verdict.output_limit and verdict.output_limit > 0 and verdict.output_limit != asked_tokens:
        return max(LEAST_OUTPUT_TOKENS, verdict.output_limit)
    return max(LEAST_OUTPUT_TOKENS, (asked_tokens or 8_192) // 2)


def advice(verdict: ErrorVerdict, *, compactions: int = 0) -> str:
    """What the person reads when nothing helped: what happened, what was tried, what to do."""
    tried = f" Compacted {compactions} time{'s' if compactions > 1 else ''} without success." if compactions else ""
    said = verdict.message.strip().rstrip(".")
    return f"{said or 'The call failed'}.{tried} {ADVICE[verdict.kind]} Nothing of the conversation is lost."
