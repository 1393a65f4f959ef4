"""Per-message analysis: actions, conclusions, roles; pattern matching with literal pre-filters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from perdure.context.facts import FactLedger, MessageFacts, facts_in
from perdure.context.facts.extraction import PLACES, kind_of, scan
from perdure.context.facts.quoting import beginning, ending, is_understood, tidy
from perdure.context.facts.reading import argument_values, identifying_value
from perdure.context.user_words import own_words
from perdure.core.memo import Memo
from perdure.core.messages import Entry, Message, ToolCall


@dataclass(frozen=True, slots=True)
class PatternMatcher:
    """A regex with required lower-case literals as a cheap pre-filter; CJK text skips the filter."""

    marks: tuple[str, ...]
    pattern: re.Pattern[str]
    cjk: re.Pattern[str] | None = None

    def is_in(self, text: str) -> bool:
        return bool(self.among((text,), text))

    def among(self, pieces: Iterable[str], whole: str) -> list[str]:
        """The pieces of a text that match."""
        low = whole.lower()
        present = [mark for mark in self.marks if mark in low]
        search = self.pattern.search
        if self.cjk is None or whole.isascii() or not self.cjk.search(whole):
            return [p for p in pieces if any(map(p.lower().__contains__, present)) and search(p)] if present else []
        in_cjk = self.cjk.search
        return [p for p in pieces if in_cjk(p) or (any(map(p.lower().__contains__, present)) and search(p))]


_END = re.compile(r"[\n.!?。！？]")
# Matches the end of a stripped sentence.
_QUESTION = re.compile(r"[?？]$|[吗呢か]\s*[。.]?$|(?:까요|나요|는지)\s*[.]?$")
DECISION = PatternMatcher(
    marks=(
        "deci", "chose", "choosing", "instead of", "rather than", "opted", "going with", "let's use", "ll use", "cause",
        "the issue", "the problem", "the bug", "the fix", "trade", "should",
    ),
    pattern=re.compile(
        r"\b(?:decided?|decision|chose|choosing|instead of|rather than|opted|going with|let's use"
        r"|(?:we|I)(?:'ll| will) use|because|root cause|the (?:issue|problem|bug|cause|fix) (?:is|was)|trade-?off"
        r"|should (?:not )?be)\b",
        re.IGNORECASE,
    ),
    cjk=re.compile("决定|改用|选择|因为|原因|決め|ことにし|ではなく|ため、|결정|대신|때문에|원인"),
)  # fmt: skip
PLAN = PatternMatcher(
    marks=("next", "then", "remain", "still", "to do", "todo", "[ ] "),
    pattern=re.compile(
        r"^(?:\W*(?:next(?: steps?)?|then|remaining|still (?:need|to do|left)|to ?do|left to do)\b|\W*\[ \] "
        r"|.*\b(?:remains to be|still needs? to)\b)",
        re.IGNORECASE,
    ),
    cjk=re.compile("接下来|下一步|还需要|次に|残り|まだ|다음(?:으로|은)|남은"),
)
_LONGEST_SENTENCE = 400


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question of the user and the reply to it."""

    question: str
    answer: str


def sentences(text: str) -> list[str]:
    """The sentences of a text in any script, lines counting as ends; code blocks are left out."""
    prose = "".join(text.split("```")[::2]) if "```" in text else text
    pieces: list[str] = []
    start = 0
    for mark in _END.finditer(prose):
        end = mark.end()
        # A Latin mark inside a word or number ends nothing.
        if mark[0] not in ".!?" or prose[end : end + 1].isspace():
            pieces.append(prose[start:end].strip())
            start = end
    pieces.append(prose[start:].strip())
    return [s for s in pieces if s]


@dataclass(frozen=True, slots=True)
class MessageAnalysis:
    """Decisions, plans, questions and answers in one message; `choices` are the user's decisions."""

    decisions: tuple[str, ...] = ()
    plans: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    answer: str = ""
    choices: tuple[str, ...] = ()


_NOTHING = MessageAnalysis()


def analyze_message(message: Message) -> MessageAnalysis:
    """Analyze a message. Pure, so the result can be cached."""
    if message.is_real_user:
        # In ASCII only a question mark at the very end makes a question.
        lines = sentences(own_words(message))
        questions = [s for s in lines if s[-1] == "?" or (not s.isascii() and _QUESTION.search(s))][-3:]
        chosen = _decided(lines, message.text)
        return MessageAnalysis(questions=tuple(questions), choices=chosen) if questions or chosen else _NOTHING
    if message.kind != "assistant" or not message.text.strip():
        return _NOTHING
    lines = sentences(message.text)
    decided = _decided(lines, message.text)
    planned = tuple(tidy(s.lstrip("-*#> ")) for s in PLAN.among(lines, message.text) if len(s) > 12)
    answer = "" if message.tool_calls else beginning(" ".join(lines[:3]) or message.text, 260)
    return MessageAnalysis(decided, planned[:8], answer=answer)


