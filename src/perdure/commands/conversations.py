"""Commands that switch or change the conversation: `/new`, `/resume`, `/sessions`, `/branch`, `/retry`, `/undo`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from perdure.app.runtime import MODEL_KEY, SCRIPTED_KEY
from perdure.commands.command import Command, CommandContext, CommandResult
from perdure.commands.format import count, measure_usage, when
from perdure.core.errors import NotFound, PerdureError
from perdure.core.messages import Entry, FilesTakenBack, Message
from perdure.core.visibility import Visibility
from perdure.store.listing import ConversationFilter
from perdure.store.records import Conversation, Span
from perdure.store.store import SessionStore
from perdure.tools.checkpoints import RestoreResult, find_conflicts, restore_files, unrestored_paths

# In the state of a conversation: what a terminal remembers of it.
TERMINAL_KEYS = "terminal."
# The project in which it was last used at a terminal.
PROJECT_KEY = f"{TERMINAL_KEYS}folder"
_LISTED = 20
_SHOWN_CHARS = 60
# The same in a list of conversations.
_LISTED_CHARS = 30
_MOST_DIGITS = 10
# Files that are named one by one.
_LISTED_PATHS = 5
# Files that a note to the model names.
_NOTED_PATHS = 50


def new(surface: CommandContext, argument: str) -> CommandResult:
    old = surface.agent.session_id
    surface.open(None)
    back = f" The old one is kept:\n  /resume {surface.store.conversations.get(old).id}" if old else ""
    return CommandResult(f"A new conversation.{back}")


def resume(surface: CommandContext, argument: str) -> CommandResult:
    """Switch to a conversation, by id, search address or number in `/sessions`, and show its last exchange."""
    if not argument:
        return sessions(surface, "")
    if argument == "last":
        argument = _newest_other(surface)
    elif argument.isdecimal():
        argument = _find_by_number(surface, int(argument))
    conversation = _find_conversation(surface, argument)
    surface.open(conversation.tip_session_id)
    entries = surface.store.history(conversation.tip_session_id).entries
    title = f"Resumed {conversation.id} {_format_title(conversation.title)}({count(len(entries), 'message')} in view)."
    return CommandResult("\n".join([title, *last_exchange(entries)]), is_resumed=True)


def last_exchange(entries: Sequence[Entry], *, max_chars: int = 600) -> Iterator[str]:
    """Yield the last message of the user and the last reply, shortened."""
    last = [e.message for e in entries if e.message.kind in ("user", "assistant") and e.message.text.strip()][-2:]
    for message in last:
        text = " ".join(message.text.split())
        excerpt = text if len(text) <= max_chars else f"{text[:max_chars]}…"
        yield f"  {'you' if message.role == 'user' else 'it '}: {excerpt}"


def _find_conversation(surface: CommandContext, argument: str) -> Conversation:
    """Return the conversation of an id or an address in it. Raises NotFound."""
    if not (any_id := argument.partition("/")[0].strip()):
        raise NotFound(f"{argument!r} is no conversation; /sessions lists them")
    try:
        return surface.store.conversations.get(any_id, visibility=surface.visibility)
    except NotFound as error:
        raise NotFound(f"{error}; /sessions lists them") from error


def _find_by_number(surface: CommandContext, number: int) -> str:
    """Return the id of the conversation with this number in the list that was shown last. Raises NotFound."""
    ids = surface.listed_ids or [c.id for group in _groups(surface) for c in group]
    if not 1 <= number <= len(ids):
        raise NotFound(f"/sessions has no number {number}; it lists {len(ids)}")
    return ids[number - 1]


def _newest_other(surface: CommandContext) -> str:
    """Return the id of the first conversation in `/sessions` other than the open one. Raises NotFound."""
    present = present_id(surface)
    rows = (c.id for group in _groups(surface) for c in group if c.id != present)
    return next(rows, None) or _find_by_number(surface, 1)


def present_id(surface: CommandContext) -> str | None:
    """Return the id of the open conversation; None before its first message."""
    here = surface.agent.session_id
    return surface.store.conversations.get(here).id if here is not None else None


def _groups(surface: CommandContext) -> tuple[list[Conversation], list[Conversation]]:
    return group_by_project(surface.store, surface.project, visibility=surface.visibility, limit=_LISTED)


def group_by_project(
    store: SessionStore, project: str | None, *, visibility: Visibility, limit: int
) -> tuple[list[Conversation], list[Conversation]]:
    """Return the newest conversations of a project and the newest others, at most `limit` together.

    A quarter of the rows is reserved for the others.
    """
    here: list[Conversation] = []
    if project is not None:
        of_project = ConversationFilter(visibility=visibility, state={PROJECT_KEY: project})
        page, _ = store.listing.page(of_project, limit=limit * 3 // 4)
        here = [row.conversation for row in page]
    ids = {c.id for c in here}
    newest = store.conversations.list(visibility=visibility, limit=limit).conversations
    return here, [c for c in newest if c.id not in ids][: limit - len(here)]


def sessions(surface: CommandContext, argument: str) -> CommandResult:
    here, others = _groups(surface)
    if not here and not others:
        return CommandResult("There are no conversations yet.")
    surface.listed_ids = [c.id for c in (*here, *others)]
    present, both = present_id(surface), bool(here and others)
    lines = ["In this folder"] if both else []
    for n, c in enumerate([*here, *others], 1):
        if both and n == len(here) + 1:
            lines.append("Elsewhere, and questions asked with -q")
        lines.append(f"{'→' if c.id == present else ' '} {n:>2} {format_conversation(surface.store, c)}")
    return CommandResult("\n".join([*lines, "", "Open one with /resume NUMBER or /resume ID."]))


def format_conversation(store: SessionStore, conversation: Conversation) -> str:
    """Return one line of a conversation list; branches are marked because they share their parent's title."""
    kind = "" if conversation.kind == "main" else f" ({branch_point(store, conversation) or conversation.kind})"
    title = conversation.title or "–"
    # Most are from this terminal.
    source = f" · {conversation.source}" if conversation.source != "terminal" else ""
    size = count(conversation.last_seq, "message")
    return f"{conversation.id}  {when(conversation.updated_at_ms)}  {title}{kind} · {size}{source}"


