"""The requests that were answered, and what came of each: an answer, or changes with their files.

What was undone since, or done again for the same request, is no outcome.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from perdure.context.task_state.decisions import topic_words
from perdure.context.task_state.edit_log import EditLog
from perdure.context.task_state.proposals import is_bare_answer
from perdure.context.task_state.replies import answer_of, changes_of
from perdure.context.task_state.state import AnsweredQuestion, UserRequest
from perdure.context.task_state.work import WorkLog
from perdure.context.text import clip, first_words, sentences
from perdure.context.user_text.intent import before_fiction, is_directive, without_commands
from perdure.core.messages import Entry

_MOST_QUESTIONS = 10
_QUESTION_CHARS = 220
_ABOUT_CHARS = 80
_QUESTION = re.compile(r"[?？]\s*$")
# What a program left in the place of a text.
_STANDS_FOR_TEXT = re.compile(r"\[[^\]\n]{1,200}\]")
_FENCE = "\n```"
# A question has this share of the words of an earlier one that it asks again.
_SAME_QUESTION_SHARE = 0.75
# A longer reply to a request has words of it, in scripts without blanks this share of the signs.
_SHORT_REPORT = 240
_LEAST_SHARED = 0.2


@dataclass(slots=True)
class AnswerLog:
    """The answered requests with their replies, updated by one reply at a time."""

    work: WorkLog
    edits: EditLog
    # By the position of the request, with whether the work changed something for it.
    _answers: dict[int, tuple[UserRequest, Entry, bool]] = field(default_factory=dict)
    # Replies that may name changes which no call shows, by the position of the request.
    _stating: dict[int, list[Entry]] = field(default_factory=dict)
    # Positions of requests whose answers the user corrected.
    _disputed: set[int] = field(default_factory=set)
    # Positions of replies whose edits the user undid.
    _undone: set[int] = field(default_factory=set)
    # Numbers of changes and of steps when the user last wrote.
    _counts_before: tuple[int, int] = (0, 0)

    def begin_turn(self) -> None:
        self._counts_before = self.work.changes, self.work.steps_taken

    def add(self, request: UserRequest, reply: Entry) -> None:
        """Add a request that a final reply answered."""
        self._answers.pop(request.seq, None)
        changes, steps = self._counts_before
        # Where no tool edits, the reply itself has the code.
        has_steps = self.work.steps_taken > steps or _FENCE in reply.message.text
        has_changed = self.work.changes > changes
        if not has_changed and not _QUESTION.search(request.own_words) and has_steps:
            self._stating.setdefault(request.seq, []).append(reply)
        self._answers[request.seq] = request, reply, has_changed

    def add_discussed(self, request: UserRequest, reply: Entry) -> None:
        """Add a question that a reply answered before it asked back."""
        self._answers[request.seq] = request, reply, False

    def dispute(self, reply: Entry | None) -> None:
        """Note that the user corrects the reply right before a message."""
        newest = next(reversed(self._answers.values()), None)
        if newest is not None and newest[1] is reply:
            self._disputed.add(newest[0].seq)

    def undo(self, reply_seq: int) -> None:
        self._undone.add(reply_seq)

    @property
    def worked_on(self) -> frozenset[int]:
        """Positions of the requests for which something was changed."""
        return frozenset(filter(self._is_work, self._answers))

    def _is_work(self, seq: int) -> bool:
        """Return whether something was changed for a request; where nothing is edited in place, by the reply."""
        has_changed = self._answers[seq][2]
        if has_changed or self.work.has_edits:
            return has_changed
        return any(map(changes_of, self._stating.get(seq, ())))

    def list_questions(self) -> Iterator[AnsweredQuestion]:
        """Yield the requests that were answered by words alone."""
        chosen, topics = self._choose(is_work=False)
        for n, (request, reply) in enumerate(chosen):
            if request.seq in self._disputed or _is_asked_again(topics[n], topics[n + 1 :]):
                continue
            question, answer = _question(request), answer_of(reply)
            if question and not _STANDS_FOR_TEXT.fullmatch(answer):
                yield AnsweredQuestion(question, answer, request.seq, reply.seq)

    def list_outcomes(self) -> Iterator[AnsweredQuestion]:
        """Yield the requests for which something was changed or done, with the outcome."""
        chosen, topics = self._choose(is_work=True)
        for n, (request, reply) in enumerate(chosen):
            undone = self.work.files_taken_back(request.seq, reply.seq)
            files = tuple(f for f in self.work.files_changed(request.seq, reply.seq) if f not in undone)
            if not files and self.work.has_undone(request.seq, reply.seq):
                continue
            if files and _is_asked_again(topics[n], topics[n + 1 :]):
                later = self.work.files_changed(reply.seq, chosen[-1][1].seq)
                if set(files) <= set(later):
                    continue  # sent again, and done again
            changes = _join_statements(c for c in changes_of(reply) if not self.edits.has_removed(c, reply.seq))
            words = _question(request)
            if request.about and not changes and is_bare_answer(request.own_words):
                words = f"{words} ({clip(request.about, _ABOUT_CHARS)})"
            elif changes and not _is_about(topics[n], reply.message.text):
                words = ""
            is_disputed = request.seq in self._disputed
            yield AnsweredQuestion(words, changes, request.seq, reply.seq, files, undone, is_disputed)

    def _choose(self, *, is_work: bool) -> tuple[list[tuple[UserRequest, Entry]], list[frozenset[str]]]:
        """Return the newest requests of a kind with their replies, and the words of each."""
        standing = (a for a in self._answers.values() if a[1].seq not in self._undone)
        chosen = [(a, reply) for a, reply, _ in standing if is_work == self._is_work(a.seq)]
        chosen = chosen[-_MOST_QUESTIONS:]
        return chosen, [topic_words(request.own_words) for request, _ in chosen]


def _question(request: UserRequest) -> str:
    """Return what a message asks, without a story in it and without demands: the user's rules are quoted as such."""
    words = before_fiction(without_commands(request.own_words))
    return first_words(" ".join(s for s in sentences(words) if not is_directive(s)), _QUESTION_CHARS)


def _join_statements(statements: Iterable[str]) -> str:
    """Join statements, those without a full stop by semicolons."""
    text = ""
    for statement in statements:
        text += ("" if not text else " " if text[-1] in ".!。！" else "; ") + statement
    return text


def _is_about(topic: frozenset[str], reply: str) -> bool:
    """Return whether a reply is short or has words of a request: a long one that has none answers something else."""
    if not topic or len(reply) <= _SHORT_REPORT:
        return True
    shared = len(topic & topic_words(reply))
    return shared > 0 if all(map(str.isascii, topic)) else shared >= _LEAST_SHARED * len(topic)


def _is_asked_again(topic: frozenset[str], later: Sequence[frozenset[str]]) -> bool:
    """Return whether a later question is about the same, so that its answer counts."""
    return any(len(topic & other) >= _SAME_QUESTION_SHARE * len(topic) for other in later) if len(topic) > 1 else False
