"""A real `perdure gateway` process in front of the simulator: what clients, nginx and signals meet."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perdure.core.concurrency import SystemClock
from perdure.core.visibility import user_from_key
from perdure.gateway.auth.principal import Scope
from perdure.gateway.auth.tokens import AccessTokens
from perdure.store import open_store
from perdure.testing.simulator import Fail, Say, Simulator
from perdure.testing.simulator.script import Call, ScriptRequest, Step
from support.forked import ForkedProcess, fork

START_S = 30.0


@dataclass
class GatewayProcess:
    """Where it is, what it prints, and who may enter."""

    url: str
    process: ForkedProcess
    tokens: Mapping[str, str]
    home: Path
    said: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    readers: list[threading.Thread] = field(default_factory=list)

    def headers(self, user: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.tokens[user]}"}

    @property
    def log_writer(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.errors if line.startswith("{")]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Return its exit status, once all it printed has been read."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(timeout=30)
        self.read_rest()
        return status

    def read_rest(self) -> None:
        """Wait for what an ended process left in the pipes; one that it started, and left, keeps them open."""
        for reader in self.readers:
            reader.join(timeout=5)


@contextmanager
def gateway_process(
    home: Path,
    sim: Simulator,
    *,
    users: Mapping[str, Sequence[Scope]] | None = None,
    settings: Mapping[str, Any] | None = None,
    arguments: Sequence[str] = ("gateway", "--port", "0"),
) -> Iterator[GatewayProcess]:
    """Runs until the block ends; each user has a token with these scopes."""
    home.mkdir(parents=True, exist_ok=True)
    database = str((settings or {}).get("store.url") or home / "perdure.db")
    with open_store(database) as store:
        tokens = AccessTokens(store, SystemClock())
        made = {user: tokens.add(user_from_key(user), scopes).text for user, scopes in (users or {}).items()}
    given = {
        "model.base_url": sim.base_url,
        "model.name": "gpt-5-mini",
        "model.provider": "custom",
        "gateway.drain_timeout_s": "5",
        **(settings or {}),
    }
    flags = [part for key, value in given.items() for part in ("--set", f"{key}={value}")]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PERDURE_")}
    process = fork(
        ["-m", "perdure", *flags, *arguments],
        env={**environment, "PERDURE_HOME": str(home), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=home,
    )
    gateway = GatewayProcess("", process, made, home)
    ready = threading.Event()
    for stream, lines in ((process.stdout, gateway.said), (process.stderr, gateway.errors)):
        gateway.readers.append(threading.Thread(target=_read, args=(stream, lines, ready), daemon=True))
        gateway.readers[-1].start()
    try:
        if not ready.wait(START_S) or process.poll() is not None:
            raise RuntimeError("the gateway did not start:\n" + "\n".join(gateway.said + gateway.errors))
        gateway.url = re.findall(r"http://[\d.]+:\d+", "\n".join(gateway.said))[0]
        yield gateway
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        gateway.read_rest()


def _read(stream: Any, lines: list[str], ready: threading.Event) -> None:
    for line in stream:
        lines.append(line.rstrip("\n"))
        if line.startswith("Stop with"):
            ready.set()
    ready.set()


def obedient(asked: ScriptRequest) -> Step:
    """Does what the last user message says (`say …`, `slowly …`, `fail`, `run …`, `open …`), else repeats it."""
    text = last_user_text(asked.body)
    word, _, rest = text.partition(" ")
    is_answered = asked.body["messages"][-1]["role"] == "tool"
    if word == "fail":
        return Fail(status=400, body={"error": {"message": "this was not to be", "type": "invalid_request_error"}})
    if word == "run" and not is_answered:
        return Say("Let me look.", calls=(Call("terminal", {"command": rest}),))
    if word == "open" and not is_answered:
        return Say("", calls=(Call("read_file", {"path": rest}),))
    if word == "slowly":
        return Say(rest, chunk_chars=4, chunk_delay_s=0.05)
    if word == "think":
        return Say(rest, thinking="hm")
    heard = len([m for m in asked.body["messages"] if m["role"] == "user"])
    return Say(rest if word == "say" else f"{heard}: {text}")


def last_user_text(body: Mapping[str, Any]) -> str:
    users = [m for m in body["messages"] if m["role"] == "user"]
    content = users[-1]["content"] if users else ""
    return content if isinstance(content, str) else "\n".join(p.get("text", "") for p in content)
