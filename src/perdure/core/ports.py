"""What a lower layer needs from above, as small Protocols: handed in, never imported."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from perdure.core.messages import Entry, ImagePart
from perdure.core.usage import NOT_REPORTED, CanonicalUsage
from perdure.core.visibility import AnyUser, Visibility

ApprovalAnswer = Literal["once", "session", "always", "no"]


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """What a person is asked before something dangerous runs; every text is safe to show (`core.display`)."""

    # The whole command, or the tool with its arguments.
    action: str
    reason: str
    # Which later calls the answers "session" and "always" would allow as well.
    covers: str = ""
    # The dangerous parts, where they occur verbatim in the action.
    dangerous: tuple[str, ...] = ()
    # The id of the tool call, for surfaces that show the question with it.
    call_id: str = ""
    # Whether "session" and "always" allow more than this one call.
    is_lasting: bool = True
    # Whether the action is one line and a diff.
    has_diff: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """A no with the person's own words, which the model reads."""

    words: str


_REFUSED = re.compile(r"no\s*[,;:.]\s*(?=\S)", re.IGNORECASE)


def parse_refusal(answer: object) -> Literal["no"] | Refusal:
    """Read a refusal that may have words behind it: `no, use mv instead`. Anything else is a plain no."""
    if isinstance(answer, Refusal):
        return answer
    if isinstance(answer, str) and (match := _REFUSED.match(answer)) is not None:
        return Refusal(answer[match.end() :].strip())
    return "no"


class Clock(Protocol):
    """Time, so that tests can hold it."""

    def now_ms(self) -> int:
        """UTC epoch milliseconds."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never go backwards."""
        ...


@dataclass(frozen=True, slots=True)
class Summary:
    """What the auxiliary model wrote, and what it cost."""

    text: str
    model: str = ""
    usage: CanonicalUsage = NOT_REPORTED
    cost_usd: float | None = None


class Summarize(Protocol):
    """Make one auxiliary call. Raises ProviderError, or NoSummaryModel if no model is configured."""

    def __call__(self, prompt: str, *, max_tokens: int) -> Summary: ...


class AsyncSummarize(Protocol):
    """The same as a coroutine function: it is awaited on the event loop."""

    async def __call__(self, prompt: str, *, max_tokens: int) -> Summary: ...


AuxiliaryTask = Literal["vision", "web_extract", "session_search"]


class AuxiliaryModels(Protocol):
    """Models for side jobs, which never see the conversation's context."""

    def has_model(self, task: AuxiliaryTask) -> bool:
        """Whether a model is configured for the task, or its provider has a small one."""
        ...

    async def ask(
        self,
        task: AuxiliaryTask,
        prompt: str,
        *,
        conversation_id: str,
        max_tokens: int,
        images: Sequence[ImagePart] = (),
    ) -> Summary:
        """Make one call, recorded under the task. Raises ProviderError when every endpoint failed, or ConfigError."""
        ...


class ImageDescriber(Protocol):
    """Describes images for a model that takes none."""

    def is_needed(self) -> bool:
        """Whether the current model takes no images and another one can describe them."""
        ...

    async def describe(self, image: ImagePart, *, conversation_id: str) -> str:
        """Return the description, the same one for the same image. Raises ProviderError or ConfigError."""
        ...


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that a tool changed: how to put it back, and what it was changed to."""

    conversation_id: str
    path: str
    # The newest message of the log when it was changed, which identifies the turn.
    seq: int
    existed: bool
    # The blob with the content before; None for a new file, or one too large to copy.
    copy: str | None
    # The digest of the content after; None where the file was deleted.
    after_digest: str | None


class Checkpoints(Protocol):
    """Stores files from before they are changed."""

    def save(self, conversation_id: str, path: str, *, before: bytes | None, after: bytes | None) -> None:
        """Record a change; None: the file did not exist, or does no longer. Raises StoreError."""
        ...


class KeyValue(Protocol):
    """Small JSON values that survive a restart: cool-downs, strikes, pauses."""

    def get(self, key: str) -> Any:
        """Return the value, or None."""
        ...

    def set(self, key: str, value: Any) -> None:
        """Persisted when this returns; None deletes."""
        ...


class LogReader(Protocol):
    """Read access to a conversation's immutable log."""

    def read(self, lo: int, hi: int) -> Sequence[Entry]:
        """Return the messages with lo <= seq <= hi, in order."""
        ...


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The best passage of the reply to a question, in the conversation of the question."""

    address: str
    # With every match between «…», then raw with the offsets of the matches.
    snippet: str
    excerpt: str
    marks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A search hit: its address and a snippet with every match between «…»."""

    conversation_id: str
    session_id: str
    tip_session_id: str
    address: str
    role: str
    created_at_ms: int
    snippet: str
    title: str = ""
    # The raw snippet and the offsets of its matches: a text may contain «…» of its own.
    excerpt: str = ""
    marks: tuple[tuple[int, int], ...] = ()
    # The character of its text at which the best matches begin.
    offset: int = 0
    # How well it matches, comparable within one search, and which words of the query it has.
    score: float = 0.0
    matched: tuple[str, ...] = ()
    # For a user's request: what was answered, unless that is a hit itself.
    answer: SearchAnswer | None = None


