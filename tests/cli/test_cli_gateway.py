"""`perdure gateway`, its tokens, and `perdure serve`, as a person starts and stops them."""

from __future__ import annotations

import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure.testing.simulator import Simulator
from support.gateway_process import gateway_process, obedient
from support.terminal import perdure

HTTP = httpx.Client(trust_env=False, verify=False, timeout=20)


@pytest.fixture(scope="module")
def sim() -> Iterator[Simulator]:
    with Simulator(script=obedient) as running:
        yield running


# -- tokens ----------------------------------------------------------------------------------------------------------


def test_a_token_is_printed_once_and_listed_without_itself(tmp_path: Path) -> None:
    made = perdure(tmp_path, "gateway", "token", "add", "alice", "--scope", "chat", "--expires", "90d")
    token = made.out.strip()
    assert made.status == 0
    assert re.fullmatch(r"pdr_[A-Za-z0-9_-]{43}", token)
    assert "only time it is shown" in made.err
    listed = perdure(tmp_path, "gateway", "token", "list").out
    assert token not in listed
    row = next(line for line in listed.splitlines() if "alice" in line).split()
    assert row[1:3] == ["alice", "chat"]
    assert row[-3] == "until"


def test_a_token_without_a_name_is_ones_own(tmp_path: Path) -> None:
    for empty in ("", "  "):
        refused = perdure(tmp_path, "gateway", "token", "add", empty)
        assert refused.status == 2
        assert "USER is empty" in refused.err
    assert perdure(tmp_path, "gateway", "token", "add").status == 0
    assert "(you)" in perdure(tmp_path, "gateway", "token", "list").out


def test_no_token_yet_is_told(tmp_path: Path) -> None:
    assert "serves this machine alone" in perdure(tmp_path, "gateway", "token", "list").out


def test_revoking_the_last_token_says_that_nobody_can_enter(tmp_path: Path) -> None:
    perdure(tmp_path, "gateway", "token", "add", "alice")
    done = perdure(tmp_path, "gateway", "token", "revoke", "alice")
    assert re.fullmatch(r"revoked [0-9a-f]{12}  alice", done.out.strip())
    assert "nobody can enter" in done.err
    assert "revoked" in perdure(tmp_path, "gateway", "token", "list").out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["add", "a b"], "not a user name"),
        (["add", "../x"], "not a user name"),
        (["add", "alice", "--scope", "root"], "chat"),
        (["add", "alice", "--expires", "soon"], "30d"),
        (["add", "alice", "--expires", "0d"], "30d"),
        (["revoke", "nobody"], "token list"),
        (["revoke"], "Missing argument"),
    ],
)
def test_what_makes_no_sense_is_told(arguments: list[str], told: str, tmp_path: Path) -> None:
    run = perdure(tmp_path, "gateway", "token", *arguments)
    assert run.status in (1, 2)
    assert told in run.err
    assert "Traceback" not in run.err


# -- starting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("gateway", "--host", "0.0.0.0"),
        ("--set", "gateway.public_url=https://agent.example.org", "gateway"),
        ("--set", "gateway.trusted_proxies=127.0.0.1", "gateway"),
    ],
)
def test_a_gateway_for_others_needs_a_token_first(arguments: tuple[str, ...], tmp_path: Path) -> None:
    run = perdure(tmp_path, *arguments)
    assert run.status == 1
    assert "perdure gateway token add" in run.err
    assert run.err.count("\n") == 1


def test_a_port_in_use_is_told_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        run = perdure(tmp_path, "gateway", "--port", str(taken.getsockname()[1]))
    assert run.status == 1
    assert "is in use already; choose another with --port" in run.err
    assert run.err.count("\n") == 1


