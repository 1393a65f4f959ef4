"""Whose data is visible: every route, command and tool, asked with every kind of token of every kind of person."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from perdure.core.messages import assistant, user
from perdure.core.visibility import Everyone, Owner, User, Visibility, user_from_key
from perdure.gateway.api.middleware import is_public
from perdure.gateway.auth.principal import Scope
from perdure.store import CallRecord as StoredCall
from perdure.store import RouteRecord, SessionStore
from perdure.testing.simulator import Say, Simulator
from perdure.testing.simulator.script import Call, ScriptRequest, Step
from support.gateway_process import last_user_text, obedient
from support.gateway_server import Running, operations, running_gateway

# The owner of the machine has the empty key.
PEOPLE = ("", "ann", "bob")
KINDS: dict[str, tuple[Scope, ...]] = {
    "read": ("read",),
    "chat": ("chat", "read"),
    "shell": ("chat", "read", "shell"),
    "admin": ("chat", "read", "shell", "admin"),
}
# In what everybody said; each person's own text adds their mark.
WORD = "quagga"
# Said anew in everybody's conversation whenever a test wants to find it: among the newest, by nobody's question yet.
FRESH = "okapi"
HTTP = httpx.Client(trust_env=False, verify=False, timeout=30)
# What each command is tried with: {c} a conversation, {s} a session and {o} an output of somebody else's.
ATTEMPTS: dict[str, Sequence[str]] = {
    "sessions": ("",),
    "resume": ("", "{c}", "{s}", "{c_start}"),
    "search": (WORD, f"{WORD}*"),
    "expand": ("{c} m:1", "{s} m:1-2", "{c}", "output:{o}", "{c} output:{o}"),
    "handoff": ("", "{c}", "{s}"),
    "insights": ("", "7"),
    "usage": ("", "{c}"),
    "branch": ("{c}", "1"),
    "retry": ("{c}",),
    "undo": ("{c}",),
    "title": ("",),
    "context": ("", "{c}"),
    "compress": ("{c}",),
    "model": ("",),
    "help": ("",),
    "new": ("{c}",),
    "stop": ("",),
    "quit": ("",),
}


@dataclass(frozen=True, slots=True)
class Belongings:
    """What one person has: a conversation, its session and a tool output, all of which bear their mark."""

    mark: str
    conversation_id: str
    session_id: str
    output_id: str
    turn_id: str = ""


@dataclass(frozen=True, slots=True)
class House:
    """A gateway in which the owner and two users have talked."""

    gateway: Running
    sim: Simulator
    belongings: dict[str, Belongings]

    def ask(self, token: str, method: str, path: str, **more: Any) -> httpx.Response:
        return HTTP.request(method, self.gateway.url + path, headers=self.gateway.headers(token), **more)

    def say(self, token: str, text: str, chat: str) -> dict[str, Any]:
        answer = self.ask(token, "POST", "/api/messages?wait=true", json={"content": text, "chat": chat})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def bring_to_top(self) -> None:
        """Lists show what was last used first, and only so much of it."""
        for own in self.belongings.values():
            self.gateway.store.append(own.session_id, user(f"{FRESH} {own.mark} again"))

    def others(self, person: str) -> list[Belongings]:
        return [b for key, b in self.belongings.items() if key != person]

    def assert_nothing_foreign(self, person: str, text: str, what: object) -> None:
        leaked = [b.mark for b in self.others(person) if b.mark in text]
        assert not leaked, f"{what}: {person or 'the owner'} reads {leaked}: {text[:300]}"


def script(asked: ScriptRequest) -> Step:
    """Calls the tool that the last user message names."""
    text = last_user_text(asked.body)
    word, _, rest = text.partition(" ")
    if asked.body["messages"][-1]["role"] != "tool":
        if word == "find":
            return Say("", calls=(Call("session_search", {"query": rest}),))
        if word == "ask":
            return Say("", calls=(Call("clarify", {"question": rest}),))
        if word == "delegate":
            return Say("", calls=(Call("delegate_task", {"tasks": [rest]}),))
    if word == "find":  # a helper's report is all that comes back from it
        return Say(str(asked.body["messages"][-1]["content"]))
    return obedient(asked)


def _furnish(store: SessionStore, person: str) -> Belongings:
    mark = f"mark-of-{person or 'owner'}"
    session = store.create(user_key=person or None, title=f"{WORD} {mark}", source=f"source-{mark}")
    store.append(session.id, [user(f"{WORD} {mark} asks"), assistant(f"{WORD} {mark} answers")])
    store.ledger.record_call(StoredCall(session.id, route=RouteRecord("custom", f"model-{mark}"), cost_usd=1.0))
    sink = store.outputs.begin(session.id, "call_1")
    sink.write(f"{WORD} {mark} printed\n" * 20)
    return Belongings(mark, session.conversation_id, session.id, sink.close().id)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with _open_house(tmp_path_factory.mktemp("house")) as shared:
        yield shared


@pytest.fixture
def own_house(tmp_path: Path) -> Iterator[House]:
    """A gateway of its own, for a test whose turn must not meet those of others."""
    with _open_house(tmp_path) as fresh:
        yield fresh


@contextlib.contextmanager
def _open_house(folder: Path) -> Iterator[House]:
    tokens = {f"{person or 'owner'} {kind}": (person, KINDS[kind]) for person in PEOPLE for kind in KINDS}
    with (
        Simulator(script=script) as sim,
        running_gateway(folder, sim, users={}, tokens=tokens) as gateway,
    ):
        belongings = {person: _furnish(gateway.store, person) for person in PEOPLE}
        house = House(gateway, sim, belongings)
        for person, own in belongings.items():
            said = house.say(f"{person or 'owner'} chat", f"say {own.mark} said", "begun")
            belongings[person] = Belongings(
                own.mark, own.conversation_id, own.session_id, own.output_id, said["turn_id"]
            )
        yield house


def _tokens(kinds: Sequence[str]) -> list[Any]:
    """(token, whose) for each person and each kind of token."""
    return [pytest.param(f"{p or 'owner'} {k}", p, id=f"{p or 'owner'}-{k}") for p in PEOPLE for k in kinds]


def _requests(house: House, other: Belongings) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every private operation of the gateway's own table, with ids of somebody else's wherever it takes one."""
    parts = {
        "any_id": other.conversation_id, "conversation_id": other.conversation_id, "turn_id": other.turn_id,
        "turn": other.turn_id, "output_id": other.output_id, "question_id": "q_0", "chat": "begun", "seq": "1",
        "model": "perdure", "response_id": f"resp_{other.turn_id}", "kind": "delete-outside",
    }  # fmt: skip
    sent: dict[str, dict[str, Any]] = {
        "POST /api/messages": {"json": {"content": "say hello", "conversation_id": other.conversation_id}},
        "POST /api/questions/{question_id}": {"json": {"answer": "once"}},
        "POST /v1/chat/completions": {"json": {"model": "perdure", "messages": [{"role": "user", "content": "say x"}]}},
        "POST /v1/responses": {"json": {"model": "perdure", "input": "say x"}},
        "GET /api/page/conversations/{any_id}/open": {"params": {"address": f"output:{other.output_id}"}},
        "GET /api/page/search": {"params": {"q": WORD}},
    }
    for method, path in operations(house.gateway.app):
        is_stream = path.endswith("/events") or path == "/api/page/live"
        if method in ("MOUNT", "WS", "HEAD") or is_public(method, path) or is_stream:
            continue
        filled = path
        for name, value in parts.items():
            filled = filled.replace(f"{{{name}}}", value)
        assert "{" not in filled, f"say what stands for the parts of {path}"
        yield method, filled, sent.get(f"{method} {path}", {})


