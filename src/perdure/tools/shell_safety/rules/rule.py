"""Rules: the programs they apply to, a condition, and a sample command that matches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perdure.tools.shell_safety.invocation import Invocation

When = Callable[[Invocation], bool]


@dataclass(frozen=True, slots=True)
class RiskRule:
    """A rule for the space-separated `programs`."""

    kind: str
    programs: str
    when: When
    sample: str


def always(run: Invocation) -> bool:
    """Match every invocation."""
    return True


def option(*names: str) -> When:
    """Match any of the options."""
    return lambda run: run.has(*names)


def command(*words: str) -> When:
    """Match a sub-command, ignoring options before it."""
    return lambda run: run.starts(*words)


def any_command(*names: str) -> When:
    """Match if the first operand is one of these."""
    return lambda run: bool(run.operands) and run.operands[0] in names


def any_operand(*names: str) -> When:
    """Match if any operand is one of these."""
    return lambda run: any(o in names for o in run.operands)


def both(*conditions: When) -> When:
    return lambda run: all(c(run) for c in conditions)


def either(*conditions: When) -> When:
    return lambda run: any(c(run) for c in conditions)


def unless(condition: When) -> When:
    return lambda run: not condition(run)


def is_dry_run(run: Invocation) -> bool:
    """Whether the command only displays what it would do."""
    shows = ("--dry-run", "--help", "--check", "--what-if")
    return (
        any(o in shows for o in run.options) or "help" in (*run.operands[:1], *run.operands[-1:]) or _asks_version(run)
    )


def is_help(run: Invocation) -> bool:
    return "--help" in run.options or _asks_version(run) or run.args in (("-h",), ("-V",), ("-v",), ("help",))


def _asks_version(run: Invocation) -> bool:
    """Whether `--version` has no value; with one it selects a version, as in `cargo yank --version 1.0`."""
    return run.args[-1:] == ("--version",) or (run.args[:1] == ("--version",) and not run.operands)


def git_subcommand(run: Invocation) -> tuple[str, Invocation]:
    """Return the sub-command and its invocation, skipping global options such as `-C dir`."""
    args, at = run.args, 0
    while at < len(args) and args[at].startswith("-"):
        at += 2 if args[at] in ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path") else 1
    name = args[at] if at < len(args) else ""
    return name, Invocation(name, args[at + 1 :], run.zones, run.stdin)
