"""The session store against its bars: a conversation of 10,000 messages, then a store of a million.

Figures with a bar are plain: the median over every append, the p95 over queries each asked once. Beside them stand what
a bare commit took meanwhile, one after each append, the processor time of a search, and how busy the machine was: a
shared disk is not the store's doing.
"""

from __future__ import annotations

import os
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from benchmarks.data import Skip, sessions
from benchmarks.store_corpus import Corpus
from benchmarks.table import Row
from perdure.core.messages import HANDOFF_FIRST_LINE, Message
from perdure.core.visibility import EVERYONE, Visibility
from perdure.store import NewHandoff, Plan, SessionStore, Span, open_store
from perdure.store.encoding import encode

TITLE = "Session store (SQLite)"

_MESSAGES = 10_000
_STORE = 1_000_000
_BATCH = 400
_TRIES = 60
_REPEATS = 7


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="perdure-store-") as folder:
        yield from _one_conversation(Path(folder) / "one.db")
    with tempfile.TemporaryDirectory(prefix="perdure-store-") as folder:
        yield from _a_million(Path(folder) / "many.db")


def _one_conversation(path: Path) -> Iterator[Row]:
    messages, origin = _real_or_made()
    content = _size(messages)
    with open_store(path) as store, _bare(path.with_name("bare.db")) as commit:
        session = store.create(system_prompt="You are helpful. " * 200)
        took = [_ms(lambda m=m: store.append(session.id, m)) for m in messages]
        # Afterwards: two files synced in turn would slow each other down.
        bare = statistics.median(_ms(commit) for _ in range(2_000))
        yield Row("append, first 2,000 messages, median", statistics.median(took[:2_000]), "ms", "< 1", origin)
        yield Row("append, last 2,000 of 10,000, median", statistics.median(took[-2_000:]), "ms", "< 1", _load())
        yield Row("for comparison: a bare commit of one row, median", bare, "ms")
        plan, compactions = _plan(store, session.id), []
        for _ in range(_REPEATS):
            compactions.append(_ms(lambda: store.compact(session.id, plan)))
            store.undo(session.id)
        yield Row("compact a view of 10,000 messages", min(compactions), "ms", "< 30")
        tip = store.compact(session.id, plan).id
        short = min(_ms(lambda: store.history(tip)) for _ in range(_TRIES))
        kept = store.history(tip).messages
        yield Row(f"load a history of {len(kept)} messages", short, "ms", "< 20")
        # Processor time: half a second of work is interrupted on a busy machine, two milliseconds are not.
        whole = min(_cpu_ms(lambda: store.history(session.id), times=1) for _ in range(_REPEATS))
        part = _cpu_ms(lambda: store.history(tip), times=100) / _size(kept)
        yield Row("load one of 10,000 messages, processor time", whole, "ms", "<= 250", _load())
        yield Row("load one of 10,000: processor time per byte against that", whole / content / part, "×", "< 2")
        resumed = min(_ms(lambda: store.history(store.get_compression_tip(session.id[:-1]))) for _ in range(_TRIES))
        yield Row("resume by a beginning of an old id", resumed, "ms", "< 20")
    yield Row("content of the conversation", content / 1e6, "MB")
    yield Row("database / content, index included", path.stat().st_size / content, "×", "<= 1.6")


def _a_million(path: Path) -> Iterator[Row]:
    corpus = Corpus()
    started = time.perf_counter()
    with open_store(path) as store:
        tips = _fill(store, corpus, _STORE)
        seconds = time.perf_counter() - started
        yield Row(f"filling it, {_STORE:,} messages in {len(tips):,} conversations", seconds, "s")
        yield from filled(store, tips, corpus, beside=path)
    yield Row("size of the database", path.stat().st_size / 1e9, "GB")


def filled(store: SessionStore, tips: list[str], corpus: Corpus, *, beside: Path) -> Iterator[Row]:
    """The bars of a store that is full already, so that it can be measured again without filling another."""
    with _bare(beside.with_name("bare-full.db")) as commit:
        messages = islice(corpus.messages(words=40), 1_000)
        took = [_ms(lambda m=m: store.append(tips[0], m)) for m in messages]
        alone = statistics.median(_ms(commit) for _ in range(500))
    bare = f"a bare commit {alone:.2f} ms, {_load()}"
    yield Row("append in a store of a million, median", statistics.median(took), "ms", "< 1", bare)
    asked = _queries(corpus)
    # Vectors are made after the first search, in the background; here they would only take processor time.
    store.vectors.close()
    for name, queries in asked.items():
        yield _searched(store, name, queries)
    owner = store.conversations.get(tips[0]).user
    yield _searched(store, "two words, of one user", asked["two words"], visibility=owner)
    lists = [_ms(lambda: store.conversations.list(limit=50)) for _ in range(_TRIES)]
    yield Row("list 50 conversations, p95", _p95(lists), "ms", "< 20")
    some = random.Random(3).sample(tips, _TRIES)
    owners = [store.conversations.get(t).user for t in some]
    mine = [_ms(lambda u=u: store.conversations.list(visibility=u, limit=50)) for u in owners]
    yield Row("list 50 conversations of one user, p95", _p95(mine), "ms", "< 20")
    resumed = [_ms(lambda t=t: store.history(store.get_compression_tip(t))) for t in some]
    yield Row("resume (tip and history), p95", _p95(resumed), "ms", "< 20")
    cursor = store.changes.now()
    looks = [_ms(lambda: store.changes.since(cursor)) for _ in range(_TRIES)]
    yield Row("ask what changed, nothing did, p95", _p95(looks), "ms")
    pages = [_ms(lambda t=t: store.timeline.page(t, limit=100)) for t in some]
    yield Row("the newest 100 of a timeline, p95", _p95(pages), "ms", "< 20")


