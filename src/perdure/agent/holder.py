"""Who holds a conversation: a process on a machine, by a name from which others can tell whether it still lives.

A host name and a process id are not enough: a container that is restarted has both again (PID 1), and the id of a dead
process is given to another. So a name also has the boot, the PID namespace and the tick in which the process began:
`host:pid@boot-namespace-start`. Where the system does not tell the last, it is random.
"""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path

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


def this_process() -> str:
    """The name of this process, as leases record their holder."""
    return str(_own(os.getpid()))


def is_gone(holder: str) -> bool:
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
