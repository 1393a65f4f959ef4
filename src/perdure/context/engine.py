"""The interface of context engines, which keep a conversation within its model's window.

An engine receives the token usage of each response, answers whether a compaction is due (the agent's `CompactionGate`
asks it), and returns a *plan*: the ranges of the history to keep (`Keep`) and the messages that replace the rest
(`Insert`). It copies and deletes nothing: the log is immutable, and the plan becomes the view of the next session.

Life cycle: `on_session_start` when a conversation begins or is resumed · `update_from_response` after every response ·
`should_compress` before each request · `compress` when it returns True · `on_session_start(new, reason="compression",
previous=old)` once the plan was applied · `on_session_end` only when the conversation really ends.

Threads: `compress` and `handle_tool_call` may be coroutine functions, which are awaited on the event loop and must not
block it; plain ones run in a worker thread. One `compress` runs at a time, but while one is prepared in the background
the conversation goes on, and the other methods are called meanwhile, one at a time, each from any thread.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias, TypeVar, get_args

from perdure.context.handoff import Handoff, with_compaction_note
from perdure.context.retention import find_unread, shorten_head
from perdure.core import rules
from perdure.core.concurrency import await_foreign, call_foreign, run_coroutine, run_foreign, run_shielded
from perdure.core.datastructures import Interval, MappingAccess
from perdure.core.errors import PluginBroken, ToolError
from perdure.core.events import CompactionOutcome
from perdure.core.messages import Entry, Message
from perdure.core.ports import Clock, KeyValue, LogReader
from perdure.core.usage import CanonicalUsage
from perdure.models.tokens import estimate_message

if TYPE_CHECKING:
    from perdure.config.sections import CompressionSettings

Reason = Literal["threshold", "preflight", "cold", "overflow", "hygiene", "background", "user", "model"]
# Somebody asked for the compaction: the user by a command, or the model by a tool.
# How the message begins where the summary for a new handoff could not be written or used.
HANDOFF_NOT_REWRITTEN = "Nothing was compacted, because no summary could be written for a new handoff"
ON_REQUEST: tuple[Reason, ...] = ("user", "model")
StartReason = Literal["new", "resume", "compression", "undo", "branch"]

T = TypeVar("T")

# Blocking work that asks for something to be awaited: it yields a function that starts it, and receives its result.
# Between two questions it runs in a worker thread, so that the event loop is never blocked (see `run_steps`).
Steps: TypeAlias = Generator[Callable[[], Awaitable[Any]], Any, T]


class RunCoroutine(Protocol):
    """Runs a coroutine to its end from a thread without a running event loop (port)."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> T: ...


class RunInThread(Protocol):
    """Runs blocking work in a worker thread and awaits its end, even when cancelled (port)."""

    async def __call__(self, work: Callable[[], T], /) -> T: ...


class _PostponedCollections:
    """Postpones garbage collections of the process while any thread is inside.

    One that walks a long history takes tens of milliseconds and stops every thread, the event loop's too; the hundreds
    of small ones take 3% of a compaction. Most of what it makes is freed without them, and the history is shorter
    afterwards.
    """

    # Objects; 10,000 messages read from plain dicts are a fifth of them.
    _NEVER = 1_000_000
    _POSTPONED = (_NEVER, _NEVER, _NEVER)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._thresholds = (0, 0, 0)

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1
            # A threshold of 0 means that there are no collections at all.
            if self._users == 1 and (before := gc.get_threshold())[0] > 0:
                self._thresholds = before
                gc.set_threshold(*self._POSTPONED)

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._users -= 1
            # Left alone where other code has changed them meanwhile.
            if self._users == 0 and gc.get_threshold() == self._POSTPONED:
                gc.set_threshold(*self._thresholds)


_collections = _PostponedCollections()


@dataclass(frozen=True, slots=True)
class _Returned(Generic[T]):
    value: T


async def run_steps(steps: Steps[T], run: RunInThread = run_shielded) -> T:
    """Run a generator of steps: each stretch in a worker thread, each awaitable that it yields on the event loop."""
    resume: Callable[[], Any] = partial(next, steps)
    try:
        while True:
            step = await run(partial(_advance_without_collections, resume))
            if isinstance(step, _Returned):
                returned: T = step.value
                return returned
            try:
                answer = await await_foreign(step())
            except Exception as error:  # it belongs to the steps, which asked for it
                resume = partial(steps.throw, error)
            else:
                resume = partial(steps.send, answer)
    except asyncio.CancelledError:
        await run(steps.close)
        raise


