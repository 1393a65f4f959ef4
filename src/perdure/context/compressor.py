"""The built-in context engine: keep the head and the tail of a history, replace the middle by a handoff.

What is kept: `retention`. When: `should_compress`, which `agent.compaction.CompactionGate` asks.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from perdure.config.compression import COMPRESSOR_ARGUMENTS, compression_settings
from perdure.config.sections import CompressionSettings
from perdure.context import summary_input
from perdure.context.compaction_input import CompactionHistory, Item, tokens_of
from perdure.context.compressor_state import (
    CompactionChain,
    CompactionThrottle,
    CoolDown,
    LastFocus,
    MemoryState,
    OneTimeNotices,
)
from perdure.context.engine import (
    HANDOFF_NOT_REWRITTEN,
    ON_REQUEST,
    Compaction,
    ContextEngine,
    EngineServices,
    Reason,
    StartReason,
    Steps,
    run_steps,
    run_steps_here,
    unchanged_compaction,
)
from perdure.context.exact_values import read_facts
from perdure.context.handoff import check_handoff_options, default_key, handoff_of, source_line
from perdure.context.notebook import NotebookLog, WindowNotes, limit_bytes
from perdure.context.redacted_entries import EntryCache
from perdure.context.retention import Boundaries, Limits, find_boundaries, shorten_head, unread_notices
from perdure.context.summarizer import AnySummarize, is_available
from perdure.core.arguments import MESSAGES, TOKENS, check_arguments, optional
from perdure.core.concurrency import SystemClock
from perdure.core.messages import Entry, Message, clean
from perdure.core.ports import Clock, LogReader
from perdure.core.usage import CanonicalUsage, as_usage
from perdure.models.tokens import estimate_message
from perdure.models.windows import DEFAULT_WINDOW, WindowBudgets, threshold_for, window_budgets

if TYPE_CHECKING:
    from perdure.config.settings import Settings
    from perdure.context.handoff_writer import HandoffWriter, WriteResult

REPEATED_COMPACTION_NOTICE = (
    "This conversation has now been compacted 2 times: details that no handoff names, the model finds by searching."
    " Begin another task with /new; what should last belongs in memory."
)


def _wait(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else f"{seconds / 60:.0f} min"


def _describe_unwritten(trouble: str) -> str:
    """Describe a requested rewrite of the handoff that failed."""
    why = f" ({trouble})" if trouble else ""
    return f"{HANDOFF_NOT_REWRITTEN}{why}. The present handoff stays: one written by code would not improve it."


def pause_notice(passes: int) -> str:
    """Return the notice that automatic compaction is paused because it frees too little."""
    return (
        f"Automatic compaction is paused: {passes} passes in a row saved too little. It resumes once a prompt fits"
        " again. /compress tries now; /new starts afresh."
    )


def raised_threshold_notice(threshold: float, tokens: int) -> str:
    """Return the notice that the compaction threshold is raised for this model."""
    return (
        f"On openai-codex, gpt-5.5 has a smaller window than elsewhere, so compaction waits until {threshold:.0%} of it"
        f" ({tokens:,} tokens). To turn this off: perdure config set compression.codex_gpt55_autoraise false"
    )


def small_summary_window_notice(summary_window: int, window: int) -> str:
    """Return the notice that the summary model has a smaller window than the main model."""
    return (
        f"The summary model's window ({summary_window:,} tokens) is smaller than the main model's ({window:,}): long"
        " histories are summarised in parts. The threshold is not affected."
    )


def expand_handoff(
    history: CompactionHistory, boundaries: Boundaries, log: LogReader | None, *, model: str = ""
) -> tuple[CompactionHistory, Boundaries] | None:
    """Replace the newest handoff by the messages it covers, and move the boundaries accordingly.

    Returns None where there is no handoff, or where its messages cannot be read.
    """
    at = boundaries.previous
    if at is None or log is None or not history.is_logged or history.origins is not None:
        return None
    handoff = handoff_of(history.messages[at])
    if handoff is None or not handoff.covers:
        return None
    in_view = {e.seq for e in history.entries}
    source = [
        entry
        for lo, hi in handoff.covers
        for entry in log.read(lo, hi)
        if entry.seq not in in_view and entry.message.kind != "handoff"
    ]
    if not source:
        return None
    entries: list[Entry] = [*history.entries[:at], *source, *history.entries[at + 1 :]]
    more = len(source) - 1

    def shift(i: int) -> int:
        return i if i <= at else i + more

    shifted = replace(
        boundaries,
        size=len(entries),
        head_end=min(boundaries.head_end, at),
        pinned=tuple(map(shift, boundaries.pinned)),
        tail_start=shift(boundaries.tail_start),
        previous=None,
        unread=shift(boundaries.unread) if boundaries.unread is not None else None,
    )
    return CompactionHistory.read(entries, model), shifted


# A compaction within so many minutes of another is explained.
_SOON_MINUTES = 10
# Less than this part of the threshold below it is little room.
_LITTLE_ROOM_SHARE = 1 / 3
# A compaction that frees less than this, or a twentieth, is not worth invalidating the prompt cache.
_LEAST_GAIN_TOKENS = 16
# From this share of the threshold on, messages are analyzed as they are appended.
_HALF_WAY = 0.5
# From this share on at most so many after each reply, while no request waits for it.
_FIRST_SHARE = 0.05
# From this share on a conversation that goes on is likely to need what writes handoffs, which takes time to import.
_IMPORT_SHARE = 0.01
_MOST_AFTER_REPLY = 100
_WRITER = "perdure.context.handoff_writer"


class ContextCompressor(ContextEngine):
    """Replaces the middle of a long history by a structured handoff; accepts entries, `Message` values and dicts."""

    name = "compressor"

    @check_arguments(**COMPRESSOR_ARGUMENTS)
    def __init__(
        self,
        *,
        context_length: int | None = None,
        summarize: AnySummarize | None = None,
        settings: CompressionSettings | Settings | Mapping[str, Any] | None = None,
        model: str = "",
        provider: str = "",
        max_tokens: int | None = None,
        clock: Clock | None = None,
        handoff_max_chars: int | None = None,
        handoff_key: bytes | None = None,
    ) -> None:
        self._services = EngineServices(
            summarize=summarize,
            state=MemoryState(),
            settings=compression_settings(settings),
            clock=clock or SystemClock(),
        )
        check_handoff_options(handoff_max_chars, handoff_key)
        self._handoff_max_chars = handoff_max_chars
        # Key that seals handoffs in plain dicts; by default that of the installation.
        self._handoff_key = default_key if handoff_key is None else lambda: handoff_key
        self._session_id: str | None = None
        # No notices about the window before it is known.
        self._is_window_known = context_length is not None
        self._last_prompt_tokens: int | None = None
        self._waits_for_response = False
        self._notices: list[str] = []
        # Tokens observed so far, and entries not analyzed yet.
        self._seen_tokens = 0
        # Fingerprint of the tail after the last compaction, for histories without a log.
        self._last_tail: tuple[int, ...] | None = None
        self._unread: list[Entry] = []
        self._import: threading.Thread | None = None
        self._replies = 0
        self._cache = EntryCache()
        self._adopt(self._services)
        self._route = (model, provider)
        self._window = context_length or DEFAULT_WINDOW
        self._max_tokens = max_tokens
        self._set_budgets()

    # -- lifecycle and input -----------------------------------------------------------------------------------------

    def on_session_start(
        self,
        session_id: str,
        *,
        reason: StartReason = "new",
        previous: str | None = None,
        services: EngineServices | None = None,
    ) -> None:
        self._session_id = session_id
        if services is not None:
            self._adopt(services)
            self._set_budgets()
        if reason == "compression":
            self._chain.count_compaction()
            self._waits_for_response = True
        else:
            self._last_prompt_tokens = None
            self._waits_for_response = False
            self._cache.clear()

    def on_session_end(self, session_id: str) -> None:
        self._session_id = None
        self._last_prompt_tokens = None

    def update_model(
        self, *, context_length: int, model: str = "", provider: str = "", max_tokens: int | None = None
    ) -> None:
        before: tuple[str, str] | None = getattr(self, "_route", None)
        if before is not None and before != (model, provider):
            self._last_prompt_tokens = None  # another model counts differently
            if before[0]:  # a switch of models: the failures were those of the previous one
                self._cooldown.reset()
        self._route = (model, provider)
        self._window = context_length
        self._max_tokens = max_tokens
        self._is_window_known = True
        self._set_budgets()

    def update_from_response(self, usage: CanonicalUsage | Mapping[str, Any] | object) -> None:
        usage = as_usage(usage)
        self._waits_for_response = False
        if not usage.reported:
            return
        self._last_prompt_tokens = usage.prompt_tokens
        if usage.prompt_tokens < self.budgets.threshold_tokens:
            self._throttle.end_pause()

    def observe(self, entries: Sequence[Entry]) -> None:
        """Analyze messages ahead of a compaction: some after each reply, all once half the threshold is reached."""
        if self._import is not None:
            # It has had the time until the next message; a compaction must not run beside it.
            self._import.join()
            self._import = None
        self._unread.extend(entries)
        self._seen_tokens += sum(tokens_of(entry, self._route[0]) for entry in entries)
        share = self._seen_tokens / self.budgets.threshold_tokens
        if share >= _HALF_WAY:
            self._read(len(self._unread))
        elif entries and _ends_turn(entries[-1].message):
            self._replies += 1
            if _is_writer_imported():
                if share >= _FIRST_SHARE:
                    self._read(_MOST_AFTER_REPLY)
            elif share >= (_FIRST_SHARE if self._replies == 1 else _IMPORT_SHARE):
                # Compiling its patterns takes longer than a caller should wait for a reply that is there.
                self._import = threading.Thread(target=_import_writer, name="perdure-import", daemon=True)
                self._import.start()

    def _read(self, most: int) -> None:
        """Analyze up to `most` of the oldest messages that were not analyzed yet, and cache the results."""
        _import_writer()
        from perdure.context.record.record import prepare  # slow to import, and a prompt is drawn before

        entries, self._unread = self._unread[:most], self._unread[most:]
        prepare(entries)
        read_facts(entries)
        for entry in entries:
            summary_input.prepare(entry)

    # -- decisions ---------------------------------------------------------------------------------------------------

    @property
    def budgets(self) -> WindowBudgets:
        """Token budgets for the current window and settings."""
        return self._budgets

    @property
    def is_paused(self) -> bool:
        return self._throttle.is_paused

    @check_arguments(prompt_tokens=optional(TOKENS))
    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Whether a prompt has reached the threshold, unless compaction is disabled, paused or awaits a response."""
        tokens = self._last_prompt_tokens if prompt_tokens is None else prompt_tokens
        if tokens is None:
            return False
        if tokens < self.budgets.threshold_tokens:
            if self._session_id is None:  # without a session, responses may never be reported
                self._throttle.end_pause()
            return False
        return self._settings.enabled and not self._waits_for_response and not self._throttle.is_paused

    @check_arguments(messages=MESSAGES)
    def has_content_to_compress(self, messages: Sequence[Item]) -> bool:
        history = CompactionHistory.read(messages, self._route[0], key=self._handoff_key)
        return self._boundaries(history).has_content

    def take_notices(self) -> tuple[str, ...]:
        notices = tuple(self._notices)
        self._notices.clear()
        return notices

    # -- compaction --------------------------------------------------------------------------------------------------

    @check_arguments(messages=MESSAGES)
    def compress(
        self, messages: Sequence[Item], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> Compaction:
        """Compact in the calling thread; where an event loop runs in it, use `acompress`."""
        return run_steps_here(self.steps(messages, focus_topic=focus_topic, reason=reason))

    @check_arguments(messages=MESSAGES)
    async def acompress(
        self, messages: Sequence[Item], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> Compaction:
        """Compact without blocking the event loop: `summarize` is awaited, the rest runs in worker threads."""
        return await run_steps(self.steps(messages, focus_topic=focus_topic, reason=reason))

    def compress_steps(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> Steps[Compaction]:
        if getattr(self.compress, "__func__", None) is not ContextCompressor.compress:  # an engine built on this one
            return (yield from super().compress_steps(messages, focus_topic=focus_topic, reason=reason))
        return (yield from self.steps(messages, focus_topic=focus_topic, reason=reason))

    def steps(self, messages: Sequence[Item], *, focus_topic: str | None, reason: Reason) -> Steps[Compaction]:
        """Compact a history from top to bottom, as a generator.

        What it yields is awaited on the event loop (`run_steps`).
        """
        focus_topic = None if focus_topic is None else clean(str(focus_topic))
        if reason in ON_REQUEST:
            self._throttle.end_pause()
        self._unread = []
        history = CompactionHistory.read(messages, self._route[0], key=self._handoff_key)
        before = sum(history.tokens)
        boundaries = self._boundaries(history)
        if reason in ON_REQUEST and self._has_new_messages(history, boundaries):
            # Requested at low context usage: scale the tail to the history, or there would be little to compact.
            start = 0 if boundaries.previous is None else boundaries.previous + 1
            fresh, covered = sum(history.tokens[start:]), sum(history.tokens[start : boundaries.tail_start])
            if not boundaries.has_content or covered < fresh / 2:
                boundaries = self._boundaries(history, tail_tokens=int(fresh * self._settings.target_ratio))
        rewrite = self._rewrite_source(history, boundaries, focus_topic) if reason in ON_REQUEST else None
        if not boundaries.has_content and rewrite is None:
            why = "There is nothing to compact: no messages lie between the first and the last ones that are kept."
            return self._record_pass(
                replace(unchanged_compaction(messages, why), before_tokens=before, after_tokens=before), reason
            )
        writer = self._writer(reason, history, focus_topic)
        written = yield from writer.write(*(rewrite or (history, boundaries)), focus_topic=focus_topic)
        if not boundaries.has_content and written.handoff.is_digest:
            why = _describe_unwritten(written.trouble)
            noop = replace(
                unchanged_compaction(messages, why), before_tokens=before, after_tokens=before, calls=written.calls
            )
            return self._record_pass(noop, reason)
        retained = (*boundaries.pinned, *range(boundaries.tail_start, boundaries.size))
        plan = history.plan(range(boundaries.head_end), written.message, retained)
        after = sum(history.tokens[: boundaries.lead]) + written.tokens + sum(history.tokens[i] for i in retained)
        after += self._sent_head_tokens(history, boundaries, written.message) + history.note_tokens
        unread = self._unread_size(history, boundaries)
        is_redone = rewrite is not None and not written.handoff.is_digest
        if not is_redone and after > before - max(_LEAST_GAIN_TOKENS, (before - unread) // 20):
            why = "Nothing was compacted: the handoff would hardly be shorter than the messages it stands for."
            noop = replace(
                unchanged_compaction(messages, why), before_tokens=before, after_tokens=before, calls=written.calls
            )
            return self._record_pass(noop, reason, unread_tokens=unread)
        done = Compaction(
            "digest" if written.handoff.is_digest else "compacted",
            plan,
            handoff_data=written.handoff,
            before_tokens=before,
            after_tokens=after,
            message=self._describe(written, after, unread)
            + ("" if reason in ON_REQUEST else self._explain_repetition(written, after)),
            notices=(*history.notices, *unread_notices(history.messages, boundaries)),
            calls=written.calls,
            source=messages,
            head_tokens=self.budgets.head_tokens,
        )
        self._last_tail = _fingerprint(history.messages[i] for i in retained)
        self._focus.record(source_line(written.handoff), focus_topic)
        return self._record_pass(done, reason, had_handoff=boundaries.previous is not None, unread_tokens=unread)

    def _has_new_messages(self, history: CompactionHistory, boundaries: Boundaries) -> bool:
        """Whether messages were appended since the newest handoff was written."""
        if boundaries.previous is None:
            return True
        later = history.entries[boundaries.previous + 1 :]
        if history.is_logged:
            return any(e.seq > history.entries[boundaries.previous].seq for e in later)
        return self._last_tail is not None and self._last_tail != _fingerprint(e.message for e in later)

    def _rewrite_source(
        self, history: CompactionHistory, boundaries: Boundaries, focus_topic: str | None
    ) -> tuple[CompactionHistory, Boundaries] | None:
        """Return the messages to rewrite the newest handoff from, if it is a digest or has another focus; else None."""
        if not is_available(self._services.summarize) and not is_available(self._services.summarize_main):
            return None
        handoff = handoff_of(history.messages[boundaries.previous]) if boundaries.previous is not None else None
        # What the user wrote into a handoff is in no message, so it is built on.
        if handoff is None or handoff.user_lines:
            return None
        has_new_topic = not boundaries.has_content and self._focus.is_new(source_line(handoff), focus_topic)
        if not handoff.is_digest and not has_new_topic:
            return None
        return expand_handoff(history, boundaries, self._services.log, model=self._route[0])

    def _record_pass(
        self, done: Compaction, reason: Reason, *, had_handoff: bool = False, unread_tokens: int = 0
    ) -> Compaction:
        """Update throttle and counters after a pass, and add its notices.

        Unread results do not count: no pass may shorten them.
        """
        notices = list(done.notices)
        if not done.is_noop:
            # `perdure.compress` creates an engine per call, so a handoff in the history counts as a compaction.
            if max(self._chain.count + 1, 2 if had_handoff else 1) == 2 and self._is_due("repeated_compaction"):
                notices.append(REPEATED_COMPACTION_NOTICE)
            if self._session_id is None:  # without a session there is no on_session_start to count it
                self._chain.count_compaction()
            else:
                self._waits_for_response = reason != "background"
        if reason not in (*ON_REQUEST, "background") and self._throttle.record_pass(
            done.before_tokens - unread_tokens, done.after_tokens - unread_tokens
        ):
            notices.append(pause_notice(self._settings.max_ineffective))
        return replace(done, notices=tuple(notices))

    def _is_due(self, notice: str) -> bool:
        """Whether a notice was not shown in this conversation yet."""
        return OneTimeNotices(self._services.state or MemoryState()).is_due(notice)

    def _describe(self, written: WriteResult, after: int, unread: int) -> str:
        # As the handoff itself has it: what the handoffs before it covered is counted, too.
        count = written.handoff.message_count
        covered = f"covers {count:,} message{'' if count == 1 else 's'}"
        reason = f"the summary could not be used ({written.trouble})" if written.trouble else ""
        if written.handoff.is_digest:
            why = f", because {reason}" if reason else ""
            if written.pause_s:
                why = (
                    f", because the last summary could not be used (the next is requested in {_wait(written.pause_s)})"
                )
            text = f"Compacted without a model{why}: a digest written by code {covered}."
        else:
            text = f"Compacted: a handoff written by {written.handoff.model} {covered}."
            text += f" At first {reason}." if reason else ""
        if after - unread > self.budgets.threshold_tokens:
            text += (
                f" That is still above the threshold of {self.budgets.threshold_tokens:,}: what must be kept word for"
                " word fills it. A new conversation (/new) or a larger window is needed."
            )
        return text

    def _explain_repetition(self, written: WriteResult, after: int) -> str:
        """Explain why a compaction follows another within minutes; "" where it does not, or leaves room enough."""
        minutes, threshold = written.minutes_since, self.budgets.threshold_tokens
        if minutes is None or not 0 <= minutes < _SOON_MINUTES:
            return ""
        if not 0 < threshold - after < threshold * _LITTLE_ROOM_SHARE:
            return ""
        ago = "less than a minute" if minutes == 0 else "a minute" if minutes == 1 else f"{minutes} minutes"
        return (
            f" The one before was {ago} ago: what is kept leaves little room below {threshold:,} tokens, where the next"
            " begins (compression.threshold)."
        )

    # -- budgets and services ----------------------------------------------------------------------------------------

    def _boundaries(self, history: CompactionHistory, tail_tokens: int | None = None) -> Boundaries:
        return find_boundaries(history.messages, history.tokens, self._limits(history, tail_tokens))

    def _limits(self, history: CompactionHistory, tail_tokens: int | None) -> Limits:
        b, s = self.budgets, self._settings
        added = b.head_tokens + b.handoff_tokens + history.note_tokens + history.seal_tokens
        return Limits(
            tail_tokens=b.tail_tokens if tail_tokens is None else tail_tokens,
            head_tokens=b.head_tokens,
            room_tokens=b.threshold_tokens - added,
            unread_tokens=self._unread_tokens(added),
            protect_last_n=s.protect_last_n,
            protect_first_n=s.protect_first_n,
            tail_overrun=s.tail_overrun,
            head_decays=s.head_decay,
            keeps_handoff_apart=not history.is_logged,  # a log keeps both messages, and only what is sent merges them
        )

    def _unread_tokens(self, added: int) -> int:
        """Size up to which unread tool results stay whole."""
        if self._session_id is not None:
            # The agent has spilled what does not fit, by calibrated counts; these estimates are rougher.
            return 2 * self.budgets.window
        return self.budgets.room_tokens - added

    def _unread_size(self, history: CompactionHistory, boundaries: Boundaries) -> int:
        """Return the tokens of kept tool results that the model has not read yet."""
        return sum(history.tokens[boundaries.unread :]) if boundaries.unread is not None else 0

    def _sent_head_tokens(self, history: CompactionHistory, boundaries: Boundaries, handoff: Message) -> int:
        """Return the tokens of the kept head in the shortened form in which it is sent."""
        view = [*history.messages[: boundaries.head_end], handoff]
        shortened = shorten_head(view, head_tokens=self.budgets.head_tokens)[boundaries.lead : -1]
        return sum(estimate_message(m, self._route[0] or None) for m in shortened)

    def _writer(self, reason: Reason, history: CompactionHistory, focus_topic: str | None) -> HandoffWriter:
        from perdure.context.handoff_writer import HandoffWriter  # slow to import, and no request needs it

        return HandoffWriter(
            services=self._services,
            budgets=self.budgets,
            cooldown=self._cooldown,
            is_asked_for=reason in ON_REQUEST,
            handoff_max_chars=self._handoff_max_chars,
            handoff_key=self._handoff_key,
            cache=self._cache,
            notes=self._notes(history),
        )

    def _notes(self, history: CompactionHistory) -> WindowNotes | None:
        """Carry over the notes that the model wrote with another engine."""
        log = NotebookLog.read(history.entries)
        if not log.notebook.sections:
            return None
        as_of_seq = log.newest_seq if history.is_logged else None
        return WindowNotes(
            log.notebook,
            as_of_seq,
            limit_bytes(self.budgets.window),
            is_editable=False,
            search_tool="session_search",
        )

    def _adopt(self, services: EngineServices) -> None:
        state = services.state or self._services.state or MemoryState()
        clock = services.clock or self._services.clock or SystemClock()
        self._services = replace(services, state=state, clock=clock)
        self._settings = services.settings
        self._throttle = CompactionThrottle(state, most_strikes=self._settings.max_ineffective)
        self._chain = CompactionChain(state)
        self._focus = LastFocus(state)
        self._cooldown = CoolDown(
            state, clock, retry_s=self._settings.retry_cooldown_s, no_provider_s=self._settings.no_provider_cooldown_s
        )

    def _set_budgets(self) -> None:
        s = self._settings
        model, provider = self._route
        self._budgets = window_budgets(self._window, s, provider=provider, model=model, max_tokens=self._max_tokens)
        if self._is_window_known:
            self._add_route_notices()

    def _add_route_notices(self) -> None:
        """Add notices about the current route, once per installation."""
        model, provider = self._route
        once = OneTimeNotices(self._services.installation or self._services.state or MemoryState())
        threshold = threshold_for(self._settings, provider=provider, model=model)
        if threshold > self._settings.threshold and once.is_due("codex_gpt55"):
            self._notices.append(raised_threshold_notice(threshold, self._budgets.threshold_tokens))
        window = self._services.summary_window
        if window is not None and window < self._window and once.is_due(f"small_summary_window.{provider}/{model}"):
            self._notices.append(small_summary_window_notice(window, self._window))


def _import_writer() -> None:
    """Import the modules that analyze messages and write handoffs, which are slow to import."""
    import_module(_WRITER)


def _is_writer_imported() -> bool:
    """Whether `_import_writer` has completed, possibly in another thread."""
    return hasattr(sys.modules.get(_WRITER), "HandoffWriter")


def _ends_turn(message: Message) -> bool:
    return message.kind == "assistant" and not message.tool_calls


def _fingerprint(messages: Iterable[Message]) -> tuple[int, ...]:
    return tuple(hash((m.role, m.text)) for m in messages)
