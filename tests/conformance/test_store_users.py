"""Visibility on every database: other users' conversations look like unknown ids."""

from __future__ import annotations

import pytest

from perdure.core.errors import NotFound
from perdure.core.messages import user
from perdure.core.visibility import User
from perdure.store import CallRecord, SessionStore

ANNA, BORIS = "telegram:anna", "telegram:boris' OR 1=1 --"


def talk(store: SessionStore, user_key: str, text: str) -> str:
    session = store.create(user_key=user_key, title=f"{user_key}'s talk", source="telegram")
    store.append(session.id, user(text))
    return session.id


def keep(store: SessionStore, any_id: str, text: str) -> str:
    sink = store.outputs.begin(any_id, "call_1")
    sink.write(text)
    return sink.close().id


def shared(one: str, other: str) -> str:
    """The beginning of both."""
    return one[: next(i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)]


@pytest.mark.spec("A4", "I4")
def test_another_users_conversation_raises_the_same_error_as_an_unknown_id(
    store: SessionStore,
) -> None:
    hers, his = talk(store, ANNA, "my plan"), talk(store, BORIS, "his plan")
    mine = store.conversations.get(hers, visibility=User(ANNA))
    assert mine.user == User(ANNA)
    assert store.conversations.get(mine.id[:24], visibility=User(ANNA)) == mine
    his_conversation = store.conversations.get(his).id
    unknown = his_conversation[:-3] + "zzz"
    with pytest.raises(NotFound) as never:
        store.conversations.get(unknown, visibility=User(ANNA))
    for ident, asking in ((his, ANNA), (his_conversation, ANNA), (his_conversation[:-1], "carol"), ("c_", "carol")):
        with pytest.raises(NotFound) as refused:
            store.conversations.get(ident, visibility=User(asking))
        assert str(refused.value).replace(ident, "X") == str(never.value).replace(unknown, "X")


@pytest.mark.spec("A4", "I4")
def test_a_prefix_shared_by_two_users_is_unique_for_each(store: SessionStore) -> None:
    hers, his = talk(store, ANNA, "a"), talk(store, BORIS, "b")
    both = shared(*(store.conversations.get(i).id for i in (hers, his)))
    assert store.conversations.get(both, visibility=User(ANNA)).tip_session_id == hers
    assert store.conversations.get(shared(hers, his), visibility=User(BORIS)).tip_session_id == his
    with pytest.raises(NotFound, match="matches several"):
        store.conversations.get(both)


@pytest.mark.spec("A4", "H4")
def test_an_output_opens_only_from_its_users_conversations(store: SessionStore) -> None:
    hers, his = talk(store, ANNA, "a"), talk(store, BORIS, "b")
    output = keep(store, hers, "the contents of a letter")
    elsewhere = talk(store, ANNA, "another day")
    helper = store.conversations.delegate(hers).id
    for asking in (hers, elsewhere, helper, store.conversations.branch(hers).id):
        assert store.open(f"output:{output}", conversation_id=asking).text == "the contents of a letter"
        assert "".join(store.outputs.pieces(output, conversation_id=asking)) == "the contents of a letter"
    for asking in (his, store.create().id):
        for attempt in (store.outputs.read, store.outputs.pieces):
            with pytest.raises(NotFound, match=f"no output '{output}'"):
                attempt(output, conversation_id=asking)
        with pytest.raises(NotFound, match=f"no output '{output}'"):
            store.open(f"output:{output}", conversation_id=asking)
    assert store.outputs.get(output).conversation_id == store.conversations.get(hers).id


@pytest.mark.spec("A4", "I6")
def test_lists_searches_and_totals_of_a_user_exclude_other_users(store: SessionStore) -> None:
    hers, his = talk(store, ANNA, "the quarterly figures"), talk(store, BORIS, "quarterly figures of his")
    keep(store, hers, "quarterly output of hers")
    keep(store, his, "quarterly output of his")
    for session, cost in ((hers, 1.0), (his, 2.0)):
        store.ledger.record_call(CallRecord(session, cost_usd=cost))
    for user_key, session, cost in ((ANNA, hers, 1.0), (BORIS, his, 2.0)):
        owned = store.conversations.get(session).id
        assert [c.id for c in store.conversations.list(visibility=User(user_key)).conversations] == [owned]
        hits = store.search("quarterly", visibility=User(user_key))
        assert len(hits) == 2
        assert {h.conversation_id for h in hits} == {owned}
        assert [r.totals.cost_usd for r in store.ledger.usage("source", visibility=User(user_key))] == [cost]
        # Another's conversation, named outright, gives nothing either.
        other = his if session == hers else hers
        assert store.search("quarterly", visibility=User(user_key), scope={"conversation": other}) == []