def run_steps_here(steps: Steps[T]) -> T:
    """Run a generator of steps in the calling thread, whether or not it has an event loop."""
    resume: Callable[[], Any] = partial(next, steps)
    while True:
        step = _advance_without_collections(resume)
        if isinstance(step, _Returned):
            returned: T = step.value
            return returned
        try:
            answer = run_coroutine(await_foreign(step()))
        except Exception as error:  # it belongs to the steps, which asked for it
            resume = partial(steps.throw, error)
        else:
            resume = partial(steps.send, answer)


def _advance_without_collections(resume: Callable[[], Any]) -> Any:
    with _collections:
        return _advance(resume)


def _advance(resume: Callable[[], Any]) -> Any:
    try:
        return resume()
    except StopIteration as end:
        return _Returned(end.value)


async def _to_coroutine(work: Awaitable[T]) -> T:
    return await work


@dataclass(frozen=True, slots=True)
class Keep:
    """A step of a plan: keep the messages lo <= i < hi of the input exactly as they are."""

    lo: int
    hi: int


@dataclass(frozen=True, slots=True)
class Insert:
    """A step of a plan: insert a message that was not in the input."""

    message: Message


Step = Keep | Insert


@dataclass(frozen=True, slots=True)
class Compaction(MappingAccess):
    """The result of a compaction: the plan, token counts before and after, and messages for the user."""

    outcome: CompactionOutcome
    plan: tuple[Step, ...]
    # The inserted handoff as data: sections, covered messages, model, cost; None where there is none.
    handoff_data: Handoff | None = None
    before_tokens: int = 0
    after_tokens: int = 0
    # One or two plain sentences: what was done, or why nothing was.
    message: str = ""
    # For the user, never for the model.
    notices: tuple[str, ...] = ()
    # Auxiliary calls made, successful or not.
    calls: int = 0
    # The history it applies to, and the token budget of the head.
    source: Sequence[Any] = field(default=(), repr=False, compare=False)
    head_tokens: int = 0
    # The former name of `handoff_data`, deprecated: engines may still set it.
    record: InitVar[Handoff | None] = None

    def __post_init__(self, record: Handoff | None) -> None:
        if record is not None and self.handoff_data is None:
            object.__setattr__(self, "handoff_data", record)

    @property
    def is_noop(self) -> bool:
        """Whether the plan keeps every message and adds none, so that no new session is needed."""
        end = 0
        for step in self.plan:
            if not isinstance(step, Keep) or step.lo != end:
                return False
            end = step.hi
        return end == len(self.source)

    @property
    def handoff(self) -> str:
        """The handoff's text as the model reads it; "" where there is none."""
        inserted = (s.message for s in self.plan if isinstance(s, Insert) and s.message.kind == "handoff")
        return next((m.text for m in inserted), "")

    @property
    def messages(self) -> list[Any]:
        """The new history, valid and ready to send: dicts if the input was dicts, else `Message` values."""
        if self.is_noop:
            return [item.message if isinstance(item, Entry) else item for item in self.source]
        applied = self.apply(self.source)
        plain = [_message(item) for item in applied]
        addresses = [f"m:{item.seq}" if isinstance(item, Entry) else "" for item in applied]
        shortened = shorten_head(plain, head_tokens=self.head_tokens, addresses=addresses)
        if not all(isinstance(item, Mapping | str) for item in self.source):
            return rules.repair(shortened)
        # The caller of a plain list may be about to append the result of its last call.
        visible = rules.repair_open(shortened)
        originals = {id(m): item for m, item in zip(plain, applied, strict=True) if isinstance(item, Mapping)}
        out = [originals.get(id(m)) or m.to_dict() for m in visible]
        return with_compaction_note(out, rules.leading_system(visible)) if self.handoff_data is not None else out

    def apply(self, items: Sequence[T]) -> list[T | Message]:
        """Apply the plan: kept items unchanged, inserted messages between them."""
        out: list[T | Message] = []
        for step in self.plan:
            if isinstance(step, Keep):
                out.extend(items[step.lo : step.hi])
            else:
                out.append(step.message)
        return out

    def followed_by(self, lo: int, hi: int) -> tuple[Step, ...]:
        """Extend the plan to a history that has grown since: later messages are kept."""
        return (*self.plan, Keep(lo, hi)) if hi > lo else self.plan


