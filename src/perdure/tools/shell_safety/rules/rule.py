"""Rules: the programs they apply to, a condition, and a sample command that matches; rules of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files

from perdure.tools.shell_safety.invocation import Invocation

When = Callable[[Invocation], bool]


@dataclass(frozen=True, slots=True)
class RiskRule:
    """A rule for the space-separated `programs`."""

    kind: str
    programs: str
    when: When
    sample: str


def both(*conditions: When) -> When:
    return lambda run: all(c(run) for c in conditions)


def unless(condition: When) -> When:
    return lambda run: not condition(run)


def is_dry_run(run: Invocation) -> bool:
    """Whether the command only displays what it would do."""
    shows = ("--dry-run", "--help", "--check", "--what-if")
    return any(o in shows for o in run.options) or "help" in (*run.operands[:1], *run.operands[-1:]) or run.asks_version


def is_help(run: Invocation) -> bool:
    return run.asks_help


def git_subcommand(run: Invocation) -> tuple[str, Invocation]:
    """Return the sub-command and its invocation, skipping global options such as `-C dir`."""
    args, at = run.args, 0
    while at < len(args) and args[at].startswith("-"):
        at += 2 if args[at] in ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path") else 1
    name = args[at] if at < len(args) else ""
    return name, Invocation(name, args[at + 1 :], run.zones, run.stdin)


def read_table(name: str) -> dict[str, list[str]]:
    """Return the lines of each section of a table in this folder, without comments."""
    sections: dict[str, list[str]] = {}
    title = ""
    for line in files(__package__).joinpath(name).read_text(encoding="utf-8").splitlines():
        if line.startswith("[") and line.endswith("]") and len(line) > 3:
            title = line[1:-1]
        elif line and not line.startswith("#"):
            sections.setdefault(title, []).append(line)
    return sections


def table_rows(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield what is before and after the bar of each row; a row starts with a dash and may have several lines."""
    for row in "\n".join(("", *lines)).split("\n- ")[1:]:
        before, _, after = row.partition("|")
        yield before, after


def listed_rules(name: str) -> tuple[RiskRule, ...]:
    """Return the rules of a table: programs, and the options and commands of theirs that need approval."""
    return tuple(
        RiskRule(
            kind, programs, _has_any(words.split()), f"{programs.split()[0]} {words.split()[0].removeprefix('*.')}"
        )
        for kind, lines in read_table(name).items()
        for programs, words in table_rows(lines)
    )


def _has_any(words: list[str]) -> When:
    options = [w for w in words if w.startswith("-")]
    commands = {w for w in words if not w.startswith(("-", "*."))}
    anywhere = {w[2:] for w in words if w.startswith("*.")}

    def matches(run: Invocation) -> bool:
        paths = (".".join(run.operands[:n]) for n in range(1, 4))
        return not is_dry_run(run) and (
            run.has(*options) or any(p in commands for p in paths) or not anywhere.isdisjoint(run.operands)
        )

    return matches
