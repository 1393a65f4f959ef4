"""Anyone's summariser as the port an engine calls."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction, signature
from typing import Any

from perdure.core.errors import ConfigError
from perdure.core.ports import Summarize, Summary

AnySummarize = Callable[[str], str] | Summarize


def as_summarize(ask: AnySummarize | None) -> Summarize | None:
    """Anyone's callable as the port: a plain function takes the prompt alone and returns the text.

    Raises ConfigError for one that would have to be awaited.
    """
    if ask is None:
        return None
    if iscoroutinefunction(ask):
        raise ConfigError(
            "summarize is an async function, and a compaction does not wait for one; hand in a plain function,"
            " such as `lambda prompt: asyncio.run(ask(prompt))`"
        )
    call: Callable[..., Any] = ask
    has_limit = _takes_max_tokens(call)

    def summarize(prompt: str, *, max_tokens: int) -> Summary:
        answer = call(prompt, max_tokens=max_tokens) if has_limit else call(prompt)
        return answer if isinstance(answer, Summary) else Summary(answer if isinstance(answer, str) else "")

    return summarize


def _takes_max_tokens(ask: Callable[..., Any]) -> bool:
    try:
        wanted = signature(ask).parameters
    except (TypeError, ValueError):
        return False
    return "max_tokens" in wanted
