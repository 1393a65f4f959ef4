"""Every route of the gateway's own table, tried by everybody who may not use it: a new one cannot be forgotten."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from perdure.core.visibility import User
from perdure.gateway.api.middleware import is_public
from perdure.testing.simulator import Say, Simulator
from perdure.testing.simulator.script import Call, ScriptRequest, Step
from support.gateway_process import last_user_text, obedient
from support.gateway_server import Running, operations, running_gateway
from support.postgres import PostgresBackend
from support.postgres import server_ends_with_the_run as server_ends_with_the_run
from support.store import BACKENDS

MARK = "zebrafinch"
# One for all: a client of its own for each request would spend most of its time on certificates nobody needs.
HTTP = httpx.Client(trust_env=False, verify=False, timeout=30)
# What stands for each part of a path: something of alice's, so that a stranger asks for what is really there.
PARTS = (
    "any_id", "turn_id", "question_id", "output_id", "chat", "seq", "model", "turn", "conversation_id", "response_id",
    "kind",
)  # fmt: skip


def script(asked: ScriptRequest) -> Step:
    """As obedient, and with the tools that know what was said before."""
    word, _, rest = last_user_text(asked.body).partition(" ")
    if asked.body["messages"][-1]["role"] != "tool":
        if word == "find":
            return Say("", calls=(Call("session_search", {"query": rest}),))
        if word == "remember":
            return Say("", calls=(Call("memory", {"action": "add", "text": rest}),))
        if word == "recall":
            return Say("", calls=(Call("memory", {"action": "read"}),))
    return obedient(asked)


@dataclass(frozen=True)
class House:
    """A gateway in which alice has lived for a while."""

    gateway: Running
    sim: Simulator
    # What stands for each part of a path, and what to send.
    parts: dict[str, str]
    bodies: dict[str, Any]

    def ask(self, method: str, path: str, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        return HTTP.request(method, self.gateway.url + path, headers=headers or {}, **more)

    def say(self, user: str, text: str, **more: Any) -> dict[str, Any]:
        answered = self.ask(
            "POST",
            "/api/messages?wait=true",
            self.gateway.headers(user),
            json={"content": text, **more},
        )
        assert answered.status_code == 200, answered.text
        return dict(answered.json())


@pytest.fixture(scope="module", params=BACKENDS)
def house(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("house")
    database = PostgresBackend(folder, is_new=True).url if request.param == "postgresql" else None
    everything = ("chat", "read", "shell", "admin")
    users: dict[str, Any] = {
        "alice": ("chat", "read", "shell"),
        "bob": ("chat", "read", "shell"),
        "root": everything,
        "shell-only": ("shell",),
        "revoked": everything,
        "expired": everything,
    }
    with (
        Simulator(script=script) as sim,
        running_gateway(folder, sim, users=users, gateway={"question_timeout_s": 120}, database=database) as gateway,
    ):
        _end(gateway)
        yield _lived_in(House(gateway, sim, {}, {}))


def _end(gateway: Running) -> None:
    gateway.tokens.revoke("revoked")
    row = next(t for t in gateway.tokens.all() if t.user == User("expired"))
    stored = gateway.store.state("gateway:tokens")
    stored.set(row.digest, {**stored.get(row.digest), "expires_at": 1})


def _lived_in(house: House) -> House:
    """Alice talks, remembers, has a long output, and waits for an approval; all of it bears the mark."""
    gateway = house.gateway
    first = house.say("alice", f"say {MARK} one", chat=f"chat-{MARK}")
    house.say("alice", f"remember the {MARK} likes seeds", chat=f"chat-{MARK}")
    house.say("alice", f"run yes {MARK} | head -40000", chat=f"chat-{MARK}")
    outputs = gateway.store.outputs.list(first["conversation_id"])
    assert outputs, "alice's output was not kept apart"
    asking = threading.Thread(target=_ask_for_approval, args=(house,), daemon=True)
    asking.start()
    question = _question(house)
    gateway.store.state("approvals").set("alice", [f"tool:{MARK}"])
    house.parts.update(
        any_id=first["conversation_id"],
        conversation_id=first["conversation_id"],
        turn_id=first["turn_id"],
        turn=first["turn_id"],
        output_id=outputs[0].id,
        question_id=question,
        chat=f"chat-{MARK}",
        seq="1",
        model="perdure",
        kind=f"tool:{MARK}",
        response_id=_response_id(house),
    )
    named = {"x-perdure-conversation": first["conversation_id"]}
    house.bodies.update(
        {
            "POST /api/messages": {"json": {"content": "say mine now", "conversation_id": first["conversation_id"]}},
            "POST /api/questions/{question_id}": {"json": {"answer": "once"}},
            "POST /api/chats/{chat}/stop": {},
            "POST /v1/chat/completions": {
                "json": {"model": "perdure", "messages": [{"role": "user", "content": "say mine now"}]},
                "headers": named,
            },
            "POST /v1/responses": {"json": {"model": "perdure", "input": "say mine now"}, "headers": named},
            "GET /api/page/conversations/{any_id}/open": {"params": {"address": "m:1"}},
            "GET /api/page/search": {"params": {"q": MARK}},
            "GET /api/page/conversations": {"params": {"q": MARK}},
        }
    )
    return house


def _response_id(house: House) -> str:
    body = {"model": "perdure", "input": f"say {MARK} two"}
    return str(house.ask("POST", "/v1/responses", house.gateway.headers("alice"), json=body).json()["id"])


def _ask_for_approval(house: House) -> None:
    headers = {**house.gateway.headers("alice"), "accept": "text/event-stream"}
    body = {"content": f"run rm -rf /no-such-{MARK}", "chat": f"asking-{MARK}"}
    url = f"{house.gateway.url}/api/messages"
    with HTTP.stream("POST", url, json=body, headers=headers, timeout=None) as stream:
        for _ in stream.iter_lines():
            pass


def _question(house: House) -> str:
    give_up = time.monotonic() + 20
    while time.monotonic() < give_up:
        open_ = house.ask("GET", "/api/questions", house.gateway.headers("alice")).json()
        if open_:
            return str(open_[0]["question_id"])
        time.sleep(0.1)
    raise AssertionError("alice's question was never asked")


def _path(house: House, path: str) -> str:
    for name, value in house.parts.items():
        path = path.replace(f"{{{name}}}", value)
    assert "{" not in path, f"say in PARTS and _lived_in what stands for the parts of {path}"
    return path


def _private(house: House) -> list[tuple[str, str]]:
    found = [(m, p) for m, p in operations(house.gateway.app) if m not in ("MOUNT", "WS") and not is_public(m, p)]
    assert len(found) > 20, "the route table was not read"
    return found


def test_the_table_covers_every_route(house: House) -> None:
    found = operations(house.gateway.app)
    assert {m for m, _ in found} >= {"GET", "POST", "WS", "MOUNT"}
    public = {(m, p) for m, p in found if m not in ("MOUNT", "WS") and is_public(m, p)}
    assert public == {("GET", "/healthz"), ("GET", "/readyz")}
    listed = {(m.upper(), p) for p, ways in house.gateway.app.openapi()["paths"].items() for m in ways}
    assert listed == {(m, p) for m, p in found if m not in ("MOUNT", "WS", "HEAD")} - {("GET", "/openapi.json")}


@pytest.mark.parametrize(
    ("token", "status"),
    [(None, 401), ("pdr_" + "A" * 43, 401), ("revoked", 401), ("expired", 401), ("shell-only", 403)],
    ids=["no token", "wrong", "revoked", "expired", "insufficient scope"],
)
def test_every_route_requires_a_valid_token_and_scope(token: str | None, status: int, house: House) -> None:
    headers = {} if token is None else {"authorization": f"Bearer {house.gateway.users.get(token, token)}"}
    for method, path in _private(house):
        if path == "/openapi.json" and status == 403:
            continue  # what there is to ask for is no secret among those who were let in
        answer = house.ask(method, _path(house, path), headers)
        assert answer.status_code == status, (method, path, answer.status_code)
        assert MARK not in answer.text


@pytest.mark.parametrize(
    ("token", "status"),
    [(None, 401), ("pdr_" + "A" * 43, 401), ("revoked", 401), ("expired", 401), ("shell-only", 403)],
)
def test_websockets_require_a_valid_token(token: str | None, status: int, house: House) -> None:
    headers = {} if token is None else {"authorization": f"Bearer {house.gateway.users.get(token, token)}"}
    for method, path in operations(house.gateway.app):
        if method != "WS":
            continue
        assert path.startswith("/api"), path
        url = house.gateway.url.replace("http", "ws") + _path(house, path)
        with pytest.raises(InvalidStatus) as refused, connect(url, additional_headers=headers):
            pass
        assert refused.value.response.status_code == status


def test_no_route_returns_another_users_data(house: House) -> None:
    """Bob asks every route for what is alice's: he finds nothing, and nothing of hers is in any answer."""
    for method, path in _private(house):
        given = house.bodies.get(f"{method} {path}", {})
        assert method == "GET" or given is not None, f"say in _lived_in what to send to {path}"
        answer_status, text = _heard(house, "bob", method, path, dict(given))
        assert answer_status < 500, (method, path, text)
        assert MARK not in text, (method, path, text[:500])
        if any(f"{{{name}}}" in path for name in PARTS if name not in ("chat", "model")):
            assert answer_status == 404, (method, path, answer_status)
    for path in ("/api/messages", "/v1/chat/completions", "/v1/responses"):
        assert _heard(house, "bob", "POST", path, dict(house.bodies[f"POST {path}"]))[0] == 404, path


