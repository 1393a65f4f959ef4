"""A person on Telegram, a gateway in a process of its own, a simulated model: talk, commands, a kill, nothing lost."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure.core.visibility import User
from perdure.store.store import open_store
from perdure.testing.simulator import Say, ScriptRequest, Simulator
from support.bot_api import TOKEN, BotApi, Sent, bot_api
from support.forked import ForkedProcess, fork
from support.packages import package

package("telegram", reason="the extra `telegram` is not installed")
package("uvicorn", reason="the extra `gateway` is not installed")


class Parrot:
    """A model that says back what it was told; the first time it is asked for something lasting, it takes its time."""

    def __init__(self) -> None:
        self.is_slow = threading.Event()

    def __call__(self, asked: ScriptRequest) -> Say:
        said = _last_said(asked)
        if said == "do not lose this" and not self.is_slow.is_set():
            self.is_slow.set()
            return Say(f"You said: {said}", delay_s=60)
        return Say(f"You said: {said}")


def _last_said(asked: ScriptRequest) -> str:
    content = next(m["content"] for m in reversed(asked.body["messages"]) if m["role"] == "user")
    return content if isinstance(content, str) else "".join(p.get("text", "") for p in content)


@contextmanager
def gateway(home: Path, sim: Simulator, bot_url: str, **more: str) -> Iterator[ForkedProcess]:
    """`perdure gateway`, as a person starts it."""
    env = {
        **os.environ,
        "PERDURE_HOME": str(home),
        "TELEGRAM_BOT_TOKEN": TOKEN,
        "PERDURE_MODEL__NAME": "m-1",
        "PERDURE_MODEL__BASE_URL": sim.base_url,
        "PERDURE_MODEL__CONTEXT_LENGTH": "32000",
        "PERDURE_GATEWAY__PORT": "0",
        "PERDURE_GATEWAY__TELEGRAM__ENABLED": "true",
        "PERDURE_GATEWAY__TELEGRAM__BASE_URL": bot_url,
        "PERDURE_GATEWAY__TELEGRAM__ALLOWED_USERS": '["7"]',
        **more,
    }
    process = fork(["-m", "perdure", "gateway"], env=env, cwd=Path.cwd(), stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(timeout=30)


def _says(text: str) -> Callable[[BotApi], list[Sent]]:
    return lambda api: [s for s in api.sent if text in s.text]


@pytest.mark.spec("A4", "I1", "N1")
def test_talk_commands_and_a_kill_in_mid_answer(tmp_path: Path) -> None:
    parrot = Parrot()
    with Simulator(script=parrot, window=32_000) as sim, bot_api() as (api, url):
        with gateway(tmp_path, sim, url) as first:
            api.say("hello there")
            api.until(_says("You said: hello there"))
            api.say("/usage")
            api.until(_says("compacts at"))
            api.say("/compress")
            api.until(_says("othing to compact"))
            api.say("do not lose this")
            assert parrot.is_slow.wait(20)
            first.kill()
            first.wait()
        with gateway(tmp_path, sim, url):
            api.until(_says("You said: do not lose this"), timeout_s=45)
            api.say("and now?")
            api.until(_says("You said: and now?"))

    answers = [s.text for s in api.sent if s.text.startswith("You said: ")]
    assert answers == ["You said: hello there", "You said: do not lose this", "You said: and now?"]
    with open_store(tmp_path / "perdure.db") as store:
        (kept,) = store.conversations.list(source="telegram").conversations
        said = [e.message.text for e in store.history(kept.id).entries]
        calls = store.ledger.totals(kept.id).calls
    assert said == ["hello there", answers[0], "do not lose this", answers[1], "and now?", answers[2]]
    assert kept.user == User("telegram:7")
    assert calls >= 3


@pytest.mark.spec("P6")
def test_a_new_message_stops_the_running_turn_where_the_setting_demands_it(tmp_path: Path) -> None:
    parrot = Parrot()
    with (
        Simulator(script=parrot, window=32_000) as sim,
        bot_api() as (api, url),
        gateway(tmp_path, sim, url, PERDURE_AGENT__WHILE_BUSY="interrupt"),
    ):
        api.say("do not lose this")
        assert parrot.is_slow.wait(30)
        api.say("never mind")
        # Well before the first answer, which takes a minute.
        api.until(_says("never mind"), timeout_s=45)
    with open_store(tmp_path / "perdure.db") as store:
        (conversation,) = store.conversations.list(source="telegram").conversations
        messages = [e.message for e in store.log.originals(conversation.id)]
    assert [m.text for m in messages if m.is_real_user] == ["do not lose this", "never mind"]
