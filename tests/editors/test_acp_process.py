"""`perdure acp` as an editor meets it: a process on a pipe, a recorded exchange, kills, and nothing else on stdout."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure.store.store import open_store
from perdure.testing.simulator import Call, Say, ScriptRequest, Simulator
from perdure.testing.simulator.script import Step
from support.editor import command, editor, environment
from support.forked import fork
from support.gateway_process import last_user_text, obedient

pytestmark = pytest.mark.slow
EXCHANGE = Path(__file__).parents[1] / "fixtures" / "acp" / "editor_exchange.jsonl"
LIMIT_S = 120
# Texts of the recorded exchange arrive in one update each.
WHOLE = 1_000


class AgentProcess:
    """A process with lines in and lines out; every line out must be a message of the protocol."""

    def __init__(self, tmp_path: Path, sim: Simulator) -> None:
        self.folder = tmp_path / "project"
        self.folder.mkdir(exist_ok=True)
        self.child = fork(
            command(sim)[1:],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(tmp_path / "home"),
            cwd=tmp_path,
            text=False,
        )
        self._number = 0

    def send(self, method: str, **params: Any) -> int:
        self._number += 1
        self.write({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        return self._number

    def write(self, message: Any) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write((message if isinstance(message, str) else json.dumps(message)).encode() + b"\n")
        self.child.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        assert line, (self.child.stderr.read() if self.child.stderr else b"").decode()
        message: dict[str, Any] = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        return message

    def until_response(self, number: int) -> Iterator[dict[str, Any]]:
        """Yield messages up to the response to a request, that one included."""
        while True:
            message = self.read()
            yield message
            if message.get("id") == number and "method" not in message:
                return

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        *_, response = self.until_response(self.send(method, **params))
        return response

    def kill(self) -> None:
        self.child.kill()
        self.child.communicate()


@contextmanager
def agent_process(tmp_path: Path, sim: Simulator) -> Iterator[AgentProcess]:
    process = AgentProcess(tmp_path, sim)
    try:
        yield process
    finally:
        if process.child.poll() is None:
            process.kill()


# -- a recorded exchange -----------------------------------------------------------------------------------------------


def _exchange_script(asked: ScriptRequest) -> Step:
    if asked.body["messages"][-1]["role"] == "tool":
        return Say("I have added a greeting.", chunk_chars=WHOLE)
    text = last_user_text(asked.body)
    if "greeting" in text:
        plan = [{"text": "write the file", "status": "in_progress"}]
        write = {"path": "hello.py", "content": 'print("hello")\n'}
        return Say(
            "Let me add it.",
            thinking="A small file.",
            calls=(Call("todo", {"items": plan}), Call("write_file", write)),
            chunk_chars=WHOLE,
        )
    return Say("You are welcome.", chunk_chars=WHOLE)


def test_a_recorded_exchange_of_an_editor_is_answered_as_recorded(tmp_path: Path) -> None:
    """Each line of the fixture: what the editor sent, or a part of what it must be sent, in this order."""
    lines = [json.loads(line) for line in EXCHANGE.read_text(encoding="utf-8").splitlines()]
    values = {"FOLDER": str(tmp_path / "project"), "SESSION": ""}
    with Simulator(script=_exchange_script) as sim, agent_process(tmp_path, sim) as agent:
        for line in lines:
            if "sent" in line:
                agent.write(_filled(line["sent"], values))
                continue
            expected = _filled(line["received"], values)
            while True:
                message = agent.read()
                values["SESSION"] = values["SESSION"] or (message.get("result") or {}).get("sessionId", "")
                if "id" not in message and not _contains(message, expected):
                    continue  # other updates may come in between, never another response
                assert _contains(message, expected), (message, expected)
                break
        assert agent.child.stdin is not None
        agent.child.stdin.close()
        assert agent.child.wait(timeout=LIMIT_S) == 0
        assert (agent.folder / "hello.py").read_text() == 'print("hello")\n'
        assert sim.violations == []


def _filled(value: Any, values: dict[str, str]) -> Any:
    text = json.dumps(value)
    for name, replacement in values.items():
        text = text.replace(f"${name}", json.dumps(replacement)[1:-1])
    return json.loads(text)


def _contains(value: Any, part: Any) -> bool:
    if isinstance(part, dict):
        return isinstance(value, dict) and all(k in value and _contains(value[k], v) for k, v in part.items())
    if isinstance(part, list):
        return isinstance(value, list) and all(any(_contains(v, p) for v in value) for p in part)
    return bool(value == part)


# -- the pipe ----------------------------------------------------------------------------------------------------------


def test_lines_that_are_no_requests_are_answered_with_errors_and_end_nothing(tmp_path: Path) -> None:
    with Simulator(script=obedient) as sim, agent_process(tmp_path, sim) as agent:
        for line, code in (
            ("not json", -32700),
            ("[1, 2]", -32600),
            ('"text"', -32600),
            ('{"jsonrpc": "2.0", "id": 7, "method": 5}', -32600),
            ('{"jsonrpc": "2.0", "id": 8, "method": "no/such"}', -32601),
            ('{"jsonrpc": "2.0", "id": 9, "method": "session/new", "params": {"cwd": 5}}', -32602),
            ('{"jsonrpc": "2.0", "id": 10, "method": "session/prompt"}', -32602),
        ):
            agent.write(line)
            assert agent.read()["error"]["code"] == code, line
        agent.write('{"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "a_none"}}')
        response = agent.ask("initialize", protocolVersion=1)
        assert response["result"]["protocolVersion"] == 1
        assert response["result"]["agentCapabilities"]["loadSession"] is True


def test_an_input_that_ends_in_mid_turn_ends_the_process_and_keeps_the_message(tmp_path: Path) -> None:
    with Simulator(script=obedient) as sim, agent_process(tmp_path, sim) as agent:
        agent.ask("initialize", protocolVersion=1)
        session = agent.ask("session/new", cwd=str(agent.folder), mcpServers=[])["result"]["sessionId"]
        prompt = [{"type": "text", "text": "slowly " + "word " * 500}]
        number = agent.send("session/prompt", sessionId=session, prompt=prompt)
        for message in agent.until_response(number):
            if message.get("params", {}).get("update", {}).get("sessionUpdate") == "agent_message_chunk":
                break
        assert agent.child.stdin is not None
        agent.child.stdin.close()
        assert agent.child.wait(timeout=LIMIT_S) == 0
    with open_store(tmp_path / "home" / "perdure.db") as store:
        (conversation,) = store.conversations.list().conversations
        asked, reply = (e.message for e in store.log.originals(conversation.id))
        assert (asked.role, reply.role, reply.cut_off) == ("user", "assistant", "interrupted")


def test_requests_from_a_file_are_answered_before_the_end(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    new = {"cwd": str(tmp_path / "project"), "mcpServers": []}
    requests = [("initialize", {"protocolVersion": 1}), ("session/new", new), ("session/list", {})]
    lines = [json.dumps({"jsonrpc": "2.0", "id": n, "method": m, "params": p}) for n, (m, p) in enumerate(requests)]
    with Simulator(script=obedient) as sim:
        done = subprocess.run(
            command(sim),
            input="\n".join(lines).encode(),  # without a newline behind the last
            capture_output=True,
            env=environment(tmp_path / "home"),
            timeout=LIMIT_S,
        )
    answers = {m["id"]: m for m in map(json.loads, done.stdout.splitlines()) if "id" in m}
    assert done.returncode == 0
    assert sorted(answers) == [0, 1, 2]
    assert all("result" in answer for answer in answers.values())


def test_what_a_tool_program_prints_never_reaches_the_protocol(tmp_path: Path) -> None:
    async def story(sim: Simulator) -> None:
        async with editor(tmp_path, sim) as ed:
            session_id = await ed.new()
            assert await ed.ask(session_id, "run cat; echo loud; echo louder >&2") == "end_turn"
        assert ed.process is not None
        assert ed.process.returncode == 0

    with Simulator(script=obedient) as sim:
        asyncio.run(story(sim))


def test_what_a_plugin_prints_never_reaches_the_protocol(tmp_path: Path) -> None:
    plugin = tmp_path / "home" / "plugins" / "tools" / "loud"
    plugin.mkdir(parents=True)
    (plugin / "__init__.py").write_text(
        "import os\n\ndef plugin(registry, hooks):\n    print('printed')\n    os.write(1, b'written\\n')\n"
    )

    async def story(sim: Simulator) -> None:
        async with editor(tmp_path, sim, settings={"tools.plugins": '["loud"]'}) as ed:
            session_id = await ed.new()
            assert await ed.ask(session_id, "say hello") == "end_turn"
            assert ed.client.text() == "hello"
            assert "loud" not in ed.client.text("agent_thought_chunk")

    with Simulator(script=obedient) as sim:
        asyncio.run(story(sim))


# -- kills -------------------------------------------------------------------------------------------------------------


def _counting_script(asked: ScriptRequest) -> Step:
    """Every third question needs a tool first; answers name the question."""
    text = last_user_text(asked.body).split("\n")[-1]
    number = int(text.split()[-1])
    if number % 3 == 0 and asked.body["messages"][-1]["role"] == "user":
        return Say(f"Looking {number}.", calls=(Call("todo", {}),))
    return Say(f"answer {number} " + "word " * 10, chunk_chars=8)


def _run_until_killed(agent: AgentProcess, session: str, number: int, kill_after: int) -> tuple[str, int]:
    """Load and ask the first question that the history has no answer to; stop after so many lines.

    Returns the session and the first question without an answer, as far as the editor knows.
    """
    agent.ask("initialize", protocolVersion=1)
    if not session:
        response = agent.ask("session/new", cwd=str(agent.folder), mcpServers=[])
        session = str(response["result"]["sessionId"])
    else:
        request = agent.send("session/load", sessionId=session, cwd=str(agent.folder), mcpServers=[])
        for lines, message in enumerate(agent.until_response(request)):
            assert "error" not in message
            number += f'"answer {number} ' in json.dumps(message)
            if lines > kill_after:
                return session, number
    request = agent.send("session/prompt", sessionId=session, prompt=[{"type": "text", "text": f"question {number}"}])
    for lines, message in enumerate(agent.until_response(request)):
        if message.get("id") == request and "method" not in message:
            assert message["result"]["stopReason"] == "end_turn", message
            return session, number + 1
        if lines > kill_after:
            break
    return session, number


def _kill_often(tmp_path: Path, kills: int, seed: int) -> None:
    chance, session, number = random.Random(seed), "", 1
    with Simulator(script=_counting_script) as sim:
        for _ in range(kills):
            with agent_process(tmp_path, sim) as agent:
                kill_after = chance.choice((0, 1, 2, 3, 5, 8, 13, 40))
                session, number = _run_until_killed(agent, session, number, kill_after)
                agent.kill()
        assert sim.violations == []
    with open_store(tmp_path / "home" / "perdure.db") as store:
        (conversation,) = [c for c in store.conversations.list().conversations if c.last_seq]
        messages = [e.message for e in store.log.originals(conversation.id)]
        asked = [int(m.text.split()[1]) for m in messages if m.is_real_user]
        answers = [int(m.text.split()[1]) for m in messages if m.kind == "assistant" and m.text.startswith("answer")]
        # The last question may be stored, and even answered, without the editor knowing.
        assert asked in ([*range(1, number)], [*range(1, number + 1)])
        assert answers in ([*range(1, number)], [*range(1, number + 1)])
        calls = [call.id for m in messages for call in m.tool_calls]
        assert len(calls) - sum(m.role == "tool" for m in messages) in (0, 1)
        assert store.ledger.totals(conversation.id).calls >= number - 1


@pytest.mark.spec("P2", "I1", "I7", "J4")
def test_kills_at_random_points_lose_and_double_nothing(tmp_path: Path) -> None:
    _kill_often(tmp_path, kills=4, seed=5)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.spec("P2", "I1", "I7", "J4")
def test_twenty_kills_at_random_points_lose_and_double_nothing(tmp_path: Path) -> None:
    _kill_often(tmp_path, kills=20, seed=11)
