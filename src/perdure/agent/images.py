"""Leave the oldest images out of a request for a service that takes only so many. The history itself keeps them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from perdure.core.messages import Entry, ImagePart, Message, OtherPart, Part, TextPart

LEFT_OUT = "[an earlier image is left out here: the service takes no more in one request]"
_COUNTED_PARTS = frozenset({"image", "document", "file", "input_image", "input_file"})


def limit_images(entries: Sequence[Entry], most: int | None) -> Sequence[Entry]:
    """The entries with at most `most` images and documents; the very sequence where none has to go.

    They go in steps of half the limit, so that the cached beginning of the prompt changes once in many messages.
    """
    if most is None:
        return entries
    surplus = sum(entry.memo("image_count", _count) for entry in entries) - most
    if surplus <= 0:
        return entries
    step = max(1, most // 2)
    to_drop = math.ceil(surplus / step) * step
    kept: list[Entry] = []
    for entry in entries:
        here = min(to_drop, entry.memo("image_count", _count))
        to_drop -= here
        kept.append(entry.memo(("images_left_out", here), partial(_without, entry, here)) if here else entry)
    return kept


def _without(entry: Entry, count: int, message: Message) -> Entry:
    """The entry without its first `count` images."""
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
