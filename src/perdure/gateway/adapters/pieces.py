"""A long text cut into messages a platform takes: at paragraphs where it can, else lines, else words.

A code block that is cut is closed and opened again, so that each piece reads by itself.
"""

from __future__ import annotations

_FENCE = "```"
# A cut that would leave less than this share of a piece is made further down instead.
_LEAST = 0.5


def units(text: str) -> int:
    """Length as platforms count it: UTF-16 units, where an emoji is two."""
    return len(text) + sum(c > "\uffff" for c in text)


def pieces(text: str, *, limit: int) -> list[str]:
    """The text in order, each piece at most `limit` units long; what is only space is left out."""
    found, rest, fence = [], text, ""
    while rest.strip():
        opening = f"{fence}\n" if fence else ""
        room = limit - units(opening) - len(_FENCE) - 1
        head = rest if units(opening) + units(rest) <= limit else _head(rest, room)
        rest = rest[len(head) :].lstrip("\n") if head != rest else ""
        fence = _open_fence(opening + head)
        piece = (opening + head).rstrip()
        if fence and rest:
            piece += f"\n{_FENCE}"
        if piece.strip():
            found.append(piece)
    return found


def _head(text: str, room: int) -> str:
    """As much as fits, cut at the best place there is."""
    most = _fitting(text, room)
    for mark in ("\n\n", "\n", "。", ". ", " "):
        at = text.rfind(mark, int(most * _LEAST), most)
        if at > 0:
            return text[: at + len(mark)]
    return text[:most]


def _fitting(text: str, room: int) -> int:
    """How many characters come to no more than `room` units."""
    window = text[: max(room, 1)]
    while units(window) > room and len(window) > 1:
        window = window[: len(window) - max(1, (units(window) - room) // 2)]
    return len(window)


def _open_fence(text: str) -> str:
    """The opening line of a code block that is not closed; "" where none is open."""
    opened = ""
    for line in text.splitlines():
        if line.lstrip().startswith(_FENCE):
            opened = "" if opened else line.strip()
    # A language is a word; a longer line is prose that happened to begin with a fence.
    return opened if len(opened) <= 40 else _FENCE if opened else ""
