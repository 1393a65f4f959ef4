"""Merge a model's summary with the state of the task: the model writes prose, code writes what it can prove.

Active Task, Constraints & Preferences and Pending User Asks are code's alone: they are what an agent obeys, and a
summary may repeat what a web page demanded. Headings that are not ours stay under their own names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from perdure.context.handoff import SECTIONS
from perdure.context.handoff_sections import says_nothing, split_headings
from perdure.context.summary_check import (
    MARK,
    GroundingSources,
    PassageWords,
    is_in_plan,
    is_supported_jointly,
    quotes_in,
    without_missing_consent,
)
from perdure.context.task_state.decisions import find_abandoned, topic_words
from perdure.context.task_state.sections import SAME_AS_TASK, describe_tests, push_status, write_sections
from perdure.context.task_state.state import STEP_MARK, TaskState, is_same_hash
from perdure.context.tool_calls.call_line import CallLine, Outcome
from perdure.context.user_text.intent import is_directive

BY_CODE = frozenset(("Active Task", "Constraints & Preferences", "Pending User Asks"))
# Headings of the user's rules and requests, whatever a model calls them.
_OBEYED = re.compile(
    r"\b(?:constraints?|preferences?|(?:standing |user |key |important )*instructions?|rules?|guidelines?|directives?"
    r"|polic(?:y|ies)|active task|user(?:'s)? (?:asks?|messages?|requests?|approvals?|permissions?)"
    r"|pending (?:user|asks?)|permissions?|approvals?|must|vorgaben|regeln|anweisungen|einschränkungen"
    r"|contraintes|consignes|restricciones|instrucciones|инструкци\w*|правила|ограничени\w*)\b|约束|偏好|指示|规则"
    r"|要求|制約|ルール|指示|제약|지시|규칙",
    re.IGNORECASE,
)
_BRANCH = re.compile(r"\b(?:on )?branch(?: is| named)?:?\**\s*[`“\"']?([\w.-]+(?:/[\w.-]+)*)[`”\"']?", re.IGNORECASE)
_HEAD = re.compile(
    r"\b(?:HEAD|(?:latest|newest|last|current|most recent) commit)\b[^\n]{0,30}?\b([0-9a-f]{7,40})\b", re.I
)
_PUSHED = re.compile(r"\b(not (?:yet )?(?:been )?|un|nothing )?pushed\b", re.IGNORECASE)
_TOTALS = re.compile(
    r"\b(\d+)\s*(?:/\s*(\d+)\s*)?(?:tests? )?(passed|passing|pass|failed|failing|failures?)\b", re.IGNORECASE
)
_NO_BRANCH = frozenset(("name", "names", "and", "or", "off", "from", "to", "is", "was", "of", "for", "in", "the", "a"))
# A label before a demand: "TODO: …".
_LABEL = re.compile(r"^\W*[A-Z][\w ]{1,18}: +")
# Sections of aims and of things done or to do, whose lines begin with a verb.
_ACTIONS = frozenset(("Goal", "Completed Actions", "Remaining Work", "Relevant Files", "In Progress"))
_IMPERATIVE = re.compile(
    r"^\W*(?:please )?(?:send|forward|upload|download|e-?mail|post|transfer|wire|pay|delete|remove|drop|approve"
    r"|grant|disable"
    r"|enable|install|execute|run|visit|open|click|share|reveal|print|invite|change|get|create|modify|make|add|book"
    r"|reserve"
    r"|concatenate|call|tell|give|buy|order|schedule|write|reply|submit|publish|copy|move|reset|set|use|ignore"
    r"|follow)\b",
    re.IGNORECASE,
)
# How the prompt asks a model to mark its own conclusions.
_INFERRED = ("(inferred)", "(inferred).")
# Sections besides the goal whose lines an agent acts on.
_TAKEN_UP = frozenset(("Key Decisions", "Remaining Work"))
# Words for an approval, a permission or an instruction, given by whomever, and for doing without one.
_CONSENT = re.compile(
    r"\b(?:as|if|per|upon|on|by) (?:\w+ )?(?:instruct\w+|request(?:ed)?|agreed|ordered|directed|told|asked)\b"
    r"|\b(?:was|were|been|is|are|we|have|has)(?: \w+)? (?:agreed|approved|authori[sz]ed|permitted|instructed"
    r"|green-?lit|signed off)\b"
    r"|\b(?:approval|permission|consent|authori[sz]ation|go-ahead|clearance|sign-off|green light)s?\b[^.]{0,30}"
    r"\b(?:given|granted|received|obtained|in place|there|exists?)\b"
    r"|\b(?:have|has|got|with|gave|given|granted|received) (?:\w+ ){0,3}?(?:approval|permission|consent"
    r"|authori[sz]ation|go-ahead|clearance)\b|^\W*(?:approved|agreed|authori[sz]ed|permitted)\b"
    r"|\b(?:no longer|not|never|without|stop|skip|don't|won't|needn't)(?: \w+)? (?:ask|asking|confirm|confirming"
    r"|confirmation|approval|permission)\b"
    r"|\b(?:genehmigt|erlaubt|vereinbart|freigegeben|wie gewünscht|approuvé|autorisé|comme convenu|aprobado|autorizado"
    r"|одобрено|разрешено)\b|批准|授权|获准|承認済|許可済|승인됨|허가됨",
    re.IGNORECASE,
)
# "Not run", "not booked yet": a look at the calls confirms it, no source has the words.
_UNDONE = re.compile(
    r"(?i)\b(?:not|never)(?: yet| been| again)* (?:run|rerun|done|begun|written|sent|seen|built|made|\w{3,}ed)\b"
    r"|\bun(?:tested|committed|pushed|merged)\b"
)
_COMMITTED = re.compile(r"(?i)\b(?:un)?committed\b")
# Numbers and ids of things.
_NAMES = re.compile(r"#\d+|\b(?=\w*\d)[A-Z0-9]{5,}\b")
# Between a question and its answer.
_ANSWERED = re.compile(r"(?<=[?？])[\"”)*_]*(?=\s|$)| [—–→] | - ")
# Of the answered requests, the newest.
_MOST_COMPARED = 100
_LIST_MARK = " -*•\t0123456789.)"
_SAME_SHARE = 0.6
_EQUAL_SHARE = 0.75
_SUPPORTED_SHARE = 0.9
_MENTIONED_SHARE = 0.34
_GOAL_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class MergedSections:
    """The sections by name, and what code removed or corrected in the model's prose."""

    sections: dict[str, str]
    findings: tuple[str, ...] = ()
    # Lines that code added, which need no check.
    by_code: frozenset[str] = frozenset()


