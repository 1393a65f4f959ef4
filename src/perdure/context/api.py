"""Compaction for custom agent loops: OpenAI-style dicts in, dicts out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from perdure.config.deprecated import rename_settings
from perdure.config.settings import CompressionSettings, Settings
from perdure.context.compressor import ContextCompressor
from perdure.context.engine import Compaction, CompactionReport, Insert, Steps, run_steps, run_steps_here
from perdure.context.summarizer import AnySummarize
from perdure.core import rules
from perdure.core.errors import ConfigError
from perdure.core.messages import Message


def compress(
    messages: Sequence[Mapping[str, Any]],
    *,
    context_length: int,
    summarize: AnySummarize | None = None,
    focus_topic: str | None = None,
    settings: CompressionSettings | Settings | Mapping[str, Any] | None = None,
    handoff_max_chars: int | None = None,
    handoff_key: bytes | None = None,
) -> CompactionReport:
    """Compact a message list if there is anything to compact; without `summarize`, by code alone.

    `summarize` takes the prompt, and `max_tokens` if it has such a parameter, and returns the text; it may be async.

    `handoff_key` seals the handoff, so that the next call can authenticate it; the default is a key of this
    installation. Pass your own key for a loop that runs on several machines.

    Raises InvalidMessage for an invalid message, and ConfigError for settings or a window out of range.
    """
    return run_steps_here(
        _compress(
            messages,
            context_length=context_length,
            summarize=summarize,
            focus_topic=focus_topic,
            settings=settings,
            handoff_max_chars=handoff_max_chars,
            handoff_key=handoff_key,
        )
    )


async def acompress(
    messages: Sequence[Mapping[str, Any]],
    *,
    context_length: int,
    summarize: AnySummarize | None = None,
    focus_topic: str | None = None,
    settings: CompressionSettings | Settings | Mapping[str, Any] | None = None,
    handoff_max_chars: int | None = None,
    handoff_key: bytes | None = None,
) -> CompactionReport:
    """The same as `compress` without blocking the event loop; `summarize` is awaited in it."""
    return await run_steps(
        _compress(
            messages,
            context_length=context_length,
            summarize=summarize,
            focus_topic=focus_topic,
            settings=settings,
            handoff_max_chars=handoff_max_chars,
            handoff_key=handoff_key,
        )
    )


def _compress(
    messages: Sequence[Mapping[str, Any]],
    *,
    context_length: int,
    summarize: AnySummarize | None,
    focus_topic: str | None,
    settings: CompressionSettings | Settings | Mapping[str, Any] | None,
    handoff_max_chars: int | None,
    handoff_key: bytes | None,
) -> Steps[CompactionReport]:
    if not isinstance(context_length, int) or isinstance(context_length, bool) or context_length < 1:
        raise ConfigError(f"context_length is the model's window in tokens, at least 1; given: {context_length!r}")
    engine = ContextCompressor(
        context_length=context_length,
        summarize=summarize,
        settings=compression_settings(settings),
        handoff_max_chars=handoff_max_chars,
        handoff_key=handoff_key,
    )
    done = yield from engine.steps(messages, focus_topic=focus_topic, reason="user")
    return CompactionReport(
        messages=_sendable(done.messages) if done.is_noop else done.messages,
        outcome=done.outcome,
        handoff=_handoff_text(done),
        before_tokens=done.before_tokens,
        after_tokens=done.after_tokens,
        message=done.message,
        notices=done.notices,
        record=done.handoff,
    )


def compression_settings(settings: CompressionSettings | Settings | Mapping[str, Any] | None) -> CompressionSettings:
    """Convert the argument to CompressionSettings. Raises ConfigError, which names the invalid key."""
    if isinstance(settings, CompressionSettings):
        return settings
    if isinstance(settings, Settings):
        return settings.compression
    try:
        renamed, _ = rename_settings({"compression": dict(settings or {})}, {})
        return CompressionSettings(**renamed["compression"])
    except ValidationError as error:
        wrong = error.errors()[0]
        key = ".".join(map(str, wrong["loc"]))
        raise ConfigError(f"compression.{key}: {wrong['msg']}; given: {wrong.get('input')!r}") from None


def _sendable(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Repair a list that was not compacted; a valid one is returned unchanged."""
    read = [Message.from_dict(m) for m in messages]
    return messages if rules.is_valid(read) else [m.to_dict() for m in rules.repair(read)]


def _handoff_text(done: Compaction) -> str:
    inserted = (s.message for s in done.plan if isinstance(s, Insert) and s.message.kind == "handoff")
    return next((m.text for m in inserted), "")
