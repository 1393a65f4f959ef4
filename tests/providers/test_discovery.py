"""Models on this machine: servers on loopback and GGUF files are found quickly, and nothing else is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.app.model_choices import find_choices, local_choices
from perdure.app.runtime import route_of, route_to
from perdure.config.load import validate_settings
from perdure.core.errors import ConfigError
from perdure.providers.discovery import LocalServer, ModelFile, ServerPort, local_servers, model_files, server_models
from perdure.providers.model_probe import listed_models
from perdure.testing.simulator import Simulator

MODEL_BYTES = 5_000_001


def put(path: Path, size: int = MODEL_BYTES) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)
    return path


def test_a_server_is_known_by_its_port_and_lists_its_models() -> None:
    with Simulator(models=("m-1", "m-2")) as sim:
        port = int(sim.base_url.rsplit(":", 1)[1].split("/")[0])
        (server,) = local_servers((ServerPort("Ollama", port, "ollama"), ServerPort("Nobody", 9, "vllm")))
    assert (server.provider, server.models[:2]) == ("ollama", ("m-1", "m-2"))
    assert server_models("http://127.0.0.1:9/v1") is None


def test_model_files_are_found_once_and_other_files_are_not(tmp_path: Path) -> None:
    home, own = tmp_path / "user", tmp_path / "perdure"
    blob = put(home / ".cache/huggingface/hub/models--x/blobs/abc")
    link = home / ".cache/huggingface/hub/models--x/snapshots/1/Qwen.gguf"
    link.parent.mkdir(parents=True)
    link.symlink_to(blob)
    put(own / "models" / "mine.gguf")
    put(home / "models" / "big-00001-of-00003.gguf")
    put(home / "models" / "big-00002-of-00003.gguf")
    put(home / "models" / "big-00011-of-00013.gguf")
    put(home / "models" / "mmproj-model.gguf")
    put(home / "models" / "adapter.gguf", 1_000)
    put(home / "models" / "readme.md")
    put(home / "elsewhere" / "unseen.gguf")
    (home / "models" / "loop").symlink_to(home / "models")
    names = [file.path.name for file in model_files(home, own, limit_s=30)]
    assert names == ["big-00001-of-00003.gguf", "mine.gguf", "Qwen.gguf"]


def test_a_scan_that_has_no_time_left_ends(tmp_path: Path) -> None:
    put(tmp_path / "models" / "one.gguf")
    assert model_files(tmp_path, tmp_path, limit_s=-1) == []


def test_a_file_is_chosen_by_its_path_and_a_server_by_its_provider(tmp_path: Path) -> None:
    path = put(tmp_path / "a b.gguf")
    settings = validate_settings({"model": {"provider": "anthropic", "name": "claude-sonnet-5-5"}})
    assert route_to(settings, str(path)).main.provider == "local"
    names = [
        choice.name
        for choice in local_choices(
            [LocalServer("Ollama", "ollama", "http://127.0.0.1:11434/v1", ("qwen3",))], [ModelFile(path, MODEL_BYTES)]
        )
    ]
    assert names[0] == "ollama/qwen3"
    main = route_to(settings, names[0]).main
    assert (main.provider, main.model, main.base_url) == ("ollama", "qwen3", "http://127.0.0.1:11434/v1")


def test_the_models_of_an_endpoint_come_with_windows(tmp_path: Path) -> None:
    with Simulator(models=("m-1", "m-2"), window=32_000) as sim:
        settings = validate_settings({"model": {"base_url": sim.base_url, "name": "m-1"}})
        endpoint = route_of(settings).main
        assert asyncio.run(listed_models(endpoint))[:2] == [("m-1", 32_000), ("m-2", 32_000)]
        choices = {choice.name: choice for choice in find_choices(settings, endpoint, tmp_path)}
    assert (choices["m-1"].window, choices["m-2"].window) == (32_000, 32_000)
    assert asyncio.run(listed_models(endpoint)) == []  # nobody answers any more


def test_the_only_model_of_a_loopback_server_needs_no_name() -> None:
    with Simulator(models=("only",)) as sim:
        settings = validate_settings({"model": {"base_url": sim.base_url}})
        assert route_of(settings).main.model == "only"
    with (
        Simulator(models=("one", "two")) as sim,
        pytest.raises(ConfigError, match=r"one of one, two"),
    ):
        route_of(validate_settings({"model": {"base_url": sim.base_url}}))
