"""Leaving in good order: turns under way finish, or go on in another process; and several processes are one gateway."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure.gateway.server import REPEAT_S, stop_signals
from perdure.store import open_store
from perdure.testing.simulator import Call, Say, ScriptRequest, Simulator
from perdure.testing.simulator.script import Step
from support.gateway_process import GatewayProcess, gateway_process, last_user_text, obedient
from support.gateway_server import running_gateway

USERS = {"ann": ("chat", "read")}
# An answer that takes minutes: however busy the machine is, it is not over before it is stopped.
_ENDLESS = "slowly " + "word " * 4_000


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(script=obedient, window=64_000) as made:
        yield made


def send(gateway: Any, content: str, **more: Any) -> httpx.Response:
    return httpx.post(
        f"{gateway.url}/api/messages", json={"content": content, **more}, headers=gateway.headers("ann"), timeout=30
    )


def _get(url: str, headers: dict[str, str] | None = None) -> httpx.Response:
    return httpx.get(url, headers=headers, timeout=30)


def events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def wait_until_running(home: Path, turn_id: str) -> None:
    with open_store(home / "perdure.db") as store:
        for _ in range(200):
            taken = store.inbox.get(turn_id)
            if taken.state == "running" and taken.conversation_id and store.log.originals(taken.conversation_id):
                return
            time.sleep(0.05)
    raise AssertionError("the turn never began")


def test_sigterm_finishes_the_running_turn_and_rejects_new_messages(tmp_path: Path) -> None:
    is_checked = threading.Event()

    def answer(_: ScriptRequest) -> str:
        is_checked.wait(55)
        return "word " * 30

    with (
        Simulator(script=answer, window=64_000) as sim,
        gateway_process(tmp_path, sim, users=USERS, settings={"gateway.drain_timeout_s": "60"}) as gateway,
    ):
        turn = send(gateway, "go").json()["turn_id"]
        wait_until_running(tmp_path, turn)
        gateway.process.send_signal(signal.SIGTERM)
        _until(lambda: _get(f"{gateway.url}/readyz").status_code == 503)
        refused = send(gateway, "too late")
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "stopping"
        assert _get(f"{gateway.url}/healthz").status_code == 200
        is_checked.set()
        assert gateway.process.wait(timeout=30) == 0
    with open_store(tmp_path / "perdure.db") as store:
        done = store.inbox.get(turn)
        assert done.state == "done"
        assert done.result is not None
        assert done.result["outcome"] == "completed"
        assert done.result["text"].strip() == ("word " * 30).strip()


def test_a_turn_that_waits_for_an_answer_delays_no_stop_and_asks_again_later(tmp_path: Path) -> None:
    def ask_first(asked: ScriptRequest) -> Step:
        last = asked.body["messages"][-1]
        if last["role"] == "tool" and "tea" in last["content"]:
            return Say("Tea it is.")
        return Say(calls=(Call("clarify", {"question": "What to drink?"}),))

    settings = {"gateway.drain_timeout_s": "60", "gateway.question_timeout_s": "60"}
    with Simulator(script=ask_first, window=64_000) as sim:
        with gateway_process(tmp_path, sim, users=USERS, settings=settings) as gateway:
            turn = send(gateway, "order something").json()["turn_id"]
            _until(lambda: _questions(gateway))
            begun_s = time.monotonic()
            assert gateway.stop(signal.SIGINT) == 0
            assert time.monotonic() - begun_s < 8, "not the time a person has to answer"
            assert not any(line.startswith("Stopping") for line in gateway.said), "nothing was waited for"
            token = gateway.tokens["ann"]
        with gateway_process(tmp_path, sim, users={}, settings=settings) as again:
            again.tokens = {"ann": token}
            _until(lambda: _questions(again))
            (question,) = _questions(again)
            answer = {"answer": "tea"}
            url = f"{again.url}/api/questions/{question['question_id']}"
            assert httpx.post(url, json=answer, headers=again.headers("ann"), timeout=30).status_code == 204
            assert _answer(again, turn)["outcome"] == "completed"


def test_a_second_ctrl_c_stops_at_once(tmp_path: Path, sim: Simulator) -> None:
    settings = {"gateway.drain_timeout_s": "60"}
    with gateway_process(tmp_path, sim, users=USERS, settings=settings) as gateway:
        turn = send(gateway, _ENDLESS).json()["turn_id"]
        wait_until_running(tmp_path, turn)
        gateway.process.send_signal(signal.SIGINT)
        waits = "Stopping: 1 answer under way, up to 60 s more; Ctrl-C again stops at once."
        _until(lambda: waits in gateway.said)
        time.sleep(REPEAT_S)
        begun_s = time.monotonic()
        assert gateway.stop(signal.SIGINT) == 0
        assert time.monotonic() - begun_s < 8
    with open_store(tmp_path / "perdure.db") as store:
        assert store.inbox.get(turn).state != "done", "the next process goes on with it"


@pytest.fixture
def hangup() -> Iterator[None]:
    """SIGHUP as a terminal leaves it, whatever the tests themselves were started with: a child ignores what they do."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("signals", [(signal.SIGHUP, signal.SIGHUP), (signal.SIGINT, signal.SIGTERM)])
