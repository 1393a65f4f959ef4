"""Read the task from a summary by another program: its goal, and what it left open.

Such a summary is often all that is left of the conversation before it. It is background: what it says is quoted with
its source, and lays nothing down.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from perdure.context.fitting import address, whole_sentences
from perdure.context.handoff_sections import section_of, split_headings
from perdure.context.task_state.state import BEFORE_LOG, InheritedTask
from perdure.context.text import clip, sentences, tidy
from perdure.context.user_text.intent import is_directive
from perdure.core.messages import HANDOFF_FIRST_LINE, SUMMARY_OPENINGS, Message
from perdure.redaction import redact

HEADING = "None in the user's words since an earlier summary, which is background and left open"
GOAL = "From an earlier summary:"
_ASKED, _UNDER_WAY = "The user's last message that it quotes: ", "Under way: "
_GOAL_CHARS = 480
_LINE_CHARS = 360
_LONGEST_SUMMARY = 60_000
# Between the reasoning of a model and its summary.
_SUMMARY_LINE = "\nSummary:\n"
# An element of a summary in XML, on a line of its own, is a heading.
_ELEMENT = re.compile(r"^[ \t]*<(\w{4,40})>[ \t]*$", re.MULTILINE)
_CLOSING = re.compile(r"^[ \t]*</\w{4,40}>[ \t]*$", re.MULTILINE)
_LIST_MARK = re.compile(r"^[ \t]*(?:[-*•]|\d{1,2}[.)])[ \t]+(?:\[[ ~]\][ \t]+)?", re.MULTILINE)
_NO_TASK = re.compile(r"(?i)\W*(?:none\b|nothing\b|n/a\b|no (?:\w+ ){0,3}(?:tasks?|steps?|work|requests?|asks?)\b)")
_DONE = re.compile(r"(?i)^\W*(?:✅|☑|✔|\[x\]|~~)|\((?:done|completed)\)")
# What the program that inserted the summary adds behind it.
_BY_CLIENT = re.compile(
    r"(?im)^(?:If you need specific details from before|Please continue the conversation|Continue (?:with the last task"
    r"|the conversation from where)|Recent messages are preserved).*"
)
_MESSAGES = re.compile(r"(?i)\buser(?:'s)? (?:messages?|asks?|requests?)\b")
_ENDED = tuple(".!?:;。！？：；")


def is_foreign_summary(text: str) -> bool:
    """Return whether a text begins as the summaries of other programs do."""
    return text.startswith(SUMMARY_OPENINGS) and not text.startswith(HANDOFF_FIRST_LINE)


def read_inherited(message: Message, seq: int) -> InheritedTask:
    """Return the task that a summary describes: the request and last message of the user, and the work under way."""
    text = _BY_CLIENT.sub("", message.text[:_LONGEST_SUMMARY].rpartition(_SUMMARY_LINE)[2])
    text = _CLOSING.sub("", _ELEMENT.sub(lambda m: f"## {m[1].replace('_', ' ')}", text))
    goal, asked, under_way = "", "", ""
    is_open = False
    for title, exact, body in split_headings(text):
        name = exact or section_of(title)
        if _MESSAGES.search(title):
            asked = _last_item(body) or asked
        elif name == "Goal":
            goal = goal or _excerpt(body, _GOAL_CHARS)
        elif title and name in ("In Progress", "Remaining Work") and (words := _excerpt(body, _LINE_CHARS)):
            is_open = True
            # What its author means to do next is nobody's order: the record has it, as unverified.
            under_way = under_way or (words if name == "In Progress" else "")
    lines = [f"{_ASKED}“{asked}”"] if asked and is_open else []
    lines += [f"{_UNDER_WAY}“{under_way}”"] if under_way else []
    return InheritedTask(seq, goal, tuple(lines))


def carry_inherited(active_task: str, goal: str) -> InheritedTask | None:
    """Return the task that an earlier handoff took from a summary; None if it took none."""
    _, found, quoted = goal.partition(GOAL)
    lines = active_task.splitlines() if active_task.startswith(HEADING) else []
    left_open = tuple(line[2:] for line in lines if line.startswith((f"- {_ASKED}", f"- {_UNDER_WAY}")))
    words = quoted.strip().split("\n", 1)[0].strip("“”") if found else ""
    return InheritedTask(BEFORE_LOG, words, left_open) if words or left_open else None


def write_inherited(inherited: InheritedTask) -> str:
    """Write what a summary left open, as background."""
    return "\n".join((f"{HEADING}{address(inherited.seq)}:", *(f"- {line}" for line in inherited.open)))


def _excerpt(body: str, room: int) -> str:
    """Return the first sentences of a section, without demands and what is marked as done."""
    items = (line for line in body.splitlines() if not _DONE.search(line))
    plain = redact(_LIST_MARK.sub("", "\n".join(items)).replace("**", ""))
    stated = [s for s in sentences(plain) if not is_directive(s)]
    if not stated or _NO_TASK.match(stated[0]):
        return ""
    stated[:-1] = [s if s.endswith(_ENDED) else f"{s};" for s in stated[:-1]]
    return whole_sentences("\n".join(stated), room).strip('“”"')


def _last_item(body: str) -> str:
    items = list(_items(body))
    words = redact(items[-1].strip(" \"“”'")) if items else ""
    return "" if is_directive(words) else whole_sentences(words, _LINE_CHARS).replace("”", '"')


def _items(body: str) -> Iterator[str]:
    return (tidy(_LIST_MARK.sub("", line)) for line in body.splitlines() if _LIST_MARK.match(line))


# -- the issue that a first request holds
_TITLE_CHARS = 120
# Longer texts are searched at their beginning.
_MOST_ISSUE_CHARS = 40_000
_ISSUE = re.compile(
    r"^[ \t]*<(?:issue|problem|problem_statement|bug|bug_report|ticket|feature_request)(?: [^>\n]{0,200})?>\s{0,20}"
    r"(?P<title>\S[^\n]*)",
    re.IGNORECASE | re.MULTILINE,
)


def issue_title(text: str) -> str:
    """Return the first line of the issue in a message; "" where there is none."""
    issue = _ISSUE.search(text, 0, _MOST_ISSUE_CHARS) if "<" in text else None
    title = tidy(issue["title"]).strip(" #*") if issue is not None else ""
    return clip(redact(title), _TITLE_CHARS) if title and not is_directive(title) else ""