def merge_model_sections(
    summary: str,
    state: TaskState,
    *,
    budget_chars: int | None = None,
    rules_chars: int | None = None,
    authored: Iterable[str] | None = None,
    users: Iterable[str] | None = None,
    edits: Callable[[], Iterable[str]] | None = None,
    passages: PassageWords | None = None,
    policy: Iterable[str] = (),
    approvals: Sequence[str] = (),
) -> MergedSections:
    """Merge a model's summary with the state.

    Code fills the sections it leaves empty, corrects branch, hash, test totals and "pushed" where the state proves
    them, and alone writes what an agent obeys. `authored` are the texts that user and assistant wrote themselves: a
    directive without support by them comes from a tool result, a pasted text or nowhere, and is removed, and a step or
    a decision is marked. `users` are those of the user alone: a goal or an approval without support by them is removed.
    `edits` returns what the assistant wrote into files and commands, which may state a decision, too.
    `passages` are the words of texts, as far as they are cached. `policy` are the system prompts, which mention what a
    decision or a step follows. `approvals` are the plans that the user approved through a tool.
    """
    mine = write_sections(state, budget_chars=budget_chars, rules_chars=rules_chars)
    authored_texts = None if authored is None else list(authored)
    passages = {} if passages is None else passages
    check = _ProseCheck(
        state,
        GroundingSources(authored_texts or (), passages=passages),
        _mentioned_sources(None if authored_texts is None else [*authored_texts, *policy], state, passages),
        _user_sources(users, state, passages),
        edits,
        GroundingSources(approvals) if approvals else None,
    )
    sections = {name: text for name, text in mine.items() if name in BY_CODE}
    others: list[str] = []
    for title, name, body in split_headings(summary):
        if name in BY_CODE or (not name and _OBEYED.search(title)):
            if not says_nothing(body):
                check.findings.append(f"left out: the model's section “{title}”, which code writes")
            continue
        text = "" if says_nothing(body) else check.lines(name or title, body)
        if not text:
            continue
        if name:
            sections[name] = f"{sections[name]}\n{text}" if name in sections else text
        else:
            others.append(f"### {title}\n{text}" if title else text)
    _move_open_questions(sections, state)
    by_code: set[str] = set()
    for name in SECTIONS:
        if name not in BY_CODE and name in mine:
            prose = sections.get(name, "")
            sections[name] = _complete(name, prose, mine[name], state)
            by_code |= set(sections[name].split("\n")) - set(prose.split("\n"))
    if others:
        sections["Critical Context"] = "\n".join(filter(None, (sections.get("Critical Context", ""), *others)))
    return MergedSections(
        {n: sections[n] for n in SECTIONS if sections.get(n)}, tuple(check.findings), frozenset(by_code)
    )


