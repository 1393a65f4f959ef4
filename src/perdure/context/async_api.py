"""`perdure.acompress` and `acompress_if_needed`, whose first call does not hold the event loop while it imports.

What writes handoffs takes a third of a second to import, so that it is loaded in a worker thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Required, TypedDict, Unpack

if TYPE_CHECKING:
    from types import ModuleType

    from perdure.config.sections import CompressionSettings
    from perdure.config.settings import Settings
    from perdure.context.engine import CompactionReport
    from perdure.context.summarizer import AnySummarize


class CompressOptions(TypedDict, total=False):
    """The arguments that `compress` and its variants have in common; see `compress`."""

    context_length: Required[int]
    summarize: AnySummarize | None
    focus_topic: str | None
    settings: CompressionSettings | Settings | Mapping[str, Any] | None
    handoff_max_chars: int | None
    handoff_key: bytes | None


async def acompress(messages: Sequence[Mapping[str, Any]], **options: Unpack[CompressOptions]) -> CompactionReport:
    """Like `compress`, without blocking the event loop; `summarize` is awaited on it."""
    api, engine = await asyncio.to_thread(_import_engine)
    report: CompactionReport = await engine.run_steps(api.compress_steps(messages, **options))
    return report


async def acompress_if_needed(
    messages: Sequence[Mapping[str, Any]],
    *,
    prompt_tokens: int | None = None,
    tools: Sequence[Mapping[str, Any]] | None = None,
    **options: Unpack[CompressOptions],
) -> CompactionReport:
    """Like `compress_if_needed`, without blocking the event loop; `summarize` is awaited on it."""
    api, engine = await asyncio.to_thread(_import_engine)
    steps = api.compress_if_needed_steps(messages, prompt_tokens, tools, options)
    report: CompactionReport = await engine.run_steps(steps)
    return report


def _import_engine() -> tuple[ModuleType, ModuleType]:
    return import_module("perdure.context.api"), import_module("perdure.context.engine")
