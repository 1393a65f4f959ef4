"""Model catalogue: window, prices, capabilities by provider. Offline; loaded lazily.

Prices and most windows come from `genai-prices`, whose data ships with it and is never fetched from here. Known facts
that it lacks or has otherwise are a table below; the user's `model_overrides` take precedence over both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from perdure.core.usage import CanonicalUsage

if TYPE_CHECKING:
    from perdure.config.settings import ModelOverride

_PER_MTOK = 1_000_000
# Claude services bill a one-hour cache write at twice the input price; some rows of the catalogue leave it out.
_HOUR_WRITE_FACTOR = 2.0

# (provider, model, window): first match wins. Some services grant one model windows that differ much.
_WINDOWS: tuple[tuple[str, str, int], ...] = (
    ("openai-codex", r"gpt-5", 272_000),
    ("openai|openai-responses", r"gpt-5\.5(-pro)?$", 1_050_000),
    ("openrouter", r"(openai/)?gpt-5\.5(-pro)?$", 1_050_000),
    ("copilot|github-copilot", r"gpt-5\.5$", 400_000),
    ("deepseek", r"deepseek-(chat|reasoner)$", 131_072),
    ("gemini|google|vertex", r"gemini-(2\.[05]|3)", 1_048_576),
    ("groq|together", r"llama-3\.[13]", 131_072),
)
# Routes that a subscription pays for: no price per token is true there.
_UNPRICED = frozenset(("openai-codex",))


def is_subscription(provider: str) -> bool:
    """Whether a provider bills no tokens, so that none of its models has a price for them."""
    return provider.lower() in _UNPRICED


# The embedded model runs on the user's own machine.
_FREE = frozenset(("local",))

_SEES_IMAGES = re.compile(
    r"claude-(3|opus|sonnet|haiku|fable)|gpt-(4o|4\.1|4-turbo|5)|\bo[134](-|$)|gemini|llama-4|pixtral|vision|-vl\b|grok-4"
)
_REASONS = re.compile(
    r"gpt-5|\bo[134](-|$)|claude-(opus|sonnet|haiku|fable)-[4-9]|claude-3-7|gemini-(2\.5|3)|deepseek-(r|reasoner)"
    r"|qwq|thinking|grok-(3-mini|4)|magistral"
)
# Services whose models are known by their plain names.
_MAKERS = ("anthropic", "openai", "google", "x-ai", "deepseek", "mistral", "moonshotai", "zai")
# A version of a model by its date.
_VERSION = re.compile(r"[-@](?:\d{8}|\d{4}-\d{2}-\d{2}|latest)$")
_MOST_SIMILAR = 3
_LEAST_SIMILARITY = 0.7
_HAS_NO_TOOLS = re.compile(r"embed|whisper|tts|dall-e|moderation|gpt-3\.5-turbo-instruct|smollm|davinci|babbage")


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars for a million tokens of each class, before any tier; None is unknown, never free."""

    input_per_mtok: float | None = None
    output_per_mtok: float | None = None
    cache_read_per_mtok: float | None = None
    cache_write_per_mtok: float | None = None
    cache_write_1h_per_mtok: float | None = None


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Catalogue entry of a model on a provider; unknown values are None."""

    provider: str
    model: str
    window: int | None = None
    prices: Prices = Prices()
    takes_tools: bool = True
    takes_images: bool = False
    reasons: bool = False


class Catalog:
    """Looks up windows, prices and capabilities of models, offline; construction loads nothing."""

    def __init__(self, overrides: Sequence[ModelOverride] = ()) -> None:
        self._overrides = tuple(overrides)

    def facts(self, provider: str | None, model: str, *, base_url: str | None = None) -> ModelFacts:
        """Return everything known about a model; for an unknown one, facts that are all None. Never raises."""
        row = _lookup(provider, model, base_url)
        name = model.lower()
        facts = ModelFacts(
            provider=provider or (row[0].id if row else ""),
            model=model,
            window=_known_window(provider, name) or (row[1].context_window if row else None),
            prices=_prices(provider, row),
            takes_tools=not _HAS_NO_TOOLS.search(name),
            takes_images=bool(_SEES_IMAGES.search(name)),
            reasons=bool(_REASONS.search(name)),
        )
        return _overridden(facts, self._override(provider, model))

    def window(self, provider: str | None, model: str, *, base_url: str | None = None) -> int | None:
        """Return the window of a model on a provider; None if unknown."""
        return self.facts(provider, model, base_url=base_url).window

    def override_window(self, provider: str | None, model: str) -> int | None:
        """Return the user's override of this model's window."""
        override = self._override(provider, model)
        return override.context_length if override else None

    def cost_usd(
        self,
        provider: str | None,
        model: str,
        usage: CanonicalUsage,
        *,
        base_url: str | None = None,
        at_ms: int | None = None,
    ) -> float | None:
        """Return the cost of a call at the prices of `at_ms`; None if usage or a price is unknown."""
        if not usage.reported:
            return None
        if (provider or "").lower() in _FREE:
            return 0.0
        override = self._override(provider, model)
        if override is not None and _has_prices(override):
            return _flat_cost(self.facts(provider, model, base_url=base_url).prices, usage)
        if is_subscription(provider or ""):
            return None
        row = _lookup(provider, model, base_url)
        return _catalogue_cost(row, usage, at_ms) if row else None

    def similar_models(self, provider: str | None, model: str) -> list[str] | None:
        """Return the names of known models that are spelled most like `model`; None if the model itself is known.

        Only models of `provider` are compared, those of all makers if it is None; None if none of its models are known.
        """
        is_known = self._override(provider, model) is not None or _lookup(provider, model, None) is not None
        if is_known or _lookup(provider, _VERSION.sub("", model), None) is not None:
            return None
        names = _names_of(provider)
        if not names:
            return None
        by_letters = {_letters(name): name for name in reversed(names)}
        near = get_close_matches(_letters(model), list(by_letters), n=_MOST_SIMILAR, cutoff=_LEAST_SIMILARITY)
        return [by_letters[letters] for letters in near]

    def _override(self, provider: str | None, model: str) -> ModelOverride | None:
        same = [o for o in self._overrides if o.model.lower() == model.lower()]
        exact = [o for o in same if o.provider and o.provider.lower() == (provider or "").lower()]
        return next(iter(exact or [o for o in same if o.provider is None]), None)


# A name the library does not know takes it milliseconds to be sure of.
@lru_cache(maxsize=512)
def _lookup(provider: str | None, model: str, base_url: str | None) -> tuple[Any, Any] | None:
    """Return the price library's rows for provider and model; an unknown proxy is matched by its URL."""
    from genai_prices import data_snapshot

    snapshot = data_snapshot.get_snapshot()
    plain = model.split(":", 1)[0]
    for name in dict.fromkeys((model, plain)):
        for provider_id, url in ((provider, None), (None, base_url)):
            if name and (provider_id or url or provider is None):
                try:
                    row = snapshot.find_provider_model(name, None, provider_id, url)
                except LookupError:
                    continue
                return row
    return None


