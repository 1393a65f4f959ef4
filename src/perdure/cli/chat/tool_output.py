"""Show what a tool call did: the first and last lines of its output, a coloured diff, an error, the plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from perdure.cli.style import Style, cut_row, safe
from perdure.commands.format import count
from perdure.core.display import SAME_LINES, edit_lines
from perdure.core.events import ToolFinished, ToolOutput

_INDENT = "  "
_EXIT = re.compile(r"\A\[?exit (-?\d+)\]?\n?")
# A result of `patch` that has only the first part of the diff.
_CUT_DIFF = re.compile(r"\n\[… (?:\d+ more lines of the diff|more changes further down)\]\Z")
_HUNK = re.compile(r"^@@ -(\d+)[^\n]*", re.MULTILINE)
_MORE_HINT = "; Ctrl-O shows all of it"
# A large output, of which the model gets both ends: what it is, and what stands before and between the two.
_STORED_OUTPUT = re.compile(
    r"<persisted-output>\nThe output is (([\d,]+) characters(?: \([^)\n]*\))?(?: in [\d,]+ lines?)?)"
    r".*?kept at (output:\w+)"
)
_READ_AGAIN = re.compile(r"<persisted-output>\n([^\n]+?) did not fit into the context")
_PREVIEW = re.compile(r"<persisted-output>\n(?:[^\n]+\n)+\nFirst [\d,]+ characters:\n")
_PREVIEW_GAP = re.compile(r"\n(\[… [\d,]+ characters …\])\nLast [\d,]+:\n")
# A mode or a rule did not allow the call.
_FORBIDDEN = re.compile(r"was not run: (plan mode is on|the rule [^\n]*? forbids it)")
# Their results are for the model; their name and size are enough unless they fail.
_QUIET_TOOLS = frozenset(
    {
        *("read_file", "search_files", "session_search", "process", "memory"),
        *("notes", "context", "lcm_grep", "lcm_describe", "lcm_expand"),
    }
)
_DIFF_TOOLS = frozenset({"patch", "write_file"})


def output_lines(event: ToolFinished, *, most: int, width: int, ink: Style, can_unfold: bool = True) -> Iterator[str]:
    """Yield the lines below a finished call: about `most` of its output, indented, no wider than the terminal."""
    hint = _MORE_HINT if can_unfold else ""
    if most <= 0:
        return
    text = plain_output(event)
    name = event.call.name
    if event.state == "refused" and (reason := _FORBIDDEN.search(text)):
        yield ink.bad(_fit(reason[1], width))
    if hint and stored_output(text) is not None:
        yield ink.key(_fit(f"…{hint.removeprefix(';')}", width))
    if event.state in ("refused", "interrupted") or "<persisted-output>" in text:
        return
    if event.is_error and name != "terminal":
        yield from _shorten_output(text.splitlines(), most, width, ink.bad, ink, hint)
    elif name in _QUIET_TOOLS:
        return
    elif name in _DIFF_TOOLS:
        yield from _diff(_changed_lines(event), 2 * most, width, ink, hint)
    else:
        yield from _shorten_output(text.splitlines(), most, width, ink.dim, ink, hint)


def whole_output(event: ToolFinished) -> str:
    """Return the complete output or file change of which `output_lines` shows a part."""
    text = plain_output(event)
    if _PREVIEW.search(text):
        return _excerpt(text)
    if event.is_error or event.call.name not in _DIFF_TOOLS:
        return text
    summary = text.partition("\n")[0]
    return "\n".join([summary, *(line for line in _changed_lines(event) if line != summary)])


def stored_output(text: str) -> tuple[int, str] | None:
    """Return size and address of a large output of which a result has both ends; None for a complete one."""
    match = _STORED_OUTPUT.search(text)
    return (int(match[2].replace(",", "")), match[3]) if match else None


def _excerpt(text: str) -> str:
    """Return both ends of a large output and how a person reads the rest, without the model's instructions."""
    ends = _PREVIEW_GAP.sub(r"\n\1\n", _PREVIEW.sub("", text, count=1), count=1)
    ends = ends.removesuffix("</persisted-output>").rstrip("\n")
    if stored := _STORED_OUTPUT.search(text):
        return f"{ends}\n(All of it, {stored[1]}: /expand {stored[3]})"
    source = _READ_AGAIN.search(text)
    return f"{ends}\n({source[1]})" if source else ends


