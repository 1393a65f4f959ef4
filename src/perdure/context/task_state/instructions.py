"""Constraints & Preferences: what the user laid down, word for word, with the address of the message."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perdure.context.fitting import address, fit_lines
from perdure.context.task_state.state import BEFORE_LOG, InstructionKind, StandingInstruction, TaskState
from perdure.context.text import first_words, tidy
from perdure.context.user_text.instruction_scope import is_for_now, is_for_one_task, is_lasting
from perdure.context.user_text.intent import LISTED_RULE

INSTRUCTIONS = "The user's standing instructions, word for word:"
CORRECTIONS = "The user's corrections, word for word:"
REFUSALS = "Calls the user refused, with the reason in their words:"
REQUIREMENTS = "Stated for work that is done, word for word:"
_KINDS: dict[str, InstructionKind] = {
    INSTRUCTIONS: "rule",
    CORRECTIONS: "correction",
    REFUSALS: "refusal",
    REQUIREMENTS: "requirement",
}
_REQUIREMENT_CHARS = 600
_ABOUT_CHARS = 80
_ADDRESS = re.compile(r"(?:; )?m:[\d,]+$")
_REQUIRES = re.compile(
    r"(?i)\b(?:must|should|shall|needs? to|has to|have to|make sure|ensure|muss|soll|doit|debe|deve|должн\w+)\b"
    r"|必须|应该|べき|해야"
)


def write_instructions(state: TaskState, *, task: str = "", requirement_chars: int = _REQUIREMENT_CHARS) -> str:
    """Quote what the user laid down: rules, corrections and reasons of refusals, each with its address.

    A wish for one piece of work is quoted as the task while that is open, and is over with it: it binds beyond it only
    by a word that makes it last, or by what it requires of the result. In doubt a sentence is left to the record.
    """
    task = _squeeze(task)
    rules = [_instruction_line(i) for i in binding_rules(state) if not _repeats(i.text, task)]
    requirements: list[str] = []
    for i in state.instructions:
        if i.kind == "requirement":
            requirements.append(_instruction_line(i))
        elif i.kind == "rule" and is_for_one_task(i.text):
            requirements += [_instruction_line(i)] if i.seq in state.worked_on and _REQUIRES.search(i.text) else []
    groups = (
        (INSTRUCTIONS, rules),
        (CORRECTIONS, [_instruction_line(i) for i in state.instructions if i.kind == "correction"]),
        (REFUSALS, [_refusal_line(i) for i in state.instructions if i.kind == "refusal"]),
        (REQUIREMENTS, _newest(requirements, requirement_chars)),
    )
    return "\n".join(line for heading, lines in groups if lines for line in (heading, *lines))


def binding_rules(state: TaskState) -> Iterator[StandingInstruction]:
    """Yield what binds later work, not only the piece of work or the step that it was said of."""
    closed_seqs = {r.seq for r in state.requests if r.status == "answered"}
    for i in state.instructions:
        if i.kind == "rule" and not is_for_one_task(i.text) and not (i.seq in closed_seqs and is_for_now(i.text)):
            yield i


def parse_instructions(section: str) -> Iterator[StandingInstruction]:
    """Yield what a section of an earlier handoff quotes, each of the kind of the heading above it.

    Earlier versions also listed remarks that might bind, under a heading of their own: those are left out.
    """
    kind: InstructionKind | None = "rule"
    for line in section.splitlines():
        listed = LISTED_RULE.match(line)
        if listed is None and line.endswith(":"):
            kind = _KINDS.get(line.strip())
        elif listed is not None and kind is not None:
            about = _ADDRESS.sub("", listed[2] or "") if kind == "refusal" else ""
            yield StandingInstruction(listed[1], BEFORE_LOG, kind, about=about)


def _newest(lines: list[str], room: int) -> list[str]:
    return fit_lines(lines[::-1], room, newest_last=True).split("\n") if lines else []


def _repeats(rule: str, task: str) -> bool:
    return _squeeze(rule) in task and not is_lasting(rule)


def _squeeze(text: str) -> str:
    """Return a text without blanks and marks of quotation, to search for it in another."""
    return "".join(text.replace("\n> ", "\n").split())


def _instruction_line(instruction: StandingInstruction) -> str:
    return f"- “{' '.join(instruction.text.split())}”{address(instruction.seq)}"


def clip_refused_call(about: str) -> str:
    """Return what a refusal was about, as the section names it."""
    return first_words(tidy(about), _ABOUT_CHARS)


def _refusal_line(instruction: StandingInstruction) -> str:
    where = address(instruction.seq).strip(" ()")
    about = f"{clip_refused_call(instruction.about)}; {where}".strip("; ")
    return f"- “{' '.join(instruction.text.split())}” ({about})" if about else _instruction_line(instruction)
