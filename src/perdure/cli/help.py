"""Lay out `--help`, and suggest a command or option for a mistyped one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches

import click

from perdure.cli.output import columns
from perdure.cli.style import column_count, wrap_words

# The widths between which help is wrapped, however wide or narrow the terminal is.
_MOST_COLUMNS, _LEAST_COLUMNS = 100, 30
# Without a terminal.
_COLUMNS = 80
# A second column with less room than this goes below the first.
_LEAST_SECOND_COLUMN = 30
# A list of options or commands is rather kept in columns, even where the second is a little narrower.
_SLACK = 6
# An indent, a command or a key, a gap, and what it does.
_EXAMPLE = re.compile(r"(\s*)(\S+(?: \S+)*)\s{2,}(\S+(?: \S+)*)\s*")


class HelpFormatter(click.HelpFormatter):
    """Formatter of help that wraps lists of examples and keys as well, each command in one row where it fits one."""

    def __init__(self, width: int | None = None) -> None:
        # Piped into a pager, help is as wide as the terminal that errors go to.
        terminal_columns = min(columns() or columns(err=True) or _COLUMNS, _MOST_COLUMNS)
        # One column stays free, as some terminals wrap after the last.
        super().__init__(width=width or max(terminal_columns - 1, _LEAST_COLUMNS))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        pairs = list(rows)
        first_columns = min(max((column_count(first) for first, _ in pairs), default=0), col_max)
        if self.width - self.current_indent - first_columns - col_spacing >= _LEAST_SECOND_COLUMN - _SLACK:
            super().write_dl(pairs, col_max, col_spacing)
            return
        for first, second in pairs:
            self.write("".join(f"{row}\n" for row in self._below(" " * self.current_indent, first, second)))

    def getvalue(self) -> str:
        blocks = super().getvalue().removesuffix("\n").split("\n\n")
        return "\n\n".join("\n".join(self._rows(block.split("\n"))) for block in blocks) + "\n"

    def _rows(self, block: Sequence[str]) -> Iterator[str]:
        """Yield the rows of a block; examples that are in two columns stay so, or none of them does."""
        examples = [_EXAMPLE.fullmatch(line) for line in block]
        is_wide = [column_count(line) > self.width for line in block]
        narrow = {
            example.start(3)
            for example, wide in zip(examples, is_wide, strict=True)
            if example and wide and self.width - example.start(3) < _LEAST_SECOND_COLUMN
        }
        for line, example, wide in zip(block, examples, is_wide, strict=True):
            if example and example.start(3) in narrow:
                yield from self._below(*example.groups())
            elif not wide:
                yield line
            elif example:
                start = example.start(3)
                yield from wrap_words(example[3], self.width, first=line[:start], rest=" " * start)
            else:
                yield from wrap_words(line, self.width, rest=line[: len(line) - len(line.lstrip())])

    def _below(self, indent: str, first: str, second: str) -> Iterator[str]:
        below = f"{indent}    "
        # A command that is wider than a row continues after a backslash, as in a shell.
        *rows, last = wrap_words(first, self.width - 2, first=indent, rest=below)
        yield from (f"{row} \\" for row in rows)
        yield last
        if second:
            yield from wrap_words(second, self.width, first=below, rest=below)


def suggestion(name: str, ctx: click.Context, *, default: click.Command | None) -> str:
    """Return what may have been meant by a name that a group does not have; "" where nothing is near.

    At the root that is also a command of one of its groups, an option of the default command, or a question.
    """
    group = ctx.command
    if not isinstance(group, click.Group):
        return ""
    names = group.list_commands(ctx)
    if name in ("version", "help"):
        return f" Did you mean '--{name}'?"
    if close := get_close_matches(name, names, n=1):
        return f" Did you mean {close[0]!r}?"
    if default is None:
        return ""
    if any(map(str.isspace, name)):
        return " A question goes behind -q, in quotes."
    if name in (options := _options(default)) or f"--{name}" in options:
        return f" Did you mean '--{name.lstrip('-')}'?"
    nested = {command.rpartition(" ")[2]: command for command in _nested_commands(group, ctx, names)}
    close = get_close_matches(name, nested, n=1)
    return f" Did you mean {nested[close[0]]!r}?" if close else ""


def option_names(*commands: click.Command) -> list[str]:
    """Return the long names of the commands' options."""
    return [name for command in commands for name in _options(command) if name.startswith("--")]


def option_rows(command: click.Command, ctx: click.Context) -> list[tuple[str, str]]:
    """Return the options of a command with their help, as its own `--help` lists them."""
    records: Iterable[tuple[str, str] | None] = (param.get_help_record(ctx) for param in command.params)
    return [record for record in records if record is not None]


def _options(command: click.Command) -> list[str]:
    return [name for param in command.params if isinstance(param, click.Option) for name in param.opts]


def _nested_commands(group: click.Group, ctx: click.Context, names: Iterable[str]) -> Iterator[str]:
    """Yield the commands of the groups in a group, as they are typed."""
    for name in names:
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            yield from (f"{name} {inner}" for inner in command.list_commands(ctx))
