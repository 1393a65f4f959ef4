"""Format text for chat platforms: split long texts, close code blocks, attach images and files."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

MAX_FILE_BYTES = 10_000_000
MAX_FILE_CHARS = 200_000
_FENCE = "```"
# Do not split at a boundary that would leave a piece emptier than this fraction.
_MIN_FILL = 0.5


def split_text(text: str, *, limit: int) -> list[str]:
    """Split a text into pieces of at most `limit` UTF-16 units, closing and reopening code blocks."""
    result, rest, fence = [], text, ""
    while rest.strip():
        opening = f"{fence}\n" if fence else ""
        room = limit - utf16_length(opening) - len(_FENCE) - 1
        head = rest if utf16_length(opening) + utf16_length(rest) <= limit else _head(rest, room)
        rest = rest[len(head) :].lstrip("\n") if head != rest else ""
        fence = _open_fence(opening + head)
        piece = (opening + head).rstrip()
        if fence and rest:
            piece += f"\n{_FENCE}"
        if piece.strip():
            result.append(piece)
    return result


def utf16_length(text: str) -> int:
    """Return the length in UTF-16 code units, as platforms count; an emoji has two."""
    return len(text) + sum(c > "\uffff" for c in text)


def shorten(text: str, limit: int) -> str:
    """Return the text, or as much of its beginning as fits with an ellipsis."""
    return text if utf16_length(text) <= limit else f"{text[: _count_fitting(text, limit - 2)]}\n…"


def _head(text: str, room: int) -> str:
    """Return the longest prefix that fits, cut at the best boundary."""
    most = _count_fitting(text, room)
    for mark in ("\n\n", "\n", "。", ". ", " "):
        at = text.rfind(mark, int(most * _MIN_FILL), most)
        if at > 0:
            return text[: at + len(mark)]
    return text[:most]


def _count_fitting(text: str, room: int) -> int:
    """Return how many characters fit into `room` UTF-16 units."""
    window = text[: max(room, 1)]
    while utf16_length(window) > room and len(window) > 1:
        window = window[: len(window) - max(1, (utf16_length(window) - room) // 2)]
    return len(window)


def _open_fence(text: str) -> str:
    """Return the opening line of an unclosed code block; "" if there is none."""
    fence = ""
    for line in text.splitlines():
        if line.lstrip().startswith(_FENCE):
            fence = "" if fence else line.strip()
    # A longer line is prose that happens to start with a fence, not a language name.
    return fence if len(fence) <= 40 else _FENCE if fence else ""


def with_image(text: str, data: bytes, media_type: str) -> Mapping[str, Any]:
    """Return a user message with a text and an image."""
    url = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
    text_parts = [{"type": "text", "text": text}] if text else []
    return {"role": "user", "content": [*text_parts, {"type": "image_url", "image_url": {"url": url}}]}


def with_file(text: str, data: bytes, name: str) -> str | None:
    """Append the content of a text file to the caption; None for a binary file."""
    try:
        content = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if "\0" in content:
        return None
    cut = f"\n… (the first {MAX_FILE_CHARS:,} of {len(content):,} characters)" if len(content) > MAX_FILE_CHARS else ""
    return f"{text}\n\n{name}:\n```\n{content[:MAX_FILE_CHARS]}{cut}\n```".strip()
