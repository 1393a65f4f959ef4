"""Data model of the store, as frozen values; and views, the interval arithmetic behind compaction and undo.

A view is an ordered list of spans over the log of its conversation: compacting replaces spans, undoing restores them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from perdure.core.datastructures import merge_intervals
from perdure.core.errors import StoreError
from perdure.core.messages import Entry, Message
from perdure.core.usage import NOT_REPORTED, CanonicalUsage
from perdure.core.visibility import OWNER, AnyUser

ConversationKind = Literal["main", "branch", "delegate"]
BeganBy = Literal["start", "compression", "edit", "undo", "branch", "delegate", "import"]
Grouping = Literal["day", "model", "source", "task"]
Problem = Literal["unreadable", "changed", "missing", "inconsistent"]
# Messages listed in a notice; `perdure sessions verify` lists all.
_MAX_LISTED = 5
_PROBLEMS: dict[Problem, str] = {
    "unreadable": "is damaged and cannot be read",
    "changed": "differs from what was stored: it was changed on disk",
    "missing": "is missing",
    "inconsistent": "does not fit the rest of the conversation",
}


@dataclass(frozen=True, slots=True)
class Span:
    """A range of the log: the messages with lo <= seq <= hi."""

    lo: int
    hi: int

    def __len__(self) -> int:
        return max(0, self.hi - self.lo + 1)

    def __contains__(self, seq: object) -> bool:
        return isinstance(seq, int) and self.lo <= seq <= self.hi

    @property
    def address(self) -> str:
        return f"m:{self.lo}" if self.lo == self.hi else f"m:{self.lo}-{self.hi}"


@dataclass(frozen=True, slots=True)
class RouteRecord:
    """The provider, model and API mode of a session."""

    provider: str = ""
    model: str = ""
    api_mode: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation: its log, its owner, and the session that is its tip; a branch or a delegated run has a parent."""

    id: str
    kind: ConversationKind
    tip_session_id: str
    parent_id: str | None = None
    source: str = ""
    user: AnyUser = OWNER
    chat_key: str = ""
    title: str = ""
    todo: str = ""
    # A branch shares its parent's messages up to this seq; 0 shares none.
    fork_seq: int = 0
    last_seq: int = 0
    created_at_ms: int = 0
    updated_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Session:
    """A session of a conversation: one view over its log, from one compaction to the next."""

    id: str
    conversation_id: str
    parent_id: str | None
    began_by: BeganBy
    route: RouteRecord
    system_prompt: str
    # The session's own messages; last_seq is None while it is the tip.
    first_seq: int
    last_seq: int | None
    started_at_ms: int
    ended_at_ms: int | None = None
    end_reason: str | None = None


