"""Two gateways on one PostgreSQL behind a real nginx, set up as docs/gateway.md says."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect

from perdure.testing.simulator import Simulator
from support.gateway_process import GatewayProcess, gateway_process, last_user_text, obedient
from support.packages import package
from support.postgres import PostgresBackend
from support.postgres import server_ends_with_the_run as server_ends_with_the_run

openai = package("openai")

DOCS = Path(__file__).parents[2] / "docs" / "gateway.md"
NAME = "agent.example.org"
HTTP = httpx.Client(trust_env=False, verify=False, timeout=60)

pytestmark = pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")


@dataclass(frozen=True)
class Cluster:
    """Where nginx is, and what stands behind it."""

    url: str
    gateways: tuple[GatewayProcess, GatewayProcess]
    sim: Simulator

    @property
    def headers(self) -> dict[str, str]:
        return self.gateways[0].headers("alice")

    def say(self, text: str, chat: str) -> dict[str, object]:
        body = {"content": text, "chat": chat}
        told = HTTP.post(f"{self.url}/api/messages?wait=true", json=body, headers=self.headers)
        assert told.status_code == 200, told.text
        return dict(told.json())


def nginx_config(folder: Path, port: int, gateways: tuple[GatewayProcess, GatewayProcess]) -> Path:
    """The very text of the docs, with this machine's ports, and without the certificate nobody has here."""
    text = re.search(r"```nginx\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert text is not None
    server = text[1]
    for machine, gateway in zip(("10.0.0.11:8420", "10.0.0.12:8420"), gateways, strict=True):
        assert machine in server
        server = server.replace(machine, gateway.url.removeprefix("http://"))
    server = server.replace("listen 443 ssl;", f"listen 127.0.0.1:{port};")
    server = re.sub(r"^ +ssl_certificate.*\n", "", server, flags=re.MULTILINE)
    places = "\n".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    path = folder / "nginx.conf"
    path.write_text(
        f"user root;\ndaemon off;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{\naccess_log {folder}/access.log;\n{places}\n{server}\n}}\n"
    )
    return path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    backend = PostgresBackend(folder, is_new=True)
    settings = {
        "store.url": backend.url,
        "gateway.public_url": f"http://{NAME}",
        "gateway.trusted_proxies": "127.0.0.1",
    }
    with ExitStack() as stack:
        sim = stack.enter_context(Simulator(script=obedient))
        users = {"alice": ("chat", "read"), "ops": ("admin",)}
        one = stack.enter_context(gateway_process(folder / "one", sim, users=users, settings=settings))  # type: ignore[arg-type]  # scopes as plain text
        two = stack.enter_context(gateway_process(folder / "two", sim, settings=settings))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        nginx = subprocess.Popen(["nginx", "-c", str(nginx_config(folder, port, (one, two))), "-p", str(folder)])
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until(lambda: is_up(url))
            yield Cluster(url, (one, two), sim)
        finally:
            nginx.send_signal(signal.SIGQUIT)
            nginx.wait(timeout=20)
    backend.close()


def is_up(url: str) -> bool:
    try:
        return HTTP.get(f"{url}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def wait_until(is_so: object, *, patience_s: float = 40.0) -> None:
    assert callable(is_so)
    give_up = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < give_up, "it never came to pass"
        time.sleep(0.1)


@pytest.mark.spec("I8")
def test_a_conversation_goes_on_whichever_machine_is_reached(cluster: Cluster) -> None:
    conversations = {cluster.say(f"say number {n}", "round-robin")["conversation_id"] for n in range(6)}
    assert len(conversations) == 1
    heard = [m["content"] for m in cluster.sim.requests[-1].body["messages"] if m["role"] == "user"]
    assert heard == [f"say number {n}" for n in range(6)]
    worked = [sum(line["event"] == "turn" for line in gateway.journal) for gateway in cluster.gateways]
    assert min(worked) > 0, "one machine did everything"


def test_events_are_not_held_back(cluster: Cluster) -> None:
    text = " ".join(str(n) for n in range(60))
    arrived: list[float] = []
    headers = {**cluster.headers, "accept": "text/event-stream"}
    with HTTP.stream(
        "POST", f"{cluster.url}/api/messages", json={"content": f"slowly {text}", "chat": "sse"}, headers=headers
    ) as stream:
        for line in stream.iter_lines():
            if line.startswith("event: text_delta"):
                arrived.append(time.monotonic())
    assert len(arrived) > 5
    assert arrived[-1] - arrived[0] > 0.5


def test_a_websocket_passes(cluster: Cluster) -> None:
    token = cluster.headers["authorization"].split()[1]
    protocols = ["perdure", f"bearer.{token}"]
    with connect(cluster.url.replace("http", "ws") + "/api/ws", subprotocols=protocols) as ws:  # type: ignore[arg-type]  # plain names are fine
        assert ws.subprotocol == "perdure"
        ws.send(json.dumps({"type": "message", "content": "say over the socket", "chat": "ws"}))
        seen = ""
        while '"turn_finished"' not in seen:
            seen = str(ws.recv(timeout=30))
    assert "over the socket" in seen


def test_the_openai_client_streams_through_it(cluster: Cluster) -> None:
    token = cluster.headers["authorization"].split()[1]
    with (
        openai.OpenAI(base_url=f"{cluster.url}/v1", api_key=token, http_client=httpx.Client(trust_env=False)) as api,
        api.chat.completions.create(
            model="perdure", messages=[{"role": "user", "content": "slowly one two three"}], stream=True
        ) as stream,
    ):
        said = "".join(c.choices[0].delta.content or "" for c in stream if c.choices)
    assert said == "one two three"


def test_the_page_is_our_own_under_its_public_name(cluster: Cluster) -> None:
    page = {**cluster.headers, "host": NAME, "origin": f"http://{NAME}"}
    assert HTTP.post(f"{cluster.url}/api/chats/x/stop", headers=page).status_code == 200
    foreign = {**page, "origin": "http://evil.example"}
    assert HTTP.post(f"{cluster.url}/api/chats/x/stop", headers=foreign).status_code == 403
    assert HTTP.get(f"{cluster.url}/api/commands", headers={**page, "host": "evil.example"}).status_code == 421


def test_strangers_are_told_apart_by_their_own_address(cluster: Cluster) -> None:
    HTTP.get(f"{cluster.url}/api/commands", headers={"x-forwarded-for": "203.0.113.7", "x-request-id": "ignored-here"})

    def told() -> bool:
        lines = [line for gateway in cluster.gateways for line in gateway.journal]
        return any(line.get("address") == "203.0.113.7" and line["status"] == 401 for line in lines)

    wait_until(told, patience_s=5)


def test_metrics_are_for_inside(cluster: Cluster) -> None:
    assert HTTP.get(f"{cluster.url}/metrics", headers=cluster.headers).status_code == 404


def test_a_body_too_large_is_stopped(cluster: Cluster) -> None:
    told = HTTP.post(f"{cluster.url}/api/messages", content=b"x" * (17 << 20), headers=cluster.headers)
    assert told.status_code == 413


# The last one: a machine is gone after it.
@pytest.mark.spec("I7", "I8")
def test_a_machine_that_dies_in_mid_answer_loses_nothing(cluster: Cluster) -> None:
    text = " ".join(str(n) for n in range(100))
    ticket = HTTP.post(
        f"{cluster.url}/api/messages", json={"content": f"slowly {text}", "chat": "dying"}, headers=cluster.headers
    ).json()

    def worker() -> GatewayProcess | None:
        told = [r for r in cluster.sim.requests if last_user_text(r.body) == f"slowly {text}"]
        if not told:
            return None
        mine = [g for g in cluster.gateways if any(ticket["turn_id"] in line for line in g.errors)]
        return mine[0] if mine else owner(cluster, ticket["turn_id"])

    wait_until(lambda: worker() is not None)
    victim = worker()
    assert victim is not None
    victim.process.kill()
    victim.process.wait()

    def done() -> dict[str, object] | None:
        told = HTTP.get(f"{cluster.url}/api/messages/{ticket['turn_id']}", headers=cluster.headers).json()
        return told if told.get("state") == "done" else None

    wait_until(lambda: done() is not None)
    answer = done()
    assert answer is not None
    assert (answer["outcome"], answer["text"]) == ("completed", text)
    survivor = next(g for g in cluster.gateways if g is not victim)
    figures = HTTP.get(f"{survivor.url}/metrics", headers=cluster.gateways[0].headers("ops")).text
    assert "perdure_lease_takeovers_total 1.0" in figures
    again = cluster.say("say and on", "dying")
    assert again["conversation_id"] == answer["conversation_id"]
    heard = [m["content"] for m in cluster.sim.requests[-1].body["messages"] if m["role"] == "user"]
    assert heard == [f"slowly {text}", "say and on"]


def owner(cluster: Cluster, turn_id: str) -> GatewayProcess | None:
    """The process that works on a turn, as the inbox has it."""
    from perdure.store import open_store

    settings = cluster.gateways[0].process.args
    url = next(str(a).removeprefix("store.url=") for a in list(settings) if str(a).startswith("store.url="))  # type: ignore[arg-type]  # a list, as started
    with open_store(url) as store:
        held_by = store.inbox.get(turn_id).owner
    return next((g for g in cluster.gateways if f":{g.process.pid}" in held_by), None)
