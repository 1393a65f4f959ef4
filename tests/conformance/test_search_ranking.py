"""Ranking by plain questions, on every database: rare words first, recency only among equals, the same order."""

from __future__ import annotations

import json
import random
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from perdure.core.errors import StoreError
from perdure.core.messages import Message, ToolCall, assistant, tool_result, user
from perdure.core.visibility import EVERYONE, User
from perdure.store import NewHandoff, SessionStore, Span, open_store
from perdure.store.search.answers import expected_answer
from perdure.store.search.matches import TextMatch
from perdure.store.search.ranking import Relevance
from support.store import FakeClock

pytestmark = pytest.mark.spec("I6")

TALK = [
    "We moved the deployment to Friday because the load balancer needs a new certificate.",
    "Caroline painted the kitchen blue and her sister helped with the ceiling.",
    "The invoice for the greenhouse was paid in March, 420 euros in all.",
    "I think we should go and see what they have, and then decide what to do about it.",
    "Our dog Biscuit ran away twice; both times he was found at the bakery.",
    "def parse_invoice(path): return json.load(open(path))  # src/billing/parse.py",
    "The retry limit of the uploader is seven, with a pause of two seconds.",
    "What do you have to do with it? They did it when they were there.",
]
QUESTIONS = [
    ("Why did they move the deployment?", 1),
    ("Who paints the kitchen, and in what colour?", 2),
    ("How much did the invoice for the greenhouse cost?", 3),
    ("Where was the dog found when he ran away?", 5),
    ("What does parse_invoice return?", 6),
    ("How many retries does the uploader do before it gives up?", 7),
    ("In which month was the greenhouse paying off?", 3),
]
FILLER = "they have what it is when they do that with the one you have and there were some of them"


def talk(store: SessionStore, clock: FakeClock, *, newer: int = 300) -> str:
    """The messages to be found, then many newer ones made of words that questions are made of."""
    session = store.create(title="Old talk")
    store.append(session.id, [user(t) for t in TALK])
    clock.pass_ms(1_000)
    chance = random.Random(4)
    store.append(
        session.id, [user(" ".join(chance.choices(FILLER.split(), k=12)) + f" note {n}") for n in range(newer)]
    )
    return session.id


@pytest.mark.parametrize(("question", "seq"), QUESTIONS)
def test_a_plain_question_finds_its_source_behind_many_newer_messages(
    store: SessionStore, clock: FakeClock, question: str, seq: int
) -> None:
    talk(store, clock)
    assert store.search(question, limit=5)[0].address == f"m:{seq}"


def test_rewordings_find_what_the_question_has_no_word_of(store: SessionStore, clock: FakeClock) -> None:
    talk(store, clock)
    question, rewordings = "Which animal escaped from home?", ["dog ran away", "pet lost and found again"]
    assert "m:5" not in [h.address for h in store.search(question, limit=5)]
    report = store.search_index.report(question, visibility=EVERYONE, rewordings=rewordings, limit=5)
    assert report.hits[0].address == "m:5"
    # The excerpt and the words are those of the query that finds it.
    assert report.hits[0].matched == ("dog", "ran", "away")
    assert "«dog»" in report.hits[0].snippet.lower()
    assert (report.queries, report.is_partial) == (3, False)
    assert [w.word for w in report.words][:3] == ["animal", "escaped", "home"]
    assert store.search(question, rewordings=rewordings, limit=5)[0].address == "m:5"


def test_what_several_rewordings_find_comes_first_and_once(store: SessionStore) -> None:
    session = store.create()
    store.append(session.id, [user(t) for t in ("the walrus sleeps", "a heron and a walrus", "the heron fishes")])
    hits = store.search("walrus", rewordings=["heron"])
    assert [h.address for h in hits] == ["m:2", "m:1", "m:3"]
    store.append(session.id, [user(f"walrus note {n}") for n in range(60)])
    seen: list[str] = []
    cursor: str | None = None
    while cursor is not None or not seen:
        page = store.search_index.report("walrus", visibility=EVERYONE, rewordings=["heron"], limit=20, cursor=cursor)
        seen += [h.address for h in page.hits]
        cursor = page.next_cursor
    assert sorted(seen) == sorted(f"m:{n}" for n in range(1, 64))