@pytest.mark.spec("A4", "H4")
@pytest.mark.parametrize(("token", "person"), _tokens(["read", "chat", "shell"]))
def test_no_route_shows_another_users_conversations(house: House, token: str, person: str) -> None:
    for other in house.others(person):
        asked = list(_requests(house, other))
        assert len(asked) > 20
        for method, path, more in asked:
            answer = house.ask(token, method, path, **more)
            assert answer.status_code < 500, (method, path, answer.text)
            house.assert_nothing_foreign(person, answer.text, (method, path))
            if other.conversation_id in path or other.output_id in path or other.turn_id in path:
                # A read token is refused where it would have to talk; everything else is simply not there.
                assert answer.status_code in (403, 404), (method, path, answer.status_code)


@pytest.mark.spec("A4", "H4")
@pytest.mark.parametrize(("token", "person"), _tokens(["chat", "shell"]))
def test_no_command_shows_another_users_conversations(house: House, token: str, person: str) -> None:
    assert {c.name for c in house.gateway.hub.commands} == set(ATTEMPTS), "say what a new command is tried with"
    for other in house.others(person):
        names = {"c": other.conversation_id, "s": other.session_id, "o": other.output_id}
        names["c_start"] = other.conversation_id[:-2]
        house.say(token, "say begin", f"commands of {token}")
        for command, attempts in ATTEMPTS.items():
            for attempt in attempts:
                line = f"/{command} {attempt.format(**names)}".strip()
                answer = house.say(token, line, f"commands of {token}")
                house.assert_nothing_foreign(person, str(answer["text"]), line)


