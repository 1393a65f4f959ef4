"""`perdure permissions`: show the mode and rules that hold here, and trust a project's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click

from perdure.cli.lazy import PlainGroup
from perdure.cli.output import echo
from perdure.cli.style import runnable

EPILOG = """\b
Examples:
  perdure permissions show
  perdure permissions trust
  perdure permissions untrust
"""


@click.group(cls=PlainGroup, epilog=EPILOG)
def permissions() -> None:
    """Show what the model may do here, and trust a project's rules."""


@permissions.command()
@click.pass_obj
def show(flags: dict[str, str] | None) -> None:
    """Show the mode, the rules and the standing approvals that hold in this folder.

    \b
    Examples:
      perdure permissions show
    """
    from perdure.core.visibility import OWNER
    from perdure.tools.permissions import MODE_MEANINGS, TRUSTED_PROJECTS, load_permissions, read_project
    from perdure.tools.standing_approvals import approved_kinds, describe_standing_approvals

    with _open_store(flags) as (settings, store):
        trusted, kinds = store.state(TRUSTED_PROJECTS), approved_kinds(store.state("approvals"), OWNER)
        path = _project_file()
        project = read_project(path, trusted) if path is not None else None
        is_never_asked = settings.tools.approval == "never"
        present = load_permissions(settings.permissions, is_never_asked=is_never_asked, project=project)
    echo(f"mode   {present.mode}: {MODE_MEANINGS[present.mode]}")
    for name in ("deny", "ask", "allow"):
        for rule in getattr(present.rules, name):
            echo(f"{name:<6} {rule.text}  ({rule.origin})")
    for line in describe_standing_approvals(kinds):
        echo(runnable(line))
    if project is not None:
        echo(f"{project.path}: {'trusted' if project.is_trusted else 'not trusted, so it only makes rules stricter'}")
    for warning in present.warnings:
        echo(f"warning: {warning}")


@permissions.command()
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@click.pass_obj
def trust(flags: dict[str, str] | None, is_sure: bool) -> None:
    """Let this project's permissions file allow things, as it is now.

    It is shown first. When the file changes, it must be trusted again.

    \b
    Examples:
      perdure permissions trust
      perdure permissions trust --yes
    """
    from perdure.core.display import escape_invisible
    from perdure.tools.permissions import read_project

    path = _required_project_file()
    with _state(flags) as (_, trusted):
        project = read_project(path, trusted)
        if project.problem:
            raise click.ClickException(f"{path} cannot be read: {project.problem}")
        echo(f"{path}:\n\n{escape_invisible(path.read_text('utf-8', errors='replace')).rstrip()}\n")
        if not is_sure and not click.confirm("Trust these rules in this folder?"):
            raise click.ClickException("not trusted; nothing has changed.")
        trusted.set(str(path), project.digest)
    echo("Trusted, as long as the file stays as it is.")


@permissions.command()
@click.pass_obj
def untrust(flags: dict[str, str] | None) -> None:
    """Take that trust back: the project's file then only makes rules stricter.

    \b
    Examples:
      perdure permissions untrust
    """
    path = _required_project_file()
    with _state(flags) as (_, trusted):
        is_known = trusted.get(str(path)) is not None
        trusted.set(str(path), None)
    echo(f"{path} is no longer trusted." if is_known else f"{path} was not trusted.")


def _project_file() -> Path | None:
    from perdure.tools.permissions import find_project_file

    return find_project_file(Path.cwd(), Path.home())


def _required_project_file() -> Path:
    from perdure.tools.permissions import PROJECT_FILE

    path = _project_file()
    if path is None:
        raise click.UsageError(f"there is no {PROJECT_FILE} in this folder or above it.")
    return path


@contextmanager
def _state(flags: dict[str, str] | None) -> Iterator[tuple[Any, Any]]:
    from perdure.tools.permissions import TRUSTED_PROJECTS

    with _open_store(flags) as (settings, store):
        yield settings, store.state(TRUSTED_PROJECTS)


@contextmanager
def _open_store(flags: dict[str, str] | None) -> Iterator[tuple[Any, Any]]:
    from perdure.config.load import load
    from perdure.store.store import open_user_store

    loaded = load(flags=flags or {})
    with closing(open_user_store(loaded.settings, loaded.home)) as store:
        yield loaded.settings, store
