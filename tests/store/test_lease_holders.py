"""A dead process on this machine is not waited for; anyone else is."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from perdure.store.leases import holder_id, is_holder_dead

pytestmark = pytest.mark.spec("I7")


def test_this_process_is_alive() -> None:
    assert not is_holder_dead(holder_id())


def test_an_ended_process_is_dead() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert is_holder_dead(f"{socket.gethostname()}:{ended.pid}")


def named(pid: int, *, host: str | None = None, boot: str = "", namespace: str = "", start: str = "") -> str:
    """This process's name, with some of its parts replaced."""
    own = holder_id().partition("@")[2].split("-")
    marks = [boot or own[0], namespace or own[1], start or own[2]]
    return f"{host or socket.gethostname()}:{pid}@{'-'.join(marks)}"


def test_a_previous_process_with_our_process_id_is_dead() -> None:
    assert is_holder_dead(named(os.getpid(), start="1"))
    assert is_holder_dead(named(os.getpid(), namespace="4026539999", start="1")), "a container that was restarted"


def test_a_reused_process_id_does_not_keep_the_holder_alive() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert is_holder_dead(named(child.pid, start="1"))
        child.communicate(b"\n")


def test_a_running_process_is_alive_and_a_zombie_is_dead() -> None:
    code = "from perdure.store.leases import holder_id as t; print(t(), flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        holder = child.stdout.readline().decode().strip()
        assert not is_holder_dead(holder)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and still in the table of processes
        assert is_holder_dead(holder)


def test_a_forked_process_has_its_own_holder_id() -> None:
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
def test_a_process_in_another_namespace_is_assumed_alive(elsewhere: dict[str, str]) -> None:
    assert not is_holder_dead(named(os.getpid(), start="1", **elsewhere))
    assert not is_holder_dead(named(999_999, namespace="4026539999", start="1"))


@pytest.mark.parametrize("holder", ["another-machine:1", "no pid here", "", f"{socket.gethostname()}:x"])
def test_a_process_that_cannot_be_inspected_is_assumed_alive(holder: str) -> None:
    assert not is_holder_dead(holder)


def test_another_users_process_is_alive() -> None:
    assert not is_holder_dead(f"{socket.gethostname()}:1") or os.getpid() == 1