@dataclass(frozen=True, slots=True)
class WordCount:
    """A word of a query and how many texts have it; an estimate unless `is_exact`."""

    word: str
    texts: int
    is_exact: bool


@dataclass(frozen=True, slots=True)
class SearchReport:
    """The hits of a search, and what was searched: an empty answer then never reads as absence."""

    hits: tuple[SearchHit, ...]
    words: tuple[WordCount, ...] = ()
    # Words of the query that mean too little to search for.
    ignored: tuple[str, ...] = ()
    # How many messages and outputs were searched; an estimate where they are many.
    texts: int = 0
    # Continues with the next hits.
    next_cursor: str | None = None
    # Whether no text has a quoted phrase, and the hits have only its words.
    is_relaxed: bool = False
    # How much of the index exists; less than 1 while it is rebuilt after an upgrade.
    indexed_share: float = 1.0

    @property
    def missing(self) -> tuple[str, ...]:
        """The words that occur nowhere."""
        return tuple(w.word for w in self.words if not w.texts)

    @property
    def is_partial(self) -> bool:
        """Whether even the best hits have only some of the words."""
        return bool(self.hits) and max(len(h.matched) for h in self.hits) < len(self.words)


@dataclass(frozen=True, slots=True)
class Page:
    """A piece of something larger; `next_offset` is None at its end."""

    address: str
    text: str
    offset: int
    total_chars: int
    next_offset: int | None
    # The images of the messages, on the first page.
    images: tuple[ImagePart, ...] = ()


class Search(Protocol):
    """Searches all stored messages and opens addresses."""

    def search(
        self, query: str, *, visibility: Visibility, scope: Mapping[str, Any] | None = None, limit: int = 20
    ) -> Sequence[SearchHit]:
        """Return the best matches first. Never raises for any query text."""
        ...

    def report(
        self,
        query: str,
        *,
        visibility: Visibility,
        scope: Mapping[str, Any] | None = None,
        limit: int = 20,
        cursor: str | None = None,
    ) -> SearchReport:
        """The same with what was searched, a cursor, and the nearest texts where a quoted phrase does not occur."""
        ...

    def open(self, address: str, *, conversation_id: str, offset: int = 0, limit: int = 20_000) -> Page:
        """Open an address (`m:120-180`, `output:<id>`), paged. Raises NotFound."""
        ...


class ScoreTexts(Protocol):
    """Scores a few hundred titled texts for a query."""

    def __call__(
        self, query: str, texts: Sequence[tuple[str, str]], *, synonyms: tuple[tuple[str, ...], ...] = ()
    ) -> Sequence[float]:
        """How well each (title, body) text matches, 0 for one that does not. Never raises for any query text."""
        ...


@dataclass(frozen=True, slots=True)
class LogItem:
    """A message or a window in an outline of the log: where its text begins, and how long it is."""

    address: str
    description: str
    offset: int
    chars: int


@dataclass(frozen=True, slots=True)
class LogOutline:
    """What is at an address, item by item; `next_cursor` is None at its end."""

    address: str
    total_chars: int
    items: tuple[LogItem, ...]
    next_cursor: int | None


class LogBrowser(Protocol):
    """Shows the log of a conversation in full: every character has an address and an offset."""

    def describe(
        self, address: str | None = None, *, conversation_id: str, cursor: int = 0, limit: int = 100
    ) -> LogOutline:
        """Outline an address, or the windows of the conversation without one. Raises NotFound."""
        ...

    def expand(self, address: str, *, conversation_id: str, offset: int = 0, limit: int = 20_000) -> Page:
        """Return the complete text at an address, stored outputs included, paged. Raises NotFound."""
        ...


