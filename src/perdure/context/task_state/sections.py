"""Write the thirteen sections of a handoff from the state of the task, short and true at its end."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from perdure.context.fitting import address, fit_lines, join_names, relative_to, whole_sentences
from perdure.context.handoff import SECTIONS
from perdure.context.task_state.active_task import (
    BY_USER,
    failing_beside,
    files_root,
    has_material,
    listed_files,
    next_open_step,
    next_step,
    open_steps,
    states_task,
    task_files,
    write_active_task,
)
from perdure.context.task_state.decisions import has_subject
from perdure.context.task_state.inherited import GOAL
from perdure.context.task_state.instructions import write_instructions
from perdure.context.task_state.state import (
    AnsweredQuestion,
    LastTestRun,
    SourcedValue,
    TaskState,
    TouchedFile,
    UserRequest,
)
from perdure.context.text import clip, sentences, size_of, tidy
from perdure.context.tool_calls.shell import short_command
from perdure.context.user_text.authorship import asks_something
from perdure.context.user_text.instruction_scope import is_wish
from perdure.context.user_text.intent import before_fiction, is_command, is_directive, without_commands
from perdure.context.user_text.standing_instructions import is_small_talk, is_standing, orders_step
from perdure.redaction import redact

SAME_AS_TASK = "What Active Task quotes."
IN_TASK = "What is open of Active Task."
DONE_IN_TASK = "What Active Task lists as done since then."

DEFAULT_CHARS = 6_000
# Share of the budget of each section that code writes; Active Task and the instructions have no limit but their own.
_SHARES = {
    "Goal": 0.12,
    "Completed Actions": 0.24,
    "Active State": 0.18,
    "In Progress": 0.0,
    "Blocked": 0.04,
    "Key Decisions": 0.14,
    "Resolved Questions": 0.10,
    "Relevant Files": 0.12,
    "Remaining Work": 0.08,
}
# The room for quoted requests, as a multiple of the budget of the sections.
_TASK_SHARE = 1.5
_LEAST_TASK_CHARS = 3_000
# The newest requests, which are likely to be quoted whole.
_MOST_WHOLE_REQUESTS = 6
_LINE = 200
_MOST_FILES = 24
_FEW_FILES = 2
# Of the room for what was completed, the part for repeated steps beside milestones.
_STEPS_SHARE = 0.5
_GOAL_FRAME_CHARS = 40
_LEAST_GOAL_CHARS = 160
_LEAST_SINCE_CHARS = 260
_BEGAN = "The conversation began with:"
_SINCE_SUMMARY = "The first request after an earlier summary:"
# Where that is not the beginning of the first message.
_FIRST_TASK = "The first task:"
_COMPARED_CHARS = 12
_BEGAN_TO_WORK = "The work began with:"
_NOW = "Now:"
_FINDING = "The assistant's newest finding"
_QUICK_QUESTION_CHARS = 80
# One as short does not describe the work that follows it.
_SMALL_QUESTION_CHARS = 40
_TITLE_CHARS = 120
_MOST_STEPS = 6
_LEAST_REMARK_CHARS = 25
_OUTCOME_CHARS = 200
_SHORT_OUTCOME_CHARS = 100
_MOST_WHOLE_OUTCOMES = 3
_GREETING_CHARS = 10
# "ok, let's do this" names nothing that was done.
_AGREES = re.compile(
    r"(?i)(?:(?:yes|yeah|yep|ok(?:ay)?|sure|great|perfect|good|nice|alright|cool|please)[,.! ]*)*"
    r"(?:let'?s (?:do|try|use|implement|fix|go)|do|try|go (?:ahead|for)|implement|fix|proceed|go)(?: with)?"
    r"(?: (?:it|this|that|them|these|so|all))*(?: (?:then|now|first|please))*[.! ]*"
)
# A short message about "those new tests" means little alone.
_POINTS_BACK = re.compile(r"(?i)\b(?:them|those|these)\b")
# The path of a picture that was dropped into the input.
_ATTACHED = re.compile(
    r"\A['\"]?(?:/|~/|[A-Z]:\\)[^'\"\n]{1,300}\.(?:png|jpe?g|gif|webp|heic|pdf)['\"]?\s*", re.IGNORECASE
)
_REASON = re.compile(
    r"\b(?:because|since|so that|due to|root cause|to avoid|decided|agreed|weil|parce que|porque)\b|因为|ため|때문",
    re.I,
)


def write_sections(
    state: TaskState, *, budget_chars: int | None = None, rules_chars: int | None = None
) -> dict[str, str]:
    """Write the sections from the state alone; those without content are left out.

    Beyond `rules_chars` the user's instructions are named in a few words; without it all are quoted.
    """
    budget = DEFAULT_CHARS if budget_chars is None else budget_chars
    sections = {"Active Task": write_active_task(state, max(_LEAST_TASK_CHARS, int(budget * _TASK_SHARE)))}
    task = sections["Active Task"] if state.open_requests else ""
    sections["Constraints & Preferences"] = write_instructions(
        state, task=task, requirement_chars=budget // 10, room=rules_chars
    )
    if state.put_off is not None:
        asked = (
            f"- The assistant asked “{state.put_off.value}”{address(state.put_off.seq)}; the user put the answer off."
        )
        sections["Pending User Asks"] = asked
    spare = 0.0
    for name, share in _SHARES.items():
        room = int(budget * share + spare)
        sections[name] = _WRITERS[name](state, room)
        spare = max(0.0, room - len(sections[name])) / 2
    return {name: text for name in SECTIONS if (text := sections.get(name, ""))}


# -- the work --------------------------------------------------------------------------------------------------------
def _goal(state: TaskState, room: int) -> str:
    """Quote what the conversation began with, and what it is about now where Active Task does not quote that.

    Where it began with a summary, its goal comes before that, as background.
    """
    if state.inherited is not None and state.inherited_goal:
        began = f"{GOAL} “{whole_sentences(state.inherited_goal, room)}”{address(state.inherited.seq)}"
        since = _goal_since(state, max(room - len(began), _LEAST_SINCE_CHARS))
        return f"{began}\n{since}" if since and since != SAME_AS_TASK else began
    return _goal_since(state, room)


def _goal_since(state: TaskState, room: int) -> str:
    first = state.goal
    if first is None or (len(state.requests) == 1 and first.value.rstrip().endswith((":", "："))):
        return _material(state, room)
    if first.value.startswith((_BEGAN, _FIRST_TASK, _SINCE_SUMMARY, GOAL)):  # carried over from an earlier handoff
        return clip(first.value, room)
    open_seqs = {r.seq for r in state.open_requests[-_MOST_WHOLE_REQUESTS:]}
    opening = _first_work(state, first)
    newest = next((r for r in reversed(state.requests) if _is_aim(r)), None)
    now = ""
    if newest is not None and all(newest.seq > seq for seq in (opening.seq, *open_seqs)):
        room = max(room // 2, _LEAST_GOAL_CHARS)
        now = f"\n{_NOW} “{_aim(_words_of(newest), room)}”{address(newest.seq)}"
    elif opening.seq in open_seqs and (len(opening.value) > room - _GOAL_FRAME_CHARS or state.inherited_goal):
        return SAME_AS_TASK  # once is enough where it is long
    room -= _GOAL_FRAME_CHARS
    if opening.seq == first.seq:
        return f"{_quote_opening(state, opening.seq, _aim(opening.value, room))}{now}"
    work = f"{_BEGAN_TO_WORK} “{_aim(opening.value, room // 2)}”{address(opening.seq)}{now}"
    if size_of(first.value) <= _SMALL_QUESTION_CHARS:
        return work
    return f"{_quote_opening(state, first.seq, _aim(first.value, _QUICK_QUESTION_CHARS))}\n{work}"


def _quote_opening(state: TaskState, seq: int, words: str) -> str:
    """Quote the first task as what it is: the beginning of the first message, or from within it, or a later one."""
    requests = state.requests
    request = next((r for r in requests if r.seq == seq), None)
    start = words.partition("…")[0].strip()[:_COMPARED_CHARS]
    is_within = request is not None and not tidy(redact(request.text[:_LEAST_TASK_CHARS])).startswith(start)
    if state.issue is not None and state.issue.seq == seq:
        words = f"{words}” about “{state.issue.value}"
    if is_within:
        return f"{_FIRST_TASK} “… {words}”{address(seq)}"
    is_first = all(r.seq >= seq for r in requests)
    began = _SINCE_SUMMARY if state.inherited is not None else _BEGAN
    return f"{began if is_first else _FIRST_TASK} “{words}”{address(seq)}"


def _first_work(state: TaskState, first: SourcedValue) -> SourcedValue:
    """Return the first message that asks for work, where the conversation began with a short question."""
    opening = next((r for r in state.requests if r.seq == first.seq), None)
    if opening is not None:
        first = replace(first, value=_words_of(opening, first.value)) if has_material(opening) else first
        if opening.status == "open" or opening.seq in state.worked_on or not _is_quick_question(first.value):
            return first
    later = (r for r in state.requests if r.seq > first.seq and (r.status == "open" or r.seq in state.worked_on))
    request = next((r for r in later if _is_aim(r) and not _is_quick_question(r.own_words)), None)
    return SourcedValue(_words_of(request), request.seq) if request is not None and opening is not None else first


def _is_quick_question(words: str) -> bool:
    return len(words) <= _QUICK_QUESTION_CHARS and words.rstrip().endswith(("?", "？"))


def _words_of(request: UserRequest, words: str = "") -> str:
    """Return the user's words of a request; of "Implement this plan:" also the title of what follows."""
    words = without_commands((words or before_fiction(request.own_words)).strip())
    if not words.endswith((":", "：")):
        return words
    line = words.splitlines()[-1]
    below = request.text[request.text.find(line) + len(line) :].split("\n") if line in request.text else []
    title = next((x.strip(" #*>|-=`\t") for x in below if any(map(str.isalnum, x))), "")
    return f"{words} {clip(title, _TITLE_CHARS)}" if title and not is_directive(title) else words