def test_a_repeated_or_empty_rewording_changes_nothing(store: SessionStore, clock: FakeClock) -> None:
    talk(store, clock)
    for question, _ in QUESTIONS:
        plain = store.search_index.report(question, visibility=EVERYONE)
        again = store.search_index.report(
            question, visibility=EVERYONE, rewordings=[question.upper(), f" {question}", "", "?!"]
        )
        assert again == plain


def test_a_reworded_phrase_that_nothing_has_leaves_the_other_hits(store: SessionStore, clock: FakeClock) -> None:
    talk(store, clock)
    report = store.search_index.report("greenhouse", visibility=EVERYONE, rewordings=['"green house paid"'])
    assert [h.address for h in report.hits] == ["m:3"]
    assert not report.is_relaxed
    only = store.search_index.report('"house green"', visibility=EVERYONE, rewordings=['"invoice green"'])
    assert only.is_relaxed
    assert "m:3" in [h.address for h in only.hits]


def test_a_rare_word_outranks_common_ones_however_old(store: SessionStore, clock: FakeClock) -> None:
    session = store.create()
    store.append(session.id, user("the walrus is asleep"))
    clock.pass_ms(1_000)
    store.append(session.id, [user(f"the report is ready, report {n}") for n in range(200)])
    assert store.search("is there a report about the walrus", limit=3)[0].address == "m:1"


def test_a_text_with_all_keywords_outranks_shorter_ones_with_one(store: SessionStore) -> None:
    session = store.create()
    store.append(session.id, [user("port open"), user("port 5432 " + "of the database server " * 300), user("5432")])
    assert store.search("port 5432")[0].address == "m:2"


def test_words_of_the_title_decide_between_conversations(store: SessionStore, clock: FakeClock) -> None:
    for day in ("8 May 2023", "25 May 2023", "3 June 2023"):
        session = store.create(title=f"Call on {day}")
        store.append(session.id, [user("How was the race?"), user("I finished the race in under an hour.")])
        clock.pass_ms(1_000)
    titles = [h.title for h in store.search("How did the race on 8 May go?")]
    assert titles[0] == "Call on 8 May 2023"


def test_a_question_in_chinese_finds_its_source(store: SessionStore) -> None:
    session = store.create()
    store.append(session.id, [user("昨天我们把数据库迁移到了新的服务器上"), user("今天天气很好，我们去公园吧")])
    store.append(session.id, [user("数字和字母"), user("服务很好")])
    assert store.search("数据库是什么时候迁移的？")[0].address == "m:1"


def test_both_databases_return_the_same_order(store: SessionStore, clock: FakeClock, tmp_path: Path) -> None:
    """On PostgreSQL the order is compared with SQLite's; on SQLite with that of a second store."""
    with open_store(tmp_path / "other.db", clock=clock) as other:
        for each in (store, other):
            talk(each, FakeClock(), newer=2_500)
            each.vectors.catch_up()
        queries = [q for q, _ in QUESTIONS] + [
            "note",
            "they have",
            "invoice pars*",
            "src/billing/parse.py",
            '"our dog"',
        ]
        for query in queries:
            ours, theirs = (
                [(h.address, h.score, h.snippet) for h in s.search(query, limit=50)] for s in (store, other)
            )
            assert ours == theirs, query
            assert ours


def test_pages_continue_without_gaps_while_messages_are_added(store: SessionStore, clock: FakeClock) -> None:
    session = talk(store, clock)
    addresses: list[str] = []
    cursor: str | None = None
    while True:
        page = store.search_index.report("note", visibility=EVERYONE, limit=40, cursor=cursor)
        addresses += [h.address for h in page.hits]
        store.append(session, user("another note"))
        cursor = page.next_cursor
        if cursor is None:
            break
    assert len(addresses) == len(set(addresses)) == 200
    scores = [h.score for h in store.search("note", limit=100)]
    assert all(a >= b for a, b in pairwise(scores))
    for invalid in ("x", "1", "1.", "-1.5", "9" * 50):
        with pytest.raises(StoreError, match="cursor is invalid"):
            store.search_index.report("note", visibility=EVERYONE, cursor=invalid)


def test_a_report_tells_what_was_searched_and_what_is_missing(store: SessionStore, clock: FakeClock) -> None:
    talk(store, clock)
    report = store.search_index.report("When did the walrus visit the greenhouse?", visibility=EVERYONE)
    assert {w.word: w.texts for w in report.words} == {"walrus": 0, "visit": 0, "greenhouse": 1}
    assert report.missing == ("walrus", "visit")
    assert report.ignored == ("when", "did", "the")
    assert report.texts == 308
    assert report.is_partial
    assert report.hits[0].matched == ("greenhouse",)
    assert not store.search_index.report("greenhouse", visibility=EVERYONE).is_partial