# Added behind the class, which takes an attribute of this name for the default of the argument.
Compaction.record = property(attrgetter("handoff_data"))  # type: ignore[attr-defined]

Compressed: TypeAlias = Compaction | Sequence[Message] | Sequence[Entry]


@dataclass(frozen=True, slots=True)
class CompactionReport(MappingAccess):
    """The result of a compaction as returned to the caller: messages to send, and a report to show."""

    messages: list[dict[str, Any]]
    outcome: CompactionOutcome
    # The handoff's text; "" where there is none.
    handoff: str
    before_tokens: int
    after_tokens: int
    message: str
    notices: tuple[str, ...] = ()
    # The handoff as data: sections, covered messages, model, cost.
    handoff_data: Handoff | None = None

    @property
    def record(self) -> Handoff | None:
        """The former name of `handoff_data`; deprecated."""
        return self.handoff_data


def _default_settings() -> CompressionSettings:
    # Imported late: the settings model takes longer to build than everything else in this package.
    from perdure.config.sections import CompressionSettings

    return CompressionSettings()


@dataclass(frozen=True, slots=True)
class EngineServices:
    """The services an engine gets when a session starts (summarizers, state, log, clock …); each is optional."""

    # One request to the auxiliary route, with its fallbacks; None where no provider is configured. A plug-in engine
    # whose `compress` is a coroutine function awaits it; for any other it is a plain function.
    # Takes the prompt and `max_tokens`, and returns a Summary, as `ports.Summarize` and `ports.AsyncSummarize` do.
    summarize: Callable[..., Any] | None = None
    # The current main model, called once where the auxiliary route fails or returns no valid summary.
    summarize_main: Callable[..., Any] | None = None
    # Context window of the model behind `summarize`, if known; a callable where it may change.
    summary_window_tokens: int | Callable[[], int | None] | None = None
    # Key-value state with the lifetime of this conversation, and of this installation.
    state: KeyValue | None = None
    installation: KeyValue | None = None
    log: LogReader | None = None
    settings: CompressionSettings = field(default_factory=_default_settings)
    clock: Clock | None = None
    # Folder with the user's prompt overrides.
    prompts_folder: Path | None = None
    # Asks for a compaction before the next request, with a topic or without; None where that is not possible.
    request_compaction: Callable[[str | None], None] | None = None
    # Returns the log positions of the conversation's windows: first the closed ones, last the open one.
    windows: Callable[[], Sequence[Interval]] | None = None
    # Whether the current model is offered tools.
    has_tools: Callable[[], bool] = lambda: True
    # Runs a coroutine on the conversation's event loop, from a worker thread.
    run_coroutine: RunCoroutine = run_coroutine

    def for_threads(self) -> EngineServices:
        """Return the same services with synchronous functions, for an engine that works in a worker thread."""
        run = self.run_coroutine
        return replace(
            self, summarize=_make_blocking(self.summarize, run), summarize_main=_make_blocking(self.summarize_main, run)
        )

    @property
    def summary_window(self) -> int | None:
        """The current value of `summary_window_tokens`."""
        window = self.summary_window_tokens
        return window() if callable(window) else window


