"""What a turn may use up: steps, and money. A limit stops *before* the call that would pass it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perdure.core.errors import PerdureError

if TYPE_CHECKING:
    from perdure.config.settings import LimitsSettings


class SpendingLimit(PerdureError):
    """A call was not made because it would pass a limit the user set."""


@dataclass(slots=True)
class Steps:
    """The model calls of one turn."""

    most: int
    used: int = 0

    @property
    def is_over(self) -> bool:
        return self.used >= self.most


@dataclass(frozen=True, slots=True)
class Spent:
    """What has been spent, in US dollars, as far as prices are known."""

    turn_usd: float = 0.0
    session_usd: float = 0.0
    day_usd: float = 0.0


def check_spending(limits: LimitsSettings, spent: Spent, next_call_usd: float | None) -> None:
    """Raises SpendingLimit when the next call would pass a limit; a call of unknown price counts as nothing."""
    about = next_call_usd or 0.0
    for name, limit, used in (
        ("limits.max_cost_per_turn", limits.max_cost_per_turn, spent.turn_usd),
        ("limits.max_cost_per_session", limits.max_cost_per_session, spent.session_usd),
        ("limits.max_cost_per_day", limits.max_cost_per_day, spent.day_usd),
    ):
        if limit is not None and used + about > limit:
            raise SpendingLimit(
                f"The next call was not made: ${used:.4f} is spent, it would cost about ${about:.4f}, and {name} is "
                f"${limit:.4f}. Raise the limit with `perdure config set {name} …`, or start afresh with /new."
            )
