"""Leases on conversations: acquire, renew, release, detect dead holders."""

from __future__ import annotations

import logging
import os
import re
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from perdure.core.errors import LeaseLost, StoreError, StoreUnavailable
from perdure.store.db.database import Row, Transaction, to_seq, to_text, to_time_ms
from perdure.store.queries import StoreContext, conversation_id_of
from perdure.store.records import Lease

_log = logging.getLogger(__name__)

DEFAULT_TTL_MS = 30_000
_PROC = Path("/proc")
# The part of a holder id that is not shown to users.
_ID_SUFFIX = re.compile(r"@[0-9a-f]*-[0-9]*-[0-9a-f]+$")


@dataclass(frozen=True, slots=True)
class _Holder:
    host: str
    pid: int
    # Empty in ids written by older versions; boot and namespace also where the system does not provide them.
    boot: str = ""
    namespace: str = ""
    start: str = ""

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}@{self.boot}-{self.namespace}-{self.start}"


def holder_id() -> str:
    """Return the id under which this process holds leases."""
    return str(_own(os.getpid()))


def is_holder_dead(holder: str) -> bool:
    """Return whether a holder on this machine has died, so that its lease can be taken before it expires."""
    other, own = _parse(holder), _own(os.getpid())
    if other is None or other == own or other.host != own.host:
        return False
    if not other.start:
        return other.pid != own.pid and not _is_running(other.pid)
    if other.boot != own.boot:  # this machine before a reboot, or another one with the same host name
        return False
    if other.namespace != own.namespace:
        # Processes of another PID namespace are invisible. The same host name and pid belong to the process that ran
        # in this container before a restart.
        return other.pid == own.pid
    if other.pid == own.pid:
        return True
    started = _start_of(str(other.pid)) if _is_own_proc() else None
    return not _is_running(other.pid) if started is None else started != other.start


@cache
def _own(pid: int) -> _Holder:
    """Describe this process as a lease holder; cached, so that a change of the host name does not matter."""
    start = _start_of("self") or secrets.token_hex(6)
    return _Holder(socket.gethostname(), pid, _boot(), _namespace(), start)


def _parse(holder: str) -> _Holder | None:
    name, _, suffix = holder.partition("@")
    host, _, pid = name.rpartition(":")
    if not (pid.isascii() and pid.isdigit()):
        return None
    parts = suffix.split("-")
    return _Holder(host, int(pid), *parts) if len(parts) == 3 else _Holder(host, int(pid))


def _start_of(process: str) -> str | None:
    """Return the start time of a process in clock ticks, "" for a zombie, None where /proc is not available."""
    try:
        stat = (_PROC / process / "stat").read_text("utf-8", errors="replace")
    except OSError:
        return None
    # The program name is in parentheses and may contain anything. The state is field 3, the start time field 22.
    state, *fields = stat.rpartition(")")[2].split()
    return "" if state in ("Z", "X") else fields[18]


def _is_own_proc() -> bool:
    """Return whether /proc shows our own PID namespace; after `unshare --pid` alone it shows the parent's."""
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
    except OSError:  # it runs as another user
        return True
    return True


