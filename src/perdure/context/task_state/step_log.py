"""List together what was done in the same way for several subjects.

"Do this for each of these modules" leaves hundreds of calls that differ in a name or two. Each alone is worth little,
but an agent that cannot see for which names they succeeded does the work again, so `StepLog` lists them together:
which tool, what came of it, for which subjects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from perdure.context.task_state.state import RepeatedSteps, TakenBackChanges, parse_steps
from perdure.context.text import first_words
from perdure.context.tool_calls.call_line import RepeatableCall
from perdure.context.user_text.intent import is_directive
from perdure.redaction import redact

_FEWEST_SUBJECTS = 3
_LONGEST_SUBJECT = 60
_OUTCOME_CHARS = 90
_PLACEHOLDER = "…"
# An outcome with as many differs in all its values.
_MOST_PLACEHOLDERS = 3
_NUMBERED = re.compile(r"[\w.-]*\d[\w.-]*")
# A member of a JSON result whose value is left out.
_UNSTATED = re.compile(rf"(?:^|, )\w+: {_PLACEHOLDER}(?=,|$)")


@dataclass(slots=True)
class StepLog:
    """The calls of a stretch that may be steps of a repeated work."""

    _calls: dict[tuple[str, ...], list[tuple[int, RepeatableCall]]] = field(default_factory=dict)
    _carried: list[RepeatedSteps] = field(default_factory=list)

    def carry(self, section: str) -> None:
        """Start from the steps that an earlier handoff lists."""
        self._carried += parse_steps(section)

    def add(self, seq: int, call: RepeatableCall) -> None:
        self._calls.setdefault(call.key, []).append((seq, call))

    def take_back(self, changes: TakenBackChanges) -> None:
        """Forget the steps whose changes of files the user took back."""
        for calls in self._calls.values():
            calls[:] = [(seq, c) for seq, c in calls if not (changes.covers(seq) and _is_about(c, changes.files))]

    def groups(self) -> tuple[RepeatedSteps, ...]:
        """Return the groups of at least three subjects, each subject by the step that was done last on it."""
        done: dict[str, list[_Step]] = {}
        for calls in self._calls.values():
            for step in _newest_steps(calls):
                done.setdefault(step.subject, []).append(step)
        for step in self._single_steps():
            if step.subject in done:
                done[step.subject].append(step)
        groups: dict[tuple[str, str], list[_Step]] = {}
        for steps in done.values():
            last = max(steps, key=lambda s: s.seq)
            if last.is_ok:
                groups.setdefault((last.name, last.shape), []).append(last)
        repeated = [
            _group(sorted(members, key=lambda s: s.seq), done)
            for members in groups.values()
            if len(members) >= _FEWEST_SUBJECTS
        ]
        return tuple(sorted(_merge_carried(self._carried, repeated), key=lambda g: g.seq))

    def _single_steps(self) -> Iterator[_Step]:
        """Yield the calls that were not repeated: one of them may have changed what was done before."""
        for calls in self._calls.values():
            for seq, call in calls if len(calls) < _FEWEST_SUBJECTS else ():
                name = " ".join(call.words)
                yield from (_Step(name, value, "", name, seq, call.is_ok) for value in call.values)


def _is_about(call: RepeatableCall, paths: Sequence[str]) -> bool:
    return any(f"/{path}".endswith(f"/{value}") for value in call.values for path in paths)


@dataclass(frozen=True, slots=True)
class _Step:
    """The newest call of one tool on one subject."""

    name: str
    subject: str
    # The outcome without the words of the call, and the same without numbers.
    outcome: str
    shape: str
    seq: int
    is_ok: bool


def _newest_steps(calls: Sequence[tuple[int, RepeatableCall]]) -> Iterator[_Step]:
    """Yield the newest step on each subject, where calls of the same shape vary in a word."""
    if len(calls) < _FEWEST_SUBJECTS:
        return
    words = [call.words for _, call in calls]
    counts = [len(set(column)) for column in zip(*words, strict=True)]
    most = max(counts)
    if most < _FEWEST_SUBJECTS:
        return
    # Of a name and its value the name comes first, though a retry may have another value.
    at = next(i for i, n in enumerate(counts) if 2 * n >= most)
    varying = [i for i, n in enumerate(counts) if n > 1]
    fixed = [w for w, n in zip(words[0], counts, strict=True) if n == 1 and "=" not in w and any(map(str.isalnum, w))]
    name = " ".join(fixed) or words[0][0]
    newest = {call.words[at]: (seq, call) for seq, call in calls}
    for word, (seq, call) in newest.items():
        subject = word.partition("=")[2] or word
        if len(subject) > _LONGEST_SUBJECT:
            continue
        outcome = _without(call.outcome, [call.words[i] for i in varying])
        yield _Step(name, subject, outcome, _NUMBERED.sub("#", outcome), seq, call.is_ok)


def _without(outcome: str, words: Sequence[str]) -> str:
    """Return the outcome with a placeholder for what the call already names."""
    values = sorted({v for w in words if len(v := w.partition("=")[2] or w) > 1}, key=len, reverse=True)
    for value in values:
        outcome = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", _PLACEHOLDER, outcome)
    return outcome


def _group(members: Sequence[_Step], done: Mapping[str, Sequence[_Step]]) -> RepeatedSteps:
    """Join steps with one outcome; steps before them are named where all subjects had them."""
    last = members[-1]
    earlier = [{s.name: s.seq for s in done[m.subject] if s.is_ok and s is not m} for m in members]
    shared = [name for name in earlier[-1] if all(name in names for names in earlier)]
    shared.sort(key=lambda name: earlier[-1][name])
    outcomes = {m.outcome for m in members}
    text = last.outcome if len(outcomes) == 1 else _NUMBERED.sub(_PLACEHOLDER, last.outcome)
    text = _UNSTATED.sub("", text.removeprefix(f"{_PLACEHOLDER}: ")).strip(" ,")
    if text.count(_PLACEHOLDER) >= _MOST_PLACEHOLDERS:
        text = ""
    text = first_words(redact(text), _OUTCOME_CHARS)
    subjects = tuple(redact(m.subject) for m in members)
    return RepeatedSteps((*shared, last.name), "" if is_directive(text) else text, subjects, last.seq)


def _merge_carried(carried: Sequence[RepeatedSteps], groups: Sequence[RepeatedSteps]) -> Iterator[RepeatedSteps]:
    """Yield the groups, each with the subjects that an earlier handoff lists for the same steps."""
    newer = {subject for group in groups for subject in group.subjects}
    before = {(g.steps[-1], g.outcome): g for g in carried}
    for group in groups:
        carried_group = before.pop((group.steps[-1], group.outcome), None)
        earlier = tuple(s for s in carried_group.subjects if s not in group.subjects) if carried_group else ()
        yield RepeatedSteps(group.steps, group.outcome, (*earlier, *group.subjects), group.seq)
    for rest in before.values():
        if subjects := tuple(s for s in rest.subjects if s not in newer):
            yield RepeatedSteps(rest.steps, rest.outcome, subjects, rest.seq)
