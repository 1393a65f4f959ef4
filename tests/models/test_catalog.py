"""Windows and prices by provider and model; what is unknown stays unknown."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.config.settings import ModelOverride
from perdure.core.usage import NOT_REPORTED, CanonicalUsage
from perdure.models.catalog import Catalog

CATALOG = Catalog()
NOON_MS = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp() * 1000)
SONNET = ("anthropic", "claude-sonnet-4-5")


@pytest.mark.spec("B4")
@pytest.mark.parametrize(
    ("provider", "model", "window"),
    [
        ("openai-codex", "gpt-5.5", 272_000),
        ("openai", "gpt-5.5", 1_050_000),
        ("openai-responses", "gpt-5.5", 1_050_000),
        ("openrouter", "openai/gpt-5.5", 1_050_000),
        ("copilot", "gpt-5.5", 400_000),
        ("anthropic", "claude-sonnet-4-5", 200_000),
        ("openai", "gpt-5", 400_000),
        ("gemini", "gemini-2.5-pro", 1_048_576),
    ],
)
def test_a_window_belongs_to_provider_and_model(provider: str, model: str, window: int) -> None:
    assert CATALOG.window(provider, model) == window


@pytest.mark.spec("B4", "A5")
def test_what_nobody_knows_is_none_and_never_zero() -> None:
    facts = CATALOG.facts("custom", "house-model-7b", base_url="https://llm.example.org/v1")
    assert facts.window is None
    assert facts.prices.input_per_mtok is None
    assert CATALOG.cost_usd("custom", "house-model-7b", CanonicalUsage(input_tokens=10)) is None
    assert CATALOG.cost_usd("openai", "no-such-model", CanonicalUsage(input_tokens=10)) is None


@pytest.mark.spec("A5")
def test_a_model_listed_without_prices_has_an_unknown_cost() -> None:
    assert CATALOG.cost_usd("github-copilot", "gpt-3.5-turbo", CanonicalUsage(input_tokens=10, output_tokens=5)) is None


@pytest.mark.spec("A5")
def test_each_class_of_tokens_has_its_price() -> None:
    usage = CanonicalUsage(
        input_tokens=21_000,
        cache_read_tokens=60_000,
        cache_write_tokens=2_000,
        output_tokens=3_000,
        reasoning_tokens=900,
    )
    cost = CATALOG.cost_usd(*SONNET, usage, at_ms=NOON_MS)
    assert cost == pytest.approx((21_000 * 3 + 60_000 * 0.3 + 2_000 * 3.75 + 3_000 * 15) / 1e6)


@pytest.mark.spec("A5")
@pytest.mark.parametrize("route", [SONNET, ("openrouter", "anthropic/claude-sonnet-4.5")])
def test_one_hour_writes_cost_more(route: tuple[str, str]) -> None:
    short = CanonicalUsage(cache_write_tokens=10_000)
    hour = CanonicalUsage(cache_write_tokens=10_000, cache_write_1h_tokens=10_000)
    assert CATALOG.cost_usd(*route, short, at_ms=NOON_MS) == pytest.approx(0.0375)
    assert CATALOG.cost_usd(*route, hour, at_ms=NOON_MS) == pytest.approx(0.06)


@pytest.mark.spec("A5")
def test_long_prompts_pay_the_tier_they_fall_in() -> None:
    small = CATALOG.cost_usd(*SONNET, CanonicalUsage(input_tokens=100_000), at_ms=NOON_MS)
    large = CATALOG.cost_usd(*SONNET, CanonicalUsage(input_tokens=300_000), at_ms=NOON_MS)
    assert small is not None
    assert large is not None
    assert large > 3 * small


@pytest.mark.spec("A3", "A5")
def test_usage_nobody_reported_has_no_cost() -> None:
    assert CATALOG.cost_usd(*SONNET, NOT_REPORTED) is None


@pytest.mark.spec("A5")
def test_the_embedded_model_is_known_to_be_free_and_a_subscription_has_no_price() -> None:
    assert CATALOG.cost_usd("local", "smollm2", CanonicalUsage(input_tokens=10)) == 0.0
    assert CATALOG.cost_usd("openai-codex", "gpt-5.5", CanonicalUsage(input_tokens=10)) is None


@pytest.mark.spec("A5", "B4")
def test_the_user_knows_better_than_the_catalogue() -> None:
    catalog = Catalog(
        [
            ModelOverride(model="gpt-5", context_length=100_000),
            ModelOverride(model="gpt-5", provider="azure", context_length=90_000),
            ModelOverride(model="house", input_price_per_mtok=2, output_price_per_mtok=4, cache_read_price_per_mtok=1),
        ]
    )
    assert catalog.window("openai", "gpt-5") == 100_000
    assert catalog.window("azure", "GPT-5") == 90_000
    usage = CanonicalUsage(input_tokens=10, cache_read_tokens=20, cache_write_tokens=30, output_tokens=40)
    assert catalog.cost_usd("custom", "house", usage) == pytest.approx((10 * 2 + 20 * 1 + 30 * 2 + 40 * 4) / 1e6)
    assert catalog.facts("openai", "gpt-5").prices.input_per_mtok == 1.25


@pytest.mark.spec("A5")
def test_a_price_the_user_gave_only_half_of_stays_unknown() -> None:
    catalog = Catalog([ModelOverride(model="house", input_price_per_mtok=2)])
    assert catalog.cost_usd("custom", "house", CanonicalUsage(input_tokens=10, output_tokens=1)) is None
    assert catalog.cost_usd("custom", "house", CanonicalUsage(input_tokens=10)) == pytest.approx(2e-5)


def test_a_proxy_is_recognised_by_its_url_and_a_variant_by_its_name() -> None:
    assert CATALOG.window("custom", "gpt-5", base_url="https://api.openai.com/v1") == 400_000
    assert CATALOG.window(None, "claude-sonnet-4-5") == 200_000
    assert CATALOG.window("openrouter", "anthropic/claude-sonnet-4.5:nitro") == 1_000_000


@pytest.mark.parametrize(
    ("model", "tools", "images", "reasons"),
    [
        ("gpt-5.5", True, True, True),
        ("claude-sonnet-4-5", True, True, True),
        ("gpt-3.5-turbo", True, False, False),
        ("text-embedding-3-small", False, False, False),
        ("smollm2-135m", False, False, False),
        ("o3", True, True, True),
    ],
)
def test_capabilities_by_name(model: str, tools: bool, images: bool, reasons: bool) -> None:
    facts = CATALOG.facts("openai", model)
    assert (facts.takes_tools, facts.takes_images, facts.reasons) == (tools, images, reasons)


@given(st.none() | st.text(max_size=20), st.text(max_size=30), st.none() | st.text(max_size=30))
def test_no_name_however_odd_breaks_a_lookup(provider: str | None, model: str, base_url: str | None) -> None:
    facts = CATALOG.facts(provider, model, base_url=base_url)
    assert facts.window is None or facts.window > 0


def test_the_catalogue_is_not_loaded_before_it_is_asked() -> None:
    code = "import sys, perdure.models.tokens, perdure.models.windows; sys.exit('genai_prices' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