def test_the_owner_can_read_all_of_it(house: House) -> None:
    """The same questions from alice are answered: bob's silence is not that of a broken route."""
    for method, path in _private(house):
        if method != "GET" or path in ("/metrics", "/openapi.json", "/api/page/live") or path.endswith("/events"):
            continue
        given = house.bodies.get(f"{method} {path}", {})
        status, text = _heard(house, "alice", method, path, dict(given))
        is_handoff = path.endswith("{seq}")  # there was no compaction
        assert status == (404 if is_handoff else 200), (path, status, text[:200])
    for path in (
        "/api/page/search?q=" + MARK,
        "/api/page/conversations?q=" + MARK,
        f"/api/outputs/{house.parts['output_id']}",
        "/api/questions",
        f"/api/messages/{house.parts['turn_id']}",
        f"/api/page/conversations/{house.parts['any_id']}/timeline",
    ):
        assert MARK in house.ask("GET", path, house.gateway.headers("alice")).text, path


def test_only_the_asked_user_can_answer_a_question(house: House) -> None:
    path = f"/api/questions/{house.parts['question_id']}"
    assert house.ask("POST", path, house.gateway.headers("bob"), json={"answer": "always"}).status_code == 404
    still = house.ask("GET", "/api/questions", house.gateway.headers("alice")).json()
    assert [q["question_id"] for q in still] == [house.parts["question_id"]]