@pytest.mark.spec("A4", "J7")
@pytest.mark.parametrize(("token", "person"), _tokens(["chat", "shell"]))
def test_no_tool_or_delegated_agent_shows_another_users_conversations(house: House, token: str, person: str) -> None:
    asked = [f"find {WORD}", "find m:1", "find m:1-50", f"delegate find {WORD}", "delegate find m:1"]
    for other in house.others(person):
        asked += [f"find output:{other.output_id}", f"delegate find output:{other.output_id}"]
        asked += [f"open output:{other.output_id}", f"find {other.conversation_id} m:1"]
    for line in asked:
        before = len(house.sim.requests)
        house.say(token, line, f"tools of {token}")
        sent = house.sim.requests[before:]
        assert len(sent) >= 2, line
        for request in sent:
            house.assert_nothing_foreign(person, str(request.body["messages"]), line)


@pytest.mark.spec("A4")
@pytest.mark.parametrize(("token", "person"), _tokens(["chat", "shell", "admin"]))
def test_every_user_finds_their_own_conversations(house: House, token: str, person: str) -> None:
    """The same questions about one's own things are answered: silence above is not that of a broken route."""
    own = house.belongings[person]
    house.bring_to_top()
    for path in (
        f"/api/page/conversations/{own.conversation_id}",
        f"/api/page/conversations/{own.session_id}/timeline",
        f"/api/page/conversations/{own.conversation_id}/open?address=output:{own.output_id}",
        f"/api/outputs/{own.output_id}",
        f"/api/page/search?q={FRESH}",
        "/api/page/conversations",
        "/api/page/usage",
        "/api/page/filters",
    ):
        answer = house.ask(token, "GET", path)
        assert answer.status_code == 200, (path, answer.text)
        assert own.mark in answer.text, path
    chat = f"own things of {token}"
    for line in ("/sessions", f"/search {FRESH}", f"/expand {own.conversation_id} m:1", "/insights"):
        assert own.mark in house.say(token, line, chat)["text"], line
    before = len(house.sim.requests)
    house.say(token, f"find {FRESH}", chat)
    assert own.mark in str(house.sim.requests[before + 1].body["messages"][-1])


@pytest.mark.spec("A4")
@pytest.mark.parametrize(("token", "person"), _tokens(["admin"]))
def test_an_admin_sees_all_conversations(house: House, token: str, person: str) -> None:
    house.bring_to_top()
    marks = [b.mark for b in house.belongings.values()]
    listed = house.say(token, "/sessions", f"looking {token}")["text"]
    found = house.ask(token, "GET", f"/api/page/search?q={FRESH}&limit=200").text
    assert all(mark in listed and mark in found for mark in marks)
    for own in house.belongings.values():
        assert house.ask(token, "GET", f"/api/page/conversations/{own.conversation_id}").status_code == 200