def branch_point(store: SessionStore, conversation: Conversation) -> str:
    """Return where a branch left its parent, by the message that it does not share; "" where there is none."""
    if conversation.kind != "branch" or conversation.parent_id is None:
        return ""
    seq = conversation.fork_seq + 1
    left_out = store.log.read(conversation.parent_id, Span(seq, seq))
    return f"before “{_short(left_out[0], _LISTED_CHARS)}”" if left_out else ""


def branch(surface: CommandContext, argument: str) -> CommandResult:
    """Switch to a new conversation that shares the history so far, or up to the given turn."""
    at = _turn_start(surface, argument)
    files = _describe_files_kept(surface, at)
    new_id = _fork(surface, at)
    where = f"before “{_short(at)}”" if at is not None else "from here"
    return CommandResult(f"Branched {where} into {new_id}. The other one is as it was.{files}")


def _describe_files_kept(surface: CommandContext, at: Entry | None) -> str:
    """Describe the files that turns from `at` on changed and a branch does not put back; "" where there are none."""
    if at is None:
        return ""
    checkpoints = surface.store.checkpoints
    changed = unrestored_paths(checkpoints.changes(_here(surface), from_seq=at.seq), checkpoints.content)
    return f"\nFiles keep their later changes: {_some_names(changed)}." if changed else ""


