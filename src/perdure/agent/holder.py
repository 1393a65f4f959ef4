"""Who holds a conversation: a process on a machine, by a name from which others can tell whether it still lives."""

from __future__ import annotations

import os
import socket


def this_process() -> str:
    """`host:pid`, as leases name their holder."""
    return f"{socket.gethostname()}:{os.getpid()}"


def is_gone(holder: str) -> bool:
    """Whether a holder on this very machine has died, so that nobody need wait for its lease to run out."""
    host, _, pid = holder.rpartition(":")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:  # it lives, and is somebody else's
        return False
    return False
