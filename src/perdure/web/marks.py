"""Places in a text as a browser counts them: in UTF-16 units, where an emoji is two."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

Mark = tuple[int, int]


def for_browser(text: str, marks: Sequence[Mark]) -> list[Mark]:
    """The same places, counted as JavaScript does."""
    if not marks or text.isascii():
        return list(marks)
    wide = [at for at, character in enumerate(text) if character > "\uffff"]
    return [(start + bisect_left(wide, start), end + bisect_left(wide, end)) for start, end in marks]
