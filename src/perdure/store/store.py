"""`SessionStore`: one object, small roles. `open_store` makes it of a path or a URL."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from perdure.core.clock import SystemClock
from perdure.core.errors import StoreUnavailable
from perdure.core.ports import Clock
from perdure.store.backing import Backing
from perdure.store.compaction import Compactions
from perdure.store.conversations import Conversations
from perdure.store.fts import FtsIndex
from perdure.store.ids import IdSource, TimeIds
from perdure.store.leases import Leases
from perdure.store.ledger import Ledger
from perdure.store.log import AnyMessage, Log
from perdure.store.records import Appended, History, Lease, Plan, Route, Session
from perdure.store.state import State


class SessionStore:
    """Everything said, kept for ever. Synchronous and thread-safe; each role is a small object of its own.

    .conversations   create, branch, delegate, find, list, title      .log      append, ingest, history, read
    .compactions     compact, undo                                    .ledger   calls, events, totals, usage
    .leases          one writer at a time                             .state()  small values that survive a restart
    """

    def __init__(self, backing: Backing) -> None:
        self._backing = backing
        self.conversations = Conversations(backing)
        self.log = Log(backing)
        self.compactions = Compactions(backing)
        self.ledger = Ledger(backing)
        self.leases = Leases(backing)

    def create(
        self,
        *,
        system_prompt: str = "",
        route: Route | None = None,
        source: str = "",
        user_key: str = "",
        chat_key: str = "",
        title: str = "",
    ) -> Session:
        """A new conversation's first session."""
        return self.conversations.create(
            system_prompt=system_prompt, route=route, source=source, user_key=user_key, chat_key=chat_key, title=title
        )

    def append(
        self,
        any_id: str,
        messages: AnyMessage | Sequence[AnyMessage],
        *,
        after_seq: int | None = None,
        lease: Lease | None = None,
    ) -> Appended:
        """Adds to the conversation's tip, durably; see Log.append."""
        return self.log.append(any_id, messages, after_seq=after_seq, lease=lease)

    def history(self, session_id: str) -> History:
        """One session as it is sent; a conversation id means its tip."""
        return self.log.history(session_id)

    def compact(
        self,
        any_id: str,
        plan: Plan,
        *,
        system_prompt: str | None = None,
        route: Route | None = None,
        up_to_seq: int | None = None,
        lease: Lease | None = None,
    ) -> Session:
        """Ends the tip and goes on in a child; see Compactions.compact."""
        return self.compactions.compact(
            any_id, plan, system_prompt=system_prompt, route=route, up_to_seq=up_to_seq, lease=lease
        )

    def undo(self, any_id: str, *, lease: Lease | None = None) -> Session:
        """Goes on as if the newest compaction had not been; nothing is deleted."""
        return self.compactions.undo(any_id, lease=lease)

    def get_compression_tip(self, any_id: str) -> str:
        """The newest continuation of any id of a conversation: where a resume lands."""
        return self.conversations.get_compression_tip(any_id)

    def state(self, scope: str) -> State:
        """Small values that survive a restart, apart for each scope."""
        return State(self._backing, scope)

    def close(self) -> None:
        self._backing.database.close()

    def __enter__(self) -> SessionStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_store(path_or_url: str | Path, *, clock: Clock | None = None, ids: IdSource | None = None) -> SessionStore:
    """The store at a file path, `sqlite:///path` or `postgresql://…`. Made if it is new, brought up to date if old."""
    clock = clock or SystemClock()
    ids = ids or TimeIds(clock)
    where = str(path_or_url)
    scheme, separator, rest = where.partition("://")
    if not separator or scheme == "sqlite":
        from perdure.store.sqlite_open import open_sqlite

        path = Path(rest.removeprefix("/") if separator else where).expanduser()
        return SessionStore(Backing(open_sqlite(path, clock=clock), FtsIndex(), clock, ids))
    raise StoreUnavailable(f"{scheme}:// is no database Perdure knows; give a file path or postgresql://…")
