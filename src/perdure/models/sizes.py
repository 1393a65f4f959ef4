"""The figures of messages, system prompts and tool schemas: what of them is sent, and as what it counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from perdure.core.messages import Entry, ImagePart, Message, Part, TextPart, canonical_json
from perdure.models.figures import NO_COUNTS, NO_FIGURES, Counts, TokenFeatures, add_counts, count_text

# Parts that carry a picture, a sound or a document, whatever the service calls them: a fixed cost each, never text.
_ATTACHMENTS = ("image", "audio", "video", "file", "document", "media")
# Keys whose value is opaque: signatures and ciphers are no prose, and services do not bill their letters.
_OPAQUE = frozenset(("signature", "encrypted_content", "data", "id", "type", "format", "index"))
# Keys under which services send thinking back in clear.
_REASONING_EXTRAS = ("reasoning_content", "thinking")

_MEMO_KEY = "perdure.models.figures"


def figures_of(message: Message) -> TokenFeatures:
    """What one message comes to; never raises, whatever odd values the message carries."""
    counts, images = NO_COUNTS, 0
    if isinstance(message.content, str):
        counts = count_text(message.content)
    else:
        for part in message.content or ():
            part_counts, part_images = _count_part(part)
            counts, images = add_counts(counts, part_counts), images + part_images
    for call in message.tool_calls:
        counts = add_counts(add_counts(counts, count_text(call.name)), count_text(call.arguments))
    if message.name:
        counts = add_counts(counts, count_text(message.name))
    return TokenFeatures(counts, _count_reasoning(message), images, messages=1, calls=len(message.tool_calls))


def entry_figures(entry: Entry) -> TokenFeatures:
    """The figures of an entry's message, computed once for as long as the entry lives."""
    return entry.memo(_MEMO_KEY, figures_of)


def sum_figures(many: Iterable[TokenFeatures]) -> TokenFeatures:
    """One sum; column by column, which is far cheaper than adding pair by pair."""
    listed = list(many)
    if not listed:
        return NO_FIGURES
    return TokenFeatures(
        counts=tuple(map(sum, zip(*(f.counts for f in listed), strict=True))),
        reasoning=tuple(map(sum, zip(*(f.reasoning for f in listed), strict=True))),
        images=sum(f.images for f in listed),
        messages=sum(f.messages for f in listed),
        calls=sum(f.calls for f in listed),
    )


def text_figures(text: str) -> TokenFeatures:
    """A system prompt or another text that is sent as a message of its own."""
    return TokenFeatures(count_text(text), messages=1) if text else NO_FIGURES


def tools_figures(tools: Sequence[Mapping[str, Any]] | None) -> TokenFeatures:
    """The tools schema as the JSON it is sent as (B1)."""
    return TokenFeatures(count_text(canonical_json(list(tools)))) if tools else NO_FIGURES


def _count_part(part: Part) -> tuple[Counts, int]:
    if isinstance(part, TextPart):
        return count_text(part.text), 0
    if isinstance(part, ImagePart):
        return NO_COUNTS, 1
    kind = str(part.raw.get("type", ""))
    if any(word in kind for word in _ATTACHMENTS):
        return NO_COUNTS, 1
    return _count_strings(part.raw), 0


def _count_reasoning(message: Message) -> Counts:
    """Thinking in clear, counted apart; details a provider wants back hold it too, beside their ciphers."""
    if message.reasoning_details:
        return _sum_counts(_count_strings(detail) for detail in message.reasoning_details)
    if message.reasoning:
        return count_text(message.reasoning)
    counts = NO_COUNTS
    for key in _REASONING_EXTRAS:
        if isinstance(text := message.extra.get(key), str):
            counts = add_counts(counts, count_text(text))
    return counts


def _count_strings(raw: Any) -> Counts:
    return _sum_counts(count_text(text) for text in _readable(raw))


def _readable(raw: Any) -> Iterator[str]:
    """Every string in a JSON-like value that a model reads as text, found without recursion: depth is not bounded."""
    waiting = [raw]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            if not value.startswith("data:"):
                yield value
        elif isinstance(value, Mapping):
            waiting.extend(v for k, v in value.items() if k not in _OPAQUE)
        elif isinstance(value, list | tuple):
            waiting.extend(value)


def _sum_counts(many: Iterable[Counts]) -> Counts:
    total = NO_COUNTS
    for counts in many:
        total = add_counts(total, counts)
    return total
