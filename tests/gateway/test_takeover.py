"""Two gateway processes on one PostgreSQL; one is killed in the middle of its work, again and again.

Every client sends with a key and asks again, of whichever process answers, until it has its answer. In the end each
message must stand in its conversation exactly once, in order, with exactly one answer behind it.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from perdure.core.visibility import User
from perdure.store import open_store
from perdure.testing.simulator import Say, Simulator
from perdure.testing.simulator.script import ScriptRequest, Step
from support.gateway_process import GatewayProcess, gateway_process, last_user_text
from support.postgres import PostgresBackend

CHATS = 6
ANSWER_S = 60.0


def script(asked: ScriptRequest) -> Step:
    """A slow answer, so that a kill often falls into the middle of one."""
    return Say(f"heard {last_user_text(asked.body)}", chunk_chars=3, chunk_delay_s=0.03)


@dataclass
class Fleet:
    """Two processes that come and go, and what was said to them."""

    home: Path
    sim: Simulator
    database: str
    stack: ExitStack
    running: dict[int, GatewayProcess] = field(default_factory=dict)
    token: str = ""

    def start(self, number: int) -> None:
        users = {} if self.token else {"ann": ("chat", "read")}
        made = self.stack.enter_context(
            gateway_process(self.home / str(number), self.sim, users=users, settings={"store.url": self.database})
        )
        self.token = self.token or made.tokens["ann"]
        self.running[number] = made

    def kill(self, number: int) -> None:
        self.running.pop(number).stop(signal.SIGKILL)

    def any_url(self, dice: random.Random) -> str:
        alive = list(self.running.values())
        return dice.choice(alive).url if alive else ""


class Sender(threading.Thread):
    """One person in one chat: says a thing, waits for the answer however often it must ask, says the next."""

    def __init__(self, fleet: Fleet, number: int, is_over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.fleet, self.chat, self.is_over = fleet, f"chat-{number}", is_over
        self.dice = random.Random(number)
        self.said: list[str] = []
        self.heard: list[str] = []
        self.conversation_id = ""
        self.failure = ""

    def run(self) -> None:
        headers = {"authorization": f"Bearer {self.fleet.token}"}
        with httpx.Client(headers=headers, timeout=ANSWER_S, trust_env=False) as client:
            while not self.is_over.is_set() and not self.failure:
                text = f"{self.chat} says {len(self.said)}"
                self.said.append(text)
                self._ask(client, text)

    def _ask(self, client: httpx.Client, text: str) -> None:
        body = {"chat": self.chat, "content": text, "key": f"{self.chat}/{len(self.said)}"}
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline:
            try:
                url = f"{self.fleet.any_url(self.dice)}/api/messages?wait=true"
                answer = client.post(url, json=body)
            except httpx.HTTPError:
                time.sleep(0.05)
                continue
            if answer.status_code == 200:
                told = answer.json()
                self.heard.append(told["text"])
                self.conversation_id = told["conversation_id"]
                return
            time.sleep(0.1)
        self.failure = f"{text!r} was never answered"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[str]:
    backend = PostgresBackend(tmp_path)
    yield backend.url
    backend.close()


@pytest.mark.spec("I7", "I8", "I1", "N1")
def test_a_killed_process_loses_and_duplicates_nothing(tmp_path: Path, database: str) -> None:
    _kill_under_load(tmp_path, database, kills=2)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.spec("I7", "I8", "I1")
def test_twenty_killed_processes_lose_and_duplicate_nothing(tmp_path: Path, database: str) -> None:
    _kill_under_load(tmp_path, database, kills=20)


def _kill_under_load(folder: Path, database: str, *, kills: int) -> None:
    dice = random.Random(kills)
    with Simulator(script=script, window=64_000) as sim, ExitStack() as stack:
        fleet = Fleet(folder, sim, database, stack)
        for number in (0, 1):
            fleet.start(number)
        is_over = threading.Event()
        senders = [Sender(fleet, number, is_over) for number in range(CHATS)]
        for sender in senders:
            sender.start()
        for round_number in range(kills):
            time.sleep(dice.uniform(0.6, 1.6))
            victim = round_number % 2
            fleet.kill(victim)
            fleet.start(victim)
        time.sleep(0.5)
        is_over.set()
        for sender in senders:
            sender.join(ANSWER_S + 5)
        assert [s.failure for s in senders if s.failure] == []
    _check(database, senders)
    assert sum(len(s.said) for s in senders) > CHATS


def _check(database: str, senders: list[Sender]) -> None:
    with open_store(database) as store:
        for sender in senders:
            log = store.log.originals(sender.conversation_id)
            asked = [e.message.text for e in log if e.message.role == "user"]
            answered = [e.message.text for e in log if e.message.role == "assistant"]
            assert asked == sender.said
            assert answered == [f"heard {text}" for text in sender.said] == sender.heard
            assert [e.message.role for e in log] == ["user", "assistant"] * len(sender.said)
        assert store.inbox.count_pending() == 0
        listed = store.conversations.list(visibility=User("ann"), limit=50).conversations
        assert {c.id for c in listed if c.last_seq} == {s.conversation_id for s in senders}
