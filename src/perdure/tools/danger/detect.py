"""The one question: what in this command should a person be asked about?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from perdure.tools.danger.budget import Budget, Unreadable
from perdure.tools.danger.code import CodeReading
from perdure.tools.danger.kinds import Danger
from perdure.tools.danger.places import PathZones
from perdure.tools.danger.rules import data, files, git, remote, secrets, system
from perdure.tools.danger.rules.rule import RiskRule
from perdure.tools.danger.run import Invocation
from perdure.tools.danger.scope import ShellVariables
from perdure.tools.danger.sql import deleting_statements
from perdure.tools.danger.walk import Walker

RULES: tuple[RiskRule, ...] = (*files.RULES, *git.RULES, *system.RULES, *data.RULES, *remote.RULES, *secrets.RULES)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a command would run: the workspace, the shell's folder and environment (None: not known), the home."""

    workspace: Path
    folder: Path
    home: Path
    environment: Mapping[str, str] | None = None
    # Follows symbolic links on the disk; by default a path is what its letters say.
    follow_links: Callable[[str], str] = str


def find_dangers(command: str, where: Surroundings) -> tuple[Danger, ...]:
    """Everything dangerous in a shell command, each kind once, worst kept first as met. Runs nothing, never raises."""
    dangers: list[Danger] = []
    try:
        budget = Budget(len(command))
        places = PathZones.at(where.workspace, where.folder, where.home, where.follow_links)
        walker = Walker(places, budget, _judged, _judged_code)
        dangers = walker.dangers
        walker.walk(command, ShellVariables(where.environment, where.home.as_posix(), budget))
    except (Unreadable, RecursionError):
        dangers.append(Danger("unreadable", " ".join(command[:2_000].split())[:120]))
    unique = {d.kind: d for d in reversed(dangers)}
    return tuple(reversed(unique.values()))


def _judged(run: Invocation) -> Iterator[Danger]:
    for rule in _by_program().get(run.name, ()):
        if rule.when(run):
            yield Danger(rule.kind, run.shown)
    yield from files.delete_dangers(run)
    yield from files.write_dangers(run)
    yield from data.statement_dangers(run)
    yield from secrets.secret_dangers(run)
    if run.name.startswith("mkfs."):
        yield Danger("disk", run.shown)


def _judged_code(reading: CodeReading, run: Invocation) -> Iterable[Danger]:
    for path in reading.deletes:
        yield from files.tree_dangers(run, path)
    if any(next(deleting_statements(s), None) for s in reading.statements):
        yield Danger("database", run.shown)


@cache
def _by_program() -> dict[str, tuple[RiskRule, ...]]:
    table: dict[str, tuple[RiskRule, ...]] = {}
    for rule in RULES:
        for name in rule.programs.split():
            table[name] = (*table.get(name, ()), rule)
    return table
