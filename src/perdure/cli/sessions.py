"""`perdure sessions`: list, show, search, export, import, delete, scrub, backup."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import click

from perdure.cli.lazy import Lazy, LazyGroup
from perdure.cli.output import columns, echo, echo_hint, echo_json, echo_pages, table_lines
from perdure.cli.style import runnable

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
    from perdure.cli.usage import open_cli_store

    with open_cli_store(flags) as store:
        page = store.conversations.list(source=source, limit=limit)
    if as_json:
        for c in page.conversations:
            echo_json(asdict(c))
        return
    if page.conversations:
        more = [f"… and older ones; -n {min(1_000, limit * 5)} shows more."] if page.next_cursor else []
        echo_pages([*table_lines([_row(c) for c in page.conversations], columns()), *more])
    elif source is not None:
        echo(f"There are no conversations of {source!r}.")
    else:
        echo(runnable("There are no conversations yet; `perdure chat` begins one."))


@click.command()
@click.argument("any_id", metavar="ID")
@click.argument("address", required=False)
@click.option("--view", is_flag=True, help="As the model sees it now: handoffs in place of what they stand for.")
@click.pass_obj
def show(flags: dict[str, str], any_id: str, address: str | None, view: bool) -> None:
    """Print a conversation, or the messages behind an ADDRESS in it.

    Shows every message in order; compactions remove nothing. An address is what a handoff, a
    search or a spilled tool output names: m:120, m:120-180, h:501, output:o_…

    \b
    Examples:
      perdure sessions show c_1m7g
      perdure sessions show c_1m7g m:120-180
      perdure sessions show c_1m7g/m:120
      perdure sessions show c_1m7g --view
    """
    from perdure.cli.usage import open_cli_store
    from perdure.commands.format import count
    from perdure.core.display import split_address
    from perdure.store.records import damage_notice

    owner, inner = split_address(any_id)
    if owner is not None:
        any_id, address = owner, inner
    with open_cli_store(flags) as store:
        if address:
            _print_address(store, any_id, address)
            return
        conversation = store.conversations.get(any_id)
        tip = conversation.tip_session_id
        entries = store.history(tip).entries if view else store.log.originals(conversation.id)
        size = f"{count(len(entries), 'message')}{' in view' if view else ''}"
        # A list counts handoffs as messages; here the messages they replace are printed instead.
        if not view and (handoffs := conversation.last_seq - len(entries)) > 0:
            size += f" and {count(handoffs, 'handoff')}"
        failures = {} if view else _failures(store, conversation)
        head = f"{conversation.id}  {conversation.title or '–'}  ({size})\n"
        echo_pages([head, *(line for e in entries for line in (*_entry_lines(e), *failures.get(e.seq, ())))])
        if damage := store.verifier.conversation(conversation.id):
            echo(f"\n{damage_notice(damage)}", err=True)


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option("-n", "--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="How many finds.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each.")
@click.pass_obj
def search(flags: dict[str, str], words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Search all messages of all conversations, compacted or not.

    What has all the words comes first, then what has some; "a phrase" matches as a whole, where it occurs; pre* is a
    prefix. Exit status 1 where nothing is found.

    \b
    Examples:
      perdure sessions search port 5432
      perdure sessions search '"connection refused"'
      perdure sessions search 'parse_*'
    """
    from perdure.cli.usage import open_cli_store
    from perdure.commands.search import hit_lines
    from perdure.core.display import describe_report
    from perdure.core.visibility import EVERYONE

    with open_cli_store(flags) as store:
        report = store.search_index.report(" ".join(words), visibility=EVERYONE, limit=limit)
    if as_json:
        for hit in report.hits:
            echo_json(asdict(hit))
    elif report.hits:
        echo_pages(hit_lines(report.hits), hanging="    ")
        echo_hint(f"\n{describe_report(report)} Open one with:", "perdure sessions show ADDRESS", err=True)
    else:
        echo(f"Nothing found for {' '.join(words)!r}. {describe_report(report)}", err=True)
    if not report.hits:
        raise SystemExit(1)


def _messages(count: int) -> str:
    return "message " if count == 1 else "messages"


def _row(conversation: Conversation) -> tuple[str, str, str, str]:
    from perdure.commands.format import when

    c = conversation
    kind = "" if c.kind == "main" else f" ({c.kind})"
    return c.id, when(c.updated_at_ms), f"{c.last_seq:>6,} {_messages(c.last_seq)}", f"{c.title or '–'}{kind}"


def _print_address(store: SessionStore, any_id: str, address: str) -> None:
    from perdure.commands.format import local_times

    is_output = address.startswith("output:")
    lines = _address_lines(store, any_id, address)
    echo_pages(lines if is_output else map(local_times, lines))


