"""What was done, read from tool calls and their results: the action, its target, why, and how it ended."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from perdure.context.facts.quotes import beginning, ending, is_understood, tidy
from perdure.context.facts.reading import argument_values, facts_in, target_of
from perdure.context.talk import sentences
from perdure.context.wording import Wording
from perdure.core.memo import Memo
from perdure.core.messages import Entry, Message, ToolCall

# The first word found in a tool's name names what it does; an unknown tool is simply called.
_VERBS = (
    ("edited", ("edit", "replace", "patch", "insert", "update", "modify", "rename", "move")),
    ("wrote", ("write", "create", "save", "append", "upload", "send", "post", "book", "delete", "remove", "cancel")),
    ("searched", ("grep", "search", "find", "glob", "list", "ls", "lookup", "query")),
    ("read", ("read", "view", "open", "cat", "get", "fetch", "browse", "visit", "crawl")),
    ("ran", ("bash", "shell", "terminal", "exec", "run", "command", "python", "code")),
)
CHANGES = frozenset(("edited", "wrote"))
_LOOKS = frozenset(("read", "searched"))

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
ERROR = Wording(
    marks=(
        "error", "exception", "fail", "fatal", "panic", "traceback", "denied", "cannot", "unable to", "not found",
        "no such", "timed out", "undefined", "invalid", "aborted", "exit",
    ),
    pattern=re.compile(
        r"(?:Error|Exception|Failure)\b|\b(?i:error|failed|failure|fatal|panic|traceback|denied|cannot"
        r"|unable to|not found|no such|timed out|undefined|invalid|aborted)\b"
        r"|\bFAIL(?:ED)?\b|exit(?:ed with)?(?: code| status)? [1-9]"
    ),
    cjk=re.compile("错误|失败|エラー|失敗|오류|실패"),
)  # fmt: skip
# Each begins with a single character, which is found at memory speed; the line around a hit is cut out afterwards.
_COUNTED = re.compile(r" (?:passed|failed|errors?|tests?|failures?|skipped)\b")
_VERDICT = re.compile(r"\n(?:ok|FAIL|PASS)\b")
_FAILED_TESTS = re.compile(r"FAIL|[1-9]\d* (?:failed|error|failure)")
_EXIT = re.compile(r"exit(?:ed with)?(?: code| status)?[ :=]+(\d+)", re.IGNORECASE)
# How our own terminal opens when all went well, which needs no saying; and a change as an editing tool shows it.
_WENT_WELL = "[exit 0]"
_HUNK = "@@ -"
# At a line's beginning: the name of an exception, as a traceback ends with it.
_NAMED_ERROR = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Failure)\b")
# Below so many lines even something that was read may be nothing but a refusal.
_REFUSAL_LINES = 3

# One line of how a call ended, and whether that is an error.
Outcome = tuple[str, bool]

_EDGE_CHARS = 2_000
_OUTCOME_CHARS = 110
_WHY_CHARS = 90
_SAID_CHARS = 600


class Action(NamedTuple):
    """One call and how it ended; `said` is what the assistant said with it."""

    place: int
    tool: str
    verb: str
    target: str
    said: str
    outcome: str
    is_error: bool

    @property
    def is_change(self) -> bool:
        return self.verb in CHANGES

    @property
    def why(self) -> str:
        """What was said last before the call: the last sentence, or where that is long, the last words."""
        said = self.said
        last = sentences(said[-_SAID_CHARS:])[-1:] if said else []
        told = last[0] if last and len(last[0]) <= 1.5 * _WHY_CHARS else ending(said, _WHY_CHARS)
        return tidy(told).rstrip(":： ")


def actions_of(
    messages: Sequence[Message],
    *,
    most: int = 400,
    outcomes: Mapping[str, Outcome] | None = None,
    targets: Mapping[str, str] | None = None,
) -> list[Action]:
    """The newest `most` calls in their order; `outcomes` and `targets` are those already read, by the call's id."""
    results: dict[str, Message] = {m.tool_call_id: m for m in messages if m.role == "tool" and m.tool_call_id}
    found: list[Action] = []
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if message.tool_calls:
            for call in reversed(message.tool_calls):
                outcome, is_error = _ended(call, results, outcomes or {})
                target = beginning((targets or {}).get(call.id) or target_of(argument_values(call.arguments)), 160)
                found.append(Action(place, call.name, verb_of(call.name), target, message.text, outcome, is_error))
            if len(found) >= most:
                break
    return found[::-1]


