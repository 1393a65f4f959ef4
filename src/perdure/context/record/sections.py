"""Write the thirteen sections of a handoff from the state of the task, short and true at its end."""

from __future__ import annotations

import os.path
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from perdure.context.handoff import SECTIONS
from perdure.context.record.cancellation import find_withdrawals
from perdure.context.record.material import has_material, material_heading, quote_material
from perdure.context.record.selection import fair_share
from perdure.context.record.task import (
    BEFORE_LOG,
    AnsweredQuestion,
    InstructionKind,
    LastTestRun,
    StandingInstruction,
    TaskState,
    TouchedFile,
    UserRequest,
)
from perdure.context.standing_instructions import is_for_one_task, is_small_talk
from perdure.context.text import beginning, has_wide, size_of, tidy
from perdure.context.user_intent import ALL_ANSWERED, LISTED_RULE, OPEN, quote
from perdure.redaction import redact

INSTRUCTIONS = "The user's standing instructions, word for word:"
CORRECTIONS = "The user's corrections, word for word:"
REFUSALS = "Calls the user refused, with the reason in their words:"
REQUIREMENTS = "Stated for work that is done, word for word:"
REMARKS = "Remarks of the user that may bind, too, word for word:"
_INSTRUCTION_KINDS: dict[str, InstructionKind] = {
    INSTRUCTIONS: "rule",
    CORRECTIONS: "correction",
    REFUSALS: "refusal",
    REQUIREMENTS: "requirement",
    REMARKS: "remark",
}
SAME_AS_TASK = "What Active Task quotes."

DEFAULT_CHARS = 6_000
# Share of the budget of each section that code writes; Active Task and the instructions have no limit but their own.
_SHARES = {
    "Goal": 0.08,
    "Completed Actions": 0.24,
    "Active State": 0.12,
    "In Progress": 0.08,
    "Blocked": 0.10,
    "Key Decisions": 0.14,
    "Resolved Questions": 0.10,
    "Relevant Files": 0.12,
    "Remaining Work": 0.08,
    "Critical Context": 0.06,
}
# The room for quoted requests, as a multiple of the budget of the sections, and the least that each one has of it.
_TASK_SHARE = 1.5
_LEAST_TASK_CHARS = 3_000
_LEAST_QUOTE_CHARS = 160
# The most room for text that the user sent with a request.
_MATERIAL_CHARS = 1_000
# The newest requests, which are likely to be quoted whole.
_MOST_WHOLE_REQUESTS = 6
_LINE = 200
_COMMAND_CHARS = 100
_MOST_FILES = 24
_MOST_READ = 5
# An address of a client, or a pattern of names.
_NO_FILE = re.compile(r"^\w+://|[*?]|\bnode_modules/|\bsite-packages/")
# Of the room for what was completed, the part for repeated steps beside milestones.
_STEPS_SHARE = 0.5
_GOAL_FRAME_CHARS = 40
_BEGAN = "The conversation began with:"
_MOST_STEPS = 6
_MOST_SOLVED = 4
_LEAST_REMARK_CHARS = 25
_OUTCOME_CHARS = 200
_SHORT_OUTCOME_CHARS = 100
_MOST_WHOLE_OUTCOMES = 3
_ROOT_SHARE = 0.7
_GREETING_CHARS = 10
# "ok, let's do this" names nothing that was done.
_AGREES = re.compile(
    r"(?i)(?:(?:yes|yeah|yep|ok(?:ay)?|sure|great|perfect|good|nice|alright|cool|please)[,.! ]*)*"
    r"(?:let'?s (?:do|try|use|implement|fix|go)|do|try|go (?:ahead|for)|implement|fix|proceed|go)(?: with)?"
    r"(?: (?:it|this|that|them|these|so|all))*(?: (?:then|now|first|please))*[.! ]*"
)
_ADDRESS = re.compile(r"(?:; )?m:[\d,]+$")
# The path of a picture that was dropped into the input.
_ATTACHED = re.compile(
    r"\A['\"]?(?:/|~/|[A-Z]:\\)[^'\"\n]{1,300}\.(?:png|jpe?g|gif|webp|heic|pdf)['\"]?\s*", re.IGNORECASE
)
_REASON = re.compile(
    r"\b(?:because|since|so that|due to|root cause|to avoid|decided|agreed|weil|parce que|porque)\b|因为|ため|때문",
    re.I,
)


