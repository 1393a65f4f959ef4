"""A person on Discord, a gateway in a process of its own, a simulated model: talk, commands, kills, nothing lost."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure.store.store import open_store
from perdure.testing.simulator import Call, Say, ScriptRequest, Simulator
from perdure.testing.simulator.script import Step
from support.gateway_process import last_user_text

pytest.importorskip("discord", reason="the extra `discord` is not installed")
pytest.importorskip("uvicorn", reason="the extra `gateway` is not installed")

from perdure.testing.discord_service import TOKEN, DiscordService, ServiceMessage  # after the skips

pytestmark = pytest.mark.slow
LIMIT_S = 90.0


def _answer(asked: ScriptRequest) -> Step:
    """Every third question needs a tool first; answers are long enough to be edited and split."""
    number = int(last_user_text(asked.body).split()[-1])
    if number % 3 == 0 and asked.body["messages"][-1]["role"] == "user":
        return Say(f"Looking at {number}.", calls=(Call("todo", {}),))
    return Say(f"answer {number}: " + f"word{number} " * 400, chunk_chars=40, chunk_delay_s=0.002)


@contextmanager
def gateway(home: Path, sim: Simulator, service: DiscordService) -> Iterator[subprocess.Popen[bytes]]:
    """`perdure gateway`, as a person starts it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PERDURE_")}
    env = {
        **kept,
        "PERDURE_HOME": str(home),
        "DISCORD_BOT_TOKEN": TOKEN,
        "PERDURE_MODEL__NAME": "m-1",
        "PERDURE_MODEL__BASE_URL": sim.base_url,
        "PERDURE_MODEL__CONTEXT_LENGTH": "200000",
        "PERDURE_GATEWAY__PORT": "0",
        "PERDURE_GATEWAY__DISCORD__ENABLED": "true",
        "PERDURE_GATEWAY__DISCORD__BASE_URL": service.url,
        "PERDURE_GATEWAY__DISCORD__ALLOWED_USERS": '["7"]',
    }
    process = subprocess.Popen([sys.executable, "-m", "perdure", "gateway"], env=env, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(timeout=60)


def _is_whole(number: int) -> Callable[[DiscordService], bool]:
    """Whether the answer to a question is there with every word."""

    def check(service: DiscordService) -> bool:
        return sum(m.text.count(f"word{number}") for m in service.sent) >= 400

    return check


def _kill_often(tmp_path: Path, kills: int, seed: int) -> None:
    chance, number = random.Random(seed), 0
    with Simulator(script=_answer) as sim, DiscordService() as service:
        for _ in range(kills):
            number += 1
            with gateway(tmp_path, sim, service) as process:
                # Known from the second start on: what is written meanwhile is read from the history.
                if number == 1 or chance.random() < 0.7:
                    service.until(lambda s: s.connections, timeout_s=LIMIT_S)
                service.connections = 0
                service.say(f"question {number}")
                calls = len(service.calls) + chance.choice((1, 2, 3, 4, 6, 8, 12, 20))
                if number == 1:
                    service.until(_is_whole(1), timeout_s=LIMIT_S)
                else:
                    service.until(lambda s, n=calls, q=number: len(s.calls) >= n or _is_whole(q)(s), timeout_s=LIMIT_S)
                process.kill()
                process.wait()
            service.connections = 0
        with gateway(tmp_path, sim, service):
            service.until(lambda s: all(_is_whole(n)(s) for n in range(1, number + 1)), timeout_s=LIMIT_S)
            service.until(lambda s: s.connections, timeout_s=LIMIT_S)
            service.say(f"question {number + 1}")
            service.until(_is_whole(number + 1), timeout_s=LIMIT_S)
            _wait_for_deliveries(tmp_path)
        _check(service.sent, number + 1)
        assert sim.violations == []
    with open_store(tmp_path / "perdure.db") as store:
        (conversation,) = [c for c in store.conversations.list(source="discord").conversations if c.last_seq]
        asked = [e.message.text for e in store.log.originals(conversation.id) if e.message.is_real_user]
        assert asked == [f"question {n}" for n in range(1, number + 2)]


def _wait_for_deliveries(home: Path) -> None:
    """Until every delivery is noted, also those whose process died between the two."""
    deadline = time.monotonic() + LIMIT_S
    with open_store(home / "perdure.db") as store:
        while keys := store.state("deliveries").list_keys():
            assert time.monotonic() < deadline, keys
            time.sleep(0.1)


def _check(sent: list[ServiceMessage], questions: int) -> None:
    """Each answer begins once and has every word once: no stub, nothing doubled."""
    for number in range(1, questions + 1):
        begun = [m.text for m in sent if m.text.startswith(f"answer {number}:")]
        assert len(begun) == 1, (number, [t[:40] for t in begun])
        assert sum(m.text.split().count(f"word{number}") for m in sent) == 400, number


@pytest.mark.spec("P2", "A4", "I1")
def test_a_gateway_killed_while_it_answers_loses_and_doubles_nothing(tmp_path: Path) -> None:
    _kill_often(tmp_path, kills=3, seed=3)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.spec("P2", "A4", "I1")
def test_twenty_kills_while_answering_lose_and_double_nothing(tmp_path: Path) -> None:
    _kill_often(tmp_path, kills=20, seed=8)
