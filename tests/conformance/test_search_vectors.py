"""Search by meaning, on every database: vectors are made in the background and removed with their messages."""

from __future__ import annotations

import pytest

from perdure.core.messages import user
from perdure.store import SessionStore
from perdure.store.search.embedding import is_available, load_word_vectors, pack_vectors, split_passages, unpack_vectors
from support.store import Backend

pytestmark = [
    pytest.mark.spec("O7", "I6"),
    pytest.mark.skipif(not is_available(), reason="the extra `recall` is not installed"),
]

TALK = [
    "My physician told me to take the tablets twice a day after every meal.",
    "The bicycle needs new brakes before the holiday in the mountains.",
    "We deployed the web server on a machine with eight processors.",
    "She bakes bread with rye flour and a little honey on weekends.",
]


def talk(store: SessionStore) -> str:
    session = store.create(user_key="ann")
    store.append(session.id, [user(t) for t in TALK])
    store.vectors.catch_up()
    return session.id


def count(backend: Backend) -> int:
    return int(backend.execute("SELECT COUNT(*) FROM message_vector")[0][0])


def test_a_question_in_other_words_finds_its_source(store: SessionStore) -> None:
    talk(store)
    for question, address in (
        ("doctor medicine pills", "m:1"),
        ("bike vacation repair", "m:2"),
        ("cpu count of the host", "m:3"),
    ):
        assert store.search(question)[0].address == address, question


def test_a_single_word_or_a_phrase_is_searched_literally(store: SessionStore) -> None:
    talk(store)
    assert store.search("doctor") == []
    assert store.search('"doctor medicine"') == []


def test_vectors_are_deleted_with_their_conversation_and_when_scrubbed(backend: Backend) -> None:
    store = backend.open()
    session = talk(store)
    assert count(backend) == len(TALK)
    assert store.search("doctor medicine pills")
    assert store.scrub(session, lambda text: text.replace("tablets", "[REDACTED]")).messages == 1
    assert count(backend) == len(TALK) - 1
    assert "m:1" not in [h.address for h in store.search("doctor medicine pills")]
    store.delete(session)
    assert count(backend) == 0
    assert store.search("bike vacation repair") == []


def test_making_vectors_resumes_where_it_stopped(backend: Backend) -> None:
    store = backend.open()
    session = talk(store)
    assert store.vectors.catch_up() == 0
    store.append(session, user("The invoice was paid by the accountant in March."))
    assert store.vectors.catch_up() == 1
    again = backend.open()
    assert again.vectors.catch_up() == 0
    assert count(backend) == len(TALK) + 1


def test_vectors_of_one_user_are_never_compared_for_another(store: SessionStore) -> None:
    from perdure.core.visibility import User

    talk(store)
    assert store.search("doctor medicine pills", visibility=User("bob")) == []
    assert store.search("doctor medicine pills", visibility=User("ann"))[0].address == "m:1"


def test_long_texts_are_cut_into_passages_and_vectors_survive_storage() -> None:
    model = load_word_vectors()
    assert model is not None
    passages = split_passages("word " * 1_000)
    assert len(passages) > 5
    vectors = model.embed(["a cat on the sofa", ""])
    assert abs(float((vectors[0] * vectors[0]).sum()) - 1) < 1e-5
    assert not vectors[1].any()
    assert abs(unpack_vectors(pack_vectors(vectors)) - vectors).max() < 0.01
    assert len(unpack_vectors(b"\x01" * 300)) == 1


def test_a_word_of_similar_meaning_decides_between_texts_about_other_things(store: SessionStore) -> None:
    session = store.create()
    about = "about the printer on the second floor, the lunch menu, the parking permits and the fire drill on Monday"
    for topic in ("adoption", "holiday", "salary", "garden"):
        store.append(session.id, user(f"Tom wrote {about}. He also mentioned his {topic}. And again {about}."))
    store.vectors.catch_up()
    assert "adoption" in store.open(store.search("When did Tom adopt?")[0].address, conversation_id=session.id).text


def test_vectors_of_words_are_the_same_whether_cached_or_not() -> None:
    model = load_word_vectors()
    assert model is not None
    words: list[str | bytes] = ["adopt", b"adoption", "house"]
    vectors = model.embed_words(words)
    assert float(vectors[0] @ vectors[1]) > 0.5 > float(vectors[0] @ vectors[2])
    for count_of_words in (19_999, 20_001):
        model.embed_words([f"w{n}" for n in range(count_of_words)])
        assert abs(model.embed_words([*words, *words])[3:] - vectors).max() < 1e-6


def test_vectors_are_not_used_until_nearly_all_messages_have_one(store: SessionStore) -> None:
    session = talk(store)
    question = "doctor medicine pills"
    assert store.search(question)
    store.vectors.close()
    store.append(session, [user(f"The report number {n} is about something else altogether.") for n in range(100)])
    assert store.search(question) == []


def test_vectors_of_an_older_version_are_made_again(backend: Backend) -> None:
    talk(backend.open())
    backend.execute("UPDATE message_vector SET passages = ?", (b"\x05" * 256,))
    backend.execute("UPDATE state SET key = 'progress' WHERE scope = 'vectors' AND key LIKE 'progress%'")
    store = backend.open()
    assert store.vectors.catch_up() == len(TALK)
    assert store.search("doctor medicine pills")[0].address == "m:1"
    assert count(backend) == len(TALK)
