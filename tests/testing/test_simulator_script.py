"""What a simulator can be told to do, and how it is reached: scripts, faults, the report, the command."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from perdure.cli.simulate import simulate
from perdure.core.errors import ConfigError, PerdureError, ProviderError
from perdure.providers.errors.classify import classify_error
from perdure.providers.types import ApiMode
from perdure.testing.simulator import SAMPLES, Call, Drop, Fail, Raw, Say, ScriptRequest, Simulator, load_script
from support.simulator import MODES, http, request, send


def post(sim: Simulator, path: str = "/v1/chat/completions", **fields: Any) -> httpx.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
    return http().post(f"{sim.root_url}{path}", json=body)


# What a sample's name says of its kind; the first word that fits counts.
KINDS_BY_WORD = {
    "sum_overflow": "output_cap",
    "overflow": "prompt_too_long",
    "too_large": "prompt_too_long",
    "bare_400": "prompt_too_long",
    "output_cap": "output_cap",
    "rate_limit": "rate_limit",
    "quota": "quota",
    "no_credit": "quota",
    "bad_key": "auth",
    "overloaded": "overloaded",
    "no_model": "bad_request",
    "server_error": "overloaded",
    "bad_gateway": "transport",
}


@pytest.mark.spec("G1")
@pytest.mark.parametrize("sample", sorted(SAMPLES))
def test_every_sample_arrives_as_it_is_and_is_classified(sample: str) -> None:
    status, body = SAMPLES[sample]
    with Simulator(script=[Fail(sample)]) as sim:
        response = post(sim)
        assert response.status_code == status
        assert (response.json() if isinstance(body, dict) else response.text) == body
        verdict = classify_error(status, response.text, headers=dict(response.headers), request_tokens=900_000)
        assert verdict.kind == next(kind for word, kind in KINDS_BY_WORD.items() if word in sample)


def test_steps_are_taken_in_order_and_a_plain_reply_follows_the_last() -> None:
    with Simulator(script=["one", Say("two")]) as sim:
        sim.add("three")
        texts = [post(sim).json()["choices"][0]["message"]["content"] for _ in range(4)]
        assert texts == ["one", "two", "three", "Simulated reply 4."]


def test_a_function_may_answer_from_what_was_asked() -> None:
    def echo(asked: ScriptRequest) -> str:
        return f"{asked.number}: {asked.body['messages'][-1]['content']}"

    with Simulator(script=echo) as sim:
        assert post(sim).json()["choices"][0]["message"]["content"] == "1: hi"


def test_a_stream_with_tool_calls_may_still_end_with_stop() -> None:
    with Simulator(script=[Say(calls=(Call("read"),), finish="stop")] * 2) as sim:
        assert '"finish_reason":"stop"' in post(sim, stream=True).text
        for mode in MODES[:1]:
            assert send(sim, mode, request("hi")).finish == "tool_calls"


def test_a_dropped_connection_is_dropped_and_billed_nothing_before_it_began() -> None:
    with Simulator(script=[Drop(), Say("text " * 20, drop_after=3)]) as sim:
        with pytest.raises(httpx.RemoteProtocolError):
            post(sim)
        assert sim.billed == []
        with pytest.raises(httpx.RemoteProtocolError):
            post(sim, stream=True)
        assert len(sim.billed) == 1, "what had begun is billed, as services do"


def test_a_reply_may_leave_out_its_usage() -> None:
    with Simulator(script=[Say("x", reports_usage=False)] * 3) as sim:
        for mode in MODES:
            assert send(sim, mode, request("hi")).usage.reported is False
        assert len(sim.billed) == 3


SCRIPT = [
    "plain text",
    {"say": "with tools", "thinking": "hm", "calls": [{"name": "read", "arguments": {"path": "a"}, "id": "c1"}]},
    {"fail": "openai_overflow"},
    {"fail": 503, "body": {"error": {"message": "down"}}, "headers": {"retry-after": "1"}},
    {"raw": "<html>", "content_type": "text/html"},
    {"drop": True, "delay_s": 0.01},
]


def test_a_script_file_gives_every_kind_of_step(tmp_path: Path) -> None:
    file = tmp_path / "script.json"
    file.write_text(json.dumps(SCRIPT), encoding="utf-8")
    steps = load_script(file)
    assert steps == [
        Say("plain text"),
        Say("with tools", thinking="hm", calls=(Call("read", {"path": "a"}, "c1"),)),
        Fail("openai_overflow"),
        Fail(status=503, body={"error": {"message": "down"}}, headers={"retry-after": "1"}),
        Raw(b"<html>", content_type="text/html"),
        Drop(delay_s=0.01),
    ]


def test_the_script_in_the_docs_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text(encoding="utf-8")
    file = tmp_path / "script.json"
    file.write_text(page.partition("```json\n")[2].partition("```")[0], encoding="utf-8")
    steps = load_script(file)
    assert [type(s) for s in steps] == [Say, Say, Fail, Fail, Raw, Drop]
    tools = (Path(__file__).parents[2] / "docs" / "tools.md").read_text(encoding="utf-8")
    for call in (call for step in steps if isinstance(step, Say) for call in step.calls):
        assert f"| `{call.name}` |" in tools, "a tool that is there, so that the example can be tried"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "cannot read"),
        ("{}", "no JSON list"),
        ("[1]", "step 1: a step is a text or an object"),
        ('[{"sya": 1}]', "step 1: unknown field 'sya'.*'say'"),
        ('["a", {"fail": "anthropic_overlow"}]', "step 2: no error sample.*'anthropic_overflow'"),
        ('[{"fail": 9999}]', "step 1: 9999 is no HTTP status"),
        ('[{"fail": 503, "headers": "x"}]', "step 1: headers"),
        ('[{"say": "x", "delay_s": "soon"}]', "step 1: delay_s"),
        ('[{"say": "x", "form": "odd"}]', "step 1: form"),
        ('[{"say": "x", "calls": "read_file"}]', "step 1: calls is a list"),
        ('[{"say": "x", "calls": [{"nam": "a"}]}]', "step 1, calls: unknown field 'nam'"),
        ('[{"raw": "x", "status": "a"}]', "step 1: status"),
    ],
)
def test_a_bad_script_is_refused_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "script.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=words):
        load_script(file)


def test_an_unknown_sample_lists_those_there_are() -> None:
    with pytest.raises(ConfigError, match="anthropic_overflow"):
        Fail("nonsense")


def test_steps_and_report_over_http() -> None:
    with Simulator() as sim:
        added = http().post(f"{sim.root_url}/simulator/script", json=["over http"])
        assert added.json() == {"added": 1}
        assert post(sim).json()["choices"][0]["message"]["content"] == "over http"
        post(sim, messages=[])
        report = http().get(f"{sim.root_url}/simulator/report").json()
        assert [r["status"] for r in report["requests"]] == [200, 400]
        assert [v["rule"] for v in report["violations"]] == ["shape"]
        assert report["billed"]["output_tokens"] == sim.total.output_tokens
        bad = http().post(f"{sim.root_url}/simulator/script", json=[{"sya": 1}])
        assert bad.status_code == 400


def test_noise_on_the_line_does_not_stop_it() -> None:
    import socket

    with Simulator() as sim:
        for noise in (b"\x16\x03\x01", b"GET\r\n\r\n", b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n", b"a" * 100_000):
            with socket.create_connection(("127.0.0.1", int(sim.root_url.rpartition(":")[2]))) as line:
                line.sendall(noise)
        assert post(sim).status_code == 200
        assert http().get(f"{sim.root_url}/nowhere").status_code == 404


def test_a_taken_port_is_said_plainly() -> None:
    with Simulator() as sim, pytest.raises(PerdureError, match="cannot listen on port"):
        Simulator(port=int(sim.root_url.rpartition(":")[2])).__enter__()


def test_faults_leave_the_simulator_serving() -> None:
    steps = [Drop(), Raw(b"{"), Fail(status=500), Say("x", drop_after=0), Say("y", fail_after=0)] * 3
    with Simulator(script=steps) as sim:
        for _ in steps:
            with pytest.raises(ProviderError):
                send(sim, "chat_completions", request("hi"))
        assert send(sim, "chat_completions", request("hi")).message.text.startswith("Simulated reply")


def test_the_command_serves_says_where_and_stops_with_ctrl_c(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('["from the file"]', encoding="utf-8")
    code = "from perdure.cli.main import main; main()"
    command = [sys.executable, "-c", code, "simulate", "--port", "0", "--window", "77", "--script", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+", first)
            assert found, first
            body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
            url = f"{found[0]}/v1/chat/completions"
            reply = http().post(url, json=body).json()
            assert reply["choices"][0]["message"]["content"] == "from the file"
            row = http().get(f"{found[0]}/v1/models").json()["data"][0]
            assert row["context_length"] == 77
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 130


@pytest.mark.parametrize("mode", MODES)
def test_calls_that_share_an_id_stream_their_own_arguments(mode: ApiMode) -> None:
    calls = (Call("read", {"path": "a"}, "same"), Call("read", {"path": "b"}, "same"))
    with Simulator(script=[Say(calls=calls)]) as sim:
        reply = send(sim, mode, request("hi"))
    assert [c.parsed_arguments() for c in reply.message.tool_calls] == [{"path": "a"}, {"path": "b"}]


def test_the_example_of_a_script_in_the_help_is_one(tmp_path: Path) -> None:
    help_text = CliRunner().invoke(simulate, ["--help"], terminal_width=60).output
    example = help_text[help_text.index("[{") : help_text.index("Options:")]
    script = tmp_path / "replies.json"
    script.write_text(example, encoding="utf-8")
    calls, speaks = load_script(script)
    assert isinstance(calls, Say)
    assert calls.calls
    assert speaks == Say("It is empty.")
    assert "docs/simulator.md" in help_text
