"""Draw the index of a handoff: exact values that nothing else in view shows and that are likely to be needed.

They are grouped by the file or call that they occurred in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perdure.context.exact_values import PLACES, EntryFacts, MessageFacts, Weights, kind_of, parts_in, weigh
from perdure.context.text import clip

_FILES = "Files that calls worked on"
_PATHS = "Other paths and addresses"
_STATED = "Names in messages"
_GROUPS = (_FILES, _PATHS)
_LABEL_CHARS = 60
_SEPARATOR = ", "
# Characters a value costs beyond its own: the separator, and a share of its label.
_OVERHEAD = 12
# A value less likely to be needed is noise.
_LEAST_CHANCE = 0.03
_LEAST_PATH_CHANCE = 0.02
_MOST_LABELS = 40
# Limits, timeouts and line numbers; the shortest of them mean nothing away from their call.
_SHORTEST_NUMBER = 5
# Words of a tool's own vocabulary, and arguments that say how a call runs: they mean nothing for the work.
_OPTION_NAMES = frozenset(
    (
        "in_progress", "files_with_matches", "tool_use", "tool_result", "output_mode", "head_limit",
        "run_in_background", "old_string", "new_string", "file_path", "replace_all",
    )
)  # fmt: skip
_OPTION_ARGUMENT = re.compile(
    r"(?i)(?:\w+_)?(?:timeout|limit|offset|wait|delay)(?:_?(?:ms|s|seconds|secs))?|yield_time_ms|-[ABC]|"
    r"(?:max|num|n)_?(?:results|tokens|output_tokens|chars|characters|lines|length|bytes)|"
    r"(?:(?:start|end|first|last)_?)?(?:line|lines|column)(?:_?(?:number|count|start|end))?"
)
_PSEUDO_PATH = re.compile(r"/[\w-]+|\.\.?/[\w.-]+|\w\.\w+|\w+\.[A-Z]\w*|/dev/(?:null|zero|tty|std\w+|fd/\d+)")
# Line ranges, quantities with a unit, fractions, and alternatives in words of another script: "급등/급락".
_SCRAP = re.compile(
    r"L?\d+[-–:,]L?\d+|~?\d{1,5}(?:\.\d+)?(?:px|ms|s|r?em|pt|[kmg]b?|h|d|x)|\d+/\d+[^\W\d]*|"
    r"[^\W\da-z_]+(?:/[^\W\da-z_]+)+",
    re.IGNORECASE,
)
# The lines of a file that a call read.
_LINES_BEHIND = re.compile(r"(?<=\w):\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*$")
# Names of one file or call; more of them are an excerpt, not an index.
_MOST_VALUES = 16


@dataclass(frozen=True, slots=True)
class ValueUse:
    """The values of a stretch with their chance to be needed, and the messages they occurred in."""

    weights: Weights
    messages: Sequence[MessageFacts | EntryFacts]
    # The target of each call by its id.
    targets: Mapping[str, str]

    @classmethod
    def read(cls, messages: Sequence[MessageFacts | EntryFacts]) -> ValueUse:
        return cls(weigh(messages), messages, {c.call_id: c.target or c.tool for m in messages for c in m.calls})


def rank_values(use: ValueUse, *, visible: frozenset[str], text: str) -> list[str]:
    """Return the values worth listing, best first, without those in `visible` and those that are a part of `text`."""
    chance = use.weights.chance
    parts = parts_in(text)
    values = [v for v, c in chance.items() if c >= _least_chance(v) and v not in visible and v not in parts]
    values = [v for v in values if _tells_something(v)]
    # Values of a message are a set: equal ones are listed by where they first occurred, then by their text.
    first = use.weights.first
    values.sort(key=lambda v: (-chance[v] / (len(v) + _OVERHEAD), first[v], v))
    return values


def draw_index(use: ValueUse, values: Sequence[str], *, budget: int, text: str) -> str:
    """Draw the index of the ranked values in at most `budget` characters, without those in `text`.

    Paths are listed whole, as a call takes them: elsewhere they are relative to a folder.
    """
    labels = _Labels(use)
    groups: dict[str, list[str]] = {}
    room = budget
    for value in values:
        # The size first: searching the text is by far the slowest.
        if len(value) + len(_SEPARATOR) > room or value in text:
            continue
        shown = labels.add_name(value)
        if labels.is_option(value, shown):
            continue
        label = labels.of(value)
        group = groups.get(label, [])
        cost = len(shown) + len(_SEPARATOR) + (0 if group else len(label) + 5)
        is_full = len(group) >= _MOST_VALUES and label not in _GROUPS
        if cost <= room and not is_full and (group or len(groups) < _MOST_LABELS):
            groups.setdefault(label, []).append(shown)
            room -= cost
        if room < _OVERHEAD:
            break
    paths = [v for name in _GROUPS for v in groups.get(name, ())]
    ends = {path[at + 1 :] for path in paths for at, char in enumerate(path) if char == "/"}
    for name in _GROUPS:
        # The end of a path that is listed says nothing.
        rest = [v for v in groups.pop(name, ()) if v not in ends]
        groups |= {name: rest} if rest else {}
    names = sorted(groups, key=lambda g: (g != _FILES, g != _PATHS, g == _STATED, g))
    return "\n".join(f"- {name}: {_SEPARATOR.join(groups[name])}" for name in names)


def _tells_something(value: str) -> bool:
    """Whether a value means something by itself: no line number, no range of lines and no piece of a path."""
    digits = value.lstrip("-+")
    if digits.isdigit():
        return len(digits) >= _SHORTEST_NUMBER
    return value not in _OPTION_NAMES and not _PSEUDO_PATH.fullmatch(value) and not _SCRAP.fullmatch(value)


def _least_chance(value: str) -> float:
    return _LEAST_PATH_CHANCE if kind_of(value) in PLACES else _LEAST_CHANCE


class _Labels:
    """Names the file or call that a value belongs to."""

    def __init__(self, use: ValueUse) -> None:
        self._use = use
        self._worked_on = frozenset(use.targets.values())

    def of(self, value: str) -> str:
        if kind_of(value) in PLACES:
            return _FILES if value in self._worked_on else _PATHS
        weights = self._use.weights
        for source in (weights.calls, weights.results):
            if (at := source.last.get(value)) is not None:
                return self._target(self._use.messages[at], value)
        return _STATED

    @staticmethod
    def is_option(value: str, shown: str) -> bool:
        """Whether a number only says how a call ran, such as its timeout; a round one without a name does, too."""
        name, _, number = shown.rpartition("=")
        if number != value or not value.isdigit():
            return False
        return _OPTION_ARGUMENT.fullmatch(name) is not None if name else value.endswith("000")

    def add_name(self, value: str) -> str:
        """Return a number with the name of the argument it was passed as: alone it could be anything."""
        if not value.lstrip("-+").isdigit() or (at := self._use.weights.calls.last.get(value)) is None:
            return value
        arguments = (call.parsed_arguments() or {} for call in self._use.messages[at].message.tool_calls)
        names = (name for a in arguments for name, passed in a.items() if str(passed) == value)
        return next((f"{name}={value}" for name in names), value)

    def _target(self, message: MessageFacts | EntryFacts, value: str) -> str:
        calls = message.calls
        target = calls[0].target if calls else self._use.targets.get(message.message.tool_call_id or "", "")
        if not target or value in target:
            return _STATED
        target = _LINES_BEHIND.sub("", target)
        is_word = len(target.split()) == 1
        is_path = is_word and kind_of(target) in PLACES
        if is_word and not is_path:
            # The name of a tool or a word of a program is no place to look at.
            return _STATED
        return f"In {target.rsplit('/', 1)[-1]}" if is_path else f"In the output of `{clip(target, _LABEL_CHARS)}`"