def _move_open_questions(sections: dict[str, str], state: TaskState) -> None:
    """Move what a summary says about a request that is still open from the resolved questions to the work under way."""
    lines = sections.get("Resolved Questions", "").splitlines()
    open_words = [r.own_words for r in state.open_requests if r.own_words]
    closed_words = [r.own_words for r in state.requests[-_MOST_COMPARED:] if r.status == "answered"]
    moved = [line for line in lines if _is_closest_to(_find_question(line), open_words, closed_words)]
    if moved:
        sections["Resolved Questions"] = "\n".join(line for line in lines if line not in moved)
        sections["In Progress"] = "\n".join(filter(None, (sections.get("In Progress", ""), *moved)))


def _is_closest_to(question: str, open_words: Sequence[str], closed_words: Sequence[str]) -> bool:
    """Whether a question is about an open request, and no answered one is more like it: a long one has many words."""
    similar = [_similarity(question, words) for words in open_words if _is_same(question, words)]
    return bool(similar) and max(similar) > max((_similarity(question, words) for words in closed_words), default=0.0)


def _similarity(a: str, b: str) -> float:
    one, other = topic_words(a), topic_words(b)
    return len(one & other) / max(1, len(one | other))


def _find_question(line: str) -> str:
    """Return the question of a line that also has the answer."""
    return _ANSWERED.split(line, maxsplit=1)[0]


def _mentioned_sources(
    authored: Iterable[str] | None, state: TaskState, passages: PassageWords
) -> GroundingSources | None:
    """Return what user and assistant wrote, and the assistant's plan and commits."""
    if authored is None:
        return None
    texts = [*authored, *(i.text for i in state.plan), *(c.commit.title for c in state.commits)]
    return GroundingSources(texts, passages=passages)


def _user_sources(users: Iterable[str] | None, state: TaskState, passages: PassageWords) -> GroundingSources | None:
    """Return the user's own words; a "yes" has the words of the question that it answers."""
    if users is None:
        return None
    texts = [*users, *(f"{r.answers.rstrip('?')} {r.own_words}" for r in state.requests if r.answers)]
    return GroundingSources(texts, passages=passages)


def _complete(name: str, prose: str, mine: str, state: TaskState) -> str:
    """Add what code knows and the model's prose of a section lacks; code's text alone where there is no prose."""
    if not prose:
        return mine
    if name == "Active State":
        return f"{mine}\n{prose}"
    if name == "Goal":
        own = mine.partition("\n")[0]
        return prose if own in prose or own == SAME_AS_TASK else f"{own}\n{prose}"
    if name == "Completed Actions":
        made = [f"- COMMIT {c.commit.hash} {c.commit.title}" for c in state.commits if c.commit.hash[:7] not in prose]
        made += [f"- CREATED {c.value}" for c in state.created if c.value.partition(":")[0] not in prose]
        done = [line for line in mine.splitlines() if line.startswith(STEP_MARK)]
        return "\n".join((prose, *made, *done))
    if name == "Blocked":
        missing = [line for line in mine.splitlines() if not _is_covered(line, prose)]
        return "\n".join((prose, *missing))
    return prose


