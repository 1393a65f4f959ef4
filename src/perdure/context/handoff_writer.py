"""Write a handoff: summary or digest, grounded, with facts, within its budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from perdure import prompts
from perdure.context.compaction_input import CompactionHistory
from perdure.context.compressor_state import CoolDown
from perdure.context.engine import EngineServices, Steps
from perdure.context.exact_values import FACTS_KEY, FURTHEST_BACK, EntryFacts, MessageFacts, facts_in, scan
from perdure.context.fitting import fit_lines
from perdure.context.handoff import SEAL_CHARS, Handoff, default_key, handoff_of, keep_user_lines, render, seal
from perdure.context.handoff_sections import (
    CHARS_PER_TOKEN,
    HandoffParts,
    Shares,
    assemble,
    handoff_message,
    newest_image,
    share_out,
    split_headings,
)
from perdure.context.notebook import WindowNotes
from perdure.context.record.file_settings import FileSettings
from perdure.context.record.outline import REQUEST_MARK, CallLines
from perdure.context.record.record import PASSAGES_KEY, RecordSource, call_lines, text_to_check
from perdure.context.record.statements import dialogue_share
from perdure.context.record.value_index import ValueUse, draw_index, rank_values
from perdure.context.redacted_entries import EntryCache, redact_entries
from perdure.context.retention import Boundaries, shorten_head
from perdure.context.summarizer import (
    AnySummarize,
    Brief,
    SummaryFailure,
    SummaryOutcome,
    is_available,
    summarize_transcript,
)
from perdure.context.summary_check import check_summary, doubted_facts, user_claims, without_marked
from perdure.context.summary_input import Transcript, split_record, transcribe
from perdure.context.task_state.merging import BY_CODE, merge_model_sections
from perdure.context.task_state.proposals import approvals_in
from perdure.context.task_state.reader import read_state
from perdure.context.task_state.replies import newest_request_text, own_text
from perdure.context.task_state.sections import write_sections
from perdure.context.task_state.state import TaskState
from perdure.context.text import clip, sentences, tidy
from perdure.context.user_text.intent import user_texts
from perdure.context.user_text.standing_instructions import is_standing
from perdure.core.concurrency import SystemClock
from perdure.core.datastructures import intervals_of
from perdure.core.errors import ConfigError, PerdureError
from perdure.core.messages import Entry, ImagePart, Message
from perdure.core.ports import LogReader, Summary
from perdure.models.tokens import estimate_message
from perdure.models.windows import WindowBudgets, plausible_window
from perdure.redaction import redact

# Upper bound of messages read back from the log: the record of older ones is carried over.
MOST_MESSAGES = 10_000


@dataclass(frozen=True, slots=True)
class Past:
    """The messages a handoff covers, as far as they can be read, and the handoff itself where some cannot."""

    entries: tuple[Entry, ...] = ()
    handoff: Handoff | None = None

    @property
    def checked_text(self) -> str:
        """The handoff's text without unverified claims: a source where its messages cannot be read."""
        return without_marked(f"{self.handoff.body}\n{self.handoff.record}") if self.handoff else ""

    @property
    def record(self) -> str:
        """The record of the handoff, carried over where its messages cannot be read."""
        return self.handoff.record if self.handoff else ""

    @property
    def sections(self) -> Mapping[str, str]:
        return self.handoff.sections if self.handoff else {}


def read_past(
    previous: Handoff | None, log: LogReader | None, *, without: Iterable[int] = (), cache: EntryCache | None = None
) -> Past:
    """Read the messages a handoff covers, at most the newest MOST_MESSAGES; skip the positions in `without`."""
    if previous is None:
        return Past()
    if log is None or not previous.covers:
        return Past(handoff=previous)
    at_hand = frozenset(without)
    entries: list[Entry] = []
    is_whole = True
    for lo, hi in reversed(previous.covers):
        start = max(lo, hi + 1 - (MOST_MESSAGES - len(entries)))
        is_whole = is_whole and start == lo
        if start > hi:
            break
        try:
            read = cache.read(log, start, hi) if cache is not None else log.read(start, hi)
        except PerdureError:  # an unreadable log is treated as missing
            return Past(handoff=previous)
        entries += [e for e in read if e.message.kind != "handoff" and e.seq not in at_hand]
    entries.sort(key=lambda e: e.seq)
    return Past(tuple(entries), None if is_whole else previous)


