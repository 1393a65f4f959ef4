"""Prepare a compaction in the background while the conversation goes on.

A task runs the engine's `compress` on a snapshot. Between two requests the finished plan is applied, and messages
appended since are kept. A plan that no longer matches the history, or that would free too little by now, is discarded:
each compaction invalidates the prompt cache, so one that needs another soon after is worse than none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from perdure.context.engine import Compaction, ContextEngine, RunInThread, run_steps
from perdure.context.history import tokens_of
from perdure.core.concurrency import run_shielded
from perdure.core.messages import Entry

# Preparation starts at this share of the threshold, early enough for a slow summary.
NEAR = 0.85


@dataclass(frozen=True, slots=True)
class _Preparation:
    """One compaction, pending or finished."""

    snapshot: tuple[Entry, ...]
    task: asyncio.Task[Compaction | None]


class Background:
    """At most one preparation at a time, for one conversation."""

    def __init__(
        self, engine: ContextEngine, run: RunInThread = run_shielded, *, on_end: Callable[[], None] | None = None
    ) -> None:
        self._engine = engine
        self._run = run
        # Called in a worker thread once a preparation has ended, however it ended.
        self._on_end = on_end
        self._current: _Preparation | None = None

    @property
    def is_preparing(self) -> bool:
        """Whether one is pending."""
        return self._current is not None and not self._current.task.done()

    @property
    def is_ready(self) -> bool:
        return self._current is not None and self._current.task.done()

    def is_due(self, prompt_tokens: int, threshold_tokens: int) -> bool:
        """Whether the prompt is near the threshold and nothing is prepared or pending."""
        return self._current is None and NEAR * threshold_tokens <= prompt_tokens

    def start(self, entries: Sequence[Entry]) -> bool:
        """Start a task in the running event loop; return False where one is pending."""
        if self._current is not None:
            return False
        snapshot = tuple(entries)
        self._current = _Preparation(snapshot, asyncio.create_task(self._prepare(snapshot)))
        return True

    async def _prepare(self, snapshot: tuple[Entry, ...]) -> Compaction | None:
        try:
            return await run_steps(self._engine.compress_steps(snapshot, reason="background"), self._run)
        except Exception:  # a plug-in may raise anything; the next pass in the foreground reports it
            return None
        finally:
            if self._on_end is not None:
                await self._run(self._on_end)

    def take(self, entries: Sequence[Entry], *, least_freed_tokens: int = 0, model: str = "") -> Compaction | None:
        """Return the prepared compaction for the current history, once; None while pending or if it is stale.

        It is stale when the history no longer begins with the snapshot (an undo, another compaction), when it changes
        nothing, or when it frees less than `least_freed_tokens`, counted for `model`.
        """
        job = self._current
        if job is None or not job.task.done():
            return None
        self._current = None
        compaction = job.task.result() if not job.task.cancelled() else None
        if compaction is None or compaction.is_noop or not _begins_with(entries, job.snapshot):
            return None
        if compaction.before_tokens - compaction.after_tokens < least_freed_tokens:
            return None
        return _with_later(compaction, entries, len(job.snapshot), model)

    async def wait(self, timeout_s: float) -> bool:
        """Wait for a pending preparation; return True once it is ready."""
        if self._current is not None:
            await asyncio.wait([self._current.task], timeout=timeout_s)
        return self.is_ready

    def discard(self) -> None:
        """Cancel the preparation, from any thread: the history or the model has changed."""
        job, self._current = self._current, None
        if job is not None and not job.task.done():
            job.task.get_loop().call_soon_threadsafe(job.task.cancel)


def _with_later(compaction: Compaction, entries: Sequence[Entry], start: int, model: str) -> Compaction:
    """Extend a compaction of the first `start` entries to all entries, including its counts and message."""
    later = sum(tokens_of(entry, model) for entry in entries[start:])
    before, after = compaction.before_tokens + later, compaction.after_tokens + later
    message, count = compaction.message, len(entries) - start
    if count:
        since = f"{count:,} message{'' if count == 1 else 's'} added since"
        message = f"{message} Prepared in the background; with {since}, about {before:,} → {after:,} tokens.".strip()
    return replace(
        compaction,
        plan=compaction.followed_by(start, len(entries)),
        before_tokens=before,
        after_tokens=after,
        message=message,
        source=entries,
    )


def _begins_with(entries: Sequence[Entry], snapshot: Sequence[Entry]) -> bool:
    return len(entries) >= len(snapshot) and all(
        now.seq == then.seq and (now.message is then.message or now.message == then.message)
        for now, then in zip(entries, snapshot, strict=False)
    )