def test_several_signals_at_once_are_one_stop(
    tmp_path: Path, sim: Simulator, signals: tuple[signal.Signals, ...]
) -> None:
    """A closed terminal sends SIGHUP, and its shell sends it again; a program around this one passes Ctrl-C on."""
    with gateway_process(tmp_path, sim, users=USERS, settings={"gateway.drain_timeout_s": "60"}) as gateway:
        turn = send(gateway, "slowly " + "word " * 40).json()["turn_id"]
        wait_until_running(tmp_path, turn)
        for number in signals:
            gateway.process.send_signal(number)
        assert gateway.process.wait(timeout=30) == 0
    with open_store(tmp_path / "perdure.db") as store:
        assert store.inbox.get(turn).state == "done", "it had its time to finish"


def _questions(gateway: GatewayProcess) -> list[dict[str, Any]]:
    return list(_get(f"{gateway.url}/api/questions", gateway.headers("ann")).json())


@pytest.mark.usefixtures("hangup")
def test_sighup_drains_like_sigterm(tmp_path: Path, sim: Simulator) -> None:
    with gateway_process(tmp_path, sim, users=USERS, settings={"gateway.drain_timeout_s": "60"}) as gateway:
        turn = send(gateway, "slowly " + "word " * 10).json()["turn_id"]
        wait_until_running(tmp_path, turn)
        assert gateway.stop(signal.SIGHUP) == 0
    with open_store(tmp_path / "perdure.db") as store:
        done = store.inbox.get(turn).result
        assert done is not None
        assert done["outcome"] == "completed"
    assert [line for line in gateway.errors if not line.startswith("{")] == []


@pytest.mark.usefixtures("hangup")
def test_nohup_ignores_sighup() -> None:
    assert signal.SIGHUP in stop_signals()
    # What a process ignores when it starts another, the other ignores, too: that is all nohup does.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert stop_signals() == [signal.SIGTERM, signal.SIGINT]


@pytest.mark.spec("I1", "I7")
@pytest.mark.parametrize("has_begun", [False, True], ids=["before its answer", "in mid-answer"])
def test_a_turn_that_outlasts_the_drain_is_resumed_by_the_next_process(tmp_path: Path, has_begun: bool) -> None:
    has_stopped = threading.Event()

    def answer(asked: ScriptRequest) -> Step:
        if last_user_text(asked.body) == "say me too":
            return Say("me too")
        if has_begun and not has_stopped.is_set():
            return Say("word " * 4_000, chunk_chars=4, chunk_delay_s=0.05)
        has_stopped.wait(60)
        return Say("word " * 40)

    with Simulator(script=answer, window=64_000) as sim:
        with gateway_process(tmp_path, sim, users=USERS, settings={"gateway.drain_timeout_s": "0"}) as gateway:
            turn = send(gateway, "go").json()["turn_id"]
            queued = send(gateway, "say me too").json()["turn_id"]
            wait_until_running(tmp_path, turn)
            if has_begun:
                _wait_for_text(gateway)
            assert gateway.stop() == 0
            token = gateway.tokens["ann"]
        has_stopped.set()
        with gateway_process(tmp_path, sim, users={}) as again:
            again.tokens = {"ann": token}
            done, after = (_answer(again, t) for t in (turn, queued))
            assert done["outcome"] == "completed"
            assert done["text"].strip() == ("word " * 40).strip()
            assert after["state"] == "done"
    with open_store(tmp_path / "perdure.db") as store:
        said = [e.message for e in store.log.originals(done["conversation_id"])]
        # What had come of the answer is kept, and the model is asked to write it again.
        first = ["user", "assistant", "user", "assistant"] if has_begun else ["user", "assistant"]
        assert [m.role for m in said] == [*first, "user", "assistant"]
        assert store.inbox.count_pending() == 0