@lru_cache(maxsize=64)
def _names_of(provider: str | None) -> tuple[str, ...]:
    """Return the names of a provider's models; with None, those of all makers."""
    from genai_prices import data_snapshot

    snapshot = data_snapshot.get_snapshot()
    names: list[str] = []
    for maker in (provider,) if provider is not None else _MAKERS:
        with suppress(LookupError):
            names += (row.id for row in snapshot.find_provider(None, maker, None).models)
    return tuple(names)


def _letters(name: str) -> str:
    """Return a model name without separators, for comparison: `gpt5` then equals `gpt-5`."""
    return re.sub(r"[^a-z0-9/]", "", name.lower())


def _known_window(provider: str | None, model: str) -> int | None:
    for providers, pattern, window in _WINDOWS:
        if (provider or "").lower() in providers.split("|") and re.search(pattern, model):
            return window
    return None


def _prices(provider: str | None, row: tuple[Any, Any] | None) -> Prices:
    if (provider or "").lower() in _FREE:
        return Prices(0.0, 0.0, 0.0, 0.0, 0.0)
    if row is None or (provider or "").lower() in _UNPRICED:
        return Prices()
    prices = row[1].get_prices(datetime.now(tz=UTC))
    keys = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok", "cache_write_1h_mtok")
    base = [_base_price(getattr(prices, key, None)) for key in keys]
    if base[4] is None and base[3] is not None and base[0] is not None:
        base[4] = max(base[3], base[0] * _HOUR_WRITE_FACTOR)
    return Prices(*base)