def retry(surface: CommandContext, argument: str) -> CommandResult:
    """Ask the last question, or an earlier one, again in a branch; the first answer stays stored."""
    at = _turn_start(surface, argument or "1")
    if at is None:  # never: a number was given
        return CommandResult("There is nothing to retry.", "error")
    old = surface.store.conversations.get(_here(surface)).id
    files = _describe_files_kept(surface, at)
    _fork(surface, at)
    asked = f"Asking again in a branch: “{_short(at)}”. `/resume {old}` goes back.{files}"
    return CommandResult(asked, then_send=_again(at))


def _fork(surface: CommandContext, at: Entry | None) -> str:
    """Switch to a branch that ends before the message `at`; return its id."""
    here = _here(surface)
    session = surface.store.conversations.branch(here, at_seq=at.seq - 1 if at is not None else None)
    # It is a chat of this folder, with the same mode and model, before anything is said in it.
    chosen, state = surface.store.conversation_state(here).items(), surface.store.conversation_state(session.id)
    for key, value in chosen.items():
        if key in (MODEL_KEY, SCRIPTED_KEY) or key.startswith(TERMINAL_KEYS):
            state.set(key, value)
    if surface.project is not None:
        state.set(PROJECT_KEY, surface.project)
    surface.open(session.id)
    return session.conversation_id


def undo(surface: CommandContext, argument: str) -> CommandResult:
    """Undo the last turn with the files it changed; `files [n]` only the files, `compaction` the last compaction."""
    words = argument.lower().split()
    if words == ["compaction"]:
        return _undo_compaction(surface)
    if not words and not any(e.message.is_real_user for e in surface.store.log.originals(_here(surface))):
        return CommandResult("Nothing to undo: there is no question here yet.")
    # `/undo 2` and `/undo overwrite` are about turns, too.
    is_turn = not words or words[0] == "overwrite" or words[0].removeprefix("m:").isdecimal()
    result = _undo_turns(surface, ["turn", *words] if is_turn else words)
    if words or not _has_handoff(surface):
        return result
    # Whoever meant the compaction finds its command.
    return replace(result, text=f"{result.text}\n/undo compaction takes back the last compaction.")


def _undo_compaction(surface: CommandContext) -> CommandResult:
    if not _has_handoff(surface):
        nothing = "Nothing to undo: this conversation has not been compacted."
        return CommandResult(f"{nothing} /undo goes back to before the last question.")
    surface.agent.undo()
    gauge = measure_usage(surface.agent)
    # After an undo, the threshold is where the window has no room left for an answer.
    is_full = gauge.threshold is not None and gauge.tokens >= gauge.threshold
    # Even far above the threshold, an undone compaction is not repeated until the window requires it.
    later = "The next one waits until the window has no room left for an answer."
    if is_full:
        later = "The window is full: your next message compacts again."
    undone = f"The last compaction is undone; nothing was lost by it. {later}"
    return CommandResult(f"{undone}\n{_next_compaction(surface)}")


def _has_handoff(surface: CommandContext) -> bool:
    return any(entry.message.kind == "handoff" for entry in surface.store.history(_here(surface)).entries)


def _next_compaction(surface: CommandContext) -> str:
    """Describe what the next `/undo compaction` would take back, after a compaction was undone."""
    if _has_handoff(surface):
        return "/undo compaction again takes back the one before it."
    return "No other compaction is left to undo; /undo goes back to before the last question."


_UNDO_USAGE = "/undo takes a number of turns or m:N, and before it turn or files; or compaction. As in: /undo files 2"


