"""Show what a tool call did: the first and last lines of its output, a coloured diff, an error, the plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from perdure.cli.style import Style, safe
from perdure.core.events import ToolFinished, ToolOutput

_INDENT = "  "
_EXIT = re.compile(r"\A\[?exit (-?\d+)\]?\n?")
_MORE_HINT = "Ctrl-O shows all of it"
# A mode or a rule did not allow the call.
_FORBIDDEN = re.compile(r"was not run: (plan mode is on|the rule [^\n]*? forbids it)")
# Their results are for the model; their name and size are enough unless they fail.
_QUIET_TOOLS = frozenset({"read_file", "search_files", "session_search", "process", "memory"})
_DIFF_TOOLS = frozenset({"patch", "write_file"})


def output_lines(event: ToolFinished, *, most: int, width: int, ink: Style) -> Iterator[str]:
    """The lines below a finished call: at most about `most`, indented and no wider than the terminal."""
    if most <= 0:
        return
    text = plain_output(event)
    name = event.call.name
    if event.state == "refused" and (reason := _FORBIDDEN.search(text)):
        yield ink.bad(_fit(reason[1], width))
    if event.state in ("refused", "interrupted") or "<persisted-output>" in text:
        return
    if event.is_error and name != "terminal":
        yield from _shortened(text.splitlines(), most, width, ink.bad, ink)
    elif name in _QUIET_TOOLS:
        return
    elif name in _DIFF_TOOLS:
        yield from _diff(_written_lines(event) or text.splitlines(), 2 * most, width, ink)
    else:
        yield from _shortened(text.splitlines(), most, width, ink.dim, ink)


def _written_lines(event: ToolFinished) -> list[str]:
    """The lines of a file that was written whole, as a diff shows them; empty for other calls."""
    content = (event.call.parsed_arguments() or {}).get("content") if event.call.name == "write_file" else None
    lines = safe(content).splitlines() if isinstance(content, str) else []
    return [f"@@ {len(lines):,} lines @@", *(f"+{line}" for line in lines)] if lines else []


def shorten_preview(output: ToolOutput, *, most: int, width: int, ink: Style) -> Iterator[str]:
    """The first and the last lines of what a running tool has printed; more of the end, which is the news."""
    if most <= 0:
        return
    first = safe(output.first).splitlines()
    last = safe(output.last).splitlines()
    if not last and len(first) <= most + 1:
        yield from (ink.dim(_fit(line, width)) for line in first)
        return
    end = (last or first)[-max(1, most - 1) :]
    yield ink.dim(_fit(first[0], width))
    yield ink.dim(_fit(f"… {max(1, output.lines - len(end) - 1):,} more lines", width))
    yield from (ink.dim(_fit(line, width)) for line in end)


def plain_output(event: ToolFinished) -> str:
    """A call's output without control characters and without its exit status, which the call's own line has."""
    return _EXIT.sub("", safe(event.result.text), count=1).strip("\n")


def _shortened(lines: Sequence[str], most: int, width: int, colour: Callable[[str], str], ink: Style) -> Iterator[str]:
    """The first and the last lines; more of the end, which is where results are."""
    if len(lines) <= most + 1:  # the note would replace a single line
        yield from (colour(_fit(line, width)) for line in lines)
        return
    first = most // 3
    yield from (colour(_fit(line, width)) for line in lines[:first])
    yield ink.key(_fit(f"… {len(lines) - most:,} more lines; {_MORE_HINT}", width))
    yield from (colour(_fit(line, width)) for line in lines[len(lines) - (most - first) :])


def _diff(lines: Sequence[str], most: int, width: int, ink: Style) -> Iterator[str]:
    """A diff in red and green, without the sentence before it."""
    start = next((n for n, line in enumerate(lines) if line.startswith("@@")), None)
    if start is None:
        return
    shown = lines[start:]
    for line in shown[:most]:
        colour = ink.good if line.startswith("+") else ink.bad if line.startswith("-") else ink.dim
        yield colour(_fit(line, width))
    if len(shown) > most:
        yield ink.key(_fit(f"… {len(shown) - most:,} more lines; {_MORE_HINT}", width))


def _fit(line: str, width: int) -> str:
    room = max(10, width - len(_INDENT) - 1)
    line = line.expandtabs(4)
    return _INDENT + (line if len(line) <= room else f"{line[: room - 1]}…")
