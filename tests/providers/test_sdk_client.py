"""An official client handed in as `client=`: its auth and routing, our bodies and parsing."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import time
from pathlib import Path
from typing import Any

import pytest

from perdure.core.errors import ConfigError, ProviderError
from perdure.providers.sdk_client import SdkTransport, endpoint_of, mode_of, sdk_package
from perdure.providers.transport import Retries, Timeouts, Transport
from perdure.providers.types import ApiMode, ModelRequest, Reply
from perdure.testing.simulator import Call, Drop, Fail, Say, Simulator, strict
from support.packages import package
from support.simulator import TOOL, request

anthropic = package("anthropic")
openai = package("openai")

KEY = "sk-own-key"


def azure(cls: Any, sim: Simulator) -> Any:
    return cls(azure_endpoint=sim.root_url, api_version="2025-01-01", api_key=KEY)


def bedrock(cls: Any, sim: Simulator) -> Any:
    return cls(base_url=sim.root_url, aws_region="us-east-1", api_key=KEY)


def vertex(cls: Any, sim: Simulator) -> Any:
    return cls(base_url=sim.base_url, region="europe-west1", project_id="p", access_token=KEY)


CLIENTS: dict[str, tuple[Any, ApiMode]] = {
    "openai": (lambda s: openai.OpenAI(base_url=s.base_url, api_key=KEY), "chat_completions"),
    "openai responses": (lambda s: openai.OpenAI(base_url=s.base_url, api_key=KEY), "codex_responses"),
    "async openai": (lambda s: openai.AsyncOpenAI(base_url=s.base_url, api_key=KEY), "chat_completions"),
    "async responses": (lambda s: openai.AsyncOpenAI(base_url=s.base_url, api_key=KEY), "codex_responses"),
    "azure": (lambda s: azure(openai.AzureOpenAI, s), "chat_completions"),
    "async azure": (lambda s: azure(openai.AsyncAzureOpenAI, s), "chat_completions"),
    "async azure responses": (lambda s: azure(openai.AsyncAzureOpenAI, s), "codex_responses"),
    "anthropic": (lambda s: anthropic.Anthropic(base_url=s.root_url, api_key=KEY), "anthropic_messages"),
    "async anthropic": (lambda s: anthropic.AsyncAnthropic(base_url=s.root_url, api_key=KEY), "anthropic_messages"),
    "bedrock": (lambda s: bedrock(anthropic.AnthropicBedrock, s), "anthropic_messages"),
    "async bedrock": (lambda s: bedrock(anthropic.AsyncAnthropicBedrock, s), "anthropic_messages"),
    "vertex": (lambda s: vertex(anthropic.AnthropicVertex, s), "anthropic_messages"),
    "async vertex": (lambda s: vertex(anthropic.AsyncAnthropicVertex, s), "anthropic_messages"),
}
every_client = pytest.mark.parametrize("name", CLIENTS)
first_parties = pytest.mark.parametrize("name", ["openai", "async responses", "anthropic", "async anthropic"])


def run(sim: Simulator, name: str, asked: ModelRequest, **fields: Any) -> Reply:
    make, mode = CLIENTS[name]
    client = make(sim)
    way = Transport(client=SdkTransport(client), **{"retries": Retries(attempts=1), **fields})
    return asyncio.run(way.send(endpoint_of(client, asked.model, mode), asked))


@pytest.mark.spec("J3")
@pytest.mark.parametrize("is_streaming", [True, False], ids=["streamed", "whole"])
@every_client
def test_a_call_goes_through_the_client(name: str, is_streaming: bool) -> None:
    if "bedrock" in name and is_streaming:
        pytest.importorskip("botocore", reason="botocore, which reads Bedrock's streams, is not installed")
    step = Say("Reading.", thinking="Hm.", calls=(Call("read", {"path": "ü"}, "call_1"),))
    with Simulator(strict(), api_key=KEY, script=[step]) as sim:
        if "azure" in name or "vertex" in name or "bedrock" in name:
            sim.change(api_key=None)
        reply = run(sim, name, request("hi", system=("Be brief.",), tools=(TOOL,), is_streaming=is_streaming))
        assert (reply.message.text, reply.message.reasoning) == ("Reading.", "Hm.")
        assert [c.parsed_arguments() for c in reply.message.tool_calls] == [{"path": "ü"}]
        assert reply.usage == sim.billed[0]
        assert sim.violations == []
        seen = sim.requests[0].headers
        assert KEY in f"{seen.get('authorization')} {seen.get('x-api-key')} {seen.get('api-key')}"


@first_parties
def test_refusals_keep_their_verdicts(name: str) -> None:
    with Simulator(script=[Fail("openai_overflow"), Fail("openai_bad_key")]) as sim:
        with pytest.raises(ProviderError) as overflow:
            run(sim, name, request("hi"))
        assert (overflow.value.verdict.kind, overflow.value.verdict.context_limit) == ("prompt_too_long", 8192)
        with pytest.raises(ProviderError, match="the key was refused"):
            run(sim, name, request("hi"))


@first_parties
def test_the_network_taking_a_call_is_a_transport_verdict_with_what_was_said(name: str) -> None:
    with Simulator(script=[Say("The words so far. " * 9, drop_after=12), Drop()]) as sim:
        with pytest.raises(ProviderError) as dropped:
            run(sim, name, request("hi"))
        assert dropped.value.verdict.kind == "transport"
        assert dropped.value.partial_text.startswith("The words")
        with pytest.raises(ProviderError, match="lost before the reply"):
            run(sim, name, request("hi"))


@first_parties
def test_retries_are_ours_and_stop_at_the_first_byte(name: str) -> None:
    async def no_sleep(seconds: float) -> None:
        return None

    with Simulator(script=[Drop(), Fail("anthropic_overloaded"), "third"]) as sim:
        reply = run(sim, name, request("hi"), retries=Retries(attempts=3), sleep=no_sleep)
        assert (reply.message.text, len(sim.requests)) == ("third", 3)


@pytest.mark.spec("J4")
@first_parties
def test_cancelling_closes_the_clients_call_at_once(name: str) -> None:
    make, mode = CLIENTS[name]
    with Simulator(script=[Say("word " * 100, chunk_delay_s=0.5), "after"]) as sim:

        async def interrupt() -> float:
            client = make(sim)
            way, place = Transport(client=SdkTransport(client)), endpoint_of(client, "m-1", mode)
            call = asyncio.create_task(way.send(place, request("hi")))
            while not (sim.requests and sim.requests[0].status):
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.1)
            start = time.monotonic()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            took_s = time.monotonic() - start
            while not sim.requests[0].was_abandoned:
                assert time.monotonic() - start < 5, "the service was left talking"
                await asyncio.sleep(0.005)
            assert (await way.send(place, request("again"))).message.text == "after"
            return took_s

        assert asyncio.run(interrupt()) < 2


@first_parties
def test_time_outs_hold_through_a_client(name: str) -> None:
    slow = Say("late", delay_s=30)
    with Simulator(script=[slow]) as sim, pytest.raises(ProviderError, match=r"no reply within 0\.5 s"):
        run(sim, name, request("hi"), timeouts=Timeouts(first_token_s=0.5))


@pytest.mark.parametrize("name", ["Anthropic", "AsyncAnthropic"])
def test_a_client_that_cannot_sign_is_an_auth_verdict(name: str) -> None:
    client = getattr(anthropic, name)(base_url="http://127.0.0.1:9", api_key="k")
    client.api_key = None
    way = Transport(client=SdkTransport(client))
    with pytest.raises(ProviderError, match="the client could not make the call") as caught:
        asyncio.run(way.send(endpoint_of(client, "m"), request("hi")))
    assert caught.value.verdict.kind == "auth"


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts sockets in /proc")
@first_parties
def test_closing_the_transport_closes_the_connections_it_opened_through_a_client(name: str) -> None:
    async def call(sim: Simulator) -> None:
        make, mode = CLIENTS[name]
        gc.collect()  # clients of earlier tests, whose sockets would go meanwhile
        client, before = make(sim), _sockets()
        transport = SdkTransport(client)
        way = Transport(client=transport)
        for _ in range(2):
            await way.send(endpoint_of(client, "m-1", mode), request("hi"))
        assert sim.connections == 1
        assert _sockets() > before
        await way.aclose()
        async with asyncio.timeout(10):
            while _sockets() > before:
                await asyncio.sleep(0.02)
        # The caller's client is still open.
        again = Transport(client=SdkTransport(client))
        assert (await again.send(endpoint_of(client, "m-1", mode), request("hi"))).message.text == "Hello."
        await again.aclose()

    with Simulator(strict(), script=lambda asked: Say("Hello.")) as sim:
        asyncio.run(call(sim))


def _sockets() -> int:
    """Count the open sockets of this process, those of the simulator included."""
    handles = Path("/proc/self/fd")
    targets = []
    for handle in handles.iterdir():
        with contextlib.suppress(OSError):
            targets.append(os.readlink(handle))
    return sum(target.startswith("socket:") for target in targets)


def test_a_client_speaks_its_services_protocols_only() -> None:
    of_openai, of_anthropic = openai.OpenAI(api_key="k"), anthropic.Anthropic(api_key="k")
    assert (sdk_package(of_openai), sdk_package(of_anthropic)) == ("openai", "anthropic")
    assert (mode_of(of_openai), mode_of(of_anthropic)) == ("chat_completions", "anthropic_messages")
    assert mode_of(of_openai, "codex_responses") == "codex_responses"
    with pytest.raises(ConfigError, match="does not speak anthropic_messages"):
        mode_of(of_openai, "anthropic_messages")
    with pytest.raises(ConfigError, match="speaks anthropic_messages, not chat_completions"):
        mode_of(of_anthropic, "chat_completions")


@pytest.mark.parametrize("stranger", [object(), "sk-key", None])
def test_what_is_no_official_client_is_refused_by_name(stranger: object) -> None:
    with pytest.raises(ConfigError, match=f"client= takes a client .* not {type(stranger).__name__}"):
        sdk_package(stranger)
