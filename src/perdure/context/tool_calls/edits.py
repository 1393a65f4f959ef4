"""Describe an edit: its path, the removed and the added lines, definitions first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from itertools import pairwise
from typing import Any

from perdure.context.fitting import join_names
from perdure.context.tool_calls.call_line import CallFacts
from perdure.context.tool_calls.output import CallFinding, clip_middle, count_noun, one_line, unique
from perdure.context.tool_calls.output_extent import is_not_kept

_OLD = ("old_string", "old_str", "old", "oldText", "old_text", "search", "find", "oldString")
_NEW = ("new_string", "new_str", "new", "newText", "new_text", "replace", "replacement", "newString", "insert_text")
_CONTENT = ("content", "contents", "file_text", "text", "file_content", "data", "code")
_PATH = (
    "file_path",
    "path",
    "filePath",
    "filename",
    "file",
    "target_file",
    "notebook_path",
    "relative_path",
    "absolute_path",
)
_PATCH = ("patch", "input", "diff", "patch_text", "patchText")

EDIT_WORTH, WRITE_WORTH = 0.55, 0.5
_MAX_LINES = 4_000
_REMOVED_CHARS = 260
_ADDED_CHARS = 680
_ROW_CHARS = 170
_RANKED_LINES = 400

# A definition of a function, a type, a constant or a default, in the common languages.
_DEFINITION = re.compile(
    r"""^\s*(?:
        (?:export\s+|default\s+|pub(?:\([^)]*\))?\s+|public\s+|private\s+|protected\s+|static\s+|final\s+|abstract\s+|async\s+|override\s+|virtual\s+|inline\s+|unsafe\s+|extern\s+)*
        (?:func|def|fn|function|class|struct|interface|enum|trait|impl|type|module|namespace|const|let|var|val|object|record|macro_rules!|protocol|extension)\b(?!['’])
      | (?:public|private|protected|static|internal)\s[\w<>\[\],?\s]+\s\w++\s*+[({=]
      | @\w+ | \#\s*define\b | [A-Z][A-Z0-9_]{2,}\s*(?::[^=]+)?=
      | (?:CREATE|ALTER|DROP|INSERT|UPDATE)\s
    )
      | ^\#{1,4}\s+\S  # a heading; indented it is a comment
    """,
    re.X,
)
_SIGNATURE_HEAD = re.compile(r"func \([^)]{0,60}\) \w{1,60}|[^(=]{1,50}")
# A colour of the terminal, as scripts define it at their beginning.
_COLOR = re.compile(r"^\s*\w+=\$?.?(?:\\0?33|\\e|\\x1[bB]|\\u001[bB])\[|^\s*\w+=[\"']?\$\(tput ")
_PROSE_FILE = re.compile(r"(?i)\.(?:md|mdx|markdown|rst|txt|adoc)$|(?:^|/)[^.]*$")
_SETTINGS_FILE = re.compile(r"(?i)\.(?:json[5c]?|toml|ya?ml|ini|cfg|conf|properties)$")
# `name = value`, `"name": value`, of one line; no table, list or block begins there.
_SETTING = re.compile(
    r"""\s*["']?(?P<name>[A-Za-z_][\w.-]{0,39})["']?\s*[:=]\s*(?P<value>[^\s{\[|>&*#][^\n]{0,47}?)\s*,?\s*$"""
)
_LONGEST_SETTING = 120
_MAX_SETTINGS_LINES = 200
_SETTINGS_CHARS = 90
# A comment in the body of a script that names a step.
_STEP_COMMENT = re.compile(r"(?i)^#+ *(?:[-=]+ *)?(?:steps?|phase|part|case|scenario|test|\d)\b")
_OPENING_LINES = 12
_LOCAL = re.compile(r"^(?:\t| {2,})\s*(?:const|let|var|val)\b")
_VALUE = re.compile(r"""^\s*[\w.\-"'$\[\]]+\s*(?::?=|:)\s*[^\s{(\[]""")
_NOISE = re.compile(
    r"^\s*(?:[{}()\[\];,]*|//.*|\#(?!\s*define|\!|\#|\s).*|\*.*|/\*.*|end|else|return|pass|\"\"\"|try:?|import\s.*|from\s.*)\s*$"
)
# A line with which another branch begins. Such lines are at most so far from the change that they belong to.
_BRANCH = re.compile(r"\s*\}?\s*(?:else|elif|elsif|case|default|except|catch|finally)\b")
_NEAR_LINES = 3
# What a line of code ends in that goes on in the next, and what is broken off without it.
_BROKEN_OFF = re.compile(r"(?:=>|->|=|\|\||&&|\+)\Z")
_OPEN = " ({[,"
# The first line of a file, where it says nothing about it.
_PREAMBLE = re.compile(
    r"//go:build|//|#!|<!DOCTYPE|<\?xml|package\b|import\b|from\b|use\b|\"use |'use |/\*|\"\"\"|@charset|#include"
)
_PATCH_FILE = re.compile(r"^(?:\*\*\* (Update|Add|Delete) File: (.+)|\+\+\+ (?:b/)?(\S+).*|--- (?:a/)?(\S+).*)$")


def edited_path(arguments: Mapping[str, Any]) -> str:
    return next((v for k in _PATH if isinstance(v := arguments.get(k), str) and v), "")


def text_argument(arguments: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((v for k in names if isinstance(v := arguments.get(k), str)), None)


def read_edit(arguments: Mapping[str, Any]) -> CallFinding | None:
    """Describe an edit by its arguments; None where they hold no replacement."""
    path = edited_path(arguments)
    if (patch := _patch_of(arguments)) is not None:
        return read_patch(patch, path)
    pairs = _replacements(arguments)
    if not pairs:
        return None
    rows: list[str] = []
    share = max(1, min(len(pairs), 4))
    summary = ""
    for old, new in pairs:
        removed, added = changed_lines(old, new)
        if not summary:
            summary = _summary(removed, added) or ("lines moved or reformatted" if old != new else "")
        if len(rows) < 24:
            rows += excerpt_rows(removed, added, scale=1 / share)
    more = f" ({len(pairs)} edits)" if len(pairs) > 1 else ""
    every = ", every occurrence" if arguments.get("replace_all") is True else ""
    return CallFinding(
        f"{summary or 'no change'}{more}{every}",
        tuple(rows),
        CallFacts(changed_files=(path,) if path else ()),
        False,
        EDIT_WORTH,
        "",
    )


def is_replacement(arguments: Mapping[str, Any]) -> bool:
    """Whether an edit replaces text in the one file that it names; a patch names its files itself."""
    return _patch_of(arguments) is None and bool(_replacements(arguments))


def _patch_of(arguments: Mapping[str, Any]) -> str | None:
    patch = text_argument(arguments, _PATCH)
    return patch if patch is not None and ("\n" in patch or patch.startswith("***")) else None


def read_replacements(arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the old and new texts of an edit; none for a patch."""
    return [] if _patch_of(arguments) is not None else _replacements(arguments)


def _replacements(arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    edits = arguments.get("edits") or arguments.get("replacements")
    if isinstance(edits, list):
        return [p for e in edits[:60] if isinstance(e, dict) and (p := _replacement(e)) is not None]
    pair = _replacement(arguments)
    return [pair] if pair is not None else []


def _replacement(arguments: Mapping[str, Any]) -> tuple[str, str] | None:
    old, new = text_argument(arguments, _OLD), text_argument(arguments, _NEW)
    return None if old is None and new is None else (old or "", new or "")


def changed_lines(old: str, new: str) -> tuple[list[str], list[str]]:
    """Return the lines that only one of two texts has, in order; blanks and a comma at the end are no difference.

    Lines with which a branch begins belong to them: without its `else` the second branch would replace the first.
    """
    before, after = ([(_key_of(x), x) for x in text.split("\n", _MAX_LINES)[:_MAX_LINES]] for text in (old, new))
    old_keys, new_keys = {key for key, _ in before}, {key for key, _ in after}
    return _lines_without(before, new_keys), _lines_without(after, old_keys)


def line_keys(text: str) -> frozenset[str]:
    """Return the lines of a text without blanks and without a comma at the end, by which lines are compared."""
    return frozenset(map(_key_of, text.split("\n", _MAX_LINES)[:_MAX_LINES])) - {""}


def _key_of(line: str) -> str:
    return " ".join(line.split()).rstrip(",")


def _lines_without(lines: Sequence[tuple[str, str]], others: Set[str]) -> list[str]:
    """Return the lines whose keys others lack, equal ones once unless they belong to different branches."""
    own: list[str] = []
    between: list[str] = []
    keys: set[str] = set()
    distance, is_in_branch = 0, False
    for key, line in lines:
        if not key:
            continue
        begins_branch = _BRANCH.match(line[:300]) is not None
        if key in others:
            distance += 1
            if begins_branch and own and distance <= _NEAR_LINES:
                between.append(line)
            continue
        if key in keys and not begins_branch and not is_in_branch:
            continue
        if distance <= _NEAR_LINES:
            own += between
        own.append(line)
        keys.add(key)
        between, distance, is_in_branch = [], 0, begins_branch
    return own


def excerpt_rows(removed: Sequence[str], added: Sequence[str], *, scale: float = 1.0) -> list[str]:
    """Rows with − and + of what matters in a change."""
    rows = [f"− {x}" for x in pick_lines(removed, int(_REMOVED_CHARS * scale) + 40)]
    return rows + [f"+ {x}" for x in pick_lines(added, int(_ADDED_CHARS * scale) + 60)]


def pick_lines(lines: Sequence[str], limit: int) -> list[str]:
    """Return the lines that tell most within a number of characters, in order: definitions, values, then others."""
    if len(lines) <= 12:
        cleaned = [one_line(x, _ROW_CHARS) for x in lines]
        if sum(map(len, cleaned)) <= limit:
            return cleaned
    ranks = [_rank(x) for x in lines[:_RANKED_LINES]]
    chosen: dict[int, str] = {}
    used = 0
    for number in sorted(range(len(ranks)), key=ranks.__getitem__):
        row = one_line(lines[number], _ROW_CHARS)
        if chosen and used + len(row) + 3 > limit:
            continue
        chosen[number] = row
        used += len(row) + 3
        if used > limit - 30 or len(chosen) >= 16:
            break
    places = sorted(chosen)
    rows = [
        chosen[n] + _omission_mark(lines[n + 1 : following]) for n, following in pairwise([*places, places[-1] + 1])
    ]
    if len(rows) < len(lines):
        rows[-1] += f" […{len(lines) - len(rows)} more lines]"
    return rows


def _omission_mark(omitted: Sequence[str]) -> str:
    """Return the mark behind a line after which a branch begins that is left out."""
    return " …" if any(_BRANCH.match(x[:300]) for x in omitted) else ""


def _rank(line: str) -> int:
    if is_definition(line):
        # A local variable matters less than a function or a constant at the top.
        return 0 if not _LOCAL.match(line[:300]) else 1
    if _NOISE.match(line[:300]) or _BRANCH.match(line[:300]):
        return 3
    return 1 if _VALUE.match(line[:300]) else 2


def is_definition(line: str) -> bool:
    return _DEFINITION.match(line[:300]) is not None


def _summary(removed: Sequence[str], added: Sequence[str]) -> str:
    """Return one line for both sides of an edit: the first definition, or the first telling line, of each."""
    old, new = _trim_open(_pick_line(removed)), _trim_open(_pick_line(added))
    if not added:
        return f"− {one_line(old, 90)}" if old else ""
    if not removed:
        return f"+ {one_line(new, 110)}"
    old, new = _trim_to_difference(" ".join(old.split()), " ".join(new.split()))
    if len(old) > 45 and not old.startswith("…"):
        # Two lines that have nothing in common: the new one whole rather than the beginnings of both.
        return f"+ {one_line(new, 110)}"
    return f"− {one_line(old, 45)} + {one_line(new, 75)}"


def _trim_open(line: str) -> str:
    """Return a line without the bracket that it opens, marked where it breaks off."""
    text = line.rstrip(_OPEN)
    return f"{text} …" if _BROKEN_OFF.search(text[-2:]) is not None else text


def _trim_to_difference(old: str, new: str) -> tuple[str, str]:
    """Cut two lines to start a little before their first difference; a definition keeps its name."""
    pairs = enumerate(zip(old[:400], new[:400], strict=False))
    same = next((n for n, (a, b) in pairs if a != b), min(len(old), len(new), 400))
    start = max(old.rfind(" ", 0, max(0, same - 12)), old.rfind(".", 0, max(0, same - 12))) + 1 if same > 24 else 0
    if not start:
        return old, new
    head = _SIGNATURE_HEAD.match(new) if is_definition(new) else None
    name = head[0] if head is not None else ""
    return f"…{old[start:]}", f"{name}…{new[start:]}" if len(name) < start else f"…{new[start:]}"


def _pick_line(lines: Sequence[str]) -> str:
    return min(lines[:30], key=_rank, default="").strip()


def read_write(arguments: Mapping[str, Any]) -> CallFinding:
    """Describe a whole file that was written: its size and its definitions or headings."""
    return describe_content(edited_path(arguments), written_text(arguments))


def written_text(arguments: Mapping[str, Any]) -> str:
    """Return the content of a whole file that a call writes."""
    return text_argument(arguments, _CONTENT) or ""


def describe_content(path: str, content: str) -> CallFinding:
    """Describe the content of a file that was written."""
    facts = CallFacts(changed_files=(path,) if path else ())
    if is_not_kept(content):
        return CallFinding("", (), facts, False, WRITE_WORTH)
    lines = content[:200_000].split("\n")[:_MAX_LINES]
    total = content.count("\n") + (not content.endswith("\n")) if content else 0
    is_prose = _PROSE_FILE.search(path) is not None
    telling = [x for n, x in enumerate(lines) if is_definition(x) and (is_prose or _tells(n, x))]
    first = next((x.strip() for x in lines if x.strip(" #/*-!\"'<>")), "")
    if telling and _PREAMBLE.match(first):
        first = telling[0].strip()
    headline = one_line(first, 80)
    if pairs := settings_in(path, lines):
        headline = join_names([f"{name} = {value}" for name, value in pairs], _SETTINGS_CHARS)
    rows = [f"+ {x}" for x in pick_lines(telling or [x for x in lines if x.strip()], 700)]
    return CallFinding(
        f"{count_noun(total, 'line')}: {headline}",
        tuple(rows),
        facts,
        False,
        WRITE_WORTH,
    )


def is_settings_file(path: str) -> bool:
    return _SETTINGS_FILE.search(path) is not None


def settings_in(path: str, lines: Sequence[str]) -> list[tuple[str, str]]:
    """Return the names and scalar values that a file of settings assigns, one a line; none for other files."""
    if not is_settings_file(path):
        return []
    pairs = (
        m for x in lines[:_MAX_SETTINGS_LINES] if len(x) <= _LONGEST_SETTING and (m := _SETTING.match(x)) is not None
    )
    return [(m["name"], m["value"]) for m in pairs]


def _tells(number: int, line: str) -> bool:
    """Whether a definition in code tells something: no colour, and of the comments those at the top or of a step."""
    if line.startswith("#"):
        return number < _OPENING_LINES or _STEP_COMMENT.match(line) is not None or line.startswith("#define")
    return _COLOR.match(line[:200]) is None


def read_patch(patch: str, path: str = "") -> CallFinding:
    """Describe a patch in the unified or the apply_patch format."""
    files: list[str] = []
    deleted: list[str] = []
    removed: list[str] = []
    added: list[str] = []
    for line in patch[:200_000].split("\n")[:_MAX_LINES]:
        if (match := _PATCH_FILE.match(line[:400])) is not None:
            name = match[2] or match[3] or match[4]
            if match[1] == "Delete":
                deleted.append(name)
            elif name != "/dev/null":
                files.append(name)
        elif line.startswith("+"):
            added.append(line[1:])
        elif line.startswith("-"):
            removed.append(line[1:])
    if not added and not removed and not deleted:
        # A format of another agent: what it holds is what was written.
        added = [x for x in patch[:20_000].split("\n") if not x.startswith(("§", "≔", "»", "@@", "***"))]
    files = unique(files) or ([path] if path else [])
    removed, added = [x for x in removed if x.strip()], [x for x in added if x.strip()]
    names = ", ".join(clip_middle(f, 80) for f in files[:3]) if not path else ""
    headline = ": ".join(filter(None, (names, _summary(removed, added))))
    facts = CallFacts(changed_files=tuple(files), deleted_files=tuple(deleted))
    return CallFinding(headline, tuple(excerpt_rows(removed, added)), facts, False, EDIT_WORTH, names)
