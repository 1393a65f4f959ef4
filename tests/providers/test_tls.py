"""Calls over TLS, by every wire: with an authority of one's own, and in plain words where it is not to be trusted."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop

from perdure.core.errors import ConfigError, ProviderError
from perdure.core.events import TextDelta
from perdure.providers.http import HttpClient, HttpxClient
from perdure.providers.http_aiohttp import AiohttpClient
from perdure.providers.transport import Retries, Transport
from perdure.providers.types import Endpoint
from support.certificates import Certificate, self_signed
from support.simulator import request

PIECES = [f'data: {{"choices":[{{"delta":{{"content":"{word} "}}}}]}}\n\n' for word in ("over", "a", "safe", "line")]
DONE = 'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Way:
    """A wire, and the loop it is used in."""

    wire: Callable[[], HttpClient]
    loop: Callable[[], asyncio.AbstractEventLoop] | None = None


WAYS = {
    "aiohttp": Way(AiohttpClient),
    "aiohttp on uvloop": Way(AiohttpClient, uvloop.new_event_loop),
    "httpx": Way(HttpxClient),
}


@pytest.fixture(params=WAYS, ids=lambda name: name.replace(" ", "-"))
def way(request: pytest.FixtureRequest) -> Way:
    return WAYS[request.param]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return self_signed(tmp_path_factory.mktemp("tls"), "IP:127.0.0.1,DNS:localhost")


@pytest.fixture(autouse=True)
def nothing_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


@dataclass
class Heard:
    """What came of the calls: the words as they came, the replies, how many connections it took."""

    words: list[str]
    replies: list[str]
    connections: int = 0
    error: Exception | None = None


def chunk(text: str) -> bytes:
    return f"{len(text.encode()):x}\r\n{text}\r\n".encode()


def call(way: Way, tls: ssl.SSLContext | None, *, times: int = 1) -> Heard:
    """Calls a server that speaks TLS (None: plain HTTP) and streams its reply word by word, each once it was heard."""
    heard = Heard([], [])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.connections += 1
        if tls is None:
            await reader.read(1)
            writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            return writer.close()
        while head := await reader.readuntil(b"\r\n\r\n"):
            await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
            writer.write(HEAD)
            for number, piece in enumerate(PIECES, len(heard.words) + 1):
                writer.write(chunk(piece))
                while len(heard.words) < number:  # it must arrive before the next is sent
                    await asyncio.sleep(0.001)
            writer.write(chunk(DONE) + b"0\r\n\r\n")

    def note(delta: Any) -> None:
        if isinstance(delta, TextDelta):
            heard.words.append(delta.text)

    async def run() -> None:
        server = await asyncio.start_server(_quietly(serve), "127.0.0.1", 0, ssl=tls)
        transport = Transport(client=way.wire(), retries=Retries(attempts=1))
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        where = Endpoint("custom", url, "chat_completions", "m", api_key="k")
        try:
            for _ in range(times):
                reply = await transport.send(where, request("hello", is_streaming=True), on_event=note)
                heard.replies.append(reply.message.text)
        except (ProviderError, ConfigError) as error:
            heard.error = error
        finally:
            await transport.aclose()
            server.close()

    with asyncio.Runner(loop_factory=way.loop) as runner:
        runner.run(asyncio.wait_for(run(), 20))
    return heard


def _quietly(serve: Any) -> Any:
    async def until_gone(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, OSError, IndexError):
            writer.close()

    return until_gone


def test_a_stream_comes_piece_by_piece_from_a_server_whose_authority_is_named(
    way: Way, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.file))
    heard = call(way, certificate.for_server(), times=3)
    assert heard.error is None
    assert heard.replies == ["over a safe line "] * 3
    assert heard.words == ["over ", "a ", "safe ", "line "] * 3
    assert heard.connections == 1


def test_a_certificate_nobody_vouches_for_is_refused_with_the_way_to_trust_it(
    way: Way, certificate: Certificate
) -> None:
    heard = call(way, certificate.for_server())
    assert isinstance(heard.error, ProviderError)
    assert heard.error.verdict.kind == "transport"
    assert "self-signed certificate" in str(heard.error)
    assert "name their certificate's file in SSL_CERT_FILE" in str(heard.error)
    assert heard.words == []


def test_a_certificate_of_another_name_is_refused_though_its_authority_is_known(
    way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = self_signed(tmp_path, "DNS:elsewhere.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(foreign.file))
    heard = call(way, foreign.for_server())
    assert isinstance(heard.error, ProviderError)
    assert "the certificate is for another name; check `model.base_url`" in str(heard.error)


def test_a_server_that_speaks_plain_http_is_told_apart(way: Way) -> None:
    heard = call(way, None)
    assert isinstance(heard.error, ProviderError)
    assert "the server there may speak plain http://" in str(heard.error)


@pytest.mark.parametrize("holds", [None, "no certificate at all"])
def test_a_file_of_authorities_that_cannot_be_read_is_named(
    way: Way, holds: str | None, tmp_path: Path, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "authorities.pem"
    if holds is not None:
        named.write_text(holds)
    monkeypatch.setenv("SSL_CERT_FILE", str(named))
    heard = call(way, certificate.for_server())
    assert isinstance(heard.error, ConfigError)
    assert str(heard.error).startswith(f"SSL_CERT_FILE names {named}, which cannot be read as such")