def _wait_for_text(gateway: GatewayProcess) -> None:
    """Wait for the next piece of an answer under way."""
    url = f"{gateway.url}/api/chats/main/events"
    with httpx.stream("GET", url, headers=gateway.headers("ann"), timeout=30) as followed:
        assert any(event["type"] == "text_delta" for event in events(followed))


@pytest.mark.spec("I1")
def test_a_killed_process_on_one_machine_is_taken_over_at_once(tmp_path: Path, sim: Simulator) -> None:
    with gateway_process(tmp_path, sim, users=USERS) as gateway:
        turn = send(gateway, "slowly " + "word " * 20, key="k").json()["turn_id"]
        wait_until_running(tmp_path, turn)
        gateway.stop(signal.SIGKILL)
        token = gateway.tokens["ann"]
    with gateway_process(tmp_path, sim, users={}) as again:
        again.tokens = {"ann": token}
        repeated = send(again, "slowly " + "word " * 20, key="k").json()
        assert repeated["turn_id"] == turn
        done = _answer(again, turn)
        assert done["outcome"] == "completed"
    with open_store(tmp_path / "perdure.db") as store:
        said = [e.message for e in store.log.originals(done["conversation_id"])]
        assert [m.role for m in said] == ["user", "assistant"]


@pytest.mark.spec("I8")
def test_subscribers_see_events_of_every_process(tmp_path: Path, sim: Simulator) -> None:
    with (
        running_gateway(tmp_path, sim, users=USERS) as here,
        running_gateway(tmp_path, sim, users={}) as there,
        httpx.Client(headers=here.headers("ann"), timeout=20, trust_env=False) as ann,
        ann.stream("GET", f"{there.url}/api/chats/main/events") as followed,
    ):
        first = ann.post(f"{here.url}/api/messages?wait=true", json={"content": "one"}).json()
        second = ann.post(f"{there.url}/api/messages?wait=true", json={"content": "two"}).json()
        third = ann.post(f"{here.url}/api/messages?wait=true", json={"content": "three"}).json()
        assert [t["text"] for t in (first, second, third)] == ["1: one", "2: two", "3: three"]
        assert first["conversation_id"] == second["conversation_id"] == third["conversation_id"]
        heard = []
        for event in events(followed):
            if event["type"] == "turn_finished":
                heard.append(event["final_response"])
            if len(heard) == 3:
                break
        assert sorted(heard) == ["1: one", "2: two", "3: three"]


def test_a_stop_reaches_a_turn_in_another_process(tmp_path: Path, sim: Simulator) -> None:
    with (
        running_gateway(tmp_path, sim, users=USERS) as here,
        running_gateway(tmp_path, sim, users={}) as there,
        httpx.Client(headers=here.headers("ann"), timeout=20, trust_env=False) as ann,
    ):
        turn = ann.post(f"{here.url}/api/messages", json={"content": _ENDLESS}).json()["turn_id"]
        wait_until_running(tmp_path, turn)
        assert ann.post(f"{there.url}/api/chats/main/stop").json() == {"was_running": True}
        _until(lambda: ann.get(f"{there.url}/api/messages/{turn}").json()["state"] == "done")
        assert ann.get(f"{there.url}/api/messages/{turn}").json()["outcome"] == "interrupted"


def _answer(gateway: GatewayProcess, turn_id: str) -> dict[str, Any]:
    url = f"{gateway.url}/api/messages/{turn_id}"
    for _ in range(400):
        found = _get(url, gateway.headers("ann")).json()
        if found["state"] == "done":
            return dict(found)
        time.sleep(0.05)
    raise AssertionError("it was never answered")


def _until(holds: Any) -> None:
    for _ in range(200):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it never came to pass")