def _searched(store: SessionStore, name: str, queries: list[str], *, visibility: Visibility = EVERYONE) -> Row:
    found, times, processor = 0, [], []
    for query in queries:
        began = time.process_time()
        started = time.perf_counter()
        found += bool(store.search(query, visibility=visibility))
        times.append((time.perf_counter() - started) * 1_000)
        processor.append((time.process_time() - began) * 1_000)
    note = f"{found} of {len(queries)} found; {_p95(processor):.1f} of processor time, {_load()}"
    return Row(f"search, {name}, p95", _p95(times), "ms", "< 50", note)


def _queries(corpus: Corpus) -> dict[str, list[str]]:
    chance = random.Random(11)
    common, rarer = corpus.words[:400], corpus.words[400:8_000]
    return {
        "two words": [f"{chance.choice(common)} {chance.choice(rarer)}" for _ in range(_TRIES)],
        "two common words": [" ".join(chance.sample(common, 2)) for _ in range(_TRIES)],
        "question of four words": [corpus.question(chance) for _ in range(_TRIES)],
        "two Chinese characters": chance.sample(corpus.han, _TRIES),
        "identifier": chance.sample(corpus.identifiers, _TRIES),
        "path": chance.sample(corpus.paths, _TRIES),
        "end of a path": ["/".join(p.split("/")[-2:]) for p in chance.sample(corpus.paths, _TRIES)],
        "prefix": [f"{w[:4]}*" for w in chance.sample([w for w in corpus.words if len(w) > 5], _TRIES)],
        "phrase of two": [f'"{corpus.sentence(2)}"' for _ in range(_TRIES)],
        "a word nobody said": [f"zz{n}zz nowhere" for n in range(_TRIES)],
    }


def _fill(store: SessionStore, corpus: Corpus, count: int) -> list[str]:
    """Conversations of a few hundred messages, some of them compacted: a few years of heavy use."""
    source, tips = corpus.messages(words=24), []
    for number in range(0, count, _BATCH):
        session = store.create(title=corpus.sentence(4), source="bench", user_key=f"user{len(tips) % 50}")
        store.append(session.id, list(islice(source, min(_BATCH, count - number))))
        store.compact(session.id, _plan(store, session.id))
        tips.append(session.id)
    return tips


def _plan(store: SessionStore, any_id: str) -> Plan:
    entries = store.history(store.get_compression_tip(any_id)).entries
    summary = Message("user", f"{HANDOFF_FIRST_LINE}\n{'what was done and what is left ' * 120}", kind="handoff")
    return (*(_one(e.seq) for e in entries[:3]), NewHandoff(summary), *(_one(e.seq) for e in entries[-60:]))


def _one(seq: int) -> Span:
    return Span(seq, seq)


def _size(messages: Iterable[Message]) -> int:
    return sum(len(encode(m).canonical) for m in messages)


@contextmanager
def _bare(path: Path) -> Iterator[Callable[[], object]]:
    """What this machine's disk takes for one small durable commit, whoever asks for it."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS bare (x)")
    try:
        yield lambda: connection.execute("INSERT INTO bare VALUES (?)", ("x" * 1_000,))
    finally:
        connection.close()


def _load() -> str:
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def _real_or_made() -> tuple[list[Message], str]:
    """Recorded messages where they are at hand, else made ones of the same size."""
    try:
        real = [Message.from_dict(m) for s in sessions("entire_cli") for m in s["messages"]]
        return [real[n % len(real)] for n in range(_MESSAGES)], "recorded sessions"
    except Skip:
        return list(islice(Corpus().messages(words=130), _MESSAGES)), "made by code"


def _ms(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1_000


def _cpu_ms(work: Callable[[], object], *, times: int) -> float:
    started = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - started) * 1_000 / times


def _p95(times: Iterable[float]) -> float:
    ordered = sorted(times)
    return ordered[int(len(ordered) * 0.95)]
