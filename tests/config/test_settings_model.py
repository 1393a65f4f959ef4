"""The one list of keys: every figure of the SPEC is there with its default, its range and a line that explains it."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from perdure.config import keys
from perdure.config.sections import CompressionSettings
from perdure.config.settings import RouteSettings, Settings
from perdure.core.errors import ConfigError

DEFAULTS = {
    "compression.enabled": True,
    "compression.threshold": 0.50,
    "compression.target_ratio": 0.20,
    "compression.protect_last_n": 20,
    "compression.protect_first_n": 3,
    "compression.head_decay": True,
    "compression.codex_gpt55_autoraise": True,
    "compression.codex_gpt55_threshold": 0.85,
    "compression.record_ratio": 0.088,
    "compression.record_max_tokens": 12_000,
    "compression.summary_window_ratio": 0.05,
    "compression.summary_max_tokens": 12_000,
    "compression.summary_ratio": 0.20,
    "compression.summary_min_tokens": 2_000,
    "compression.head_ratio": 0.05,
    "compression.tail_overrun": 1.5,
    "compression.prune_chars": 200,
    "compression.small_window": 16_000,
    "compression.small_window_threshold": 0.75,
    "compression.small_window_handoff_ratio": 0.15,
    "compression.max_ineffective": 2,
    "compression.retry_cooldown_s": 60,
    "compression.no_provider_cooldown_s": 600,
    "tool_output.default_result_size": 100_000,
    "tool_output.turn_budget": 200_000,
    "tool_output.preview_size": 1_500,
    "tool_output.window_result_ratio": 0.15,
    "tool_output.window_turn_ratio": 0.30,
    "prompt_caching.cache_ttl": "5m",
    "agent.max_turns": 90,
    "delegation.max_iterations": 50,
    "context.engine": "compressor",
    "auxiliary.compression.model": None,
    "auxiliary.compression.provider": "auto",
    "auxiliary.compression.base_url": None,
    "auxiliary.compression.fallback": (),
    "auxiliary.compression.context_length": None,
    "auxiliary.vision.provider": "auto",
    "auxiliary.web_extract.provider": "auto",
    "auxiliary.session_search.provider": "auto",
    "fallback_providers": (),
    "credentials.command": None,
    "limits.max_cost_per_turn": None,
    "limits.max_cost_per_session": None,
    "limits.max_cost_per_day": None,
    "store.url": None,
    "model.name": None,
    "model.provider": None,
    "model.base_url": None,
    "model.context_length": None,
    "model.max_tokens": None,
    "model.temperature": None,
    "model.reasoning_effort": None,
}


@pytest.mark.spec("C1", "C2", "D2", "D5", "F3", "H1", "H3", "J9", "J10", "J15", "L3", "M2", "I8")
@pytest.mark.parametrize(("name", "default"), DEFAULTS.items())
def test_every_figure_is_a_setting_with_its_default(name: str, default: object) -> None:
    assert keys.value_of(Settings(), name) == default


def test_every_key_says_what_it_is_and_what_it_takes() -> None:
    for key in keys.all_keys().values():
        assert key.description.endswith("."), key.name
        assert "\n" not in key.description
        assert len(key.description) <= 110, key.name
        assert key.allowed != "any value", key.name
        assert key.variable == key.variable.upper()


def test_every_default_is_itself_allowed() -> None:
    dumped = Settings().model_dump()
    assert Settings.model_validate(dumped) == Settings()


@pytest.mark.spec("C1", "L3")
@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("threshold", [0.001, 0.5, 1], [0, -0.1, 1.001, float("nan"), float("inf"), True, None, "half", [0.5]]),
        ("target_ratio", [0.10, 0.80], [0.09, 0.81, True]),
        ("protect_last_n", [1, 500, "20", 20.0], [0, -1, 1.5, True, "1.5"]),
        ("protect_first_n", [0, 3], [-1]),
        ("record_ratio", [0, 0.06], [-0.01, 1.1]),
        ("enabled", [True, False, "yes", "off"], ["maybe", 2, None]),
    ],
)
def test_ranges_hold_at_their_very_edge(name: str, good: list[object], bad: list[object]) -> None:
    for value in good:
        CompressionSettings.model_validate({name: value})
    for value in bad:
        with pytest.raises(ValidationError):
            CompressionSettings.model_validate({name: value})


def test_settings_cannot_be_changed_and_can_be_compared() -> None:
    settings = Settings()
    with pytest.raises(ValidationError):
        settings.compression.threshold = 0.9  # type: ignore[misc]  # frozen is the point
    assert hash(settings) == hash(Settings())


@pytest.mark.spec("J10")
def test_a_route_has_a_short_form() -> None:
    assert RouteSettings.model_validate("groq") == RouteSettings(provider="groq")
    assert RouteSettings.model_validate("openrouter/z-ai/glm-4.6") == RouteSettings(
        provider="openrouter", model="z-ai/glm-4.6"
    )
    for nothing in ("", "/", "/model"):
        with pytest.raises(ValidationError):
            RouteSettings.model_validate(nothing)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("compression.threshold", "a share: a number above 0, at most 1"),
        ("compression.target_ratio", "a number from 0.1 to 0.8"),
        ("compression.protect_last_n", "a whole number, at least 1"),
        ("compression.enabled", "true or false"),
        ("prompt_caching.cache_ttl", "one of 5m, 1h"),
        ("model.name", "some text, or null"),
        ("model.temperature", "a number from 0 to 2, or null"),
    ],
)
def test_what_is_allowed_is_said_in_words(name: str, words: str) -> None:
    assert keys.find(name).allowed == words


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("compression.treshold", "compression.threshold"),
        ("threshold", "compression.threshold"),
        ("compresion.enabled", "compression.enabled"),
        ("tool_output.turnbudget", "tool_output.turn_budget"),
        ("max_turns", "agent.max_turns"),
    ],
)
def test_a_mistyped_key_gets_the_one_that_was_meant(typed: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"unknown setting '{typed}' \(did you mean '{meant}'\?\)"):
        keys.find(typed)


def test_a_section_is_no_setting() -> None:
    with pytest.raises(ConfigError, match=r"store is a section, not a setting; it holds: store\.path, store\.url"):
        keys.find("store")


def test_passwords_in_urls_are_not_shown() -> None:
    assert keys.format_value("postgresql://me:s3cret@host/db") == "postgresql://me:***@host/db"
    assert keys.format_value("http://host:8080/v1") == "http://host:8080/v1"


@pytest.mark.parametrize("section", keys.sections())
def test_a_suggestion_for_a_mistyped_name_is_a_setting_that_takes_a_value(section: str) -> None:
    with pytest.raises(ConfigError, match="unknown setting") as refused:
        keys.find(f"{section}e")
    suggested = re.search(r"did you mean '(.+?)'", str(refused.value))
    assert suggested is not None
    assert keys.find(suggested[1]).name == suggested[1]


def test_a_mistyped_model_suggests_its_name() -> None:
    with pytest.raises(ConfigError, match=re.escape("unknown setting 'modle' (did you mean 'model.name'?)")):
        keys.find("modle")