def _undo_turns(surface: CommandContext, words: Sequence[str]) -> CommandResult:
    """Restore the files that the last n turns changed; with `turn`, branch off before those turns as well."""
    overwrites = words[-1] == "overwrite"
    what, *number = words[:-1] if overwrites else words
    if what not in ("turn", "files") or len(number) > 1:
        return CommandResult(_UNDO_USAGE, "error")
    back = number[0] if number else "1"
    at = _turn_start(surface, back)
    if at is None:  # never: a number was given
        return CommandResult(_UNDO_USAGE, "error")
    checkpoints = surface.store.checkpoints
    changes = checkpoints.changes(_here(surface), from_seq=at.seq)
    conflicts = find_conflicts(changes, checkpoints.content) if not overwrites else ()
    if conflicts and what == "turn":
        listed = "\n".join(f"  {path}" for path in conflicts)
        return CommandResult(
            f"Nothing was undone: these files were changed since by something else.\n{listed}\n"
            f"`/undo turn {back} overwrite` puts them back all the same; `/branch {back}` goes back without the files.",
            "warning",
        )
    result = restore_files(changes, checkpoints.content, overwrites=overwrites)
    turns = _count_turns(surface, at.seq)
    lines = _restore_lines(result, back, turns=turns, commands=_count_commands(surface, at.seq))
    if not changes:
        lines[0] = f"No file was changed in {_last_turns(turns)}."
    if what == "turn":
        question = _short(at)
        problem = _tell_model(surface, at, result)  # where the turn is kept
        _fork(surface, at)
        kept = "The turn is kept in the conversation it was in, and so is what it cost: this is a branch of it."
        lines.insert(0, f"Back to before “{question}”. {kept}")
        lines += _earlier_turn(surface)
    else:
        lines += _earlier_files(surface, at, too=", too" if result.restored or result.deleted else "")
        problem = _tell_model(surface, at, result)
    lines += [problem] if problem else []
    is_partial = result.changed_since or result.failed or problem
    return CommandResult("\n".join(lines), "warning" if is_partial else "info")


def _earlier_files(surface: CommandContext, at: Entry, *, too: str) -> Iterator[str]:
    """Yield a hint on how to restore the files of the newest turn before `at` that changed any.

    Turns whose files are as they were before, since they were restored already, are passed over.
    """
    checkpoints = surface.store.checkpoints
    changes = checkpoints.changes(_here(surface))
    requests = [e for e in surface.store.log.originals(_here(surface)) if e.message.is_real_user]
    ends = [e.seq for e in requests[1:]]
    for back, (request, end) in enumerate(zip(reversed(requests), [None, *reversed(ends)], strict=True), 1):
        own = [c.path for c in changes if c.seq >= request.seq and (end is None or c.seq < end)]
        if request.seq >= at.seq or not own:
            continue
        unrestored = unrestored_paths([c for c in changes if c.seq >= request.seq], checkpoints.content)
        if names := [path for path in dict.fromkeys(own) if path in unrestored]:
            yield f"“{_short(request)}” changed {_some_names(names)}: `/undo files {back}` puts that back{too}."
            return


def _tell_model(surface: CommandContext, at: Entry, result: RestoreResult) -> str:
    """Add a note of what was restored, so that the model does not rely on its changes; return why it could not be."""
    if not (result.restored or result.deleted):
        return ""
    restored = tuple(map(str, result.restored[:_NOTED_PATHS]))
    deleted = tuple(map(str, result.deleted[: _NOTED_PATHS - len(restored)]))
    more = len(result.restored) + len(result.deleted) - len(restored) - len(deleted)
    try:
        surface.agent.add_note(FilesTakenBack(at.seq, restored, deleted, more).note())
    except PerdureError as error:  # the files are restored all the same
        return f"The model was not told of it: {error}"
    return ""


def _earlier_turn(surface: CommandContext) -> Iterator[str]:
    """Yield a hint on what the next `/undo` takes back; none if no question is left."""
    requests = [e for e in surface.store.log.originals(_here(surface)) if e.message.is_real_user]
    if requests:
        yield f"/undo again goes back to before “{_short(requests[-1])}”."


def _some_names(paths: Collection[str]) -> str:
    names = list(paths)
    more = len(names) - _LISTED_PATHS
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_LISTED_PATHS])} and {count(more, 'other file')}"


