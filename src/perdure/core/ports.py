"""Ports: Protocols that lower layers call and upper layers implement, with the values they exchange."""

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
    """The question a user is asked before a dangerous action; every text is safe to display (`core.display`)."""

    # The whole command, or the tool with its arguments.
    action: str
    reason: str
    # Which later calls the answers "session" and "always" would allow as well.
    covers: str = ""
    # What the answer "always" has stored, and how it is revoked.
    standing: str = ""
    # The dangerous parts, where they occur verbatim in the action.
    dangerous: tuple[str, ...] = ()
    # The id of the tool call, for surfaces that show the question with it.
    call_id: str = ""
    # Whether "session" and "always" allow more than this one call.
    is_lasting: bool = True
    # Whether the action is one line and a diff.
    has_diff: bool = False
    # Where a command would run; "" for other calls.
    folder: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer "no" to an approval request, with the user's words, which the model reads."""

    words: str


_REFUSED = re.compile(r"no\s*[,;:.]\s*(?=\S)", re.IGNORECASE)


def parse_refusal(answer: object) -> Literal["no"] | Refusal:
    """Parse a refused approval: `no, use mv instead` is a Refusal with those words; any other value is "no"."""
    if isinstance(answer, Refusal):
        return answer
    if isinstance(answer, str) and (match := _REFUSED.match(answer)) is not None:
        return Refusal(answer[match.end() :].strip())
    return "no"


class Clock(Protocol):
    """The source of time, replaced in tests."""

    def now_ms(self) -> int:
        """Return UTC epoch milliseconds."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds of a clock that never goes backwards."""
        ...


@dataclass(frozen=True, slots=True)
class Summary:
    """The text that an auxiliary model wrote, with its usage and cost."""

    text: str
    model: str = ""
    usage: CanonicalUsage = NOT_REPORTED
    cost_usd: float | None = None


class Summarize(Protocol):
    """Have an auxiliary model write a summary by `prompt`; blocks.

    Raises ProviderError, or NoSummaryModel if no model is configured.
    """

    def __call__(self, prompt: str, *, max_tokens: int) -> Summary: ...


class AsyncSummarize(Protocol):
    """The coroutine form of `Summarize`, awaited on the event loop."""

    async def __call__(self, prompt: str, *, max_tokens: int) -> Summary: ...


AuxiliaryTask = Literal["vision", "web_extract", "session_search"]


class AuxiliaryModels(Protocol):
    """Calls models for side tasks (vision, web extraction, search); they get a prompt, not the conversation."""

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
        """Make one call, recorded in the ledger under the task.

        Raises ProviderError if every endpoint failed, or ConfigError.
        """
        ...


class ImageDescriber(Protocol):
    """Describes images for a model that takes none."""

    def is_needed(self) -> bool:
        """Whether the current model takes no images and another one can describe them."""
        ...

    async def describe(self, image: ImagePart, *, conversation_id: str) -> str:
        """Return a text that describes the image; cached, so that it stays the same.

        Raises ProviderError or ConfigError.
        """
        ...


@dataclass(frozen=True, slots=True)
class FileChange:
    """A change of a file by a tool: what is needed to restore it, and to see whether it was changed again."""

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
    """Saves the content of files before tools change them, so that the change can be undone."""

    def save(self, conversation_id: str, path: str, *, before: bytes | None, after: bytes | None) -> None:
        """Record a change of `path`; `before` or `after` is None if the file did not exist then. Raises StoreError."""
        ...


class KeyValue(Protocol):
    """A key-value store of small JSON values that survive a restart, such as cool-downs."""

    def get(self, key: str) -> Any:
        """Return the value of a key, or None."""
        ...

    def set(self, key: str, value: Any) -> None:
        """Store a JSON value; it is durable when this returns. None deletes the key."""
        ...


class LogReader(Protocol):
    """Read access to a conversation's immutable log."""

    def read(self, lo: int, hi: int) -> Sequence[Entry]:
        """Return the messages with lo <= seq <= hi, in order."""
        ...


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The best passage of the reply to a question or request, or of a call's result, in the same conversation."""

    address: str
    # With every match between «…», then raw with the offsets of the matches.
    snippet: str
    excerpt: str
    marks: tuple[tuple[int, int], ...] = ()
    role: str = "assistant"


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
    # How well it matches, comparable within one search, and which words of the query it has: of several queries, those
    # of the one that ranks it highest.
    score: float = 0.0
    matched: tuple[str, ...] = ()
    # For a request, a question or a call: the reply to it, unless that is a hit itself.
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
    # How many queries were fused; `words` are those of all.
    queries: int = 1

    @property
    def missing(self) -> tuple[str, ...]:
        """The words that occur nowhere."""
        return tuple(w.word for w in self.words if not w.texts)

    @property
    def is_partial(self) -> bool:
        """Whether even the best hits have only some of the words; several queries have words of their own."""
        return self.queries == 1 and bool(self.hits) and max(len(h.matched) for h in self.hits) < len(self.words)


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
        self,
        query: str,
        *,
        visibility: Visibility,
        scope: Mapping[str, Any] | None = None,
        limit: int = 20,
        rewordings: Sequence[str] = (),
    ) -> Sequence[SearchHit]:
        """Return the best matches of a query, and of its rewordings, first. Never raises for any query text."""
        ...

    def report(
        self,
        query: str,
        *,
        visibility: Visibility,
        scope: Mapping[str, Any] | None = None,
        limit: int = 20,
        cursor: str | None = None,
        rewordings: Sequence[str] = (),
    ) -> SearchReport:
        """Return the matches, what was searched, a cursor, and the nearest texts if a quoted phrase does not occur."""
        ...

    def open(self, address: str, *, conversation_id: str, offset: int = 0, limit: int = 20_000) -> Page:
        """Open an address (`m:120-180`, `output:<id>`), paged. Raises NotFound."""
        ...


