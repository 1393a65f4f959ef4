"""Read the typed state of a task from the log: a fold over its messages and the lines of its calls."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from perdure.context.patterns import PatternMatcher
from perdure.context.summary_check import MARK
from perdure.context.task_state.active_task import carried_words, parse_active_task, read_report
from perdure.context.task_state.answers import AnswerLog
from perdure.context.task_state.decisions import (
    DecisionLog,
    UserReading,
    announcement_of,
    content_words,
    decisions_of,
    plan_of,
    revisions_of,
    topic_words,
    user_reading,
)
from perdure.context.task_state.edit_log import EditLog
from perdure.context.task_state.inherited import carry_inherited, is_foreign_summary, issue_title, read_inherited
from perdure.context.task_state.instructions import clip_refused_call, parse_instructions
from perdure.context.task_state.proposals import asks_for_data, asks_openly, find_referent, is_bare_answer, proposal_of
from perdure.context.task_state.replies import newest_finding, reply_reading
from perdure.context.task_state.requests import RequestLog
from perdure.context.task_state.state import (
    BEFORE_LOG,
    InheritedTask,
    PlanItem,
    SourcedValue,
    StandingInstruction,
    TaskState,
    UserRequest,
)
from perdure.context.task_state.work import LOOKS, WorkLog
from perdure.context.text import first_words, sentences, tidy
from perdure.context.tool_calls.call_line import CallKind, CallLine
from perdure.context.user_text.instruction_scope import is_for_one_task, is_lasting
from perdure.context.user_text.intent import before_fiction, is_directive, read_sentences, rules_among
from perdure.core.messages import Entry, Message, ToolCall, files_taken_back
from perdure.redaction import redact

# The line of each call, by the position of the message that made it and the id of the call.
CallLines = Mapping[tuple[int, str], CallLine]

# What a client writes in the user's place when work in the background ends.
_ENDED = re.compile(
    r"<status>(?:completed|failed|killed|stopped)</status>\s*<summary>[^\"<]{0,40}\"([^\"<]{1,200})\"", re.IGNORECASE
)
_ENDED_ID = re.compile(r"<task-id>([\w-]{1,60})</task-id>\s*<status>(?:completed|failed|killed|stopped)</status>")
_NOTIFICATION = "<task-notification>"
# The command of a client that undoes the edits in the last reply.
_UNDO = "/undo"
_COMMAND_LINE = re.compile(r"\A/[\w:-]{1,40}[ \t]*\n+(?=\S)")
_MOST_RESULTS = 64
_MOST_CHANGES = 300
# An announcement is old news after more steps without a word.
_MOST_SILENT_STEPS = 1
# An announced look is over once something was read; another step, once something else was done.
_ANNOUNCES_LOOK = re.compile(
    r"(?i)\b(?:check|look|read|see|find|search|explor|examin|verif|inspect|understand|review|view|list|trac|investigat"
    r"|analy[sz]|study|studi|gather|fetch|confirm|compar|test|run)\w*"
)
# Calls that prepare a step which is no look itself.
_PREPARES: frozenset[CallKind] = LOOKS | frozenset(("task",))
# "why?" at a question for approval gives no reason.
_BARE_QUESTION = re.compile(
    r"(?i)(?:but |and |wait,? )?(?:why(?: not)?|what(?: for)?|how(?: come)?|huh|hm+|warum|wieso|weshalb|wozu|pourquoi"
    r"|por qué|perché|por quê|почему|зачем|为什么|なぜ|왜)[\s?!.？！。]*"
)
# A refusal of these may be about what was written: the next edit of the same file says nothing about it.
# Refused for what they would have written; or harmless, so that the call refused was another one on the same file.
_LIFTS_NOTHING = LOOKS | {"edit", "write"}
_NOT_DONE = frozenset(("failed", "refused", "interrupted"))
_EXPECTS_FAILURE = re.compile(
    r"(?i)\b(?:(?:should|must|will|has to|have to|to|expect\w*(?: \w+)? to|can) (?:now |first |still )?(?:fail|be red)"
    r"|fails? (?:first|as expected|before)|(?:is|are|stays?|it|first|now|be) red|red first|TDD|test[- ]first"
    r"|reproduc\w+|without the (?:fix|change))\b"
)
_MOST_DEFERRED = 3
_DEFERS = PatternMatcher(
    marks=(
        "later", " pr", "-pr", "issue", "ticket", "release", "commit", "change", "follow", "separate", "out of scope",
        "später machen",
    ),
    pattern=re.compile(
        r"\b(?:leave|skip|defer|postpone|do|handle|fix|address|tackle|park|save|move)\b[^.!?]{0,60}\b"
        r"(?:(?:for|until|till) later|(?:in|for|to|into) (?:a|an|another|the next|its own|a separate)[ -]"
        r"(?:follow-?up|separate|later|next|other)?"
        r" ?(?:PR|issue|ticket|release|commit|change|follow-?up)|as a follow-?up|separately)\b|\bout of scope\b"
        r"|später machen",
        re.IGNORECASE,
    ),
    cjk=re.compile("나중에|다음에 (?:하|처리)|以后再|之后再|後でや"),
)  # fmt: skip
# Steps that the assistant names as its own or as what is left, unlike those of a recipe or a story.
_OWN_STEP = re.compile(
    r"(?i)\b(?:I(?:'ll|'d| will| would| can| still| (?:need|have|want|plan) to)|let me|remain(?:s|ing)?|left to do"
    r"|to-? ?do|next steps?)\b|^\W*still\b|\[ \]|[^\x00-\x7f]{4}"
)
# The user postpones the assistant's question: "quick question first".
_PUTS_OFF = PatternMatcher(
    marks=("first", "before ", "hold on", "one moment", "not so fast", "erst noch eine", "vorher noch"),
    pattern=re.compile(
        r"\b(?:question|thing|detail)s? first\b|\bfirst (?:a|one|another) (?:\w+ )?(?:question|thing)\b"
        r"|\bbefore (?:that|(?:I|we) (?:decide|answer)|deciding|answering)\b|^\W*(?:hold on|one moment|not so fast)\b"
        r"|\berst noch eine\b|\bvorher noch\b",
        re.IGNORECASE,
    ),
    cjk=re.compile("先问|その前に|그 ?전에"),
)
_FEWEST_COMMON = 2
_QUESTION_CHARS = 220
_SLIGHT_CHARS = 8
# An item of a plan belongs to a request that has this share of its words.
_SAME_ITEM_SHARE = 0.5
# Words between marks of code, which the assistant may have formatted otherwise; and the messages that are compared.
_WORD_RUN = re.compile(r"[^\W\d_]+(?:[ ,-]+[^\W\d_]+)*")
_LEAST_RUN = 8
_LEAST_QUOTED = 48
_MOST_BEFORE = 200


def read_state(
    entries: Sequence[Entry],
    lines: CallLines,
    *,
    previous: Mapping[str, str] | None = None,
    in_view: frozenset[int] = frozenset(),
) -> TaskState:
    """Read the state at the end of `entries`.

    `previous` are the sections of an earlier handoff of ours whose messages cannot be read any more; `in_view` are the
    positions of the messages that stay in view.
    """
    fold = _StateFold()
    fold.carry(previous or {})
    for at, entry in enumerate(entries):
        role = entry.message.role
        if role == "assistant":
            fold.add_assistant(entries, at, lines)
        elif role == "user":  # a result is read with its call
            fold.add_from_user(entries, at)
    return replace(fold.state(), in_view=in_view)


def _is_quoted(sentence: str, before: Sequence[Entry]) -> bool:
    """Return whether a sentence consists of the assistant's words, which the user sent back."""
    runs = [run for run in _WORD_RUN.findall(sentence) if len(run) >= _LEAST_RUN]
    if sum(map(len, runs)) < _LEAST_QUOTED:
        return False
    texts = (e.message.text for e in before if e.message.kind == "assistant")
    return any(all(run in text for run in runs) for text in texts)