def _address_lines(store: SessionStore, any_id: str, address: str) -> Iterator[str]:
    """Yield the lines of an address, read page by page; a page may end within a line."""
    offset, rest = 0, ""  # type: int | None, str
    while offset is not None:
        page = store.open(address, conversation_id=any_id, offset=offset, limit=_PAGE_CHARS)
        offset = page.next_offset
        *lines, rest = (rest + page.text).split("\n")
        yield from lines
    yield rest


_OUTCOMES = {
    "turn_failed": "The turn failed: {reason}",
    "turn_stopped": "The turn was stopped.",
    "model_refused": "The model refused to answer, or a content filter of the provider cut the answer off.",
}


def _failures(store: SessionStore, conversation: Conversation) -> dict[int, list[str]]:
    """Return lines on turns that ended without an answer, by the seq of the message they came after."""
    from perdure.store.records import Span

    failures: dict[int, list[str]] = {}
    if conversation.last_seq:
        for seq, event in store.timeline.events_between(conversation.id, Span(1, conversation.last_seq), limit=100_000):
            line = _OUTCOMES.get(event.kind, "").format(reason=event.payload.get("reason", ""))
            if line:
                failures.setdefault(seq, []).append(f"✕ {line}\n")
    return failures


def _entry_lines(entry: Entry) -> Iterator[str]:
    from perdure.core.display import cut_off_label

    message = entry.message
    who = message.name or "tool" if message.role == "tool" else message.kind
    title = f"── m:{entry.seq} {who} "
    yield title + "─" * max(4, min(70, get_terminal_size().columns) - len(title))
    if message.text.strip():
        yield message.text
    if label := cut_off_label(message):
        yield f"[{label}]"
    for call in (made.dispatched for made in message.tool_calls):
        yield f"→ {call.name} {call.arguments}"
    yield ""


# From this many lines on, a person wants to see that something happens.
_TELL_EVERY = 5_000
# If the first line is longer than this, the file is not an export of ours.
_HEAD_CHARS = 4_096
_CONVERSATION_ID = re.compile(r"\bc_[0-9a-z]+")


@click.command("export")
@click.argument("any_id", metavar="ID")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Default: standard output.")
@click.option("--messages", is_flag=True, help="As an OpenAI-style list of messages instead.")
@click.pass_obj
def export(flags: dict[str, str], any_id: str, output: Path | None, messages: bool) -> None:
    """Write a conversation to a file.

    As JSONL of our own, everything is in it: messages, sessions, handoffs, usage, events, tool outputs. It can be
    imported anywhere. As a list of messages it is what other programs read. A file that ends in .md gets Markdown, to
    be read.

    \b
    Examples:
      perdure sessions export c_1m7g -o talk.jsonl
      perdure sessions export c_1m7g -o talk.md
      perdure sessions export c_1m7g --messages > talk.json
    """
    from perdure.cli.chat.stored_messages import markdown_lines
    from perdure.cli.usage import open_cli_store

    with open_cli_store(flags) as store:
        conversation = store.conversations.get(any_id)
        if not messages and output is not None and output.suffix.lower() in (".md", ".markdown"):
            entries = store.log.originals(any_id)
            lines: Iterable[str] = markdown_lines(conversation.title or conversation.id, entries)
        elif messages:
            lines = [json.dumps(store.transfer.export_messages(any_id), ensure_ascii=False, indent=1)]
        else:
            lines = store.transfer.export_jsonl(any_id)
        if output is None:
            for line in lines:
                sys.stdout.write(f"{line}\n")
            return
        from perdure.core.files import AtomicFile, mode_of

        try:
            with AtomicFile(output, mode=mode_of(output)) as file:
                for line in _progress(lines):
                    file.write(f"{line}\n".encode())
        except OSError as error:
            raise click.ClickException(f"cannot write {output}: {error.strerror}") from None
        echo(f"{conversation.id} written to {output}", err=True)


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--copy", "as_copy", is_flag=True, help="Under new ids, beside what is there.")
@click.option("--title", help="For a list of messages: the new conversation's title.")
@click.pass_obj
def import_(flags: dict[str, str], files: tuple[Path, ...], as_copy: bool, title: str | None) -> None:
    """Import conversations from FILES ("-" reads standard input).

    Accepts files written by `perdure sessions export`, OpenAI-style messages, and the logs of Claude Code, Codex and
    pi. From the log of another agent it imports messages, replies, tool calls and results, but not reasoning, images,
    the work of sub-agents, or the agent's own summaries. Importing an export or a log again adds nothing; a list of
    messages becomes a new conversation each time. If you press Ctrl-C, run the command again to import the rest.
    `perdure sessions delete ID` removes an imported conversation; the source file is never changed.

    \b
    Examples:
      perdure sessions import talk.jsonl
      perdure sessions import ~/.claude/projects/my-project/*.jsonl
      perdure sessions import --copy talk.jsonl
      perdure sessions import --title "from elsewhere" messages.json
    """
    from perdure.cli.usage import open_cli_store

    with open_cli_store(flags) as store:
        for path in files:
            text = _read_text(path)
            if _is_foreign_log(text):
                _import_logs(store, text, path, title=title, as_copy=as_copy)
                continue
            before_seq = _stored_seq(store, text) if not as_copy else None
            any_id = _import_file(store, text, path, as_copy=as_copy, title=title)
            is_same = before_seq == store.conversations.get(any_id).last_seq
            echo(f"{any_id}  from {path}{': it was there already' if is_same else ''}")


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.pass_obj
def backup(flags: dict[str, str], path: Path) -> None:
    """Copy everything to PATH, tool outputs included, while it is in use.

    \b
    Examples:
      perdure sessions backup ~/perdure-backup.db
    """
    from perdure.cli.usage import open_cli_store

    with open_cli_store(flags) as store:
        echo("copying … (Ctrl-C cancels)", err=True)
        store.backup(path)
    echo(f"copied to {path}; use it with: perdure --set store.path={path} sessions list")