def in_order(past: Sequence[Entry], present: Sequence[Entry]) -> Sequence[Entry]:
    """Merge both by log position."""
    return sorted((*past, *present), key=lambda e: e.seq) if past else present


# The banner and thirteen headings take most of this: a handoff of fewer characters has the short form.
_FULL_CHARS = 1_200
# A user waits for this: after the timeout the handoff is written by code.
TIMEOUT_S = 150.0
# The section that holds the texts under headings of the model's own.
_OTHER_HEADINGS = "Critical Context"
# What a summariser reads: a share of the covered text, within bounds.
_SOURCE_SHARE = 0.16
_LEAST_SOURCE_CHARS, _MOST_SOURCE_CHARS = 32_000, 160_000
# It also reads what happened in the messages that stay, so that nothing is called open that is done by now.
# Calls whose arguments may support a decision, and how much of each.
_MOST_EDITS = 600
_MOST_EDIT_CHARS = 4_000
_LATER_CHARS = 8_000
# Of the index, the values of settings.
_SETTINGS_SHARE = 0.4
# Share of the window for the user's instructions.
_RULES_SHARE = 0.06
# Of the newest request, where it stands in the transcript.
_REQUEST_CHARS = 120
# Of the first messages, which stay in view, and of the rules of the system prompt.
_HEAD_CHARS = 3_000
_HEAD_HEADING = (
    "[How the conversation began. The next assistant sees these messages themselves: do not retell them; they tell what"
    " it is about.]"
)
_RULES_CHARS = 4_000
_RULES_HEADING = "[Rules of the system prompt, which the next assistant has too. They tell what is allowed.]"
_LATER_HEADING = (
    "[From here on the next assistant sees the messages themselves. Do not retell them; they tell what of the above is"
    " finished, failed or still open.]"
)


@dataclass(frozen=True, slots=True)
class WriteResult:
    """A handoff as a message, its size, and the requests it took."""

    handoff: Handoff
    message: Message
    tokens: int
    calls: int
    # Why there is no summary though one was asked for; "" otherwise.
    trouble: str
    # Minutes since the handoff before it; None for the first.
    minutes_since: int | None = None
    # Seconds until a summary is requested again, where none was after an earlier failure.
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class CompactionInput:
    """A split history: the messages to replace, the previous handoff, and what remains visible."""

    history: CompactionHistory
    boundaries: Boundaries
    # The middle without the handoffs in it.
    fresh: list[Entry]
    previous: Handoff | None
    # Tokens of the middle, and of what is kept before and after it, except the head.
    tokens: int
    kept_tokens: int

    @classmethod
    def of(cls, history: CompactionHistory, boundaries: Boundaries) -> CompactionInput:
        at = boundaries.middle
        fresh = [e for e in map(history.entries.__getitem__, at) if e.message.kind != "handoff"]
        previous = handoff_of(history.messages[boundaries.previous]) if boundaries.previous is not None else None
        # Unread results stay beyond the threshold, within the room of the window: they leave the handoff its size.
        retained = sum(history.tokens[: boundaries.lead]) + sum(
            history.tokens[boundaries.tail_start : boundaries.unread]
        )
        retained += sum(history.tokens[i] for i in boundaries.pinned)
        return cls(history, boundaries, fresh, previous, sum(map(history.tokens.__getitem__, at)), retained)

    @property
    def before(self) -> Message | None:
        """The message right before the handoff."""
        boundaries = self.boundaries
        return self.history.messages[boundaries.head_end - 1] if boundaries.head_end > boundaries.lead else None

    @property
    def image(self) -> ImagePart | None:
        """The newest image, if it would be lost with the middle and a user message can carry it."""
        newest = newest_image(self.history.messages)
        if newest is None or newest[0] not in self.boundaries.middle:
            return None
        # After a user message the two would be merged, and the handoff could not be found again.
        return newest[1] if self.before is None or self.before.role in ("assistant", "tool") else None

    @property
    def after(self) -> list[Message]:
        """The messages after the handoff."""
        return [e.message for e in self.behind]

    @property
    def head(self) -> list[Entry]:
        """The first messages, as far as they are kept before the handoff."""
        return list(self.history.entries[self.boundaries.lead : self.boundaries.head_end])

    @property
    def behind(self) -> list[Entry]:
        boundaries, entries = self.boundaries, self.history.entries
        return [*(entries[i] for i in boundaries.pinned), *entries[boundaries.tail_start :]]

    @property
    def request(self) -> Entry | None:
        """The newest request, if it is kept though messages after it are compacted."""
        pinned = (self.history.entries[i] for i in self.boundaries.pinned)
        return next((e for e in pinned if e.message.is_real_user), None)