def _is_aim(request: UserRequest) -> bool:
    words = before_fiction(request.own_words).strip()
    if is_command(words) or (len(words) <= _QUICK_QUESTION_CHARS and _POINTS_BACK.search(words)):
        return False
    return (
        request.status in ("open", "answered") and not request.about and bool(words) and has_subject(_words_of(request))
    )


def _aim(words: str, room: int) -> str:
    """Return an excerpt of a message: the sentences that ask for something first, without standing instructions."""
    # Those are quoted as such in their own section.
    aim = whole_sentences(words, room, asks=_states_aim, skips=lambda s: is_directive(s) or is_standing(s))
    return aim or whole_sentences(words, room)


def _states_aim(sentence: str) -> bool:
    return (asks_something(sentence) or orders_step(sentence) or is_wish(sentence)) and has_subject(sentence)


def _material(state: TaskState, room: int) -> str:
    """Return the task that the first message states, else its beginning, where no words of it are surely the user's."""
    requests = state.requests
    request = next((r for r in requests if r.text and (not r.own_words or r.own_words.endswith((":", "：")))), None)
    if request is None or request.status not in ("open", "answered"):
        return ""
    text, room = redact(request.text), room - 2 * _GOAL_FRAME_CHARS
    if request is requests[0] and any(map(states_task, sentences(text))):
        words = request.own_words.strip()
        words = _words_of(request) if asks_something(words) else whole_sentences(text, room, asks=states_task)
        return _quote_opening(state, request.seq, words)
    opening = f"“{clip(tidy(text), room)}”{address(request.seq)}"
    return f"The conversation began with a text, which is material and no instruction: {opening}"


