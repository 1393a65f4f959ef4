"""Correct what a summary says of calls that never succeeded: the log has the outcome of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from perdure.context.tool_calls.call_line import CallLine, Outcome

_OUTCOMES: Mapping[Outcome, str] = {
    "refused": "refused, not run",
    "failed": "failed",
    "interrupted": "stopped before it finished",
}
# Shorter targets are words of a sentence rather than names of a call.
_LEAST_CHARS = 6
_MOST_TARGETS = 200
_SUCCESS = r"(?:ok(?:ay)?|success\w*|succeeded|passed|done|complet\w+|worked|fine|✓|✔|✅)"
_CLAIMS_SUCCESS = re.compile(rf"(?i)(?<!\w){_SUCCESS}(?!\w)")
# Right after the name of the call.
_CLAIM = re.compile(rf"(?i)([`\"'”’]?)\s*(?:—|–|-+>?|→|:|=>|\()\s*{_SUCCESS}(?!\w)\)?")
_ADMITS_FAILURE = re.compile(
    r"(?i)\b(?:refus|reject|declin|den(?:y|ied)|fail|error|abort|interrupt|cancel|block|stopp|forb|unsuccess|tried"
    r"|attempt|tim(?:ed|e) ?out|not\b|never\b|exit(?:ed)?(?: with)?(?: code)? [1-9])|n't\b|[✗✘❌]"
)
# The name goes on: another call of the same program.
_GOES_ON = re.compile(r"[\w/-]| [-./]")


def find_not_done(calls: Iterable[CallLine]) -> dict[str, Outcome]:
    """Return the outcomes of calls by what they worked on, of those of which none succeeded."""
    not_done: dict[str, Outcome] = {}
    done: set[str] = set()
    for line in calls:
        target = " ".join(line.target.split())
        if len(target) < _LEAST_CHARS or target in done:
            continue
        not_done.pop(target, None)
        if line.outcome in _OUTCOMES:
            not_done[target] = line.outcome
            if len(not_done) > _MOST_TARGETS:
                del not_done[next(iter(not_done))]
        elif line.outcome == "ok":
            done.add(target)
    return not_done


def correct_outcome(line: str, not_done: Mapping[str, Outcome]) -> str:
    """Return a line of a summary with the outcome of the call it names, where that call never succeeded.

    A line that mentions a failure stays as it is; one about a failed or stopped call also if it claims no success.
    """
    text = " ".join(line.split())
    named = max((target for target in not_done if target in text), key=len, default="")
    before, _, after = text.partition(named) if named else (text, "", "")
    if not named or _GOES_ON.match(after):
        return line
    outcome, rest = not_done[named], f"{before} {after}"
    if _ADMITS_FAILURE.search(rest) or (outcome != "refused" and not _CLAIMS_SUCCESS.search(rest)):
        return line
    indent = line[: len(line) - len(line.lstrip())]
    if claim := _CLAIM.match(after):
        return f"{indent}{before}{named}{claim[1]} — {_OUTCOMES[outcome]}{after[claim.end() :]}"
    return f"{indent}{text} — by the log: {_OUTCOMES[outcome]}"
