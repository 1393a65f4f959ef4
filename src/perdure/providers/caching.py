"""Prompt caching on Claude routes: four cache_control blocks, on the system prompt and the last three messages.

cache_control is set on copies when a request is built: neither the messages passed in nor the encoded bytes cached for
a message contain it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perdure.core.errors import ConfigError
from perdure.providers.registry import find_provider
from perdure.providers.types import CacheTtl

CacheControl = Mapping[str, str]

MARKED_MESSAGES = 3

_CLAUDE = re.compile(r"(?:^|[/.:_~@-])claude(?:$|[^a-z])", re.IGNORECASE)


def make_cache_control(ttl: str) -> dict[str, str]:
    """Return the cache_control value for a TTL; five minutes is the default and is omitted."""
    if ttl == "5m":
        return {"type": "ephemeral"}
    if ttl == "1h":
        return {"type": "ephemeral", "ttl": "1h"}
    raise ConfigError(f"prompt_caching.cache_ttl is {ttl!r}; allowed: 5m, 1h")


def supports_caching(provider: str, model: str) -> bool:
    """Whether this is a Claude model on a provider that supports cache_control."""
    row = find_provider(provider)
    return row is not None and row.quirks.supports_cache_control and bool(_CLAUDE.search(model))


def last_markable(is_markable: Sequence[bool], count: int = MARKED_MESSAGES) -> list[int]:
    """Return the indexes of the last `count` messages that can carry cache_control, last first."""
    indexes: list[int] = []
    for i in range(len(is_markable) - 1, -1, -1):
        if is_markable[i]:
            indexes.append(i)
            if len(indexes) == count:
                break
    return indexes


def cache_ttl_for(provider: str, model: str, ttl: CacheTtl) -> CacheTtl | None:
    """Return the cache TTL for a route; None where cache_control is not supported."""
    make_cache_control(ttl)
    return ttl if supports_caching(provider, model) else None


def caching_notice(provider: str, model: str, ttl: CacheTtl) -> str | None:
    """Return the line shown at startup; None where caching is off."""
    return f"prompt caching on ({provider}, {model}, {ttl})" if supports_caching(provider, model) else None


def apply_cache_control(
    messages: Iterable[Mapping[str, Any]], *, ttl: str = "5m", native_anthropic: bool = False
) -> list[dict[str, Any]]:
    """Return copies of the messages with up to four cache_control blocks; the arguments are never modified.

    The system prompt takes one, the last three other messages that can carry one take the rest. Existing blocks are
    removed first, so that there are never more than four.
    """
    control = make_cache_control(ttl)
    out = [_without_cache_control(m) for m in messages]
    if out and _is_system(out[0]):
        out[0] = _with_cache_control(out[0], control)
    markable = [not _is_system(m) and _is_markable(m, native_anthropic=native_anthropic) for m in out]
    for i in range(len(out) - 1):
        # Results of parallel calls become one message on Anthropic: only the last carries cache_control.
        if out[i].get("role") == out[i + 1].get("role") == "tool":
            markable[i] = False
    for i in last_markable(markable):
        out[i] = _with_cache_control(out[i], control)
    return out


def _is_system(message: Mapping[str, Any]) -> bool:
    return message.get("role") in ("system", "developer")


def _is_markable(message: Mapping[str, Any], *, native_anthropic: bool) -> bool:
    if message.get("role") == "tool":
        return native_anthropic
    content = message.get("content")
    if content is None or isinstance(content, str):
        return True
    return isinstance(content, list | tuple) and (not content or _is_markable_part(content[-1]))


def _is_markable_part(part: object) -> bool:
    """Thinking blocks take no cache_control, and an empty text block is refused."""
    if not isinstance(part, Mapping) or part.get("type") in ("thinking", "redacted_thinking"):
        return False
    return part.get("type") != "text" or bool(part.get("text"))


def _with_cache_control(message: dict[str, Any], control: CacheControl) -> dict[str, Any]:
    content = message.get("content")
    if message.get("role") == "tool" or not content:
        return {**message, "cache_control": dict(control)}
    if isinstance(content, str):
        return {**message, "content": [{"type": "text", "text": content, "cache_control": dict(control)}]}
    if not isinstance(content, list | tuple) or not isinstance(content[-1], Mapping):
        return message
    return {**message, "content": [*content[:-1], {**content[-1], "cache_control": dict(control)}]}


def _without_cache_control(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy without cache_control, also in its parts; nested values are shared."""
    out = {k: v for k, v in message.items() if k != "cache_control"}
    content = out.get("content")
    if isinstance(content, list | tuple):
        out["content"] = [
            {k: v for k, v in p.items() if k != "cache_control"} if isinstance(p, Mapping) else p for p in content
        ]
    return out
