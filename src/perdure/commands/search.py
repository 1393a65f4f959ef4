"""`/search`, `/expand` and `/handoff`: search messages, read a handoff and open its sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure.commands.command import Command, CommandContext, CommandResult
from perdure.commands.conversations import present_id
from perdure.commands.format import when
from perdure.core.display import answer_line, describe_report, full_address, split_address
from perdure.core.ports import SearchHit
from perdure.store.records import Span
from perdure.store.store import SessionStore

# As many as one looks through; a terminal opens them in a pager where they do not fit.
_HITS = 12
# Messages read at a time, from the end of the log backwards.
_LOG_STEP = 200


def search(surface: CommandContext, argument: str) -> CommandResult:
    if not argument:
        return CommandResult('/search takes a question, words, a "phrase", or a prefix*', "error")
    present = present_id(surface)
    report = surface.store.search_index.report(
        argument, visibility=surface.visibility, scope={"asked_in": present}, limit=_HITS
    )
    if not report.hits:
        return CommandResult(f"Nothing found for {argument!r}. {describe_report(report)}")
    opening = f"{describe_report(report)} Open one with /expand ADDRESS"
    is_elsewhere = any(hit.conversation_id != present for hit in report.hits)
    opening += "; /resume ADDRESS goes on with its conversation." if is_elsewhere else "."
    return CommandResult("\n".join([opening, "", *hit_lines(report.hits, present)]), is_document=True)


def hit_lines(hits: Sequence[SearchHit], present: str | None = None) -> list[str]:
    """Return the lines of some hits: address, role and time; title; snippet; the answer to a question.

    Hits of the conversation `present` have short addresses and no title. The title has a line of its own: an address
    is not broken by a narrow terminal.
    """
    return [line for hit in hits for line in _hit_lines(hit, present)]


def _hit_lines(hit: SearchHit, present: str | None) -> Iterator[str]:
    is_here = hit.conversation_id == present
    address = hit.address if is_here else full_address(hit)
    yield f"{address} · {hit.role} · {when(hit.created_at_ms)}"
    if not is_here:
        yield f"    “{hit.title}”" if hit.title else "    (no title)"
    yield f"    {_one_line(hit.snippet)}{_why_listed(hit)}"
    if hit.answer:
        yield f"    {answer_line(hit, present)}"


def _why_listed(hit: SearchHit) -> str:
    """Explain a hit whose snippet has no highlighted word; "" if it has one."""
    if hit.marks:
        return ""
    if hit.matched:
        return f"  [{', '.join(hit.matched)} in another part of it]"
    return "  [similar in meaning]"


def expand(surface: CommandContext, argument: str) -> CommandResult:
    """Show the messages at an address, by default those that the newest handoff replaced."""
    words = argument.split()
    if words:
        owner, rest = split_address(words[0])
        words[:1] = [rest] if owner is None else [owner, rest]
    is_named = bool(words) and words[0].startswith(("c_", "s_"))
    session_id = words.pop(0) if is_named else surface.agent.session_id
    if session_id is None:
        return CommandResult("Nothing has been said yet.", "error")
    if is_named:  # whose it is decides whether there is such a one
        surface.store.conversations.get(session_id, visibility=surface.visibility)
    if words[:1] == ["last"]:
        newest = _newest_output(surface.store, session_id)
        if newest is None:
            return CommandResult("No tool has run in this conversation yet.", "error")
        words[0] = f"m:{newest}"
    if words and words[0].isdecimal():  # the number of a message, as lists show it after `m:`
        words[0] = f"m:{words[0]}"
    if not words:
        handoffs = surface.store.log.handoffs(session_id)
        if not handoffs:
            return CommandResult("This conversation has no handoff yet: everything is still in view.")
        words.insert(0, max(handoffs.values(), key=lambda h: h.seq).address)
    address = words[0]
    start = int(words[1]) if len(words) > 1 and words[1].isdecimal() else 0
    page = surface.store.open(address, conversation_id=session_id, offset=start, limit=surface.page_chars)
    if page.next_offset is None:
        return CommandResult(page.text, is_document=True)
    how = f"/expand {session_id} {address} {page.next_offset} reads on"
    rest = f"[{page.next_offset:,} of {page.total_chars:,} characters; {how}]"
    return CommandResult(f"{page.text}\n{rest}", is_document=True)


def _newest_output(store: SessionStore, any_id: str) -> int | None:
    """Return the seq of the newest tool result in the log, compacted or not; None if no tool has run."""
    last = store.conversations.get(any_id).last_seq
    for end in range(last, 0, -_LOG_STEP):
        entries = store.log.read(any_id, Span(max(1, end - _LOG_STEP + 1), end))
        if positions := [e.seq for e in entries if e.message.role == "tool"]:
            return positions[-1]
    return None


def handoff(surface: CommandContext, argument: str) -> CommandResult:
    """Show the newest handoff word for word, as the model reads it instead of the compacted messages."""
    text = newest_handoff(surface)
    if text is None:
        return CommandResult("Nothing was compacted: the model reads every message as it is.")
    hint = "/expand opens the messages it replaces; /undo compaction puts them back."
    return CommandResult(f"{text}\n\n{hint}", is_document=True)


def newest_handoff(surface: CommandContext) -> str | None:
    """Return the text of the newest handoff in the current view; None if there is none."""
    session_id = surface.agent.session_id
    entries = surface.store.history(session_id).entries if session_id is not None else ()
    return next((e.message.text for e in reversed(entries) if e.message.kind == "handoff"), None)


def _one_line(text: str) -> str:
    return " ".join(text.split())


SEARCH = Command("search", "/search words", "find what was said, in every conversation", search)
HANDOFF = Command("handoff", "/handoff", "what the model reads in place of compacted messages", handoff)
EXPAND = Command(
    "expand", "/expand [address|last]", "open what a handoff or an address stands for, or the last output", expand
)
