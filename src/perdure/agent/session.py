"""`LiveSession`: the open session of a conversation in memory, kept in step with the store.

It has the history, the token counter, the projection for requests, recalled passages and the records that wait to be
stored. `describe_remote_changes` reports what other processes did; `LiveContexts` serves the context tools.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import takewhile
from typing import Any
from weakref import WeakValueDictionary

from perdure import prompts
from perdure.agent.context_usage import Composition, ContextUsage, context_window, is_same_prompt, last_reported_call
from perdure.agent.deps import AgentDeps
from perdure.agent.model_request import (
    Projection,
    SentForms,
    SpilledResults,
    count_images,
    images_of,
    loop_start,
    shorten_view,
    surplus_images,
)
from perdure.agent.recall import GuardedMemory, SessionSwitch, inform
from perdure.context.compaction_input import tokens_of
from perdure.core.errors import CommitUnknown, StoreError, ToolError
from perdure.core.events import Event, ModelSwitched, Notice, TextDelta
from perdure.core.messages import Entry, ImagePart, Message, ToolCall, tool_result
from perdure.core.ports import ContextReading, KeyValue
from perdure.core.rules import find_call
from perdure.core.turn_options import NO_OPTIONS, TurnOptions
from perdure.models.tokens import TokenCounter, entry_figures, sum_figures, text_figures
from perdure.models.windows import ContextWindow, Window
from perdure.providers.codec import ReasoningRule
from perdure.providers.routes import RouteCursor
from perdure.store.maintenance import SCRUB_COUNT
from perdure.store.records import CallRecord, Conversation, Lease, Session, SessionHistory, Span, StoredEvent
from perdure.store.store import SessionStore
from perdure.tools.runtime import INTERRUPTED

_log = logging.getLogger(__name__)
_KEY = "sidecars"
_NO_CLIENT_RESULT = "[The client that was to run this call sent no result.]"


def interrupted_result(call: ToolCall) -> Message:
    """Return a placeholder result for a tool call that was cut off or never answered by the client."""
    text = _NO_CLIENT_RESULT if call.is_for_client else INTERRUPTED
    return tool_result(call.id, text, call.name, state="interrupted")


class Sidecars:
    """Recalled passages of one session, by the seq of their message.

    They are persisted, so that a resumed session sends the same bytes.
    """

    def __init__(self, state: KeyValue, session_id: str) -> None:
        self._state = state
        self._session_id = session_id
        stored = state.get(_KEY) or {}
        is_mine = isinstance(stored, dict) and stored.get("session") == session_id
        self._passages: dict[int, str] = {int(k): v for k, v in stored["passages"].items()} if is_mine else {}

    @property
    def by_seq(self) -> dict[int, str]:
        return dict(self._passages)

    def add(self, seq: int, passage: str) -> None:
        """Store the passage recalled for message `seq`; returns once it is persisted."""
        self._passages[seq] = passage
        self._state.set(_KEY, {"session": self._session_id, "passages": {str(k): v for k, v in self._passages.items()}})


_SPOKEN_KINDS = ("user", "assistant", "tool")
_PREVIEW_MESSAGES, _PREVIEW_CHARS = 2, 160


def describe_remote_changes(live: LiveSession, store: SessionStore) -> str | None:
    """Describe what another process appended or redacted since this session was loaded; None if nothing."""
    conversation = store.conversations.get(live.id)
    newest = live.newest_seq
    since = store.log.read(live.id, Span(newest + 1, conversation.last_seq)) if conversation.last_seq > newest else []
    messages = [entry.message for entry in since if entry.message.kind in _SPOKEN_KINDS]
    is_scrubbed = store.conversation_state(live.id).get(SCRUB_COUNT) != live.scrub_count
    if not messages and conversation.tip_session_id == live.id and not is_scrubbed:
        return None
    what = ["secrets were redacted"] if is_scrubbed else []
    what += _additions(messages, conversation, live, store)
    line = f"This conversation went on elsewhere: {', and '.join(what)}. It goes on from there."
    return "\n".join((line, *_preview_lines(messages)))


def _additions(
    messages: Sequence[Message], conversation: Conversation, live: LiveSession, store: SessionStore
) -> list[str]:
    what = []
    if messages:
        what.append(f"{len(messages)} message{'s were' if len(messages) > 1 else ' was'} added")
    if conversation.tip_session_id != live.id:
        is_undone = store.conversations.session(conversation.tip_session_id).began_by == "undo"
        what.append("a compaction was taken back" if is_undone else "it was compacted")
    return what


def _preview_lines(messages: Sequence[Message]) -> list[str]:
    recent = [m for m in messages if m.kind != "tool" and m.text.strip()][-_PREVIEW_MESSAGES:]
    return [f"  {'you' if m.role == 'user' else 'it '}: {_short(m.text)}" for m in recent]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _PREVIEW_CHARS else f"{line[:_PREVIEW_CHARS]}…"


class LiveSession:
    """The newest session of a conversation, in memory.

    Messages are stored before they enter view, counter or projection.
    """

    def __init__(self, deps: AgentDeps, history: SessionHistory) -> None:
        self._deps = deps
        self.lease: Lease | None = None
        # The text of a reply whose call was cut off, until it is stored at the end of the turn or another one follows.
        self.cut_reply: Message | None = None
        # The topic of a compaction that the model asked for, "" without one; None: it asked for none.
        self._requested_topic: str | None = None
        # It is given what is sent, so all the reasoning it sees counts.
        self.counter = TokenCounter(
            model=deps.routes.endpoint.model, sends_reasoning=True, calibration=deps.calibration
        )
        # The window of the current model; None until it is known.
        self.window: ContextWindow | None = None
        # Calls and events that the next write stores with it.
        self._pending: deque[CallRecord | StoredEvent] = deque()
        # Writes that may have been stored, each with the calls and events in it.
        self._unknown: list[tuple[CommitUnknown, list[CallRecord | StoredEvent]]] = []
        # Whether a write failed, so that the log may hold more than the entries here.
        self._is_stale = False
        self._system_message: str | None = None
        # What the sender of the current message asks of its turn.
        self.options: TurnOptions = NO_OPTIONS
        self.tools: tuple[Mapping[str, Any], ...] = ()
        # Not always the last entry's seq: a handoff precedes messages older than itself.
        self.newest_seq = 0
        self._forms: SentForms
        self._enter(history.session, history.entries)

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self.session.id

    @property
    def conversation_id(self) -> str:
        return self.session.conversation_id

    @property
    def routes(self) -> RouteCursor:
        """The cursor over the endpoints this conversation may use."""
        return self._deps.routes

    @property
    def system_blocks(self) -> tuple[str, ...]:
        """The blocks of the system prompt: the cached prompt, a note after a compaction, the answer format if any."""
        override, answer = self._system_message, self.options.answer_format
        form = answer.instructions if answer is not None else ""
        blocks = (self.session.system_prompt if override is None else override, self._note, form)
        return tuple(b for b in blocks if b)

    @property
    def usage(self) -> ContextUsage:
        """The current context usage, by the counter and window that compaction is decided by."""
        model, tokens, window = self.routes.endpoint.model, self.counter.estimate, self.window
        composition = self.composition.as_dict(tokens)
        if window is None:
            return ContextUsage(model, tokens, composition=composition)
        is_assumed = window.source == "default"
        return ContextUsage(model, tokens, window.tokens, self.threshold_tokens, composition, is_assumed=is_assumed)

    @property
    def is_auto_compacted(self) -> bool:
        """Whether the settings allow automatic compaction; `/compress` works without it."""
        return self._deps.settings.compression.enabled

    @property
    def threshold_tokens(self) -> int | None:
        """The prompt size from which it is compacted: after an undone compaction, where no room is left to answer."""
        if self.window is None:
            return None
        return self.window.budgets.largest_prompt_tokens if self.was_undone else self.window.threshold_tokens

    @property
    def view(self) -> list[Entry]:
        """The history as the model sees it: spilled results as previews, and only the reasoning that is sent back."""
        return self._forms.apply(self.entries)

    # -- what happens to it ------------------------------------------------------------------------------------------

    def append(self, *messages: Message, recalled: str = "", events: Sequence[StoredEvent] = ()) -> tuple[Entry, ...]:
        """Append messages to the log, counter and projection; `recalled` is attached to the last one.

        Pending calls and events are stored in the same transaction.
        """
        self.reconcile()
        with self._take_pending() as pending:
            calls = [record for record in pending if isinstance(record, CallRecord)]
            earlier = [record for record in pending if isinstance(record, StoredEvent)]
            added = self._deps.store.append(
                self.id, list(messages), lease=self.lease, events=[*earlier, *events], calls=calls
            ).entries
        if recalled:
            self._attach(added[-1].seq, recalled)
        self._extend(added)
        return added

    def _extend(self, added: Sequence[Entry]) -> None:
        """Add entries that are stored in the log to history, projection, counter and engine."""
        open_loop = self.entries[loop_start(self.entries) :]
        before = self._forms.apply(open_loop)
        self.entries.extend(added)
        self._entries_with_images.extend(filter(count_images, added))
        self.newest_seq = max(self.newest_seq, added[-1].seq) if added else self.newest_seq
        forms = self._forms.apply([*open_loop, *added])
        self._replace(before, forms[: len(before)])
        sent = forms[len(before) :]
        self.projection.extend(sent)
        self.counter.extend(sent)
        self._deps.engine.observe(added)
        self.composition.extend(sent)

    def reconcile(self) -> None:
        """Read back what a failed write may have stored after all, and what other writers added since.

        Raises StoreError.
        """
        while self._unknown:
            error, records = self._unknown[-1]
            if not error.was_stored():
                self._pending.extendleft(reversed(records))
            self._unknown.pop()
        if not self._is_stale:
            return
        store = self._deps.store
        conversation = store.conversations.get(self.id)
        if conversation.tip_session_id != self.id:
            previous_id, history = self.id, store.history(conversation.tip_session_id)
            self.move_to(history.session, history.entries)
            self._deps.engine.on_session_start(history.session.id, reason="compression", previous=previous_id)
        elif conversation.last_seq > self.newest_seq:
            self._extend([e for e in store.history(self.id).entries if e.seq > self.newest_seq])
        self._is_stale = False

    def record(self, *records: CallRecord | StoredEvent) -> None:
        """Queue calls and events to be stored with the next write; thread-safe, never blocks."""
        now = self._deps.clock.now_ms()
        for record in records:
            if isinstance(record, StoredEvent):
                self._pending.append(replace(record, created_at_ms=record.created_at_ms or now))
            else:
                started, ended = record.started_at_ms or now, record.ended_at_ms or now
                self._pending.append(replace(record, started_at_ms=started, ended_at_ms=ended))

    @property
    def has_pending(self) -> bool:
        """Whether queued calls or events still have to be stored."""
        return bool(self._pending)

    def flush(self) -> None:
        """Store queued calls and events now. A store error is logged, not raised: it must not end a turn."""
        try:
            self.reconcile()
            with self._take_pending() as pending:
                self._deps.store.ledger.record(pending)
        except StoreError as error:
            _log.warning("%d notes were not stored: %s", len(self._pending), error)

    @contextmanager
    def _take_pending(self) -> Iterator[list[CallRecord | StoredEvent]]:
        """Yield the queued records to be stored in the `with` block; if the block fails, they are queued again."""
        pending = [self._pending.popleft() for _ in range(len(self._pending))]
        try:
            with self.checked_write(pending):
                yield pending
        except CommitUnknown:
            raise
        except BaseException:
            self._pending.extendleft(reversed(pending))
            raise

    @contextmanager
    def checked_write(self, records: Sequence[CallRecord | StoredEvent] = ()) -> Iterator[None]:
        """Mark the session stale if the write in this `with` block fails, so that `reconcile` reads the log first."""
        try:
            yield
        except StoreError as error:
            self._is_stale = True
            if isinstance(error, CommitUnknown):
                self._unknown.append((error, list(records)))
            raise

    def spill(self, texts: Mapping[int, str]) -> None:
        """Replace tool results in the view by previews, keyed by seq; the log keeps them whole."""
        before = self.view
        self._forms.spilled.add(texts)
        self._replace(before, self.view)

    def shorten_reasoning(self) -> bool:
        """Shorten the reasoning that is sent back; return whether the view changed."""
        before = self.view
        self._forms.shorten_reasoning(self.newest_seq)
        return self._replace(before, self.view)

    def limit_images(self, most: int) -> None:
        """Send at most this many images, the newest ones; the log keeps all."""
        left_out = surplus_images(self._entries_with_images, most)
        if left_out != self._forms.left_out_images:
            before = self.view
            self._forms.left_out_images = left_out
            self._replace(before, self.view)

    @property
    def newest_image_count(self) -> int:
        """The number of images in the newest message of the current turn that has any; 0 if none has."""
        for entry in reversed(self.entries):
            if (count := count_images(entry)) or entry.message.is_request:
                return count
        return 0

    def undescribed_images(self) -> list[ImagePart]:
        """Return the images of the view that are still sent as images, each URL once."""
        images = {image.url: image for entry in self._entries_with_images for image in images_of(entry.message)}
        return [image for image in images.values() if not self._forms.has_description(image)]

    def describe_images(self, texts: Mapping[str, str]) -> None:
        """Send descriptions instead of images from now on, by image URL; the log keeps the images."""
        before = self.view
        self._forms.describe_images(texts)
        self._replace(before, self.view)

    def _replace(self, before: Sequence[Entry], after: Sequence[Entry]) -> bool:
        """Replace messages in projection, counter and composition where the form they are sent in differs.

        Returns whether any did.
        """
        changed = [(old, new) for old, new in zip(before, after, strict=True) if old is not new]
        if changed:
            sizes = sum_figures(entry_figures(new) for _, new in changed)
            self.counter.add(sizes - sum_figures(entry_figures(old) for old, _ in changed))
            self.projection.replace(changed)
            self.composition.replace(changed)
        return bool(changed)

    def request_compaction(self, focus_topic: str | None) -> None:
        """Ask for a compaction before the next request, on behalf of the model.

        Raises ToolError if the user turned it off.
        """
        if not self._deps.settings.compression.enabled:
            raise ToolError("the user has turned compaction off (compression.enabled); only their /compress works")
        self._requested_topic = focus_topic or ""

    def take_compaction_request(self) -> str | None:
        """Return and clear the topic of a compaction the model requested ("" for no topic).

        None if it requested none.
        """
        topic, self._requested_topic = self._requested_topic, None
        return topic

    def follow_model(self) -> None:
        """Rebuild counter, reasoning and tools for the model now in use; its window is unknown until resolved."""
        endpoint, self.window = self._deps.routes.endpoint, None
        self.counter.switch_model(endpoint.model, calibration=self._deps.calibration)
        self._forms = SentForms(self._forms.spilled, ReasoningRule.of(endpoint))
        self._rebuild_view()

    def offer_tools(self) -> None:
        """Set the tool schemas of the next request, the client's tools last; none for a model that takes no tools."""
        can_call = self._deps.models.takes_tools(self._deps.routes.endpoint)
        theirs = self.options.tool_names
        own = [t for t in self._deps.tools.offer() if t["function"]["name"] not in theirs]
        self.tools = (*own, *self.options.tools) if can_call else ()
        self.counter.set_fixed(system=self.system_blocks, tools=self.tools)
        self.composition.set_fixed(system=self.system_blocks, tools=self.tools)

    def override_system_prompt(self, system_message: str | None) -> None:
        """Use another system prompt for this turn; None restores the session's own."""
        if system_message != self._system_message:
            self._system_message = system_message
            self.offer_tools()

    def begin_turn(self, options: TurnOptions) -> None:
        """Apply the options of the turn that starts, and drop those of the one before."""
        if options != self.options:
            self.options = options
            self.offer_tools()

    @property
    def max_tokens(self) -> int | None:
        """The output limit of the turn: the smaller one of the client's and the configured one; None without either."""
        limits = [n for n in (self._deps.settings.model.max_tokens, self.options.max_tokens) if n is not None]
        return min(limits, default=None)

    def adopt_window(self, window: ContextWindow) -> None:
        """Set the window, and shorten the kept beginning of the history (the head) to its share of it."""
        before, self.window = self._visible_entries(), window
        if any(then.message is not now.message for then, now in zip(before, self._visible_entries(), strict=True)):
            self._rebuild_view()
            self.restore_count()

    def restore_count(self) -> None:
        """Count from the prompt that the newest call of this session reported, as the process did that made it.

        Where there was none since a compaction, count what is in view as that process did.
        """
        call = last_reported_call(self._deps.store, self.id, self.routes.endpoint)
        if call is None:
            changed = self._deps.store.ledger.context_usage(self.id)
            if changed is not None and changed.is_changed and changed.model == self.routes.endpoint.model:
                self.counter.match(changed.tokens)
            return
        entries = [e for e in self.entries if e.created_at_ms <= call.started_at_ms]
        while entries and entries[-1].message.role == "assistant":  # a reply in the same millisecond
            entries.pop()
        view = self._forms.apply(entries)
        sent = shorten_view(view, self.window)
        if call.window_tokens and (self.window is None or self.window.tokens != call.window_tokens):
            then = context_window(self._deps.settings, self.routes.endpoint, Window(call.window_tokens, "learned"))
            if [e.message for e in shorten_view(view, then)] != [e.message for e in sent]:
                return  # the head was sent in another length
        recalled = [self._sidecars.by_seq[e.seq] for e in sent if e.seq in self._sidecars.by_seq]
        composition = Composition(sent, recalled)
        composition.set_fixed(system=self.system_blocks, tools=self.tools)
        if is_same_prompt(call, composition):
            figures = sum_figures([*map(entry_figures, sent), *map(text_figures, recalled)])
            self.counter.restore(figures, call.usage.prompt_tokens)

    @property
    def has_open_calls(self) -> bool:
        """Whether tool calls of the newest reply have no result yet."""
        return bool(self.open_calls())

    def settle(self) -> None:
        """Append a placeholder result for each tool call that a crash or interrupt cut off, and a cut-off reply.

        Calls that wait for the client, and those after them, stay open: they were not cut off.
        """
        self.reconcile()
        if cut_off := list(takewhile(lambda call: not call.is_for_client, self.open_calls())):
            self.append(*(interrupted_result(call) for call in cut_off))
        if (reply := self.take_cut_reply()) is not None:
            try:
                self.append(reply)
            except StoreError as error:  # no reason to end the turn with an error: it is over
                _log.warning("the reply that was cut off was not stored: %s", error)

    def take_cut_reply(self) -> Message | None:
        """Return and clear the partial reply of a call that was cut off; None if there is none."""
        reply, self.cut_reply = self.cut_reply, None
        return reply

    @property
    def client_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls that the client has to answer with its next request."""
        return tuple(call for call in self.open_calls() if call.is_for_client)

    def open_calls(self) -> list[ToolCall]:
        """Return the calls of the newest reply that have no result yet, in their order."""
        calls: list[ToolCall] = []
        result_ids = []
        for entry in reversed(self.entries):
            if entry.message.role == "tool":
                result_ids.append(entry.message.tool_call_id)
            else:
                calls = list(entry.message.tool_calls)
                break
        answered_ids = {id(find_call(calls, result_id)) for result_id in result_ids}
        return [c for c in calls if id(c) not in answered_ids]

    def move_to(self, session: Session, entries: Sequence[Entry]) -> None:
        """Continue in another session of the same conversation, such as the one a compaction made."""
        self._enter(session, entries, self.session.id)

    def _attach(self, seq: int, passage: str) -> None:
        self._sidecars.add(seq, passage)
        self.projection.attach(seq, passage)
        self.counter.add(text_figures(passage))
        self.composition.recall(passage)

    def _enter(self, session: Session, entries: Sequence[Entry], previous_id: str | None = None) -> None:
        self.session = session
        switch = SessionSwitch(session.id, session.conversation_id, previous_id, session.began_by)
        inform(self._deps.recall, switch, timeout_s=self._deps.settings.recall.timeout_s)
        if isinstance(self._deps.memory, GuardedMemory):
            self._deps.memory.inform(switch)
        # Whether the user undid the last compaction, so that the next one waits until the window is full.
        self.was_undone = self._deps.store.conversations.is_undone(session)
        self.entries = list(entries)
        # So that a turn without images costs nothing by the length of the history.
        self._entries_with_images = list(filter(count_images, self.entries))
        self.newest_seq = max((e.seq for e in self.entries), default=0)
        state = self._deps.store.conversation_state(session.id)
        self.scrub_count: int | None = state.get(SCRUB_COUNT)
        self._sidecars = Sidecars(state, session.id)
        self._forms = SentForms(SpilledResults(state), ReasoningRule.of(self._deps.routes.endpoint))
        has_handoff = any(e.message.kind == "handoff" for e in self.entries)
        folder = self._deps.prompts_folder
        self._note = prompts.load("compaction_note", folder).strip() if has_handoff else ""
        self._deps.engine.observe(self.entries)
        self._rebuild_view()

    def _rebuild_view(self) -> None:
        """Rebuild projection, counter and composition from the view."""
        visible = self._visible_entries()
        self.projection = Projection(visible, sidecars=self._sidecars.by_seq)
        self.counter.rebase(visible)
        self.composition = Composition(visible, self._sidecars.by_seq.values())
        for passage in self._sidecars.by_seq.values():
            self.counter.add(text_figures(passage))
        self.offer_tools()

    def _visible_entries(self) -> list[Entry]:
        return shorten_view(self.view, self.window)


_LARGEST = 5


class LiveContexts:
    """Gives the context tools access to the open sessions of an agent and its children (the ContextControl port)."""

    def __init__(self) -> None:
        self._sessions: WeakValueDictionary[str, LiveSession] = WeakValueDictionary()

    def add(self, live: LiveSession) -> None:
        self._sessions[live.conversation_id] = live

    def read(self, conversation_id: str) -> ContextReading:
        live = self._get(conversation_id)
        usage = live.usage
        largest = sorted(live.view, key=tokens_of, reverse=True)[:_LARGEST]
        # In the same measure as the parts, which add up to the counter's total.
        scale = usage.tokens / max(1, sum(live.composition.as_dict().values()))
        rows = [(f"m:{e.seq}", e.message.name or e.message.kind, round(scale * tokens_of(e))) for e in largest]
        threshold = usage.threshold if live.is_auto_compacted else None
        return ContextReading(usage.tokens, usage.window, threshold, usage.composition, rows)

    def request_compaction(self, conversation_id: str, focus_topic: str | None) -> None:
        self._get(conversation_id).request_compaction(focus_topic)

    def _get(self, conversation_id: str) -> LiveSession:
        live = self._sessions.get(conversation_id)
        if live is None:
            raise ToolError("the context of this conversation cannot be read here")
        return live


class EventRecorder:
    """Emits events, and queues notices and model switches to be stored with the next write of the session."""

    def __init__(self, emit: Callable[[Event], None], live: LiveSession) -> None:
        self._emit = emit
        self._live = live

    def __call__(self, event: Event) -> None:
        # Most events are text deltas, which are stored as the message they form.
        payload = _event_payload(event) if type(event) is not TextDelta else None
        if payload is not None:
            self._live.record(StoredEvent(self._live.id, *payload))
            if not _is_on_event_loop():  # between turns: no write may follow
                self._live.flush()
        self._emit(event)


def _is_on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _event_payload(event: Event) -> tuple[str, Mapping[str, Any]] | None:
    if isinstance(event, ModelSwitched):
        return "model_switch", {"old": event.old, "new": event.new, "reason": event.reason}
    if isinstance(event, Notice):
        return "notice", {"text": event.text, "level": event.level}
    return None