def _last_turns(turns: int) -> str:
    return "the last turn" if turns == 1 else f"the last {turns} turns"


def _restore_lines(result: RestoreResult, back: str, *, turns: int, commands: int) -> list[str]:
    lines = [f"  restored  {path}" for path in result.restored]
    lines += [f"  deleted   {path} (it was new)" for path in result.deleted]
    lines += [f"  left      {path}: changed since by something else" for path in result.changed_since]
    lines += [f"  failed    {path}: {reason}" for path, reason in result.failed]
    if not lines:
        lines = [f"No file had to be put back: what {_last_turns(turns)} changed is as it was before."]
    if result.changed_since:
        lines.append(f"`/undo files {back} overwrite` puts back what was left, too.")
    if commands:
        ran = f"{commands} shell commands" if commands > 1 else "shell command"
        what = f"What the {ran} of {_last_turns(turns)} created, or changed outside this folder,"
        lines.append(f"{what} is left as it is.")
    return lines


def _count_commands(surface: CommandContext, from_seq: int) -> int:
    """Count the shell commands run since `from_seq`; refused ones did not run."""
    messages = [e.message for e in surface.store.log.originals(_here(surface)) if e.seq >= from_seq]
    return sum(m.role == "tool" and m.name == "terminal" and m.tool_state != "refused" for m in messages)


def _count_turns(surface: CommandContext, from_seq: int) -> int:
    entries = surface.store.log.originals(_here(surface))
    return sum(e.seq >= from_seq and e.message.is_real_user for e in entries)


def _again(entry: Entry) -> str | Mapping[str, Any]:
    """Return a stored user message as it was sent, with its attachments, to be sent again."""
    message = entry.message
    return message.content if isinstance(message.content, str) else message.to_dict()


def _here(surface: CommandContext) -> str:
    if surface.agent.session_id is None:
        raise NotFound("Nothing has been said yet.")
    return surface.agent.session_id


def _turn_start(surface: CommandContext, argument: str) -> Entry | None:
    """Return the user message of the nth turn from the end, or of the turn with message `m:57`; None without argument.

    Raises NotFound if there is no such turn.
    """
    if not argument:
        return None
    requests = [e for e in surface.store.log.originals(_here(surface)) if e.message.is_real_user]
    seq = argument.removeprefix("m:")
    if seq != argument and seq.isdecimal() and len(seq) < _MOST_DIGITS:
        before = [e for e in requests if e.seq <= int(seq)]
        if not before:
            raise NotFound(f"there is no question at or before {argument}")
        return before[-1]
    back = int(argument) if argument.isdecimal() else 0
    if not 0 < back <= len(requests):
        raise NotFound(
            f"{argument!r} is no question of this conversation; give a number from 1 (the last) to {len(requests)}"
        )
    return requests[-back]


def _short(entry: Entry, max_chars: int = _SHOWN_CHARS) -> str:
    text = _format_message(entry.message)
    return text if len(text) <= max_chars else f"{text[:max_chars]}…"


def _format_message(message: Message) -> str:
    """Return a message on one line: what the user typed of it, without the blocks that the program added."""
    from perdure.context.user_text.intent import own_words

    return " ".join((own_words(message) or message.text).split())


def _format_title(title: str) -> str:
    return f"“{title}” " if title else ""


NEW = Command("new", "/new", "start a new conversation; this one is kept", new, ("clear",))
RESUME = Command("resume", "/resume [id|number]", "go on with another conversation", resume)
SESSIONS = Command("sessions", "/sessions", "list conversations", sessions)
BRANCH = Command("branch", "/branch [n|m:N]", "go on in a copy, from here or from an earlier question", branch)
RETRY = Command("retry", "/retry [n|m:N]", "ask the last question again, in a branch", retry)
UNDO = Command(
    "undo",
    "/undo [turn|files] [n]",
    "take back the last turn with its file changes, or only those; /undo compaction: a compaction",
    undo,
)
