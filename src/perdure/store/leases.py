"""Leases on conversations: acquire, renew, release, recognise a dead holder."""

from __future__ import annotations

import logging
import os
import re
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from perdure.core.errors import LeaseLost, StoreError, StoreUnavailable
from perdure.store.context import StoreContext
from perdure.store.db.database import Row, Transaction
from perdure.store.queries import conversation_id_of
from perdure.store.records import Lease

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class _Holder:
    host: str
    pid: int
    # All three are "" in the names that older versions wrote, and the first two where the system does not tell them.
    boot: str = ""
    namespace: str = ""
    start: str = ""

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}@{self.boot}-{self.namespace}-{self.start}"


def holder_id() -> str:
    """The name of this process, as leases record their holder."""
    return str(_own(os.getpid()))


def is_holder_dead(holder: str) -> bool:
    """Whether a holder on this very machine has died, so that nobody need wait for its lease to run out."""
    other, own = _parse(holder), _own(os.getpid())
    if other is None or other == own or other.host != own.host:
        return False
    if not other.start:
        return other.pid != own.pid and not _is_running(other.pid)
    if other.boot != own.boot:  # this machine before it was started again, or another one of the same name
        return False
    if other.namespace != own.namespace:
        # Processes of another PID namespace cannot be seen. With our own host name and id it was the one that ran in
        # this container before it was restarted.
        return other.pid == own.pid
    if other.pid == own.pid:
        return True
    started = _start_of(str(other.pid)) if _is_own_proc() else None
    return not _is_running(other.pid) if started is None else started != other.start


@cache
def _own(pid: int) -> _Holder:
    """Asked once: a process keeps its name, also where the machine is renamed meanwhile."""
    start = _start_of("self") or secrets.token_hex(6)
    return _Holder(socket.gethostname(), pid, _boot(), _namespace(), start)


def _parse(holder: str) -> _Holder | None:
    name, _, marks = holder.partition("@")
    host, _, pid = name.rpartition(":")
    if not (pid.isascii() and pid.isdigit()):
        return None
    parts = marks.split("-")
    return _Holder(host, int(pid), *parts) if len(parts) == 3 else _Holder(host, int(pid))


def _start_of(process: str) -> str | None:
    """The tick at which a process began, "" for one that has ended; None where the system does not tell."""
    try:
        stat = (_PROC / process / "stat").read_text("utf-8", errors="replace")
    except OSError:
        return None
    # The program's name stands in parentheses and may hold anything. After it come the state (the third field), and the
    # start as the 22nd.
    state, *fields = stat.rpartition(")")[2].split()
    return "" if state in ("Z", "X") else fields[18]


def _is_own_proc() -> bool:
    """Whether /proc shows our own PID namespace; after `unshare --pid` alone it shows the one around it."""
    try:
        return os.readlink(_PROC / "self") == str(os.getpid())
    except OSError:
        return False


def _boot() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text("utf-8").strip().replace("-", "")[:12]
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return os.readlink(_PROC / "self/ns/pid").strip("pid:[]")
    except OSError:
        return ""


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it runs, and is somebody else's
        return True
    return True


_log = logging.getLogger(__name__)

DEFAULT_TTL_MS = 30_000
# What tells a process from others of the same host name and id; of no use to a person.
_MARKS = re.compile(r"@[0-9a-f]*-[0-9]*-[0-9a-f]+$")


