"""`perdure usage` and `perdure insights`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from perdure.cli.output import echo, echo_json
from perdure.cli.style import runnable
from perdure.config.load import load
from perdure.config.settings import Settings
from perdure.store.records import Totals
from perdure.store.store import SessionStore, open_user_store


@contextmanager
def open_cli_store(flags: Mapping[str, Any] | None) -> Iterator[SessionStore]:
    """Open the store that the settings name, and close it at the end of the `with` block."""
    with _open_settings(flags) as (_, store):
        yield store


@contextmanager
def _open_settings(flags: Mapping[str, Any] | None) -> Iterator[tuple[Settings, SessionStore]]:
    loaded = load(flags=flags or {})
    with open_user_store(loaded.settings, loaded.home) as store:
        yield loaded.settings, store


@click.command()
@click.argument("any_id", metavar="[ID]", required=False)
@click.option("--json", "as_json", is_flag=True, help="One line of JSON.")
@click.pass_obj
def usage(flags: dict[str, str], any_id: str | None, as_json: bool) -> None:
    """Show tokens and cost of a conversation, by default the last one.

    With --json, cost_usd leaves out the unpriced_calls, and is null where no price is known.

    \b
    Examples:
      perdure usage
      perdure usage c_1m7g
      perdure usage --json
    """
    from perdure.commands.context import conversation_lines

    with _open_settings(flags) as (settings, store):
        if any_id is None:
            newest = store.conversations.list(limit=1).conversations
            if not newest:
                echo(runnable("There are no conversations yet; `perdure chat` begins one."), err=as_json)
                return
            any_id = newest[0].id
        conversation = store.conversations.get(any_id)
        if as_json:
            totals = store.ledger.totals(conversation.id)
            echo_json({"id": conversation.id, "title": conversation.title, **_totals_json(totals)})
            return
        echo(f"{conversation.id}  {conversation.title or '–'}")
        echo(runnable("\n".join(conversation_lines(store, conversation.id, settings))))


@click.command()
@click.argument("days", type=click.IntRange(1, 36_500), default=30)
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each row.")
@click.pass_obj
def insights(flags: dict[str, str], days: int, as_json: bool) -> None:
    """Show totals of the last DAYS by day, model, surface and task.

    DAYS is 30 where it is not given. Fresh input, input read from a cache and output are counted apart: what is cached
    costs a fraction.

    \b
    Examples:
      perdure insights
      perdure insights 7
    """
    from perdure.commands.context import insights_text, usage_by_group
    from perdure.core.visibility import Everyone

    with open_cli_store(flags) as store:
        if as_json:
            for group, rows in usage_by_group(store, days, visibility=Everyone()).items():
                for row in rows:
                    echo_json({"by": group, group: row.group, **_totals_json(row.totals)})
            return
        echo(insights_text(store, days, visibility=Everyone()))


def _totals_json(totals: Totals) -> dict[str, Any]:
    """Return totals as a dict, with the token counts at the same level as the other figures."""
    figures = asdict(totals)
    used = figures.pop("usage")
    del used["reported"]  # for sums: unreported_calls
    return {**used, **figures}
