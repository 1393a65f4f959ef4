"""The digest: a handoff built by code from the messages, where no summary model responds.

Every line comes from a message: calls with their outcome, unresolved errors, decisions of the assistant, questions of
the user with their replies. The content of the previous handoff is carried over, unless it is superseded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perdure.context.analysis import (
    Action,
    Exchange,
    MessageAnalysis,
    Outcome,
    PatternMatcher,
    actions_of,
    analyze_message,
    decisions,
    exchanges,
    plans,
    sentences,
)
from perdure.context.facts.quoting import beginning, ending
from perdure.context.user_words import own_words
from perdure.core.messages import Message
from perdure.redaction import redact

# Order and share of the budget; unused budget goes to the next section.
_SHARES = {
    "Goal": 0.05,
    "Blocked": 0.09,
    "Active State": 0.10,
    "In Progress": 0.05,
    "Remaining Work": 0.06,
    "Key Decisions": 0.10,
    "Resolved Questions": 0.13,
    "Pending User Asks": 0.05,
    "Completed Actions": 0.37,
}
# Sections carried over from the previous handoff, up to this share; their facts are ranked again.
_CARRIED = {"Constraints & Preferences": 0.3, "Relevant Files": 0.1, "Critical Context": 0.15}
_DEFAULT_CHARS = 8_000
# Quoted facts are worth more per character than generated prose, so they get a part of the budget.
_DIGEST_SHARE = 0.8
# Minimum of a section in a short digest, whatever its share: half a sentence is useless.
_FLOOR_CHARS = 260
_FLOOR_SHARE = 0.12
# A section with less room is skipped.
_LEAST_CHARS = 60
CHECKED = PatternMatcher(
    marks=("pass", "fail", "ok"),
    pattern=re.compile(r"\b\d+ (?:passed|failed)\b|\b(?:FAIL|PASS)(?:ED)?\b|^ok\s+\S+\s+(?:[\d.]+s|\(cached\))"),
)
_FOLDER = re.compile(r"(?:^|[;&|]\s*)cd ([^\s;&|]+)")
_BRANCH = re.compile(r"\bgit (?:checkout -[bB]|switch(?: -[cC])?) ([\w./-]+)")
_ON_BRANCH = re.compile(r"\b(?:On branch |Switched to (?:a new )?branch ')([\w./-]+)")
_NUMBER = re.compile(r"^(\d+)\. ", re.MULTILINE)
_TODO_DONE = frozenset(("completed", "complete", "done", "cancelled", "canceled"))


@dataclass(frozen=True, slots=True)
class _Material:
    """Input of the section builders."""

    messages: Sequence[Message]
    talks: Sequence[MessageAnalysis]
    actions: Sequence[Action]
    # Questions with their replies, and questions without one.
    closed: Sequence[Exchange]
    waiting: Sequence[str]
    previous: Mapping[str, str]


def build_digest(
    messages: Sequence[Message],
    *,
    previous: Mapping[str, str] | None = None,
    budget_chars: int | None = None,
    outcomes: Mapping[str, Outcome] | None = None,
    targets: Mapping[str, str] | None = None,
    talks: Sequence[MessageAnalysis] | None = None,
    after: Sequence[MessageAnalysis] = (),
) -> dict[str, str]:
    """Build the sections, on top of those of the previous handoff.

    `outcomes`, `targets` and `talks` are cached analyses of the messages; `after` are those of the visible messages
    after the handoff, which may hold the reply to a question.
    """
    before = dict(previous or {})
    talks = [analyze_message(m) for m in messages] if talks is None else talks
    actions = actions_of(messages, outcomes=outcomes, targets=targets)
    closed, waiting = exchanges(talks)
    waiting = [] if any(talk.answer for talk in after) else waiting
    material = _Material(messages, talks, actions, closed, waiting, before)
    budget = _DEFAULT_CHARS if budget_chars is None else int(budget_chars * _DIGEST_SHARE)
    sections = {name: _fitting(before.get(name, "").split("\n"), int(budget * s)) for name, s in _CARRIED.items()}
    sections = {name: text for name, text in sections.items() if text}
    room = max(0, budget - sum(map(len, sections.values())))
    remaining = float(room)
    spare = 0.0
    for name, share in _SHARES.items():
        allowed = min(remaining, max(room * share + spare, min(_FLOOR_CHARS, room * _FLOOR_SHARE)))
        text = redact(_MAKERS[name](material, int(allowed))) if allowed >= _LEAST_CHARS else ""
        spare = allowed - len(text)
        remaining -= len(text)
        if text:
            sections[name] = text
    return sections


def _goal(m: _Material, room: int) -> str:
    """The goal of the previous handoff, else the first message of the user."""
    if before := m.previous.get("Goal"):
        return before
    first = next((words for x in m.messages if (words := own_words(x))), "")
    return f"The conversation began with: “{_whole_sentences(first, room - 32)}”" if first else ""


def _whole_sentences(text: str, most: int) -> str:
    """The first whole sentences that fit; a long first one is truncated."""
    out = ""
    for sentence in sentences(text):
        if len(out) + len(sentence) + 1 > most:
            break
        out = f"{out} {sentence}".lstrip()
    return out or f"{beginning(text, most - 2)} …"


def _completed(m: _Material, room: int) -> str:
    """Append one line per target to the previous list; the newest where not all fit."""
    before = m.previous.get("Completed Actions", "")
    start = max((int(n) for n in _NUMBER.findall(before)), default=0)
    groups: dict[tuple[str, str], list[Action]] = {}
    for action in m.actions:
        groups.setdefault((action.target, "" if action.target else action.tool), []).append(action)
    # Changes and the most recent actions are the most valuable.
    ranked = sorted(groups.values(), key=lambda g: (any(a.is_change for a in g), g[-1].position), reverse=True)
    lines: list[tuple[int, str]] = []
    carried = _newest_lines(before, room // 2)
    room -= len(carried) + _LEAST_CHARS
    for group in ranked:
        line = _action_line(group)
        if len(line) + 6 > room:
            break
        room -= len(line) + 6
        lines.append((group[-1].position, line))
    numbered = [f"{n}. {line}" for n, (_, line) in enumerate(sorted(lines), start + 1)]
    left_out = len(groups) - len(lines)
    more = f"(and {left_out} more, mostly reads and searches)"
    if left_out and len(more) < room + _LEAST_CHARS:
        numbered.append(more)
    return "\n".join(filter(None, (carried, *numbered)))


def _action_line(group: Sequence[Action]) -> str:
    """`ACTION target — outcome; “why” [tool: name]` for all calls on one target."""
    last = group[-1]
    verbs: dict[str, int] = {}
    for action in group:
        verbs[action.verb] = verbs.get(action.verb, 0) + 1
    done = ", ".join(v if n == 1 else f"{v} ×{n}" for v, n in verbs.items())
    tools = ", ".join(dict.fromkeys(a.tool for a in group))
    why = next(filter(None, (a.why for a in reversed(group))), "")
    outcome = f"{last.outcome}; “{why}”" if why else last.outcome
    return f"{done.upper()} {last.target} — {outcome} [tool: {tools}]"


def _state(m: _Material, room: int) -> str:
    """The last test run, the last command, their folder and branch, and changed files, newest first."""
    lines: list[str] = []
    tests = next((a for a in reversed(m.actions) if CHECKED.is_in(a.outcome)), None)
    if tests:
        lines.append(f"- Last checks: {tests.target} → {tests.outcome}")
    command = next((a for a in reversed(m.actions) if a.verb == "ran"), None)
    # The last call is listed under In Progress.
    if command and command is not tests and command is not m.actions[-1]:
        lines.append(f"- Last command: {command.target} → {command.outcome}")
    if where := _where(m.actions):
        lines.append(f"- {where}")
    changed: dict[str, int] = {}
    for action in m.actions:
        if action.is_change and not action.is_error and action.target:
            changed[action.target] = changed.pop(action.target, 0) + 1
    lines += [f"- Changed: {t}" + (f" (×{n})" if n > 1 else "") for t, n in reversed(changed.items())]
    return _fitting(lines, room) or m.previous.get("Active State", "")


def _where(actions: Sequence[Action]) -> str:
    """The folder and branch of the last commands."""
    ran = [a for a in reversed(actions) if a.verb == "ran" and not a.is_error]
    folder = next((match[1] for a in ran if (match := _FOLDER.search(a.target))), "")
    matches = (_BRANCH.search(a.target) or _ON_BRANCH.search(a.outcome) for a in ran)
    branch = next((match[1] for match in matches if match), "")
    return "; ".join(f"{what}: {name}" for what, name in (("Folder", folder), ("Branch", branch)) if name)


def _in_progress(m: _Material, room: int) -> str:
    text = next((x.text for x in reversed(m.messages) if x.kind == "assistant" and x.text.strip()), "")
    lines = [f"- The assistant's last words here: “{ending(text, min(400, room - 45))}”"] if text else []
    if m.actions:
        last = m.actions[-1]
        lines.append(f"- Last call: {last.verb} {last.target} → {last.outcome}")
    return _fitting(lines, room)


def _blocked(m: _Material, room: int) -> str:
    """Errors whose target has not succeeded since, word for word."""
    failing: dict[tuple[str, str], Action] = {}
    for action in m.actions:
        key = (action.tool, action.target)
        failing.pop(key, None)
        if action.is_error:
            failing[key] = action
    recent = [a for a in failing.values() if m.actions[-1].position - a.position <= max(40, len(m.messages) // 3)]
    lines = [f"- {a.tool} {a.target}: {a.outcome}" for a in reversed(recent)]
    return _fitting([*lines, *filter(None, m.previous.get("Blocked", "").split("\n"))], room)


def _decisions(m: _Material, room: int) -> str:
    before = m.previous.get("Key Decisions", "")
    lines = [f"- {d}" for d in reversed(decisions(m.talks))]
    return _append_lines(before, _fitting(lines, room - min(len(before), room // 2), newest_last=True), room)


def _resolved(m: _Material, room: int) -> str:
    before = m.previous.get("Resolved Questions", "")
    lines = [f"- “{x.question}” — {x.answer}" for x in reversed(m.closed)]
    return _append_lines(before, _fitting(lines, room - min(len(before), room // 2), newest_last=True), room)


def _pending(m: _Material, room: int) -> str:
    questions = [f"- “{q}”" for q in m.waiting]
    return _fitting([*questions, *filter(None, m.previous.get("Pending User Asks", "").split("\n"))], room)


def _remaining(m: _Material, room: int) -> str:
    """Open tasks of the newest todo list in a call, else the plans of the assistant."""
    for message in reversed(m.messages):
        for call in message.tool_calls:
            arguments = (call.parsed_arguments() or {}) if "status" in call.arguments else {}
            if lines := [line for value in arguments.values() for line in _open_tasks(value)]:
                return _fitting(lines, room)
    return _fitting([f"- {p}" for p in plans(m.talks)], room) or m.previous.get("Remaining Work", "")


def _open_tasks(value: object) -> list[str]:
    if not isinstance(value, list):
        return []
    tasks = [t for t in value if isinstance(t, dict) and isinstance(t.get("status"), str)]
    return [
        f"- {text} ({task['status']})"
        for task in tasks
        if task["status"].lower() not in _TODO_DONE
        and (
            text := next((str(task[k]) for k in ("content", "title", "task", "text", "description") if task.get(k)), "")
        )
    ]


def _fitting(lines: Sequence[str], room: int, *, newest_last: bool = False) -> str:
    """The first whole lines that fit."""
    chosen: list[str] = []
    for line in lines:
        if (room := room - len(line) - 1) < 0:
            break
        chosen.append(line)
    return "\n".join(reversed(chosen) if newest_last else chosen)


def _append_lines(before: str, after: str, room: int) -> str:
    """Append new lines to old ones; old ones are dropped first."""
    return "\n".join(filter(None, (_newest_lines(before, room - len(after)), after)))


def _newest_lines(text: str, room: int) -> str:
    newest: list[str] = []
    for line in reversed(text.split("\n") if text else []):
        if (room := room - len(line) - 1) < 0:
            break
        newest.append(line)
    return "\n".join(reversed(newest))


_MAKERS = {
    "Goal": _goal,
    "Blocked": _blocked,
    "Active State": _state,
    "In Progress": _in_progress,
    "Remaining Work": _remaining,
    "Key Decisions": _decisions,
    "Resolved Questions": _resolved,
    "Pending User Asks": _pending,
    "Completed Actions": _completed,
}