def test_a_snippet_shows_the_part_that_answers(store: SessionStore) -> None:
    session = store.create()
    text = "the the the " * 100 + "The greenhouse costs 420 euros, painted. " + "and then the rest of it " * 100
    store.append(session.id, [user(text), user("nothing about costs")])
    (hit, *_) = store.search("what does the greenhouse cost")
    assert "The «greenhouse» «costs» 420 euros" in hit.snippet
    assert "«the»" not in hit.snippet.lower()


def test_a_snippet_shows_no_key_of_the_message(store: SessionStore) -> None:
    key = "sk-proj-" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0fG" + "hJ3kL6nM9"
    padding = "We talked about the weather and the garden. " * 12
    session = store.create(title="Keys")
    store.append(session.id, [user(f"{padding}Use this key for deployments: {key} and tell nobody. {padding}")])
    store.append(session.id, [assistant("Stored.")])
    for query in ("key deployments", "tell nobody", key[8:24]):
        (hit, *_) = store.search(query, limit=1)
        shown = f"{hit.snippet} {hit.excerpt} {hit.answer}"
        assert key[8:] not in shown, query
        assert key[20:30] not in shown, "nor a piece where the snippet begins or ends inside the key"
        assert "[REDACTED]" in hit.snippet, query
        assert all(hit.excerpt[start:end].strip() for start, end in hit.marks)
    assert key in store.open("m:1", conversation_id=session.id).text, "what is opened is as it was said"


def test_the_newest_question_of_the_conversation_that_asks_comes_last(store: SessionStore, clock: FakeClock) -> None:
    old = store.create(title="Plans")
    store.append(old.id, [user("The greenhouse is 420 euros, paid in March."), assistant("Noted: greenhouse, 420.")])
    clock.pass_ms(1_000)
    here = store.create(title="Today")
    store.append(here.id, [user("greenhouse"), assistant("A greenhouse?"), user("what about the greenhouse euros?")])
    scope = {"asked_in": here.conversation_id}
    hits = store.search("greenhouse euros", scope=scope, limit=10)
    assert (hits[-1].conversation_id, hits[-1].address) == (here.conversation_id, "m:3")
    assert len(hits) == len(store.search("greenhouse euros", limit=10)), "it is moved, not left out"
    first = store.search_index.report("greenhouse euros", visibility=EVERYONE, scope=scope, limit=2)
    assert all(h.address != "m:3" for h in first.hits)


def test_an_empty_store_reports_every_word_as_missing(store: SessionStore) -> None:
    report = store.search_index.report("walrus report", visibility=EVERYONE)
    assert (report.hits, report.missing, report.texts) == ((), ("walrus", "report"), 0)


def test_the_question_itself_and_searches_for_it_do_not_hide_the_answer(store: SessionStore, clock: FakeClock) -> None:
    talk(store, clock)
    question = "How much did the invoice for the greenhouse cost?"
    for _ in range(12):
        asking = store.create(title=question)
        call = ToolCall("c1", "session_search", json.dumps({"query": "invoice greenhouse cost"}))
        reply = "Searched 308 messages: invoice (2), greenhouse (1).\n\nm:3 · user\nThe «invoice» for the «greenhouse»"
        store.append(asking.id, [user(question), assistant(None, (call,)), tool_result("c1", reply)])
        clock.pass_ms(1_000)
    for query in (question, "invoice greenhouse", "greenhouse"):
        assert "420 euros" in store.search(query, limit=5)[0].snippet, query


def test_sources_outrank_the_handoffs_that_repeat_them(store: SessionStore, clock: FakeClock) -> None:
    session = talk(store, clock, newer=20)
    for _ in range(8):
        summary = Message("user", "The invoice for the greenhouse was 420 euros.", kind="handoff")
        store.compact(session, (Span(1, 1), NewHandoff(summary)))
        clock.pass_ms(1_000)
    assert store.search("How much was the invoice for the greenhouse?", limit=5)[0].address == "m:3"


ADVICE = (
    "Where you work on an essay matters: a library, a desk at home, any place that suits the essay and your work. " * 12
)