def _read_text(path: Path) -> str:
    from perdure.lab.replay.importers import open_log

    if str(path) == "-":
        return sys.stdin.read()
    try:
        with open_log(path) as file:
            return file.read()
    except UnicodeDecodeError:
        raise click.ClickException(f"cannot read {path}: it is no UTF-8 text") from None
    except (OSError, EOFError) as error:
        raise click.ClickException(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def _is_foreign_log(text: str) -> bool:
    """Whether a text is JSONL of another agent, neither an export of ours nor one JSON value."""
    first = text[:_HEAD_CHARS].lstrip().partition("\n")[0]
    return first.startswith("{") and '"perdure"' not in first and _message_list(text) is None


def _import_logs(store: SessionStore, text: str, path: Path, *, title: str | None, as_copy: bool) -> None:
    """Import the sessions of another agent's log, and report what was taken and how to remove it."""
    from perdure.core.errors import NotFound
    from perdure.lab.replay.importers import parse_sessions, plain_messages
    from perdure.lab.replay.sessions import session_digest

    imported = store.state("imported_logs")
    rows = [(s, plain_messages(s)) for s in parse_sessions(text.split("\n"), name=path.stem)]
    if not all(messages for _, messages in rows):
        raise click.ClickException(f"{path} holds no messages; nothing was imported")
    for session, messages in rows:
        key = f"{session.source}:{session.id}:{session_digest(session)}"
        earlier = imported.get(key)
        with suppress(NotFound):
            if isinstance(earlier, str) and not as_copy:
                echo(f"{store.conversations.get(earlier).id}  from {path}: it was there already")
                continue
        new = store.transfer.import_messages(messages, source=session.source, title=title or _title(messages))
        imported.set(key, new.conversation_id)
        echo(
            f"{new.conversation_id}  from {path}: {len(messages):,} messages of a {session.source} log, with tool calls"
            f" and results, without reasoning and images.\n"
            f"  {runnable('To remove it: perdure sessions delete')} {new.conversation_id}"
        )


def _import_file(store: SessionStore, text: str, path: Path, *, as_copy: bool, title: str | None) -> str:
    """Import a file and return the id of its conversation."""
    messages = _message_list(text)
    if messages == []:
        raise click.ClickException(f"{path} holds no messages; nothing was imported")
    if messages is not None:
        session = store.transfer.import_messages(messages, title=title or _title(messages))
        return session.conversation_id
    # A text may hold other characters that end a line, such as U+2028.
    lines = _progress(text.split("\n"))
    return (store.transfer.import_copy(lines) if as_copy else store.transfer.import_jsonl(lines)).id


def _stored_seq(store: SessionStore, text: str) -> int | None:
    """Return the last seq stored of the conversation in an exported file; None if it is not stored yet."""
    from perdure.core.errors import NotFound

    named = _CONVERSATION_ID.search(text[:_HEAD_CHARS].partition("\n")[0])
    try:
        return store.conversations.get(named[0]).last_seq if named else None
    except NotFound:
        return None


def _title(messages: list[Any]) -> str:
    from perdure.commands.titles import title_of

    contents = (m.get("content") for m in messages if isinstance(m, dict) and m.get("role") == "user")
    return next((title_of(text) for text in contents if isinstance(text, str)), "")


def _message_list(text: str) -> list[Any] | None:
    """Return the messages of an OpenAI-style file: a list, or an object that holds one; None for JSONL."""
    if '"perdure"' in text[:_HEAD_CHARS].partition("\n")[0]:
        return None
    try:
        parsed = json.loads(text)
    except ValueError:
        return None
    if isinstance(parsed, dict):
        parsed = parsed.get("messages")
    return parsed if isinstance(parsed, list) else None


def _progress(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines, and report progress on a terminal if there are many."""
    for count, line in enumerate(lines, 1):
        if count % _TELL_EVERY == 0 and sys.stderr.isatty():
            click.echo(f"\r{count:,} lines … (Ctrl-C cancels)", nl=False, err=True)
        yield line
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)


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
    from perdure.cli.usage import open_cli_store

    with open_cli_store(flags) as store:
        failures = [store.conversations.get(any_id) for any_id in ids]  # report a wrong id before deleting anything
        for c in failures:
            named = f" “{c.title}”" if c.title else ""
            if not yes and not click.confirm(f"Delete {c.id}{named}, {c.last_seq:,} messages, for good?", err=True):
                echo(f"{c.id} was kept")
                continue
            deleted = store.delete(c.id)
            echo(f"{c.id} deleted: {deleted.messages:,} messages, {deleted.outputs:,} tool outputs")


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
    from perdure.cli.usage import open_cli_store
    from perdure.redaction import redact

    if bool(ids) == every:
        raise click.UsageError("Name conversations, or say --all.")
    with open_cli_store(flags) as store:
        selected = [store.conversations.get(any_id).id for any_id in ids] if ids else list(_all_ids(store))
        if not yes and not click.confirm(f"Redact {len(selected)} conversation(s) for good?", err=True):
            echo("nothing was changed")
            return
        for any_id in selected:
            done = store.scrub(any_id, redact)
            echo(f"{any_id}: {done.messages:,} messages and {done.outputs:,} tool outputs held secrets")


def _all_ids(store: SessionStore) -> Iterator[str]:
    """Yield the ids of all conversations, delegated runs included, page by page."""
    for kind in ("main", "branch", "delegate"):
        cursor: str | None = None
        while True:
            page = store.conversations.list(kind=kind, cursor=cursor, limit=500)
            yield from (c.id for c in page.conversations)
            cursor = page.next_cursor
            if cursor is None:
                break


@click.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.pass_obj
def verify(flags: dict[str, str], ids: tuple[str, ...]) -> None:
    """Check what is stored for damage: the whole database, or some conversations.

    Every message has a hash of its text and of all before it, and sessions and tool outputs have checksums. What was
    changed on the disk, or cannot be read any more, is named by its table and row; the rest is not affected. Without an
    ID the file's pages, indexes and references are checked, too. Reads only. Exit status 1 where something is damaged.

    \b
    Examples:
      perdure sessions verify
      perdure sessions verify c_1m7g
    """
    from perdure.cli.usage import open_cli_store

    with open_cli_store(flags) as store:
        if ids:
            what, problems = ", ".join(ids), [str(d) for any_id in ids for d in store.verifier.conversation(any_id)]
        else:
            what, problems = _verify_everything(store)
    for problem in problems:
        echo(problem)
    if problems:
        advice = (
            "Copy the database (`perdure sessions backup`), check the disk, and restore these rows from an older"
            " backup. `perdure sessions show` and `export` open the rest."
        )
        echo(runnable(advice), err=True)
        raise SystemExit(1)
    echo(f"{what}: no damage found")


def _verify_everything(store: SessionStore) -> tuple[str, list[str]]:
    count = 0
    problems = list(store.verifier.database().problems)
    for batch in store.verifier.everything():
        count += batch.messages
        problems += map(str, batch.damage)
        if sys.stderr.isatty():
            click.echo(f"\r{count:,} messages … (Ctrl-C cancels)", nl=False, err=True)
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)
    return f"{count:,} messages", problems


COMMANDS = {
    "list": Lazy("perdure.cli.sessions:list_", "List conversations, last used first."),
    "show": Lazy("perdure.cli.sessions:show", "Print a conversation, or what an address in it stands for."),
    "search": Lazy("perdure.cli.sessions:search", "Find what was said, in every conversation."),
    "export": Lazy("perdure.cli.sessions:export", "Write a conversation to a file."),
    "import": Lazy("perdure.cli.sessions:import_", "Read conversations from files."),
    "backup": Lazy("perdure.cli.sessions:backup", "Copy everything, while it is in use."),
    "verify": Lazy("perdure.cli.sessions:verify", "Check what is stored for damage."),
    "delete": Lazy("perdure.cli.sessions:delete", "Take conversations away for good."),
    "scrub": Lazy("perdure.cli.sessions:scrub", "Take secrets out of what is stored."),
}


@click.group(cls=LazyGroup, commands_table=COMMANDS)
def sessions() -> None:
    """List, read, find, move and delete conversations.

    A conversation is known by its id (c_…), by the id of any session in it (s_…), or by the beginning of either.

    \b
    Examples:
      perdure sessions list
      perdure sessions show c_1m7g
      perdure sessions search "connection refused"
      perdure sessions export c_1m7g --output talk.jsonl
    """