def _ended(call: ToolCall, results: Mapping[str, Message], read: Mapping[str, Outcome]) -> Outcome:
    answered = call.id if call.id in results else next((i for i in sorted(call.ids) if i in results), None)
    if answered is None:
        return "no result yet", False
    text = results[answered].text
    outcome, is_error = read.get(answered) or outcome_of(text)
    if is_error and verb_of(call.name) in _LOOKS and text.count("\n") >= _REFUSAL_LINES:
        # What was read or found speaks of errors; the looking went well.
        return f"{beginning(text, _OUTCOME_CHARS)} ({text.count(chr(10)) + 1} lines)", False
    return outcome, is_error


def verb_of(tool: str) -> str:
    """What a tool of this name does to its target, in one word."""
    return _VERB_OF[tool]


def _verb_of(tool: str) -> str:
    words = {w.lower() for w in _WORDS.findall(tool)}
    return next((verb for verb, names in _VERBS if not words.isdisjoint(names)), "called")


_VERB_OF: Memo[str, str] = Memo(_verb_of, max_bytes=200_000, bytes_per_char=4)


def outcome_in(entry: Entry) -> Outcome:
    """The same of an entry that is a result, read once, from its redacted text: a line cut short may halve a secret."""
    return entry.known("outcome") or entry.memo("outcome", lambda _: outcome_of(facts_in(entry).message.text))


def outcome_of(text: str) -> Outcome:
    """How a call ended, in one line of its own result, and whether that is an error."""
    went_well = text.startswith(_WENT_WELL)
    text = text[len(_WENT_WELL) :].lstrip("\n") if went_well else text
    edges = text if len(text) <= 2 * _EDGE_CHARS else f"{text[:_EDGE_CHARS]}\n{text[-_EDGE_CHARS:]}"
    lines = text.count("\n") + 1
    size = f" ({lines} lines)" if lines > 8 else ""
    if tests := _tests_line(edges):
        return tidy(tests)[:_OUTCOME_CHARS] + size, _FAILED_TESTS.search(tests) is not None
    if change := _change_in(edges):
        return change, False
    # A long result that merely contains such a word (a log, a source file) is not itself an error.
    if not went_well and (lines <= 40 or _has_failed(edges)) and (error := error_line(edges)):
        return error + size, True
    first = edges.lstrip().partition("\n")[0]
    # A first line such as `{` or a package's name says too little by itself.
    told = first if is_understood(first) else edges
    return (beginning(told, _OUTCOME_CHARS) or "nothing returned") + size, False


def _has_failed(text: str) -> bool:
    status = _EXIT.search(text) if "exit" in text.lower() else None
    return status is not None and status[1] != "0"


def _change_in(text: str) -> str:
    """The first line a change took away and the first it put there, where an editing tool shows them."""
    at = text.find(_HUNK, 0, 400)
    if at < 0 or text.startswith("diff "):
        return ""
    removed = added = ""
    for line in text[at:].split("\n")[1:]:
        if not removed and line.startswith("-"):
            removed = tidy(line[1:])
        elif not added and line.startswith("+"):
            added = tidy(line[1:])
    told = [f"`{beginning(line, _OUTCOME_CHARS)}`" for line in (removed, added) if line]
    return " → ".join(told) if removed else f"added {told[0]}" if told else ""


def _tests_line(text: str) -> str:
    """The last line that counts tests or gives a verdict on them."""
    text = f"\n{text}"
    counts = [m.end() for m in _COUNTED.finditer(text) if text[m.start() - 1].isdigit()]
    hits = counts + [m.end() for m in _VERDICT.finditer(text)]
    if not hits:
        return ""
    at = max(hits)
    end = text.find("\n", at)
    return text[text.rfind("\n", 0, at) + 1 : end if end >= 0 else len(text)]


def error_line(text: str) -> str:
    """The line that says what went wrong; "" where none does."""
    lines = ERROR.among(text.split("\n"), text)
    # The last line of a traceback names the error; an opening "Traceback" does not.
    # Nor does a bare exit status.
    lines = [x for x in lines if not x.startswith("Traceback") and not _EXIT.fullmatch(x.strip("[] \t\r"))] or lines
    if not lines:
        return ""
    named = [x for x in lines if _NAMED_ERROR.match(x)]
    told = named[-1] if named else lines[0] if len(lines) < 3 else lines[-1]
    return tidy(told)[: 2 * _OUTCOME_CHARS]
