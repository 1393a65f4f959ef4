"""A command group that knows its commands by name and one line of help, and imports one only when it is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click

from perdure.core.errors import InvalidFlag, PerdureError

# A group called without a command: its help, not a mistake to point out. Older versions of click print it themselves.
_HELP = getattr(click.exceptions, "NoArgsIsHelpError", ())


@dataclass(frozen=True, slots=True)
class Lazy:
    """Location of a command (`module:name`), and its line in the list of commands."""

    target: str
    summary: str

    def load(self) -> click.Command:
        module, _, name = self.target.partition(":")
        command = getattr(import_module(module), name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.target} is no command")
        return command


class CommandFailure(click.ClickException):
    """An error a person can act on: a plain line for each thing wrong, exit code 1, no traceback."""

    def show(self, file: Any = None) -> None:
        from perdure.cli.style import wrap_error

        for line in self.message.splitlines():
            click.echo(wrap_error(f"perdure: {line}"), file=file, err=file is None)


class WrongCall(CommandFailure):
    """A setting on the command line that is unknown or wrong, with the status of a wrong argument."""

    exit_code = 2


class Interrupted(CommandFailure):
    """Ctrl-C, with the status a shell gives it."""

    exit_code = 130


def _runnable(text: str) -> str:
    from perdure.cli.style import runnable  # only for what went wrong; the others need not wait for it

    return runnable(text)


def _wrap_usage(message: str) -> str:
    from perdure.cli.style import wrap_error

    return wrap_error(f"Error: {message}").removeprefix("Error: ")  # click adds the prefix again


class PlainGroup(click.Group):
    """A group that offers the nearest name for a mistyped one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        names = self.list_commands(ctx)
        if name and not name.startswith("-") and name not in names:
            from difflib import get_close_matches  # for the mistyped only; the others need not wait for it

            close = [f"--{name}"] if name in ("version", "help") else get_close_matches(name, names, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)


class LazyGroup(PlainGroup):
    """The root: commands from a table, and every error of Perdure's own shown as a plain line."""

    def __init__(
        self,
        *args: Any,
        commands_table: Mapping[str, Lazy],
        default: tuple[str, frozenset[str]] = ("", frozenset()),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._table = commands_table
        # The default command, and the options that select it.
        self._default, self._default_options = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for n, word in enumerate(args):
            if word.partition("=")[0] in self._default_options or word[:2] in self._default_options:
                return super().parse_args(ctx, [*args[:n], self._default, *args[n:]])
            if not word.startswith("-") and (n == 0 or args[n - 1] != "--set"):
                break
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = self._table.get(cmd_name)
        return lazy.load() if lazy else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.summary) for name, lazy in self._table.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PerdureError as error:
            kind = WrongCall if isinstance(error, InvalidFlag) else CommandFailure
            raise kind(_runnable(str(error))) from error
        except click.UsageError as error:
            if isinstance(error, _HELP):
                raise
            message = _runnable(error.format_message())
            ctx.find_root().info_name = _runnable("perdure chat").removesuffix(" chat")  # as in "Try 'perdure --help'"
            if error.ctx is not None and error.ctx.info_name == "chat" and "unexpected extra argument" in message:
                message += ". A question goes behind -q, in quotes."
            raise click.UsageError(_wrap_usage(message), error.ctx) from error
        except (KeyboardInterrupt, click.Abort):
            raise Interrupted("interrupted") from None
