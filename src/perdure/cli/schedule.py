"""`perdure schedule`: manage prompts that a gateway runs on a schedule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from perdure.cli.gateway import Duration, translate_import_errors
from perdure.cli.lazy import PlainGroup
from perdure.cli.output import echo
from perdure.cli.style import runnable

if TYPE_CHECKING:
    from perdure.store.schedules import Schedule, ScheduleRun
    from perdure.store.store import SessionStore

EPILOG = """\b
Examples:
  perdure schedule add "Check that the build is green." --every 1h
  perdure schedule add "Write the weekly report." --cron "0 9 * * MON" --timezone Europe/Berlin
  perdure schedule list
  perdure schedule run check-that-the-build-is-green
  perdure schedule remove check-that-the-build-is-green

\b
Runs start while `perdure gateway` or `perdure serve` is running. No one is asked: what needs
approval is refused, unless --allow names it. Each run is a conversation of its own
(`perdure sessions list --source schedule`).
"""
_MAX_PROMPT_CHARS, _MAX_NAME_CHARS, _MAX_RULES = 100_000, 60, 50


@click.group(cls=PlainGroup, epilog=EPILOG)
def schedule() -> None:
    """Run prompts by the clock."""


@schedule.command()
@click.argument("prompt")
@click.option("--every", "every_ms", type=Duration(), metavar="1h", help="Interval: 15m, 1h, 1d; at least 1m.")
@click.option("--cron", metavar="EXPRESSION", help="Minute, hour, day, month, weekday: '0 9 * * 1-5'; or @daily.")
@click.option("--timezone", metavar="ZONE", help="Time zone of --cron, like Europe/Berlin. Default: this machine's.")
@click.option("--model", metavar="NAME", help="Model of its runs: model or provider/model. Default: model.name.")
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    default=".",
    help="Folder its runs work in. Default: the current one.",
)
@click.option("--name", help="Name for list, run and remove. Default: the first words of the prompt.")
@click.option(
    "--allow",
    "allowed",
    multiple=True,
    metavar="TOOL",
    help="Allow a tool in advance, or some of its calls: terminal, 'terminal(git push *)'; may be repeated.",
)
@click.pass_obj
def add(
    flags: dict[str, Any] | None,
    prompt: str,
    every_ms: int | None,
    cron: str | None,
    timezone: str | None,
    model: str | None,
    folder: str,
    name: str | None,
    allowed: tuple[str, ...],
) -> None:
    """Add a schedule that runs PROMPT at an interval or by a cron expression.

    \b
    Examples:
      perdure schedule add "Check that the build is green." --every 1h
      perdure schedule add "Write the weekly report." --cron "0 9 * * MON" --timezone Europe/Berlin
      perdure schedule add "Fetch and rebase." --every 1d --name rebase --allow "terminal(git *)"
    """
    from perdure.cli.usage import open_cli_store
    from perdure.config.env import local_timezone
    from perdure.core.concurrency import SystemClock
    from perdure.core.errors import ConfigError
    from perdure.store.schedules import NewSchedule

    with translate_import_errors():
        from perdure.gateway.workers.recurrence import Recurrence
        from perdure.gateway.workers.scheduler import format_time

    if (every_ms is None) == (cron is None):
        raise click.UsageError("give either --every or --cron.")
    _check(prompt, name, allowed)
    _check_tools(flags, folder, allowed)
    zone = timezone or local_timezone()
    try:
        recurrence = Recurrence(every_ms=every_ms, cron=cron, timezone=zone)
    except ConfigError as error:
        raise click.UsageError(f"{error}.") from None
    next_at_ms = recurrence.next_after(SystemClock().now_ms())
    new = NewSchedule(prompt, zone, next_at_ms, every_ms, recurrence.cron, name, model, allowed, folder=folder)
    with open_cli_store(flags) as store:
        added = store.schedules.add(new)
    echo(f"Added {added.name}: {_recurrence(added)}, first at {format_time(next_at_ms, zone)}.")
    echo(runnable("It runs while `perdure gateway` or `perdure serve` is running."))


def _check(prompt: str, name: str | None, allowed: tuple[str, ...]) -> None:
    """Raise click.UsageError for a schedule that cannot be stored."""
    from perdure.config.settings import PermissionsSettings
    from perdure.core.errors import ConfigError
    from perdure.tools.permissions import parse_rules

    if not prompt.strip():
        raise click.UsageError("the prompt is empty.")
    if len(prompt) > _MAX_PROMPT_CHARS:
        raise click.UsageError(f"a prompt has at most {_MAX_PROMPT_CHARS:,} characters; put the rest into a file.")
    if name is not None and (not name.strip() or len(name) > _MAX_NAME_CHARS or not name.isprintable()):
        raise click.UsageError(f"a name has 1 to {_MAX_NAME_CHARS} printable characters.")
    if len(allowed) > _MAX_RULES:
        raise click.UsageError(f"at most {_MAX_RULES} rules can be allowed.")
    try:
        parse_rules(PermissionsSettings(allow=allowed), "--allow")
    except (ConfigError, ValueError) as error:
        raise click.UsageError(f"{error}.") from None


def _check_tools(flags: dict[str, Any] | None, folder: str, allowed: tuple[str, ...]) -> None:
    """Raise click.UsageError for a rule about a tool that does not exist, with similar names."""
    from difflib import get_close_matches

    from perdure.config.settings import PermissionsSettings
    from perdure.tools.permissions import parse_rules

    # The tools of MCP servers are known only once those are started.
    rules = [r for r in parse_rules(PermissionsSettings(allow=allowed), "--allow").allow if "__" not in r.tool]
    names = _tool_names(flags, folder) if rules else []
    for rule in rules:
        if not any(map(rule.is_about, names)):
            near = get_close_matches(rule.tool, names, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(names)}."
            raise click.UsageError(f"--allow: no tool is called {rule.tool!r}; {hint}")


def _tool_names(flags: dict[str, Any] | None, folder: str) -> list[str]:
    """Return the names of the tools that a run in this folder has, without those of MCP servers."""
    from pathlib import Path

    from perdure.app.build import trial_agent
    from perdure.config.load import load

    loaded = load(flags=flags or {})
    with trial_agent(loaded.settings, home=loaded.home, folder=Path(folder)) as agent:
        return sorted(tool.name for tool in agent.deps.tools.registry)


@schedule.command("list")
@click.argument("name", required=False)
@click.pass_obj
def list_(flags: dict[str, Any] | None, name: str | None) -> None:
    """List the schedules: when each is due, and how its last run ended; with NAME, the runs of one.

    \b
    Examples:
      perdure schedule list
      perdure schedule list rebase
    """
    from perdure.cli.style import safe
    from perdure.cli.usage import open_cli_store

    with translate_import_errors():
        from perdure.gateway.workers.scheduler import record_outcomes

    with open_cli_store(flags) as store:
        record_outcomes(store)
        lines = list(_schedule_lines(store) if name is None else _run_lines(store, store.schedules.get(name)))
    echo(safe("\n".join(lines)))


def _schedule_lines(store: SessionStore) -> Iterator[str]:
    from perdure.gateway.workers.scheduler import describe_missed, format_time, locate_run

    schedules = store.schedules.all()
    if not schedules:
        yield runnable('No schedules yet. `perdure schedule add "…" --every 1h` adds one.')
    for each in schedules:
        yield f"{each.name}  {_recurrence(each)}, next {format_time(each.next_at_ms, each.timezone)}"
        yield f"  prompt   {_one_line(each.prompt)}"
        if each.folder:
            yield f"  folder   {each.folder}"
        if each.model:
            yield f"  model    {each.model}"
        if each.allowed:
            yield f"  allowed  {', '.join(each.allowed)}"
        for run in store.schedules.runs(each, limit=1):
            lines = _describe(locate_run(store, run), each)
            yield from (f"  {label}{line}" for label, line in zip(_labels("last"), lines, strict=False))
        if each.missed is not None:
            yield f"  missed   {describe_missed(each.missed, each.timezone)}"


def _run_lines(store: SessionStore, schedule: Schedule) -> Iterator[str]:
    from perdure.gateway.workers.scheduler import locate_run

    runs = store.schedules.runs(schedule, limit=20)
    if not runs:
        yield f"{schedule.name} has not run yet."
    for run in runs:
        first, *others = _describe(locate_run(store, run), schedule)
        yield first
        yield from (f"  {line}" for line in others)


def _labels(first: str) -> Iterator[str]:
    yield f"{first:<9}"
    while True:
        yield " " * 9


def _describe(run: ScheduleRun, schedule: Schedule) -> Iterator[str]:
    """Yield the lines of a run in the list: how it ended, then details."""
    from perdure.gateway.workers.scheduler import describe_missed, format_time

    how = run.outcome or "running, or waiting for a gateway"
    by_hand = ", by hand" if run.is_manual else ""
    where = f"  {run.conversation_id}" if run.conversation_id else ""
    yield f"{format_time(run.due_at_ms, schedule.timezone)}  {how}{by_hand}{where}"
    if run.missed is not None:
        yield describe_missed(run.missed, schedule.timezone)
    yield from (_one_line(line, 300) for line in run.detail.splitlines())


@schedule.command()
@click.argument("name")
@click.pass_obj
def remove(flags: dict[str, Any] | None, name: str) -> None:
    """Remove a schedule by its name or id; its conversations stay.

    \b
    Examples:
      perdure schedule remove rebase
    """
    from perdure.cli.style import safe
    from perdure.cli.usage import open_cli_store

    with open_cli_store(flags) as store:
        removed = store.schedules.get(name)
        store.schedules.remove(removed)
    echo(safe(f"Removed {removed.name}."))


@schedule.command()
@click.argument("name")
@click.pass_obj
def run(flags: dict[str, Any] | None, name: str) -> None:
    """Run a schedule now, in this process, and print the answer; its next due time stays.

    As in a scheduled run no one is asked, so this shows what --allow has to name. Ctrl-C stops it.

    \b
    Examples:
      perdure schedule run rebase
    """
    import asyncio

    from perdure.cli.lazy import CommandFailure
    from perdure.cli.style import safe
    from perdure.config.load import load
    from perdure.store.store import open_user_store

    with translate_import_errors():
        from perdure.gateway.server import run_schedule
        from perdure.gateway.workers.scheduler import finished_run

    loaded = load(flags=flags or {})
    with open_user_store(loaded.settings, loaded.home) as store:
        chosen = store.schedules.get(name)
        finished = asyncio.run(run_schedule(loaded.settings, loaded.home, store, chosen))
        record = finished_run(store, chosen, finished)
    result = finished.result or {}
    if text := str(result.get("text") or ""):
        echo(safe(text))
    echo(safe("\n".join(_describe(record, chosen))), err=True)
    if not (record.outcome or "").startswith("completed"):
        raise CommandFailure(f"the run of {chosen.name} was not completed")


def _recurrence(schedule: Schedule) -> str:
    if schedule.cron is not None:
        return f"cron {schedule.cron!r} in {schedule.timezone}"
    minutes = (schedule.every_ms or 0) // 60_000
    for unit, size in (("d", 1_440), ("h", 60)):
        if minutes % size == 0:
            return f"every {minutes // size}{unit}"
    return f"every {minutes}m"


def _one_line(text: str, limit: int = 100) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
