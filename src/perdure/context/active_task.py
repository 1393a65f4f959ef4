"""Active Task, grounded by code in what the user really said (E2): a summariser may not invent, drop or reword it.

A request is open until a reply without tool calls ends its turn; a reply that ends in a question leaves it open. A bare
"continue" takes up again what the last reply closed; a bare "thanks" or "ok" changes nothing. Neither is a request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from perdure.context.small_talk import goes_on, is_bare
from perdure.core.messages import SUMMARY_OPENINGS, Message
from perdure.redaction import redact

OPEN = "The user's unfinished requests, word for word, newest last:"
ALL_ANSWERED = "None. Every request so far was answered; the last one was:"
# What is left to do where nobody said more about it than the requests themselves.
AS_ASKED = "- What Active Task quotes, as far as it is not told as done above."
QUOTE_CHARS = 1_600
MOST_REQUESTS = 6

_LEFT_OUT = "[… {:,} characters left out …]"
_SHORTENED = re.compile(r"^\[… [\d,]+ characters left out …\]$", re.MULTILINE)
_ASKS_BACK = re.compile(r"[?？][\s\"'”’)\]*_`]*$")


@dataclass(frozen=True, slots=True)
class OpenRequests:
    """What the user asked for and still waits for; `answered` is what the last reply closed."""

    open: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()


def requests_of(messages: Iterable[Message], previous: str = "") -> OpenRequests:
    """The requests after these messages; `previous` is the Active Task of the handoff that stands before them."""
    before = parse_active_task(previous)
    waiting, closed = list(before.open), list(before.answered)
    for m in messages:
        if m.role == "tool" or m.tool_calls:
            continue
        if m.is_real_user:
            text = m.said.strip()
            if not text or text.startswith(SUMMARY_OPENINGS):
                continue
            if not is_bare(text):
                if before.open:
                    # Quoted by the handoff and kept behind it, a request must not come twice.
                    quoted = quote(text)
                    waiting = [w for w in waiting if quote(w) != quoted]
                waiting.append(text)
            elif goes_on(text) and not waiting:
                waiting, closed = closed, []
        elif m.role == "assistant" and m.kind == "assistant" and waiting:
            reply = m.said.strip()
            if reply and not _ASKS_BACK.search(reply[-60:]):
                waiting, closed = [], waiting
    return OpenRequests(tuple(waiting), tuple(closed))


def active_task(requests: OpenRequests) -> str:
    """The section's text: quotes only, redacted, each of bounded length."""
    if requests.open:
        quotes = [quote(r) for r in requests.open[-MOST_REQUESTS:]]
        more = len(requests.open) - len(quotes)
        earlier = f"[{more} earlier open requests are in the compacted messages]\n" if more > 0 else ""
        return f"{OPEN}\n{earlier}" + "\n\n".join(quotes)
    if requests.answered:
        return f"{ALL_ANSWERED}\n{quote(requests.answered[-1])}"
    return "None"


def parse_active_task(section: str) -> OpenRequests:
    """The requests an Active Task quotes."""
    quotes: list[str] = []
    lines: list[str] = []
    for line in (*section.splitlines(), ""):
        if line.startswith(">"):
            lines.append(line[2:] if line.startswith("> ") else line[1:])
        elif lines:
            quotes.append("\n".join(lines))
            lines = []
    if section.startswith("None"):
        return OpenRequests(answered=tuple(quotes))
    return OpenRequests(open=tuple(quotes))


def quote(text: str) -> str:
    """A request as a block quote; a very long one by its two ends. Quoting what was quoted changes nothing."""
    text = redact(text.strip())
    if len(text) > QUOTE_CHARS and not _is_shortened(text):
        head, tail = QUOTE_CHARS * 2 // 3, QUOTE_CHARS // 3
        left_out = _LEFT_OUT.format(len(text) - head - tail)
        text = f"{text[:head].rstrip()}\n{left_out}\n{text[-tail:].lstrip()}"
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _is_shortened(text: str) -> bool:
    """Cut by an earlier handoff already: cut again, it would tell of its own marker and no longer be known again."""
    return len(text) <= QUOTE_CHARS + 2 * len(_LEFT_OUT) and _SHORTENED.search(text) is not None