@pytest.mark.spec("A4")
def test_usage_counts_ones_own(house: House) -> None:
    for user in ("alice", "bob"):
        told = house.ask("GET", "/api/page/usage?days=7", house.gateway.headers(user)).json()
        mine = house.gateway.store.conversations.list(visibility=User(user)).conversations
        assert told["totals"]["calls"] == sum(house.gateway.store.ledger.totals(c.id).calls for c in mine)
        assert told["totals"]["calls"] > 0 or user == "bob"


def test_the_tools_of_a_model_see_only_their_users_own(house: House) -> None:
    def told(user: str, text: str) -> str:
        house.say(user, text, chat=f"tools-{user}-{text[:4]}")
        return str(house.sim.requests[-1].body["messages"][-1]["content"])

    assert MARK in told("alice", f"find {MARK}")
    assert MARK in told("alice", "recall everything")
    assert MARK not in told("bob", "recall everything")
    assert "likes" in told("alice", "find seed*")
    assert "likes" not in told("bob", "find seed*")
    assert MARK not in told("bob", f"find output:{house.parts['output_id']}")
    assert MARK not in told("bob", f"open output:{house.parts['output_id']}")
    assert MARK in told("alice", f"open output:{house.parts['output_id']}")


def test_memory_is_in_the_prompt_of_its_user_alone(house: House) -> None:
    def prompt(user: str) -> str:
        house.say(user, "say hello", chat=f"prompt-{user}")
        return str(house.sim.requests[-1].body["messages"][0]["content"])

    assert f"the {MARK} likes seeds" in prompt("alice")
    assert MARK not in prompt("bob")


