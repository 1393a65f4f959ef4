"""Print the output of plain commands: wrapped for a terminal, unchanged for a pipe or a file."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from typing import Any, TextIO

import click

from perdure.cli.style import break_command, column_count, fit_lines, runnable, safe, wrap_words

# The last column of a table with less room than this goes into rows of its own.
_LEAST_LAST_COLUMN = 30
_INDENT = "    "


def columns(*, err: bool = False) -> int | None:
    """Return the width of the terminal that is written to; None for a pipe or a file."""
    return _columns_of(sys.stderr if err else sys.stdout)


def _columns_of(stream: TextIO) -> int | None:
    if not stream.isatty():
        return None
    try:
        return os.get_terminal_size(stream.fileno()).columns or shutil.get_terminal_size().columns
    except (OSError, ValueError):
        return shutil.get_terminal_size().columns


def fit(text: str, *, err: bool = False) -> str:
    """Return a text as it is printed: for a terminal without control characters, and wrapped between words."""
    width = columns(err=err)
    return text if width is None else "\n".join(fit_lines(safe(text).split("\n"), width))


def echo(text: str = "", *, err: bool = False) -> None:
    """Print a text, in a terminal wrapped between words."""
    click.echo(fit(text, err=err), err=err)


def echo_hint(text: str, *commands: str, err: bool = False) -> None:
    """Print what can be done next: a command in the same line if it fits, else each in its own line to be copied."""
    width = columns(err=err)
    lines = [runnable(command) for command in commands]
    if len(lines) == 1 and (width is None or column_count(text) + 1 + len(lines[0]) <= width):
        click.echo(f"{text} {lines[0]}", err=err)
        return
    echo(text, err=err)
    for line in lines:
        # Two columns of indent, and a backslash where the command goes on.
        for row in break_command(shlex.split(line, posix=False), width - 4) if width is not None else [f"  {line}"]:
            click.echo(row, err=err)


def echo_json(value: Any) -> None:
    """Print one line of JSON, never wrapped."""
    click.echo(json.dumps(value, ensure_ascii="utf" not in (sys.stdout.encoding or "utf-8").lower()))


def echo_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns; where a terminal is too narrow, what is in the last column goes below the others."""
    click.echo("\n".join(table_lines(rows, columns())))


def table_lines(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Return rows of equally many cells in aligned columns; a last one that is too wide is wrapped, or put below."""
    cells = [[safe(cell) if width is not None else cell for cell in row] for row in rows]
    sizes = [max(map(column_count, column)) for column in zip(*(row[:-1] for row in cells), strict=True)]
    heads = ["  ".join(_pad_cell(c, s) for c, s in zip(row[:-1], sizes, strict=True)) + "  " for row in cells]
    lines = [f"{head}{row[-1]}".rstrip() for head, row in zip(heads, cells, strict=True)]
    if width is None or all(column_count(line) <= width for line in lines):
        return lines
    start = sum(sizes) + 2 * len(sizes)
    longest = max(column_count(word) for row in cells for word in row[-1].split() or [""] if word.isascii())
    if width - start >= max(_LEAST_LAST_COLUMN, longest):
        return [
            line
            for head, row in zip(heads, cells, strict=True)
            for line in wrap_words(row[-1], width, first=head, rest=" " * start)
        ]
    below: list[str] = []
    for row in cells:
        below += wrap_words("  ".join(filter(str.strip, row[:-1])), width, rest=_INDENT)
        below += wrap_words(row[-1], width, first=_INDENT, rest=_INDENT) if row[-1] else ()
    return below


def echo_pages(texts: Iterable[str], *, hanging: str = "") -> None:
    """Print texts as they come; in a terminal that they do not fit, in the user's pager.

    Where a line is wrapped, its other rows keep its indent; those of a line without one get `hanging`.
    """
    from perdure.config.env import pager

    width = columns()
    if width is None:
        for text in texts:
            click.echo(text)
        return
    rows = (row for text in texts for line in safe(text).split("\n") for row in _wrap_line(line, width, hanging))
    command = pager() if sys.stdin.isatty() else None
    head = list(islice(rows, shutil.get_terminal_size().lines if command is not None else 0))
    if command is None or len(head) < shutil.get_terminal_size().lines:
        for row in chain(head, rows):
            click.echo(row)
        return
    with _ignore_interrupts(), suppress(BrokenPipeError):
        text = "".join(f"{row}\n" for row in chain(head, rows))
        subprocess.run(command, input=text.encode("utf-8", "replace"), check=False)


@contextmanager
def _ignore_interrupts() -> Iterator[None]:
    """Leave Ctrl-C to the pager. A handler of ours, unlike SIG_IGN, is not inherited by it."""
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _wrap_line(line: str, width: int, hanging: str) -> Iterator[str]:
    if column_count(line) <= width:
        return iter((line,))
    indent = line[: len(line) - len(line.lstrip())]
    return wrap_words(line, width, rest=indent if 0 < len(indent) <= width // 3 else hanging)


def _pad_cell(cell: str, size: int) -> str:
    return cell + " " * (size - column_count(cell))