class Leases:
    """Exclusive write leases on conversations, with fencing tokens."""

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
        """Acquire the lease. Raises LeaseLost, naming the holder, while another holder's lease is valid.

        The lease of a holder for which `is_dead` returns True is taken over, and so is a lease of `holder` itself that
        no thread of this process uses.
        """
        claims, attempt = _process_claims(os.getpid()), object()

        def insert(tx: Transaction) -> Lease:
            conversation, _ = self._context.lock_conversation(tx, any_id)
            claims.add(attempt, conversation.id)
            row = _newest(tx, conversation.id)
            now = self._context.clock.now_ms()
            is_running = row is not None and row[2] > now
            # Ours, but unused: the response to an acquire or release was lost with its connection.
            is_orphan = row is not None and row[0] == holder and claims.is_only(attempt, conversation.id)
            if row is not None and is_running and not is_orphan and not is_dead(row[0]):
                raise _lease_error(conversation.id, row[0], row[2])
            lease = Lease(conversation.id, holder, (row[1] if row else 0) + 1, now + ttl_ms)
            tx.run(
                "INSERT INTO lease (conversation, holder, token, expires_at) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (conversation) DO UPDATE SET holder = excluded.holder, token = excluded.token,"
                " expires_at = excluded.expires_at",
                (lease.conversation_id, lease.holder, lease.token, lease.expires_at_ms),
            )
            return lease

        try:
            lease = self._context.database.write_unsynced(insert)
            claims.add((lease.conversation_id, lease.token), lease.conversation_id)
            return lease
        finally:
            claims.discard(attempt)

    def renew(self, lease: Lease, *, ttl_ms: int = DEFAULT_TTL_MS) -> Lease:
        """Extend the lease. Raises LeaseLost when it was released or taken over."""

        def extend(tx: Transaction) -> Lease:
            self._context.lock_conversation(tx, lease.conversation_id)
            now = self._context.clock.now_ms()
            check_lease(tx, lease.conversation_id, lease, now_ms=now)
            until = now + ttl_ms
            # A late heartbeat must not revive a released lease, which would never be released again.
            sql = "UPDATE lease SET expires_at = ? WHERE conversation = ? AND expires_at > 0"
            if not tx.run(sql, (until, lease.conversation_id)):
                raise LeaseLost(f"the lease of {lease.conversation_id} was released already")
            return replace(lease, expires_at_ms=until)

        return self._context.database.write_unsynced(extend)

    def release(self, lease: Lease) -> None:
        """Release the lease; a lost one is ignored.

        When the database is unreachable, other processes wait until it expires, but this one can acquire it again.
        """
        _process_claims(os.getpid()).discard((lease.conversation_id, lease.token))
        self._context.database.write_unsynced(
            lambda tx: tx.run(
                "UPDATE lease SET expires_at = 0 WHERE conversation = ? AND token = ?",
                (lease.conversation_id, lease.token),
            )
        )

    def holder_of(self, any_id: str) -> Lease | None:
        """Return the valid lease, or None."""

        def load(tx: Transaction) -> Lease | None:
            row = tx.row(
                "SELECT conversation, holder, token, expires_at FROM lease WHERE conversation = ? AND expires_at > ?",
                (conversation_id_of(tx, any_id), self._context.clock.now_ms()),
            )
            return Lease(to_text(row[0]), *lease_row(row[1:])) if row else None

        return self._context.database.read(load)

    @contextmanager
    def hold(
        self,
        any_id: str,
        holder: str,
        *,
        ttl_ms: int = DEFAULT_TTL_MS,
        is_dead: Callable[[str], bool] = lambda holder: False,
    ) -> Iterator[Lease]:
        """Hold a lease for a block, renewed by a heartbeat thread at a third of its TTL, released at the end.

        The block may end in another thread than it began.
        """
        lease = self.acquire(any_id, holder, ttl_ms=ttl_ms, is_dead=is_dead)
        heartbeat = _Heartbeat(lambda: self.renew(lease, ttl_ms=ttl_ms), ttl_ms / 3000)
        try:
            yield lease
        finally:
            heartbeat.stop()
            try:
                self.release(lease)
            except StoreError as error:
                # The work is stored; other processes only have to wait until the lease expires.
                _log.warning("the lease of %s was not released: %s", lease.conversation_id, error)


class _Heartbeat:
    """Renews a lease at an interval until it is stopped, or the lease is lost."""

    def __init__(self, renew: Callable[[], object], interval_s: float) -> None:
        self._renew = renew
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._is_stopped = False
        self._timer = self._start()

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            timer = self._timer
        timer.cancel()
        timer.join()

    def _start(self) -> threading.Timer:
        timer = threading.Timer(self._interval_s, self._beat)
        timer.daemon = True
        timer.name = "perdure-lease"
        timer.start()
        return timer

    def _beat(self) -> None:
        try:
            self._renew()
        except LeaseLost:
            return  # not reported here: the next write with the stale token raises LeaseLost
        except StoreUnavailable:
            pass  # the database may be reachable again for the next heartbeat
        with self._lock:
            if not self._is_stopped:
                self._timer = self._start()


class _Claims:
    """Leases that this process holds or is acquiring, by conversation. Thread-safe."""

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
        """Return whether no other claim of this process is on the conversation."""
        with self._lock:
            return all(i != conversation_id or c is claim for c, i in self._claims.items())


@cache
def _process_claims(pid: int) -> _Claims:
    return _Claims()


def check_lease(tx: Transaction, conversation_id: str, lease: Lease | None, *, now_ms: int) -> None:
    """Check that a write has the newest lease of the conversation, or that no lease is valid. Raises LeaseLost."""
    check_lease_row(_newest(tx, conversation_id), conversation_id, lease, now_ms=now_ms)


def check_lease_row(newest: Row | None, conversation_id: str, lease: Lease | None, *, now_ms: int) -> None:
    """Check a write against a lease row (holder, token, expiry) that was already read. Raises LeaseLost."""
    if lease is None:
        if newest is not None and newest[2] > now_ms:
            raise _lease_error(conversation_id, newest[0], newest[2])
        return
    if lease.conversation_id != conversation_id:
        raise StoreError(f"the lease is for {lease.conversation_id}, not for {conversation_id}")
    if newest is None or newest[1] != lease.token:
        raise _lease_error(conversation_id, newest[0] if newest else "no one", newest[2] if newest else 0)


def _newest(tx: Transaction, conversation_id: str) -> Row | None:
    row = tx.row("SELECT holder, token, expires_at FROM lease WHERE conversation = ?", (conversation_id,))
    return None if row is None else lease_row(row)


def lease_row(row: Row) -> Row:
    """Return the values of a lease row (holder, token, expiry); a damaged expiry counts as expired."""
    return to_text(row[0]), to_seq(row[1]), to_time_ms(row[2])


def _lease_error(conversation_id: str, holder: str, expires_at_ms: int) -> LeaseLost:
    until = datetime.fromtimestamp(expires_at_ms / 1000, UTC).strftime("%H:%M:%S UTC")
    name = _ID_SUFFIX.sub("", holder)
    return LeaseLost(f"{conversation_id} is being written by {name} (until {until}); wait for it, or open another")
