"""Edits that a reply holds as SEARCH/REPLACE blocks: what they change, and whether they are complete.

Agents without tools for editing (aider, Cline and others) apply the blocks of a reply themselves. A block repeats the
code around a change, and one without its closing line is not applied.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from perdure.context.tool_calls.edits import changed_lines, excerpt_rows
from perdure.core.messages import Entry

_UNDO = "/undo"
_BEGIN = "<<<<< SEARCH"
# The path stands above the fence.
_PATH = r"(?:^(?P<path>[\w./@+-]{1,200}\.\w{1,8})[ \t\r]*\n(?P<fence>`{3,}[^\n]{0,40}\n))?"
_OPENING, _CLOSING = r"<{5,9} SEARCH>?[ \t\r]*$", r">{5,9} REPLACE[^\n]*$"
# Some programs have the place first: ":start_line:12".
_PLACE = r"(?:(?::\w{1,20}_line:[^\n]*\n)+(?:-{7}[ \t\r]*\n)?)?"
# A block ends with its closing line; one that has none goes as far as the next block.
_BLOCK = re.compile(
    rf"{_PATH}^{_OPENING}\n{_PLACE}(?P<body>(?:(?!{_OPENING}|{_CLOSING})[^\n]*\n)*)(?P<end>{_CLOSING})?", re.MULTILINE
)
# The divider has seven signs; others may underline a heading within the text.
_DIVIDERS = (re.compile(r"^={7}[ \t\r]*\n", re.MULTILINE), re.compile(r"^={5,9}[ \t\r]*\n", re.MULTILINE))
# What ends a block without its closing line: another divider, or the end of the fence.
_BREAK = re.compile(r"^(?:={5,9}[ \t\r]*|(?P<fence>`{3,}[^\n]*))\n", re.MULTILINE)


def fold_edit_blocks(text: str) -> str:
    """Return a text with each block reduced to the lines that it removes and adds."""
    return _BLOCK.sub(_fold, f"{text}\n") if _BEGIN in text else text


def has_edit_blocks(text: str) -> bool:
    """Return whether a text has edit blocks."""
    return _BEGIN in text


def has_broken_block(text: str) -> bool:
    """Return whether a block of a text lacks its closing line."""
    return _BEGIN in text and any(block["end"] is None for block in _BLOCK.finditer(f"{text}\n"))


def edited_paths(text: str) -> tuple[str, ...]:
    """Return the files that the complete blocks of a text change."""
    if _BEGIN not in text:
        return ()
    paths = (block["path"] for block in _BLOCK.finditer(f"{text}\n") if block["end"] is not None)
    return tuple(dict.fromkeys(path for path in paths if path))


def _fold(block: re.Match[str]) -> str:
    head = f"{block['fence']}{block['path']}:\n" if block["path"] else ""
    body = block["body"]
    divider = next(filter(None, (pattern.search(body) for pattern in _DIVIDERS)), None)
    if block["end"] is None:
        return head + _fold_broken(body, divider)
    if divider is None:
        return block[0]
    rows = excerpt_rows(*changed_lines(body[: divider.start()], body[divider.end() :]))
    return head + "\n".join(rows or ["(lines moved or unchanged)"])


def _fold_broken(body: str, divider: re.Match[str] | None) -> str:
    """Return what an incomplete block changes, and the text behind it."""
    rows = ["(an edit block that breaks off, not applied)"]
    end = _BREAK.search(body, divider.end() if divider is not None else 0)
    if divider is not None:
        new = body[divider.end() : end.start() if end is not None else None]
        rows += excerpt_rows(*changed_lines(body[: divider.start()], new))
    rest = "" if end is None else body[end.start() :] if end["fence"] else body[end.end() :]
    return "\n".join((*rows, rest))


def find_undone_replies(entries: Sequence[Entry]) -> frozenset[int]:
    """Return the positions of replies with edit blocks that the user took back by `/undo`."""
    if not any(e.message.is_real_user and e.message.text.strip() == _UNDO for e in entries):
        return frozenset()
    replies: list[int] = []
    undone: set[int] = set()
    undos = 0
    for entry in entries:
        message, text = entry.message, entry.message.text
        if message.kind == "assistant":
            undos = 0
            if has_edit_blocks(text) and not has_broken_block(text):
                replies.append(entry.seq)
        elif message.is_real_user and text.strip() == _UNDO:
            undos += 1
            if undos % 2 and replies:
                # Every second one may have taken back the commit of a formatter.
                undone.add(replies.pop())
    return frozenset(undone)