def _completed_actions(state: TaskState, room: int) -> str:
    """List the milestones: commits, pushes, what was created, and answered requests; the newest that fit, in order."""
    milestones: list[tuple[int, str]] = []
    for record in state.commits:
        commit = record.commit
        branch = f" on {commit.branch}" if commit.branch else ""
        pushed = " — pushed" if record.is_pushed else ""
        milestones.append((record.seq, f"COMMIT {commit.hash} {clip(commit.title, 100)}{branch}{pushed}"))
    milestones += [(c.seq, f"CREATED {clip(c.value, 140)}") for c in state.created]
    repeated = {word for g in state.steps for step in g.steps for word in step.split(" ")}
    milestones += [(s.seq, f"DID {s.value}") for s in state.settled if s.value.partition(" ")[0] not in repeated]
    # What the messages in view show is not repeated here.
    outcomes = [o for o in state.outcomes if o.answer_seq not in state.in_view]
    whole = [(o.answer_seq, line) for o in outcomes if (line := _outcome(o, _OUTCOME_CHARS))]
    if not milestones and not whole and not state.steps:  # else the section would say that nothing is done
        whole = [
            (o.answer_seq, line) for o in state.outcomes if o.answer and (line := _outcome(o, _SHORT_OUTCOME_CHARS))
        ]
    steps = write_steps(state, room if not milestones and not whole else int(room * _STEPS_SHARE))
    left = room - sum(len(line) + 1 for line in steps)
    if sum(len(line) + 5 for _, line in (*milestones, *whole)) > left:
        # The outcomes of older requests are the first to be shortened.
        older = [(o.answer_seq, line) for o in outcomes if (line := _outcome(o, _SHORT_OUTCOME_CHARS))]
        whole = [*older[:-_MOST_WHOLE_OUTCOMES], *whole[-_MOST_WHOLE_OUTCOMES:]]
    numbered = _number_lines([text for _, text in sorted((*milestones, *whole), key=lambda m: m[0])], left)
    if not numbered and not steps and (task_files(state) or any(i.is_done for i in state.plan)):
        return DONE_IN_TASK
    return "\n".join(filter(None, (numbered, *steps)))


