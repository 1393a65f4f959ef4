"""Constraints & Preferences: what the user laid down, word for word, with the address of the message."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from perdure.context.fitting import address, fit_lines
from perdure.context.task_state.state import BEFORE_LOG, InstructionKind, StandingInstruction, TaskState
from perdure.context.text import first_words, size_of, tidy
from perdure.context.user_text.instruction_scope import is_for_now, is_for_one_task, is_lasting
from perdure.context.user_text.intent import LISTED_RULE
from perdure.context.user_text.revocation import changes_something, resolve

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
# Before the words that may have changed what is listed right above.
_LATER = "- later, which counts:"
_REQUIREMENT_CHARS = 600
# Of the room, the part for naming what is not quoted, and what each name takes.
_TAIL_SHARE = 0.15
_NAME_CHARS = 48
_ABOUT_CHARS = 80
_ADDRESS = re.compile(r"(?:; )?m:[\d,]+(?:; replaces m:[\d,]+)?$")
_REQUIRES = re.compile(
    r"(?i)\b(?:must|should|shall|needs? to|has to|have to|make sure|ensure|muss|soll|doit|debe|deve|должн\w+)\b"
    r"|必须|应该|べき|해야"
)


def write_instructions(
    state: TaskState,
    *,
    task: str = "",
    requirement_chars: int = _REQUIREMENT_CHARS,
    room: int | None = None,
) -> str:
    """Quote what the user laid down: rules, corrections and reasons of refusals, each with its address.

    A wish for one piece of work is quoted as the task while that is open, and is over with it: it binds beyond it only
    by a word that makes it last, or by what it requires of the result. In doubt a sentence is left to the record.
    What a later statement replaced is not listed; what one may have changed is listed with it. Beyond `room`
    characters the oldest rules are named in a few words with their addresses; without it everything is quoted.
    """
    task = _squeeze(task)
    binding = list(binding_instructions(state))
    rules = [i for i in binding if i.kind == "rule" and not _repeats(i.text, task)]
    requirements: list[str] = []
    for i in state.instructions:
        if i.kind == "requirement":
            requirements.append(_instruction_line(i))
        elif i.kind == "rule" and is_for_one_task(i.text):
            requirements += [_instruction_line(i)] if i.seq in state.worked_on and _REQUIRES.search(i.text) else []
    groups = {
        INSTRUCTIONS: _with_changes(rules),
        CORRECTIONS: _with_changes(i for i in binding if i.kind == "correction"),
        REFUSALS: _with_changes(i for i in binding if i.kind == "refusal"),
    }
    rest = _take_out_oldest(groups, room) if room is not None else []
    if requirements:
        groups[REQUIREMENTS] = [_Block(_newest(requirements, requirement_chars))]
    lines = [line for heading, blocks in groups.items() if blocks for line in (heading, *(b.text for b in blocks))]
    return "\n".join((*lines, *_name_rest(rest, _TAIL_SHARE * (room or 0))))


@dataclass(frozen=True, slots=True)
class _Block:
    """Lines that are listed together or not at all: instructions, and what may have changed them."""

    text: str
    instructions: tuple[StandingInstruction, ...] = ()


def _with_changes(instructions: Iterable[StandingInstruction]) -> list[_Block]:
    """List instructions; those that one later statement may have changed together, with that below them."""
    groups: dict[str, list[StandingInstruction]] = {}
    for i in instructions:
        groups.setdefault(i.changed_by.text if i.changed_by is not None else i.text, []).append(i)
    blocks = []
    for members in groups.values():
        lines = [_refusal_line(i) if i.kind == "refusal" else _instruction_line(i) for i in members]
        changed_by = next((i.changed_by for i in members if i.changed_by is not None), None)
        if changed_by is not None:
            lines = [line for line, i in zip(lines, members, strict=True) if i.changed_by is not None]
            lines.append(f"{_LATER} {_instruction_line(changed_by)[2:]}")
        blocks.append(_Block("\n".join(lines), tuple(members)))
    return blocks


def _take_out_oldest(groups: dict[str, list[_Block]], room: int) -> list[StandingInstruction]:
    """Take out of the groups what does not fit, and return it in the order of the log.

    Reasons of refusals and corrections come before rules, but take no more than half of the room from them.
    """
    if sum(len(b.text) + 1 for blocks in groups.values() for b in blocks) <= room:
        return []
    left = room - int(_TAIL_SHARE * room)
    chosen: set[int] = set()
    for names, most in (((REFUSALS, CORRECTIONS), left // 2), ((INSTRUCTIONS, REFUSALS, CORRECTIONS), left)):
        for block in (b for name in names for b in reversed(groups[name])):
            if id(block) not in chosen and (size := size_of(block.text) + 1) <= min(left, most):
                chosen.add(id(block))
                left, most = left - size, most - size
    rest = [i for blocks in groups.values() for b in blocks if id(b) not in chosen for i in b.instructions]
    for name, blocks in groups.items():
        groups[name] = [b for b in blocks if id(b) in chosen]
    return sorted(rest, key=lambda i: i.seq)


def _name_rest(rest: Sequence[StandingInstruction], room: float) -> Iterator[str]:
    """Yield a line that names what is not quoted in a few words each, with its address."""
    if not rest:
        return
    names = [f"{first_words(i.text, _NAME_CHARS).rstrip(' .,;:')} …{address(i.seq)}" for i in rest]
    # The newest are named.
    named = fit_lines(names[::-1], int(room), newest_last=True).split("\n")
    more = f"{len(names) - len(named)} older; " if len(named) < len(names) else ""
    yield f"[{len(rest)} more, in a few words, whole by their addresses: {more}{'; '.join(named)}]"


def binding_rules(state: TaskState) -> Iterator[StandingInstruction]:
    """Yield what binds later work, not only the piece of work or the step that it was said of."""
    return (i for i in binding_instructions(state) if i.kind == "rule")


def binding_instructions(state: TaskState) -> Iterator[StandingInstruction]:
    """Yield rules, corrections and reasons of refusals, without those that a later statement replaced.

    That counts as a rule from then on; one that may have changed something is attached to it.
    """
    closed_seqs = {r.seq for r in state.requests if r.status == "answered"}
    stated = list(_list_stated(state.instructions, closed_seqs))
    sources = [None if i.is_carried else i.seq for i in stated]
    effects = resolve([i.text for i in stated], sources) if len(stated) > 1 else {}
    replaced: dict[int, list[int]] = {}
    attached: dict[int, int] = {}
    for at, (later, effect) in effects.items():
        if stated[at].kind == "change":
            continue
        if effect == "replaces" and stated[at].kind != "refusal":
            replaced.setdefault(later, []).append(stated[at].seq)
        else:
            attached[at] = later
    gone = {at for at, (_, effect) in effects.items() if effect == "replaces" and stated[at].kind != "refusal"}
    shown = {later for at, later in attached.items() if at not in gone} - gone
    for at, i in enumerate(stated):
        if at in gone or (at in shown and at not in replaced):
            continue
        kind: InstructionKind = "rule" if i.kind == "change" and at in replaced else i.kind
        if kind != "change":
            later_one = stated[attached[at]] if at in attached and attached[at] not in gone else None
            yield replace(i, kind=kind, replaced_seqs=tuple(replaced.get(at, ())), changed_by=later_one)


def _list_stated(
    instructions: Iterable[StandingInstruction], closed_seqs: Collection[int]
) -> Iterator[StandingInstruction]:
    """Yield what binds, and what may change it: that includes permissions, which alone bind nobody."""
    for i in instructions:
        if i.kind == "change" or _is_binding(i, closed_seqs):
            yield i
        elif i.kind == "rule" and changes_something(i.text):
            yield replace(i, kind="change")


def _is_binding(instruction: StandingInstruction, closed_seqs: Collection[int]) -> bool:
    text = instruction.text
    if instruction.kind != "rule":
        return instruction.kind in ("correction", "refusal")
    if instruction.is_carried:
        return True  # the earlier handoff listed it
    return not is_for_one_task(text) and not (instruction.seq in closed_seqs and is_for_now(text))


def parse_instructions(section: str) -> Iterator[StandingInstruction]:
    """Yield what a section of an earlier handoff quotes, each of the kind of the heading above it.

    Earlier versions also listed remarks that might bind, under a heading of their own: those are left out.
    """
    kind: InstructionKind | None = "rule"
    for line in section.splitlines():
        listed = _match_listed(line)
        if listed is None and line.endswith(":"):
            kind = _KINDS.get(line.strip())
        elif listed is not None and kind is not None:
            about = _ADDRESS.sub("", listed[2] or "") if kind == "refusal" else ""
            is_change = line.startswith(_LATER)
            yield StandingInstruction(
                listed[1], BEFORE_LOG, "change" if is_change else kind, about=about, is_carried=True
            )


def find_listed(section: str) -> Iterator[tuple[str, str]]:
    """Yield the texts that a section quotes, each with what stands in brackets behind it."""
    return ((m[1], m[2] or "") for m in map(_match_listed, section.splitlines()) if m is not None)


def _match_listed(line: str) -> re.Match[str] | None:
    return LISTED_RULE.match(f"- {line.removeprefix(_LATER).strip()}" if line.startswith(_LATER) else line)


def _newest(lines: list[str], room: int) -> str:
    return fit_lines(lines[::-1], room, newest_last=True)


def _repeats(rule: str, task: str) -> bool:
    return _squeeze(rule) in task and not is_lasting(rule)


def _squeeze(text: str) -> str:
    """Return a text without blanks and marks of quotation, to search for it in another."""
    return "".join(text.replace("\n> ", "\n").split())


def _instruction_line(instruction: StandingInstruction) -> str:
    where = address(instruction.seq)
    if where and (replaced := address(*instruction.replaced_seqs)):
        where = f"{where[:-1]}; replaces {replaced.strip(' ()')})"
    return f"- “{' '.join(instruction.text.split())}”{where}"


def clip_refused_call(about: str) -> str:
    """Return what a refusal was about, as the section names it."""
    return first_words(tidy(about), _ABOUT_CHARS)


def _refusal_line(instruction: StandingInstruction) -> str:
    where = address(instruction.seq).strip(" ()")
    about = f"{clip_refused_call(instruction.about)}; {where}".strip("; ")
    return f"- “{' '.join(instruction.text.split())}” ({about})" if about else _instruction_line(instruction)