@dataclass(frozen=True, slots=True)
class HandoffWriter:
    """Writer of one handoff, with the services of its session."""

    services: EngineServices
    budgets: WindowBudgets
    cooldown: CoolDown
    # Requested by the user: ignores the cool-down.
    is_asked_for: bool
    handoff_max_chars: int | None = None
    # Returns the key that seals handoffs in plain dicts.
    handoff_key: Callable[[], bytes] = default_key
    # Entries of earlier compactions with what was computed of them.
    cache: EntryCache | None = None
    # The notebook and the earlier windows; None where the model keeps no notes.
    notes: WindowNotes | None = None

    def write(
        self, history: CompactionHistory, boundaries: Boundaries, *, focus_topic: str | None
    ) -> Steps[WriteResult]:
        """Write the handoff for the middle of a history. Never fails: without a summary, code writes a digest."""
        job = CompactionInput.of(history, boundaries)
        log = self.services.log if history.is_logged else None
        past = read_past(job.previous, log, without=(e.seq for e in history.entries), cache=self.cache)
        sources = in_order(past.entries, [e for e in history.entries if e.message.kind != "handoff"])
        lines = call_lines(sources)
        covered = in_order(past.entries, job.fresh)
        shares = self._shares(job, dialogue_share(covered, lines))
        record = RecordSource(
            covered,
            lines,
            earlier=past.record,
            request_seq=job.request.seq if job.request is not None else None,
            has_addresses=history.is_logged,
            dialogue_level=shares.dialogue,
        )
        outcome = yield from self._summary(job, shares, focus_topic, past, self._source(job, covered, lines, record))
        state = read_state(sources, lines, previous=past.sections, in_view=frozenset(e.seq for e in job.behind))
        doubted = doubted_facts(job.previous.body, [e.message for e in sources]) if job.previous else frozenset()
        approvals = tuple(map(redact, approvals_in(lines.values())))
        sections, findings = self._write_sections(
            outcome.summary, shares, sources, past, state, doubted, approvals, is_logged=history.is_logged
        )
        sections = keep_user_lines(sections, job.previous)
        frame = self._frame(job, outcome.summary, focus_topic, findings)
        if self.notes is not None:
            frame = self.notes.add_to(frame, state)
        handoff = assemble(HandoffParts(sections, record.draw, self._index_drawer(job, sources, lines)), frame, shares)
        image = job.image if not shares.is_short else None
        handoff = replace(handoff, has_image=image is not None)
        text = render(handoff, banner=self._banner(shares), is_short=shares.is_short)
        if not history.is_logged:
            text = seal(text, self.handoff_key())
        message = handoff_message(text, job.before, job.after[0] if job.after else None, image)
        if self.notes is not None and (extra := self.notes.extra(handoff, state)):
            message = replace(message, extra=extra)
        trouble = outcome.failure.why if outcome.failure else ""
        if self.cache is not None and log is not None:
            self.cache.add(job.fresh)
        before_ms = job.previous.created_at_ms if job.previous is not None else 0
        minutes = (handoff.created_at_ms - before_ms) // 60_000 if before_ms else None
        size = estimate_message(message)
        return WriteResult(handoff, message, size, outcome.calls, trouble, minutes, outcome.pause_s)

    def _source(
        self, job: CompactionInput, covered: Sequence[Entry], lines: CallLines, record: RecordSource
    ) -> Callable[[], Transcript]:
        """Return a function that draws what the summariser reads: the record in more detail, and what came after it."""

        def draw() -> Transcript:
            budget = min(max(_LEAST_SOURCE_CHARS, int(record.chars * _SOURCE_SHARE)), _MOST_SOURCE_CHARS)
            drawn = record.draw(budget)
            # The transcript has one header for all of its parts.
            header, _, body = drawn.partition("\n")
            if job.request is not None:
                words = clip(tidy(redact(own_text(job.request))), _REQUEST_CHARS)
                body = body.replace(REQUEST_MARK, f"{REQUEST_MARK} “{words}”" if words else REQUEST_MARK, 1)
            parts = [body]
            for heading, entries, most in (
                (_HEAD_HEADING, job.head, _HEAD_CHARS),
                (_LATER_HEADING, job.behind, _LATER_CHARS),
            ):
                in_view = RecordSource(entries, lines, has_addresses=job.history.is_logged, root=record.root)
                if drawn and entries and (text := in_view.draw(most)):
                    shown = "\n".join((heading, text.partition("\n")[2]))
                    parts.insert(0 if heading is _HEAD_HEADING else len(parts), shown)
            if drawn and (rules := system_rules(job.history.messages[: job.boundaries.lead])):
                parts.insert(0, f"{_RULES_HEADING}\n{rules}")
            return split_record("\n".join((header, *parts)))

        return draw

    def _summary(
        self,
        job: CompactionInput,
        shares: Shares,
        focus_topic: str | None,
        past: Past,
        source: Callable[[], Transcript],
    ) -> Steps[SummaryOutcome]:
        """Request a summary from the auxiliary route, then once from the main model; none during a cool-down."""
        s = self.services
        asks = [(a, w) for a, w in ((s.summarize, s.summary_window), (s.summarize_main, None)) if is_available(a)]
        pause_s = 0.0 if self.is_asked_for else self.cooldown.left_s()
        if not asks or not job.fresh or pause_s > 0:
            return SummaryOutcome(None, None, 0, pause_s if asks else 0.0)
        # A topic is rendered in full detail: its words may be in any result.
        has_topic = focus_topic is not None
        brief = Brief(
            transcript=transcribe(job.fresh, prune_chars=s.settings.prune_chars) if has_topic else source(),
            target_tokens=shares.summary_tokens,
            source_tokens=job.tokens,
            window_tokens=self.budgets.window,
            # The record covers everything the previous handoff does, where its messages can be read.
            previous=job.previous if has_topic else past.handoff,
            focus_topic=focus_topic,
            focus_ratio=s.settings.focus_ratio,
            prompts_folder=s.prompts_folder,
            request=newest_request_text(job.history.entries),
        )
        clock = s.clock or SystemClock()
        give_up_at = clock.monotonic_s() + TIMEOUT_S
        failure, calls = None, 0
        for ask, window in asks:
            here = replace(brief, window_tokens=window or brief.window_tokens)
            outcome = yield from _summarize_with(here, ask, lambda: give_up_at - clock.monotonic_s())
            calls += outcome.calls
            if outcome.summary is not None:
                self.cooldown.record_success()
                return SummaryOutcome(outcome.summary, None, calls)
            if outcome.failure is not None and not outcome.failure.is_absent:
                failure = outcome.failure
            if (failure is not None and failure.is_superseded) or clock.monotonic_s() >= give_up_at:
                break
        if failure is not None and not failure.is_superseded:
            self.cooldown.record_failure(failure.verdict, is_lasting=failure.is_lasting)
        return SummaryOutcome(None, failure, calls)

    def _write_sections(
        self,
        summary: Summary | None,
        shares: Shares,
        sources: Sequence[Entry],
        past: Past,
        state: TaskState,
        doubted: frozenset[str],
        approvals: Sequence[str],
        *,
        is_logged: bool,
    ) -> tuple[dict[str, str], tuple[str, ...]]:
        """Write the sections from the state; with a summary, its prose is merged with them and grounded."""
        # Without a log what is not quoted is lost.
        rules_chars = int(self.budgets.window * _RULES_SHARE * CHARS_PER_TOKEN) if is_logged else None
        if summary is None:
            return write_sections(state, budget_chars=shares.code_chars, rules_chars=rules_chars), ()
        messages = [e.message for e in sources]
        users = [*_user_texts(sources), *user_claims(past.checked_text), *approvals]
        authored = [*users, *(m.text for m in messages if m.kind == "assistant")]
        passages: list[tuple[frozenset[str], ...] | None] = Entry.get_memos(sources, PASSAGES_KEY)
        words = {text_to_check(e): w for e, w in zip(sources, passages, strict=True) if w is not None}
        policy = [m.text for m in messages if m.role == "system"]
        merged = merge_model_sections(
            summary.text,
            state,
            budget_chars=shares.code_chars,
            rules_chars=rules_chars,
            authored=authored,
            users=users,
            edits=lambda: _call_texts(messages),
            passages=words,
            policy=policy,
            approvals=approvals,
        )
        # What code wrote alone needs no check.
        written = {name or _OTHER_HEADINGS for _, name, _ in split_headings(summary.text)}
        prose = {n: t for n, t in merged.sections.items() if n not in BY_CODE and n in written}
        # Head and tail are sources too. Cached values are a fiftieth of the text to search.
        cached: list[MessageFacts] = Entry.get_memos(sources, FACTS_KEY)
        facts = [values for f in cached for values in (f.mentioned, f.used) if values] if all(cached) else None
        if facts is not None:
            facts.append(scan(past.checked_text))
        texts = ReadableTexts(messages, past.checked_text)
        checked = check_summary(
            prose, texts, facts, users=users, doubted=doubted, by_code=merged.by_code, approvals=approvals
        )
        sections = {**{n: t for n, t in merged.sections.items() if n not in prose}, **checked.sections}
        findings = tuple(f"{f.action} in {f.section}: {f.text}" for f in checked.findings)
        return sections, (*merged.findings, *findings)

    def _index_drawer(
        self, job: CompactionInput, sources: Sequence[Entry], lines: CallLines
    ) -> Callable[[int, str], str]:
        """Return a function that draws the index; the values are ranked when it is first called."""

        @cache
        def read_values() -> tuple[ValueUse, frozenset[str]]:
            reached = _in_reach(sources)
            redact_entries(e for e in reached if e.message.tool_calls)
            known: list[MessageFacts | None] = Entry.get_memos(reached, FACTS_KEY)
            facts = [f or EntryFacts(e) for e, f in zip(reached, known, strict=True)]
            return ValueUse.read(facts), _facts_in_sight(self._head(job), job)

        @lru_cache(maxsize=1)  # drawn again in less room beside the same text
        def values_beside(text: str) -> list[str]:
            use, visible = read_values()
            return rank_values(use, visible=visible, text=text)

        @cache
        def read_settings() -> tuple[FileSettings, str]:
            in_view = ReadableTexts([*self._head(job), *job.after], "")
            return FileSettings.read(sources, lines), "\n".join(in_view).replace('\\"', '"')

        def draw(room: int, text: str) -> str:
            settings, in_view = read_settings()
            top = settings.draw(int(room * _SETTINGS_SHARE), f"{text}\n{in_view}")
            use = read_values()[0]
            values = draw_index(
                use, values_beside(text), budget=room - len(top), text=f"{text}\n{top}" if top else text
            )
            return "\n".join(filter(None, (top, values)))

        return draw

    def _head(self, job: CompactionInput) -> list[Message]:
        """Return the head as it will be sent; a handoff marks where it ends."""
        view = [*job.history.messages[: job.boundaries.head_end], Message("user", "", kind="handoff")]
        return shorten_head(view, head_tokens=self.budgets.head_tokens)[:-1]

    def _frame(
        self, job: CompactionInput, summary: Summary | None, focus_topic: str | None, findings: tuple[str, ...]
    ) -> Handoff:
        """Build the handoff without its sections."""
        before = job.previous
        covers = intervals_of(e.seq for e in job.fresh) if job.history.is_logged else ()
        clock = self.services.clock or SystemClock()
        return Handoff(
            {},
            covers=covers + (before.covers if before else ()),
            message_count=len(job.fresh) + (before.message_count if before else 0),
            model=(summary.model or "the summary model") if summary else "",
            created_at_ms=clock.now_ms() // 60_000 * 60_000,
            cost_usd=summary.cost_usd if summary else None,
            focus_topic=focus_topic,
            findings=findings,
        )

    def _shares(self, job: CompactionInput, dialogue: float) -> Shares:
        b, s = self.budgets, self.services.settings
        return share_out(
            middle_tokens=job.tokens,
            summary_cap_tokens=b.summary_cap_tokens,
            record_tokens=b.record_tokens,
            summary_ratio=s.summary_ratio,
            summary_min_tokens=s.summary_min_tokens,
            whole_tokens=self._whole_tokens(job),
            whole_chars=self._whole_chars(job),
            is_short=b.handoff_cap_tokens is not None or (self.handoff_max_chars or _FULL_CHARS) < _FULL_CHARS,
            dialogue=dialogue,
            record_max_tokens=s.record_max_tokens,
        )

    def _whole_chars(self, job: CompactionInput) -> int | None:
        """Character limit of the handoff before its seal."""
        most = self.handoff_max_chars
        return most if most is None or job.history.is_logged else max(1, most - SEAL_CHARS)

    def _whole_tokens(self, job: CompactionInput) -> int | None:
        """Token limit of the whole handoff, where the kept messages leave less than its parts would take."""
        b = self.budgets
        history = job.history
        extra = self.notes.tokens if self.notes is not None else 0
        room = b.threshold_tokens - job.kept_tokens - b.head_tokens - history.note_tokens - history.seal_tokens - extra
        if room >= b.handoff_tokens:
            return None if b.handoff_cap_tokens is None else b.handoff_cap_tokens + extra
        return min(b.handoff_tokens, max(room, b.least_handoff_tokens)) + extra

    def _banner(self, shares: Shares) -> str | None:
        try:
            name = "handoff_banner_short" if shares.is_short else "handoff_banner"
            return prompts.render(name, {}, self.services.prompts_folder)
        except ConfigError:
            return None  # a slip in an override must not stop a compaction