@pytest.mark.parametrize("host", ["192.0.2.77", "no-such-host.invalid"])
def test_an_address_this_machine_has_not_is_told(host: str, tmp_path: Path) -> None:
    perdure(tmp_path, "gateway", "token", "add", "alice")
    run = perdure(tmp_path, "gateway", "--host", host)
    assert run.status == 1
    assert f"no address '{host}'" in run.err


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (("gateway.telegram.enabled=true",), "TELEGRAM_BOT_TOKEN"),
        (("gateway.telegram.enabled=true", "gateway.telegram.token_command=false"), "token_command failed"),
        (("agent.while_busy=panic",), "one of queue, interrupt"),
        (("gateway.port=99999",), "from 0 to 65535"),
        (("gateway.trusted_proxies=nonsense",), "gateway.trusted_proxies"),
    ],
)
def test_settings_that_cannot_work_are_told(settings: tuple[str, ...], told: str, tmp_path: Path) -> None:
    flags = [part for setting in settings for part in ("--set", setting)]
    run = perdure(tmp_path, *flags, "gateway", *([] if "port=" in settings[0] else ["--port", "0"]))
    # A value that is not allowed at all is a wrong call; one that does not work here is a failure.
    assert run.status == (1 if "telegram" in settings[0] else 2), run.err
    assert told in run.err
    assert "Traceback" not in run.err