def _decided(lines: Iterable[str], text: str) -> tuple[str, ...]:
    matches = DECISION.among((s for s in lines if 25 <= len(s) <= _LONGEST_SENTENCE), text)
    return tuple(tidy(s.lstrip("-*#> ")) for s in matches)


def analysis_of(entry: Entry) -> MessageAnalysis:
    """The cached analysis of an entry, from its redacted text: truncation may halve a secret."""
    return entry.memoized("talk") or entry.memo("talk", lambda _: analyze_message(facts_in(entry).message))


def decisions(talks: Iterable[MessageAnalysis]) -> list[str]:
    """The assistant's sentences with decisions or reasons, in order, without duplicates."""
    return list(dict.fromkeys(d for talk in talks for d in talk.decisions))


def plans(talks: Sequence[MessageAnalysis]) -> Sequence[str]:
    """The plans in the newest assistant message that has any."""
    return next((talk.plans for talk in reversed(talks) if talk.plans), ())


def exchanges(talks: Iterable[MessageAnalysis]) -> tuple[list[Exchange], list[str]]:
    """Questions with their replies, and questions without one."""
    closed: list[Exchange] = []
    waiting: list[str] = []
    for talk in talks:
        waiting += talk.questions
        if talk.answer and waiting:
            closed.append(Exchange(beginning(waiting[-1], 200), talk.answer))
            waiting = []
    return closed, [beginning(q, 300) for q in waiting]


# Separators between a file name and a line number in compiler output and tracebacks.
_BEFORE_LINE_NUMBER = (":", '", line ', "(")


@dataclass(frozen=True, slots=True)
class Roles:
    """The facts of one message that occur in an error, and those in a decision."""

    errors: frozenset[str] = frozenset()
    decisions: frozenset[str] = frozenset()


_NONE = Roles()
# How many messages back errors and decisions count.
_LATELY = 150


def ledger_of(entries: Sequence[Entry]) -> FactLedger:
    """Build the ledger of a history; facts in recent errors and decisions get more weight."""
    start = max(0, len(entries) - _LATELY)
    roles = [(position, e.memoized("roles") or roles_in(e)) for position, e in enumerate(entries[start:], start)]
    return FactLedger.collect(
        list(map(facts_in, entries)),
        errors=[(position, r.errors) for position, r in roles if r.errors],
        decisions=[(position, r.decisions) for position, r in roles if r.decisions],
    )


def roles_in(entry: Entry) -> Roles:
    """The cached roles of an entry's facts."""
    return entry.memo("roles", lambda _: _roles_of(entry))


def _roles_of(entry: Entry) -> Roles:
    facts = facts_in(entry)
    if not facts.mentioned:
        return _NONE
    if facts.role == "tool":
        line, is_error = outcome_in(entry)
        return Roles(errors=_failing(facts, line)) if is_error else _NONE
    analysis = analysis_of(entry)
    decided = facts.mentioned & scan("\n".join(analysis.decisions + analysis.choices))
    return Roles(decisions=decided) if decided else _NONE


def _failing(facts: MessageFacts, line: str) -> frozenset[str]:
    """The facts in the error line, and every file with a line number in a failing result."""
    text = facts.message.text
    paths = (f for f in facts.mentioned if kind_of(f) in PLACES)
    return (facts.mentioned & scan(line)).union(f for f in paths if _has_line_number(text, f))


def _has_line_number(text: str, path: str) -> bool:
    end = text.find(path) + len(path)
    mark = next((m for m in _BEFORE_LINE_NUMBER if text.startswith(m, end)), "")
    return bool(mark) and text[end + len(mark) : end + len(mark) + 1].isdigit()


# The first of these words in a tool's name gives the verb; other tools get "called".
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
ERROR = PatternMatcher(
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
# Each pattern begins with a literal character, for speed; the line around a match is extracted afterwards.
_COUNTED = re.compile(r" (?:passed|failed|errors?|tests?|failures?|skipped)\b")
_VERDICT = re.compile(r"\n(?:ok|FAIL|PASS)\b")
_FAILED_TESTS = re.compile(r"FAIL|[1-9]\d* (?:failed|error|failure)")
_EXIT = re.compile(r"exit(?:ed with)?(?: code| status)?[ :=]+(\d+)", re.IGNORECASE)
# The terminal tool's line for success, which is omitted; and a diff as editing tools print it.
_WENT_WELL = "[exit 0]"
_HUNK = "@@ -"
# An exception name at the start of a line, as at the end of a traceback.
_NAMED_ERROR = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Failure)\b")
# A result of a reading tool with fewer lines may be an error message.
_REFUSAL_LINES = 3

# One line with the outcome of a call, and whether it is an error.
Outcome = tuple[str, bool]

_EDGE_CHARS = 2_000
_OUTCOME_CHARS = 110
_WHY_CHARS = 90
_SAID_CHARS = 600