def test_what_a_person_said_outranks_longer_answers_about_it(store: SessionStore) -> None:
    session = store.create()
    said = user("I prefer to work on my essay in the quiet library, second floor, without any distraction.")
    store.append(session.id, [assistant(ADVICE), said, assistant(ADVICE), user("thanks"), assistant(ADVICE)])
    store.append(session.id, [user(f"The parcel number {n} went to Lisbon by train.") for n in range(30)])
    store.vectors.catch_up()
    assert store.search("Where do I like to work on the essay?", limit=5)[0].address == "m:2"


def test_an_answer_finds_the_message_that_began_its_turn(store: SessionStore) -> None:
    session = store.create()
    call = ToolCall("c1", "read_file", json.dumps({"path": "notes.txt"}))
    store.append(
        session.id,
        [
            user("Always mark up pages semantically."),
            assistant(None, (call,)),
            tool_result("c1", "nothing relevant"),
            assistant("Use header, footer and nav elements to define the sections of a blog layout."),
            user("Good morning"),
            assistant("Good morning to you"),
        ],
    )
    store.vectors.catch_up()
    question = "Which elements define the sections of the blog layout?"
    assert [h.address for h in store.search(question, limit=2)] == ["m:4", "m:1"]
    assert [h.address for h in store.search("blog layout")] == ["m:4"]


def test_a_phrase_in_a_question_need_not_occur(store: SessionStore, clock: FakeClock) -> None:
    talk(store, clock, newer=20)
    assert store.search('When was the bill "greenhouse invoice" paid?')[0].address == "m:3"
    assert store.search('"greenhouse invoice"') == []


def test_the_message_that_began_a_turn_is_found_within_the_scope_alone(store: SessionStore, clock: FakeClock) -> None:
    session = store.create(user_key="ann")
    store.append(session.id, user("Always mark up pages semantically."))
    clock.pass_ms(1_000)
    store.append(session.id, assistant("Use header, footer and nav elements to define the sections of a blog layout."))
    store.vectors.catch_up()
    question = "Which elements define the sections of the blog layout?"
    answered_at = store.search("blog layout")[0].created_at_ms
    assert len(store.search(question, visibility=User("ann"))) == 2
    assert [h.address for h in store.search(question, scope={"role": "assistant"})] == ["m:2"]
    assert [h.address for h in store.search(question, scope={"since_ms": answered_at})] == ["m:2"]
    assert store.search(question, visibility=User("bob")) == []


def _checks(store: SessionStore, user_key: str | None = None) -> str:
    """Thirty checks of hosts, two calls in a message: the calls name the hosts, the results have the values."""
    session = store.create(user_key=user_key)
    for n in range(0, 30, 2):
        calls = [
            ToolCall(f"c{n + i}", "bash", json.dumps({"command": f"curl -i https://host{n + i}.example/health"}))
            for i in range(2)
        ]
        results = [tool_result(f"c{n + i}", f"HTTP/2 502\nx-trace: tr-{900 + n + i}") for i in range(2)]
        store.append(session.id, [user("Check the next ones."), assistant(None, tuple(calls)), *reversed(results)])
    return session.id


@pytest.mark.parametrize(
    "query", ["Which trace did host{n}.example report?", "host{n}.example trace", "What did curl get from host{n}?"]
)
def test_a_result_is_found_by_what_its_call_names(store: SessionStore, query: str) -> None:
    session = _checks(store)
    for n in range(30):
        hits = store.search(query.format(n=n), limit=3)
        texts = [store.open(h.address, conversation_id=session).text for h in hits]
        assert any(f"tr-{900 + n}" in t for t in texts), hits
    (hit,) = [h for h in store.search("Which trace did host7.example report?", limit=3) if "tr-907" in h.excerpt]
    assert hit.excerpt.startswith("bash curl -i https://host7.example/health HTTP/2 502")


def test_results_of_a_call_are_found_within_the_scope_alone(store: SessionStore, clock: FakeClock) -> None:
    _checks(store, "ann")
    question = "Which trace did host7.example report?"
    assert "tool" in {h.role for h in store.search(question, visibility=User("ann"), limit=5)}
    assert {h.role for h in store.search(question, scope={"role": "assistant"})} == {"assistant"}
    assert store.search(question, visibility=User("bob")) == []
    assert store.search(question, scope={"since_ms": clock.now_ms() + 1}) == []


def test_one_word_is_not_searched_in_the_call_of_a_result(store: SessionStore) -> None:
    _checks(store)
    assert {h.role for h in store.search("curl")} == {"assistant"}