def _make_blocking(ask: Callable[..., Any] | None, run: RunCoroutine) -> Callable[..., Any] | None:
    if ask is None or not is_async(ask):
        return ask
    return lambda *args, **kwargs: run(ask(*args, **kwargs))


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling the function returns a coroutine; it may be an object with an async `__call__`."""
    return iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__)


class ContextEngine(ABC):
    """Base class of context engines; see the module for what may be async and what may run concurrently."""

    name: str = ""

    @abstractmethod
    def update_from_response(self, usage: CanonicalUsage) -> None:
        """Record the usage of a response; `usage.reported` is False where the provider sent none."""

    @abstractmethod
    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Return whether to compact now; asked by the agent before each request and after each turn.

        `prompt_tokens` is the size of the last prompt as reported; at the start and the end of a turn, or where the
        prompt would not fit the window, it includes an estimate of what was added since.
        """

    @abstractmethod
    def compress(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> Compressed | Awaitable[Compressed]:
        """Return a plan over `messages`, or the new list, which may simply leave messages out.

        Must not raise for any history, and must not mutate its arguments. May be a coroutine function.
        """

    def compress_steps(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> Steps[Compaction]:
        """Run `compress` as the agent does, and validate its result. Not to be overridden by plug-ins."""
        compress: Callable[[], Any] = partial(self.compress, messages, focus_topic=focus_topic, reason=reason)
        result = yield compress if is_async(self.compress) else partial(run_foreign, compress)
        if isawaitable(result):
            result = yield partial(_to_coroutine, result)
        return call_foreign(as_compaction, result, messages)

    def has_content_to_compress(self, messages: Sequence[Entry]) -> bool:
        """Whether `compress` would change anything. Cheap: no model request."""
        return bool(messages)

    def observe(self, entries: Sequence[Entry]) -> None:
        """Do per-message work as messages are appended; cache the results in `Entry.memo`."""
        return

    def on_session_start(
        self,
        session_id: str,
        *,
        reason: StartReason = "new",
        previous: str | None = None,
        services: EngineServices | None = None,
    ) -> None:
        """Called when a conversation begins, is resumed, or continues in a new session after a compaction."""
        return

    def on_session_end(self, session_id: str) -> None:
        """Called when the conversation ends; never for a compaction."""
        return

    def update_model(
        self, *, context_length: int, model: str = "", provider: str = "", max_tokens: int | None = None
    ) -> None:
        """Called when the main model or its window changed: recompute every budget that depends on it."""
        return

    def take_notices(self) -> Sequence[str]:
        """Return and clear pending notices for the user; they are never sent to the model."""
        return ()

    def get_tool_schemas(self) -> Sequence[Mapping[str, Any]]:
        """Schemas of the engine's own tools, in Chat Completions format; they are added to each request."""
        return ()

    def ordered_tools(self) -> Collection[str]:
        """Return the names of the engine's tools whose calls must run in order.

        Other calls of a reply run concurrently.
        """
        return ()

    def handle_tool_call(self, name: str, arguments: Mapping[str, Any]) -> str | Awaitable[str]:
        """Run one of the engine's own tools. Raises ToolError, whose text becomes the tool result.

        May be a coroutine function.
        """
        raise ToolError(f"context engine {self.name!r} has no tool {name!r}")


def append_keep(steps: list[Step], position: int) -> None:
    """Add one more kept message to the steps; the last `Keep` is extended if it ends right before it."""
    last = steps[-1] if steps else None
    if isinstance(last, Keep) and last.hi == position:
        steps[-1] = Keep(last.lo, position + 1)
    else:
        steps.append(Keep(position, position + 1))


def unchanged_compaction(
    messages: Sequence[Any], message: str, *, outcome: CompactionOutcome = "nothing_to_do"
) -> Compaction:
    """Return a compaction that keeps everything, with the reason as its message."""
    plan = (Keep(0, len(messages)),) if messages else ()
    return Compaction(outcome, plan, message=message, source=messages)


def as_compaction(result: object, messages: Sequence[Entry]) -> Compaction:
    """Validate what an engine's `compress` returned and fill in its token counts.

    A list may hold messages or entries. A result that changes nothing has the outcome "nothing_to_do". Raises
    PluginBroken for anything that is no plan over `messages`.
    """
    if isinstance(result, Compaction):
        compaction = _validate_compaction(result, messages)
    elif isinstance(result, Sequence) and not isinstance(result, str | bytes):
        compaction = Compaction("compacted", _plan_of(_messages_in(result), messages), source=messages)
    else:
        raise PluginBroken(f"compress must return a list of messages or a Compaction, not {type(result).__name__}")
    if messages and not compaction.plan:
        raise PluginBroken("compress returned an empty history")
    if compaction.is_noop:
        is_claimed = compaction.outcome in ("compacted", "digest")
        return replace(compaction, outcome="nothing_to_do") if is_claimed else compaction
    if not compaction.before_tokens and not compaction.after_tokens:
        before = sum(estimate_message(e.message) for e in messages)
        after = sum(estimate_message(_message(item)) for item in compaction.apply(messages))
        compaction = replace(compaction, before_tokens=before, after_tokens=after)
    return compaction


def _messages_in(result: Sequence[object]) -> list[Message]:
    messages = []
    for item in result:
        if not isinstance(item, Entry | Message):
            raise PluginBroken(f"compress returned a list that holds {type(item).__name__}; expected messages")
        messages.append(_message(item))
    return messages


def _validate_compaction(result: Compaction, messages: Sequence[Entry]) -> Compaction:
    """Check that an engine's plan fits `messages` and drop empty steps. Raises PluginBroken."""
    steps: list[Step] = []
    end = 0
    for step in _checked_tuple(result.plan, "plan", (Keep, Insert)):
        if isinstance(step, Insert):
            if not isinstance(step.message, Message):
                raise PluginBroken(f"the plan inserts {type(step.message).__name__}; expected a Message")
        elif not (isinstance(step.lo, int) and isinstance(step.hi, int) and end <= step.lo <= step.hi <= len(messages)):
            raise PluginBroken(f"the plan has {step}, which is out of order or out of range (0 to {len(messages)})")
        else:
            end = step.hi
            if step.lo == step.hi:
                continue
        steps.append(step)
    if result.outcome not in get_args(CompactionOutcome):
        raise PluginBroken(f"the outcome {result.outcome!r} is not one of {', '.join(get_args(CompactionOutcome))}")
    if not isinstance(result.handoff_data, Handoff | None):
        raise PluginBroken(f"handoff_data is {type(result.handoff_data).__name__}; expected a Handoff or None")
    for name in ("before_tokens", "after_tokens", "calls", "head_tokens"):
        if not isinstance(getattr(result, name), int):
            raise PluginBroken(f"{name} is {getattr(result, name)!r}; expected an integer")
    if not isinstance(result.message, str):
        raise PluginBroken(f"message is {type(result.message).__name__}; expected a string")
    notices = _checked_tuple(result.notices, "notices", (str,))
    return replace(result, plan=tuple(steps), notices=notices, source=messages)


def _checked_tuple(values: object, name: str, types: tuple[type, ...]) -> tuple[Any, ...]:
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise PluginBroken(f"{name} is {type(values).__name__}; expected a tuple")
    wrong = next((value for value in values if not isinstance(value, types)), None)
    if wrong is not None:
        raise PluginBroken(f"{name} holds {type(wrong).__name__}; expected {' or '.join(t.__name__ for t in types)}")
    return tuple(values)


def keep_essentials(compaction: Compaction) -> Compaction:
    """Add to a plan what no engine may drop: the newest user request, and tool results the model has not read."""
    messages = [_message(item) for item in compaction.source]
    newest = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].is_request), None)
    unread = find_unread(messages)
    essential = [*([] if newest is None else [newest]), *(range(unread, len(messages)) if unread is not None else ())]
    have = {i for step in compaction.plan if isinstance(step, Keep) for i in range(step.lo, step.hi)}
    steps = list(compaction.plan)
    for i in sorted(set(essential) - have):
        at = next((k for k, step in enumerate(steps) if isinstance(step, Keep) and step.lo > i), len(steps))
        steps.insert(at, Keep(i, i + 1))
    return replace(compaction, plan=tuple(steps)) if len(steps) > len(compaction.plan) else compaction


