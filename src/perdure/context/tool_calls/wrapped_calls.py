"""Recognise a call that a program logged twice: as the model made it, and as it was passed on to the tool.

Only the second one has a result then, and its arguments hold the first one as text.
"""

from __future__ import annotations

import re

from perdure.core.messages import ToolCall

# Shorter arguments may occur in any other call.
_FEWEST_LETTERS = 12
_MOST_CHARS = 100_000
# A call that is written as text: else a command was merely repeated within a longer one.
_WRITTEN_CALL = re.compile(r"\barguments\\*[\"']\s*:")
# Quotes, blanks, and what a text that is quoted in another one has before its line breaks.
_MARKS = re.compile(r"(?<!\\)\\++[nrt]|\W")


def is_wrapped_in(call: ToolCall, outer: ToolCall) -> bool:
    """Whether another call passes this one on: it contains its longest text argument, however it is quoted there."""
    inner, wrapped = _longest_text(call), _longest_text(outer)
    if len(inner) < _FEWEST_LETTERS or len(wrapped) <= len(inner) or _WRITTEN_CALL.search(wrapped) is None:
        return False
    letters = _MARKS.sub("", inner)
    return len(letters) >= _FEWEST_LETTERS and letters in _MARKS.sub("", wrapped)


def _longest_text(call: ToolCall) -> str:
    if len(call.arguments) > _MOST_CHARS:
        return ""
    texts = [v for v in (call.parsed_arguments() or {}).values() if isinstance(v, str)]
    return max(texts, key=len, default="")
