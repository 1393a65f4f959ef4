"""Approvals and questions over the wire: asked as events, answered from anywhere, denied when nobody is there."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from perdure.testing.simulator import Call, Say, Simulator
from perdure.testing.simulator.script import ScriptRequest, Step
from support.gateway_process import last_user_text, obedient
from support.gateway_server import Running, running_gateway

USERS = {"ann": ("chat", "read", "shell"), "bob": ("chat", "read", "admin"), "eve": ("chat", "read")}


def script(asked: ScriptRequest) -> Step:
    """Runs what it is told to, asks what it is told to, and then repeats what the tool said."""
    last, text = asked.body["messages"][-1], last_user_text(asked.body)
    if last["role"] == "tool":
        return Say(f"the tool said: {last['content']}")
    if text.startswith("ask "):
        return Say(calls=(Call("clarify", {"question": text.removeprefix("ask "), "choices": ["tea", "coffee"]}),))
    return obedient(asked)


@contextmanager
def gateway_at(home: Path, sim: Simulator, **gateway: Any) -> Iterator[Running]:
    with running_gateway(home, sim, users=USERS, gateway={"question_timeout_s": 20, **gateway}) as running:
        yield running


def client(gateway: Running, user: str = "ann") -> httpx.Client:
    return httpx.Client(base_url=gateway.url, headers=gateway.headers(user), timeout=30, trust_env=False)


def events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def ask_and_answer(ann: httpx.Client, content: str, answer: Any) -> list[dict[str, Any]]:
    """The events of a turn in which a question is answered by `answer(question)` when it comes up."""
    told = []
    with ann.stream(
        "POST", "/api/messages", json={"content": content}, headers={"accept": "text/event-stream"}
    ) as response:
        for event in events(response):
            told.append(event)
            if event["type"] == "question_asked":
                answer(event)
    return told


@pytest.fixture
def doomed() -> Iterator[Path]:
    """A folder in the workspace: deleting in a temporary folder would ask nobody."""
    with tempfile.TemporaryDirectory(prefix=".doomed-", dir=Path.cwd(), ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.mark.parametrize(("answer", "is_gone"), [("once", True), ("no", False)])
def test_a_dangerous_command_runs_only_if_it_is_approved(
    tmp_path: Path, doomed: Path, answer: str, is_gone: bool
) -> None:
    with Simulator(script=script) as sim, gateway_at(tmp_path, sim) as gateway, client(gateway) as ann:

        def reply(question: dict[str, Any]) -> None:
            assert question["kind"] == "approval"
            assert str(doomed) in question["text"]
            assert question["choices"] == ["once", "session", "always", "no"]
            (waiting,) = ann.get("/api/questions").json()
            assert waiting["question_id"] == question["question_id"]
            url = f"/api/questions/{question['question_id']}"
            assert ann.post(url, json={"answer": "maybe"}).status_code == 400
            for other in ("bob", "eve"):  # not even an administrator approves in another's name
                with client(gateway, other) as stranger:
                    assert stranger.get("/api/questions").json() == []
                    assert stranger.post(url, json={"answer": "once"}).status_code == 404
            assert ann.post(url, json={"answer": answer}).status_code == 204

        told = ask_and_answer(ann, f"run rm -rf {doomed}", reply)
        closed = [e for e in told if e["type"] == "question_closed"]
        assert [c["answer"] for c in closed] == [answer]
        assert doomed.exists() is not is_gone
        assert ann.get("/api/questions").json() == []
        assert ann.post(f"/api/questions/{closed[0]['question_id']}", json={"answer": "once"}).status_code == 404


def test_the_reason_of_a_refusal_reaches_the_model(tmp_path: Path, doomed: Path) -> None:
    with Simulator(script=script) as sim, gateway_at(tmp_path, sim) as gateway, client(gateway) as ann:

        def reply(question: dict[str, Any]) -> None:
            answer = {"answer": "no, move it to the archive"}
            assert ann.post(f"/api/questions/{question['question_id']}", json=answer).status_code == 204

        told = ask_and_answer(ann, f"run rm -rf {doomed}", reply)
        assert "the user refused: “move it to the archive”" in told[-1]["final_response"]
        assert doomed.exists()


def test_an_approval_for_one_call_offers_nothing_lasting(tmp_path: Path) -> None:
    with Simulator(script=script) as sim, gateway_at(tmp_path, sim) as gateway, client(gateway) as ann:

        def reply(question: dict[str, Any]) -> None:
            assert (question["choices"], question["covers"]) == (["once", "no"], "This is asked every time.")
            assert ann.post(f"/api/questions/{question['question_id']}", json={"answer": "no"}).status_code == 204

        assert "the user refused" in ask_and_answer(ann, "run cat ~/.ssh/id_rsa", reply)[-1]["final_response"]


def test_an_unanswered_approval_is_denied(tmp_path: Path, doomed: Path) -> None:
    with (
        Simulator(script=script) as sim,
        gateway_at(tmp_path, sim, question_timeout_s=0.5) as gateway,
        client(gateway) as ann,
    ):
        turn = ann.post("/api/messages", json={"content": f"run rm -rf {doomed}"}).json()["turn_id"]
        for _ in range(100):
            done = ann.get(f"/api/messages/{turn}").json()
            if done["state"] == "done":
                break
            time.sleep(0.05)
        assert "was not run" in done["text"]
        assert doomed.exists()


def test_an_approval_of_a_turn_that_is_stopped_is_closed_as_such(tmp_path: Path, doomed: Path) -> None:
    with Simulator(script=script) as sim, gateway_at(tmp_path, sim) as gateway, client(gateway) as ann:

        def stop(question: dict[str, Any]) -> None:
            (waiting,) = ann.get("/api/questions").json()
            assert ann.post(f"/api/messages/{waiting['turn_id']}/stop").is_success

        told = ask_and_answer(ann, f"run rm -rf {doomed}", stop)
        (closed,) = [e for e in told if e["type"] == "question_closed"]
        assert (closed["answer"], closed["is_stopped"]) == ("", True)
        assert doomed.exists()


def test_the_models_own_question_is_answered_in_words(tmp_path: Path) -> None:
    with Simulator(script=script) as sim, gateway_at(tmp_path, sim) as gateway, client(gateway, "eve") as eve:

        def reply(question: dict[str, Any]) -> None:
            assert (question["kind"], question["choices"]) == ("clarify", ["tea", "coffee"])
            eve.post(f"/api/questions/{question['question_id']}", json={"answer": "cocoa"})

        told = ask_and_answer(eve, "ask what will you drink?", reply)
        assert "cocoa" in told[-1]["final_response"]


def test_an_answer_that_arrives_at_another_process_counts(tmp_path: Path, doomed: Path) -> None:
    with (
        Simulator(script=script) as sim,
        gateway_at(tmp_path, sim) as here,
        running_gateway(tmp_path, sim, users={}) as there,
        client(here) as ann,
        httpx.Client(base_url=there.url, headers=here.headers("ann"), trust_env=False) as elsewhere,
    ):

        def reply(question: dict[str, Any]) -> None:
            (waiting,) = elsewhere.get("/api/questions").json()
            assert waiting["question_id"] == question["question_id"]
            answered = elsewhere.post(f"/api/questions/{question['question_id']}", json={"answer": "once"})
            assert answered.status_code == 204

        ask_and_answer(ann, f"run rm -rf {doomed}", reply)
        assert not doomed.exists()


def test_without_the_scope_there_is_no_shell_and_no_file_to_ask_about(tmp_path: Path) -> None:
    with Simulator(script=script) as sim, gateway_at(tmp_path, sim) as gateway:
        for user in ("eve", "ann"):
            with client(gateway, user) as somebody:
                somebody.post("/api/messages", params={"wait": "true"}, json={"content": "say hi"})
        without, having = ({t["function"]["name"] for t in r.body["tools"]} for r in sim.requests[:2])
        shells = {"terminal", "write_file", "patch", "search_files"}
        assert not without & shells
        assert "terminal" in having
        prompts = [str(r.body["messages"][0]["content"]) for r in sim.requests[:2]]
        assert str(Path.cwd()) not in prompts[0]
        assert str(Path.cwd()) in prompts[1]


def test_a_question_is_answered_by_a_token_that_may_do_what_its_turn_may(tmp_path: Path, doomed: Path) -> None:
    """A chat-only token of the same user sees what waits, and cannot allow a shell command with it."""
    only_chat = {"ann chat": ("ann", ("chat", "read")), "ann shell": ("ann", ("chat", "shell"))}
    with (
        Simulator(script=script) as sim,
        running_gateway(tmp_path, sim, users=USERS, tokens=only_chat, gateway={"question_timeout_s": 20}) as gateway,
        client(gateway) as ann,
        client(gateway, "ann chat") as weaker,
        client(gateway, "ann shell") as equal,
    ):

        def reply(question: dict[str, Any]) -> None:
            assert "always" in question["covers"]
            assert any(piece in question["text"] for piece in question["dangerous"])
            (waiting,) = weaker.get("/api/questions").json()
            assert waiting["covers"] == question["covers"]
            path = f"/api/questions/{question['question_id']}"
            for answer in ("once", "session", "always"):
                refused = weaker.post(path, json={"answer": answer})
                assert (refused.status_code, refused.json()["error"]["code"]) == (403, "missing_scope")
            url = gateway.url.replace("http", "ws", 1) + "/api/ws"
            with connect(url, additional_headers=gateway.headers("ann chat")) as socket:
                answering = {"type": "answer", "question_id": question["question_id"], "answer": "once"}
                for number in (1, 2):  # the connection stays open
                    socket.send(json.dumps({**answering, "id": number}))
                    heard = json.loads(socket.recv(timeout=5))
                    assert (heard["type"], heard["id"], heard["error"]["code"]) == ("error", number, "missing_scope")
            assert doomed.exists()
            assert equal.post(path, json={"answer": "once"}).status_code == 204

        told = ask_and_answer(ann, f"run rm -rf {doomed}", reply)
    assert told[-1]["outcome"] == "completed"
    assert not doomed.exists()


def test_approvals_are_listed_and_revoked_by_their_own_user(tmp_path: Path) -> None:
    with Simulator(script=script) as sim, gateway_at(tmp_path, sim) as gateway, client(gateway) as ann:
        gateway.store.state("approvals").set("ann", ["git-push", "tool:deploy"])
        listed = ann.get("/api/approvals").json()
        assert [a["kind"] for a in listed] == ["git-push", "tool:deploy"]
        assert all(a["explanation"] for a in listed)
        stranger = {**gateway.headers("eve")}
        assert ann.get("/api/approvals", headers=stranger).json() == []
        assert ann.delete("/api/approvals/git-push", headers=stranger).status_code == 404
        assert ann.delete("/api/approvals/git-push").status_code == 204
        assert [a["kind"] for a in ann.get("/api/approvals").json()] == ["tool:deploy"]
