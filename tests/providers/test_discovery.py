"""Models on this machine: servers on loopback and GGUF files are found quickly, and nothing else is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.app import Agent
from perdure.app.model_choices import choose_route, find_choices, local_choices, unlisted_notice
from perdure.app.runtime import route_of, route_to
from perdure.config.api_keys import StoredKeys, origin_of
from perdure.config.load import validate_settings
from perdure.config.settings import Settings
from perdure.core.errors import ConfigError, ErrorVerdict
from perdure.providers.discovery import LocalServer, ModelFile, ServerPort, local_servers, model_files, server_models
from perdure.providers.errors.messages import EndpointLabel, refusal_error
from perdure.providers.model_probe import listed_models
from perdure.testing.simulator import Simulator
from support.local import needs_local

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
        pytest.raises(ConfigError, match=r"none is chosen: one, two"),
    ):
        route_of(validate_settings({"model": {"base_url": sim.base_url}}))


def at_a_proxy(base_url: str) -> Settings:
    return validate_settings({"model": {"provider": "openai", "base_url": base_url, "name": "sim-1"}})


@pytest.mark.parametrize("name", ["openai/simulator", "OpenAI/simulator", "simulator"])
def test_a_model_of_the_configured_provider_stays_at_the_configured_address(name: str) -> None:
    main = route_to(at_a_proxy("http://127.0.0.1:18089/v1"), name).main
    assert (main.provider, main.model, main.base_url) == ("openai", "simulator", "http://127.0.0.1:18089/v1")


def test_the_name_of_another_provider_leaves_the_configured_address() -> None:
    main = route_to(at_a_proxy("http://127.0.0.1:18089/v1"), "deepseek/deepseek-chat").main
    assert (main.provider, main.base_url) == ("deepseek", "https://api.deepseek.com/v1")


def test_a_fallback_with_an_address_is_chosen_at_that_address() -> None:
    fallback = {"provider": "openai", "base_url": "http://127.0.0.1:9/v1", "model": "m"}
    settings = validate_settings({"model": {"provider": "anthropic"}, "fallback_providers": [fallback]})
    assert route_to(settings, "openai/other").main.base_url == "http://127.0.0.1:9/v1"


def test_a_provider_outside_the_table_is_known_by_its_configured_name() -> None:
    settings = validate_settings({"model": {"provider": "acme", "base_url": "http://127.0.0.1:9/v1", "name": "a"}})
    main = route_to(settings, "acme/b").main
    assert (main.provider, main.model, main.base_url) == ("acme", "b", "http://127.0.0.1:9/v1")


def test_every_listed_model_of_an_endpoint_is_chosen_at_that_endpoint(tmp_path: Path) -> None:
    with Simulator(models=("simulator", "openai/gpt-5.5"), window=200_000) as sim:
        for provider in ("openai", "custom", "acme"):
            model = {"provider": provider, "base_url": sim.base_url, "name": "sim-1"}
            settings = validate_settings({"model": model})
            endpoint = route_of(settings).main
            choices = find_choices(settings, endpoint, tmp_path)
            chosen = [route_to(settings, c.name).main for c in choices if c.source == endpoint.server_name]
            here = {route.model for route in chosen}
            addresses = {route.base_url for route in chosen}
            assert here >= {"sim-1", "simulator", "openai/gpt-5.5"}
            assert addresses == {sim.base_url}


def test_the_key_of_a_proxy_makes_no_other_provider_a_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "for-the-proxy")
    settings = at_a_proxy("http://127.0.0.1:9/v1")
    names = [choice.name for choice in find_choices(settings, route_of(settings).main, tmp_path)]
    assert "openai/sim-1" in names
    assert not [name for name in names if name.startswith("openai-responses/")]


def test_the_chosen_model_is_called_at_its_address_with_its_key_and_listed_window(tmp_path: Path) -> None:
    with Simulator(models=("simulator",), window=200_000) as sim:
        settings = at_a_proxy(sim.base_url)
        with Agent(settings=settings, api_key="proxy-key", store=tmp_path / "s.db", home=tmp_path, tools=()) as agent:
            agent.switch_model("openai/simulator")
            assert (agent.endpoint.base_url, agent.endpoint.api_key) == (sim.base_url, "proxy-key")
            assert agent.measure().window == 200_000


def test_a_model_that_the_endpoint_does_not_list_gets_a_warning() -> None:
    with Simulator(models=("simulator", "dated-2026-01-01")) as sim:
        settings = at_a_proxy(sim.base_url)
        notice = unlisted_notice(route_to(settings, "simulater").main)
        assert notice is not None
        assert "does not list 'simulater'; it lists simulator" in notice
        assert unlisted_notice(route_to(settings, "simulator").main) is None
        assert unlisted_notice(route_to(settings, "dated").main) is None
    assert unlisted_notice(route_to(settings, "simulater").main) is None  # nobody answers, so nothing is known


@needs_local
def test_the_embedded_model_is_named_where_another_server_is_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    with Simulator(models=("simulator",)) as sim:
        settings = at_a_proxy(sim.base_url)
        notice = unlisted_notice(route_to(settings, "smollm2").main)
        assert notice is not None
        assert notice.endswith("it lists simulator; the embedded model is `local/smollm2`")
        with pytest.raises(ConfigError, match=r"the embedded model is `local/smollm2`\. Nothing has changed\.$"):
            choose_route(settings, "smollm2")
        assert "the embedded model is `local/smollm2`" in (unlisted_notice(route_to(settings, "smollm").main) or "")
        assert "the embedded model is" not in (unlisted_notice(route_to(settings, "smollm3").main) or "")
        assert "the embedded model is" not in (unlisted_notice(route_to(settings, "simulater").main) or "")
        label = EndpointLabel.of(route_to(settings, "smollm2").main)
        refusal = refusal_error(label, ErrorVerdict("bad_request", "The model `smollm2` does not exist", status=404))
        assert "the embedded model is `local/smollm2`" in str(refusal)


@pytest.mark.parametrize("name", ["corp", "corp-l", "gpt-oss", "snap", "tagged"])
def test_the_start_of_a_listed_name_is_no_model(name: str) -> None:
    with Simulator(models=("corp-large", "corp-small", "gpt-oss-20b", "snap-7", "tagged:8b")) as sim:
        notice = unlisted_notice(route_to(at_a_proxy(sim.base_url), name).main)
    assert notice is not None
    assert f"does not list {name!r}; it lists corp-large" in notice


@pytest.mark.parametrize("name", ["dated", "short", "vertex", "newest", "tagged"])
def test_a_listed_name_without_its_date_or_tag_is_an_alias(name: str) -> None:
    listed = ("dated-2026-01-01", "short-0613", "vertex@20260101", "newest-latest", "tagged:latest")
    with Simulator(models=listed) as sim:
        assert unlisted_notice(route_to(at_a_proxy(sim.base_url), name).main) is None


def test_the_models_of_a_server_with_a_stored_key_are_listed_and_chosen_by_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    with Simulator(models=("m-1", "org/m-2"), window=32_000, api_key="right") as sim:
        settings = validate_settings({"model": {"provider": "local"}})
        before = find_choices(settings, route_of(settings).main, tmp_path)
        assert not [choice for choice in before if sim.base_url in choice.name]
        with pytest.raises(ConfigError, match="wants a key; `perdure login http"):
            choose_route(settings, f"{sim.base_url}/org/m-2")
        StoredKeys(tmp_path, open_keyring=lambda: None).put(origin_of(sim.base_url) or "", "right")
        choices = {c.name: c for c in find_choices(settings, route_of(settings).main, tmp_path)}
        assert choices[f"{sim.base_url}/m-1"].window == 32_000
        main = choose_route(settings, f"{sim.base_url}/org/m-2")[0].main
        assert (main.base_url, main.model, main.api_key) == (sim.base_url, "org/m-2", "right")
        # The one in use is listed by the same name.
        assert f"{sim.base_url}/org/m-2" in [c.name for c in find_choices(settings, main, tmp_path)]
        # A server that is configured is listed once, by the names of its models.
        configured = validate_settings({"model": {"base_url": sim.base_url, "name": "m-1"}})
        names = [c.name for c in find_choices(configured, route_of(configured).main, tmp_path)]
        assert [name for name in names if "m-1" in name] == ["m-1"]


def test_a_model_at_an_address_goes_to_that_server_and_not_to_the_provider_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of another service")
    settings = validate_settings({})
    with Simulator(models=("org/m-2",)) as sim:
        main = choose_route(settings, f"{sim.base_url}/org/m-2")[0].main
        assert (main.provider, main.base_url, main.model, main.api_key) == ("custom", sim.base_url, "org/m-2", None)
        assert f"{sim.base_url}/org/m-2" in [c.name for c in find_choices(settings, main, tmp_path)]
        with pytest.raises(ConfigError, match="does not list 'm-9'; it lists org/m-2"):
            choose_route(settings, f"{sim.base_url}/m-9")
        gone = sim.base_url
    with pytest.raises(ConfigError, match="no server answers at http"):
        choose_route(settings, f"{gone}/org/m-2")


def test_an_address_without_a_model_names_the_only_one_of_its_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    with Simulator(models=("m-2",)) as sim:
        for address in (sim.base_url, f"{sim.base_url}/"):
            main = choose_route(validate_settings({}), address)[0].main
            assert (main.base_url, main.model) == (sim.base_url, "m-2")


def test_an_address_that_lacks_the_path_of_the_api_is_corrected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    with Simulator(models=("m-2",)) as sim:
        root = sim.base_url.removesuffix("/v1")
        with pytest.raises(ConfigError, match=f"is at {sim.base_url}: `/model {sim.base_url}/m-2`"):
            choose_route(validate_settings({}), f"{root}/m-2")


def test_words_with_spaces_are_no_model() -> None:
    settings = at_a_proxy("http://127.0.0.1:9/v1")
    with pytest.raises(ConfigError, match="'what is here' is no model"):
        choose_route(settings, "what is here")
    with pytest.raises(ConfigError, match="no file on this machine"):
        choose_route(validate_settings({}), "/tmp/my models/none.gguf")
