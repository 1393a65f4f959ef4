"""Command groups that list their commands by name and one line of help, and import one only when it is called."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click

from perdure.core.errors import InvalidFlag, PerdureError, UnknownConversation

# A group called without a command: its help, not a mistake to point out. Older versions of click print it themselves.
_HELP = getattr(click.exceptions, "NoArgsIsHelpError", ())

# Standard output goes to a full or failing disk.
_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
# More characters than the first sentence of any help.
_NO_LIMIT = 1_000


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
        from perdure.cli.output import fit

        for line in self.message.splitlines():
            click.echo(fit(f"perdure: {line}", err=True), file=file, err=file is None)


class WrongCall(CommandFailure):
    """An `InvalidFlag` as the command line reports it: the command was called wrongly; exit code 2."""

    exit_code = 2


class Interrupted(CommandFailure):
    """Ctrl-C, with the status a shell gives it."""

    exit_code = 130


def _runnable(text: str) -> str:
    from perdure.cli.style import runnable  # only for what went wrong; the others need not wait for it

    return runnable(text)


def _plain_usage_error(error: click.UsageError, ctx: click.Context) -> click.UsageError:
    """Return an error of a call with its commands as they can be typed here, wrapped for the terminal."""
    from perdure.cli.output import fit
    from perdure.cli.style import program_name

    message = _runnable(error.format_message())
    ctx.find_root().info_name = program_name()  # as in "Try 'perdure --help'"
    if error.ctx is not None and error.ctx.info_name == "chat" and "unexpected extra argument" in message:
        message += ". A question goes behind -q, in quotes."
    if isinstance(error, click.BadOptionUsage) and error.option_name in ("-q", "--question"):
        message += " Or pipe the question in, without -q."
    text = fit(f"Error: {message}", err=True).removeprefix("Error: ")  # click adds the prefix again
    return click.UsageError(text, error.ctx)


class PlainContext(click.Context):
    """Context of a command whose help is laid out for the terminal."""

    def make_formatter(self) -> click.HelpFormatter:
        from perdure.cli.help import HelpFormatter  # for help only; the others need not wait for it

        return HelpFormatter(width=self.terminal_width)


class PlainGroup(click.Group):
    """A group that offers the nearest name for a mistyped one."""

    context_class = PlainContext

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            command.context_class = PlainContext
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.command_rows(ctx)))

    def command_rows(self, ctx: click.Context) -> Iterator[tuple[str, str]]:
        """Yield each command with the first sentence of its help, never shortened for a narrow terminal."""
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                yield name, command.get_short_help_str(limit=_NO_LIMIT)

    def default_command(self) -> click.Command | None:
        """Return the command that runs where none is named; None where that is an error."""
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        names = self.list_commands(ctx)
        if name and not name.startswith("-") and name not in names:
            from perdure.cli.help import suggestion  # for the mistyped only

            ctx.fail(f"No such command {name!r}.{suggestion(name, ctx, default=self.default_command())}")
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
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from perdure.cli.help import option_names

            commands = [command for command in (self, self.default_command()) if command is not None]
            near = click.NoSuchOption(error.option_name, possibilities=option_names(*commands), ctx=error.ctx)
            raise _plain_usage_error(near, ctx) from None
        except click.UsageError as error:
            raise error if isinstance(error, _HELP) else _plain_usage_error(error, ctx) from None

    def default_command(self) -> click.Command | None:
        return self._table[self._default].load() if self._default else None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = self._table.get(cmd_name)
        if lazy is None:
            return None
        command = lazy.load()
        command.context_class = PlainContext
        return command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if (command := self.default_command()) is not None:
            from perdure.cli.help import option_rows

            with formatter.section(f"Options of `{command.name}`, which runs where no command is named"):
                formatter.write_dl(option_rows(command, ctx))
        super().format_options(ctx, formatter)

    def command_rows(self, ctx: click.Context) -> Iterator[tuple[str, str]]:
        yield from ((name, lazy.summary) for name, lazy in self._table.items())

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PerdureError as error:
            kind = WrongCall if isinstance(error, InvalidFlag) else CommandFailure
            hint = "; `perdure sessions list` shows all" if isinstance(error, UnknownConversation) else ""
            raise kind(_runnable(f"{error}{hint}")) from error
        except click.UsageError as error:
            if isinstance(error, _HELP):
                raise
            raise _plain_usage_error(error, ctx) from error
        except click.ClickException as error:
            raise CommandFailure(error.message) if type(error) is click.ClickException else error from error
        except (KeyboardInterrupt, click.Abort):
            raise Interrupted("interrupted") from None
        except BrokenPipeError:
            from perdure.cli.exit import UNREAD

            raise SystemExit(UNREAD) from None
        except OSError as error:
            if error.filename is not None or error.errno not in _UNWRITABLE:
                raise
            raise CommandFailure(f"the output cannot be written: {error.strerror}") from None
