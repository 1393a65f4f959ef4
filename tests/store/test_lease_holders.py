"""A dead process on this machine is not waited for; anyone else is."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from perdure.store.leases import holder_id, is_holder_dead

pytestmark = pytest.mark.spec("I7")


def test_this_process_lives() -> None:
    assert not is_holder_dead(holder_id())


def test_a_process_that_ended_is_gone() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert is_holder_dead(f"{socket.gethostname()}:{ended.pid}")


def named(pid: int, *, host: str | None = None, boot: str = "", namespace: str = "", start: str = "") -> str:
    """This process's name, with some of its parts replaced."""
    own = holder_id().partition("@")[2].split("-")
    marks = [boot or own[0], namespace or own[1], start or own[2]]
    return f"{host or socket.gethostname()}:{pid}@{'-'.join(marks)}"


def test_whoever_had_our_process_id_before_us_is_gone() -> None:
    assert is_holder_dead(named(os.getpid(), start="1"))
    assert is_holder_dead(named(os.getpid(), namespace="4026539999", start="1")), "a container that was restarted"


def test_a_process_id_that_was_given_to_another_process_says_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert is_holder_dead(named(child.pid, start="1"))
        child.communicate(b"\n")


def test_a_living_process_is_not_gone_and_a_dead_one_is_before_it_is_reaped() -> None:
    code = "from perdure.store.leases import holder_id as t; print(t(), flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        holder = child.stdout.readline().decode().strip()
        assert not is_holder_dead(holder)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and still in the table of processes
        assert is_holder_dead(holder)


def test_a_fork_is_a_holder_of_its_own() -> None:
    before = holder_id()
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.write(write, holder_id().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 500).decode() != before
    os.close(read)
    os.close(write)


@pytest.mark.parametrize(
    "elsewhere",
    [{"host": "another-machine"}, {"boot": "000000000000"}],
    ids=["another machine", "another boot, or a machine of the same name"],
)
def test_who_cannot_be_seen_from_here_is_waited_for(elsewhere: dict[str, str]) -> None:
    assert not is_holder_dead(named(os.getpid(), start="1", **elsewhere))
    assert not is_holder_dead(named(999_999, namespace="4026539999", start="1"))


@pytest.mark.parametrize("holder", ["another-machine:1", "no pid here", "", f"{socket.gethostname()}:x"])
def test_who_cannot_be_looked_at_is_taken_to_live(holder: str) -> None:
    assert not is_holder_dead(holder)


def test_somebody_elses_process_lives() -> None:
    assert not is_holder_dead(f"{socket.gethostname()}:1") or os.getpid() == 1