class ScoreTexts(Protocol):
    """Scores a few hundred titled texts for a query."""

    def __call__(
        self, query: str, texts: Sequence[tuple[str, str]], *, synonyms: tuple[tuple[str, ...], ...] = ()
    ) -> Sequence[float]:
        """Return a score for each (title, body) text, 0 for one that does not match.

        Never raises for any query text.
        """
        ...


@dataclass(frozen=True, slots=True)
class LogItem:
    """A message or a compaction window in an outline of the log: its address, where its text begins, and its length."""

    address: str
    description: str
    offset: int
    chars: int


@dataclass(frozen=True, slots=True)
class LogOutline:
    """The items at an address of the log; `next_cursor` is None on the last page."""

    address: str
    total_chars: int
    items: tuple[LogItem, ...]
    next_cursor: int | None


class LogBrowser(Protocol):
    """Read access to the whole log of a conversation by address and character offset, also to compacted parts."""

    def describe(
        self, address: str | None = None, *, conversation_id: str, cursor: int = 0, limit: int = 100
    ) -> LogOutline:
        """Return an outline of an address, or of the conversation's compaction windows if None. Raises NotFound."""
        ...

    def expand(self, address: str, *, conversation_id: str, offset: int = 0, limit: int = 20_000) -> Page:
        """Return the complete text at an address, stored outputs included, paged. Raises NotFound."""
        ...


@dataclass(frozen=True, slots=True)
class StoredOutput:
    """The reference to a tool output that is stored outside the context."""

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
    """Writes a tool output in chunks, so that a large one is never held in memory."""

    def write(self, text: str) -> None: ...

    def close(self) -> StoredOutput:
        """Finish the output and return its reference; it is complete and durable then."""
        ...

    def abort(self) -> None:
        """Discard the output and delete what was written."""
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
    """A new user message for which a recall provider may supply background."""

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
        """Return background text for the message, "" for none. May be a coroutine function.

        A plain function is called in a worker thread and may block; an exception becomes a notice to the user.
        """
        ...


@runtime_checkable
class SessionObserver(Protocol):
    """Optional methods of memory and recall providers that want to know which session a conversation is in."""

    def on_session_switch(self, session_id: str, *, conversation_id: str, previous_id: str | None, reason: str) -> None:
        """Called when a conversation continues in another session; `previous_id` is None when it was opened.

        `reason` is how the session began: start, compression, edit, undo, branch, delegate or import.
        """
        ...


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """The content of MEMORY.md and USER.md at one moment."""

    memory: str
    user: str
    # False where it could not be read.
    is_known: bool = True


class Memory(Protocol):
    """Long-term memory of each user: two texts, MEMORY.md and USER.md, in the system prompt of every conversation.

    The model is told to believe them rather than a handoff, the notes that a compaction leaves.
    """

    def snapshot(self, user_key: str) -> MemorySnapshot: ...

    def write(self, user_key: str, target: Literal["memory", "user"], text: str) -> None:
        """Replace one of the two texts atomically. Raises ToolError if it is over its limit."""
        ...

    def flush(self) -> None:
        """Block until everything written is durable."""
        ...


@dataclass(frozen=True, slots=True)
class ContextReading:
    """The context usage as the model's tool reports it.

    `window` is None until known, `threshold` if compaction is off.
    """

    tokens: int
    window: int | None
    threshold: int | None
    # Tokens of each part of the prompt.
    parts: Mapping[str, int]
    # The largest messages: address, what they are, tokens.
    largest: Sequence[tuple[str, str, int]] = ()


class ContextControl(Protocol):
    """Lets the model read the context usage of its own open conversation and request a compaction."""

    def read(self, conversation_id: str) -> ContextReading:
        """Return the context usage of a conversation. Raises ToolError if it is not open in this process."""
        ...

    def request_compaction(self, conversation_id: str, focus_topic: str | None) -> None:
        """Have the conversation compacted before its next request.

        Raises ToolError if the user turned compaction off.
        """
        ...


class Approver(Protocol):
    """Asks the user whether a dangerous tool call may run."""

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | Refusal:
        """Wait for the user's answer; "no" if no user is present."""
        ...


class Asker(Protocol):
    """Asks the user a question on behalf of the model (the `clarify` tool)."""

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str: ...


class Spawner(Protocol):
    """Runs a delegated child agent with a context and a budget of its own."""

    async def spawn(self, task: str, *, parent_id: str, context: str = "", max_iterations: int | None = None) -> str:
        """Run a child agent of conversation `parent_id` on a task and return its report."""
        ...
