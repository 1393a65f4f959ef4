"""Chains of sessions, on every database: compaction, tip, undo, branches, delegates, and ids that always resolve."""

from __future__ import annotations

import pytest

from perdure.core.errors import NotFound, StoreError
from perdure.core.messages import user
from perdure.core.usage import CanonicalUsage
from perdure.core.visibility import User
from perdure.store import NewHandoff, RouteRecord, SessionStore, Span
from perdure.store.conversations import CONTINUED
from support.store import FakeClock, compacted, conversation, exchange, handoff


def texts(store: SessionStore, any_id: str) -> list[str]:
    return [m.text for m in store.history(any_id).messages]


def seqs(store: SessionStore, any_id: str) -> list[int]:
    return [e.seq for e in store.history(any_id).entries]


@pytest.mark.spec("I2", "I3")
def test_a_compaction_ends_the_parent_and_continues_in_a_child(store: SessionStore, clock: FakeClock) -> None:
    parent = conversation(store)
    clock.pass_ms(10)
    child = store.compact(parent, (Span(1, 2), handoff(), Span(17, 20)))
    old = store.conversations.session(parent)
    assert (old.end_reason, old.last_seq) == ("compression", 20)
    assert child.parent_id == parent
    assert old.ended_at_ms is not None
    assert child.started_at_ms >= old.ended_at_ms
    assert seqs(store, child.id) == [1, 2, 21, 17, 18, 19, 20]
    store.append(child.id, user("and on"))
    assert seqs(store, child.id) == [1, 2, 21, 17, 18, 19, 20, 22]
    assert seqs(store, parent) == list(range(1, 21)), "the old session reads as it always did"


@pytest.mark.spec("I2")
def test_the_system_prompt_stays_byte_identical_unless_a_new_one_is_given(store: SessionStore) -> None:
    parent = store.create(
        system_prompt="prompt\n\n  with spaces é", route=RouteRecord("openai", "gpt", "chat_completions")
    )
    store.append(parent.id, exchange(1))
    continued = store.compact(parent.id, (handoff(), Span(4, 4)))
    assert continued.system_prompt == parent.system_prompt
    assert continued.route == parent.route
    changed = store.compact(parent.id, (Span(5, 5), Span(4, 4)), system_prompt="rebuilt")
    assert store.history(changed.id).session.system_prompt == "rebuilt"


@pytest.mark.spec("E11")
def test_a_handoff_records_its_coverage_model_and_cost(store: SessionStore) -> None:
    session = conversation(store)
    new = NewHandoff(
        handoff().message, model="small", focus="database", cost_usd=0.0125,
        usage=CanonicalUsage(input_tokens=900, output_tokens=70), check={"unsupported": 0},
    )  # fmt: skip
    store.compact(session, (Span(1, 2), new, Span(17, 20)))
    store.append(session, exchange(9))
    store.compact(session, (handoff("second"), Span(22, 25)))
    first, second = sorted(store.log.handoffs(session).values(), key=lambda h: h.seq)
    assert (first.covers, first.model, first.focus, first.cost_usd) == ((Span(3, 16),), "small", "database", 0.0125)
    assert first.usage.input_tokens == 900
    assert first.check == {"unsupported": 0}
    assert second.previous == first.seq
    assert second.covers == (Span(1, 2), Span(21, 21), Span(17, 20))


@pytest.mark.spec("I4")
def test_every_id_of_a_chain_resolves_to_its_tip_and_conversation(store: SessionStore) -> None:
    ids = [conversation(store)]
    for n in range(4):
        store.append(ids[-1], exchange(n))
        ids.append(compacted(store, ids[0]))
    ids.append(store.undo(ids[2]).id)
    owner = store.conversations.get(ids[0])
    for any_id in (*ids, owner.id, owner.id[:-2], ids[3][2:-1]):
        assert store.get_compression_tip(any_id) == ids[-1]
        assert store.conversations.get(any_id).id == owner.id
        assert store.conversations.get(any_id).title == "A talk"


@pytest.mark.spec("I3")
def test_the_tip_is_what_following_continuations_finds(store: SessionStore, clock: FakeClock) -> None:
    first = conversation(store)
    for n in range(3):
        clock.pass_ms(5)
        store.append(first, exchange(n))
        compacted(store, first)
    clock.pass_ms(5)
    store.undo(first)
    store.conversations.branch(first)
    store.conversations.delegate(first)
    everyone = [s for c in store.conversations.list(limit=99).conversations for s in store.conversations.sessions(c.id)]
    at = store.conversations.session(first)
    while True:
        after = [
            s for s in everyone
            if s.parent_id == at.id and at.end_reason in CONTINUED and s.began_by in CONTINUED
            and at.ended_at_ms is not None and s.started_at_ms >= at.ended_at_ms
        ]  # fmt: skip
        if not after:
            break
        (at,) = after
    assert at.id == store.get_compression_tip(first)


