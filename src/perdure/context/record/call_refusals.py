"""Calls that did not run or did not end: refused by the user, a guard or a hook, interrupted, in the background."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perdure.context.record.call_text import one_line
from perdure.context.record.types import Outcome
from perdure.core.messages import ToolState

_HEAD_CHARS = 600
_REASON_CHARS = 4_000

# How Perdure reports a refusal, after the name of the tool; the group is the reason in the user's own words.
_OWN_REFUSALS = tuple(
    re.compile(pattern, re.S)
    for pattern in (
        r" was not run, the user refused: “(.*)”\. Approval was needed because: ",
        r" was not run, (?:the user refused|no one is available to approve it): ()",
        r" was stopped by a hook: ()",
    )
)
_NOT_BY_USER = ("no one is available", "by a hook")
# How other agents report one.
_OTHER_REFUSALS = tuple(
    re.compile(pattern, re.S)
    for pattern in (
        r"The user doesn't want to (?:proceed with this tool use|take this action)\b.{0,400}?the user said:\s*(.*)",
        r"The user doesn't want to (?:proceed with this tool use|take this action)\b()",
        r"\[?(?:Request )?(?:denied|rejected|declined) by (?:the )?user(?:: (.*?))?\]?\s*\Z",
        r"(?:Error: )?(?:The )?[Uu]ser (?:has )?(?:rejected|denied|declined|refused|cancell?ed)\b"
        r"[^:\n]{0,120}(?:: ?(.*))?\Z",
        r"(?:Error: )?(?:Permission|Approval) (?:to use \S+ (?:with [^\n]{0,300} )?)?(?:has been )?"
        r"(?:denied|refused|rejected)\b[^:\n]{0,120}(?:: ?(.*))?\Z",
        r"(?:Error: )?(?:Tool|Command|Action)\b[^:\n]{0,60}(?:rejected|denied|refused|declined|blocked) by "
        r"(?:the )?user[^:\n]{0,80}(?:: ?(.*))?\Z",
        r"BLOCKED: (?:User denied|.{0,80}denied by (?:the )?user)()",
    )
)
_REFUSAL_HINTS = ("refused", "doesn't want", "denied", "rejected", "declined", "by a hook", "was not run", "cancel")
_INTERRUPT_HINTS = ("interrupt", "abort", "cancel")
_INTERRUPTED = re.compile(
    r"\[Interrupted before it finished|\[stopped: interrupted\]|\[Request interrupted by user|Command aborted\s*\Z|"
    r"(?:Error: )?(?:The )?(?:operation|tool call|command|request) was (?:aborted|interrupted|cancell?ed)|"
    r"Interrupted by user|"
    r"\[(?:Tool )?(?:call )?interrupted\]|\[(?:aborted|cancelled|canceled)\]|Operation aborted"
)
_TIMED_OUT = re.compile(
    r"\[stopped: still running after [^\]]*\]|Command timed out[^\n]*|timed out after [\d.]+ ?\w*|"
    r"was stopped: it took longer than [^\n]*"
)
_BACKGROUND = re.compile(
    r"Command running in background with ID: (\S+?)\.?(?:\s|$)|Started in the background as (\w+)|"
    r"(?:Background|background) (?:process|task|shell|job) (?:started|running)[^\n]{0,60}?"
    r"(?:ID|id|PID|pid|session)[:= ]+(\S+)|"
    r"Command was manually backgrounded by user with ID: (\S+?)\.?(?:\s|$)"
)


@dataclass(frozen=True, slots=True)
class UnfinishedCall:
    """Why a call did not run to its end; `words` is the user's reason, word for word."""

    outcome: Outcome
    message: str
    words: str = ""
    is_by_user: bool = True


def read_refusal(
    result: str, *, tool: str, state: ToolState | None, is_foreign: Callable[[], bool]
) -> UnfinishedCall | None:
    """Recognise a refused or interrupted call by its recorded state, or else by its result's beginning or end.

    A call with a state was refused only if that is its state, whatever its result reads like. Without one, where
    `is_foreign` the result may hold a text of another author, such as a page or a file: there no refusal is
    believed, and the words of the user are not taken from it.
    """
    if state == "refused":
        text = one_line(result.strip().removeprefix("Error: "), 300)
        return _read_own(result, tool) or UnfinishedCall("refused", text, is_by_user=False)
    if state == "interrupted":
        return UnfinishedCall("interrupted", "interrupted before it finished")
    head = result[:_HEAD_CHARS].lower()
    if state is None and any(hint in head for hint in _REFUSAL_HINTS) and not is_foreign():
        refusal = _read_own(result, tool) or _read_other(result)
        if refusal is not None:
            return refusal
    edges = (head[:80], result[-140:].lower())
    if any(hint in edge for edge in edges for hint in _INTERRUPT_HINTS):
        start, end = result[:200].lstrip(), result[-140:].rstrip()
        match = _INTERRUPTED.match(start) or _INTERRUPTED.search(end, max(0, len(end) - 60))
        if match is not None:
            return UnfinishedCall("interrupted", "interrupted before it finished")
    return None


def _read_own(result: str, tool: str) -> UnfinishedCall | None:
    text = result[:_REASON_CHARS].strip().removeprefix("Error: ")
    if not tool or not text.startswith(f"{tool} was "):
        return None
    return _match_refusal(_OWN_REFUSALS, text, len(tool))


def _read_other(result: str) -> UnfinishedCall | None:
    return _match_refusal(_OTHER_REFUSALS, result[:_REASON_CHARS].strip(), 0)


def _match_refusal(patterns: Sequence[re.Pattern[str]], text: str, position: int) -> UnfinishedCall | None:
    for pattern in patterns:
        if (match := pattern.match(text, position)) is not None:
            words = (match[1] or "").strip()
            is_by_user = bool(words) or not any(hint in text for hint in _NOT_BY_USER)
            return UnfinishedCall("refused", one_line(words or text, 300), words, is_by_user)
    return None


def read_timeout(result: str) -> str:
    """The words of a timeout at either end of a result, or ""."""
    edges = result if len(result) <= 600 else f"{result[:300]}\n{result[-300:]}"
    if "timed out" not in edges and "stopped: " not in edges:
        return ""
    match = _TIMED_OUT.search(edges)
    return one_line(match[0].strip("[]"), 120) if match is not None else ""


def background_process(result: str) -> str:
    """The id of a process that was put into the background, or ""."""
    head = result[:400]
    match = _BACKGROUND.search(head) if "ackground" in head else None
    return next(filter(None, match.groups()), "") if match is not None else ""