class Leases:
    """Taken, renewed by heartbeat, released; the loser reads who holds it."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context

    def acquire(
        self,
        any_id: str,
        holder: str,
        *,
        ttl_ms: int = DEFAULT_TTL_MS,
        is_dead: Callable[[str], bool] = lambda holder: False,
    ) -> Lease:
        """Raises LeaseLost, naming the holder, while another's lease runs; one who `is_dead` is not waited for.

        `holder` names the process: a lease in its name that nobody in this process has is taken over at once.
        """
        claims, attempt = _process_claims(os.getpid()), object()

        def take(tx: Transaction) -> Lease:
            conversation, _ = self._context.lock_conversation(tx, any_id)
            claims.add(attempt, conversation.id)
            row = _newest(tx, conversation.id)
            now = self._context.clock.now_ms()
            is_running = row is not None and row[2] > now
            # Ours, and nobody here has it: the answer to an acquire or a release was lost with its connection.
            is_orphan = row is not None and row[0] == holder and claims.is_only(attempt, conversation.id)
            if row is not None and is_running and not is_orphan and not is_dead(row[0]):
                raise _held(conversation.id, row[0], row[2])
            lease = Lease(conversation.id, holder, (row[1] if row else 0) + 1, now + ttl_ms)
            tx.run(
                "INSERT INTO lease (conversation, holder, token, expires_at) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (conversation) DO UPDATE SET holder = excluded.holder, token = excluded.token,"
                " expires_at = excluded.expires_at",
                (lease.conversation_id, lease.holder, lease.token, lease.expires_at_ms),
            )
            return lease

        try:
            lease = self._context.database.write(take)
            claims.add((lease.conversation_id, lease.token), lease.conversation_id)
            return lease
        finally:
            claims.discard(attempt)

    def renew(self, lease: Lease, *, ttl_ms: int = DEFAULT_TTL_MS) -> Lease:
        """The same lease, running longer. Raises LeaseLost when another has taken over."""

        def extend(tx: Transaction) -> Lease:
            self._context.lock_conversation(tx, lease.conversation_id)
            now = self._context.clock.now_ms()
            admit(tx, lease.conversation_id, lease, now_ms=now)
            until = now + ttl_ms
            # A beat that comes late must not bring back what was released: nobody would ever release it again.
            sql = "UPDATE lease SET expires_at = ? WHERE conversation = ? AND expires_at > 0"
            if not tx.run(sql, (until, lease.conversation_id)):
                raise LeaseLost(f"the lease of {lease.conversation_id} was released already")
            return replace(lease, expires_at_ms=until)

        return self._context.database.write(extend)

    def release(self, lease: Lease) -> None:
        """Free for the next one; nothing happens when it was lost already.

        Where the database cannot be reached, others wait until it runs out, but this process may take it again.
        """
        _process_claims(os.getpid()).discard((lease.conversation_id, lease.token))
        self._context.database.write(
            lambda tx: tx.run(
                "UPDATE lease SET expires_at = 0 WHERE conversation = ? AND token = ?",
                (lease.conversation_id, lease.token),
            )
        )

    def holder_of(self, any_id: str) -> Lease | None:
        """The lease that runs now, or None."""

        def look(tx: Transaction) -> Lease | None:
            row = tx.row(
                "SELECT conversation, holder, token, expires_at FROM lease WHERE conversation = ? AND expires_at > ?",
                (conversation_id_of(tx, any_id), self._context.clock.now_ms()),
            )
            return Lease(*row) if row else None

        return self._context.database.read(look)

    @contextmanager
    def hold(
        self,
        any_id: str,
        holder: str,
        *,
        ttl_ms: int = DEFAULT_TTL_MS,
        is_dead: Callable[[str], bool] = lambda holder: False,
    ) -> Iterator[Lease]:
        """A lease for a block of work, renewed by a heartbeat at a third of its life, released at the end."""
        lease = self.acquire(any_id, holder, ttl_ms=ttl_ms, is_dead=is_dead)
        done = threading.Event()

        def beat() -> None:
            # A failed beat is no one's to report: the next write shows the stale token and is refused.
            with suppress(LeaseLost):
                while not done.wait(ttl_ms / 3000):
                    # A database that cannot be reached now may be there again for the next beat.
                    with suppress(StoreUnavailable):
                        self.renew(lease, ttl_ms=ttl_ms)

        heartbeat = threading.Thread(target=beat, name=f"lease {lease.conversation_id}", daemon=True)
        heartbeat.start()
        try:
            yield lease
        finally:
            done.set()
            heartbeat.join()
            try:
                self.release(lease)
            except StoreError as error:
                # The work is done and stored; that nobody else may go on for a moment does not undo it.
                _log.warning("the lease of %s was not released: %s", lease.conversation_id, error)


class _Claims:
    """The leases that this process has or is about to have, each with its conversation."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claims: dict[object, str] = {}

    def add(self, claim: object, conversation_id: str) -> None:
        with self._lock:
            self._claims[claim] = conversation_id

    def discard(self, claim: object) -> None:
        with self._lock:
            self._claims.pop(claim, None)

    def is_only(self, claim: object, conversation_id: str) -> bool:
        """Whether nobody else in this process claims the conversation."""
        with self._lock:
            return all(i != conversation_id or c is claim for c, i in self._claims.items())


@cache
def _process_claims(pid: int) -> _Claims:
    return _Claims()


def admit(tx: Transaction, conversation_id: str, lease: Lease | None, *, now_ms: int) -> None:
    """Lets a write pass: with the newest lease, or with none while no one else's runs. Raises LeaseLost."""
    judge(_newest(tx, conversation_id), conversation_id, lease, now_ms=now_ms)


def judge(newest: Row | None, conversation_id: str, lease: Lease | None, *, now_ms: int) -> None:
    """The same by a row that was read already: holder, token and expiry of the newest lease there was."""
    if lease is None:
        if newest is not None and newest[2] > now_ms:
            raise _held(conversation_id, newest[0], newest[2])
        return
    if lease.conversation_id != conversation_id:
        raise StoreError(f"the lease is for {lease.conversation_id}, not for {conversation_id}")
    if newest is None or newest[1] != lease.token:
        raise _held(conversation_id, newest[0] if newest else "nobody", newest[2] if newest else 0)


def _newest(tx: Transaction, conversation_id: str) -> Row | None:
    return tx.row("SELECT holder, token, expires_at FROM lease WHERE conversation = ?", (conversation_id,))


def _held(conversation_id: str, holder: str, expires_at_ms: int) -> LeaseLost:
    until = datetime.fromtimestamp(expires_at_ms / 1000, UTC).strftime("%H:%M:%S UTC")
    name = _MARKS.sub("", holder)
    return LeaseLost(f"{conversation_id} is being written by {name} (until {until}); wait for it, or open another")
