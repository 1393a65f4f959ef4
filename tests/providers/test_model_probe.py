"""Asking a server for a model's window: each dialect as its servers really answer, and every way not to answer."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from perdure.core.addresses import is_local_url
from perdure.providers.model_probe import FORGET_S, EndpointInfo
from perdure.providers.types import Endpoint
from perdure.testing.simulator import Simulator
from support.simulator import FakeClock, endpoint

Answers = dict[str, Any]


class Server:
    """A server that knows some paths; what was asked of it is on record."""

    def __init__(self, answers: Answers, delay_s: float) -> None:
        self.answers, self.asked = answers, list[tuple[str, bytes]]()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                time.sleep(delay_s)
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                owner.asked.append((self.path, body))
                answer = owner.answers.get(self.path)
                raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(404 if answer is None else 200)
                self.send_header("content-length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            do_POST = do_GET

            def log_message(self, *args: object) -> None:
                return

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"


@contextmanager
def serving(answers: Answers, delay_s: float = 0.0) -> Iterator[Server]:
    server = Server(answers, delay_s)
    Thread(target=server.http.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        server.http.shutdown()
        server.http.server_close()


def at(server: Server, model: str = "m") -> Endpoint:
    return Endpoint("custom", f"{server.url}/v1", "chat_completions", model)


def ask(info: EndpointInfo, place: Endpoint) -> int | None:
    return asyncio.run(info.context_length(place))


def row(**fields: Any) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": "other", "context_length": 111_111}, {"id": "m", **fields}]}


DIALECTS: list[tuple[str, Answers, int | None]] = [
    ("vllm", {"/v1/models": row(max_model_len=32_768)}, 32_768),
    ("openrouter", {"/v1/models": row(context_length=200_000, top_provider={"context_length": 128_000})}, 128_000),
    ("groq", {"/v1/models": row(context_window=131_072)}, 131_072),
    ("litellm", {"/v1/models": row(max_input_tokens=64_000)}, 64_000),
    ("openai says nothing", {"/v1/models": row(owned_by="x")}, None),
    (
        "llama.cpp, less than it was trained for",
        {"/props": {"default_generation_settings": {"n_ctx": 4096}}, "/v1/models": row(meta={"n_ctx_train": 8192})},
        4096,
    ),
    ("ollama", {"/api/show": {"model_info": {"llama.context_length": 131_072, "llama.block_count": 32}}}, 131_072),
    (
        "ollama, configured",
        {
            "/api/show": {
                "parameters": "stop x\nnum_ctx                        16384",
                "model_info": {"q.context_length": 1e9},
            }
        },
        16_384,
    ),
    (
        "ollama, loaded with less",
        {
            "/api/ps": {"models": [{"name": "m:latest", "context_length": 4096}]},
            "/api/show": {"model_info": {"llama.context_length": 131_072}},
        },
        4096,
    ),
    ("lm studio", {"/api/v0/models": row(max_context_length=131_072, loaded_context_length=8192)}, 8192),
    ("lm studio, not loaded", {"/api/v0/models": row(max_context_length=131_072)}, 131_072),
]


@pytest.mark.spec("B4")
@pytest.mark.parametrize(("answers", "window"), [d[1:] for d in DIALECTS], ids=[d[0] for d in DIALECTS])
def test_each_dialect_is_understood(answers: Answers, window: int | None) -> None:
    with serving(answers) as server:
        assert ask(EndpointInfo(), at(server)) == window


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"<html>",
        b"[]",
        b"null",
        b'"x"',
        b"[" * 100_000,
        {"data": "x"},
        {"data": [1, None]},
        row(context_length=0),
    ],
    ids=range(9),
)
def test_nonsense_is_no_answer(answer: Any) -> None:
    paths = ("/v1/models", "/props", "/api/ps", "/api/show", "/api/v0/models")
    with serving(dict.fromkeys(paths, answer) if answer is not None else {}) as server:
        assert ask(EndpointInfo(), at(server)) is None


@pytest.mark.parametrize("figure", [True, "8192", -1, 0, 10**12, 8192.5, None])
def test_a_figure_that_is_no_window_is_not_taken_for_one(figure: Any) -> None:
    with serving({"/v1/models": row(context_length=figure)}) as server:
        assert ask(EndpointInfo(), at(server)) is None


def test_it_is_asked_once_and_remembered_by_address_and_model() -> None:
    with serving({"/v1/models": row(context_length=8192)}) as server:
        info = EndpointInfo()
        assert server.asked == []
        assert ask(info, at(server)) == ask(info, at(server)) == 8192
        asked = len(server.asked)
        assert ask(info, at(server, "unknown")) is None
        assert len(server.asked) == 2 * asked


def test_no_answer_is_asked_again_after_a_while() -> None:
    clock = FakeClock()
    with serving({}) as server:
        info = EndpointInfo(monotonic_s=clock)
        assert ask(info, at(server)) is None
        server.answers["/v1/models"] = row(context_length=8192)
        assert ask(info, at(server)) is None
        clock.now_s += FORGET_S
        assert ask(info, at(server)) == 8192


def test_a_slow_or_absent_server_costs_no_more_than_the_limit() -> None:
    with serving({"/v1/models": row(context_length=8192)}, delay_s=2) as server:
        start = time.monotonic()
        assert ask(EndpointInfo(time_limit_s=0.2), at(server)) is None
        assert time.monotonic() - start < 1.5
    assert ask(EndpointInfo(), Endpoint("custom", "http://127.0.0.1:9/v1", "chat_completions", "m")) is None
    assert ask(EndpointInfo(), Endpoint("custom", "not an address", "chat_completions", "m")) is None


def test_ollama_is_asked_about_the_model_by_name() -> None:
    with serving({}) as server:
        ask(EndpointInfo(), at(server, "qwen3:8b"))
        assert ("/api/show", b'{"model":"qwen3:8b"}') in server.asked


@pytest.mark.parametrize(
    ("base_url", "is_own"),
    [
        ("http://127.0.0.1:1/v1", True),
        ("http://localhost/v1", True),
        ("http://gpu-box:8000/v1", True),
        ("http://192.168.1.7/v1", True),
        ("http://[::1]:1/v1", True),
        ("https://api.openai.com/v1", False),
        ("https://8.8.8.8/v1", False),
        ("http://[::1/v1", False),
    ],
)
def test_only_servers_nearby_are_asked_in_their_own_dialects(base_url: str, is_own: bool) -> None:
    assert is_local_url(base_url) is is_own


def test_the_simulator_tells_its_window_in_every_mode() -> None:
    with Simulator(window=4321, models=("m-1",)) as sim:
        for mode in ("chat_completions", "codex_responses"):
            assert ask(EndpointInfo(), endpoint(sim, mode)) == 4321
