"""`perdure sessions delete|scrub`: the only two ways anything stored is ever taken away or changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from perdure.store.store import SessionStore


@click.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(flags: dict[str, str], ids: tuple[str, ...], yes: bool) -> None:
    """Take conversations away for good: messages, usage, tool outputs.

    Branches made of one stay. There is no way back but a backup.

    \b
    Examples:
      perdure sessions delete c_1m7g
      perdure sessions delete --yes c_1m7g c_1m7h
    """
    from perdure.cli.opened import opened

    with opened(flags) as store:
        found = [store.conversations.get(any_id) for any_id in ids]  # a wrong id is told before anything is deleted
        for c in found:
            named = f" “{c.title}”" if c.title else ""
            if not yes and not click.confirm(f"Delete {c.id}{named}, {c.last_seq:,} messages, for good?", err=True):
                click.echo(f"{c.id} was kept")
                continue
            gone = store.delete(c.id)
            click.echo(f"{c.id} deleted: {gone.messages:,} messages, {gone.outputs:,} tool outputs")


@click.command()
@click.argument("ids", metavar="ID...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Every conversation there is.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def scrub(flags: dict[str, str], ids: tuple[str, ...], every: bool, yes: bool) -> None:
    """Take secrets out of what is stored: messages, prompts, titles, events, tool outputs and the index.

    What looks like a credential is replaced by [REDACTED] for good. The conversation goes on as before.

    \b
    Examples:
      perdure sessions scrub c_1m7g
      perdure sessions scrub --all --yes
    """
    from perdure.cli.opened import opened
    from perdure.redaction import redact

    if bool(ids) == every:
        raise click.UsageError("Name conversations, or say --all.")
    with opened(flags) as store:
        wanted = [store.conversations.get(any_id).id for any_id in ids] if ids else list(_all_ids(store))
        if not yes and not click.confirm(f"Redact {len(wanted)} conversation(s) for good?", err=True):
            click.echo("nothing was changed")
            return
        for any_id in wanted:
            done = store.scrub(any_id, redact)
            click.echo(f"{any_id}: {done.messages:,} messages and {done.outputs:,} tool outputs held secrets")


def _all_ids(store: SessionStore) -> Iterator[str]:
    """Every conversation, delegated runs included, page by page."""
    for kind in ("main", "branch", "delegate"):
        cursor: str | None = None
        while True:
            page = store.conversations.list(kind=kind, cursor=cursor, limit=500)
            yield from (c.id for c in page.conversations)
            cursor = page.next_cursor
            if cursor is None:
                break
