from __future__ import annotations

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from perdure.config.settings import Settings
from perdure.core.errors import ConfigError
from perdure.providers.registry import (
    MODEL_ROWS,
    PROVIDERS,
    find_provider,
    find_provider_by_url,
    mode_module,
    quirks_of,
    resolve_mode,
)
from support.provider_table import rendered

WANTED = (
    "anthropic", "openai", "openai-codex", "openrouter", "copilot", "deepseek", "groq", "together", "gemini", "mistral",
    "xai", "fireworks", "ollama", "lmstudio", "vllm", "llamacpp", "local", "custom",
)  # fmt: skip


@pytest.mark.spec("J3")
@pytest.mark.parametrize(
    ("api_mode", "provider", "base_url", "mode"),
    [
        (None, None, None, "chat_completions"),
        ("codex_responses", "anthropic", "https://api.anthropic.com", "codex_responses"),
        (None, "anthropic", "https://proxy.example/v1", "anthropic_messages"),
        (None, "openai-codex", None, "codex_responses"),
        (None, "Anthropic ", None, "anthropic_messages"),
        (None, "openai", "https://api.anthropic.com", "chat_completions"),
        (None, None, "https://api.anthropic.com/v1", "anthropic_messages"),
        (None, "custom", "https://api.anthropic.com", "anthropic_messages"),
        (None, "custom", "https://api.deepseek.com/anthropic", "anthropic_messages"),
        (None, "custom", "https://api.z.ai/api/anthropic/v1/", "anthropic_messages"),
        (None, None, "https://notanthropic.com/v1", "chat_completions"),
        (None, None, "https://anthropic.com.evil.example", "chat_completions"),
        (None, None, "api.anthropic.com", "anthropic_messages"),
        (None, "nobody-knows", "http://127.0.0.1:9/v1", "chat_completions"),
        (None, None, "http://[broken", "chat_completions"),
    ],
)
def test_the_mode_is_the_argument_then_the_providers_then_the_addresss(
    api_mode: str | None, provider: str | None, base_url: str | None, mode: str
) -> None:
    assert resolve_mode(api_mode, provider, base_url) == mode


@pytest.mark.spec("J3")
def test_an_unknown_mode_is_a_config_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="chat_completions, codex_responses, anthropic_messages"):
        resolve_mode("smoke_signals")
    with pytest.raises(ConfigError):
        mode_module("smoke_signals")  # type: ignore[arg-type]  # the point of the test


@pytest.mark.spec("J3")
def test_every_mode_offers_the_same_verbs() -> None:
    for mode in ("chat_completions", "codex_responses", "anthropic_messages"):
        module = mode_module(mode)
        assert all(hasattr(module, name) for name in ("PATH", "headers", "build", "parse", "make_stream"))


@pytest.mark.spec("J3")
def test_the_table_knows_the_providers_and_each_row_is_whole() -> None:
    names = [s.name for s in PROVIDERS]
    assert len(set(names)) == len(names)
    assert not set(WANTED) - set(names)
    for row in PROVIDERS:
        assert row.base_url.startswith(("http://127.0.0.1", "https://")) or row.name in (
            "azure",
            "litellm",
            "local",
            "custom",
        )
        assert row.needs_key is bool(row.key_variables)
        assert row.api_mode is not None or not row.base_url
    assert find_provider("github-copilot") is find_provider("copilot")
    assert find_provider("open_ai") is None
    assert find_provider(None) is None


def test_a_host_tells_its_service_and_loopback_tells_nothing() -> None:
    assert find_provider_by_url("https://openrouter.ai/api/v1").name == "openrouter"
    assert find_provider_by_url("https://my-thing.openai.azure.com/openai/v1").name == "azure"
    assert find_provider_by_url("http://127.0.0.1:8000/v1") is None
    assert find_provider_by_url("http://[x") is None


def test_a_custom_provider_at_a_known_host_has_that_hosts_quirks() -> None:
    assert quirks_of("custom", model="m", base_url="https://api.mistral.ai/v1").call_ids == "mistral"
    assert quirks_of("custom", model="m", base_url="http://127.0.0.1:1/v1").call_ids == "openai"


def test_model_rows_carry_the_words_that_made_them_necessary() -> None:
    assert all(row.sample and row.changes for row in MODEL_ROWS)
    assert quirks_of("openrouter", model="openai/gpt-5.5").max_tokens_key == "max_tokens"
    assert quirks_of("copilot", model="gpt-5.5").max_tokens_key == "max_completion_tokens"


def test_the_page_about_providers_shows_the_table_as_it_is() -> None:
    page = (Path(__file__).parents[2] / "docs" / "providers.md").read_text(encoding="utf-8")
    assert rendered() in page


def test_the_pages_examples_of_settings_are_settings() -> None:
    page = (Path(__file__).parents[2] / "docs" / "providers.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 2
    for block in blocks:
        chosen = Settings.model_validate(YAML(typ="safe").load(block))
        for route in (*chosen.fallback_providers, *chosen.auxiliary.compression.fallback):
            assert find_provider(route.provider) is not None, f"{route.provider} is not in the table"
