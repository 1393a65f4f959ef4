"""Text that a user sent with a request: the part of it to quote beside their own words, and the test run it reports."""

from __future__ import annotations

from perdure.context.record.calls.output import CallFinding, read_output
from perdure.context.record.calls.test_runs import read_tests
from perdure.context.record.task import UserRequest
from perdure.context.text import sentences
from perdure.context.user_intent import MATERIAL, MATERIAL_LINE, is_directive

# Before each line of material, so that a later handoff does not take it for the user's own words.
_MARK = "| "
_LEFT_OUT = "[… {:,} characters left out …]"
# Longer texts are searched for a test run by their ends.
_MOST_CHARS = 60_000


def carried_words(quoted: str) -> str:
    """Return the user's own words of a request that an earlier handoff quotes."""
    heading = MATERIAL_LINE.search(quoted)
    return quoted[: heading.start()].strip() if heading else quoted


def has_material(request: UserRequest) -> bool:
    """Return whether a request has text beside the user's own words."""
    return _squeeze(request.own_words) != _squeeze(request.text)


def material_heading(request: UserRequest) -> str:
    """Return the line above the material, with the address of the message if it has one."""
    carried = MATERIAL_LINE.search(request.text) if request.seq < 0 else None
    return carried[0] if carried else MATERIAL.format(f": m:{request.seq}" if request.seq >= 0 else "")


def quote_material(request: UserRequest, room: int) -> str:
    """Quote the material of a request: of a failed test run its failures, of other text both ends.

    Sentences that demand something of their reader are left out, because their author is not known.
    """
    heading = MATERIAL_LINE.search(request.text) if request.seq < 0 else None
    if heading is not None:
        lines = [x.removeprefix(_MARK) for x in request.text[heading.end() :].splitlines() if x.startswith(_MARK)]
    elif (finding := read_report(request.text)) is not None:
        lines = [finding.title or finding.headline, *finding.rows]
    else:
        own = {line.strip() for line in request.own_words.splitlines()}
        ends = request.text if len(request.text) <= 4 * room else f"{request.text[: 2 * room]}\n{request.text[-room:]}"
        lines = [line for line in ends.splitlines() if line.strip() and line.strip() not in own]
    text = "\n".join(filter(None, map(_without_demands, lines)))
    if len(text) > room and heading is None:
        head, tail = room * 2 // 3, room // 3
        left_out = _LEFT_OUT.format(max(len(text), len(request.text)) - head - tail)
        text = f"{text[:head].rstrip()}\n{left_out}\n{text[-tail:].lstrip()}"
    return "\n".join(f"> {_MARK}{line}".rstrip() for line in text.splitlines())


def read_report(text: str) -> CallFinding | None:
    """Return the failed test run that a text reports; None where there is none."""
    ends = text if len(text) <= _MOST_CHARS else f"{text[: _MOST_CHARS // 2]}\n{text[-_MOST_CHARS // 2 :]}"
    finding = read_tests(read_output(ends))
    is_report = finding is not None and finding.facts.tests is not None and bool(finding.facts.tests.failures)
    return finding if is_report else None


def _without_demands(line: str) -> str:
    if not is_directive(line):
        return line.rstrip()
    return " ".join(s for s in sentences(line) if not is_directive(s))


def _squeeze(text: str) -> str:
    return "".join(text.split())