def working_talk(store: SessionStore, clock: FakeClock) -> None:
    """A request, some work, and what was done last, which has no word of the request."""
    session = store.create(title="Work")
    store.append(session.id, [user("Please port the invoice parser to the new library."), assistant("Reading it.")])
    store.append(session.id, [user(f"Unrelated remark {n} about lunch.") for n in range(40)])
    store.append(session.id, assistant("The invoice parser reads the new library's tables; the port has begun."))
    clock.pass_ms(1_000)
    store.append(session.id, [user("Go on."), assistant("Two checks of rounding fail, fixing those.")])
    other = store.create(title="Newer talk")
    store.append(other.id, [user("Where shall we have lunch?"), assistant("At the lake.")])


@pytest.mark.parametrize(
    "question",
    [
        "What is being done right now about the port of the invoice parser?",
        "Which step is still in progress for the invoice parser?",
        "What was the most recent work on the invoice parser?",
    ],
)
def test_a_question_about_the_present_finds_the_newest_messages(
    store: SessionStore, clock: FakeClock, question: str
) -> None:
    working_talk(store, clock)
    assert "m:45" in [h.address for h in store.search(question, limit=5) if h.title == "Work"]
    assert not [h for h in store.search(question, limit=5) if h.title != "Work"]


def test_other_questions_do_not_prefer_the_newest_messages(store: SessionStore, clock: FakeClock) -> None:
    working_talk(store, clock)
    addresses = [h.address for h in store.search("Which library is the invoice parser ported to?", limit=50)]
    assert "m:1" in addresses[:5]
    assert "m:45" not in addresses


def test_newest_messages_are_found_within_the_scope_alone(store: SessionStore, clock: FakeClock) -> None:
    working_talk(store, clock)
    question = "What is being done right now about the port of the invoice parser?"
    by_user = store.search(question, scope={"role": "user"}, limit=50)
    assert {h.role for h in by_user} == {"user"}
    earlier = store.search(question, scope={"until_ms": max(h.created_at_ms for h in by_user)}, limit=50)
    assert "m:45" not in [h.address for h in earlier]


def test_a_statement_ranks_above_the_searches_for_it_and_what_a_model_made_of_them(store: SessionStore) -> None:
    session = store.create(title="Keys")
    store.append(session.id, [user("The deploy key rotates on Thursdays at 4pm."), assistant("Noted.")])
    for n, note in enumerate(
        ("[Not answered: m-1 cited none of them]", "[Answered by m-1 from the results below]\nYes.")
    ):
        call = ToolCall(f"c{n}", "session_search", '{"query": "deploy key rotates", "answer": true}')
        report = f"{note}\n\nSearched 9 messages: deploy (2), key (4), rotates (2).\n\nm:1\nThe deploy key rotates"
        store.append(session.id, [assistant(None, (call,)), tool_result(call.id, report, "session_search")])
    assert store.search("deploy key rotates", limit=5)[0].address == "m:1"


def at(clock: FakeClock, moment: str) -> None:
    clock.ms = int(datetime.fromisoformat(moment).timestamp() * 1_000)


@pytest.mark.parametrize(
    ("question", "number"),
    [
        ("What did we decide about the billing import on 14 May 2031?", 1),
        ("What did we decide about the billing import in May 2031?", 1),
        ("Which billing import did we decide on, June 9th?", 2),
        ("What was the billing import that we decided about 2031-07-21?", 3),
        ("What did we decide about the billing import?", 4),
    ],
)
def test_a_question_with_a_date_finds_what_was_said_then(
    store: SessionStore, clock: FakeClock, question: str, number: int
) -> None:
    session = store.create(title="Billing")
    for day in ("2031-05-14", "2031-06-09", "2031-07-21", "2031-08-02"):
        at(clock, f"{day}T09:30:00+00:00")
        store.append(
            session.id,
            [user("We decide that the billing import waits for the bank, its certificate and a second reader.")],
        )
    assert store.search(question, limit=5)[0].address == f"m:{number}"


def test_a_question_with_a_date_finds_the_conversation_that_has_it_in_its_title(store: SessionStore) -> None:
    for title in ("Standup on 3 June, 2023", "Standup on 8 December, 2023", "Standup on 3 July, 2023"):
        store.append(
            store.create(title=title).id,
            [user("Maria starts helping at the shelter, twice each month, with her neighbours and a van.")],
        )
    assert store.search("What does Maria start, as said on June 3rd, 2023?", limit=5)[0].title.endswith("3 June, 2023")
    assert store.search("What does Maria start in December?", limit=5)[0].title.endswith("8 December, 2023")


