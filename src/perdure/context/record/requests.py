"""Follow the user's requests through a conversation: which are open, answered, cancelled or replaced."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from perdure.context.analysis import sentences
from perdure.context.record.task import RequestStatus, UserRequest
from perdure.context.user_words import goes_on, is_bare, own_words, typed_text
from perdure.core.messages import SUMMARY_OPENINGS, TURN_ENDED, Entry, Message

# What a client writes in the user's place when a turn is stopped.
_INTERRUPTED = re.compile(r"^\[(?:Request )?interrupted by (?:the )?user[^\]]*\]$", re.IGNORECASE)
_CANCELS = re.compile(
    r"^(?:(?:ok(?:ay)?|no|wait|hm+|sorry|please|ah|oh)[,.! ]+)*"
    r"(?:never ?mind|forget (?:it|that|about (?:it|that))|cancel(?: (?:it|that|this))?|drop (?:it|that|this)"
    r"|stop(?: (?:it|that|this|here|please))?|scratch that|leave it|don'?t bother|no need(?: anymore)?"
    r"|vergiss (?:es|das)|lass (?:es|das)|abbrechen|egal|laisse tomber|oublie|annule|olvídalo|déjalo|cancela"
    r"|lascia perdere|deixa pra lá|забудь|отмена|не надо)\b[^\n?？]{0,16}$"
    r"|^(?:算了|不用了|取消|别做了|やめて|キャンセル|もういい|忘れて|됐어|취소|그만)",
    re.IGNORECASE,
)
# A message that takes the place of an earlier request: "no, … instead", "scratch that, …".
_REPLACES = re.compile(
    r"^(?:scratch that|forget (?:that|it)|never ?mind|change of plans?|on second thought|new plan)\b.{8,}"
    r"|^(?:actually|no|wait|sorry|hm+)\b[^.\n]{0,120}\binstead\b(?! of)"
    r"|^(?:doch lieber|stattdessen|plutôt|mejor|лучше)\b|^(?:还是|改成|改为)|^(?:やっぱり)|^(?:아니,? 대신)",
    re.IGNORECASE,
)
_ASKS_BACK = re.compile(r"[?？][\s\"'”’)\]*_`]*$")
# A question that offers more work after the request was dealt with; "A or B?" asks for a decision instead.
_OFFERS = re.compile(
    r"\b(?:want me to|would you like|shall I|should I (?:also|go|proceed|commit|push|continue|open|create)|do you want"
    r"|anything else|let me know|ready to|soll ich|möchtest du|willst du|voulez-vous|veux-tu|souhaitez|quieres|deseas"
    r"|te gustaría|vuoi che|quer que|хотите|хочешь)\b"
    r"|要不要|需要我|是否需要|要我|しましょうか|でしょうか|할까요|드릴까요|원하시",
    re.IGNORECASE,
)
_AGREES = re.compile(
    r"^\W*(?:yes|y|yep|yeah|yup|sure|ok|okay|please|do it|go ahead|sounds good|ja|gern|oui|sí|si|vale|да|давай"
    r")\b|^\W*(?:好|是的|可以|对|はい|お願いします|うん|네|예|응|좋아)",
    re.IGNORECASE,
)
# A reply by which an agent skips a message of its client.
_NO_REPLY = frozenset(("No response requested.", TURN_ENDED))
_WORD = re.compile(r"[^\W_]{3,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_SHORT_REPLY = 240
_LONGEST_QUESTION = 400
_SHORT_ANSWER = 80
_SAME_SHARE = 0.6


@dataclass(slots=True)
class RequestLog:
    """Requests in order, updated by one message at a time."""

    requests: list[UserRequest] = field(default_factory=list)
    _is_interrupted: bool = False
    _has_worked: bool = False
    # The question that ended the last reply, until the user writes again.
    question: str = ""
    question_seq: int = -1

    def add(self, entry: Entry) -> None:
        """Update the requests by the next message of the log."""
        message = entry.message
        if message.role == "tool" or message.tool_calls:
            self._has_worked = True
        elif message.is_real_user:
            self._add_user(entry)
        elif message.kind == "assistant":
            self._add_reply(entry.seq, message.typed_text.strip())

    @property
    def open(self) -> list[UserRequest]:
        return [r for r in self.requests if r.status == "open"]

    def _add_user(self, entry: Entry) -> None:
        text = request_text(entry.message)
        if not text:
            return
        if _INTERRUPTED.match(text):
            self._is_interrupted = True
            return
        question, self.question = self.question, ""
        if is_bare(text):
            self._add_bare(entry.seq, text, question)
            return
        own = own_words(entry.message)
        if _CANCELS.match(text):
            self._close("cancelled", entry.seq)
            return
        request = UserRequest(text, entry.seq, own_words=own, answers=question if _is_short_answer(text) else "")
        if _REPLACES.match(text):
            self._close("replaced", entry.seq)
        self._close_repeated(request)
        self.requests.append(request)
        self._is_interrupted = self._has_worked = False

    def _add_bare(self, seq: int, text: str, question: str) -> None:
        """Reopen the last request after "continue"; a yes to an offer is a request of its own."""
        if self.open:
            return
        if question and _AGREES.match(text):
            self.requests.append(UserRequest(text, seq, own_words=text, answers=question))
            self._has_worked = False
        elif goes_on(text) and (last := self._last_answered()) is not None:
            self.requests[last] = replace(self.requests[last], status="open", closed_seq=None)

    def _add_reply(self, seq: int, reply: str) -> None:
        if not reply or reply in _NO_REPLY:
            return
        asked = sentences(reply[-_LONGEST_QUESTION:])[-1:] if _ASKS_BACK.search(reply[-60:]) else []
        self.question, self.question_seq = asked[0].strip(" *_-") if asked else "", seq
        if not asked or self._is_offer(reply):
            self._close("answered", seq)

    def _is_offer(self, reply: str) -> bool:
        """Whether the closing question offers more after an answer, and does not ask what was meant."""
        is_substantial = self._has_worked or len(reply) - len(self.question) > _SHORT_REPLY
        return is_substantial and _OFFERS.search(self.question) is not None

    def _close(self, status: RequestStatus, seq: int) -> None:
        self.requests = [replace(r, status=status, closed_seq=seq) if r.status == "open" else r for r in self.requests]

    def _close_repeated(self, request: UserRequest) -> None:
        """Close an open request that the user sent again, and after an interruption one that was reworded."""
        words = content_words(request.text)
        least = _SAME_SHARE if self._is_interrupted else 0.9
        for i, earlier in enumerate(self.requests):
            if earlier.status == "open" and _overlap(words, content_words(earlier.text)) >= least:
                self.requests[i] = replace(earlier, status="replaced", closed_seq=request.seq)

    def _last_answered(self) -> int | None:
        return next((i for i in range(len(self.requests) - 1, -1, -1) if self.requests[i].status == "answered"), None)


def request_text(message: Message) -> str:
    """The text of a user message as a request; "" where it is markup of a client or a summary of another system."""
    text = typed_text(message)
    return "" if text.startswith(SUMMARY_OPENINGS) else text


def _is_short_answer(text: str) -> bool:
    """Whether a message needs the question before it to be understood."""
    return len(text) <= _SHORT_ANSWER and not _ASKS_BACK.search(text)


def content_words(text: str) -> frozenset[str]:
    return frozenset(w.lower() for w in _WORD.findall(text[:2_000]))


def _overlap(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / min(len(a), len(b)) if a and b else 0.0


def read_requests(entries: Iterable[Entry]) -> tuple[UserRequest, ...]:
    """Read all requests of a history with their status at its end."""
    log = RequestLog()
    for entry in entries:
        log.add(entry)
    return tuple(log.requests)
