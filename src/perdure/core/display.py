"""Text for display, the same on every surface: foreign text made safe to show, and search results in words.

What cannot be seen in foreign text, or rearranges its neighbours, is spelled out: a command that a user approves must
read the way it will run. Bidirectional overrides, zero-width characters and escape sequences make it read as another
one, on a terminal as well as in a browser. An empty search result never reads as absence.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.messages import Message, ToolCall, clean
from perdure.core.ports import SearchHit, SearchReport

# Control, format, surrogate, private-use and unassigned characters; every separator but the plain space.
_ODD_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
# Letters and symbols that are drawn as nothing at all.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
_PLAIN = re.compile(r"[\t\n\x20-\x7e]*")
# What can steer a terminal or turn the direction of a text, as opposed to what is merely invisible.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

# difflib is quadratic where many lines are similar.
_COMPARED_LINES = 300
# Of whole files more is compared: difflib skips the frequent lines of a long text.
_COMPARED_FILE_LINES = 1_000
_CONTEXT_LINES = 3
# The diff of two texts without a difference.
SAME_LINES = "@@ the same lines @@"
_HUNK = re.compile(r"([-+])(\d+)")
# Arguments that identify a call, most telling first.
_TARGET_KEYS = ("command", "path", "pattern", "query", "url", "question", "task", "action", "target")


def cut_off_label(message: Message) -> str:
    """Return the label of a reply whose request ended early, with the reason; "" for a whole one."""
    why = message.cut_off
    reason = "connection lost" if why == "transport" else (why or "").replace("_", " ")
    return "" if why is None else "stopped here" if why == "interrupted" else f"cut off here ({reason})"


def escape_invisible(text: str) -> str:
    """Spell out invisible and direction-changing characters (`<U+202E>`) in a text, except newlines and tabs."""
    if _PLAIN.fullmatch(text):
        return text
    return "".join(f"<U+{ord(c):04X}>" if _is_odd(c) else c for c in text)


def strip_controls(text: str) -> str:
    """Return the text without control characters and bidirectional marks; newlines and tabs stay."""
    return _STEERING.sub("", text)


def call_target(call: ToolCall, *, max_chars: int) -> str:
    """Return the argument that identifies a tool call best (a command, a path, …), on one line of `max_chars`."""
    arguments = call.parsed_arguments() or {}
    value = next((v for k in _TARGET_KEYS if isinstance(v := arguments.get(k), str) and v.strip()), "")
    # Bounded before it is normalized: an argument may hold a whole file.
    line = escape_invisible(" ".join(clean(value[: 4 * max_chars]).split()))
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"


def join_preview(first: str, last: str) -> str:
    """Join the start and the end of a long output with an ellipsis; an empty `last` means that `first` is complete."""
    parts = [first, "[…]", last] if last else [first]
    return "\n".join(part.strip("\n") for part in parts)


def edit_lines(name: str, arguments: Mapping[str, Any]) -> list[str]:
    """Return a `write_file` or `patch` call as diff lines: added (`+`), removed (`-`), unchanged (` `).

    Empty for other tools and for malformed arguments.
    """
    match name, dict(arguments):
        case "write_file", {"content": str(content)}:
            return [f"+{line}" for line in content.removesuffix("\n").split("\n")] if content else []
        case "patch", {"old": str(old), "new": str(new)}:
            if old.endswith("\n") and new.endswith("\n"):
                old, new = old[:-1], new[:-1]
            before, after = old.split("\n"), new.split("\n") if new else []
            most = max(len(before), len(after))
            if most > _COMPARED_LINES:
                return [*(f"-{line}" for line in before), *(f"+{line}" for line in after)]
            return list(difflib.unified_diff(before, after, lineterm="", n=most))[3:]
        case _:
            return []


def changed_lines(before: str, after: str) -> list[str]:
    """Return the unified diff of two texts without file headers; a single `@@` line if no line differs.

    If the changed region is too long to compare, all of it is shown as removed and added.
    """
    old, new = _split_lines(before), _split_lines(after)
    if old == new:
        return [SAME_LINES]
    same = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    pairs = zip(reversed(old[same:]), reversed(new[same:]), strict=False)
    tail = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(old), len(new)) - same)
    first, end_skip = max(0, same - _CONTEXT_LINES), max(0, tail - _CONTEXT_LINES)
    old, new = old[first : len(old) - end_skip], new[first : len(new) - end_skip]
    if max(len(old), len(new)) > _COMPARED_FILE_LINES:
        end = tail - end_skip
        head = f"@@ -{first + 1},{len(old)} +{first + 1},{len(new)} @@"
        minus, plus = old[same - first : len(old) - end], new[same - first : len(new) - end]
        around = [f" {line}" for line in old[: same - first]], [f" {line}" for line in old[len(old) - end :]]
        return [head, *around[0], *(f"-{line}" for line in minus), *(f"+{line}" for line in plus), *around[1]]
    diff = list(difflib.unified_diff(old, new, lineterm="", n=_CONTEXT_LINES))[2:]
    return [shift_hunk(line, first) for line in diff]


def shift_hunk(line: str, first: int) -> str:
    """Add `first` to the line numbers of a diff's hunk header; other lines are returned unchanged."""
    if not line.startswith("@@ "):
        return line
    return _HUNK.sub(lambda m: f"{m[1]}{int(m[2]) + first}", line)