def working_session(store: SessionStore) -> None:
    """A session with tool calls, in which the answers hardly repeat the words of a question."""
    session = store.create()
    build = ToolCall("c1", "bash", json.dumps({"command": "make package 2>&1 | tail -40"}))
    again = ToolCall("c2", "bash", json.dumps({"command": "make package -j 8"}))
    store.append(
        session.id,
        [
            user("Can you look at the package build? The package build is slow and the package build fails."),
            assistant("Let me run the package build.", (build,)),
            tool_result("c1", "package build: undefined symbol, the package build failed"),
            assistant("The package build linked it twice, due to the old loader, which we no longer need.", (again,)),
            tool_result("c2", "elapsed 412 s"),
            assistant("The package build passes."),
            user("Leave the installer alone, we ship the package without it."),
            assistant("All right, what you want is the package, and the package alone."),
        ],
    )
    store.append(session.id, [assistant(f"The package build step {'abcdefgh'[n % 8]} is listed.") for n in range(30)])
    store.vectors.catch_up()


def test_in_a_working_session_the_message_after_a_match_is_found(store: SessionStore) -> None:
    working_session(store)
    assert "m:5" in [h.address for h in store.search("How long did the package build take?", limit=5)]


@pytest.mark.parametrize(
    ("question", "answer", "other"),
    [
        (
            "Why was the import stopped?",
            assistant("The import was stopped because its disk was full."),
            assistant("The import was stopped and then its disk was changed."),
        ),
        (
            "How long did the import take?",
            assistant("The import took 40 minutes on that disk."),
            assistant("The import took ages on that disk."),
        ),
        (
            "What did I want for the import and the disk?",
            user("The import has to wait for the disk of another archive server."),
            assistant("As you want, the import has to wait for the disk of another archive server."),
        ),
        (
            "What happened to the import and the disk?",
            assistant("The import has to wait for the disk of another archive server."),
            user("The import has to wait for the disk of another archive server."),
        ),
    ],
)
def test_in_a_working_session_the_kind_of_answer_counts(
    store: SessionStore, question: str, answer: Message, other: Message
) -> None:
    session = store.create()
    call = ToolCall("c1", "bash", json.dumps({"command": "import --stop 40"}))
    store.append(session.id, [user("Go on."), assistant(None, (call,)), tool_result("c1", "import: done")])
    store.append(session.id, [user("Thanks."), assistant("Good night."), answer])
    store.append(session.id, [user("Thanks."), assistant("Good night."), other])
    addresses = [h.address for h in store.search(question)]
    assert addresses.index("m:6") < addresses.index("m:9")


def test_the_message_after_a_match_is_found_within_the_scope_alone(store: SessionStore) -> None:
    working_session(store)
    question = "Why did the package build fail?"
    assert "m:4" in [h.address for h in store.search(question, limit=5, scope={"role": "assistant"})]
    assert {h.role for h in store.search(question, limit=50, scope={"role": "tool"})} == {"tool"}


@pytest.mark.parametrize(("matched", "gains"), [(frozenset(), False), (frozenset({1}), True)])
def test_a_bare_reply_of_the_user_gains_only_by_a_word_of_the_query(matched: frozenset[int], gains: bool) -> None:
    row = (7, "c_1", "s_1", "s_1", 4, "user", 0, "", 9, b"", 0)
    match = TextMatch(row, "yes", Relevance(0.0, matched))
    assert (expected_answer("What did I want for the import?").share(match) > 0) is gains


def store_question(store: SessionStore, **options: str) -> str:
    session = store.create(**options)
    call = ToolCall("c1", "bash", json.dumps({"command": "ls /srv"}))
    store.append(
        session.id,
        [
            user("How did the quince station do?"),
            assistant("Let me see.", (call,)),
            tool_result("c1", "nothing new"),
            assistant("It went through with batch KX-81 after one retry."),
            user("And the quince station of Oslo: stop it."),
            assistant("Stopped."),
        ],
    )
    return session.conversation_id


def test_a_question_is_found_with_the_answer_to_it(store: SessionStore) -> None:
    store_question(store)
    hits = {h.address: h for h in store.search("quince station")}
    answer = hits["m:1"].answer
    assert answer is not None
    assert (answer.address, answer.excerpt) == ("m:4", "It went through with batch KX-81 after one retry.")
    assert hits["m:5"].answer is not None, "a short request needs no question mark"
    assert hits["m:5"].answer.address == "m:6"


