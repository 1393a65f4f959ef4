"""Random operations on every database: append, compact, branch, undo, crash, reopen, replay.

After every step the expanded tip equals the original messages byte for byte, replaying them adds nothing, and every id
still resolves to its conversation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from perdure.core.errors import StoreError
from perdure.core.messages import Message, assistant, canonical_json, user
from perdure.store import NewHandoff, SessionStore, Span
from support.store import BACKENDS, Backend, backend_of, handoff

WORDS = st.sampled_from(["yes", "no", "模型", "a\0b", "", "long " * 200, "x"])
SAID = st.lists(st.builds(lambda w, r: user(w) if r else assistant(w), WORDS, st.booleans()), min_size=1, max_size=6)


@dataclass
class ConversationModel:
    """Expected state of one conversation: its messages by seq and all its ids."""

    messages: dict[int, Message]
    ids: list[str] = field(default_factory=list)


class StoreMachine(RuleBasedStateMachine):
    backend: Backend
    count = 0

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__()
        StoreMachine.count += 1
        self.backend = backend_of(name, folder / str(StoreMachine.count))
        self.store: SessionStore = self.backend.open()
        self.models: dict[str, ConversationModel] = {}

    def teardown(self) -> None:
        for conversation_id, model in self.models.items():
            bodies = list(model.messages.values())
            assert self.store.log.ingest(conversation_id, bodies).added == 0
            assert [canonical_json(m) for m in self.store.transfer.export_messages(conversation_id)] == [
                canonical_json(m.to_dict()) for m in bodies
            ]
        self.backend.close()

    def pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.models)), label="conversation")

    def any_id(self, data: st.DataObject, conversation_id: str) -> str:
        return data.draw(st.sampled_from([conversation_id, *self.models[conversation_id].ids]), label="id")

    @initialize()
    def begin(self) -> None:
        self.create()

    @rule()
    def create(self) -> None:
        session = self.store.create()
        self.models[session.conversation_id] = ConversationModel({}, [session.id])

    @rule(data=st.data(), messages=SAID)
    def append(self, data: st.DataObject, messages: list[Message]) -> None:
        conversation_id = self.pick(data)
        appended = self.store.append(self.any_id(data, conversation_id), messages)
        self.models[conversation_id].messages.update((e.seq, e.message) for e in appended.entries)

    @rule(data=st.data(), messages=SAID)
    def replay(self, data: st.DataObject, messages: list[Message]) -> None:
        conversation_id = self.pick(data)
        model = self.models[conversation_id]
        appended = self.store.log.ingest(self.any_id(data, conversation_id), [*model.messages.values(), *messages])
        assert appended.added == len(messages)
        model.messages.update((e.seq, e.message) for e in appended.entries[-len(messages) :])

    @rule(data=st.data(), has_crashed=st.booleans())
    def compact(self, data: st.DataObject, has_crashed: bool) -> None:
        conversation_id = self.pick(data)
        seqs = [e.seq for e in self.store.history(conversation_id).entries]
        keep = data.draw(st.sets(st.sampled_from(seqs)) if seqs else st.just(set()), label="keep")
        at = data.draw(st.integers(0, len(keep)), label="handoff at")
        spans = [Span(s, s) for s in seqs if s in keep]
        plan: list[Span | NewHandoff] = [*spans[:at], handoff(), *spans[at:]]
        if has_crashed:
            # Fails after the first handoff was written: nothing of it may stay.
            broken = NewHandoff(handoff().message, covers=(Span(10**6, 10**6),))
            with pytest.raises(StoreError):
                self.store.compact(conversation_id, (*plan, broken))
            return
        self.models[conversation_id].ids.append(self.store.compact(self.any_id(data, conversation_id), tuple(plan)).id)

    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        conversation_id = self.pick(data)
        has_handoff = any(e.message.kind == "handoff" for e in self.store.history(conversation_id).entries)
        if has_handoff:
            self.models[conversation_id].ids.append(self.store.undo(self.any_id(data, conversation_id)).id)
        else:
            with pytest.raises(StoreError, match="nothing to undo"):
                self.store.undo(conversation_id)

    @rule(data=st.data())
    def branch(self, data: st.DataObject) -> None:
        conversation_id = self.pick(data)
        last = self.store.conversations.get(conversation_id).last_seq
        at = data.draw(st.none() | st.integers(1, last) if last else st.none(), label="at")
        session = self.store.conversations.branch(self.any_id(data, conversation_id), at_seq=at)
        messages = {s: m for s, m in self.models[conversation_id].messages.items() if at is None or s <= at}
        self.models[session.conversation_id] = ConversationModel(messages, [session.id])

    @rule()
    def reopen(self) -> None:
        self.store = self.backend.open()

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        conversation_id = self.pick(data)
        if len(self.models) > 2:
            self.store.delete(conversation_id)
            del self.models[conversation_id]

    @invariant()
    def expansion_is_what_was_said(self) -> None:
        for conversation_id, model in self.models.items():
            expanded = self.store.log.expand(self.store.get_compression_tip(conversation_id))
            assert [(e.seq, canonical_json(e.message.to_dict())) for e in expanded] == [
                (seq, canonical_json(m.to_dict())) for seq, m in model.messages.items()
            ]

    @invariant()
    def every_id_leads_home(self) -> None:
        for conversation_id, model in self.models.items():
            for ident in model.ids:
                assert self.store.conversations.get(ident).id == conversation_id
                assert self.store.get_compression_tip(ident) == model.ids[-1]


# A statement to a server costs ten times what one to a file does.
LIVES = {"sqlite": 30, "postgresql": 5}


def live(name: str, folder: Path, *, lives: int, steps: int) -> None:
    run_state_machine_as_test(
        lambda: StoreMachine(name, folder), settings=settings(max_examples=lives, stateful_step_count=steps)
    )


@pytest.mark.spec("I1", "I2", "I3", "I4", "I5")
@pytest.mark.parametrize("name", BACKENDS)
def test_random_operations(name: str, tmp_path: Path) -> None:
    live(name, tmp_path, lives=LIVES[name], steps=25)


@pytest.mark.soak
@pytest.mark.parametrize("name", BACKENDS)
def test_many_random_operations(name: str, tmp_path: Path) -> None:
    live(name, tmp_path, lives=20 * LIVES[name], steps=60)
