"""`perdure sessions export|import|backup`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from perdure.store.store import SessionStore

# From this many lines on, a person wants to see that something happens.
_TELL_EVERY = 5_000
# Where the first line is longer than this, the file is no JSONL of ours.
_HEAD_CHARS = 4_096


@click.command("export")
@click.argument("any_id", metavar="ID")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Default: standard output.")
@click.option("--messages", is_flag=True, help="As an OpenAI-style list of messages instead.")
@click.pass_obj
def export(flags: dict[str, str], any_id: str, output: Path | None, messages: bool) -> None:
    """Write a conversation to a file.

    As JSONL of our own, everything is in it: messages, sessions, handoffs, usage, events, tool outputs. It can be
    imported anywhere. As a list of messages it is what other programs read.

    \b
    Examples:
      perdure sessions export c_1m7g -o talk.jsonl
      perdure sessions export c_1m7g --messages > talk.json
    """
    from perdure.cli.opened import opened

    with opened(flags) as store:
        conversation = store.conversations.get(any_id)
        if messages:
            lines: Iterable[str] = [json.dumps(store.transfer.export_messages(any_id), ensure_ascii=False, indent=1)]
        else:
            lines = store.transfer.export_jsonl(any_id)
        if output is None:
            _write(lines, sys.stdout, is_shown=False)
            return
        # Written beside its place and moved there whole: what is cut off leaves no half a file.
        part = output.with_name(f"{output.name}.part")
        try:
            with part.open("w", encoding="utf-8") as file:
                _write(lines, file, is_shown=True)
            part.replace(output)
        except OSError as error:
            raise click.ClickException(f"cannot write {output}: {error.strerror}") from None
        finally:
            part.unlink(missing_ok=True)
        click.echo(f"{conversation.id} written to {output}", err=True)


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--copy", "as_copy", is_flag=True, help="Under new ids, beside what is there.")
@click.option("--title", help="For a list of messages: the new conversation's title.")
@click.pass_obj
def import_(flags: dict[str, str], files: tuple[Path, ...], as_copy: bool, title: str | None) -> None:
    """Read conversations from FILES ("-" is standard input).

    Takes what `perdure sessions export` wrote, and OpenAI-style lists of messages. Importing the same file again adds
    nothing. A file is taken whole or not at all, so Ctrl-C leaves nothing half done.

    \b
    Examples:
      perdure sessions import talk.jsonl
      perdure sessions import --copy talk.jsonl
      perdure sessions import --title "from elsewhere" messages.json
    """
    from perdure.cli.opened import opened

    with opened(flags) as store:
        for path in files:
            try:
                text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
            except OSError as error:
                raise click.ClickException(f"cannot read {path}: {error.strerror}") from None
            except UnicodeDecodeError:
                raise click.ClickException(f"cannot read {path}: it is no UTF-8 text") from None
            click.echo(f"{_imported(store, text, path, as_copy=as_copy, title=title)}  from {path}")


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.pass_obj
def backup(flags: dict[str, str], path: Path) -> None:
    """Copy everything to PATH, tool outputs included, while it is in use.

    \b
    Examples:
      perdure sessions backup ~/perdure-backup.db
    """
    from perdure.cli.opened import opened

    with opened(flags) as store:
        click.echo("copying … (Ctrl-C cancels)", err=True)
        store.backup(path)
    click.echo(f"copied to {path}; use it with: perdure --set store.path={path} sessions list")


def _imported(store: SessionStore, text: str, path: Path, *, as_copy: bool, title: str | None) -> str:
    """The id of the conversation a file became."""
    messages = _message_list(text)
    if messages is not None:
        session = store.transfer.import_messages(messages, title=title or _title(messages))
        return session.conversation_id
    lines = _told(text.splitlines())
    return (store.transfer.import_copy(lines) if as_copy else store.transfer.import_jsonl(lines)).id


def _title(messages: list[Any]) -> str:
    from perdure.commands.titles import title_of

    said = (m.get("content") for m in messages if isinstance(m, dict) and m.get("role") == "user")
    return next((title_of(text) for text in said if isinstance(text, str)), "")


def _message_list(text: str) -> list[Any] | None:
    """The messages of an OpenAI-style file: a list, or an object that holds one; None for JSONL."""
    if '"perdure"' in text[:_HEAD_CHARS].partition("\n")[0]:
        return None
    try:
        parsed = json.loads(text)
    except ValueError:
        return None
    if isinstance(parsed, dict):
        parsed = parsed.get("messages")
    return parsed if isinstance(parsed, list) else None


def _write(lines: Iterable[str], file: IO[str], *, is_shown: bool) -> None:
    for line in _told(lines) if is_shown else lines:
        file.write(f"{line}\n")


def _told(lines: Iterable[str]) -> Iterator[str]:
    """The lines, with a word about how far they are where there are many and someone looks on."""
    for count, line in enumerate(lines, 1):
        if count % _TELL_EVERY == 0 and sys.stderr.isatty():
            click.echo(f"\r{count:,} lines … (Ctrl-C cancels)", nl=False, err=True)
        yield line
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)
