"""A power cut loses the commits that were not synced: leases and begin marks. Nothing else may depend on them."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure.store.db.sqlite import SqliteDatabase
from perdure.testing.simulator import Call, Say, ScriptRequest, Simulator
from perdure.testing.simulator.script import Step
from support.gateway_server import running_gateway

SETTINGS: Mapping[str, Any] = {"permissions": {"mode": "all"}}
USERS = {"ann": ("chat", "read", "shell")}


@dataclass
class PowerCuts:
    """Copies of the database as a power cut would leave it after each unsynced commit, and what the tools had done."""

    database: Path
    folder: Path
    # What the tool writes: a disk of its own, which loses nothing.
    outside: Path
    # The last synced state, and those of cuts: the state on disk, with what was outside by the next commit.
    _synced: Path | None = None
    cuts: list[tuple[Path, str]] = field(default_factory=list)
    _is_cut: bool = False
    _copies: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def record(self, write: Callable[..., Any], *, is_synced: bool) -> Callable[..., Any]:
        """Wrap a write of the database, so that the state on disk is known after each."""

        def recording(database: SqliteDatabase, work: Callable[..., Any]) -> Any:
            if database.path != self.database:
                return write(database, work)
            with self._lock:
                if self._is_cut and self._synced is not None:
                    self.cuts.append((self._synced, self.outside.read_text()))
                self._is_cut = not is_synced
                result = write(database, work)
                if is_synced:
                    self._synced = self._copy()
                return result

        return recording

    def _copy(self) -> Path:
        self._copies += 1
        folder = self.folder / str(self._copies)
        folder.mkdir(parents=True)
        for file in (self.database, Path(f"{self.database}-wal")):
            if file.exists():
                shutil.copy(file, folder / file.name)
        return folder


def _ask(url: str, headers: Mapping[str, str], *, wait: bool) -> Any:
    body = {"chat": "main", "content": "Please do it once.", "key": "k-1"}
    params = {"wait": str(wait).lower()}
    return httpx.post(f"{url}/api/messages", json=body, params=params, headers=headers, timeout=60).json()


def _expire(database: Path) -> None:
    """Let the time pass after which what a dead machine owned is anybody's."""
    connection = sqlite3.connect(database)
    for table in ("lease", "inbox"):
        connection.execute(f"UPDATE {table} SET expires_at = 0")
    connection.commit()
    connection.close()


@pytest.mark.spec("I1")
def test_no_power_cut_loses_an_acknowledged_message_answers_twice_or_runs_a_tool_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("")

    def once(asked: ScriptRequest) -> Step:
        if asked.body["messages"][-1]["role"] == "tool":
            return Say("All done.")
        return Say("Now.", calls=(Call("terminal", {"command": f"echo ran >> {outside}"}),))

    home = tmp_path / "home"
    home.mkdir()
    power = PowerCuts(home / "perdure.db", tmp_path / "copies", outside)
    for name, is_synced in (("write", True), ("write_unsynced", False)):
        recording = power.record(getattr(SqliteDatabase, name), is_synced=is_synced)
        monkeypatch.setattr(SqliteDatabase, name, recording)
    with Simulator(script=once) as sim:
        with running_gateway(home, sim, users=USERS, others=SETTINGS) as gateway:
            headers = gateway.headers("ann")
            turn = _ask(gateway.url, headers, wait=False)["turn_id"]
            assert _ask(gateway.url, headers, wait=True)["text"] == "All done."
        assert len(power.cuts) >= 2, "the begin mark and the release of the lease"
        for number, (state, effects) in enumerate(dict.fromkeys(power.cuts)):
            outside.write_text(effects)
            after = tmp_path / f"after-{number}"
            shutil.copytree(state, after)
            _expire(after / "perdure.db")
            with running_gateway(after, sim, users={}, others=SETTINGS) as gateway:
                answer = _ask(gateway.url, headers, wait=True)
                messages = gateway.store.log.originals(answer["conversation_id"])
            assert answer["turn_id"] == turn, "sent again, it is the message that was acknowledged"
            assert (answer["outcome"], answer["text"]) == ("completed", "All done.")
            assert [e.message.role for e in messages] == ["user", "assistant", "tool", "assistant"]
            assert outside.read_text() in ("", "ran\n")
