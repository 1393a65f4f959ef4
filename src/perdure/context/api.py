"""Compaction for custom agent loops: OpenAI-style dicts in, dicts out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Required, TypedDict, Unpack

from perdure.config.compression import compression_settings
from perdure.config.sections import CompressionSettings
from perdure.context.compressor import ContextCompressor
from perdure.context.engine import CompactionReport, Steps, run_steps, run_steps_here
from perdure.context.summarizer import AnySummarize
from perdure.core.arguments import MESSAGES, TOKENS, TOOLS, WINDOW, optional, require
from perdure.core.errors import ConfigError
from perdure.core.messages import Message
from perdure.core.wording import describe_in_program
from perdure.models.tokens import estimate_tokens

if TYPE_CHECKING:
    from perdure.config.settings import Settings


class CompressOptions(TypedDict, total=False):
    """The arguments that `compress` and its variants have in common; see `compress`."""

    context_length: Required[int]
    summarize: AnySummarize | None
    focus_topic: str | None
    settings: CompressionSettings | Settings | Mapping[str, Any] | None
    handoff_max_chars: int | None
    handoff_key: bytes | None


def compress(
    messages: Iterable[Mapping[str, Any]],
    *,
    context_length: int,
    summarize: AnySummarize | None = None,
    focus_topic: str | None = None,
    settings: CompressionSettings | Settings | Mapping[str, Any] | None = None,
    handoff_max_chars: int | None = None,
    handoff_key: bytes | None = None,
) -> CompactionReport:
    """Compact a message list now, however little of the window it fills; without `summarize`, by code alone.

    In a loop, `compress_if_needed` waits until the window fills up.

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


async def acompress(messages: Iterable[Mapping[str, Any]], **options: Unpack[CompressOptions]) -> CompactionReport:
    """Like `compress`, without blocking the event loop; `summarize` is awaited on it."""
    return await run_steps(_compress(messages, **options))


def compress_if_needed(
    messages: Iterable[Mapping[str, Any]],
    *,
    prompt_tokens: int | None = None,
    tools: Iterable[Mapping[str, Any]] | None = None,
    **options: Unpack[CompressOptions],
) -> CompactionReport:
    """Compact a message list once it fills the window up to `compression.threshold`; until then change nothing.

    `prompt_tokens` is the size of the last request as the service reported it; without it the messages, and `tools`
    where they are handed in, are estimated. The other arguments are those of `compress`.
    """
    return run_steps_here(_compress_if_needed(messages, prompt_tokens, tools, options))


async def acompress_if_needed(
    messages: Iterable[Mapping[str, Any]],
    *,
    prompt_tokens: int | None = None,
    tools: Iterable[Mapping[str, Any]] | None = None,
    **options: Unpack[CompressOptions],
) -> CompactionReport:
    """Like `compress_if_needed`, without blocking the event loop; `summarize` is awaited on it."""
    return await run_steps(_compress_if_needed(messages, prompt_tokens, tools, options))


def _compress_if_needed(
    messages: Iterable[Mapping[str, Any]],
    prompt_tokens: int | None,
    tools: Iterable[Mapping[str, Any]] | None,
    options: CompressOptions,
) -> Steps[CompactionReport]:
    history: Sequence[Mapping[str, Any]] = require("messages", messages, MESSAGES)
    prompt_tokens = require("prompt_tokens", prompt_tokens, optional(TOKENS))
    schemas: Sequence[Mapping[str, Any]] | None = require("tools", tools, optional(TOOLS))
    engine = _engine(options)
    tokens = prompt_tokens if prompt_tokens is not None else estimate_tokens(history, tools=schemas)
    if not engine.should_compress(tokens):
        unchanged = _as_given(history)
        at = engine.budgets.threshold_tokens
        message = f"Nothing to compact yet: about {tokens:,} tokens, compacts at {at:,}."
        return CompactionReport(unchanged, "nothing_to_do", "", tokens, tokens, message)
    return (yield from _compress(history, **options))


def _compress(messages: Iterable[Mapping[str, Any]], **options: Unpack[CompressOptions]) -> Steps[CompactionReport]:
    history: Sequence[Mapping[str, Any]] = require("messages", messages, MESSAGES)
    engine = _engine(options)
    done = yield from engine.steps(history, focus_topic=options.get("focus_topic"), reason="user")
    window = require("context_length", options["context_length"], WINDOW)
    if done.is_noop and done.before_tokens > window:
        done = replace(done, message=_why_too_long(done.before_tokens, window))
    figures = "" if done.is_noop else f" About {done.before_tokens:,} → {done.after_tokens:,} tokens."
    return CompactionReport(
        messages=_as_given(history) if done.is_noop else done.messages,
        outcome=done.outcome,
        handoff=done.handoff,
        before_tokens=done.before_tokens,
        after_tokens=done.after_tokens,
        message=describe_in_program(f"{done.message}{figures}"),
        notices=tuple(map(describe_in_program, done.notices)),
        handoff_data=done.handoff_data,
    )


def _engine(options: CompressOptions) -> ContextCompressor:
    """Build the engine for these arguments. Raises ConfigError."""
    if unknown := sorted(options.keys() - CompressOptions.__annotations__.keys()):
        near = get_close_matches(unknown[0], CompressOptions.__annotations__, n=1)
        raise ConfigError(f"compress takes no {unknown[0]!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    return ContextCompressor(
        context_length=require("context_length", options.get("context_length"), WINDOW),
        summarize=options.get("summarize"),
        settings=compression_settings(options.get("settings")),
        handoff_max_chars=options.get("handoff_max_chars"),
        handoff_key=options.get("handoff_key"),
    )


def _why_too_long(tokens: int, window: int) -> str:
    return (
        f"Nothing could be compacted, though the messages take about {tokens:,} tokens and the window has {window:,}:"
        " all that is left is kept word for word (system messages, the newest request, tool results that the model has"
        " not read, a handoff). Shorten one of them, or take a model with a larger window."
    )


def _as_given(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages of a list that was not compacted: each as it is, also where a request would merge it."""
    return [m if isinstance(m, dict) else Message.from_dict(m).to_dict() for m in messages]
