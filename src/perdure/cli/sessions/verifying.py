"""`perdure sessions verify`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from perdure.store.records import Damage
    from perdure.store.store import SessionStore


@click.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.pass_obj
def verify(flags: dict[str, str], ids: tuple[str, ...]) -> None:
    """Check stored messages for damage: all of them, or those of some conversations.

    Every message has a hash of its text and of all before it. A message that was changed on the disk, or cannot be read
    any more, is named with its conversation; the others are not affected. Reads only. Exit status 1 where something is
    damaged.

    \b
    Examples:
      perdure sessions verify
      perdure sessions verify c_1m7g
    """
    from perdure.cli.opened import opened

    with opened(flags) as store:
        if ids:
            what, damage = ", ".join(ids), [d for any_id in ids for d in store.verifier.conversation(any_id)]
        else:
            what, damage = _verify_everything(store)
    for one in damage:
        click.echo(str(one))
    if damage:
        click.echo("Restore these messages from a backup; `perdure sessions show` opens the rest.", err=True)
        raise SystemExit(1)
    click.echo(f"{what}: no damage found")


def _verify_everything(store: SessionStore) -> tuple[str, list[Damage]]:
    count = 0
    damage: list[Damage] = []
    for batch in store.verifier.everything():
        count += batch.messages
        damage += batch.damage
        if sys.stderr.isatty():
            click.echo(f"\r{count:,} messages … (Ctrl-C cancels)", nl=False, err=True)
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)
    return f"{count:,} messages", damage