def _base_price(price: Any) -> float | None:
    if price is None:
        return None
    return float(price if isinstance(price, Decimal) else price.base)


def _has_prices(override: ModelOverride) -> bool:
    return override.input_price_per_mtok is not None or override.output_price_per_mtok is not None


def _overridden(facts: ModelFacts, override: ModelOverride | None) -> ModelFacts:
    if override is None:
        return facts
    override_prices = {
        "input_per_mtok": override.input_price_per_mtok,
        "output_per_mtok": override.output_price_per_mtok,
        "cache_read_per_mtok": override.cache_read_price_per_mtok,
        "cache_write_per_mtok": override.cache_write_price_per_mtok,
    }
    prices = replace(facts.prices, **{k: float(v) for k, v in override_prices.items() if v is not None})
    takes_images = facts.takes_images if override.takes_images is None else override.takes_images
    return replace(facts, prices=prices, window=override.context_length or facts.window, takes_images=takes_images)


def _flat_cost(prices: Prices, usage: CanonicalUsage) -> float | None:
    """Return the cost by the user's own prices; a token class without a price costs as much as fresh input."""
    fresh = prices.input_per_mtok
    five_minute_writes = usage.cache_write_tokens - usage.cache_write_1h_tokens
    write = prices.cache_write_per_mtok if prices.cache_write_per_mtok is not None else fresh
    classes = (
        (usage.input_tokens, fresh),
        (usage.cache_read_tokens, prices.cache_read_per_mtok if prices.cache_read_per_mtok is not None else fresh),
        (five_minute_writes, write),
        (usage.cache_write_1h_tokens, prices.cache_write_1h_per_mtok or write),
        (usage.output_tokens, prices.output_per_mtok),
    )
    total = 0.0
    for tokens, price in classes:
        if tokens and price is None:
            return None
        total += tokens * (price or 0.0)
    return total / _PER_MTOK


def _catalogue_cost(row: tuple[Any, Any], usage: CanonicalUsage, at_ms: int | None) -> float | None:
    from genai_prices import Usage

    provider, model = row
    when = datetime.now(tz=UTC) if at_ms is None else datetime.fromtimestamp(at_ms / 1000, tz=UTC)
    prices = model.get_prices(when)
    needed = [key for key, n in (("input_mtok", usage.prompt_tokens), ("output_mtok", usage.output_tokens)) if n]
    if not _is_priced(prices) or any(getattr(prices, key, None) is None for key in needed):
        return None
    counts = Usage(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cache_write_1h_tokens=usage.cache_write_1h_tokens or None,
    )
    try:
        cost = float(model.calc_price(counts, provider, genai_request_timestamp=when).total_price)
    except ValueError:
        return None
    return cost + _missing_hour_premium(prices, usage)


def _is_priced(prices: Any) -> bool:
    return any(getattr(prices, key, None) is not None for key in ("input_mtok", "output_mtok", "requests_kcount"))


def _missing_hour_premium(prices: Any, usage: CanonicalUsage) -> float:
    """Return the extra cost of one-hour cache writes where the catalogue has only the five-minute price."""
    write, fresh = _base_price(getattr(prices, "cache_write_mtok", None)), _base_price(prices.input_mtok)
    if not usage.cache_write_1h_tokens or getattr(prices, "cache_write_1h_mtok", None) is not None:
        return 0.0
    if write is None or fresh is None:
        return 0.0
    return max(0.0, fresh * _HOUR_WRITE_FACTOR - write) * usage.cache_write_1h_tokens / _PER_MTOK