def _is_covered(line: str, prose: str) -> bool:
    words = topic_words(line)
    return bool(words) and len(words & topic_words(prose)) / len(words) >= _SAME_SHARE


@dataclass(slots=True)
class _ProseCheck:
    """Checks the model's lines against the state, and records what it removes."""

    state: TaskState
    authored: GroundingSources
    mentioned: GroundingSources | None
    users: GroundingSources | None
    edits: Callable[[], Iterable[str]] | None = None
    approvals: GroundingSources | None = None
    findings: list[str] = field(default_factory=list)
    _edited: GroundingSources | None = None

    def lines(self, section: str, body: str) -> str:
        valid = [line for line in body.splitlines() if self._is_valid(section, line)]
        if section == "Completed Actions":
            not_done = find_not_done(self.state.calls)
            valid = [self._correct_outcome(line, not_done) for line in valid]
        return "\n".join(self._mark_unmentioned(section, line) for line in valid).strip("\n")

    def _correct_outcome(self, line: str, not_done: Mapping[str, Outcome]) -> str:
        corrected = correct_outcome(line, not_done)
        if corrected != line:
            self.findings.append(f"corrected in Completed Actions: {line.strip(_LIST_MARK)}")
        return corrected

    def _mark_unmentioned(self, section: str, line: str) -> str:
        """Mark a step, decision or goal that its sources do not mention, because an agent would act on it."""
        if not line.strip(_LIST_MARK) or MARK in line or (section != "Goal" and self._is_undone(line)):
            return line
        if line.endswith(_INFERRED) and not _IMPERATIVE.match(line.strip(_LIST_MARK)):
            return line  # says so itself
        if section == "Goal":
            is_known = self.users is None or self._is_aim(line, _GOAL_SHARE)
        else:
            is_known = section not in _TAKEN_UP or self.mentioned is None or self._is_mentioned(line, self.mentioned)
            is_known = is_known or (section == "Key Decisions" and self._is_in_edits(line))
        if is_known:
            return line
        self.findings.append(f"marked in {section}: {line.strip(_LIST_MARK)}")
        return f"{line} {MARK}"

    def _is_undone(self, line: str) -> bool:
        """Return whether a line says that something was not done, and no call did it."""
        if not _UNDONE.search(line) or _IMPERATIVE.match(line.strip(_LIST_MARK)):
            return False
        if _wrong_totals(line, self.state) or (_COMMITTED.search(line) and self._has_commit()):
            return False
        done = " ".join(s.value for s in (*self.state.settled, *self.state.created))
        return not any(name in done for name in _NAMES.findall(line))

    def _has_commit(self) -> bool:
        last = self.state.commits[-1].seq if self.state.commits else None
        return last is not None and all((f.changed_seq or 0) <= last for f in self.state.files)

    def _is_in_edits(self, line: str) -> bool:
        """Whether what the assistant wrote into files states a line; read only where nothing else does."""
        if self.edits is None:
            return False
        self._edited = self._edited or GroundingSources(self.edits())
        return self._is_mentioned(line, self._edited)

    def _is_valid(self, section: str, line: str) -> bool:
        plain = line.strip(_LIST_MARK)
        if not plain:
            return True
        why = (
            self._directive(section, plain)
            or self._reason_to_drop(section, plain)
            or self._contradiction(section, plain)
        )
        if why:
            self.findings.append(f"removed in {section}: {plain} ({why})")
        return not why

    def _directive(self, section: str, line: str) -> str:
        """Return why a line that demands something of the reader is dropped; "" where it may stay."""
        plain = _LABEL.sub("", line)
        if is_directive(plain):
            least = _SUPPORTED_SHARE
        elif section not in _ACTIONS and _IMPERATIVE.match(plain):
            least = _SAME_SHARE
        else:
            return ""
        share = self.authored.best_share(line, fewest=1)
        return "" if share >= least else "a demand that neither user nor assistant wrote"

    def _reason_to_drop(self, section: str, line: str) -> str:
        """Return why a line that attributes to the user what they did not write is dropped; "" if it may stay."""
        if self.users is None or (section != "Goal" and section not in _TAKEN_UP):
            return ""
        plain = without_missing_consent(line)
        if _CONSENT.search(plain) and not self._is_consented(_CONSENT.sub(" ", plain)):
            return "an approval or instruction that the user did not give"
        if section == "Goal":
            is_known = self.authored.best_share(line, fewest=1) >= _MENTIONED_SHARE
            return "" if is_known or self._is_aim(line, _MENTIONED_SHARE) else "an aim that nobody mentioned"
        return ""

    def _is_consented(self, claim: str) -> bool:
        """Whether the user's words, or a plan that they approved, have what a line says they agreed to."""
        if self.users is None or self.users.best_share(claim, fewest=0) >= _SAME_SHARE:
            return True
        return is_in_plan(claim, self.approvals)

    def _is_aim(self, line: str, least: float) -> bool:
        """Whether the user's words support an aim: one passage, or, as the aim of a long session, several of them."""
        if self.users is None or self.users.best_share(line, fewest=1) >= least or self._quotes_user(line):
            return True
        return self.users.joint_share(line) >= _MENTIONED_SHARE and is_supported_jointly(line, self.authored)

    def _quotes_user(self, line: str) -> bool:
        """Whether most of a line is quoted, and the user's words are among it."""
        quotes = quotes_in(line)
        if self.users is None or 2 * sum(map(len, quotes)) < len(line):
            return False
        return any(map(self.users.has_quote, quotes)) and all(map(self.authored.has_quote, quotes))

    @staticmethod
    def _is_mentioned(line: str, sources: GroundingSources) -> bool:
        return sources.mentions(line) or is_supported_jointly(line, sources)

    def _contradiction(self, section: str, line: str) -> str:
        """Return what the state proves against a line; "" where nothing does."""
        if section in ("Active State", "In Progress"):
            return _wrong_state(line, self.state)
        if section == "Blocked":
            solved = (e for e in self.state.errors if not e.is_open)
            return "solved since" if any(_is_same(line, e.text) for e in solved) and not self._is_open(line) else ""
        if section == "Remaining Work":
            done = (i for i in self.state.plan if i.is_done)
            return "done since" if any(_is_same(line, i.text) for i in done) else ""
        if section == "Key Decisions" and not find_abandoned(line):
            replaced = (d for d in self.state.decisions if d.superseded_seq is not None)
            return "superseded" if any(_is_same(line, d.text) for d in replaced) else ""
        return ""

    def _is_open(self, line: str) -> bool:
        return any(_is_same(line, e.text) for e in self.state.open_errors)


