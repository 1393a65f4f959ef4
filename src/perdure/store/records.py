"""What the store hands out and takes in, as frozen values.

Conversation   what a person sees: a chain of sessions over one log
Session        one stretch of it, from one compaction to the next
Span           a closed interval of `seq`; a session begins with a few of them
Handoff        a summary message and what it stands for
Call, Event    what a model call cost, and what else happened
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from perdure.core.messages import Entry, Message
from perdure.core.usage import NOT_REPORTED, CanonicalUsage

ConversationKind = Literal["main", "branch", "delegate"]
BeganBy = Literal["start", "compression", "undo", "branch", "delegate", "import"]
Grouping = Literal["day", "model", "source", "task"]
Problem = Literal["unreadable", "changed", "missing"]
# A notice names so many messages; `perdure sessions verify` lists all.
_MOST_LISTED = 5
_PROBLEMS: dict[Problem, str] = {
    "unreadable": "is damaged and cannot be read",
    "changed": "is not what was stored: it was changed on the disk",
    "missing": "is missing",
}


@dataclass(frozen=True, slots=True)
class Span:
    """The messages with lo <= seq <= hi."""

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
    """Which model a session speaks to, and how."""

    provider: str = ""
    model: str = ""
    api_mode: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    id: str
    kind: ConversationKind
    tip_session_id: str
    parent_id: str | None = None
    source: str = ""
    user_key: str = ""
    chat_key: str = ""
    title: str = ""
    todo: str = ""
    # A branch shares its parent's messages up to this one; 0 shares nothing.
    fork_seq: int = 0
    last_seq: int = 0
    created_at_ms: int = 0
    updated_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Session:
    id: str
    conversation_id: str
    parent_id: str | None
    began_by: BeganBy
    route: RouteRecord
    system_prompt: str
    # Its own messages have first_seq <= seq <= last_seq; None while it is the tip.
    first_seq: int
    last_seq: int | None
    started_at_ms: int
    ended_at_ms: int | None = None
    end_reason: str | None = None


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Where messages came to stand; `added` is 0 when a replay brought nothing new."""

    conversation_id: str
    session_id: str
    entries: tuple[Entry, ...]
    added: int


@dataclass(frozen=True, slots=True)
class Damage:
    """One stored message that is not as it was stored."""

    conversation_id: str
    seq: int
    problem: Problem

    def __str__(self) -> str:
        return f"{self.conversation_id} m:{self.seq} {_PROBLEMS[self.problem]}"


def damage_notice(damage: Sequence[Damage]) -> str:
    """What a person is told who goes on with a damaged conversation."""
    listed = "; ".join(map(str, damage[:_MOST_LISTED]))
    more = f"; and {len(damage) - _MOST_LISTED} more" if len(damage) > _MOST_LISTED else ""
    return (
        f"The database is damaged: {listed}{more}. The rest of the conversation is as it was. Make a copy now"
        " (`perdure sessions backup`), check the disk, and restore these messages from an older backup if you have one."
    )


@dataclass(frozen=True, slots=True)
class SessionHistory:
    """A session as it is sent: its cached system prompt, and its messages in order."""

    session: Session
    entries: tuple[Entry, ...]
    # Those of its messages that are not what was stored.
    damage: tuple[Damage, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(e.message for e in self.entries)


@dataclass(frozen=True, slots=True)
class NewHandoff:
    """A handoff to be written by a compaction; `covers` None means all that the plan does not keep."""

    message: Message
    covers: tuple[Span, ...] | None = None
    model: str = ""
    focus: str = ""
    cost_usd: float | None = None
    usage: CanonicalUsage = NOT_REPORTED
    check: Mapping[str, Any] = field(default_factory=dict)


# A compaction in order: spans of the old view that stay, and handoffs that stand for the rest.
Plan = tuple[Span | NewHandoff, ...]


@dataclass(frozen=True, slots=True)
class StoredHandoff:
    """A stored handoff: message `seq` stands for `covers`; `previous` is the handoff it carries on from.

    `replaced` is the whole view its compaction was made over, in order: what an undo brings back.
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
    """One model call, main or auxiliary, whether it was reported or not."""

    session_id: str
    task: str = "main"
    turn_id: str = ""
    route: RouteRecord = RouteRecord()
    usage: CanonicalUsage = NOT_REPORTED
    cost_usd: float | None = None
    # Shown apart from real usage; all there is when a call ended unreported.
    estimate_tokens: int | None = None
    window_tokens: int | None = None
    threshold_tokens: int | None = None
    # Tokens of the prompt by part: system, tools, memory, head, handoff, tail, outputs.
    composition: Mapping[str, int] = field(default_factory=dict)
    verdict: str = ""
    started_at_ms: int = 0
    ended_at_ms: int = 0
    # Given by the store, so that no two calls are unequal for it alone.
    id: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """Something that happened and is worth showing: compaction, spill, model switch, recovery, notice."""

    session_id: str
    kind: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    created_at_ms: int = 0
    id: int = 0


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over calls. Cost is what is known of it; `unpriced_calls` says how many had no price."""

    calls: int = 0
    usage: CanonicalUsage = NOT_REPORTED
    cost_usd: float | None = None
    unpriced_calls: int = 0
    unreported_calls: int = 0
    unreported_estimate_tokens: int = 0
    compactions: int = 0


@dataclass(frozen=True, slots=True)
class UsageRow:
    """Totals of one day, model, source or task."""

    group: str
    totals: Totals


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write one conversation until it expires; a higher token makes every lower one void."""

    conversation_id: str
    holder: str
    token: int
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """One page of conversations, newest first; `next_cursor` opens the next one."""

    conversations: tuple[Conversation, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class ToolRun:
    """What is known of one tool call beside its result; None where it was not recorded."""

    seconds: float | None = None
    state: str | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """A message where it stands in the story: in which session, and whether it was said or a compaction wrote it."""

    entry: Entry
    session_id: str
    is_original: bool

    @property
    def seq(self) -> int:
        return self.entry.seq


@dataclass(frozen=True, slots=True)
class TimelinePage:
    """A stretch of a conversation, oldest first; `last_seq` is where the whole of it ends."""

    conversation_id: str
    entries: tuple[TimelineEntry, ...]
    last_seq: int

    @property
    def before_seq(self) -> int | None:
        """What to ask for to read older messages; None where there are none."""
        return self.entries[0].seq if self.entries and self.entries[0].seq > 1 else None

    @property
    def has_newer(self) -> bool:
        return bool(self.entries) and self.entries[-1].seq < self.last_seq


@dataclass(frozen=True, slots=True)
class ConversationChange:
    """A conversation with something new, and what kind of new."""

    conversation: Conversation
    has_messages: bool
    has_calls: bool
    has_events: bool


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """What a cursor did not know yet, last used first. Where a reload is needed, what is shown must be read anew."""

    cursor: str
    changed: tuple[ConversationChange, ...] = ()
    is_reload_needed: bool = False


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """What an explicit delete took away."""

    conversation_ids: tuple[str, ...]
    messages: int
    outputs: int