def _summarize_with(brief: Brief, ask: AnySummarize, left_s: Callable[[], float]) -> Steps[SummaryOutcome]:
    """Summarize with one model; retry in smaller parts where its window turns out to be smaller."""
    outcome = yield from summarize_transcript(brief, ask, left_s=left_s)
    smaller = _stated_window(outcome.failure, brief)
    if smaller is None:
        return outcome
    again = yield from summarize_transcript(replace(brief, window_tokens=smaller), ask, left_s=left_s)
    return replace(again, calls=outcome.calls + again.calls)


def _stated_window(failure: SummaryFailure | None, brief: Brief) -> int | None:
    """Return the window stated in a "prompt too long" error; half of the assumed one without a plausible figure."""
    if failure is None or failure.verdict is None or failure.verdict.kind != "prompt_too_long":
        return None
    half = brief.window_tokens // 2
    return min(plausible_window(failure.verdict.context_limit) or half, half)


def system_rules(messages: Sequence[Message]) -> str:
    """Return the system prompt where it is short, else the sentences that lay something down, as far as they fit."""
    text = redact("\n".join(m.text for m in messages)).strip()
    if len(text) > _RULES_CHARS:
        rules = (s for s in dict.fromkeys(sentences(text)) if is_standing(s))
        text = fit_lines([f"- {' '.join(rule.split())}" for rule in rules], _RULES_CHARS) if text else ""
    # Only labels and calls begin at the margin.
    return "\n".join(f" {line}" for line in text.splitlines() if line.strip())