def test_the_answer_to_a_question_has_the_passage_about_the_query(store: SessionStore) -> None:
    session = store.create()
    long = "\n".join(f"Row {n} of the table is complete." for n in range(200))
    store.append(session.id, [user("Is the medlar import fine?"), assistant(f"{long}\nmedlar: batch 7.\n{long}")])
    (hit, *_) = store.search("medlar import", limit=1)
    assert hit.address == "m:1"
    assert hit.answer is not None
    assert "«medlar»: batch 7" in hit.answer.snippet


def test_an_answer_is_not_repeated_and_stays_within_the_scope(store: SessionStore) -> None:
    store_question(store)
    listed = store.search("quince station batch KX-81", limit=5)
    assert {"m:1", "m:4"} <= {h.address for h in listed}
    assert all(h.answer is None or h.answer.address != "m:4" for h in listed)
    assert all(h.answer is None for h in store.search("quince station", scope={"role": "user"}))


def test_a_question_and_the_answer_below_it_are_one_hit_of_a_report(store: SessionStore) -> None:
    session = store.create()
    asked = "Which port does the quince gateway use? The firewall form wants it."
    store.append(session.id, [user(asked), assistant("The gateway listens on 4431, unless another is set.")])
    assert [h.address for h in store.search("quince gateway port")] == ["m:1", "m:2"], "the messages as ranked"
    (hit,) = store.search_index.report("quince gateway port", visibility=EVERYONE).hits
    assert (hit.address, hit.answer is not None and hit.answer.address) == ("m:1", "m:2")
    assert hit.answer is not None
    assert "4431" in hit.answer.snippet
    above = store.search_index.report("gateway listens unless another is set", visibility=EVERYONE).hits
    assert [(h.address, h.answer) for h in above] == [("m:2", None), ("m:1", None)], "the answer stands above it"


def test_a_question_of_the_assistant_is_found_with_the_users_answer(store: SessionStore) -> None:
    session = store.create()
    store.append(session.id, [user("Change my medlar booking."), assistant("Which number does the booking have?")])
    store.append(session.id, [user("It is KX-81."), assistant("Changed. The booking is for Friday.")])
    hits = {h.address: h for h in store.search("number booking")}
    answer = hits["m:2"].answer
    assert answer is not None
    assert (answer.address, answer.excerpt) == ("m:3", "It is KX-81.")
    assert hits["m:4"].answer is None, "it asks nothing"


def test_a_call_is_found_with_its_result(store: SessionStore) -> None:
    session = store.create()
    call = ToolCall("c1", "bash", json.dumps({"command": "measure the walnut pump of the harbour"}))
    store.append(session.id, [user("Go on."), assistant("", (call,)), tool_result("c1", "The pump has 7 bar.")])
    other = ToolCall("c2", "bash", json.dumps({"command": "walnut"}))
    long = "The walnut pump is in the cellar, and we will look at it when the crew is back from the harbour. " * 2
    store.append(session.id, [assistant(long, (other,)), tool_result("c2", "nothing")])
    hits = {h.address: h for h in store.search_index.report("walnut", visibility=EVERYONE).hits}
    result = hits["m:2"].answer
    assert result is not None
    assert (result.address, result.role, result.excerpt) == ("m:3", "tool", "The pump has 7 bar.")
    assert hits["m:4"].answer is None, "it says more than its call"


def test_the_questions_of_the_running_turn_are_no_hits(store: SessionStore) -> None:
    owner = store_question(store)
    call = ToolCall("c2", "session_search", json.dumps({"query": "quince station"}))
    running = [user("What about the quince station batch?"), assistant("", (call,)), tool_result("c2", "…")]
    store.append(owner, [*running, user("I mean the quince station of Oslo.")])
    everything = {h.address for h in store.search("quince station batch", limit=50)}
    assert {"m:1", "m:5", "m:7", "m:10"} <= everything
    found = {h.address for h in store.search("quince station batch", scope={"answering": owner}, limit=50)}
    assert {"m:1", "m:5"} <= found
    assert found.isdisjoint({"m:7", "m:10"})
    elsewhere = store.create()
    found = {
        h.address
        for h in store.search("quince station batch", scope={"answering": elsewhere.conversation_id}, limit=50)
    }
    assert found == everything - {"m:8", "m:9"}, "only the search itself"


