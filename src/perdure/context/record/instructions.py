"""Write Constraints & Preferences: what the user laid down and what outlives the request it was stated with."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from perdure.context.record.cancellation import find_withdrawals
from perdure.context.record.section_lines import address, fit_lines
from perdure.context.record.task import BEFORE_LOG, InstructionKind, StandingInstruction, TaskState
from perdure.context.standing_instructions import is_for_now, is_for_one_task, is_lasting
from perdure.context.text import beginning, tidy
from perdure.context.user_intent import LISTED_RULE

INSTRUCTIONS = "The user's standing instructions, word for word:"
CORRECTIONS = "The user's corrections, word for word:"
REFUSALS = "Calls the user refused, with the reason in their words:"
REQUIREMENTS = "Stated for work that is done, word for word:"
REMARKS = "Remarks of the user that may bind, too, word for word:"
_KINDS: dict[str, InstructionKind] = {
    INSTRUCTIONS: "rule",
    CORRECTIONS: "correction",
    REFUSALS: "refusal",
    REQUIREMENTS: "requirement",
    REMARKS: "remark",
}
_REMARK_CHARS = 1_200
_ABOUT_CHARS = 80
_ADDRESS = re.compile(r"(?:; )?m:[\d,]+$")
# A remark that begins with one of these is about the message before it, and means nothing alone.
_REFERS_BACK = re.compile(
    r"(?i)\W*(?:(?:and|but|so|or|also|then|because)\W+)*(?:it|its|that|this|these|those|they|them|you)\b"
)

_REQUIRES = re.compile(
    r"(?i)\b(?:must|should|shall|needs? to|has to|have to|make sure|ensure|muss|soll|doit|debe|deve|должн\w+)\b"
    r"|必须|应该|べき|해야"
)
# What the user did, does or knows.
_TELLS = re.compile(
    r"(?i)\W*(?:(?:and|but|so|also|ok(?:ay)?)\W+)*(?:i|we)(?:'ve|'m|'re| have| am| are)? "
    r"(?:just |now |still |already )*"
    r"(?:\w+ed|undid|did|know|think|was|were|will|see|saw|had|have|got|made|ran|found|went)\b"
)


def write_instructions(state: TaskState, *, task: str = "", remark_chars: int = _REMARK_CHARS) -> str:
    """Quote what the user laid down: rules, corrections and reasons of refusals, each with its address.

    What was stated with an open request and has no word that makes it last is not told again if `task` quotes it.
    """
    closed_seqs = {r.seq for r in state.requests if r.status == "answered"}
    task = _squeeze(task)
    rules: list[str] = []
    requirements: list[str] = []
    for i in state.instructions:
        if i.kind == "rule" and i.seq in state.worked_on and is_for_one_task(i.text):
            # A request that was carried out is over; what it requires of the result is not.
            requirements += [_instruction_line(i)] if _REQUIRES.search(i.text) else []
        elif i.kind == "requirement":
            requirements.append(_instruction_line(i))
        elif i.kind == "rule" and not (i.seq in closed_seqs and is_for_now(i.text)) and not _repeats(i.text, task):
            rules.append(_instruction_line(i))
    groups = (
        (INSTRUCTIONS, rules),
        (CORRECTIONS, [_instruction_line(i) for i in state.instructions if i.kind == "correction"]),
        (REFUSALS, [_refusal_line(i) for i in state.instructions if i.kind == "refusal"]),
        (REQUIREMENTS, _newest(requirements, remark_chars // 2)),
        (REMARKS, _newest(list(_remarks(state, task, closed_seqs)), remark_chars)),
    )
    return "\n".join(line for heading, lines in groups if lines for line in (heading, *lines))


def parse_instructions(section: str) -> Iterator[StandingInstruction]:
    """Yield what a section of an earlier handoff quotes, each of the kind of the heading above it."""
    kind: InstructionKind = "rule"
    for line in section.splitlines():
        kind = _KINDS.get(line.strip(), kind)
        if (listed := LISTED_RULE.match(line)) is not None:
            about = _ADDRESS.sub("", listed[2] or "") if kind == "refusal" else ""
            yield StandingInstruction(listed[1], BEFORE_LOG, kind, about=about)


def _remarks(state: TaskState, task: str, closed_seqs: Collection[int]) -> Iterator[str]:
    # A whole request is no remark: an open one is quoted as the task, and one that was carried out binds no longer.
    requests = {r.own_words.strip() for r in state.open_requests}
    requests |= {r.own_words.strip() for r in state.requests if r.seq in state.worked_on}
    # One that was taken back binds no longer.
    withdrawals = find_withdrawals(state.requests, state.stops)
    requests |= {
        r.own_words.strip()
        for r in state.requests
        if any(w.seq > r.seq and w.request and w.covers(r.own_words) for w in withdrawals)
    }
    for i in state.instructions:
        if i.kind != "remark" or i.text in requests or _squeeze(i.text) in task:
            continue
        is_over = i.seq in closed_seqs and (is_for_one_task(i.text) or is_for_now(i.text) or _TELLS.match(i.text))
        if not is_over and not _REFERS_BACK.match(i.text):
            yield _instruction_line(i)


def _newest(lines: list[str], room: int) -> list[str]:
    return fit_lines(lines[::-1], room, newest_last=True).split("\n") if lines else []


def _repeats(rule: str, task: str) -> bool:
    return _squeeze(rule) in task and not is_lasting(rule)


def _squeeze(text: str) -> str:
    """Return a text without blanks and marks of quotation, to search for it in another."""
    return "".join(text.replace("\n> ", "\n").split())


def _instruction_line(instruction: StandingInstruction) -> str:
    return f"- “{' '.join(instruction.text.split())}”{address(instruction.seq)}"


def _refusal_line(instruction: StandingInstruction) -> str:
    where = address(instruction.seq).strip(" ()")
    about = f"{beginning(tidy(instruction.about), _ABOUT_CHARS)}; {where}".strip("; ")
    return f"- “{' '.join(instruction.text.split())}” ({about})" if about else _instruction_line(instruction)