def _message(item: object) -> Message:
    return item.message if isinstance(item, Entry) else Message.from_dict(item)


def _plan_of(result: Sequence[Message], messages: Sequence[Entry]) -> tuple[Step, ...]:
    """Convert a list of messages to steps: input messages, and equals of unused ones in order, are kept."""
    positions = _same_objects(result, messages)
    steps: list[Step] = []
    cursor = 0
    for n, m in enumerate(result):
        at = positions[n]
        if at is None:
            end = next((p for p in positions[n + 1 :] if p is not None), len(messages))
            at = next((i for i in range(cursor, end) if messages[i].message == m), None)
        if at is None:
            steps.append(Insert(m))
            continue
        append_keep(steps, at)
        cursor = at + 1
    return tuple(steps)


def _same_objects(result: Sequence[Message], messages: Sequence[Entry]) -> list[int | None]:
    """Return the input position of each message of the result, by identity and in order; None for new messages."""
    index: dict[int, list[int]] = {}
    for i, entry in enumerate(messages):
        index.setdefault(id(entry.message), []).append(i)
    positions: list[int | None] = []
    cursor = 0
    for m in result:
        at = next((i for i in index.get(id(m), ()) if i >= cursor), None)
        positions.append(at)
        cursor = cursor if at is None else at + 1
    return positions
