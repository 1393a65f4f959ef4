"""Leave the oldest images out of what is sent to a service that takes only so many. The log keeps them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from perdure.core.messages import Entry, ImagePart, Message, OtherPart, Part, TextPart

LEFT_OUT = "[an earlier image is left out here: the service takes no more in one request]"
_COUNTED_PARTS = frozenset({"image", "document", "file", "input_image", "input_file"})


def surplus_images(entries: Sequence[Entry], most: int) -> dict[int, int]:
    """How many of its first images each message loses, by seq, so that at most `most` images and documents are sent.

    They go in steps of half the limit, so that the cached beginning of the prompt changes once in many messages.
    """
    surplus = sum(entry.memo("image_count", _count) for entry in entries) - most
    if surplus <= 0:
        return {}
    step = max(1, most // 2)
    to_drop = math.ceil(surplus / step) * step
    dropped: dict[int, int] = {}
    for entry in entries:
        if here := min(to_drop, entry.memo("image_count", _count)):
            dropped[entry.seq] = here
            to_drop -= here
    return dropped


def without_images(entry: Entry, count: int) -> Entry:
    """The entry without its first `count` images; the same one each time."""
    return entry.memo(("without_images", count), partial(_without, entry, count)) if count else entry


def _without(entry: Entry, count: int, message: Message) -> Entry:
    parts: list[Part] = []
    for part in message.parts:
        if count and _is_counted(part):
            count -= 1
            parts.append(TextPart(LEFT_OUT))
        else:
            parts.append(part)
    return Entry(entry.seq, message.with_content(tuple(parts)), entry.created_at_ms)


def _count(message: Message) -> int:
    return sum(map(_is_counted, message.parts)) if isinstance(message.content, tuple) else 0


def _is_counted(part: Part) -> bool:
    return isinstance(part, ImagePart) or (isinstance(part, OtherPart) and part.raw.get("type") in _COUNTED_PARTS)