@dataclass(frozen=True, slots=True)
class AppendResult:
    """The stored messages with their seqs; `added` is 0 when a replay contained nothing new."""

    conversation_id: str
    session_id: str
    entries: tuple[Entry, ...]
    added: int


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged row: a message of a conversation (with its `seq`), or a row of another table."""

    conversation_id: str | None
    seq: int | None
    problem: Problem
    table: str = "message"
    # Key of the row in its table.
    row: str = ""
    # What is wrong; the default describes the problem.
    detail: str = ""
    # Last of several missing messages.
    last_seq: int | None = None

    def __str__(self) -> str:
        detail = self.detail or _PROBLEMS[self.problem]
        if self.seq is None:
            return f"table {self.table}, row {self.row}: {detail}" if self.row else f"{self.table}: {detail}"
        if self.last_seq is not None and self.last_seq > self.seq:
            return f"{self.conversation_id} m:{self.seq}-{self.last_seq} are missing"
        return f"{self.conversation_id} m:{self.seq} {detail}"


def damage_notice(damage: Sequence[Damage]) -> str:
    """Build the notice shown when a damaged conversation is opened."""
    listed = "; ".join(map(str, damage[:_MAX_LISTED]))
    more = f"; and {len(damage) - _MAX_LISTED} more" if len(damage) > _MAX_LISTED else ""
    return (
        f"The database is damaged: {listed}{more}. The rest of the conversation is intact. Make a copy now"
        " (`perdure sessions backup`), check the disk, and restore these rows from an older backup if you have one."
    )


@dataclass(frozen=True, slots=True)
class SessionHistory:
    """A session as sent to the model: its cached system prompt and its messages in order."""

    session: Session
    entries: tuple[Entry, ...]
    # Messages that failed verification.
    damage: tuple[Damage, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(e.message for e in self.entries)


@dataclass(frozen=True, slots=True)
class NewHandoff:
    """A handoff to be written by a compaction; `covers` None covers everything the plan does not keep."""

    message: Message
    covers: tuple[Span, ...] | None = None
    model: str = ""
    focus: str = ""
    cost_usd: float | None = None
    usage: CanonicalUsage = NOT_REPORTED
    check: Mapping[str, Any] = field(default_factory=dict)


# A compaction, in order: spans of the old view to keep, and handoffs for the rest.
Plan = tuple[Span | NewHandoff, ...]


@dataclass(frozen=True, slots=True)
class StoredHandoff:
    """A handoff: message `seq` summarizes `covers`; `previous` is the handoff it updates.

    `replaced` is the complete view before the compaction, which an undo restores.
    """

    conversation_id: str
    seq: int
    session_id: str
    covers: tuple[Span, ...]
    replaced: tuple[Span, ...]
    model: str
    focus: str
    previous: int | None
    cost_usd: float | None
    usage: CanonicalUsage
    check: Mapping[str, Any]
    created_at_ms: int

    @property
    def address(self) -> str:
        return f"h:{self.seq}"


@dataclass(frozen=True, slots=True)
class CallRecord:
    """Record of a model call, main or auxiliary, with or without reported usage."""

    session_id: str
    task: str = "main"
    turn_id: str = ""
    route: RouteRecord = RouteRecord()
    usage: CanonicalUsage = NOT_REPORTED
    cost_usd: float | None = None
    # Reported separately from real usage; the only figure of a call without reported usage.
    estimate_tokens: int | None = None
    window_tokens: int | None = None
    threshold_tokens: int | None = None
    # Prompt tokens by part: system, tools, memory, head, handoff, tail, outputs.
    composition: Mapping[str, int] = field(default_factory=dict)
    verdict: str = ""
    started_at_ms: int = 0
    ended_at_ms: int = 0
    # Assigned by the store, and not part of equality.
    id: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class StoredUsage:
    """Context usage after the newest main call, or after a compaction or an undo since."""

    model: str
    tokens: int
    window: int | None
    threshold: int | None
    # Of the prompt of that call; a compaction or an undo since has changed all but system, tools and memory.
    composition: Mapping[str, int]
    is_changed: bool = False


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event stored with a conversation: compaction, spill, model switch, recovery, notice."""

    session_id: str
    kind: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    created_at_ms: int = 0
    id: int = 0


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over calls. `cost_usd` excludes the `unpriced_calls`."""

    calls: int = 0
    usage: CanonicalUsage = NOT_REPORTED
    cost_usd: float | None = None
    unpriced_calls: int = 0
    unreported_calls: int = 0
    unreported_estimate_tokens: int = 0
    compactions: int = 0
    # Those of them that were undone.
    undone_compactions: int = 0

    @property
    def least_cost_usd(self) -> float | None:
        """The lower bound of the cost; None if the priced calls were free and others have no known price."""
        return None if self.unpriced_calls and not self.cost_usd else self.cost_usd


@dataclass(frozen=True, slots=True)
class UsageRow:
    """Totals of one day, model, source or task."""

    group: str
    totals: Totals


@dataclass(frozen=True, slots=True)
class Lease:
    """Exclusive right to write a conversation until it expires; a higher token invalidates lower ones."""

    conversation_id: str
    holder: str
    token: int
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """A page of conversations, newest first, and the cursor of the next page."""

    conversations: tuple[Conversation, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class ToolRun:
    """Duration, state and exit code of a tool call; None where not recorded."""

    seconds: float | None = None
    state: str | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """A message with its session; `is_original` is False for handoffs written by a compaction."""

    entry: Entry
    session_id: str
    is_original: bool

    @property
    def seq(self) -> int:
        return self.entry.seq


@dataclass(frozen=True, slots=True)
class TimelinePage:
    """A page of a conversation's messages, oldest first; `last_seq` is the end of the log."""

    conversation_id: str
    entries: tuple[TimelineEntry, ...]
    last_seq: int

    @property
    def before_seq(self) -> int | None:
        """The `before_seq` argument for the previous page; None on the first page."""
        return self.entries[0].seq if self.entries and self.entries[0].seq > 1 else None

    @property
    def has_newer(self) -> bool:
        return bool(self.entries) and self.entries[-1].seq < self.last_seq