@pytest.mark.parametrize("key", ["answering", "asked_in"])
def test_in_a_chat_no_search_finds_a_search(store: SessionStore, key: str) -> None:
    question = "How many times is a failed job tried?"
    call = ToolCall("c1", "session_search", json.dumps({"query": question}))
    report = "Searched 37 messages: failed (3), job (9), tried (2).\n\nm:4 · assistant\nA failed job is tried 5 times."
    source = store.create(title="Jobs")
    store.append(source.id, [user("Read docs/jobs.md"), assistant("A failed job is tried 5 times.")])
    for said in ("", "Let me search for that."):
        asking = store.create()
        store.append(asking.id, [user(question), assistant(said, (call,)), tool_result("c1", report)])
        found = [h.address for h in store.search(question, scope={key: asking.conversation_id})]
        assert found[0] == "m:2"
        assert not {"m:3"} & set(found)
        other = store.create().conversation_id
        hits = store.search(question, scope={key: other}, limit=50)
        assert not [h for h in hits if "session_search" in h.excerpt or "Searched" in h.excerpt]
    everywhere = store.search(question, limit=50)
    assert everywhere[0].excerpt == "A failed job is tried 5 times."
    assert any("Searched" in h.excerpt for h in everywhere), "the log itself has them"


@pytest.mark.parametrize("scope", ["", "answering"])
def test_a_text_that_mentions_a_search_tool_is_no_search(store: SessionStore, scope: str) -> None:
    session = store.create()
    store.append(session.id, [user("Our tools:\nsession_search\nread_file\nThe quince password rotates on Fridays.")])
    call = ToolCall("c1", "terminal", json.dumps({"command": "cat TOOLS"}))
    listing = tool_result("c1", "terminal\nsession_search\nquince_tool peels quinces")
    store.append(session.id, [assistant("I read it.", (call,)), listing, assistant("Searched 3 messages of quince.")])
    other = store.create().conversation_id
    asked = {scope: other} if scope else {}
    assert store.search("quince password rotates", scope=asked)[0].address == "m:1"
    assert store.search("quince_tool peels", scope=asked)[0].address == "m:3"
    assert "m:4" in {h.address for h in store.search("quince", scope=asked)}


def ask_about_ports(store: SessionStore) -> str:
    """Conversations in which the port of staging is asked for and answered; returns the one with the answer."""
    session = store.create(title="Notes")
    store.append(session.id, [user("Which port does staging use?"), assistant("It listens on 8443, behind a proxy.")])
    other = store.create(title="Release")
    store.append(other.id, [user("Deploy to staging please."), assistant("Deployed, and the port is open for use.")])
    store.append(other.id, [user("Which port does production use?"), assistant("It is 443.")])
    return session.conversation_id


def test_a_question_asked_again_finds_the_answer_it_got_before(store: SessionStore) -> None:
    owner = ask_about_ports(store)
    best, *rest = store.search("which port does staging use?")
    assert (best.conversation_id, best.address) == (owner, "m:2")
    assert "8443" in best.snippet
    assert all(h.score < best.score / 2 for h in rest if "443" in h.snippet), "another question's answer gains nothing"
    assert store.search_index.report("Which port does staging use?", visibility=EVERYONE).hits[0].address == "m:2"


def test_the_question_of_the_running_turn_lends_its_score_to_no_step_of_that_turn(store: SessionStore) -> None:
    owner = ask_about_ports(store)
    running = store.create(title="Today").conversation_id
    call = ToolCall("c1", "session_search", json.dumps({"query": "staging"}))
    store.append(running, [user("Which port does staging use?"), assistant("Let me look that up.", (call,))])
    for scope in ({"answering": running}, {"asked_in": running}):
        hits = store.search("Which port does staging use?", scope=scope)
        assert (hits[0].conversation_id, hits[0].address) == (owner, "m:2")


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Which port does staging use?", "Staging uses port 8443."),
        ("Where does the walrus keeper live?", "The walrus keeper lives in Oslo."),
        ("测试环境使用哪个端口？", "测试环境使用8443端口"),
    ],
)
def test_a_short_statement_with_the_missing_word_is_no_repetition(
    store: SessionStore, question: str, answer: str
) -> None:
    session = store.create()
    store.append(session.id, [user(answer), assistant("Noted.")])
    store.append(session.id, [user(question)])
    assert store.search(question)[0].address == "m:1"
