"""`perdure sessions list|show|search`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from perdure.core.messages import Entry
    from perdure.store.records import Conversation
    from perdure.store.store import SessionStore

_PAGE_CHARS = 100_000


@click.command("list")
@click.option("-n", "--limit", type=click.IntRange(1, 1_000), default=20, show_default=True, help="How many.")
@click.option("--source", metavar="NAME", help="Only those of one surface: terminal, library, gateway, …")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each.")
@click.pass_obj
def list_(flags: dict[str, str], limit: int, source: str | None, as_json: bool) -> None:
    """List conversations, last used first.

    \b
    Examples:
      perdure sessions list
      perdure sessions list -n 100 --source terminal
      perdure sessions list --json
    """
    from perdure.cli.opened import opened
    from perdure.commands.figures import when

    with opened(flags) as store:
        page = store.conversations.list(source=source, limit=limit)
    for c in page.conversations:
        if as_json:
            click.echo(json.dumps(asdict(c), ensure_ascii=False))
        else:
            kind = "" if c.kind == "main" else f" ({c.kind})"
            _print(f"{c.id}  {when(c.updated_at_ms)}  {c.last_seq:>6,} {_messages(c.last_seq)}  {c.title or '–'}{kind}")
    if as_json:
        return
    if not page.conversations:
        click.echo("There are no conversations yet; `perdure chat` begins one.")
    elif page.next_cursor:
        click.echo(f"… and older ones; -n {min(1_000, limit * 5)} shows more.")


@click.command()
@click.argument("any_id", metavar="ID")
@click.argument("address", required=False)
@click.option("--view", is_flag=True, help="As the model sees it now: handoffs in place of what they stand for.")
@click.pass_obj
def show(flags: dict[str, str], any_id: str, address: str | None, view: bool) -> None:
    """Print a conversation, or what an ADDRESS in it stands for.

    Everything that was ever said is shown, in order; compactions take nothing away. An address is what a handoff, a
    search or a spilled tool output names: m:120, m:120-180, h:501, output:o_…

    \b
    Examples:
      perdure sessions show c_1m7g
      perdure sessions show c_1m7g m:120-180
      perdure sessions show c_1m7g --view
    """
    from perdure.cli.opened import opened
    from perdure.store.records import damage_notice

    with opened(flags) as store:
        if address:
            _print_address(store, any_id, address)
            return
        conversation = store.conversations.get(any_id)
        tip = conversation.tip_session_id
        entries = store.history(tip).entries if view else store.log.said(conversation.id)
        size = f"{len(entries):,} {_messages(len(entries)).strip()}"
        _print(f"{conversation.id}  {conversation.title or '–'}  ({size})\n")
        failures = {} if view else _failures(store, conversation)
        for entry in entries:
            _print("\n".join([*_entry_lines(entry), *failures.get(entry.seq, ())]))
        if damage := store.verifier.conversation(conversation.id):
            click.echo(f"\n{damage_notice(damage)}", err=True)


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option("-n", "--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="How many finds.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each.")
@click.pass_obj
def search(flags: dict[str, str], words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find what was said, in every conversation, compacted or not.

    Words must all occur; "a phrase" stands together; pre* finds what begins so. Exit status 1 where nothing is found.

    \b
    Examples:
      perdure sessions search port 5432
      perdure sessions search '"connection refused"'
      perdure sessions search 'parse_*'
    """
    from perdure.cli.opened import opened
    from perdure.commands.finding import hit_lines

    with opened(flags) as store:
        hits = store.search(" ".join(words), limit=limit)
    if as_json:
        for hit in hits:
            click.echo(json.dumps(asdict(hit), ensure_ascii=False))
    elif hits:
        _print("\n".join(hit_lines(hits)))
        click.echo("\nOpen one with: perdure sessions show ID ADDRESS")
    else:
        click.echo(f"Nothing found for {' '.join(words)!r}.", err=True)
    if not hits:
        raise SystemExit(1)


def _messages(count: int) -> str:
    return "message " if count == 1 else "messages"


def _print(text: str, *, ends: bool = True) -> None:
    """Exact into files and pipes; a terminal gets nothing that could steer it."""
    from perdure.cli.ink import safe

    click.echo(safe(text) if sys.stdout.isatty() else text, nl=ends)


def _print_address(store: SessionStore, any_id: str, address: str) -> None:
    offset: int | None = 0
    while offset is not None:
        page = store.open(address, conversation_id=any_id, offset=offset, limit=_PAGE_CHARS)
        _print(page.text, ends=page.next_offset is None)
        offset = page.next_offset


def _failures(store: SessionStore, conversation: Conversation) -> dict[int, list[str]]:
    """Why turns failed, by the message each failure came after."""
    from perdure.store.records import Span

    found: dict[int, list[str]] = {}
    if conversation.last_seq:
        for seq, event in store.moments.events(conversation.id, Span(1, conversation.last_seq), most=100_000):
            if event.kind == "turn_failed":
                found.setdefault(seq, []).append(f"✕ The turn failed: {event.payload.get('reason', '')}\n")
    return found


def _entry_lines(entry: Entry) -> Iterator[str]:
    message = entry.message
    who = message.name or "tool" if message.role == "tool" else message.kind
    title = f"── m:{entry.seq} {who} "
    yield title + "─" * max(4, min(70, get_terminal_size().columns) - len(title))
    if message.text.strip():
        yield message.text
    for call in message.tool_calls:
        yield f"→ {call.name} {call.arguments}"
    yield ""