@dataclass(frozen=True, slots=True)
class StoredOutput:
    """A tool output kept whole outside the context."""

    id: str
    conversation_id: str
    tool_call_id: str
    chars: int
    sha256: str
    location: str

    @property
    def address(self) -> str:
        return f"output:{self.id}"


class OutputSink(Protocol):
    """Writer for an output in chunks, so that a large one is never held in memory."""

    def write(self, text: str) -> None: ...

    def close(self) -> StoredOutput:
        """Complete and durable when this returns."""
        ...

    def abort(self) -> None:
        """Leaves nothing behind."""
        ...


class Outputs(Protocol):
    """Storage for tool outputs too large for the context; they are deleted with their conversation."""

    def begin(self, conversation_id: str, tool_call_id: str) -> OutputSink: ...

    def read(self, output_id: str, *, conversation_id: str, offset: int = 0, limit: int = 20_000) -> Page:
        """Return a page of a stored tool output from character `offset`. Raises NotFound for an unknown output.

        Outputs of other conversations of the same user can be read; those of other users are NotFound, too.
        """
        ...

    def pieces(self, output_id: str, *, conversation_id: str) -> Iterator[str]:
        """Yield the whole text of an output in pieces, in one pass. Raises NotFound as `read` does."""
        ...

    def list(self, conversation_id: str) -> Sequence[StoredOutput]: ...


@dataclass(frozen=True, slots=True)
class RecallQuery:
    """A new user message that background is wanted for."""

    text: str
    conversation_id: str
    user: AnyUser
    # Numbers of the messages that the model sees anyway.
    visible: frozenset[int] = frozenset()

    @property
    def user_key(self) -> str:
        """The key that the user's data is stored under; the owner's is empty."""
        return self.user.stored_key


@runtime_checkable
class RecallProvider(Protocol):
    """Supplies background for a new user message."""

    def recall(self, query: RecallQuery) -> str:
        """The passages worth having, "" for none. Blocks: it is called in a worker thread; an exception is a notice.

        It may be a coroutine function.
        """
        ...


@runtime_checkable
class SessionObserver(Protocol):
    """What a memory or recall provider may implement besides, to follow a conversation."""

    def on_session_switch(self, session_id: str, *, conversation_id: str, previous_id: str | None, reason: str) -> None:
        """The conversation continues in this session: `previous_id` is None when it was opened.

        `reason` is how the session began: start, compression, edit, undo, branch, delegate or import.
        """
        ...


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """MEMORY.md and USER.md as they were at one moment."""

    memory: str
    user: str
    # False where it could not be read.
    is_known: bool = True


class Memory(Protocol):
    """Lasting facts, keyed by user; always authoritative over a handoff."""

    def snapshot(self, user_key: str) -> MemorySnapshot: ...

    def write(self, user_key: str, target: Literal["memory", "user"], text: str) -> None:
        """Replaces one file atomically; raises ToolError over its limit."""
        ...

    def flush(self) -> None:
        """Wait until everything written is on disk."""
        ...


@dataclass(frozen=True, slots=True)
class ContextReading:
    """A reading of the context usage; the window is None until known, the threshold where compaction is off."""

    tokens: int
    window: int | None
    threshold: int | None
    # Tokens of each part of the prompt.
    parts: Mapping[str, int]
    # The largest messages: address, what they are, tokens.
    largest: Sequence[tuple[str, str, int]] = ()


class ContextControl(Protocol):
    """The context of a conversation under way, for the model itself."""

    def read(self, conversation_id: str) -> ContextReading:
        """Raises ToolError for a conversation that is not open."""
        ...

    def request_compaction(self, conversation_id: str, focus_topic: str | None) -> None:
        """Have it compacted before the next request. Raises ToolError where the user does not allow it."""
        ...


class Approver(Protocol):
    """Port that asks the user whether a dangerous call may run."""

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | Refusal:
        """Wait for the answer; "no" if no user is present."""
        ...


class Asker(Protocol):
    """Port that asks the user a question of the `clarify` tool."""

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str: ...


class Spawner(Protocol):
    """Runs a delegated child agent with a context and a budget of its own."""

    async def spawn(self, task: str, *, parent_id: str, context: str = "", max_iterations: int | None = None) -> str:
        """Run a child of the conversation `parent_id` and return its report."""
        ...