def _in_reach(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return the newest entries to extract facts from, starting at the call of the first result."""
    start = max(0, len(entries) - FURTHEST_BACK)
    while start > 0 and entries[start].message.role == "tool":
        start -= 1
    return entries[start:]


def _facts_in_sight(head: Sequence[Message], job: CompactionInput) -> frozenset[str]:
    """Return the facts that remain visible: in the head as sent, and in everything after the handoff."""
    visible_head = [e if m is e.message else Entry(e.seq, m) for m, e in zip(head, job.history.entries, strict=False)]
    read = [facts_in(e) for e in (*visible_head, *job.behind)]
    return frozenset().union(*(facts.mentioned for facts in read), *(facts.used for facts in read))


def _user_texts(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield every text that counts as the user's, from what is cached of each message."""
    return user_texts([e.message for e in entries], lambda n: own_text(entries[n]))


def _call_texts(messages: Sequence[Message]) -> Iterator[str]:
    """Yield what the assistant wrote into its newest calls."""
    calls = [call for m in messages[-_MOST_EDITS:] for call in m.tool_calls]
    return (call.arguments[:_MOST_EDIT_CHARS].replace("\\n", "\n") for call in calls)


@dataclass(frozen=True, slots=True)
class ReadableTexts:
    """Every text of some messages that a model reads, and one more."""

    messages: Sequence[Message]
    last: str

    def __iter__(self) -> Iterator[str]:
        for m in self.messages:
            yield m.text
            for call in m.tool_calls:
                yield call.arguments
        yield self.last
