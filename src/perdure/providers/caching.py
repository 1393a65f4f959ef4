"""Prompt caching on Claude routes (SPEC L1–L6): four marks, on the system prompt and the last three messages.

Marks are put on copies, on the way out: neither the messages handed in nor the bytes kept for a message ever hold one.
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
    """The mark for a lifetime; five minutes is the default and goes unsaid."""
    if ttl == "5m":
        return {"type": "ephemeral"}
    if ttl == "1h":
        return {"type": "ephemeral", "ttl": "1h"}
    raise ConfigError(f"prompt_caching.cache_ttl is {ttl!r}; allowed: 5m, 1h")


def supports_caching(provider: str, model: str) -> bool:
    """A Claude model by name, through a provider whose row says it takes marks."""
    row = find_provider(provider)
    return row is not None and row.quirks.supports_cache_control and bool(_CLAUDE.search(model))


def last_markable(takes_mark: Sequence[bool], count: int = MARKED_MESSAGES) -> list[int]:
    """Where the marks go: the last messages that can carry one, last first; the others are passed over."""
    found: list[int] = []
    for i in range(len(takes_mark) - 1, -1, -1):
        if takes_mark[i]:
            found.append(i)
            if len(found) == count:
                break
    return found


def cache_ttl_for(provider: str, model: str, ttl: CacheTtl) -> CacheTtl | None:
    """The lifetime to ask for on this route; None where it takes no marks."""
    make_cache_control(ttl)
    return ttl if supports_caching(provider, model) else None


def caching_notice(provider: str, model: str, ttl: CacheTtl) -> str | None:
    """What a person reads at the start (L5); None where nothing is marked."""
    return f"prompt caching on ({provider}, {model}, {ttl})" if supports_caching(provider, model) else None


def apply_cache_control(
    messages: Iterable[Mapping[str, Any]], *, ttl: str = "5m", native_anthropic: bool = False
) -> list[dict[str, Any]]:
    """The messages with up to four marks on them, as a new list; the ones handed in are never touched.

    The system prompt takes one, the last three other messages that can carry one take the rest. Marks already there
    are taken off first, so that there are never more than four.
    """
    mark = make_cache_control(ttl)
    out = [_unmarked(m) for m in messages]
    if out and _is_system(out[0]):
        out[0] = _marked(out[0], mark)
    able = [not _is_system(m) and _takes_mark(m, native_anthropic=native_anthropic) for m in out]
    for i in range(len(out) - 1):
        # Results of parallel calls become one message on the wire: the last of them carries its mark.
        if out[i].get("role") == out[i + 1].get("role") == "tool":
            able[i] = False
    for i in last_markable(able):
        out[i] = _marked(out[i], mark)
    return out


def _is_system(message: Mapping[str, Any]) -> bool:
    return message.get("role") in ("system", "developer")


def _takes_mark(message: Mapping[str, Any], *, native_anthropic: bool) -> bool:
    if message.get("role") == "tool":
        return native_anthropic
    content = message.get("content")
    if content is None or isinstance(content, str):
        return True
    return isinstance(content, list | tuple) and (not content or _part_takes_mark(content[-1]))


def _part_takes_mark(part: object) -> bool:
    """Thinking is never cached by itself, and an empty text block is refused."""
    if not isinstance(part, Mapping) or part.get("type") in ("thinking", "redacted_thinking"):
        return False
    return part.get("type") != "text" or bool(part.get("text"))


def _marked(message: dict[str, Any], mark: CacheControl) -> dict[str, Any]:
    content = message.get("content")
    if message.get("role") == "tool" or not content:
        return {**message, "cache_control": dict(mark)}
    if isinstance(content, str):
        return {**message, "content": [{"type": "text", "text": content, "cache_control": dict(mark)}]}
    if not isinstance(content, list | tuple) or not isinstance(content[-1], Mapping):
        return message
    return {**message, "content": [*content[:-1], {**content[-1], "cache_control": dict(mark)}]}


def _unmarked(message: Mapping[str, Any]) -> dict[str, Any]:
    """A copy without marks of its own, parts included; what has none is shared, not copied deep."""
    out = {k: v for k, v in message.items() if k != "cache_control"}
    content = out.get("content")
    if isinstance(content, list | tuple):
        out["content"] = [
            {k: v for k, v in p.items() if k != "cache_control"} if isinstance(p, Mapping) else p for p in content
        ]
    return out