def address(*seqs: int) -> str:
    """Return the address of messages in the log, ` (m:12,14)`; "" where their positions are not known."""
    numbers = list(dict.fromkeys(s for s in seqs if s >= 0))
    return f" (m:{','.join(map(str, numbers))})" if numbers else ""


def write_sections(state: TaskState, *, budget_chars: int | None = None) -> dict[str, str]:
    """Write the sections from the state alone; those without content are left out."""
    budget = DEFAULT_CHARS if budget_chars is None else budget_chars
    sections = {"Active Task": write_active_task(state, max(_LEAST_TASK_CHARS, int(budget * _TASK_SHARE)))}
    sections["Constraints & Preferences"] = write_instructions(state, remark_chars=budget // 5)
    spare = 0.0
    for name, share in _SHARES.items():
        room = int(budget * share + spare)
        sections[name] = _WRITERS[name](state, room)
        spare = max(0.0, room - len(sections[name])) / 2
    return {name: text for name in SECTIONS if (text := sections.get(name, ""))}


# -- the user's part -------------------------------------------------------------------------------------------------


def write_active_task(state: TaskState, room: int = int(DEFAULT_CHARS * _TASK_SHARE)) -> str:
    """Quote the open requests in the user's own words, newest last, or the last one where all were answered.

    Short requests are quoted whole before long ones share what is left of the room; what is left out has its address.
    """
    open_requests = state.open_requests
    if not open_requests:
        closed = [r for r in state.requests if r.status == "answered"]
        return f"{ALL_ANSWERED}\n{_quoted(closed[-1], room)}{_waiting(state)}" if closed else f"None{_waiting(state)}"
    number = min(len(open_requests), max(1, room // _LEAST_QUOTE_CHARS))
    earlier, newest = open_requests[: len(open_requests) - number], open_requests[-number:]
    share = max(_LEAST_QUOTE_CHARS, fair_share([len(r.own_words) for r in newest], room))
    return f"{OPEN}\n{_earlier(earlier)}" + "\n\n".join(_quoted(r, share) for r in newest) + _waiting(state)


def _earlier(requests: Sequence[UserRequest]) -> str:
    """Count the open requests that there is no room to quote, with their addresses."""
    if not requests:
        return ""
    kind = "request is" if len(requests) == 1 else "requests are"
    return f"[{len(requests)} earlier open {kind} in the record{address(*(r.seq for r in requests))}]\n"


def _waiting(state: TaskState) -> str:
    question = state.pending_question
    if question is None:
        return ""
    return f"\n\nThe assistant asked “{question.value}”{address(question.seq)}; the user has not answered."


def _quoted(request: UserRequest, most_chars: int) -> str:
    text = request.own_words.strip()
    material = ""
    if has_material(request):
        text = f"{text}\n{material_heading(request)}".strip()
        room = min(_MATERIAL_CHARS, max(_LEAST_QUOTE_CHARS, most_chars - len(text)))
        material = f"\n{quote_material(request, room)}".rstrip()
    return quote(text, most_chars=most_chars, seq=request.seq) + material + _answered(request)


def _answered(request: UserRequest) -> str:
    """Tell what of the assistant's a request answers or takes up."""
    if request.about and request.answers not in request.about:
        return f"\n(to the assistant's question “{request.answers}”; of its list: “{request.about}”)"
    if request.about:
        return f"\n(takes up the assistant's words: “{request.about}”)"
    return f"\n(answers the assistant's question “{request.answers}”)" if request.answers else ""


def write_instructions(state: TaskState, *, remark_chars: int = DEFAULT_CHARS // 5) -> str:
    """Quote what the user laid down: rules, corrections and reasons of refusals, each with its address."""

    def is_done(i: StandingInstruction) -> bool:
        is_one_off = i.kind == "rule" and i.seq in state.worked_on and is_for_one_task(i.text)
        return is_one_off or i.kind == "requirement"

    groups = (
        (INSTRUCTIONS, [_instruction_line(i) for i in state.instructions if i.kind == "rule" and not is_done(i)]),
        (CORRECTIONS, [_instruction_line(i) for i in state.instructions if i.kind == "correction"]),
        (REFUSALS, [_refusal_line(i) for i in state.instructions if i.kind == "refusal"]),
        (REQUIREMENTS, [_instruction_line(i) for i in state.instructions if is_done(i)]),
        (REMARKS, _newest_remarks(state, remark_chars)),
    )
    return "\n".join(line for heading, lines in groups if lines for line in (heading, *lines))


def parse_instructions(section: str) -> Iterator[StandingInstruction]:
    """Yield what a section of an earlier handoff quotes, each of the kind of the heading above it."""
    kind: InstructionKind = "rule"
    for line in section.splitlines():
        kind = _INSTRUCTION_KINDS.get(line.strip(), kind)
        if (listed := LISTED_RULE.match(line)) is not None:
            about = _ADDRESS.sub("", listed[2] or "") if kind == "refusal" else ""
            yield StandingInstruction(listed[1], BEFORE_LOG, kind, about=about)


def _newest_remarks(state: TaskState, room: int) -> list[str]:
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
    lines = [_instruction_line(i) for i in state.instructions if i.kind == "remark" and i.text not in requests]
    return fit_lines(lines[::-1], room, newest_last=True).split("\n") if lines else []


def _instruction_line(instruction: StandingInstruction) -> str:
    return f"- “{' '.join(instruction.text.split())}”{address(instruction.seq)}"


def _refusal_line(instruction: StandingInstruction) -> str:
    where = address(instruction.seq).strip(" ()")
    about = f"{beginning(tidy(instruction.about), 80)}; {where}".strip("; ")
    return f"- “{' '.join(instruction.text.split())}” ({about})" if about else _instruction_line(instruction)


# -- the work --------------------------------------------------------------------------------------------------------


def _goal(state: TaskState, room: int) -> str:
    if state.goal is None:
        return _material(state.requests, room)
    is_quoted = any(r.seq == state.goal.seq for r in state.open_requests[-_MOST_WHOLE_REQUESTS:])
    if is_quoted and len(state.goal.value) > room - _GOAL_FRAME_CHARS:
        return SAME_AS_TASK  # once is enough where it is long
    if state.goal.value.startswith(_BEGAN):  # carried over from an earlier handoff
        return beginning(state.goal.value, room)
    opening = beginning(state.goal.value, room - _GOAL_FRAME_CHARS)
    return f"{_BEGAN} “{opening}”{address(state.goal.seq)}"


def _material(requests: Sequence[UserRequest], room: int) -> str:
    """Return the beginning of the first message where no words of the user's own are known; "" for none."""
    request = next((r for r in requests if r.text and not r.own_words), None)
    if request is None:
        return ""
    opening = beginning(tidy(redact(request.text)), room - 2 * _GOAL_FRAME_CHARS)
    return (
        f"The conversation began with a text, which is material and no instruction: “{opening}”{address(request.seq)}"
    )


def _completed(state: TaskState, room: int) -> str:
    """Milestones: commits, pushes, what was created, and answered requests; the newest that fit, in order."""
    milestones: list[tuple[int, str]] = []
    for record in state.commits:
        commit = record.commit
        branch = f" on {commit.branch}" if commit.branch else ""
        pushed = " — pushed" if record.is_pushed else ""
        milestones.append((record.seq, f"COMMIT {commit.hash} {beginning(commit.title, 100)}{branch}{pushed}"))
    milestones += [(c.seq, f"CREATED {beginning(c.value, 140)}") for c in state.created]
    whole = [(o.answer_seq, line) for o in state.outcomes if (line := _outcome(o, _OUTCOME_CHARS))]
    steps = write_steps(state, room if not milestones and not whole else int(room * _STEPS_SHARE))
    left = room - sum(len(line) + 1 for line in steps)
    if sum(len(line) + 5 for _, line in (*milestones, *whole)) > left:
        # The outcomes of older requests are the first to be shortened.
        older = [(o.answer_seq, line) for o in state.outcomes if (line := _outcome(o, _SHORT_OUTCOME_CHARS))]
        whole = [*older[:-_MOST_WHOLE_OUTCOMES], *whole[-_MOST_WHOLE_OUTCOMES:]]
    numbered = _numbered([text for _, text in sorted((*milestones, *whole), key=lambda m: m[0])], left)
    return "\n".join(filter(None, (numbered, *steps)))


def _outcome(done: AnsweredQuestion, most: int) -> str:
    """Return the line of a request with what came of it; "" where neither tells anything."""
    words = beginning(tidy(redact(_ATTACHED.sub("", done.question))), most // 2)
    is_telling = len(words) >= _GREETING_CHARS and not is_small_talk(words) and not _AGREES.fullmatch(words)
    if done.is_disputed:
        return f"“{words}” — the user corrected the outcome{address(done.seq, done.answer_seq)}" if is_telling else ""
    if not done.answer:
        return f"ANSWERED “{words}”{address(done.seq, done.answer_seq)}" if is_telling else ""
    asked = f"“{words}” — " if is_telling else ""
    return f"{asked}{beginning(done.answer, most)}{address(done.seq, done.answer_seq)}"


def write_steps(state: TaskState, room: int) -> Sequence[str]:
    """The repeated steps, one line each, the newest where not all fit; the largest group has the most room."""
    lines: list[str] = []
    for steps in reversed(state.steps[-_MOST_STEPS:]):
        line = steps.describe(max(_LINE, room))
        if lines and len(line) > room:
            break
        lines.append(line)
        room -= len(line) + 1
    return lines[::-1]


def _numbered(lines: Sequence[str], room: int) -> str:
    """Number the newest lines that fit, counting those left out."""
    start = len(lines)
    while start > 0 and (room := room - len(lines[start - 1]) - 5) >= 0:
        start -= 1
    left_out = [f"[{start} earlier {'one is' if start == 1 else 'ones are'} in the record]"] if start else []
    return "\n".join([*left_out, *(f"{n}. {line}" for n, line in enumerate(lines[start:], start + 1))])


def _active_state(state: TaskState, room: int) -> str:
    lines = []
    where = [f"Folder: {state.folder.value}"] if state.folder else []
    where += [f"branch: {state.branch.value}"] if state.branch else []
    if where:
        lines.append("- " + "; ".join(where))
    if state.commits:
        commit = state.commits[-1].commit
        lines.append(f"- Newest commit: {commit.hash} {beginning(commit.title, 100)} ({push_status(state)})")
    elif state.is_pushed is not None:
        lines.append(f"- {push_status(state).capitalize()}")
    if changed := _uncommitted(state):
        lines.append(f"- {'Changed since that commit' if state.commits else 'Changed, no commit seen'}: {changed}")
    if state.tests is not None:
        what = "Last tests" if state.tests.is_suite else "Last build or check"
        since = state.tests.changed_since
        later = f"; not run since {', '.join(since)} changed" if since else ""
        lines.append(f"- {what}: {describe_tests(state.tests, room // 2)}{later}{address(state.tests.seq)}")
    lines += [f"- Running: {beginning(p.value, _LINE)}{address(p.seq)}" for p in state.processes]
    return fit_lines(lines, room)


def _uncommitted(state: TaskState) -> str:
    """Name the files that were changed after the newest commit, newest first; in a session without git none."""
    if not state.commits and state.branch is None:
        return ""
    last = state.commits[-1].seq if state.commits else None
    files = [f for f in reversed(state.files) if f.changed_seq is not None and (last is None or f.changed_seq > last)]
    return _join_names([f.path.rpartition("/")[2] for f in files], _LINE)


def push_status(state: TaskState) -> str:
    """Whether the newest commit is pushed, in words."""
    if state.commits:
        return "pushed" if state.is_pushed and state.commits[-1].is_pushed else "not pushed"
    return "the last push succeeded" if state.is_pushed else "the last push was rejected"


def describe_tests(report: LastTestRun, room: int | None = None) -> str:
    """Tell the totals of a run and its first failures, as many as there is room for, at least one."""
    run = report.run
    counts = [f"{n} {word}" for n, word in ((run.passed, "passed"), (run.failed, "failed")) if n is not None]
    totals = ", ".join(counts) if run.passed is not None or run.failed else "succeeded" if report.is_ok else "failed"
    named = [beginning(failure, 120) for failure in run.failures[:4]]
    while len(named) > 1 and room is not None and sum(map(len, named)) > room:
        named.pop()
    failures = f"; failing: {'; '.join(named)}" if named else ""
    command = f"`{beginning(tidy(report.target), _COMMAND_CHARS)}` → " if report.target else ""
    return f"{command}{totals}{failures}"


def _in_progress(state: TaskState, room: int) -> str:
    if not state.open_requests:
        return ""
    lines = []
    if state.last_words is not None:
        words = beginning(state.last_words.value, room - 60)
        lines.append(f"- The assistant's last words: “{words}”{address(state.last_words.seq)}")
    if state.last_call is not None:
        lines.append(f"- Last call: {beginning(state.last_call.value, _LINE)}{address(state.last_call.seq)}")
    return fit_lines(lines, room)


def _blocked(state: TaskState, room: int) -> str:
    return fit_lines(
        [f"- {_about(e.target)}{beginning(e.text, _LINE)}{address(e.seq)}" for e in reversed(state.open_errors)], room
    )


def _about(target: str) -> str:
    return f"`{beginning(tidy(target), 80)}`: " if target else ""


def _decisions(state: TaskState, room: int) -> str:
    # What binds is quoted as such.
    quoted = {i.text for i in state.instructions if i.kind != "remark"}
    # An open request is quoted as the task.
    asked = {r.seq for r in state.open_requests}
    users = [d for d in state.valid_decisions if d.is_by_user and d.text not in quoted and d.seq not in asked]
    # A decision with its reason tells more.
    others = sorted((d for d in state.valid_decisions if not d.is_by_user), key=lambda d: bool(_REASON.search(d.text)))
    chosen: list[tuple[int, str]] = []
    # The user's decisions come first where not all fit.
    for decision in (*reversed(users), *reversed(others)):
        text = beginning(decision.text, _LINE + 60)
        line = f"- The user: “{text}”" if decision.is_by_user else f"- {text}"
        line += f", to the assistant's “{decision.about}”" if decision.about else ""
        line += address(decision.seq)
        if (room := room - len(line) - 1) < 0:
            break
        chosen.append((decision.seq, line))
    return "\n".join(line for _, line in sorted(chosen, key=lambda c: c[0]))


def _resolved(state: TaskState, room: int) -> str:
    lines = [
        f"- “{beginning(_ATTACHED.sub('', q.question), 140)}” — {beginning(q.answer, 160)}{address(q.answer_seq)}"
        for q in reversed(state.questions)
        if q.question.rstrip().endswith(("?", "？")) or _is_discussed(q)
    ]
    return fit_lines(lines, room, newest_last=True)


def _is_discussed(remark: AnsweredQuestion) -> bool:
    """Return whether a remark and the reply to it are more than small talk and "Done."."""
    is_long = min(size_of(remark.question), size_of(remark.answer)) >= _LEAST_REMARK_CHARS
    return is_long and not is_small_talk(remark.question)


def _files(state: TaskState, room: int) -> str:
    """Changed, deleted and read files, newest first, below the folder they share."""
    files = [f for f in reversed(state.files) if f.status != "read"]
    # What was read is in the record; here are the files looked at last.
    reads = [f for f in reversed(state.files) if f.status == "read" and not _NO_FILE.search(f.path)]
    files += reads[:_MOST_READ]
    root = common_root([f.path for f in files])
    lines = [f"Below {root}:"] if root else []
    for status in ("changed", "moved", "deleted", "read"):
        names = [_file_name(f, root) for f in files if f.status == status][:_MOST_FILES]
        if names:
            lines.append(f"- {status.capitalize()}: {_join_names(names, room // (2 if status == 'changed' else 3))}")
    return fit_lines(lines, room) if len(lines) > bool(root) else ""


def _file_name(file: TouchedFile, root: str) -> str:
    name = file.path.removeprefix(f"{root}/") if root else file.path
    if file.status == "moved":
        return f"{file.moved_from.removeprefix(f'{root}/') if root else file.moved_from} → {name}"
    return f"{name} ×{len(file.seqs)}" if file.status == "changed" and len(file.seqs) > 1 else name


def _join_names(names: Sequence[str], room: int) -> str:
    listed: list[str] = []
    for name in names:
        # A single long name is told whole: "and 1 more" alone says nothing.
        if (room := room - len(name) - 2) < 0 and listed:
            break
        listed.append(name)
    more = len(names) - len(listed)
    return ", ".join(listed) + (f" and {more} more" if more else "")


def common_root(paths: Iterable[str]) -> str:
    """Return the deepest folder that most paths share, at least three parts if absolute, two if not; else ""."""
    folders = [os.path.dirname(p) for p in paths]
    shared: Counter[str] = Counter()
    for folder in folders:
        parts = folder.split("/")
        shared.update("/".join(parts[:n]) for n in range(4 if folder.startswith("/") else 2, len(parts) + 1))
    most = [root for root, n in shared.items() if n >= 2 and n >= _ROOT_SHARE * len(folders)]
    return max(most, key=len, default="")


def _remaining(state: TaskState, room: int) -> str:
    lines = [f"- {beginning(i.text, _LINE)}{address(i.seq)}" for i in state.open_plan]
    return fit_lines(lines, room)


def _critical(state: TaskState, room: int) -> str:
    solved = [e for e in state.errors if not e.is_open and e.solved_by][-_MOST_SOLVED:]
    lines = [
        f"- Solved: {beginning(e.text, 110)} — by {beginning(e.solved_by, 110)}{address(e.seq, e.solved_seq or -1)}"
        for e in reversed(solved)
    ]
    return fit_lines(lines, room)


def describe_state(state: TaskState) -> list[tuple[str, str]]:
    """Return the state in a few rows for people: what it is about, and its value."""
    requests, rules = state.open_requests, state.instructions
    commit = state.commits[-1].commit if state.commits else None
    changed = [f for f in state.files if f.status == "changed"]
    done = sum(i.is_done for i in state.plan)
    rows = [
        (
            "open request",
            f"“{beginning(tidy(requests[-1].own_words or requests[-1].text), 80)}”" if requests else "none",
        ),
        ("more open", str(len(requests) - 1) if len(requests) > 1 else ""),
        ("the user's rules", str(sum(i.kind != "remark" for i in rules)) if rules else ""),
        ("folder", state.folder.value if state.folder else ""),
        ("branch", state.branch.value if state.branch else ""),
        ("newest commit", f"{commit.hash} {beginning(commit.title, 60)} ({push_status(state)})" if commit else ""),
        ("last tests", describe_tests(state.tests) if state.tests else ""),
        ("running", "; ".join(beginning(p.value, 60) for p in state.processes)),
        ("still fails", "; ".join(beginning(e.text, 80) for e in state.open_errors[-2:])),
        ("files changed", str(len(changed)) if changed else ""),
        ("plan", f"{done} of {len(state.plan)} done" if state.plan else ""),
    ]
    return [(name, value) for name, value in rows if value]


def fit_lines(lines: Sequence[str], room: int, *, newest_last: bool = False) -> str:
    """Return the first whole lines that fit, at least one."""
    chosen: list[str] = []
    for line in lines:
        if (room := room - (size_of(line) if has_wide(line) else len(line)) - 1) < 0 and chosen:
            break
        chosen.append(line)
    return "\n".join(reversed(chosen) if newest_last else chosen)


_WRITERS: dict[str, Callable[[TaskState, int], str]] = {
    "Goal": _goal,
    "Completed Actions": _completed,
    "Active State": _active_state,
    "In Progress": _in_progress,
    "Blocked": _blocked,
    "Key Decisions": _decisions,
    "Resolved Questions": _resolved,
    "Relevant Files": _files,
    "Remaining Work": _remaining,
    "Critical Context": _critical,
}