def test_missing_packages_are_named(tmp_path: Path) -> None:
    """As where only `perdure` itself is installed: what the extra brings cannot be imported."""
    code = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('fastapi', 'starlette', 'uvicorn'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "sys.argv = ['perdure', {command}]\n"
        "from perdure.cli.main import main\n"
        "main()\n"
    )
    for command in ("'gateway', '--port', '0'", "'serve', '--port', '0', '--no-open'"):
        run = subprocess.run(
            [sys.executable, "-c", code.replace("{command}", command)],
            env={"PERDURE_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
        )
        assert run.returncode == 1
        assert "pip install 'perdure[gateway]'" in run.stderr
        assert "Traceback" not in run.stderr


def test_it_says_where_it_is_who_may_enter_and_how_to_stop(tmp_path: Path, sim: Simulator) -> None:
    with gateway_process(tmp_path, sim) as gateway:
        said = "\n".join(gateway.said)
        assert f"{gateway.url}/v1" in said
        assert "anybody at this machine, without a shell" in said
        assert str(tmp_path / "perdure.db") in said
        assert "Ctrl-C" in said
        assert HTTP.get(f"{gateway.url}/readyz").json() == {"status": "ok"}
        assert HTTP.get(f"{gateway.url}/api/commands").status_code == 200
        assert HTTP.get(f"{gateway.url}/api/commands", headers={"x-forwarded-for": "203.0.113.9"}).status_code == 401
        assert HTTP.get(f"{gateway.url}/api/commands", headers={"host": "evil.example"}).status_code == 421
        # A token made while it runs closes the door within seconds.
        perdure(tmp_path, "gateway", "token", "add", "alice")
        give_up = time.monotonic() + 20
        while HTTP.get(f"{gateway.url}/api/commands").status_code != 401:
            assert time.monotonic() < give_up, "the gateway never noticed the token"
            time.sleep(0.1)
        assert gateway.stop(signal.SIGINT) == 0


def test_names_of_those_who_may_enter_are_shown(tmp_path: Path, sim: Simulator) -> None:
    with gateway_process(tmp_path, sim, users={"alice": ("chat",), "bob": ("read",)}) as gateway:
        assert any(line.split(maxsplit=3)[-1] == "alice, bob" for line in gateway.said if "Who may enter" in line)
        assert gateway.stop(signal.SIGTERM) == 0


# -- serve -----------------------------------------------------------------------------------------------------------


def test_serve_prints_an_address_whose_token_no_server_sees(tmp_path: Path, sim: Simulator) -> None:
    with gateway_process(
        tmp_path, sim, users={"alice": ("chat",)}, arguments=("serve", "--no-open", "--port", "0")
    ) as running:
        link = next(line for line in running.said if line.startswith("Open")).split()[1]
        base, _, token = link.partition("/#token=")
        assert base == running.url
        assert HTTP.get(base + "/").status_code == 200
        assert "<html" in HTTP.get(base + "/").text
        assert HTTP.get(f"{base}/api/page/filters").status_code == 401
        assert HTTP.get(f"{base}/api/page/filters", headers=running.headers("alice")).status_code == 401
        own = {"authorization": f"Bearer {token}"}
        assert HTTP.get(f"{base}/api/page/filters", headers=own).status_code == 200
        told = HTTP.post(f"{base}/api/messages?wait=true", headers=own, json={"content": "run echo from the shell"})
        assert told.json()["outcome"] == "completed"
        assert "from the shell" in str(sim.requests[-1].body["messages"][-1]["content"])
        assert running.stop(signal.SIGINT) == 0
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or token.encode() not in file.read_bytes(), file
    assert not list(tmp_path.glob("open-*.html"))


def test_serve_starts_without_a_model_and_says_how_to_choose_one(tmp_path: Path) -> None:
    with (
        Simulator(models=("a-1", "b-2"), script=["Hello."]) as sim,
        gateway_process(
            tmp_path, sim, settings={"model.name": "null"}, arguments=("serve", "--no-open", "--port", "0")
        ) as running,
    ):
        assert any("lists a-1, b-2" in line and "/model NAME" in line for line in running.said)
        link = next(line for line in running.said if line.startswith("Open")).split()[1]
        own = {"authorization": f"Bearer {link.partition('/#token=')[2]}"}

        def send(text: str) -> dict[str, Any]:
            sent = HTTP.post(f"{running.url}/api/messages?wait=true", headers=own, json={"content": text, "chat": "x"})
            return dict(sent.json())

        refused = send("hello")
        assert refused["outcome"] == "failed"
        assert "lists a-1, b-2" in refused["error"]
        assert "lists a-1, b-2" in send("/model")["text"]
        assert sim.requests == []
        send("/model b-2")
        assert send("hello")["text"] == "Hello."
        assert sim.requests[-1].body["model"] == "b-2"


def test_serve_starts_while_the_model_server_is_down(tmp_path: Path) -> None:
    with Simulator() as sim:
        gone = sim.base_url
    settings = {"model.name": "null", "model.base_url": gone}
    with gateway_process(tmp_path, sim, settings=settings, arguments=("serve", "--no-open", "--port", "0")) as running:
        assert any("cannot be reached" in line for line in running.said)


def test_serve_is_for_this_machine_alone_whatever_the_settings_say(tmp_path: Path, sim: Simulator) -> None:
    settings = {"gateway.host": "0.0.0.0", "gateway.public_url": "https://agent.example.org"}
    with gateway_process(tmp_path, sim, settings=settings, arguments=("serve", "--no-open", "--port", "0")) as running:
        assert running.url.startswith("http://127.0.0.1:")
        assert HTTP.get(running.url + "/", headers={"host": "agent.example.org"}).status_code == 421


def test_the_browser_is_sent_by_a_file_only_its_owner_can_read(tmp_path: Path, sim: Simulator) -> None:
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    browser.write_text(
        f'#!/bin/sh\nfile="${{1#file://}}"\nstat -c %a "$file" > {seen}\n'
        f'cat "$file" >> {seen}\necho >> {seen}\necho "$1" >> {seen}\n'
    )
    browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("BROWSER", f"{browser} %s")
        with gateway_process(tmp_path / "home", sim, arguments=("serve", "--port", "0")) as running:
            give_up = time.monotonic() + 20
            while not seen.exists() or seen.read_text().count("\n") < 3:
                assert time.monotonic() < give_up, "no browser was started"
                time.sleep(0.1)
            lines = seen.read_text().splitlines()
            token = next(line for line in running.said if line.startswith("Open")).partition("#token=")[2]
    assert lines[0] == "600"
    assert token in lines[1]
    assert token not in lines[-1]


# -- traces ----------------------------------------------------------------------------------------------------------


def test_spans_go_where_the_usual_variables_say(tmp_path: Path, sim: Simulator) -> None:
    sent: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *told: object) -> None:
            """Says nothing."""

    collector = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
        with gateway_process(tmp_path, sim, settings={"gateway.traces": "otlp"}) as gateway:
            path = "/api/messages?wait=true&also=traced-word"
            told = HTTP.post(gateway.url + path, json={"content": "say traced-word"})
            assert told.json()["text"] == "traced-word"
            assert gateway.stop() == 0
    collector.shutdown()
    spans = b"".join(sent)
    for part in (b"invoke_agent perdure", b"chat gpt-5-mini", b"gen_ai.usage.input_tokens", b"gen_ai.conversation.id"):
        assert part in spans
    assert b"traced-word" not in spans
    assert b"/api/messages" not in spans


def test_traces_to_the_console_are_json_on_stderr(tmp_path: Path, sim: Simulator) -> None:
    with gateway_process(tmp_path, sim, settings={"gateway.traces": "console", "gateway.log": "off"}) as gateway:
        HTTP.post(f"{gateway.url}/api/messages?wait=true", json={"content": "say hi"})
        assert gateway.stop() == 0
    assert '"name": "invoke_agent perdure",' in "\n".join(gateway.errors)
