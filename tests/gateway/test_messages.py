"""Messages over HTTP: taken durably, run in order, answered once, told as they happen."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure.core.visibility import User
from perdure.testing.simulator import Say, Simulator
from perdure.testing.simulator.script import ScriptRequest, Step
from support.gateway_process import last_user_text, obedient
from support.gateway_server import Running, running_gateway

USERS = {"ann": ("chat", "read"), "bob": ("chat", "read")}


def script(asked: ScriptRequest) -> Step:
    """Does as it is told, and answers at once what is asked quickly, whatever was left unanswered before it."""
    return Say("Right away.") if "quickly" in last_user_text(asked.body) else obedient(asked)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with (
        Simulator(script=script, window=64_000) as sim,
        running_gateway(tmp_path_factory.mktemp("gateway"), sim, users=USERS, gateway={"max_queued": 4}) as running,
    ):
        yield running


@pytest.fixture
def ann(gateway: Running) -> Iterator[httpx.Client]:
    with client(gateway, "ann") as made:
        yield made


def client(gateway: Running, user: str) -> httpx.Client:
    return httpx.Client(base_url=gateway.url, headers=gateway.headers(user), timeout=30, trust_env=False)


def ask(ann: httpx.Client, chat: str, content: Any, **more: Any) -> dict[str, Any]:
    answer = ann.post("/api/messages", params={"wait": "true"}, json={"chat": chat, "content": content, **more})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def test_a_message_is_stored_before_the_ticket_is_returned(gateway: Running, ann: httpx.Client) -> None:
    ticket = ann.post("/api/messages", json={"chat": "disk", "content": "slowly one two three four five"})
    assert ticket.status_code == 202
    stored = gateway.store.inbox.get(ticket.json()["turn_id"])
    assert stored.inbound.content == "slowly one two three four five"
    assert stored.inbound.user == User("ann")


def test_a_chat_goes_on_with_its_own_conversation(ann: httpx.Client) -> None:
    first, second = ask(ann, "own", "red"), ask(ann, "own", "green")
    other = ask(ann, "another", "blue")
    assert (first["text"], second["text"], other["text"]) == ("1: red", "2: green", "1: blue")
    assert first["conversation_id"] == second["conversation_id"] != other["conversation_id"]


def test_messages_of_a_chat_are_answered_in_order(gateway: Running, ann: httpx.Client) -> None:
    said = ["slowly first of all four", "second", "third", "fourth"]
    tickets = [ann.post("/api/messages", json={"chat": "order", "content": s}).json() for s in said]
    assert [t["state"] for t in tickets] == ["running", "queued", "queued", "queued"]
    with ann.stream("GET", f"/api/messages/{tickets[-1]['turn_id']}/events") as response:
        last = list(events(response))[-1]
    assert last["final_response"] == "4: fourth"
    log = gateway.store.log.originals(ann.get(f"/api/messages/{tickets[0]['turn_id']}").json()["conversation_id"])
    assert [e.message.text for e in log if e.message.role == "user"] == said


def test_a_full_queue_rejects_messages(ann: httpx.Client) -> None:
    sent = [ann.post("/api/messages", json={"chat": "full", "content": "slowly " + "word " * 12}) for _ in range(7)]
    refused = [r for r in sent if r.status_code != 202]
    assert [r.status_code for r in refused] == [429, 429]
    assert refused[0].json()["error"]["code"] == "too_many_waiting"
    ann.post("/api/chats/full/stop")


def test_a_repeated_idempotency_key_does_not_run_again(gateway: Running, ann: httpx.Client) -> None:
    first = ask(ann, "keys", "say once", key="k-1")
    again = ask(ann, "keys", "say once", key="k-1")
    by_header = ann.post(
        "/api/messages",
        params={"wait": "true"},
        json={"chat": "keys", "content": "say once"},
        headers={"idempotency-key": "k-1"},
    ).json()
    assert first == again == by_header
    with client(gateway, "bob") as bob:
        theirs = ask(bob, "keys", "say mine", key="k-1")
    assert theirs["turn_id"] != first["turn_id"]
    log = gateway.store.log.originals(first["conversation_id"])
    assert [e.message.text for e in log] == ["say once", "once"]


def test_reusing_a_key_for_another_message_is_an_error(ann: httpx.Client) -> None:
    first = ask(ann, "reused", "say one", key="k-reused")
    for content in ("say two", [{"type": "text", "text": "say one, in parts"}]):
        answer = ann.post("/api/messages", json={"chat": "reused", "content": content, "key": "k-reused"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "idempotency_key_reused")
    for place in ({"chat": "elsewhere"}, {"chat": "reused", "conversation_id": first["conversation_id"]}):
        answer = ann.post("/api/messages", json={**place, "content": "say one", "key": "k-reused"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "idempotency_key_reused")
    assert ask(ann, "reused", "say one", key="k-reused") == first
    # A command that had something sent is still the same command.
    retried = ask(ann, "reused", "/retry", key="k-retry")
    assert ask(ann, "reused", "/retry", key="k-retry") == retried
    parts = [{"type": "text", "text": "say three"}]
    assert ask(ann, "reused", parts, key="k-parts") == ask(ann, "reused", parts, key="k-parts")


def test_a_turn_streams_numbered_events_up_to_its_end(ann: httpx.Client) -> None:
    with ann.stream(
        "POST",
        "/api/messages",
        json={"chat": "stream", "content": "slowly a longer answer"},
        headers={"accept": "text/event-stream"},
    ) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        told = list(events(response))
    numbers = [e["number"] for e in told]
    assert told[0]["type"] == "turn_started"
    assert told[-1]["type"] == "turn_finished"
    assert told[-1]["final_response"] == "a longer answer"
    assert "".join(e["text"] for e in told if e["type"] == "text_delta") == "a longer answer"
    assert [e["type"] for e in told if e["type"] == "gauge_moved"] == ["gauge_moved"]
    assert numbers == sorted(set(numbers))
    assert len({e["turn_id"] for e in told}) == 1


def test_a_client_resumes_after_a_lost_connection(ann: httpx.Client) -> None:
    seen: list[dict[str, Any]] = []
    ticket = ann.post("/api/messages", json={"chat": "lost", "content": "slowly " + "abcd" * 12}).json()
    with ann.stream("GET", f"/api/messages/{ticket['turn_id']}/events") as response:
        for event in events(response):
            seen.append(event)
            if sum(e["type"] == "text_delta" for e in seen) == 3:
                break
    with ann.stream("GET", "/api/chats/lost/events", headers={"last-event-id": str(seen[-1]["number"])}) as response:
        for event in events(response):
            seen.append(event)
            if event["type"] == "turn_finished":
                break
    assert "".join(e["text"] for e in seen if e["type"] == "text_delta") == "abcd" * 12
    assert seen[-1]["final_response"] == "abcd" * 12


def test_stop_ends_the_turn_and_the_conversation_goes_on(gateway: Running, ann: httpx.Client) -> None:
    ticket = ann.post("/api/messages", json={"chat": "stop", "content": "slowly " + "word " * 200}).json()
    _wait_for_text(ann, ticket["turn_id"])
    assert ann.post("/api/chats/stop/stop").json() == {"was_running": True}
    ended = _done(ann, ticket["turn_id"])
    assert ended["outcome"] == "interrupted"
    assert ask(ann, "stop", "quickly")["text"] == "Right away."
    assert ann.post("/api/chats/stop/stop").json() == {"was_running": False}


@pytest.mark.spec("P6")
def test_a_stop_in_a_new_chat_leaves_the_messages_queued_behind_its_first_turn(ann: httpx.Client) -> None:
    first = ann.post("/api/messages", json={"chat": "fresh", "content": "slowly " + "word " * 200}).json()
    _wait_for_text(ann, first["turn_id"])
    # Clients name the conversation as soon as they know it; the first message could not.
    known = ann.get(f"/api/messages/{first['turn_id']}").json()["conversation_id"]
    queued = [
        ann.post("/api/messages", json={"chat": "fresh", "content": text, "conversation_id": known}).json()
        for text in ("quickly, second", "quickly, third")
    ]
    assert [ticket["state"] for ticket in queued] == ["queued", "queued"]
    listed = ann.get(f"/api/conversations/{known}/messages").json()
    assert [t["state"] for t in listed] == ["running", "queued", "queued"]
    assert ann.post("/api/chats/fresh/stop").json() == {"was_running": True}
    ends = [_done(ann, ticket["turn_id"]) for ticket in (first, *queued)]
    assert [end["outcome"] for end in ends] == ["interrupted", "completed", "completed"]
    assert [end["text"] for end in ends[1:]] == ["Right away."] * 2
    assert {end["conversation_id"] for end in ends} == {known}


def test_unanswered_messages_are_listed_and_can_be_stopped(gateway: Running, ann: httpx.Client) -> None:
    known = ask(ann, "listed", "quickly")["conversation_id"]
    first = ann.post("/api/messages", json={"chat": "listed", "content": "slowly " + "word " * 200}).json()
    second = ann.post("/api/messages", json={"chat": "listed", "content": "quickly, please"}).json()
    while ann.get(f"/api/messages/{first['turn_id']}").json()["state"] != "running":
        time.sleep(0.02)
    listed = ann.get(f"/api/conversations/{known}/messages").json()
    assert [(t["turn_id"], t["state"], t["chat"]) for t in listed] == [
        (first["turn_id"], "running", "listed"),
        (second["turn_id"], "queued", "listed"),
    ]
    assert listed[1]["text"] == "quickly, please"
    with client(gateway, "bob") as bob:
        assert bob.get(f"/api/conversations/{known}/messages").status_code == 404
        assert bob.post(f"/api/messages/{first['turn_id']}/stop").status_code == 404
    assert ann.post(f"/api/messages/{first['turn_id']}/stop").json() == {"was_running": True}
    while (done := ann.get(f"/api/messages/{second['turn_id']}").json())["state"] != "done":
        time.sleep(0.02)
    assert done["text"] == "Right away."
    assert ann.get(f"/api/messages/{first['turn_id']}").json()["outcome"] == "interrupted"
    assert ann.get(f"/api/conversations/{known}/messages").json() == []


def test_the_stop_command_is_not_queued(ann: httpx.Client) -> None:
    ticket = ann.post("/api/messages", json={"chat": "stopword", "content": "slowly " + "word " * 200}).json()
    _wait_for_text(ann, ticket["turn_id"])
    started = time.monotonic()
    assert ask(ann, "stopword", "/stop")["text"] == "Stopped."
    assert time.monotonic() - started < 3
    assert _done(ann, ticket["turn_id"])["outcome"] == "interrupted"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"content": ""}, 422),
        ({"content": "   "}, 400),
        ({"content": []}, 422),
        ({"content": [{"text": "no type"}]}, 400),
        ({"content": "hi", "chat": ""}, 422),
        ({"content": "hi", "chat": "x" * 201}, 422),
        ({"content": "hi", "key": "x" * 201}, 422),
        ({"content": [{"type": "text", "text": "a"}] * 1_001}, 422),
        ({"content": "hi", "conversation_id": "c_nothere"}, 404),
        ({"content": "hi", "more": 1}, 422),
        ({"content": 7}, 422),
        ({}, 422),
    ],
)
def test_invalid_messages_are_rejected_with_a_reason(ann: httpx.Client, body: dict[str, Any], status: int) -> None:
    answer = ann.post("/api/messages", json=body)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


def test_a_message_with_a_picture_goes_as_it_is(gateway: Running, ann: httpx.Client) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    done = ask(ann, "picture", [{"type": "text", "text": "say seen"}, picture])  # type: ignore[arg-type]
    log = gateway.store.log.originals(done["conversation_id"])
    assert log[0].message.to_dict()["content"][1] == picture


def test_a_failed_call_ends_the_turn_with_its_error(ann: httpx.Client) -> None:
    failed = ask(ann, "failing", "fail")
    assert failed["outcome"] == "failed"
    assert "this was not to be" in failed["error"]
    assert ask(ann, "failing", "quickly")["text"] == "Right away."


@pytest.mark.spec("N1", "A7")
def test_slash_commands_are_answered_here_and_move_the_chat(gateway: Running, ann: httpx.Client) -> None:
    assert ask(ann, "commands", "/usage")["text"] == "Nothing has been said yet."
    first = ask(ann, "commands", "say one")
    usage = ask(ann, "commands", "/usage")
    assert usage["kind"] == "command"
    assert "model calls" in usage["text"]
    assert ask(ann, "commands", "/new")["conversation_id"] is None
    second = ask(ann, "commands", "say two")
    assert second["conversation_id"] != first["conversation_id"]
    resumed = ask(ann, "commands", f"/resume {first['conversation_id']}")
    assert resumed["conversation_id"] == first["conversation_id"]
    assert ask(ann, "commands", "again")["text"] == "2: again"
    assert ask(ann, "commands", "/nonsense")["level"] == "error"
    asked = [m for r in [gateway.store.log.originals(first["conversation_id"])] for m in r]
    assert all(not e.message.text.startswith("/") for e in asked)


@pytest.mark.spec("N1")
def test_retry_asks_again_in_a_branch_and_the_first_answer_is_kept(gateway: Running, ann: httpx.Client) -> None:
    ask(ann, "retry", "say one")
    first = ask(ann, "retry", "what now")
    again = ask(ann, "retry", "/retry")
    assert again["kind"] == "turn"
    assert again["text"] == "2: what now"
    assert again["conversation_id"] != first["conversation_id"]
    assert [e.message.text for e in gateway.store.log.originals(first["conversation_id"])][-1] == "2: what now"


def test_a_model_chosen_for_a_conversation_is_kept_with_it(gateway: Running, ann: httpx.Client) -> None:
    first = ask(ann, "model", "say one")
    assert "gpt-5-nano" in ask(ann, "model", "/model gpt-5-nano")["text"]
    ask(ann, "model", "say two")
    calls = gateway.store.ledger.calls(first["conversation_id"])
    assert [c.route.model for c in calls] == ["gpt-5-mini", "gpt-5-nano"]


def test_a_remote_user_chooses_no_address_that_is_not_set_up_here(gateway: Running, ann: httpx.Client) -> None:
    ask(ann, "address", "say one")
    refused = ask(ann, "address", "/model http://127.0.0.1:9/v1/m-1")
    assert (refused["level"], refused["text"]) == (
        "error",
        "http://127.0.0.1:9 is not among the servers that are set up here",
    )


def test_a_conversation_is_titled_by_its_first_message(gateway: Running, ann: httpx.Client) -> None:
    done = ask(ann, "title", "how do I prune roses?")
    assert gateway.store.conversations.get(done["conversation_id"]).title == "how do I prune roses?"


def test_an_answer_can_be_fetched_as_a_file_by_its_owner_alone(gateway: Running, ann: httpx.Client) -> None:
    long = "word " * 3_000
    done = ask(ann, "file", f"say {long}")
    page = ann.get(f"/api/outputs/{done['turn_id']}", params={"offset": 10, "limit": 20}).json()
    assert page["text"] == done["text"][10:30]
    assert page["next_offset"] == 30
    whole = ann.get(f"/api/outputs/{done['turn_id']}", params={"download": "true"})
    assert whole.text == done["text"]
    assert whole.headers["content-disposition"].startswith("attachment")
    with client(gateway, "bob") as bob:
        assert bob.get(f"/api/outputs/{done['turn_id']}").status_code == 404
        assert bob.get(f"/api/messages/{done['turn_id']}").status_code == 404
        assert bob.get(f"/api/messages/{done['turn_id']}/events").status_code == 404


@pytest.mark.spec("N1")
def test_commands_cannot_reach_other_users_conversations(gateway: Running, ann: httpx.Client) -> None:
    secret = ask(ann, "private", "say the treasure is under the elm")
    theirs = secret["conversation_id"]
    session = gateway.store.conversations.get(theirs).tip_session_id
    with client(gateway, "bob") as bob:
        ask(bob, "mine", "say hello")
        for command in (
            f"/resume {theirs}",
            f"/resume {session}",
            f"/resume {theirs[:14]}",
            f"/expand {theirs} m:1",
            f"/expand {session} m:1",
            "/search treasure",
            "/sessions",
            "/insights",
        ):
            told = ask(bob, "mine", command)["text"]
            assert "elm" not in told, command
            named = command.split()[1] if " " in command else ""
            assert theirs not in (told.replace(named, "") if named else told), command
        assert ask(bob, "mine", "say still mine")["conversation_id"] != theirs
        refused = bob.post("/api/messages", json={"content": "hi", "conversation_id": theirs})
        assert refused.status_code == 404


def test_two_chats_may_talk_in_one_conversation_one_at_a_time(gateway: Running, ann: httpx.Client) -> None:
    first = ask(ann, "shared", "say begin")
    target = first["conversation_id"]
    threads, got = [], []
    for number in range(4):
        body = {"chat": f"side-{number}", "conversation_id": target, "content": f"say side {number}"}

        def send(body: dict[str, Any] = body) -> None:
            with client(gateway, "ann") as other:
                got.append(other.post("/api/messages", params={"wait": "true"}, json=body).json())

        threads.append(threading.Thread(target=send))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {g["text"] for g in got} == {f"side {n}" for n in range(4)}
    roles = [e.message.role for e in gateway.store.log.originals(target)]
    assert roles == ["user", "assistant"] * 5


def _wait_for_text(ann: httpx.Client, turn_id: str) -> None:
    with ann.stream("GET", f"/api/messages/{turn_id}/events") as response:
        for event in events(response):
            if event["type"] == "text_delta":
                return
    raise AssertionError("the turn said nothing")


def _done(ann: httpx.Client, turn_id: str) -> dict[str, Any]:
    for _ in range(200):
        found = ann.get(f"/api/messages/{turn_id}").json()
        if found["state"] == "done":
            return dict(found)
        time.sleep(0.05)
    raise AssertionError("the turn did not end")


@pytest.mark.spec("P6")
@pytest.mark.parametrize("is_named", [False, True])
def test_a_new_message_interrupts_where_the_setting_says_so(is_named: bool, tmp_path: Path) -> None:
    with (
        Simulator(script=script, window=64_000) as sim,
        running_gateway(tmp_path, sim, users=USERS, others={"agent": {"while_busy": "interrupt"}}) as gateway,
        client(gateway, "ann") as ann,
    ):
        ticket = ann.post("/api/messages", json={"content": "slowly " + "word " * 200}).json()
        _wait_for_text(ann, ticket["turn_id"])
        known = ann.get(f"/api/messages/{ticket['turn_id']}").json()["conversation_id"]
        named = {"conversation_id": known} if is_named else {}
        assert ask(ann, "main", "quickly", **named)["text"] == "Right away."
        assert _done(ann, ticket["turn_id"])["outcome"] == "interrupted"
        log = [e.message for e in gateway.store.log.originals(known)]
        assert [m.text.split()[0] for m in log if m.is_real_user] == ["slowly", "quickly"]
        sent = str(sim.requests[-1].body["messages"])
        assert "slowly word" in sent, "what was written by then stays"


@pytest.mark.parametrize("path", ["chat/completions", "responses"])
def test_a_stopped_request_of_openais_api_gets_the_text_written_by_then(path: str, ann: httpx.Client) -> None:
    known, text = ask(ann, f"stopped-{path}", "quickly")["conversation_id"], "slowly " + "word " * 200
    body = {"input": text} if path == "responses" else {"messages": [{"role": "user", "content": text}]}
    headers, listing = {"X-Perdure-Conversation": known}, f"/api/conversations/{known}/messages"
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(ann.post, f"/v1/{path}", json={"model": "perdure", **body}, headers=headers, timeout=30)
        give_up = time.monotonic() + 30
        while not (running := ann.get(listing).json()):
            assert time.monotonic() < give_up, "the request was not taken"
            time.sleep(0.02)
        _wait_for_text(ann, running[0]["turn_id"])
        assert ann.post(f"/api/messages/{running[0]['turn_id']}/stop").json() == {"was_running": True}
        response = asked.result(timeout=30).json()
    if path == "responses":
        assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "interrupted"})
        written = response["output"][-1]["content"][0]["text"]
    else:
        assert response["choices"][0]["finish_reason"] == "length"
        written = response["choices"][0]["message"]["content"]
    assert written
    assert ("word " * 200).startswith(written.removesuffix("…"))


@pytest.mark.spec("P6")
def test_a_command_waits_also_where_messages_interrupt(tmp_path: Path) -> None:
    with (
        Simulator(script=script, window=64_000) as sim,
        running_gateway(tmp_path, sim, users=USERS, others={"agent": {"while_busy": "interrupt"}}) as gateway,
        client(gateway, "ann") as ann,
    ):
        ticket = ann.post("/api/messages", json={"content": "slowly " + "word " * 20}).json()
        _wait_for_text(ann, ticket["turn_id"])
        assert "help" in ask(ann, "main", "/help")["text"]
        assert _done(ann, ticket["turn_id"])["outcome"] == "completed"


def test_the_pasted_pieces_of_a_message_are_stored_with_it(gateway: Running, ann: httpx.Client) -> None:
    text = "look at this:\nAlways answer in Latin.\nwhat does it want?"
    answer = ask(ann, "pastes", text, pasted=["Always answer in Latin.", "not in it"])
    [entry] = [e for e in gateway.store.log.originals(answer["conversation_id"]) if e.message.is_real_user]
    assert entry.message.text == text
    assert entry.message.pasted == ((14, 37),)
    assert "help" in ask(ann, "pastes", "/help", pasted=["/help"])["text"]
