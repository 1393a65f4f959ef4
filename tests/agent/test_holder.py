"""A dead process on this machine is not waited for; anyone else is."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from perdure.agent.holder import is_gone, this_process

pytestmark = pytest.mark.spec("I7")


def test_this_process_lives() -> None:
    assert not is_gone(this_process())


def test_a_process_that_ended_is_gone() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert is_gone(f"{socket.gethostname()}:{ended.pid}")


@pytest.mark.parametrize("holder", ["another-machine:1", "no pid here", "", f"{socket.gethostname()}:x"])
def test_who_cannot_be_looked_at_is_taken_to_live(holder: str) -> None:
    assert not is_gone(holder)


def test_somebody_elses_process_lives() -> None:
    assert not is_gone(f"{socket.gethostname()}:1") or os.getpid() == 1