def change_size(event: ToolFinished) -> str | None:
    """Return how many lines an edit adds and removes, as `+3 -1 lines`; None for other calls."""
    arguments = event.call.parsed_arguments() or {}
    if event.is_error or event.call.name not in _DIFF_TOOLS or arguments.get("replace_all"):
        return None
    if event.call.name == "write_file" and not event.diff and not event.result.text.startswith("Created"):
        return None  # what was replaced is known only while the call is shown live
    lines = _changed_lines(event)
    if SAME_LINES in lines:
        return "no change"
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    is_known = added + removed > 0 and not lines[0].startswith("@@ replaces")
    return f"+{added:,} -{removed:,} lines" if is_known else None


def _changed_lines(event: ToolFinished) -> list[str]:
    """Return a file change as a diff: from the event, the result, or the arguments, whichever is complete."""
    if event.diff:
        return [safe(line) for line in event.diff]
    text = plain_output(event)
    arguments = event.call.parsed_arguments() or {}
    is_patch = event.call.name == "patch"
    if is_patch and not _CUT_DIFF.search(text):
        return text.splitlines()
    lines = [safe(line) for line in edit_lines(event.call.name, arguments)]
    if not lines:
        return text.splitlines()
    where = _position(text, lines) if is_patch else count(len(lines), "line")
    return [f"@@ {where}{', and every other match' if arguments.get('replace_all') else ''} @@", *lines]


def _position(result: str, lines: Sequence[str]) -> str:
    """Return where in the file the lines of a patch are, by the first hunk of its result."""
    hunk = _HUNK.search(result)
    if hunk is None:
        return "patch"
    first_changed = int(hunk[1]) + _unchanged_before(result[hunk.end() :].split("\n")[1:])
    return f"from line {first_changed - _unchanged_before(lines):,}"


def _unchanged_before(lines: Sequence[str]) -> int:
    """Return how many lines of a diff precede the first changed one."""
    return next((n for n, line in enumerate(lines) if line.startswith(("+", "-"))), 0)


def shorten_preview(output: ToolOutput, *, most: int, width: int, ink: Style) -> Iterator[str]:
    """Yield the first and last lines that a running tool has printed; more of the end, which is newest."""
    if most <= 0:
        return
    first = safe(output.first).splitlines()
    last = safe(output.last).splitlines()
    if not last and len(first) <= most + 1:
        yield from (ink.dim(_fit(line, width)) for line in first)
        return
    end = (last or first)[-max(1, most - 1) :]
    yield ink.dim(_fit(first[0], width))
    yield ink.dim(_fit(f"… {count(max(1, output.lines - len(end) - 1), 'more line')}", width))
    yield from (ink.dim(_fit(line, width)) for line in end)


def plain_output(event: ToolFinished) -> str:
    """Return a call's output without control characters and without its exit status, which the call's own line has."""
    return _EXIT.sub("", safe(event.result.text), count=1).strip("\n")


def _shorten_output(
    lines: Sequence[str], most: int, width: int, colour: Callable[[str], str], ink: Style, hint: str
) -> Iterator[str]:
    """Yield the first and last lines of an output; more of the end, where results are."""
    if len(lines) <= most + 1:  # the note would replace a single line
        yield from (colour(_fit(line, width)) for line in lines)
        return
    first = most // 3
    yield from (colour(_fit(line, width)) for line in lines[:first])
    yield ink.key(_fit(f"… {count(len(lines) - most, 'more line')}{hint}", width))
    yield from (colour(_fit(line, width)) for line in lines[len(lines) - (most - first) :])


def _diff(lines: Sequence[str], most: int, width: int, ink: Style, hint: str) -> Iterator[str]:
    """Yield a diff in red and green."""
    start = next((n for n, line in enumerate(lines) if line.startswith("@@")), None)
    if start is None:
        return
    hunks = lines[start:]
    for line in hunks[:most]:
        colour = ink.good if line.startswith("+") else ink.bad if line.startswith("-") else ink.dim
        yield colour(_fit(line, width))
    if len(hunks) > most:
        yield ink.key(_fit(f"… {count(len(hunks) - most, 'more line')}{hint}", width))


def _fit(line: str, width: int) -> str:
    room = max(10, width - len(_INDENT) - 1)
    return _INDENT + cut_row(line.expandtabs(4), room)
