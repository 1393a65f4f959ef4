"""A row of a table: which programs it is about, when it applies, and a sample that it catches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perdure.tools.shell_safety.invocation import Invocation

When = Callable[[Invocation], bool]


@dataclass(frozen=True, slots=True)
class RiskRule:
    """`programs` is a list of names in one string; "*" means every program."""

    kind: str
    programs: str
    when: When
    sample: str


def always(run: Invocation) -> bool:
    return True


def option(*names: str) -> When:
    """Any of the options."""
    return lambda run: run.has(*names)


def command(*words: str) -> When:
    """The sub-command, options in front of it passed over."""
    return lambda run: run.starts(*words)


def any_command(*names: str) -> When:
    """The first operand is one of these."""
    return lambda run: bool(run.operands) and run.operands[0] in names


def any_operand(*names: str) -> When:
    """One of the operands is one of these."""
    return lambda run: any(o in names for o in run.operands)


def both(*conditions: When) -> When:
    return lambda run: all(c(run) for c in conditions)


def either(*conditions: When) -> When:
    return lambda run: any(c(run) for c in conditions)


def unless(condition: When) -> When:
    return lambda run: not condition(run)


def is_dry_run(run: Invocation) -> bool:
    """Only shows what it would do."""
    shows = ("--dry-run", "--help", "--version", "--check", "--what-if")
    return any(o in shows for o in run.options) or "help" in run.operands[:1]


def is_help(run: Invocation) -> bool:
    return any(o in ("--help", "--version") for o in run.options) or run.args in (("-h",), ("-V",), ("-v",), ("help",))
