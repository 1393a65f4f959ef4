"""A person on Discord, a gateway in a process of its own, a simulated model: talk, commands, kills, nothing lost."""

from __future__ import annotations

import os
import random
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure.store.store import open_store
from perdure.testing.simulator import Call, Say, ScriptRequest, Simulator
from perdure.testing.simulator.script import Step
from support.gateway_process import last_user_text
from support.packages import package

package("discord", reason="the extra `discord` is not installed")
package("uvicorn", reason="the extra `gateway` is not installed")

from perdure.testing.discord_service import TOKEN, DiscordService, ServiceMessage  # noqa: E402  # after the skips
from support.forked import ForkedProcess, fork  # noqa: E402

pytestmark = pytest.mark.slow
LIMIT_S = 90.0


def _answer(asked: ScriptRequest) -> Step:
    """Every third question needs a tool first; answers are long enough to be edited and split."""
    number = int(last_user_text(asked.body).split()[-1])
    if number % 3 == 0 and asked.body["messages"][-1]["role"] == "user":
        return Say(f"Looking at {number}.", calls=(Call("todo", {}),))
    return Say(f"answer {number}: " + f"word{number} " * 400, chunk_chars=40, chunk_delay_s=0.002)


@contextmanager
def gateway(home: Path, sim: Simulator, service: DiscordService, **settings: str) -> Iterator[ForkedProcess]:
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
        **settings,
    }
    process = fork(["-m", "perdure", "gateway"], env=env, cwd=Path.cwd(), stderr=subprocess.DEVNULL)
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


# -- interrupting messages -------------------------------------------------------------------------------------------

STOPPED = "(stopped)"
INTERRUPT = {"PERDURE_AGENT__WHILE_BUSY": "interrupt"}


def _slow_answer(asked: ScriptRequest) -> Step:
    """Odd questions get an answer that takes long, to be interrupted; even ones a short one."""
    # The newest question: behind it there may be a note, where the turn goes on after a kill.
    texts = [str(message["content"]) for message in asked.body["messages"] if message["role"] == "user"]
    number = int(re.findall(r"question (\d+)", "\n".join(texts))[-1])
    if number % 2:
        return Say(f"answer {number}: " + f"word{number} " * 100, chunk_chars=20, chunk_delay_s=0.1)
    return Say(f"answer {number}: word{number} end{number}")


def _endings(sent: list[ServiceMessage]) -> int:
    """How many turns have come to an end, whole or stopped."""
    return sum(m.text.rstrip().endswith(STOPPED) or "end" in m.text or m.text.count("word") == 100 for m in sent)


def _interrupt_and_kill(tmp_path: Path, kills: int, seed: int) -> None:
    chance, number = random.Random(seed), 0
    with Simulator(script=_slow_answer) as sim, DiscordService() as service:
        for _ in range(kills):
            first, second = number + 1, number + 2
            number = second
            with gateway(tmp_path, sim, service, **INTERRUPT) as process:
                service.until(lambda s: s.connections, timeout_s=LIMIT_S)
                service.say(f"question {first}")
                service.until(lambda s, n=first: any(f"word{n}" in m.text for m in s.sent), timeout_s=LIMIT_S)
                service.say(f"question {second}")
                time.sleep(chance.choice((0.0, 0.02, 0.05, 0.1, 0.2, 0.4)))
                process.kill()
                process.wait()
            service.connections = 0
            with gateway(tmp_path, sim, service, **INTERRUPT):
                service.until(lambda s, n=number: _endings(s.sent) >= n, timeout_s=LIMIT_S)
                _wait_for_deliveries(tmp_path)
            service.connections = 0
        assert sim.violations == []
        _check_endings(service.sent, number)
    with open_store(tmp_path / "perdure.db") as store:
        (conversation,) = [c for c in store.conversations.list(source="discord").conversations if c.last_seq]
        asked = [e.message.text for e in store.log.originals(conversation.id) if e.message.is_real_user]
    assert asked == [f"question {n}" for n in range(1, number + 1)]


def _check_endings(sent: list[ServiceMessage], questions: int) -> None:
    """Every question has one answer, whole or stopped, and what was displayed before a stop stays."""
    texts = [m.text for m in sent]
    assert len(texts) == questions, texts
    for number, text in enumerate(texts, 1):
        assert text.startswith(f"answer {number}: word{number}"), (number, text[:80])
        words = text.split().count(f"word{number}")
        is_whole = words == 100 if number % 2 else text.endswith(f"end{number}")
        assert is_whole or text.endswith(STOPPED), (number, text[-80:])


@pytest.mark.spec("P6", "I1")
def test_a_gateway_killed_around_an_interrupt_answers_every_message_once(tmp_path: Path) -> None:
    _interrupt_and_kill(tmp_path, kills=1, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.spec("P6", "I1")
def test_twenty_kills_around_an_interrupt_answer_every_message_once(tmp_path: Path) -> None:
    _interrupt_and_kill(tmp_path, kills=20, seed=5)