def _split_lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _is_odd(character: str) -> bool:
    if " " <= character <= "~" or character in "\t\n":
        return False
    return unicodedata.category(character) in _ODD_CATEGORIES or character in _BLANK or _is_tag(character)


def _is_tag(character: str) -> bool:
    """Whether a character is a variation selector other than the two of emoji; such selectors can hide text."""
    return "\ufe00" <= character <= "\ufe0d" or "\U000e0100" <= character <= "\U000e01ef"


_MAX_WORDS = 8


def describe_report(report: SearchReport) -> str:
    """Return one or two sentences on what was searched and how well the hits match."""
    by = f" by {report.queries} queries" if report.queries > 1 else ""
    searched = f"Searched {_count(report.texts, 'message')}{by}{_progress(report)}"
    if not report.words:
        return "The query has no words to search for."
    if not report.hits:
        words = "the word" if len(report.words) == 1 else f"any of the {len(report.words)} words"
        return (
            f"{searched}: none has {words}. It may have been said in other words: try a synonym, a name,"
            " or a prefix such as deplo*."
        )
    if report.is_relaxed:
        return f"{searched}: none has the quoted phrase. These have some of its words."
    counts = ", ".join(f"{w.word} ({'' if w.is_exact else 'about '}{w.texts:,})" for w in report.words[:_MAX_WORDS])
    missing = f" Nowhere: {_words(report.missing)}." if report.missing else ""
    if report.queries > 1:
        return f"{searched}: {counts}.{missing}"
    if not report.is_partial:
        return f"{searched}: {counts}."
    return f"{searched}: {counts}. None has all {len(report.words)} words; the nearest come first.{missing}"


def full_address(hit: SearchHit) -> str:
    """Return an address that opens the hit from any conversation of its user."""
    return f"{hit.conversation_id}/{hit.address}"


def answer_line(hit: SearchHit, conversation_id: str | None = None) -> str:
    """Return the line that continues a question with its answer or a call with its result, "" without one.

    The address names its conversation unless that is `conversation_id`.
    """
    if hit.answer is None:
        return ""
    address = (
        hit.answer.address if hit.conversation_id == conversation_id else f"{hit.conversation_id}/{hit.answer.address}"
    )
    # What the user wrote next need not answer the question that a reply ends with.
    label = {"tool": "result", "user": "the user then"}.get(hit.answer.role, "answer")
    return f"→ {label} ({address}): {' '.join(hit.answer.snippet.split())}"


def split_address(address: str) -> tuple[str | None, str]:
    """Split `c_…/m:57` into the conversation, None if it names none, and the address within it."""
    owner, separator, rest = address.strip().partition("/")
    return (owner, rest) if separator and owner.startswith(("c_", "s_")) else (None, address.strip())


def _progress(report: SearchReport) -> str:
    if report.indexed_share >= 1:
        return ""
    return f" (the index is being rebuilt: {report.indexed_share:.0%} is searchable so far)"


def _words(words: Sequence[str]) -> str:
    listed = ", ".join(words[:_MAX_WORDS])
    return f"{listed} …" if len(words) > _MAX_WORDS else listed


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