def _outcome(done: AnsweredQuestion, most: int) -> str:
    """Return the line of a request with what came of it; "" where neither tells anything."""
    words = clip(tidy(redact(_ATTACHED.sub("", done.question))), most // 2)
    is_telling = len(words) >= _GREETING_CHARS and not is_small_talk(words) and not _AGREES.fullmatch(words)
    if done.is_disputed:
        return f"“{words}” — the user corrected the outcome{address(done.seq, done.answer_seq)}" if is_telling else ""
    outcome = whole_sentences(done.answer, most) if done.answer else ""
    if done.taken_back:
        names = join_names([path.rpartition("/")[2] for path in done.taken_back], _OUTCOME_CHARS // 2)
        if not done.files:
            return f"{f'“{words}” — ' if is_telling else ''}{BY_USER}: {names}{address(done.seq, done.answer_seq)}"
        outcome = f"{outcome} ({BY_USER}: {names})" if outcome else f"{BY_USER}: {names}"
    if done.files:
        names = join_names([path.rpartition("/")[2] for path in done.files], _OUTCOME_CHARS // 2)
        outcome = f"{outcome} (changed {names})" if outcome else f"changed {names}"
    if not outcome:
        return ""
    return f"{f'“{words}” — ' if is_telling else ''}{outcome}{address(done.seq, done.answer_seq)}"


def write_steps(state: TaskState, room: int) -> Sequence[str]:
    """Return the repeated steps, one line each, the newest where not all fit; the largest group has the most room."""
    lines: list[str] = []
    for steps in reversed(state.steps[-_MOST_STEPS:]):
        line = steps.describe(max(_LINE, room))
        if lines and len(line) > room:
            break
        lines.append(line)
        room -= len(line) + 1
    return lines[::-1]


def _number_lines(lines: Sequence[str], room: int) -> str:
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
        title = clip(commit.title, 100 if state.head is None else 40)
        lines.append(f"- Newest commit: {commit.hash} {title} ({push_status(state)})")
    elif state.is_pushed is not None:
        lines.append(f"- {push_status(state).capitalize()}")
    if state.head is not None:
        lines.append(f"- HEAD{' since then' if state.commits else ''}: {clip(state.head.value, 70)}")
    # Active Task names what was changed and not checked for it.
    of_task = {f.path for f in task_files(state)}
    lines += _test_state(state, room, is_in_task=bool(of_task))
    if changed := _uncommitted_files(state, of_task):
        what = "Changed since that commit" if state.commits else "Changed, no commit seen"
        lines.append(f"- {what}{', beside Active Task' if of_task else ''}: {changed}{_shown_later(state, of_task)}")
    if restored := state.files_taken_back:
        names = [f"{f.path.rpartition('/')[2]}{'' if f.changed_seq is None else ' (later changes)'}" for f in restored]
        lines.append(f"- {BY_USER.capitalize()}: {join_names(names, _LINE)}{address(state.taken_back[-1].seq)}")
    lines += [f"- Running: {clip(p.value, _LINE)}{address(p.seq)}" for p in state.processes]
    return fit_lines(lines, room)


def _test_state(state: TaskState, room: int, *, is_in_task: bool) -> Iterator[str]:
    """Yield the last test run or build with what fails in it, and whether it is up to date."""
    if state.tests is None:
        return
    what = "Last tests" if state.tests.is_suite else "Last build or check"
    error = next((e for e in state.open_errors if e.seq == state.tests.seq), None)
    if error is None and state.tests.is_outdated and not state.tests.is_ok:
        return  # it is solved, or unknown
    totals = describe_tests(state.tests, room // 2, has_failures=error is None)
    if error is not None:
        beside = failing_beside(state, error, most=room // 2)
        totals += f"; failing: {clip(error.text, max(_FAILURE_CHARS, min(_LINE, room // 2)))}{beside}"
    since = () if is_in_task else state.tests.changed_since
    later = f"; not run since {', '.join(since)} changed" if since else ""
    later = later or _edited_since(state, state.tests.seq)
    later = "; run again since, with an outcome that cannot be read" if state.tests.is_outdated else later
    yield f"- {what}: {totals}{later}{address(state.tests.seq)}"


def _edited_since(state: TaskState, seq: int) -> str:
    """Return a note on whether a result is older than the last edit."""
    if any(t.covers(seq) for t in state.taken_back):
        return "; before the user took back changes"
    last = max((f.changed_seq for f in state.files if f.changed_seq is not None), default=None)
    return "" if last is None else "; before the last edit" if last > seq else "; nothing edited since"


def _uncommitted_files(state: TaskState, without: Collection[str]) -> str:
    """Name the files that were changed after the newest commit, newest first; none where nothing is edited in place."""
    if not state.commits and state.branch is None and not state.has_edits:
        return ""
    last = state.commits[-1].seq if state.commits else None
    changed = [f for f in reversed(state.files) if f.changed_seq is not None and f.path not in without]
    files = [f for f in changed if last is None or (f.changed_seq or 0) > last]
    if len(files) == len(changed) > _FEW_FILES:
        return "all that Relevant Files lists"
    return join_names([f.path.rpartition("/")[2] for f in files], _LINE)


def _shown_later(state: TaskState, without: Collection[str]) -> str:
    """Name the newest commit of a log that was read after the last of these changes, which it may contain."""
    last = max(
        (f.changed_seq for f in state.files if f.changed_seq is not None and f.path not in without), default=None
    )
    shown = state.commit_shown_since(last) if last is not None else ""
    return f"; the log then showed {clip(shown, 100)} as the newest commit" if shown else ""


def _in_progress(state: TaskState, _: int) -> str:
    lines = [IN_TASK] if state.task_seq is not None else []
    return "\n".join((*lines, *_newest_finding(state)))


def _newest_finding(state: TaskState) -> Iterator[str]:
    """Yield the newest finding, where the messages in view do not show it and no test has passed since."""
    finding, tests = state.finding, state.tests
    if finding is None or finding.seq in state.in_view:
        return
    if tests is None or not tests.is_ok or tests.seq < finding.seq:
        since = _edited_since(state, finding.seq).replace("nothing edited since", "").strip("; ")
        yield f"{_FINDING}{f' ({since})' if since else ''}: “{finding.value}”{address(finding.seq)}"


def _blockers(state: TaskState, room: int) -> str:
    """List the failures that are open; tests that fail are work to do, which Active State names."""
    tests_seq = state.tests.seq if state.tests is not None else None
    return fit_lines(
        [
            f"- {_about(e.target)}{clip(e.text, _LINE)}{_edited_since(state, e.seq)}{address(e.seq)}"
            for e in reversed(state.open_errors)
            if e.seq != tests_seq
        ],
        room,
    )


def _about(target: str) -> str:
    return f"`{short_command(target, 80)}`: " if target else ""


def _decisions(state: TaskState, room: int) -> str:
    # What binds is quoted as such.
    quoted = {i.text for i in state.instructions if i.kind != "change"}
    # An open request is quoted as the task.
    asked = {r.seq for r in state.open_requests}
    users = [d for d in state.valid_decisions if d.is_by_user and d.text not in quoted and d.seq not in asked]
    # A decision with its reason tells more.
    others = sorted((d for d in state.valid_decisions if not d.is_by_user), key=lambda d: bool(_REASON.search(d.text)))
    chosen: list[tuple[int, str]] = []
    # The user's decisions come first where not all fit.
    for decision in (*reversed(users), *reversed(others)):
        text = clip(decision.text, _LINE + 60)
        line = f"- The user: “{text}”" if decision.is_by_user else f"- {text}"
        line += f", to the assistant's “{decision.about}”" if decision.about else ""
        line += address(decision.seq)
        if (room := room - len(line) - 1) < 0:
            break
        chosen.append((decision.seq, line))
    return "\n".join(line for _, line in sorted(chosen, key=lambda c: c[0]))


def _resolved_questions(state: TaskState, room: int) -> str:
    lines = [
        f"- “{clip(tidy(_ATTACHED.sub('', q.question)), 140)}” — "
        f"{whole_sentences(q.answer, _OUTCOME_CHARS)}{address(q.answer_seq)}"
        for q in reversed(state.questions)
        if q.answer
        and q.answer_seq not in state.in_view
        and not is_command(q.question)
        and (q.question.rstrip().endswith(("?", "？")) or _is_discussed(q))
    ]
    return fit_lines(lines, room, newest_last=True)


def _is_discussed(remark: AnsweredQuestion) -> bool:
    """Return whether a remark and the reply to it are more than small talk and "Done."."""
    is_long = min(size_of(remark.question), size_of(remark.answer)) >= _LEAST_REMARK_CHARS
    # How to answer is no question.
    return is_long and not is_small_talk(remark.question) and not is_standing(remark.question)


def _files(state: TaskState, room: int) -> str:
    """Changed, deleted and read files, newest first, below the folder they share; not those that Active Task names."""
    of_task = {f.path for f in task_files(state)}
    files = [f for f in listed_files(state) if f.path not in of_task]
    root = files_root(state)
    if root and of_task and not files:
        return f"Those of Active Task, below {root}"
    lines = [f"Below {root}{', as in Active Task' if of_task else ''}:"] if root else []
    for status in ("changed", "taken back", "undone", "moved", "deleted", "read"):
        names = [_file_name(f, root) for f in files if f.status == status][:_MOST_FILES]
        if names:
            title = "Changed before" if status == "changed" and of_task else status.capitalize()
            title = {"taken back": BY_USER.capitalize(), "undone": "Changed and undone again"}.get(status, title)
            lines.append(f"- {title}: {join_names(names, room // (2 if status == 'changed' else 3))}")
    return fit_lines(lines, room) if len(lines) > bool(root) else ""


def _file_name(file: TouchedFile, root: str) -> str:
    name = relative_to(file.path, root)
    return f"{relative_to(file.moved_from, root)} → {name}" if file.status == "moved" else name


def _remaining(state: TaskState, room: int) -> str:
    """List the open plan and what the log shows to be left, without what Active Task names as the next."""
    step, first = next_step(state), next_open_step(state)
    lines = [f"- {clip(i.text, _LINE)}{address(i.seq)}" for i in state.open_plan if i.text != step]
    steps = [f"- {text[0].upper()}{text[1:]}" for text in open_steps(state) if text != first]
    steps += [f"- Left for later: “{clip(d.value, _LINE)}”{address(d.seq)}" for d in state.deferred]
    if state.task_seq is not None and not lines:
        if not steps:
            return IN_TASK
        lines = [f"- {IN_TASK}"]
    return fit_lines([*lines, *steps], room)


_WRITERS: dict[str, Callable[[TaskState, int], str]] = {
    "Goal": _goal,
    "Completed Actions": _completed_actions,
    "Active State": _active_state,
    "In Progress": _in_progress,
    "Blocked": _blockers,
    "Key Decisions": _decisions,
    "Resolved Questions": _resolved_questions,
    "Relevant Files": _files,
    "Remaining Work": _remaining,
}


_COMMAND_CHARS = 100
_FAILURE_CHARS = 120
_FILTERED = re.compile(r"\| *(?:grep|egrep|rg|head|tail|awk|sed)\b")


def push_status(state: TaskState) -> str:
    """Describe whether the newest commit is pushed."""
    if state.commits:
        return "pushed" if state.is_pushed and state.commits[-1].is_pushed else "not pushed"
    return "the last push succeeded" if state.is_pushed else "the last push failed"


def describe_tests(report: LastTestRun, room: int | None = None, *, has_failures: bool = True) -> str:
    """Describe a test run: its totals and its first failures, as many as fit, at least one."""
    run = report.run
    # Of a runner that prints no total only what `grep` and `head` let through is counted.
    is_filtered = run.passed is None and bool(run.failed) and _FILTERED.search(report.target) is not None
    counts = [f"{n} {word}" for n, word in ((run.passed, "passed"), (run.failed, "failed")) if n is not None]
    counts = [f"at least {run.failed} failed (of filtered output)"] if is_filtered else counts
    totals = ", ".join(counts) if run.passed is not None or run.failed else "succeeded" if report.is_ok else "failed"
    named = [clip(failure, _FAILURE_CHARS) for failure in run.failures[:4]] if has_failures else []
    while len(named) > 1 and room is not None and sum(map(len, named)) > room:
        named.pop()
    failures = f"; failing: {'; '.join(named)}" if named else ""
    failures += "; written first, to fail until the change is made" if report.is_expected else ""
    command = f"`{short_command(report.target, _COMMAND_CHARS)}` → " if report.target else ""
    return f"{command}{totals}{failures}"
