"""The price systems that a replay is billed under, with the caching rules and the prices of a model of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from perdure.core.usage import CanonicalUsage
from perdure.lab.replay.provider import AutomaticPrefixes, CacheModel, MarkedPrefixes
from perdure.models.catalog import Catalog, Prices

_PER_MTOK = 1_000_000
# The newest models of OpenAI bill a write above the price of fresh input.
_OPENAI_WRITE_FACTOR = 1.25
_CACHE_MINIMUM = 1_024
# 2026-01-15 12:00 UTC, and a call small enough for the base price.
_PRICED_AT_MS = 1_768_478_400_000
_SAMPLE_TOKENS = 1_000


@dataclass(frozen=True, slots=True)
class PriceSystem:
    """A provider's way to bill prompts: the prices, and what is cached for how long."""

    key: str
    title: str
    provider: str
    model: str

    def prices(self) -> Prices:
        """Return the prices per million tokens from the catalogue, at a fixed time: some depend on the hour."""
        return _prices_of(self.provider, self.model, _OPENAI_WRITE_FACTOR if self.key == "openai" else 1.0)

    def cost_usd(self, usage: CanonicalUsage) -> float:
        """Return the cost of a usage, without the surcharges that some models have on very long prompts."""
        prices = self.prices()
        total = (
            usage.input_tokens * (prices.input_per_mtok or 0.0)
            + usage.cache_read_tokens * (prices.cache_read_per_mtok or 0.0)
            + (usage.cache_write_tokens - usage.cache_write_1h_tokens) * (prices.cache_write_per_mtok or 0.0)
            + usage.cache_write_1h_tokens * (prices.cache_write_1h_per_mtok or 0.0)
            + usage.output_tokens * (prices.output_per_mtok or 0.0)
        )
        return total / _PER_MTOK


@cache
def _prices_of(provider: str, model: str, write_factor: float) -> Prices:
    catalog = Catalog()

    def price(usage: CanonicalUsage) -> float:
        cost = catalog.cost_usd(provider, model, usage, at_ms=_PRICED_AT_MS)
        return (cost or 0.0) * _PER_MTOK / _SAMPLE_TOKENS

    n = _SAMPLE_TOKENS
    fresh = price(CanonicalUsage(input_tokens=n))
    has_writes = catalog.facts(provider, model).prices.cache_write_per_mtok is not None
    write = price(CanonicalUsage(cache_write_tokens=n)) if has_writes else fresh * write_factor
    hour = price(CanonicalUsage(cache_write_tokens=n, cache_write_1h_tokens=n)) if has_writes else write
    return Prices(
        fresh, price(CanonicalUsage(output_tokens=n)), price(CanonicalUsage(cache_read_tokens=n)), write, hour
    )


PRICE_SYSTEMS: Mapping[str, PriceSystem] = {
    system.key: system
    for system in (
        PriceSystem("anthropic-5m", "Anthropic, cached for 5 minutes", "anthropic", "claude-sonnet-4-5"),
        PriceSystem("anthropic-1h", "Anthropic, cached for 1 hour", "anthropic", "claude-sonnet-4-5"),
        PriceSystem("openai", "OpenAI, writes billed", "openai", "gpt-5"),
        PriceSystem("deepseek", "DeepSeek, hit and miss", "deepseek", "deepseek-chat"),
    )
}
# The one that the agent itself sees.
MAIN_SYSTEM = "anthropic-5m"
# What a small model of the same provider would bill for a summary.
SMALL_MODEL = PriceSystem("anthropic-small", "Anthropic's small model", "anthropic", "claude-haiku-4-5")


def cache_models(now_s: Callable[[], float]) -> dict[str, CacheModel]:
    """Return a fresh cache for each price system."""
    return {
        "anthropic-5m": MarkedPrefixes(now_s, minimum=_CACHE_MINIMUM),
        "anthropic-1h": MarkedPrefixes(now_s, minimum=_CACHE_MINIMUM, is_hour=True),
        "openai": AutomaticPrefixes(now_s, reports_writes=True, step=128, minimum=1_024, ttl_s=600.0),
        # Its cache is on disk: it lasts for hours, and has no minimum but one step.
        "deepseek": AutomaticPrefixes(now_s, reports_writes=False, step=64, minimum=64, ttl_s=6 * 3_600.0),
    }
