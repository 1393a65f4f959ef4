"""Makes foreign text safe to show: what cannot be seen, or rearranges its neighbours, is spelled out.

A command that a person approves must read the way it will run. Bidirectional overrides, zero-width characters and
escape sequences make it read as another one, on a terminal as well as in a browser.
"""

from __future__ import annotations

import re
import unicodedata

from perdure.core.messages import ToolCall, clean

# Control, format, surrogate, private-use and unassigned characters; every separator but the plain space.
_ODD_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
# Letters and symbols that are drawn as nothing at all.
_BLANK = frozenset("\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_PLAIN = re.compile(r"[\t\n\x20-\x7e]*")
# What can steer a terminal or turn the direction of a text, as opposed to what is merely invisible.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

# Arguments that identify a call, most telling first.
_TARGET_KEYS = ("command", "path", "pattern", "query", "url", "question", "task", "action", "target")


def escape_invisible(text: str) -> str:
    """The text with every odd character as `<U+202E>`; newlines and tabs stay."""
    if _PLAIN.fullmatch(text):
        return text
    return "".join(f"<U+{ord(c):04X}>" if _is_odd(c) else c for c in text)


def strip_controls(text: str) -> str:
    """The text without control characters and bidirectional marks; newlines and tabs stay."""
    return _STEERING.sub("", text)


def call_target(call: ToolCall, *, max_chars: int) -> str:
    """Return the argument that identifies a tool call best (a command, a path, …), on one line of `max_chars`."""
    arguments = call.parsed_arguments() or {}
    value = next((v for k in _TARGET_KEYS if isinstance(v := arguments.get(k), str) and v.strip()), "")
    # Bounded before it is normalized: an argument may hold a whole file.
    line = " ".join(clean(value[: 4 * max_chars]).split())
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"


def _is_odd(character: str) -> bool:
    if " " <= character <= "~" or character in "\t\n":
        return False
    return unicodedata.category(character) in _ODD_CATEGORIES or character in _BLANK or _is_tag(character)


def _is_tag(character: str) -> bool:
    """Whether a character is a variation selector other than the two of emoji; such selectors can hide text."""
    return "\ufe00" <= character <= "\ufe0d" or "\U000e0100" <= character <= "\U000e01ef"
