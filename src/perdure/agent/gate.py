"""The gate: before every call and once more at the end of a turn, over the one counter. Never between call and results.

It compacts when the engine says so, takes over a compaction that was prepared in the background, starts to prepare one
when the threshold is near, and stops a call that would pass a spending limit. While one is being prepared, the
conversation goes on beyond the threshold, as far as the window has room to spare; only then does it wait.
"""

from __future__ import annotations

import asyncio
import math

from perdure.agent.budget import Spent, check_spending
from perdure.agent.continuation import Emit, carry_out, compact
from perdure.agent.parts import Parts
from perdure.agent.session import LiveSession
from perdure.context.background import NEAR, Background
from perdure.context.engine import Compaction, Reason
from perdure.core.usage import CanonicalUsage
from perdure.models.budgets import WindowBudgets

# Longer than any summary takes: the engine gives up on a slow one by itself.
_LONGEST_WAIT_S = 300.0


class Gate:
    """One conversation's gate; `budgets` follow the present model's window."""

    def __init__(self, parts: Parts, live: LiveSession, emit: Emit) -> None:
        self._parts = parts
        self._live = live
        self._emit = emit
        self._background = Background(parts.engine)
        self.budgets: WindowBudgets | None = None

    async def before_call(self, spent: Spent, *, max_tokens: int | None) -> None:
        """Makes the history fit, and the call affordable. Raises SpendingLimit."""
        self._check_money(spent, max_tokens)
        if self._must_compact():
            await self._compact("preflight")

    async def after_turn(self) -> None:
        """Compacts while the person reads, or prepares to."""
        if self._must_compact():
            await self._compact("threshold")
        elif self._may_prepare():
            self._background.start(self._live.entries)

    def forget_preparation(self) -> None:
        """The history or the model changed under it."""
        self._background.discard()

    def _must_compact(self) -> bool:
        tokens = self._live.counter.estimate
        if self._live.was_undone and self.budgets is not None and tokens < self.budgets.room_tokens:
            return False
        if self._background.is_preparing and self.budgets is not None and tokens < _midway(self.budgets):
            return False
        engine = self._parts.engine
        # Asked here too: an engine of somebody else's need not know the setting.
        is_wanted = self._parts.settings.compression.enabled and engine.should_compress(tokens)
        return is_wanted and engine.has_content_to_compress(self._live.entries)

    async def _compact(self, reason: Reason) -> Compaction:
        if self._background.is_preparing:
            # Nearly there, and begun earlier than anything that could be begun now.
            await asyncio.to_thread(self._background.wait, _LONGEST_WAIT_S)
        prepared = self._background.take(
            self._live.entries, least_freed_tokens=self._least_freed(), model=self._parts.routes.endpoint.model
        )
        if prepared is not None:
            return carry_out(prepared, self._live, self._parts, self._emit, reason="background")
        self._background.discard()
        return await compact(self._live, self._parts, self._emit, reason=reason)

    def _least_freed(self) -> int:
        """What must go so that the next prompt is not near the threshold again, in uncalibrated tokens."""
        if self.budgets is None:
            return 0
        counter = self._live.counter
        too_much = counter.estimate - NEAR * self.budgets.threshold_tokens
        return math.ceil(max(0.0, too_much) / counter.calibration.ratio)

    def _may_prepare(self) -> bool:
        if self.budgets is None or not self._parts.settings.compression.enabled or self._live.was_undone:
            return False
        return self._background.is_due(self._live.counter.estimate, self.budgets.threshold_tokens)

    def _check_money(self, spent: Spent, max_tokens: int | None) -> None:
        limits = self._parts.settings.limits
        if (limits.max_cost_per_turn, limits.max_cost_per_session, limits.max_cost_per_day) == (None, None, None):
            return
        # Nothing cached and the whole allowance used: what the call may cost at most.
        worst = CanonicalUsage(input_tokens=self._live.counter.estimate, output_tokens=max_tokens or 0)
        check_spending(limits, spent, self._parts.models.cost_usd(self._parts.routes.endpoint, worst))


def _midway(budgets: WindowBudgets) -> int:
    """Half way from the threshold to where no room is left for an answer."""
    return (budgets.threshold_tokens + budgets.room_tokens) // 2
