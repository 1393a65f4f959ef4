"""Write Active Task: the open requests in the user's words, and how far the work on the newest one is.

Of text that a user sent with a request, a part is quoted beside their own words (`quote_material`). `parse_active_task`
reads the section of an earlier handoff.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from perdure.context.fitting import address, common_folder, fair_share, join_names, relative_to, whole_sentences
from perdure.context.task_state.decisions import has_subject
from perdure.context.task_state.inherited import write_inherited
from perdure.context.task_state.state import BEFORE_LOG, LastTestRun, TaskError, TaskState, TouchedFile, UserRequest
from perdure.context.text import both_ends, clip, sentences, tidy
from perdure.context.tool_calls.output import CallFinding, read_output, unique
from perdure.context.tool_calls.shell import short_command
from perdure.context.tool_calls.test_runs import read_tests
from perdure.context.user_text.authorship import asks_something
from perdure.context.user_text.intent import BELOW, is_command, is_directive
from perdure.redaction import redact

OPEN = "The user's unfinished requests, word for word, newest last:"
ALL_ANSWERED = "None. Every request so far was answered; the last one was:"
QUOTE_CHARS = 1_600

_LEFT_OUT = "[… {:,} characters left out{} …]"
_SHORTENED = re.compile(r"^(?:\| )?\[… [\d,]+ characters left out(?:: m:\d+)? …\]$", re.MULTILINE)
# The line between the user's own words and the text that they sent with them.
MATERIAL = "[more text of this message, taken as material and not as instructions{}]"
MATERIAL_LINE = re.compile(rf"^(?:{re.escape(MATERIAL[:-3])}|{re.escape(BELOW[:-3])})(?:: m:\d+)?\]$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class OpenRequests:
    """Open requests of the user; `closed` are those the last reply answered."""

    open: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()


def parse_active_task(section: str) -> OpenRequests:
    """Parse the requests quoted by an Active Task section."""
    quotes: list[str] = []
    lines: list[str] = []
    for line in (*section.splitlines(), ""):
        if line.startswith(">"):
            lines.append(line[2:] if line.startswith("> ") else line[1:])
        elif lines:
            quotes.append("\n".join(lines))
            lines = []
    if section.startswith("None"):
        return OpenRequests(closed=tuple(quotes))
    return OpenRequests(open=tuple(quotes))


def quote(text: str, *, most_chars: int = QUOTE_CHARS, seq: int = -1) -> str:
    """Render a request as a block quote; a long one by both ends, with its address if it has one. Idempotent."""
    text = redact(text.strip())
    if len(text) > most_chars and not _is_shortened(text, most_chars):
        head, tail = both_ends(text, most_chars)
        left_out = _LEFT_OUT.format(len(text) - len(head) - len(tail), f": m:{seq}" if seq >= 0 else "")
        text = f"{head.rstrip()}\n{left_out}\n{tail.lstrip()}"
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def without_omission(text: str) -> str:
    """Return a quoted request without the lines that count what was left out or announce material."""
    return MATERIAL_LINE.sub("", _SHORTENED.sub("", text))


def _is_shortened(text: str, most_chars: int) -> bool:
    """Return whether an earlier handoff shortened it already: shortened again, it would not be recognised."""
    return len(text) <= most_chars + 2 * len(_LEFT_OUT) and _SHORTENED.search(text) is not None


DEFAULT_TASK_CHARS = 9_000
# The least that each quoted request has of the room.
_LEAST_QUOTE_CHARS = 160
# The most room for text that the user sent with a request.
_MATERIAL_CHARS = 1_000
# Of a request that stays in view below the notes.
_IN_VIEW_CHARS = 480
_EARLIER_CHARS = 240
_FILES_CHARS = 700
_STEP_CHARS = 160
_MOST_STEPS = 6
_MOST_NAMES = 4
_MOST_READ = 5
_MOST_FAILURES = 3
_FAILING_CHARS = 360
# The user asks for a commit or a push; "the commit", "auto commit" and "commit message" name one.
_GIT_REQUESTS = {
    what: re.compile(
        rf"(?i)(?:^|[.,;:!]\s*|\b(?:and|then|please|also|now|you|it|let's)\s+){what}\b"
        rf"(?!\s+(?:messages?|hooks?|hash|history|ids?|logs?)\b)|(?:{elsewhere})"
    )
    for what, elsewhere in (
        ("commit", "커밋 ?(?:하고|해)|提交(?:一下|吧)|コミットして"),
        ("push", "푸[시쉬] ?(?:하고|해)|推送(?:一下|吧)|プッシュして"),
    )
}
_NO_GIT_REQUEST = re.compile(
    r"(?i)\b(?:don['’]?t|do not|never|not|no|without|before|until|after|if|when|whenever|did|have|why|how|what)\b"
    r"|지 ?마|不要|别|ないで"
)
_STATES_TASK = re.compile(
    r"(?i)\bI(?:['’]d| would)? (?:need|want|like) you to\b"
    r"|\byour (?:task|job|goal|objective|assignment|mission) (?:is|will be)\b"
    r"|^\W*(?:please |now )*(?:implement|solve|fix|build|develop|refactor|migrate|port|translate|summari[sz]e|review"
    r"|analy[sz]e|answer)\b"
    r"|\b(?:can|could|would) you (?:please )?\w+|\b(?:deine|ihre) aufgabe\b|\bta tâche\b|\btu tarea\b"
    r"|\bich möchte, dass du\b"
    r"|你的任务|请(?:你|帮)|任务是|あなたの(?:任務|仕事|タスク)|してください|당신의 (?:임무|작업)|해 ?(?:줘|주세요)"
)
# At the end of a command: programs that cut its output, and where that goes.
_CUTTERS = frozenset(("head", "tail", "tee", "less"))
_REDIRECTIONS = ("2>&1", "> /dev/null", ">/dev/null", "2>/dev/null", "&>/dev/null")
# An address of a client, or a pattern of names.
_NO_FILE = re.compile(r"^\w+://|[*?]|\bnode_modules/|\bsite-packages/")


def write_active_task(state: TaskState, room: int = DEFAULT_TASK_CHARS) -> str:
    """Quote the open requests in the user's own words, newest last, or the last one where all were answered.

    Short requests are quoted whole before long ones share what is left of the room; what is left out has its address.
    """
    open_requests = state.open_requests
    if not open_requests and state.inherited is not None and state.inherited_open:
        return f"{write_inherited(state.inherited)}{_describe_pending_question(state)}{_progress(state)}"
    if not open_requests:
        closed = [r for r in state.requests if r.status == "answered"]
        if not closed:
            return f"None{_describe_pending_question(state)}"
        last = next((r for r in reversed(closed) if not is_command(r.own_words)), closed[-1])
        return f"{ALL_ANSWERED}\n{_quote_request(last, room, state)}{_describe_pending_question(state)}"
    number = min(len(open_requests), max(1, room // _LEAST_QUOTE_CHARS))
    earlier, newest = open_requests[: len(open_requests) - number], open_requests[-number:]
    share = max(_LEAST_QUOTE_CHARS, fair_share([len(r.own_words) for r in newest], room))
    quotes = "\n\n".join(_quote_request(r, share, state) for r in newest)
    return f"{OPEN}\n{_earlier(earlier)}{quotes}{_subject(state)}{_describe_pending_question(state)}{_progress(state)}"


def _earlier(requests: Sequence[UserRequest]) -> str:
    """Count the open requests that there is no room to quote, with their addresses."""
    if not requests:
        return ""
    kind = "request is" if len(requests) == 1 else "requests are"
    return f"[{len(requests)} earlier open {kind} in the record{address(*(r.seq for r in requests))}]\n"


def _describe_pending_question(state: TaskState) -> str:
    question = state.pending_question
    if question is None:
        return ""
    return f"\n\nThe assistant asked “{question.value}”{address(question.seq)}; the user has not answered."


def _quote_request(request: UserRequest, most_chars: int, state: TaskState) -> str:
    text = request.own_words.strip()
    is_in_view = request.seq in state.in_view
    if is_in_view:
        most_chars = min(most_chars, _IN_VIEW_CHARS)
    material = ""
    if has_material(request) and is_in_view and (text or len(state.requests) == 1):
        if len(state.requests) == 1 and not any(map(asks_something, sentences(text))):
            # Where a message is the only one, it is the request, whoever wrote it.
            text = whole_sentences(redact(request.text), _IN_VIEW_CHARS, asks=states_task)
        below = BELOW.format(f": m:{request.seq}" if request.seq >= 0 else "")
        most_chars -= len(below)
        return f"{quote(text, most_chars=most_chars, seq=request.seq)}\n> {below}{_describe_reference(request)}"
    if has_material(request):
        text = f"{text}\n{material_heading(request)}".strip()
        room = min(_MATERIAL_CHARS, max(_LEAST_QUOTE_CHARS, most_chars - len(text)))
        material = f"\n{quote_material(request, room)}".rstrip()
    return quote(text, most_chars=most_chars, seq=request.seq) + material + _describe_reference(request)


def states_task(sentence: str) -> bool:
    """Return whether a sentence states what a whole message asks for."""
    return _STATES_TASK.search(sentence) is not None


def _describe_reference(request: UserRequest) -> str:
    """Quote what a request refers to, and name what was changed for an earlier one; "" where there is neither."""
    return _quote_reference(request) + (
        f"\n(worked on before the next message: changed {join_names(_base_names(request.changed), _STEP_CHARS)})"
        if request.changed
        else ""
    )


def _base_names(paths: Sequence[str]) -> list[str]:
    return [path.rpartition("/")[2] for path in paths]


def _quote_reference(request: UserRequest) -> str:
    if request.about and request.answers not in request.about:
        return f"\n(to the assistant's question “{request.answers}”; of its list: “{request.about}”)"
    if request.about:
        return f"\n(takes up the assistant's words: “{request.about}”)"
    return f"\n(answers the assistant's question “{request.answers}”)" if request.answers else ""


def request_before(state: TaskState) -> UserRequest | None:
    """Return the request before the newest one where that has no subject of its own ("do it again")."""
    newest = state.open_requests[-1] if state.open_requests else None
    if newest is None or newest.about or newest.answers or has_material(newest) or has_subject(newest.own_words):
        return None
    before = (r for r in reversed(state.requests) if r.seq < newest.seq and r.status == "answered")
    return next((r for r in before if has_subject(r.own_words)), None)


def _subject(state: TaskState) -> str:
    before = request_before(state)
    if before is None:
        return ""
    return f"\n(after “{whole_sentences(before.own_words, _EARLIER_CHARS)}”{address(before.seq)})"


# -- how far it is ---------------------------------------------------------------------------------------------------
def task_files(state: TaskState) -> list[TouchedFile]:
    """Return the files that were changed since the newest open request, newest first; none where none is open."""
    since = state.task_seq
    if since is None:
        return []
    changed = (f for f in reversed(state.files) if f.status == "changed")
    return [f for f in changed if f.changed_seq is not None and f.changed_seq > since]


def listed_files(state: TaskState) -> list[TouchedFile]:
    """Return the files to name, newest first: those that were changed, and the few that were read last."""
    files = [f for f in reversed(state.files) if f.status != "read"]
    reads = (f for f in reversed(state.files) if f.status == "read" and not _NO_FILE.search(f.path))
    return [*files, *islice(reads, _MOST_READ)]


def files_root(state: TaskState) -> str:
    """Return the folder that most files of the work share."""
    return common_folder([f.path for f in listed_files(state)])


def next_step(state: TaskState) -> str:
    """Return the first open item of the plan for the open requests; "" without one."""
    since = state.open_requests[0].seq if state.open_requests else state.task_seq
    return next((i.text for i in state.open_plan if since is not None and i.seq > since), "")


def next_open_step(state: TaskState) -> str:
    """Return the first step that the log shows to be left; "" if the plan or the step under way names the next one.

    It is never a further test run: `_progress` lists tests that were not run after an edit under "Not checked".
    """
    if state.task_seq is None or next_step(state) or state.announced is not None:
        return ""
    step = next(iter(open_steps(state)), "")
    return "" if step and step == _check_again(state) else step


def open_steps(state: TaskState) -> list[str]:
    """Return what the log shows to be left: what still fails, tests that were not run, a commit or push asked for."""
    # Blocked lists a failure that the user reports; no call of it can be repeated.
    failures = [e for e in state.open_errors[-_MOST_FAILURES:] if e.target]
    steps = [f"make {_failed_call(e)} succeed{address(e.seq)}" for e in reversed(failures)]
    if state.task_seq is None:
        return steps
    # A run that fails is to be repeated anyway.
    is_failing = state.tests is not None and any(e.seq == state.tests.seq for e in state.open_errors)
    if not is_failing and any(_unrun_tests(state)):
        steps.append(_check_again(state))
    steps += [f"{what}, as the user asked{address(r.seq)}" for what, r in _asked_git(state)]
    return steps


def failing_beside(state: TaskState, error: TaskError, *, most: int = _FAILING_CHARS) -> str:
    """Name the other tests that fail in the run of an error: the first one alone would seem to be all."""
    if state.tests is None or state.tests.seq != error.seq:
        return ""
    names = unique(failure.partition(" — ")[0] for failure in state.tests.run.failures)
    names = [name for name in names if name not in error.text]
    return f"; failing as well: {join_names(names, min(most, _FAILING_CHARS))}" if names else ""


def _check_again(state: TaskState) -> str:
    return f"run {_name_of(state.tests)} again" if state.tests is not None else ""


def _name_of(tests: LastTestRun) -> str:
    """Name a test run; a build or another check by its command."""
    is_test = tests.is_suite or tests.run.passed is not None
    return "the tests" if is_test else f"`{short_command(without_output_filters(tests.target), _STEP_CHARS // 2)}`"


def _failed_call(error: TaskError) -> str:
    return f"`{short_command(without_output_filters(error.target), _STEP_CHARS // 2)}`"


def without_output_filters(command: str) -> str:
    """Return a command without what only cuts its output: `| head -50`, `2>&1`."""
    rest = command.rstrip()
    while True:
        before, pipe, last = rest.rpartition("|")
        redirection = next((r for r in _REDIRECTIONS if rest.endswith(f" {r}")), "")
        if redirection:
            rest = rest.removesuffix(redirection).rstrip()
        elif pipe and last.split()[:1] and last.split()[0] in _CUTTERS and not any(c in last for c in ";&`"):
            rest = before.rstrip()
        else:
            return rest or command


def _asked_git(state: TaskState) -> Iterator[tuple[str, UserRequest]]:
    """Yield "commit" and "push" with the newest open request for each that the log does not show as done."""
    for what, pattern in _GIT_REQUESTS.items():
        request = next((r for r in reversed(state.open_requests) if _asks_for(r, pattern)), None)
        if request is None:
            continue
        is_committed = any(c.seq > request.seq for c in state.commits)
        if not (is_committed if what == "commit" else state.is_pushed):
            yield what, request


def _asks_for(request: UserRequest, pattern: re.Pattern[str]) -> bool:
    return any(pattern.search(s) and not _NO_GIT_REQUEST.search(s) for s in sentences(request.own_words))


def _progress(state: TaskState) -> str:
    """List what was done since the newest request, what comes next, and what was not checked."""
    parts = (
        ("Done since then", _list_work_done(state)),
        ("Checked", _describe_check(state)),
        ("Not applied", _not_applied(state)),
        ("Under way", _under_way(state)),
        ("Not marked as done", _worked_on(state)),
        ("Next", _next(state)),
        ("Not checked", _unrun_tests(state)),
    )
    lines = [f"- {name}: {'; '.join(texts)}" for name, texts_of in parts if (texts := list(texts_of))]
    return "\n\n" + "\n".join(lines) if lines else ""


# Introduces the names of the files whose changes the user took back.
BY_USER = "taken back by the user with /undo files"


def _list_work_done(state: TaskState) -> Iterator[str]:
    since = BEFORE_LOG if state.task_seq is None else state.task_seq
    done = [i for i in state.plan if i.is_done and i.seq > since]
    if done:
        steps = "; ".join(clip(tidy(i.text), _STEP_CHARS // 2) for i in done[-_MOST_STEPS:])
        yield f"{len(done)} of {len(state.plan)} steps of the plan ({steps})"
    yield from (f"commit {c.commit.hash} {clip(c.commit.title, 80)}" for c in state.commits if c.seq > since)
    files = task_files(state)
    if files:
        root = files_root(state)
        names = [relative_to(f.path, root) for f in files]
        yield f"changed {join_names(names, _FILES_CHARS)}{_commit_status(state, files)}"
    if restored := [f for t in state.taken_back if t.seq > since for f in t.files]:
        yield f"{BY_USER}: {join_names([relative_to(f, files_root(state)) for f in restored], _FILES_CHARS)}"
    elif not files and (calls := state.calls_since):
        # Only looked so far, or called services.
        calls_text = ", ".join(f"{name} ×{n}" if n > 1 else name for name, n in calls[:_MOST_NAMES])
        yield f"no file changed; {calls_text}" if state.files else calls_text


def _commit_status(state: TaskState, files: Sequence[TouchedFile]) -> str:
    """Name the changed files that are not committed, in parentheses; "" if all are.

    Where the log shows no commit and no branch, the note says so if files were edited in place.
    """
    if not state.commits and state.branch is None:
        shown = state.commit_shown_since(max(f.changed_seq or 0 for f in files))
        unseen = f"no commit seen; the log then showed {clip(shown, 70)} as the newest" if shown else "no commit seen"
        return f" ({unseen})" if state.has_edits else ""
    last = state.commits[-1].seq if state.commits else None
    open_files = [f for f in files if last is None or (f.changed_seq or 0) > last]
    if len(open_files) == len(files):
        return " (not committed)"
    return f" (not committed: {', '.join(f.path.rpartition('/')[2] for f in open_files)})" if open_files else ""


def _describe_check(state: TaskState) -> Iterator[str]:
    """Yield the test run that passed after the last change: what is missing may be the answer alone."""
    tests, files = state.tests, task_files(state)
    if tests is None or not files or not tests.is_ok or tests.is_outdated or tests.changed_since:
        return
    if tests.seq < max(f.changed_seq or 0 for f in files) or any(_unrun_tests(state)):
        return
    is_all = state.open_requests and not (open_steps(state) or state.open_plan or state.announced or state.unknown_call)
    rest = "; no failure and no open step is known, only the answer was not given yet" if is_all else ""
    yield f"{_name_of(tests)} passed after the last change{address(tests.seq)}{rest}"


def _not_applied(state: TaskState) -> Iterator[str]:
    if (seq := state.broken_edit_seq) is not None:
        yield f"an edit in the last reply, whose SEARCH/REPLACE block is not closed by `>>>>>>> REPLACE`{address(seq)}"


def _under_way(state: TaskState) -> Iterator[str]:
    if state.announced is not None:
        yield f"“{state.announced.value}”{address(state.announced.seq)}"
    if (call := state.unknown_call) is not None:
        yield f"{clip(call.value, _STEP_CHARS)}, whose result is not known{address(call.seq)}"


def _worked_on(state: TaskState) -> Iterator[str]:
    """Yield the first open step of the plan where files were changed since the plan was, which may have done it."""
    if (step := next_step(state)) and (names := _changed_since_plan(state)):
        changed = join_names(names, _STEP_CHARS)
        yield f"“{clip(tidy(step), _STEP_CHARS)}”, but since the plan was updated {changed} changed"


def _changed_since_plan(state: TaskState) -> list[str]:
    return [path.rpartition("/")[2] for path in state.changed_since_plan]


def _next(state: TaskState) -> Iterator[str]:
    if (step := next_step(state)) and _changed_since_plan(state):
        return
    if step:
        yield f"“{clip(tidy(step), _STEP_CHARS)}”"
    elif step := next_open_step(state):
        yield step


def _unrun_tests(state: TaskState) -> Iterator[str]:
    tests, files = state.tests, task_files(state)
    if tests is None or not files:
        return
    what = _name_of(tests).removeprefix("the ")
    if tests.changed_since:
        yield f"{what} not run since {', '.join(tests.changed_since)} changed"
    elif tests.seq < (state.task_seq or 0) and not tests.is_outdated:
        yield f"{what} not run since then"
    if tests.is_suite and (unrun := unrun_tests(state)):
        yield f"no run has covered {join_names(unrun, _STEP_CHARS)} since changed"


def unrun_tests(state: TaskState) -> list[str]:
    """Name the changed files with tests that the last runs were limited not to cover."""
    known = set(state.tests.changed_since) if state.tests is not None else set()
    changed = {f.path for f in task_files(state)}
    names = (path.rpartition("/")[2] for path in state.unrun_tests if path in changed)
    return [name for name in names if name not in known]


# Before each line of material, so that a later handoff does not take it for the user's own words.
_MARK = "| "
_MATERIAL = MATERIAL.partition("{")[0]
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
    if carried and carried[0].startswith(_MATERIAL):
        return carried[0]
    return MATERIAL.format(f": m:{request.seq}" if request.seq >= 0 else "")


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
        head, tail = both_ends(text, room)
        left_out = _LEFT_OUT.format(max(len(text), len(request.text)) - len(head) - len(tail), "")
        text = f"{head.rstrip()}\n{left_out}\n{tail.lstrip()}"
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
