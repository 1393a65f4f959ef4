"""Perdure beside Hermes Agent on the same recorded messages, in the same run; `HERMES_PYTHON` names its interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import perdure
from benchmarks import hermes_side
from benchmarks.data import Skip, sessions
from benchmarks.table import Row

TITLE = "beside Hermes Agent, model time excluded"
WINDOW = 200_000
COUNT = 10_000
_KEYS = ("role", "content", "tool_calls", "tool_call_id", "name")
_NAMES = {
    "compress": "compress() of 10,000 cold messages as plain dicts",
    "append": "append 10,000 messages, one by one",
    "load": "load a history of 10,000 messages",
}


def rows() -> Iterable[Row]:
    python = os.environ.get("HERMES_PYTHON")
    if not python:
        raise Skip("set HERMES_PYTHON to the interpreter of an environment with hermes-agent")
    messages = _messages()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "messages.json"
        path.write_text(json.dumps(messages), encoding="utf-8")
        ours, theirs = _ours(messages, folder), _theirs(python, path, folder)
    for key, title in _NAMES.items():
        yield Row(f"{title}: Perdure", ours[key], "ms")
        yield Row(f"{title}: Hermes", theirs[key], "ms")
        yield Row(f"{title}: ratio", ours[key] / theirs[key], "×", "<= 1" if key == "compress" else None)


def _messages() -> list[dict[str, Any]]:
    """Recorded messages, repeated up to the count."""
    recorded = [{k: v for k, v in m.items() if k in _KEYS} for s in sessions("entire_cli") for m in s["messages"]]
    return (recorded * (COUNT // len(recorded) + 1))[:COUNT]


def _ours(messages: list[dict[str, Any]], folder: Path) -> dict[str, float]:
    figures = {"compress": hermes_side.best_ms(lambda: perdure.compress(messages, context_length=WINDOW))}
    with perdure.open_store(folder / "perdure.db") as store:
        session = store.create(system_prompt="")
        started = time.process_time()
        for message in messages:
            store.append(session.id, [message])
        figures["append"] = (time.process_time() - started) * 1_000
    with perdure.open_store(folder / "perdure.db") as store:
        figures["load"] = hermes_side.best_ms(lambda: store.history(session.id))
    return figures


def _theirs(python: str, path: Path, folder: Path) -> dict[str, float]:
    script = Path(hermes_side.__file__)
    environment = os.environ | {"HOME": str(folder), "HERMES_HOME": str(folder / "hermes")}
    done = subprocess.run(
        [python, str(script), str(path), str(WINDOW), str(folder)],
        capture_output=True, text=True, check=False, env=environment, cwd=folder,
    )  # fmt: skip
    if done.returncode:
        raise Skip(f"Hermes Agent failed: {done.stderr.strip()[-300:]}")
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))
