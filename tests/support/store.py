"""Databases for the store's conformance suite: each a Backend, so that one suite proves them all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from perdure.core.messages import HANDOFF_FIRST_LINE, Message, ToolCall, assistant, tool_result, user
from perdure.core.ports import Clock
from perdure.store import NewHandoff, SessionStore, Span, open_store
from support.postgres import PostgresBackend


class FakeClock:
    """Time that moves only when told to."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000

    def pass_ms(self, ms: int) -> None:
        self.ms += ms


class Backend(Protocol):
    """One database under test, which can be opened again and again."""

    name: str

    @property
    def where(self) -> str:
        """What `open_store` takes."""
        ...

    def open(self, clock: Clock | None = None) -> SessionStore:
        """A store over the same data, as another process would open it."""
        ...

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Raw SQL with `?` marks, committed, past everything of ours; raises what the driver raises."""
        ...

    def close(self) -> None:
        """Every store it opened."""
        ...


class SqliteBackend:
    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "sessions.db"
        self._opened: list[SessionStore] = []

    @property
    def where(self) -> str:
        return str(self.path)

    def open(self, clock: Clock | None = None) -> SessionStore:
        store = open_store(self.path, clock=clock)
        self._opened.append(store)
        return store

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self.path, timeout=30)
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            with connection:
                return connection.execute(sql, values).fetchall()
        finally:
            connection.close()

    def close(self) -> None:
        for store in self._opened:
            store.close()


def backend_of(name: str, folder: Path) -> Backend:
    """The database of that name, empty."""
    makers = {"sqlite": SqliteBackend, "postgresql": PostgresBackend}
    return makers[name](folder)


BACKENDS = ("sqlite", "postgresql")


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    made = backend_of(request.param, tmp_path)
    yield made
    made.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(backend: Backend, clock: FakeClock) -> SessionStore:
    return backend.open(clock)


def exchange(number: int) -> list[Message]:
    """A question, a tool call with its result, and an answer: four messages."""
    call = ToolCall(f"call_{number}", "terminal", '{"command":"ls"}')
    return [
        user(f"question {number}"),
        assistant(None, (call,)),
        tool_result(call.id, f"listing {number}", "terminal"),
        assistant(f"answer {number}"),
    ]


def handoff(text: str = "what happened so far") -> NewHandoff:
    return NewHandoff(Message("user", f"{HANDOFF_FIRST_LINE}\n{text}", kind="handoff"), model="small-model")


def conversation(store: SessionStore, exchanges: int = 5) -> str:
    """A session with some exchanges in it: its id."""
    session = store.create(system_prompt="You are helpful.", title="A talk")
    store.append(session.id, [m for n in range(exchanges) for m in exchange(n)])
    return session.id


def compacted(store: SessionStore, any_id: str, *, head: int = 2, tail: int = 4) -> str:
    """Compacts everything between head and tail: the child's id."""
    seqs = [e.seq for e in store.history(store.get_compression_tip(any_id)).entries]
    plan = (*(Span(s, s) for s in seqs[:head]), handoff(), *(Span(s, s) for s in seqs[-tail:]))
    return store.compact(any_id, plan).id
