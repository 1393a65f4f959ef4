"""`perdure approvals`: list and revoke what was allowed with "always"."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import click

from perdure.cli.lazy import PlainGroup
from perdure.cli.output import echo, echo_hint, echo_table
from perdure.core.visibility import user_from_key

EPILOG = """\b
Examples:
  perdure approvals list
  perdure approvals revoke delete-tree
  perdure approvals revoke --all
"""


@click.group(cls=PlainGroup, epilog=EPILOG)
def approvals() -> None:
    """List and revoke what was allowed for good."""


@approvals.command("list")
@click.option("--user", "user_key", metavar="KEY", help="A user of the gateway; by default the owner.")
@click.pass_obj
def list_(flags: dict[str, str] | None, user_key: str | None) -> None:
    """List the kinds of actions that are no longer asked about.

    \b
    Examples:
      perdure approvals list
      perdure approvals list --user alice
    """
    from perdure.tools.standing_approvals import approved_kinds, explain_kind

    user = user_from_key(user_key or "")
    with _open_stored_approvals(flags) as state:
        kinds = approved_kinds(state, user)
    if kinds:
        echo_table([(f"{kind:<19}", explain_kind(kind)) for kind in kinds])
        name = shlex.quote(kinds[0]) if len(kinds) == 1 else "NAME"
        echo_hint("Ask about one again:", f"perdure approvals revoke {name}")
    else:
        echo("Nothing is allowed for good: every dangerous action is asked about.")


@approvals.command()
@click.argument("kinds", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Revoke all of them.")
@click.option("--user", "user_key", metavar="KEY", help="A user of the gateway; by default the owner.")
@click.pass_obj
def revoke(flags: dict[str, str] | None, kinds: tuple[str, ...], is_all: bool, user_key: str | None) -> None:
    """Ask about these kinds of actions again, from the next call on.

    \b
    Examples:
      perdure approvals revoke delete-tree git-push
      perdure approvals revoke --all
    """
    if bool(kinds) == is_all:
        raise click.UsageError("name the kinds to revoke, or --all; `perdure approvals list` shows them.")
    from perdure.tools.standing_approvals import approved_kinds

    user = user_from_key(user_key or "")
    with _open_stored_approvals(flags) as state:
        before = approved_kinds(state, user)
        unknown = [kind for kind in kinds if kind not in before]
        if unknown:
            raise click.UsageError(
                f"{', '.join(unknown)}: not allowed for good; `perdure approvals list` shows what is."
            )
        remaining = [] if is_all else [kind for kind in before if kind not in kinds]
        state.set(user.stored_key, remaining or None)
    revoked = [kind for kind in before if kind not in remaining]
    echo(f"Revoked: {', '.join(revoked)}" if revoked else "There was nothing to revoke.")


@contextmanager
def _open_stored_approvals(flags: dict[str, str] | None) -> Iterator[Any]:
    from perdure.config.load import load
    from perdure.store.store import open_user_store

    loaded = load(flags=flags or {})
    with closing(open_user_store(loaded.settings, loaded.home)) as store:
        yield store.state("approvals")
