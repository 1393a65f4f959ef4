"""Edits that a reply holds as SEARCH/REPLACE blocks: what they change, and whether they are complete.

Agents without tools for editing (aider, Cline and others) apply the blocks of a reply themselves. A block repeats the
code around a change, and one without its closing line is not applied.
"""

from __future__ import annotations

import re

from perdure.context.tool_calls.edits import changed_lines, excerpt_rows

_BEGIN = "<<<<<<< SEARCH"
_LINES = r"(?:(?![<=>]{5,9}(?: |$))[^\n]*\n)*"
# The path stands above the fence.
_PATH = r"(?:^(?P<path>[\w./@+-]{1,200}\.\w{1,8})[ \t]*\n(?P<fence>`{3,}[^\n]{0,40}\n))?"
_BLOCK = re.compile(
    rf"{_PATH}^<{{5,9}} SEARCH[^\n]*\n(?P<old>{_LINES})={{5,9}}[ \t]*\n(?P<new>{_LINES})>{{5,9}} REPLACE[^\n]*$",
    re.MULTILINE,
)
# A block without its closing line, as far as it goes.
_BROKEN = re.compile(
    rf"^<{{5,9}} SEARCH[^\n]*\n(?P<old>{_LINES})(?:={{5,9}}[ \t]*\n(?P<new>{_LINES}))?(?:={{5,9}}[ \t]*$)?",
    re.MULTILINE,
)


def fold_edit_blocks(text: str) -> str:
    """Return a text with each block reduced to the lines that it removes and adds."""
    if _BEGIN not in text:
        return text
    return _BROKEN.sub(_fold_broken, _BLOCK.sub(_fold, f"{text}\n"))


def _fold(block: re.Match[str]) -> str:
    rows = excerpt_rows(*changed_lines(block["old"], block["new"])) or ["(lines moved or unchanged)"]
    head = f"{block['fence']}{block['path']}:\n" if block["path"] else ""
    return head + "\n".join(rows)


def _fold_broken(block: re.Match[str]) -> str:
    rows = excerpt_rows(*changed_lines(block["old"], block["new"])) if block["new"] else []
    return "\n".join(("(an edit block that breaks off, not applied)", *rows))


def has_broken_block(text: str) -> bool:
    """Return whether a block of a text lacks its divider or its closing line."""
    return _BEGIN in text and _BROKEN.search(_BLOCK.sub("", f"{text}\n")) is not None
