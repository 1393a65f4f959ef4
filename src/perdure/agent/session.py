"""A conversation while it is being talked in: its place in the log, its view, its counter, always in step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure import prompts
from perdure.agent.composition import Composition
from perdure.agent.parts import Parts
from perdure.agent.request import Projection
from perdure.agent.sidecars import Sidecars
from perdure.agent.unread import SpilledResults
from perdure.context.projection import shorten_head
from perdure.core.messages import Entry, Message
from perdure.models.counter import TokenCounter
from perdure.models.sizes import entry_figures, sum_figures, text_figures
from perdure.providers.routes import RouteCursor
from perdure.store.records import History, Lease, Session, StoredEvent
from perdure.tools.runtime import INTERRUPTED


class LiveSession:
    """The tip of one conversation. Everything appended is on disk before anything else sees it."""

    def __init__(self, parts: Parts, history: History) -> None:
        self._parts = parts
        self.lease: Lease | None = None
        self.counter = TokenCounter(model=parts.routes.endpoint.model, calibration=parts.calibration)
        # Where the window counts as full; None until it is known.
        self.threshold_tokens: int | None = None
        self._system_message: str | None = None
        self.tools: tuple[Mapping[str, Any], ...] = ()
        # What stands before a handoff may come to this; None until the window is known.
        self._head_tokens: int | None = None
        # Not always the last entry's: a handoff stands before messages older than itself.
        self.newest_seq = 0
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
        """Where this conversation's calls go."""
        return self._parts.routes

    @property
    def system_blocks(self) -> tuple[str, ...]:
        """The cached prompt, and behind it the note that turns were compacted, once they were."""
        given = self._system_message
        blocks = (self.session.system_prompt if given is None else given, self._note)
        return tuple(b for b in blocks if b)

    @property
    def was_undone(self) -> bool:
        """The person took a compaction back: the next one waits until there is no other way."""
        return self.session.began_by == "undo"

    @property
    def view(self) -> list[Entry]:
        """The history as the model sees it: `entries`, with the results that were spilled from the view as previews."""
        return self._spilled.apply(self.entries)

    # -- what happens to it ------------------------------------------------------------------------------------------

    def append(self, *messages: Message, recalled: str = "", events: Sequence[StoredEvent] = ()) -> tuple[Entry, ...]:
        """Adds messages to the log and to everything that is derived from it; `recalled` goes with the last of them."""
        added = self._parts.store.append(self.id, list(messages), lease=self.lease, events=events).entries
        if recalled:
            self._attach(added[-1].seq, recalled)
        self.entries.extend(added)
        self.newest_seq = max(self.newest_seq, added[-1].seq) if added else self.newest_seq
        self.projection.extend(added)
        self.counter.extend(added)
        self._parts.engine.observe(added)
        self.composition.extend(added)
        return added

    def spill(self, texts: Mapping[int, str]) -> None:
        """Sends other texts in place of results, by seq, from now on; the log keeps the results whole."""
        before = [e for e in self.view if e.seq in texts]
        self._spilled.add(texts)
        after = [e for e in self.view if e.seq in texts]
        self.counter.add(sum_figures(map(entry_figures, after)) - sum_figures(map(entry_figures, before)))
        self._derive(self._shown())

    def offer_tools(self) -> None:
        """Makes ready what goes with every request to the present model; one that cannot call tools is offered none."""
        can_call = self._parts.models.takes_tools(self._parts.routes.endpoint)
        self.tools = tuple(self._parts.tools.registry.schemas()) if can_call else ()
        self.counter.set_fixed(system=self.system_blocks, tools=self.tools)
        self.composition.set_fixed(system=self.system_blocks, tools=self.tools)

    def speak_as(self, system_message: str | None) -> None:
        """A system prompt for the present turn alone; None: the session's own."""
        if system_message != self._system_message:
            self._system_message = system_message
            self.offer_tools()

    def fit_head(self, head_tokens: int) -> None:
        """A window is known: what stands before a handoff is shown within its share of it (D2)."""
        before, self._head_tokens = self._shown(), head_tokens
        if any(then.message is not now.message for then, now in zip(before, self._shown(), strict=True)):
            self._show()

    def settle(self) -> None:
        """Gives every call that a crash or an interrupt cut off its logged result: the outcome is unknown."""
        calls, answered = [], set()
        for entry in reversed(self.entries):
            if entry.message.role == "tool":
                answered.add(entry.message.tool_call_id)
            else:
                calls = list(entry.message.tool_calls)
                break
        cut_off = [c for c in calls if c.ids.isdisjoint(answered)]
        if cut_off:
            self.append(
                *(
                    Message(role="tool", content=INTERRUPTED, tool_call_id=c.id, name=c.name, kind="tool")
                    for c in cut_off
                )
            )

    def move_to(self, session: Session, entries: Sequence[Entry]) -> None:
        """Goes on in a continuation: another view over the same log."""
        self._enter(session, entries)

    def _attach(self, seq: int, passage: str) -> None:
        self._sidecars.add(seq, passage)
        self.projection.attach(seq, passage)
        self.counter.add(text_figures(passage))
        self.composition.recall(passage)

    def _enter(self, session: Session, entries: Sequence[Entry]) -> None:
        self.session = session
        self.entries = list(entries)
        self.newest_seq = max((e.seq for e in self.entries), default=0)
        state = self._parts.store.conversation_state(session.id)
        self._sidecars = Sidecars(state, session.id)
        self._spilled = SpilledResults(state)
        has_handoff = any(e.message.kind == "handoff" for e in self.entries)
        folder = self._parts.prompts_folder
        self._note = prompts.load("compaction_note", folder).strip() if has_handoff else ""
        self._parts.engine.observe(self.entries)
        self._show()

    def _show(self) -> None:
        """Derives everything that follows from the view: what is sent, its size, its parts."""
        shown = self._shown()
        self.counter.rebase(shown)
        for passage in self._sidecars.by_seq.values():
            self.counter.add(text_figures(passage))
        self._derive(shown)
        self.offer_tools()

    def _derive(self, shown: Sequence[Entry]) -> None:
        """What is sent and its parts, for a view whose size is known already."""
        self.projection = Projection(shown, sidecars=self._sidecars.by_seq)
        self.composition = Composition(shown)
        for passage in self._sidecars.by_seq.values():
            self.composition.recall(passage)
        self.composition.set_fixed(system=self.system_blocks, tools=self.tools)

    def _shown(self) -> list[Entry]:
        """The view with a long head shortened, each piece with its address; the log keeps it whole."""
        view = self.view
        if self._head_tokens is None:
            return view
        messages = [e.message for e in view]
        addresses = [f"m:{e.seq}" for e in view]
        shown = shorten_head(messages, head_tokens=self._head_tokens, addresses=addresses)
        return [e if m is e.message else Entry(e.seq, m, e.created_at_ms) for e, m in zip(view, shown, strict=True)]