def test_messages_appended_while_a_plan_was_prepared_follow_it(store: SessionStore) -> None:
    session = conversation(store)
    store.append(session, [user("meanwhile")])
    child = store.compact(session, (Span(1, 2), handoff(), Span(17, 20)), up_to_seq=20)
    assert texts(store, child.id)[-1] == "meanwhile"
    assert store.log.handoffs(session)[22].covers == (Span(3, 16),)


@pytest.mark.parametrize(
    "plan",
    [
        (Span(1, 99), handoff()),
        (Span(5, 6), handoff(), Span(1, 2)),
        (Span(1, 3), handoff(), Span(3, 5)),
        (Span(1, 2), NewHandoff(handoff().message, covers=(Span(50, 60),))),
    ],
    ids=["beyond the log", "out of order", "twice", "covers what is not there"],
)
def test_a_plan_that_does_not_fit_the_view_changes_nothing(store: SessionStore, plan: tuple[Span | NewHandoff]) -> None:
    session = conversation(store)
    before = store.conversations.get(session)
    with pytest.raises(StoreError):
        store.compact(session, plan)
    assert store.conversations.get(session) == before
    assert store.conversations.session(session).end_reason is None
    assert store.log.handoffs(session) == {}


@pytest.mark.spec("I3", "I5")
def test_undo_restores_the_view_followed_by_later_messages(store: SessionStore) -> None:
    session = conversation(store)
    before = seqs(store, session)
    compacted(store, session)
    later = store.append(session, exchange(8)).entries
    undone = store.undo(session)
    assert seqs(store, undone.id) == before + [e.seq for e in later]
    assert undone.began_by == "undo"
    assert store.conversations.session(str(undone.parent_id)).end_reason == "undo"
    assert store.get_compression_tip(session) == undone.id
    with pytest.raises(StoreError, match="nothing to undo"):
        store.undo(session)


@pytest.mark.spec("D8", "I2", "I5")
def test_a_compaction_without_handoff_can_be_undone(store: SessionStore) -> None:
    session = conversation(store)
    compacted(store, session)
    before = seqs(store, store.get_compression_tip(session))
    child = store.compact(session, (Span(19, 20),))
    assert seqs(store, child.id) == [19, 20]
    later = store.append(session, exchange(8)).entries
    undone = store.undo(session)
    assert seqs(store, undone.id) == before + [e.seq for e in later]


def test_undo_of_the_second_compaction_keeps_the_first(store: SessionStore) -> None:
    session = conversation(store)
    first = compacted(store, session)
    store.append(session, exchange(8))
    between = seqs(store, first)
    compacted(store, session, head=0)
    store.undo(session)
    assert seqs(store, store.get_compression_tip(session)) == between
    store.undo(session)
    assert [e.message for e in store.history(store.get_compression_tip(session)).entries] == [
        e.message for e in store.log.originals(session)
    ]


def test_undo_restores_the_position_of_a_request_kept_from_the_middle(store: SessionStore) -> None:
    session = conversation(store)
    child = store.compact(session, (Span(1, 2), handoff(), Span(5, 5), Span(17, 20)))
    assert seqs(store, child.id) == [1, 2, 21, 5, 17, 18, 19, 20]
    store.undo(session)
    assert seqs(store, store.get_compression_tip(session)) == list(range(1, 21))


@pytest.mark.spec("I5")
def test_a_handoff_expands_to_the_messages_it_covers(store: SessionStore) -> None:
    session = conversation(store)
    for n in range(3):
        store.append(session, exchange(20 + n))
        compacted(store, session, head=1, tail=2)
    tip = store.get_compression_tip(session)
    assert [e.seq for e in store.log.expand(tip)] == [e.seq for e in store.log.originals(session)]
    newest = max(store.log.handoffs(session))
    entries = store.addresses.entries(f"h:{newest}", session)
    assert [e.seq for e in entries if e.message.kind == "handoff"] == sorted(store.log.handoffs(session))[-2:-1]