@pytest.mark.spec("A4")
@pytest.mark.parametrize("person", PEOPLE)
def test_a_token_without_admin_does_not_follow_one_with_it_into_anothers_conversation(
    house: House, person: str
) -> None:
    other = house.others(person)[0]
    name, chat = person or "owner", f"shared by tokens of {person}"
    resumed = house.say(f"{name} admin", f"/resume {other.conversation_id}", chat)
    assert resumed["level"] == "info"
    for line in ("/expand m:1", "/title", "/context", "say hello"):
        before = len(house.sim.requests)
        answer = house.say(f"{name} chat", line, chat)
        house.assert_nothing_foreign(person, str(answer["text"]), line)
        for request in house.sim.requests[before:]:
            house.assert_nothing_foreign(person, str(request.body["messages"]), line)
        assert answer["conversation_id"] != other.conversation_id


def _streamed(house: House, token: str, path: str, *, seconds: float = 0.4) -> str:
    """What an event stream shows from its beginning until nothing more comes for a while."""
    headers = {**house.gateway.headers(token), "last-event-id": "0"}
    read: list[str] = []
    try:
        with HTTP.stream("GET", house.gateway.url + path, headers=headers, timeout=seconds) as answer:
            read.extend(answer.iter_text())
    except httpx.ReadTimeout:
        pass
    return "".join(read)


def _socket_events(house: House, token: str, chat: str) -> str:
    url = house.gateway.url.replace("http", "ws", 1) + "/api/ws"
    read: list[str] = []
    with connect(url, additional_headers=house.gateway.headers(token)) as socket:
        socket.send(json.dumps({"type": "follow", "chat": chat, "after": 0}))
        with contextlib.suppress(TimeoutError):
            while True:
                read.append(str(socket.recv(timeout=0.4)))
    return "".join(read)


@pytest.mark.spec("A4", "H4")
def test_events_and_results_of_an_admins_turn_in_anothers_conversation_are_not_the_plain_tokens(house: House) -> None:
    other, chat = house.belongings["ann"], "moved-by-an-admin"
    lines = (f"/resume {other.conversation_id}", "/expand m:1", "/sessions", f"say {other.mark}")
    turns = [house.say("owner admin", line, chat)["turn_id"] for line in lines]
    for turn in turns:
        for path in (f"/api/messages/{turn}", f"/api/outputs/{turn}"):
            assert house.ask("owner chat", "GET", path).status_code == 404, path
            assert house.ask("owner admin", "GET", path).status_code == 200, path
        house.assert_nothing_foreign("", _streamed(house, "owner chat", f"/api/messages/{turn}/events"), turn)
    for read in (
        lambda token: _streamed(house, token, f"/api/chats/{chat}/events"),
        lambda token: _socket_events(house, token, chat),
    ):
        house.assert_nothing_foreign("", read("owner chat"), chat)
        assert other.mark in read("owner admin")
    own = house.say("owner admin", "say mine", "an admin's own")
    assert house.ask("owner chat", "GET", f"/api/messages/{own['turn_id']}").json()["text"] == own["text"]


@pytest.mark.spec("A4", "H4")
def test_a_question_of_a_turn_in_anothers_conversation_is_not_the_plain_tokens(own_house: House) -> None:
    house = own_house
    other, chat = house.belongings["ann"], "asked-for-an-admin"
    house.say("owner admin", f"/resume {other.conversation_id}", chat)
    house.ask("owner admin", "POST", "/api/messages", json={"content": "ask which one", "chat": chat})
    asked: list[dict[str, Any]] = []
    give_up = time.monotonic() + 60
    while not asked and time.monotonic() < give_up:
        time.sleep(0.05)
        asked = house.ask("owner admin", "GET", "/api/questions").json()
    ident = asked[0]["question_id"]
    assert house.ask("owner shell", "GET", "/api/questions").json() == []
    answer = {"json": {"answer": "this"}}
    assert house.ask("owner shell", "POST", f"/api/questions/{ident}", **answer).status_code == 404
    assert house.ask("owner admin", "POST", f"/api/questions/{ident}", **answer).status_code < 300


def test_no_user_key_matches_all_users() -> None:
    assert user_from_key("") == Owner()
    assert user_from_key("ann") == User("ann")
    with pytest.raises(ValueError, match="a user has a key"):
        User("")
    limited: list[Visibility] = [Owner(), User("ann")]
    for visibility in limited:
        assert [k for k in (*PEOPLE, " ", "ANN") if visibility.covers(user_from_key(k))] == [visibility.stored_key]
    assert all(Everyone().covers(user_from_key(k)) for k in PEOPLE)
