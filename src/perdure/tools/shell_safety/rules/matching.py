"""Match one invocation with all rules, and with what is known of its program."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from perdure.tools.shell_safety.invocation import Invocation
from perdure.tools.shell_safety.rules import (
    data,
    files,
    git,
    observation,
    packages,
    reach,
    remote,
    resource_exhaustion,
    secrets,
    sending,
    system,
    vocabulary,
)
from perdure.tools.shell_safety.rules.guards import default_dangers, is_text_tool
from perdure.tools.shell_safety.rules.rule import RiskRule, is_help, listed_rules
from perdure.tools.shell_safety.types import Danger

_RULES: tuple[RiskRule, ...] = (
    *files.RULES,
    *git.RULES,
    *system.RULES,
    *data.RULES,
    *remote.RULES,
    *secrets.RULES,
    *sending.RULES,
    *packages.RULES,
    *observation.RULES,
    *resource_exhaustion.RULES,
    *reach.RULES,
)

_READERS = (
    files.delete_dangers,
    files.write_dangers,
    data.statement_dangers,
    secrets.secret_dangers,
    reach.outside_dangers,
    reach.remote_database_dangers,
    vocabulary.stored_code_dangers,
    packages.installed_address_dangers,
)


@cache
def all_rules() -> tuple[RiskRule, ...]:
    """Return the rules of the modules and of the table."""
    return (*_RULES, *listed_rules("risky_commands.txt"))


def rule_dangers(run: Invocation, *, is_own: bool, is_script: bool) -> Iterator[Danger]:
    """Return the dangers of one invocation: those of its rules, or else that of a program not known to be harmless."""
    rules = _by_program().get(run.name, ())
    matches = [Danger(rule.kind, run.summary) for rule in rules if rule.when(run)]
    for dangers in _READERS:
        matches += dangers(run)
    if run.name.startswith("mkfs.") and not is_help(run):
        matches.append(Danger("disk", run.summary))
    # A program with rules is known, unless they only add to what is guarded.
    matches = matches or list(default_dangers(run, is_own=is_own or bool(rules), is_script=is_script))
    return iter(matches) if matches else vocabulary.option_dangers(run, is_text_tool=is_text_tool(run.name))


@cache
def _by_program() -> dict[str, tuple[RiskRule, ...]]:
    table: dict[str, tuple[RiskRule, ...]] = {}
    for rule in all_rules():
        for name in rule.programs.split():
            table[name] = (*table.get(name, ()), rule)
    return table