def _result_seq(entries: Sequence[Entry], at: int, call: ToolCall) -> int:
    """Return the position of the result of a call, which quotes it; that of the call where it has none."""
    for entry in entries[at + 1 : at + 1 + _MOST_RESULTS]:
        if entry.message.role != "tool":
            break
        if entry.message.tool_call_id in call.ids:
            return entry.seq
    return entries[at].seq


@dataclass(slots=True)
class _StateFold:
    """The state so far, updated by one message at a time."""

    requests: RequestLog = field(default_factory=RequestLog)
    decisions: DecisionLog = field(default_factory=DecisionLog)
    work: WorkLog = field(default_factory=WorkLog)
    edits: EditLog = field(default_factory=EditLog)
    calls: list[CallLine] = field(default_factory=list)
    goal: SourcedValue | None = None
    issue: SourcedValue | None = None
    inherited: InheritedTask | None = None
    # What the user left for later.
    deferred: list[SourcedValue] = field(default_factory=list)
    instructions: dict[str, StandingInstruction] = field(default_factory=dict)
    # The newest statements that may take one of them back.
    changes: deque[StandingInstruction] = field(default_factory=lambda: deque(maxlen=_MOST_CHANGES))
    # Replies with edits that the user did not undo.
    replies_with_edits: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    # The newest messages of the assistant with text: since the last reply, for the plan; and the last one.
    texts: list[Entry] = field(default_factory=list)
    # The assistant's question that the user postponed and did not come back to.
    put_off: SourcedValue | None = None
    # The reply that the user has not answered yet.
    last_reply: Entry | None = None
    # Messages with calls since the last one with words.
    _silent_steps: int = 0
    # Kinds of the calls that succeeded since the last message with words.
    _done_kinds: set[CallKind] = field(default_factory=set)
    # Position of the newest message with a call that did not succeed.
    _failed_seq: int = BEFORE_LOG
    _greeting_seq: int = BEFORE_LOG - 1
    _has_calls: bool = False
    # Whether the user ever refused a call: in most histories no approved one has to be compared.
    _has_refusals: bool = False
    answers: AnswerLog = field(init=False)

    def __post_init__(self) -> None:
        self.answers = AnswerLog(self.work, self.edits)

    def carry(self, previous: Mapping[str, str]) -> None:
        """Start from the requests and instructions that an earlier handoff quotes."""
        quoted = parse_active_task(previous.get("Active Task", ""))
        self.requests.carry(UserRequest(t, BEFORE_LOG, own_words=carried_words(t)) for t in quoted.open)
        self.requests.carry(UserRequest(t, BEFORE_LOG, "answered", own_words=carried_words(t)) for t in quoted.closed)
        for text in quoted.open:
            for rule in rules_among(read_sentences(carried_words(text))):
                if not is_for_one_task(rule):
                    self._instruct(StandingInstruction(rule, BEFORE_LOG, is_carried=True))
        for instruction in parse_instructions(previous.get("Constraints & Preferences", "")):
            self._instruct(instruction)
        self.work.steps.carry(previous.get("Completed Actions", ""))
        lines = previous.get("Goal", "").splitlines()
        goal = "\n".join(line for line in lines if MARK not in line).strip()
        self.inherited = carry_inherited(previous.get("Active Task", ""), goal)
        if goal:
            self.goal = SourcedValue(goal, BEFORE_LOG)

    def add_from_user(self, entries: Sequence[Entry], at: int) -> None:
        entry = entries[at]
        message = entry.message
        if not self.requests.requests and is_foreign_summary(message.text):
            self.inherited = read_inherited(message, entry.seq)
        if (restored := files_taken_back(message)) is not None:
            self.work.take_back(entry.seq, restored)
        if not message.is_real_user:
            return
        if message.text.startswith(_NOTIFICATION):
            self.work.end_process(*(m[1] for p in (_ENDED_ID, _ENDED) if (m := p.search(message.text[:1_000]))))
        reading = user_reading(entry)
        if self.issue is None and not self.requests.requests and (title := issue_title(message.text)):
            self.issue = SourcedValue(title, entry.seq)
        self._add_user(entry.seq, reading, entries[max(0, at - _MOST_BEFORE) : at] if reading.rules else ())
        revisions = revisions_of(entry) if self.instructions else ()
        self.changes.extend(
            StandingInstruction(s, entry.seq, "change") for s in revisions if s not in self.instructions
        )
        if reading.text != reading.own_words and (report := entry.memo("report", _read_report)) is not None:
            self.work.add_report(entry.seq, report)

    def add_assistant(self, entries: Sequence[Entry], at: int, lines: CallLines) -> None:
        entry = entries[at]
        message = entry.message
        if message.kind != "assistant":
            return
        seq, calls, has_text = entry.seq, message.tool_calls, not message.is_blank
        if has_text and (decisions := decisions_of(entry)):
            self.decisions.add_assistant(seq, decisions)
        if not calls and message.cut_off is None:
            self._add_reply(entry)
        elif has_text:
            self.texts.append(entry)
        if calls:
            self._has_calls = True
            self._silent_steps = 0 if has_text else self._silent_steps + 1
            self._done_kinds = set() if has_text else self._done_kinds
            self.requests.add_work()
        for call in calls:
            line = lines.get((seq, call.id))
            self.work.steps_taken += line is None or line.kind not in LOOKS
            if line is None:
                continue
            self.edits.add(seq, line, call)
            if line.outcome == "ok":
                self._done_kinds.add(line.kind)
                if line.facts.tests is None:  # as of almost every call
                    self._add_call(seq, line, expects_failure=False)
                    continue
            elif line.outcome in _NOT_DONE:
                self._failed_seq = seq
            expects_failure = has_text and _EXPECTS_FAILURE.search(message.text) is not None
            self._add_call(_result_seq(entries, at, call), line, expects_failure=expects_failure)

    def _add_user(self, seq: int, reading: UserReading, before: Sequence[Entry]) -> None:
        if not reading.text or (reading.text.endswith(_UNDO) and self._undo_reply(seq)):
            return
        about = self._find_referent(reading)
        question = proposal_of(self.last_reply).question if about and self.last_reply is not None else ""
        if reading.corrections or reading.takes_back:
            self.answers.dispute(self.last_reply)
        self._note_put_off(reading, about)
        reply, self.last_reply = self.last_reply, None
        self.answers.begin_turn()
        self.requests.add_user(seq, reading, about=about, question=question)
        while reply is not None and self.requests.discussed:
            self.answers.add_discussed(self.requests.discussed.pop(), reply)
        self._drop_cancelled(seq)
        request = self.requests.requests[-1] if self.requests.requests else None
        if request is not None and request.seq == seq:
            self.work.calls.clear()
        is_wanted = self.goal is None or self.goal.seq == self._greeting_seq
        # A greeting or a command of the client is no goal.
        if is_wanted and request is not None and request.seq == seq and request.own_words:
            words = _COMMAND_LINE.sub("", request.own_words)
            self.goal = SourcedValue(before_fiction(words) or sentences(words)[0], seq)
            self._greeting_seq = seq if _is_slight(words) else BEFORE_LOG - 1
        choices = (tidy(reading.own_words),) if about else reading.choices
        if asks_for_data(about) or (is_bare_answer(reading.own_words) and asks_openly(about)):
            choices = ()
        if _DEFERS.is_in(reading.own_words):
            deferrals = filter(_is_deferral, sentences(reading.own_words))
            self.deferred += (SourcedValue(redact(tidy(s)), seq) for s in deferrals)
        self.decisions.add_user(seq, choices, takes_back=reading.takes_back, about=about)
        for rule in reading.rules:
            if not _is_quoted(rule, before):
                self._instruct(StandingInstruction(rule, seq))
        for text in reading.corrections:
            self._instruct(StandingInstruction(text, seq, "correction"))

    def _undo_reply(self, seq: int) -> bool:
        """Take back the edits of the newest reply that has any, with what was decided and laid down for them."""
        if not self.replies_with_edits:
            return False
        reply_seq, paths = self.replies_with_edits.pop()
        for path in paths:
            self.work.undo(path, (reply_seq,))
        self.answers.undo(reply_seq)
        request_seqs = self.requests.undo_reply(reply_seq, seq)
        self.decisions.undo((reply_seq, *request_seqs), by_seq=seq)
        for text, instruction in list(self.instructions.items()):
            if instruction.seq in request_seqs and not is_lasting(text):
                del self.instructions[text]
        return True

    def _note_put_off(self, reading: UserReading, about: str) -> None:
        """Keep the questions of the last reply that a message puts off, until one is about them."""
        reply = self.last_reply
        question = self.requests.question
        if reply is not None and question and not about and _PUTS_OFF.is_in(reading.own_words):
            asked = [s for s in sentences(redact(reply.message.typed_text)) if s.endswith(("?", "？"))]
            words = " … ".join(tidy(s.strip(" *_-")) for s in asked)
            self.put_off = SourcedValue(first_words(words, _QUESTION_CHARS), reply.seq) if words else self.put_off
        elif self.put_off is not None:
            topic = topic_words(self.put_off.value)
            # The user takes it up in their own words, or answers the assistant, who asked again.
            common = max(len(topic & topic_words(words)) for words in (reading.own_words, question))
            if about or reading.is_bare or common >= min(_FEWEST_COMMON, (len(topic) + 1) // 2):
                self.put_off = None

    def _find_referent(self, reading: UserReading) -> str:
        """Return the part of the reply right before it that a short answer refers to."""
        reply = self.last_reply
        return find_referent(reading.own_words, proposal_of(reply)) if reply is not None and reading.may_answer else ""

    def _drop_cancelled(self, seq: int) -> None:
        """Remove from plan and goal what the message at `seq` cancels."""
        if self.requests.cancelled_seq != seq:  # as almost always: the requests are many
            return
        cancelled = [r for r in self.requests.requests if r.status == "cancelled" and r.closed_seq == seq]
        if not cancelled:
            return
        words = [content_words(r.own_words) for r in cancelled]
        for name, item in list(self.work.plan.items()):
            item_words = content_words(item.text)
            if not self.requests.open or any(len(item_words & w) >= _SAME_ITEM_SHARE * len(item_words) for w in words):
                del self.work.plan[name]
        self.texts = [e for e in self.texts if not plan_of(e)]
        if self.goal is not None and any(r.seq == self.goal.seq for r in cancelled):
            self.goal = None

    def _instruct(self, instruction: StandingInstruction) -> None:
        earlier = self.instructions.get(instruction.text)
        if instruction.kind == "refusal" and earlier is not None and earlier.kind != "refusal":
            return  # what the user wrote themselves stays what it is
        self._has_refusals = self._has_refusals or instruction.kind == "refusal"
        # A repeated instruction moves to its last position.
        self.instructions.pop(instruction.text, None)
        self.instructions[instruction.text] = instruction

    def _add_reply(self, entry: Entry) -> None:
        reply = reply_reading(entry)
        if not reply.text:
            return
        # A final reply without a plan ends the one before.
        self.texts = [entry]
        self.last_reply = entry
        if reply.edited_paths:
            self.replies_with_edits.append((entry.seq, reply.edited_paths))
            self.work.edit_in_reply(entry.seq, reply.edited_paths)
        waiting = self.requests.open
        self.requests.add_reply(entry.seq, reply)
        still_open = self.requests.open
        closed = [] if len(still_open) == len(waiting) else waiting
        if closed:
            # One reply to several requests answers the newest; the others were steps on the way.
            self.answers.add(max(closed, key=lambda r: r.seq), entry)
            if self.work.plan and not still_open and not reply.has_more_to_do:
                self.work.plan.clear()
        self.work.end_turn(entry.seq, may_be_open=not closed or (self.work.has_failed and reply.has_failed))

    def _add_call(self, seq: int, line: CallLine, *, expects_failure: bool) -> None:
        self.calls.append(line)
        if line.user_words or line.outcome == "refused":
            reason = redact(line.user_words.strip())
            if reason and not _BARE_QUESTION.fullmatch(reason):
                self._instruct(StandingInstruction(reason, seq, "refusal", about=line.target or line.name))
            return
        if self._has_refusals and line.outcome == "ok" and line.target and line.kind not in _LIFTS_NOTHING:
            self._lift_refusals(line.target)
        self.work.add(seq, line, expects_failure=expects_failure)

    def _lift_refusals(self, target: str) -> None:
        """Drop the refusals of a call that was approved and run since: what was said then binds nobody any more."""
        # A handoff has the beginning of a long target alone, which others share.
        whole = tidy(target)
        about = (target, whole) if clip_refused_call(target) == whole else (target,)
        lifted = [text for text, i in self.instructions.items() if i.kind == "refusal" and i.about in about]
        for text in lifted:
            del self.instructions[text]

    def _list_instructions(self) -> list[StandingInstruction]:
        """Return the instructions in order, and between them what may change those before it."""
        listed = list(self.instructions.values())
        if not self.changes:
            return listed
        # Those of an earlier handoff come first: messages of plain dicts have positions before theirs.
        return sorted((*listed, *self.changes), key=lambda i: (not i.is_carried, i.seq))

    def state(self) -> TaskState:
        work = self.work
        for path, seq in self.edits.list_undone():
            work.undo(path, (seq,))
        question = self.requests.question
        return TaskState(
            requests=self._list_requests(),
            stops=tuple(self.requests.stops),
            goal=self.goal,
            issue=self.issue,
            inherited=self.inherited,
            instructions=tuple(self._list_instructions()),
            decisions=self.decisions.decisions,
            questions=tuple(self.answers.list_questions()),
            outcomes=tuple(self.answers.list_outcomes()),
            worked_on=self.answers.worked_on,
            files=tuple(work.files.values()),
            taken_back=tuple(work.taken_back),
            commits=tuple(work.commits),
            head=work.head,
            shown_head=work.shown_head,
            created=tuple(work.created.values()),
            settled=tuple(work.settled.values()),
            deferred=tuple(self.deferred[-_MOST_DEFERRED:]),
            folder=work.folder or work.temporary_folder,
            branch=work.branch,
            is_pushed=work.is_pushed,
            tests=work.tests,
            processes=tuple(work.processes.values()),
            errors=tuple(work.errors),
            plan=tuple(work.plan.values()) if work.plan else self._list_planned_steps(),
            steps=work.steps.groups(),
            pending_question=SourcedValue(question, self.requests.question_seq) if question else None,
            put_off=self.put_off,
            calls_since=tuple(work.calls.most_common()),
            announced=self._find_announced_step(),
            finding=newest_finding(self.texts),
            broken_edit_seq=self.requests.broken_edit_seq,
            unknown_call=work.unknown_call,
            unrun_tests=tuple(work.unrun_tests),
            changed_since_plan=tuple(work.changed_since_plan) if work.plan else (),
            has_edits=work.has_edits,
            calls=tuple(self.calls),
        )

    def _list_requests(self) -> tuple[UserRequest, ...]:
        """Return the requests; one that a later message interrupted with what was changed for it."""
        requests = list(self.requests.requests)
        for at in self.requests.open_indexes[:-1]:
            changed = self.work.files_changed(requests[at].seq, requests[at + 1].seq)
            requests[at] = replace(requests[at], changed=changed)
        return tuple(requests)

    def _find_announced_step(self) -> SourcedValue | None:
        """Return the step that the assistant announced, unless its call succeeded or failed, or the work went on."""
        last = self.texts[-1] if self.texts else None
        if last is None or not last.message.tool_calls or self._silent_steps > _MOST_SILENT_STEPS:
            return None
        if last.seq == self._failed_seq:
            return None
        words = announcement_of(last)
        is_look = not words.isascii() or _ANNOUNCES_LOOK.search(words) is not None
        if self._done_kinds - (_PREPARES if not is_look else frozenset()):
            return None
        return SourcedValue(words, last.seq) if words and not is_directive(words) else None

    def _list_planned_steps(self) -> tuple[PlanItem, ...]:
        """Return the steps of the newest message with a plan, if no final reply or other request came after it."""
        entry = next((e for e in reversed(self.texts) if plan_of(e)), None)
        newest = self.requests.open[-1] if self.requests.open else None
        if entry is not None and newest is not None and newest.seq > entry.seq and not newest.answers:
            return ()
        if entry is None:
            return ()
        # Where nothing was called, "Then …" is mostly a step of a recipe or a story.
        is_talk = not self._has_calls
        steps = (p for p in plan_of(entry) if not is_talk or _OWN_STEP.search(p))
        return tuple(PlanItem(p, is_done=False, seq=entry.seq) for p in dict.fromkeys(steps))


def _is_deferral(sentence: str) -> bool:
    is_short = len(sentence) <= _QUESTION_CHARS and not sentence.endswith(("?", "？"))
    return is_short and _DEFERS.is_in(sentence)


def _read_report(message: Message) -> CallLine | None:
    """Return the failed test run in a message of the user, as if a call had returned it."""
    finding = read_report(message.text)
    if finding is None:
        return None
    return CallLine("test", "", "", "failed", finding.headline, finding.headline, finding.worth, facts=finding.facts)


def _is_slight(words: str) -> bool:
    """Whether a message is too slight for a goal: a greeting, a command of the client."""
    least = _SLIGHT_CHARS if words.isascii() else _SLIGHT_CHARS // 2
    return len(words) < least or words.startswith("/")