@pytest.mark.spec("I3")
def test_a_branch_shares_the_log_and_diverges(store: SessionStore) -> None:
    session = conversation(store)
    branch = store.conversations.branch(session, at_seq=8)
    store.append(branch.id, user("another way"))
    store.append(session, user("the main way"))
    assert texts(store, branch.id)[-2:] == ["answer 1", "another way"]
    assert texts(store, session)[-1] == "the main way"
    assert store.get_compression_tip(session) == session
    assert store.conversations.get(branch.id).kind == "branch"
    assert store.conversations.get(branch.id).parent_id == store.conversations.get(session).id
    assert "m:9" in store.open("m:9", conversation_id=branch.id).text
    assert "another way" in store.open("m:9", conversation_id=branch.id).text
    assert "question 2" in store.open("m:9", conversation_id=session).text


def test_a_branch_of_a_compacted_conversation_can_undo_and_branch_again(store: SessionStore) -> None:
    session = conversation(store)
    compacted(store, session)
    branch = store.conversations.branch(session)
    store.append(branch.id, user("in the branch"))
    twig = store.conversations.branch(branch.id, at_seq=6)
    store.append(twig.id, user("in the twig"))
    store.undo(branch.id)
    assert seqs(store, store.get_compression_tip(branch.id)) == [*range(1, 21), 22]
    assert seqs(store, twig.id) == [*range(1, 7), 7]
    assert texts(store, twig.id)[-1] == "in the twig"


def test_branching_in_the_middle_of_an_old_session_shows_that_session(store: SessionStore) -> None:
    session = conversation(store)
    compacted(store, session)
    store.append(session, exchange(9))
    assert seqs(store, store.conversations.branch(session, at_seq=18).id) == list(range(1, 19))
    with pytest.raises(NotFound, match="m:999"):
        store.conversations.branch(session, at_seq=999)


@pytest.mark.spec("I3")
def test_a_delegate_has_its_own_log(store: SessionStore) -> None:
    session = store.create(user_key="ann", chat_key="room", source="gateway")
    store.append(session.id, user("go"))
    child = store.conversations.delegate(session.id, system_prompt="be brief")
    store.append(child.id, user("the task"))
    owner = store.conversations.get(child.id)
    assert (owner.kind, owner.user, owner.chat_key, owner.source) == ("delegate", User("ann"), "room", "gateway")
    assert seqs(store, child.id) == [1]
    assert store.get_compression_tip(session.id) == session.id
    assert owner.id not in [c.id for c in store.conversations.list().conversations]
    assert [c.id for c in store.conversations.list(parent_id=owner.parent_id).conversations] == [owner.id]


def test_an_append_reopens_a_closed_tip(store: SessionStore) -> None:
    session = conversation(store)
    store.conversations.end(session, "left")
    assert store.conversations.session(session).end_reason == "left"
    store.append(session, user("back"))
    assert store.conversations.session(session).ended_at_ms is None
    with pytest.raises(StoreError, match="compression"):
        store.conversations.end(session, "compression")


@pytest.mark.spec("I4")
def test_lists_are_paged_newest_first_and_filtered(store: SessionStore, clock: FakeClock) -> None:
    created = []
    for n in range(7):
        clock.pass_ms(1000)
        created.append(
            store.create(title=f"talk {n}", user_key="ann" if n % 2 else "bob", source="cli").conversation_id
        )
    clock.pass_ms(1000)
    store.append(created[0], user("again"))
    listed: list[str] = []
    cursor = None
    while True:
        page = store.conversations.list(cursor=cursor, limit=3)
        listed += [c.id for c in page.conversations]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert listed == [created[0], *reversed(created[1:])]
    of_ann = store.conversations.list(visibility=User("ann")).conversations
    assert [c.title for c in of_ann] == ["talk 5", "talk 3", "talk 1"]
    with pytest.raises(StoreError, match="cursor"):
        store.conversations.list(cursor="nonsense")


def test_titles_and_todos_are_stored(store: SessionStore) -> None:
    session = conversation(store)
    store.conversations.set_title(session, "New \0 name \ud800 ✓")
    store.conversations.set_todo(session, '[{"do": "tests"}]')
    again = store.conversations.get(session)
    assert again.title == "New  name \ufffd ✓"
    assert again.todo == '[{"do": "tests"}]'


def test_an_ambiguous_prefix_lists_the_matches(store: SessionStore) -> None:
    store.create()
    store.create()
    with pytest.raises(NotFound, match="several"):
        store.conversations.get("c_")
    for nonsense in ("", "   ", "%", "_", "'; DROP TABLE message; --", "\0", "c_~"):
        with pytest.raises(NotFound):
            store.conversations.get(nonsense)
