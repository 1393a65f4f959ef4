"""Precompaction: compact a nearly full conversation before its agent processes the next message.

The trigger, a fixed share of the window, is independent of the engine's own: conversations grow while unattended, and
the next message must still fit. The session's engine compacts; if it fails, a digest without a model call replaces it.
In events, metrics and hooks the reason is called `hygiene`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from perdure.agent.agent import ConversationAgent
from perdure.agent.compaction import carry_out, compact
from perdure.agent.session import LiveSession
from perdure.agent.turn import OpenConversation
from perdure.context.compressor import ContextCompressor
from perdure.core.events import CompactionOutcome, Emit, Notice
from perdure.gateway.executor import run_blocking
from perdure.store.records import CallRecord
from perdure.store.store import SessionStore

LEAST_MESSAGES = 4
# Recorded calls to search for the last main prompt; auxiliary calls may be in between.
_CALLS = 20


@dataclass
class WorkerStats:
    """Counters of this process for the metrics: precompaction checks, their outcomes, and takeovers."""

    precompaction_checks: int = 0
    # Messages taken over from processes that died or whose heartbeat stopped.
    takeovers: int = 0
    precompactions: dict[CompactionOutcome, int] = field(default_factory=dict)

    def add(self, outcome: CompactionOutcome) -> None:
        self.precompactions[outcome] = self.precompactions.get(outcome, 0) + 1


async def compact_if_needed(
    agent: ConversationAgent, conversation: OpenConversation, emit: Emit
) -> CompactionOutcome | None:
    """Compact the conversation if its prompt exceeds the precompaction limit; return the outcome, None if it did not.

    The caller holds the conversation's lease.
    """
    live, deps = conversation.live, agent.deps
    if not deps.settings.compression.enabled or len(live.entries) < LEAST_MESSAGES:
        return None
    await conversation.caller.fit_window()
    window = live.window
    if window is None or await _prompt_tokens(live, deps.store) < window.budgets.precompaction_tokens:
        return None
    conversation.gate.cancel_preparation()
    result = await compact(live, deps, emit, reason="hygiene")
    if result.outcome != "failed":
        return result.outcome
    emit(Notice("The context engine could not compact; a digest without a model call replaced it.", "warning"))
    return await _digest(agent, conversation, emit)


async def _prompt_tokens(live: LiveSession, store: SessionStore) -> int:
    """Return the size of this session's last prompt, sent by any process, else an estimate."""
    if live.counter.last_prompt_tokens is not None:
        return live.counter.last_prompt_tokens
    calls = await run_blocking(store.ledger.calls, live.id, limit=_CALLS)
    return last_prompt(calls, live.id) or live.counter.estimate


def last_prompt(calls: Sequence[CallRecord], session_id: str) -> int | None:
    """Return the newest prompt size that a provider reported for this session; None if `calls` has none."""
    for call in reversed(calls):
        is_own_call = call.session_id == session_id and call.task == "main"
        if is_own_call and call.usage.reported and call.usage.prompt_tokens > 0:
            return call.usage.prompt_tokens
    return None


async def _digest(agent: ConversationAgent, conversation: OpenConversation, emit: Emit) -> CompactionOutcome:
    live, deps, endpoint = conversation.live, agent.deps, agent.endpoint
    compressor = ContextCompressor(
        context_length=(await conversation.caller.fit_window()).tokens,
        settings=deps.settings.compression,
        model=endpoint.model,
        provider=endpoint.provider,
        max_tokens=deps.settings.model.max_tokens,
        clock=deps.clock,
    )
    entries = list(live.view)
    result = await asyncio.to_thread(compressor.compress, entries, reason="hygiene")
    return (await carry_out(result, live, deps, emit, reason="hygiene")).outcome