class Action(NamedTuple):
    """One tool call and its outcome; `text` is the assistant's text beside it."""

    position: int
    tool: str
    verb: str
    target: str
    text: str
    outcome: str
    is_error: bool

    @property
    def is_change(self) -> bool:
        return self.verb in CHANGES

    @property
    def why(self) -> str:
        """The reason for the call: the last sentence before it, or the last words of a long one."""
        text = self.text
        last = sentences(text[-_SAID_CHARS:])[-1:] if text else []
        reason = last[0] if last and len(last[0]) <= 1.5 * _WHY_CHARS else ending(text, _WHY_CHARS)
        return tidy(reason).rstrip(":： ")


def actions_of(
    messages: Sequence[Message],
    *,
    most: int = 400,
    outcomes: Mapping[str, Outcome] | None = None,
    targets: Mapping[str, str] | None = None,
) -> list[Action]:
    """The newest `most` calls in order; `outcomes` and `targets` are cached values by call id."""
    results: dict[str, Message] = {m.tool_call_id: m for m in messages if m.role == "tool" and m.tool_call_id}
    actions: list[Action] = []
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if message.tool_calls:
            for call in reversed(message.tool_calls):
                outcome, is_error = _outcome_of_call(call, results, outcomes or {})
                target = beginning(
                    (targets or {}).get(call.id) or identifying_value(argument_values(call.arguments)), 160
                )
                actions.append(Action(position, call.name, verb_of(call.name), target, message.text, outcome, is_error))
            if len(actions) >= most:
                break
    return actions[::-1]


def _outcome_of_call(call: ToolCall, results: Mapping[str, Message], read: Mapping[str, Outcome]) -> Outcome:
    result_id = call.id if call.id in results else next((i for i in sorted(call.ids) if i in results), None)
    if result_id is None:
        return "no result yet", False
    text = results[result_id].text
    outcome, is_error = read.get(result_id) or outcome_of(text)
    if is_error and verb_of(call.name) in _LOOKS and text.count("\n") >= _REFUSAL_LINES:
        # The output mentions errors, but the call itself succeeded.
        return f"{beginning(text, _OUTCOME_CHARS)} ({text.count(chr(10)) + 1} lines)", False
    return outcome, is_error


def verb_of(tool: str) -> str:
    """The verb for a tool of this name."""
    return _VERB_OF[tool]


def _verb_of(tool: str) -> str:
    words = {w.lower() for w in _WORDS.findall(tool)}
    return next((verb for verb, names in _VERBS if not words.isdisjoint(names)), "called")


_VERB_OF: Memo[str, str] = Memo(_verb_of, max_bytes=200_000, bytes_per_char=4)


def outcome_in(entry: Entry) -> Outcome:
    """The cached outcome of a tool result, from its redacted text: truncation may halve a secret."""
    return entry.memoized("outcome") or entry.memo("outcome", lambda _: outcome_of(facts_in(entry).message.text))


def outcome_of(text: str) -> Outcome:
    """Summarize a tool result in one line, and classify it as error or not."""
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
    # A first line such as `{` or a package name is too short to be understood.
    summary = first if is_understood(first) else edges
    return (beginning(summary, _OUTCOME_CHARS) or "nothing returned") + size, False


def _has_failed(text: str) -> bool:
    status = _EXIT.search(text) if "exit" in text.lower() else None
    return status is not None and status[1] != "0"


def _change_in(text: str) -> str:
    """The first removed and the first added line of a diff, if the result has one."""
    at = text.find(_HUNK, 0, 400)
    if at < 0 or text.startswith("diff "):
        return ""
    removed = added = ""
    for line in text[at:].split("\n")[1:]:
        if not removed and line.startswith("-"):
            removed = tidy(line[1:])
        elif not added and line.startswith("+"):
            added = tidy(line[1:])
    quoted = [f"`{beginning(line, _OUTCOME_CHARS)}`" for line in (removed, added) if line]
    return " → ".join(quoted) if removed else f"added {quoted[0]}" if quoted else ""


def _tests_line(text: str) -> str:
    """The last line with test counts or a test verdict."""
    text = f"\n{text}"
    counts = [m.end() for m in _COUNTED.finditer(text) if text[m.start() - 1].isdigit()]
    hits = counts + [m.end() for m in _VERDICT.finditer(text)]
    if not hits:
        return ""
    at = max(hits)
    end = text.find("\n", at)
    return text[text.rfind("\n", 0, at) + 1 : end if end >= 0 else len(text)]


def error_line(text: str) -> str:
    """The line that describes the error; "" where there is none."""
    lines = ERROR.among(text.split("\n"), text)
    # The last line of a traceback names the error; an opening "Traceback" does not.
    # Nor does a bare exit status.
    lines = [x for x in lines if not x.startswith("Traceback") and not _EXIT.fullmatch(x.strip("[] \t\r"))] or lines
    if not lines:
        return ""
    named = [x for x in lines if _NAMED_ERROR.match(x)]
    chosen = named[-1] if named else lines[0] if len(lines) < 3 else lines[-1]
    return tidy(chosen)[: 2 * _OUTCOME_CHARS]