def test_commands_list_only_the_users_own_conversations(house: House) -> None:
    for command in ("/resume", f"/resume {house.parts['any_id']}", "/insights", "/usage", "/context"):
        assert MARK not in house.say("bob", command, chat="commands")["text"], command
    refused = house.say("bob", f"/resume {house.parts['any_id']}", chat="commands")
    assert refused["level"] in ("warning", "error")
    assert house.say("alice", f"/resume {house.parts['any_id']}", chat="commands")["level"] == "info"


def test_events_of_a_chat_reach_only_its_owner(house: House) -> None:
    """Bob follows a chat of the same name while alice talks in hers."""
    heard: list[str] = []
    headers = house.gateway.headers("bob")

    def subscribe() -> None:
        url = f"{house.gateway.url}/api/chats/chat-{MARK}/events"
        with HTTP.stream("GET", url, headers=headers, timeout=3) as stream:
            try:
                heard.extend(stream.iter_lines())
            except httpx.ReadTimeout:
                return

    thread = threading.Thread(target=subscribe)
    thread.start()
    time.sleep(0.5)
    house.say("alice", f"say {MARK} again", chat=f"chat-{MARK}")
    thread.join()
    assert heard[0] == ": open"
    assert not [line for line in heard if line.startswith("data")]


def test_an_admin_can_read_everything_but_not_write_as_others(house: House) -> None:
    root = house.gateway.headers("root")
    assert MARK in house.ask("GET", "/api/page/search?q=" + MARK, root).text
    told = house.ask("GET", "/metrics", root)
    assert told.headers["content-type"].startswith("text/plain; version=0.0.4")
    figures = dict(line.rsplit(" ", 1) for line in told.text.splitlines() if line[0] != "#")
    assert float(figures['perdure_turns_total{outcome="completed",platform="http"}']) >= 3
    assert float(figures["perdure_live_agents"]) >= 1
    assert float(figures["perdure_hygiene_checks_total"]) >= 3
    assert {"perdure_queue_depth", "perdure_running_turns", "perdure_lease_takeovers_total"} <= set(figures)
    assert house.ask("GET", "/metrics", house.gateway.headers("alice")).status_code == 403


@pytest.mark.parametrize(
    "given",
    ["../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%00", "o_..%2f..", "a" * 5_000, "%0d%0aset-cookie:%20x=1", "'--"],
)
def test_ids_with_path_traversal_are_not_found(given: str, house: House) -> None:
    for path in (
        "/api/outputs/{}",
        "/api/messages/{}",
        "/api/page/conversations/{}",
        "/api/questions/{}",
        "/v1/models/{}",
    ):
        answer = house.ask("GET", path.format(given), house.gateway.headers("alice"))
        assert answer.status_code in (404, 405, 422), (path, answer.status_code)
        assert "root:" not in answer.text
        assert "set-cookie" not in answer.headers


def test_the_log_contains_no_message_text_and_no_tokens(house: House) -> None:
    for n in range(102):
        user = ("alice", "bob")[n % 2]
        house.ask("GET", "/api/page/conversations?q=likes%20seeds", house.gateway.headers(user))
    log = house.gateway.log.getvalue()
    assert log.count('"event": "request"') > 100
    assert "likes seeds" not in log
    assert not [token for token in house.gateway.users.values() if token in log]


def _heard(house: House, user: str, method: str, path: str, given: dict[str, Any]) -> tuple[int, str]:
    """An answer; of one that goes on, what comes within a moment."""
    headers = {**house.gateway.headers(user), **given.pop("headers", {})}
    text, began = "", time.monotonic()
    url = house.gateway.url + _path(house, path)
    with HTTP.stream(method, url, headers=headers, timeout=30, **given) as answer:
        is_stream = "event-stream" in answer.headers.get("content-type", "")
        if is_stream:
            # Silence ends the reading of a stream that goes on; the first byte of an answer may take its time.
            answer.request.extensions["timeout"]["read"] = 5.0 if method == "POST" else 1.5
        try:
            for piece in answer.iter_text():
                text += piece
                if time.monotonic() - began > 2 and is_stream:
                    break
        except httpx.ReadTimeout:
            assert is_stream, path
        return answer.status_code, text