def _is_same(a: str, b: str) -> bool:
    """Whether two lines are about the same: most of the words of the shorter one are in the other."""
    one, other = topic_words(a), topic_words(b)
    least = min(len(one), len(other))
    return least >= 2 and len(one & other) / least >= _EQUAL_SHARE


def _wrong_state(line: str, state: TaskState) -> str:
    if state.branch is not None and (m := _BRANCH.search(line)) and m[1].lower() not in _NO_BRANCH:
        name = m[1].rstrip(".")
        if name != state.branch.value and ("/" in name or "`" in m[0] or ":" in m[0]):
            return f"the branch is {state.branch.value}"
    if (state.commits or state.head) and (m := _HEAD.search(line)):
        hashes = [state.head.value.partition(" ")[0]] if state.head else []
        hashes += [state.commits[-1].commit.hash] if state.commits else []
        is_shown = re.fullmatch(r"[0-9a-f]{7,40}", hashes[0]) is not None
        if is_shown and not any(is_same_hash(m[1], k) for k in hashes):
            return f"the newest commit is {hashes[0]}"
    if state.commits and (m := _PUSHED.search(line)):
        is_claimed = m[1] is None
        if is_claimed != (push_status(state) == "pushed"):
            return f"the newest commit is {push_status(state)}"
    return _wrong_totals(line, state)


def _wrong_totals(line: str, state: TaskState) -> str:
    if state.tests is None:
        return ""
    totals: Mapping[str, int | None] = {"p": state.tests.run.passed, "f": state.tests.run.failed}
    for m in _TOTALS.finditer(line):
        actual = totals[m[3][0].lower()]
        if actual is not None and actual != int(m[1]):
            return f"the last run: {describe_tests(state.tests)}"
    return ""


# -- outcomes of calls: the log has that of each, whatever a summary has ---------------------------------------------
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
