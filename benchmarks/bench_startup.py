"""How long a person waits before anything happens: importing the library, asking for help, reading settings."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.table import Row

ROUNDS = 20
TITLE = f"Start-up (best of {ROUNDS}, each in a process of its own)"


def rows() -> Iterator[Row]:
    bare = _best("-c", "pass")
    yield bare.row("python with nothing in it")
    yield _best("-c", "import perdure").row("import perdure, the whole process", "<= 100")
    yield _best("-m", "perdure", "--help").row("perdure --help", "<= 200")
    yield _best("-m", "perdure", "config", "get", "model.name").row("perdure config get model.name")


@dataclass(frozen=True, slots=True)
class Cost:
    """What the clock showed, and what the processor did: on a busy machine the two lie apart."""

    wall_ms: float
    cpu_ms: float

    def row(self, name: str, bar: str | None = None) -> Row:
        return Row(name, self.wall_ms, "ms", bar, note=f"{self.cpu_ms:.0f} ms of processor time")


def _best(*arguments: str) -> Cost:
    walls, cpus = [], []
    with tempfile.TemporaryDirectory() as home:
        for _ in range(ROUNDS):
            began = time.perf_counter()
            child = subprocess.Popen(
                [sys.executable, *arguments], stdout=subprocess.DEVNULL, env={"PERDURE_HOME": home}
            )
            _, status, used = os.wait4(child.pid, 0)
            walls.append(time.perf_counter() - began)
            cpus.append(used.ru_utime + used.ru_stime)
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode:
                raise RuntimeError(f"{' '.join(arguments)} ended with status {child.returncode}")
    return Cost(min(walls) * 1_000, min(cpus) * 1_000)
