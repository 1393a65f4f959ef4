"""A call to the embedded model starts its server, and offers it only what it can use."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.app.runtime import EMBEDDED_REPLY_TOKENS, EmbeddedSend, embedded_endpoint
from perdure.core.messages import assistant
from perdure.providers.local import LocalServers
from perdure.providers.types import Endpoint, ModelRequest, Reply
from support.local import needs_local
from support.simulator import TOOL, request


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[LocalServers]:
    running = LocalServers(tmp_path)
    yield running
    running.close()


class Heard:
    """A Send that writes down what it was asked to send."""

    def __init__(self) -> None:
        self.calls: list[tuple[Endpoint, ModelRequest]] = []

    async def __call__(self, endpoint: Endpoint, request: ModelRequest, *, on_event: Any = None) -> Reply:
        self.calls.append((endpoint, request))
        return Reply(assistant("ok"))


@needs_local
def test_no_tools_are_offered_to_a_model_that_cannot_call_them(servers: LocalServers) -> None:
    heard = Heard()
    send = EmbeddedSend(heard, servers, n_ctx=512)
    asyncio.run(send(embedded_endpoint("smollm2"), request("hi", tools=(TOOL,))))
    endpoint, sent = heard.calls[0]
    assert sent.tools == ()
    assert endpoint.base_url.startswith("http://127.0.0.1:")


@needs_local
def test_a_model_that_does_not_know_when_to_stop_is_stopped_unless_told_otherwise(servers: LocalServers) -> None:
    heard = Heard()
    send = EmbeddedSend(heard, servers, n_ctx=512)
    for asked in (request("hi", max_tokens=None), request("hi", max_tokens=64)):
        asyncio.run(send(embedded_endpoint("smollm2"), asked))
    assert [sent.max_tokens for _, sent in heard.calls] == [EMBEDDED_REPLY_TOKENS, 64]


def test_other_calls_pass_through_untouched_and_start_nothing(servers: LocalServers) -> None:
    heard = Heard()
    place, asked = Endpoint("custom", "http://h/v1", "chat_completions", "m"), request("hi", tools=(TOOL,))
    asyncio.run(EmbeddedSend(heard, servers)(place, asked))
    assert heard.calls == [(place, asked)]