@dataclass(frozen=True, slots=True)
class ConversationChange:
    """A conversation that changed since a cursor, and which kinds of rows are new, without the rows themselves."""

    conversation: Conversation
    has_messages: bool
    has_calls: bool
    has_events: bool


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Changes since a cursor, most recently used first; after `is_reload_needed` clients must reload everything."""

    cursor: str
    changed: tuple[ConversationChange, ...] = ()
    is_reload_needed: bool = False


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """Counts of what a deletion removed."""

    conversation_ids: tuple[str, ...]
    messages: int
    outputs: int


View = tuple[Span, ...]


def merge_spans(spans: Iterable[Span]) -> View:
    """Merge adjacent spans and drop empty ones; order and messages are unchanged."""
    return tuple(Span(lo, hi) for lo, hi in merge_intervals((span.lo, span.hi) for span in spans))


def subtract_spans(view: Sequence[Span], removed: Iterable[Span]) -> View:
    """Return a view without the messages of `removed`, in its order."""
    rest = list(view)
    for cut in removed:
        rest = [piece for span in rest for piece in _minus(span, cut)]
    return merge_spans(rest)


def truncate_view(view: Sequence[Span], seq: int) -> View:
    """Return a view without messages after `seq`."""
    return merge_spans(Span(s.lo, min(s.hi, seq)) for s in view if s.lo <= seq)


def view_contains(view: Iterable[Span], seq: int) -> bool:
    return any(seq in span for span in view)


def validate_plan(plan: Plan, view: View) -> None:
    """Raise StoreError unless the plan's spans are parts of the view, each at most once and in its order."""
    last = (-1, 0)
    for span in (p for p in plan if isinstance(p, Span)):
        # Adjacent spans of a view are merged, so a kept span lies within one of them.
        index = next((i for i, part in enumerate(view) if span.lo in part), None)
        if index is None or span.hi not in view[index] or not len(span):
            raise StoreError(f"the plan keeps {span.address}, which is not in the session's view")
        if (index, span.lo) <= last:
            raise StoreError(f"the plan keeps {span.address} twice or out of order")
        last = (index, span.hi)


def covers_of(plan: Plan, view: View) -> list[View]:
    """Return the spans each new handoff covers; the first without explicit `covers` gets everything left over."""
    new = [p for p in plan if isinstance(p, NewHandoff)]
    explicit = [span for h in new for span in h.covers or ()]
    dropped = subtract_spans(view, [*(p for p in plan if isinstance(p, Span)), *explicit])
    out: list[View] = []
    for handoff in new:
        out.append(merge_spans(handoff.covers) if handoff.covers is not None else dropped)
        if handoff.covers is None:
            dropped = ()
    return out


def undo_newest_compaction(view: View, handoffs: Mapping[int, StoredHandoff]) -> View:
    """Return the view before its newest compaction, followed by later messages.

    `handoffs` are all handoffs of the conversation, by seq. Raises StoreError when the view contains none.
    """
    visible = [h for seq, h in handoffs.items() if view_contains(view, seq)]
    if not visible:
        raise StoreError("nothing to undo: this session's view contains no handoff")
    newest = max(visible, key=lambda h: h.seq)
    removed = [Span(h.seq, h.seq) for h in visible if h.session_id == newest.session_id]
    since = subtract_spans(view, [*newest.replaced, *removed])
    return merge_spans([*newest.replaced, *since])


def expand_handoffs(view: View, handoffs: Mapping[int, StoredHandoff]) -> View:
    """Replace every handoff of a view, recursively, by the messages it covers."""
    # Each step removes a handoff, except where a damaged one claims to have replaced itself.
    for _ in handoffs:
        if not any(view_contains(view, seq) for seq in handoffs):
            break
        view = undo_newest_compaction(view, handoffs)
    return view


def _minus(span: Span, cut: Span) -> Iterator[Span]:
    if cut.hi < span.lo or span.hi < cut.lo:
        yield span
        return
    yield Span(span.lo, cut.lo - 1)
    yield Span(cut.hi + 1, span.hi)
