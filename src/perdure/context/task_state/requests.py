"""Follow the user's requests through a conversation: which are open, answered, cancelled or replaced.

A bare "never mind" closes every open request (`RequestLog`). A message that names a task ("forget about the mailer")
closes the requests about it. It remains a request itself, because the same words may ask for work: "cancel the
reservation". `find_withdrawals` returns what was taken back for the notes about it, which are only marked: there a
request counts also if it was answered meanwhile, because an answer may have been a promise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from perdure.context.task_state.active_task import without_omission
from perdure.context.task_state.decisions import (
    INTERRUPTED,
    UserReading,
    content_words,
    user_reading,
)
from perdure.context.task_state.proposals import is_answer
from perdure.context.task_state.replies import ReplyReading, reply_reading
from perdure.context.task_state.state import RequestStatus, UserRequest
from perdure.context.user_text.intent import goes_on
from perdure.core.messages import TURN_ENDED, Entry

_LONGEST_CHARS = 240
_OPENING = (
    r"^\W*+(?:(?:ok(?:ay)?|no|wait|hm+|sorry|please|ah|oh|actually|hey|well|also|and|so|yeah|on second thoughts?|btw"
    r"|by the way|for now|right|alright|hi|doch|bitte|ach|stop(?: it| that| here)?|never ?mind|scratch that"
    r"|(?:forget|cancel|drop|leave|skip|scrap|ditch|abandon) (?:it|that|this)|stopp|halt|nein|warte)[,.;:! –—-]+)*"
)
# Words that can only take something back.
_TAKES_BACK = (
    r"(?:you can |let'?s |just |please |better )*(?:forget(?: about)?|never ?mind(?: about)?|don'?t bother(?: with)?)"
    r"|(?:there'?s |there is )?no (?:more |longer a )?need (?:for|to)"
    r"(?: (?:continue|go on|start|proceed|do|finish)(?: with| on)?)?"
    r"|not needed any ?more:?|(?:please |just )?scratch(?= (?:that|the|this|my|our)\b)"
    r"|(?:please |just )?(?:disregard|ignore)"
    r" (?:my (?:\w+ )?(?:request|question|message|wish|order) (?:for|about|to)|what i (?:\w+ )?(?:about|on|for))"
    r"|(?:please )?disregard|(?:i|we)(?:'re| are|'m| am)? (?:won'?t be|not) (?:doing|going ahead with|building|needing)"
    r"|(?:please )?(?:don'?t|do not)(?: (?:do|start|continue|go on|proceed|go ahead|work|carry on)(?: with| on)?)"
    r"|let'?s not(?: do)?|(?:let'?s )?hold off (?:on|with)|(?:let'?s )?call off"
    r"|we(?:'ve| have)? (?:just )?(?:decided (?:against|not to(?: do)?)|changed our minds? (?:about|on))"
    r"|(?:i|we)(?:'m| am|'re| are)? (?:don'?t|do not|no longer|won'?t|not going to)(?: (?:need|want|do))+"
    r"|(?:you|we) (?:don'?t|do not|needn'?t|no longer) (?:have to|need to|have)?(?: do)?"
    r"|i(?:'ve| have)? changed my mind (?:about|on)|i take back|(?:let'?s )?abandon"
    r"|(?:please )?(?:don'?t|do not)(?=[^\n]{2,90}\b(?:after all|any ?more|any longer|anything)\b)"
    r"|(?:wir |ich )?(?:vergiss|vergesst|streich(?:e|t)?|lass(?: uns)?(?: das)?(?: mit)?|storniere?|verwirf"
    r"|(?:brauche[n]?|will|wollen)(?: wir| ich)?(?=[^\n]{2,90}\b(?:nicht mehr|nicht länger|doch nicht)\b)"
    r"|(?:brich|breche?|stopp?e?|schicke?|sende?|mache?|starte|baue?|schreibe?|erstelle|lösche?)"
    r"(?=[^\n]{2,90}\b(?:nicht mehr|doch nicht|ab)\b))"
    r"|laisse tomber|oublie|annule|abandonne|(?:on n'a |je n'ai |nous n'avons )?plus besoin d(?:e|es|u)"
    r"|n'(?:envoie|fais) (?:pas|plus)"
    r"|olvida(?:te de)?|olvídate de|cancela|ya no (?:hace falta|necesit\w+|quier\w+)|annulla|lascia perdere|dimentica"
    r"|non (?:serve|servono) più|esquece|não precisa mais d?e?|забудь (?:про|о)|отмени|больше не (?:нужно|нужен|нужна)"
)
# Words that may as well ask for work: a flight is cancelled, a table dropped, a server stopped.
_MAY_TAKE_BACK = (
    r"(?:please |let'?s |just |you can |better )*(?:cancel|drop|stop(?: (?:working on|with|doing))?|skip|scrap|ditch"
    r"|kill|abort|bin|trash|axe|toss|leave out|leave(?=.*\b(?:cancell?ed|no longer|not needed|alone))|put aside|shelve)"
    r"|stoppe?|arrête|para"
)
_END = r"(?P<what>[^\n.!?;,:–—]{2,90})"
_OVER = (
    r"(?:off the table|off the list|cancell?ed|called off|no longer (?:needed|necessary|wanted|required|relevant)"
    r"|not (?:needed|necessary|required|wanted|relevant)(?: any ?more| now)?|obsolete|moot|dropped|dead|history"
    r"|vom tisch|nicht mehr nötig|erledigt)"
)
_CLEAR = re.compile(rf"{_OPENING}(?:{_TAKES_BACK})\s+{_END}", re.IGNORECASE)
_PASSIVE = re.compile(
    rf"{_OPENING}(?P<what>[^\n.!?;,:–—]{{2,90}}?)\s*(?:'s| is| are| was| were| has been| have been| hat sich| ist)"
    rf"(?: been| now| all| actually)*\s+{_OVER}\b",
    re.IGNORECASE,
)
# "The export? Forget it.", "As for the export: never mind."
_NAMED_FIRST = re.compile(
    rf"{_OPENING}(?:{_END}\?|(?:as for|about|regarding|concerning) (?P<about>[^\n.!?;,:–—]{{2,90}})[,:–—-])\s*"
    r"(?:no |please |just )*(?:forget (?:about )?(?:it|that|them)|never ?mind|scratch (?:it|that)|don'?t bother"
    r"|(?:skip|drop|cancel|scrap|leave) (?:it|that|them)|no longer needed|not any ?more|not needed|vergiss (?:es|das)"
    r"|laisse tomber|olvídalo)\W*$",
    re.IGNORECASE,
)
_UNCLEAR = re.compile(rf"{_OPENING}(?:{_MAY_TAKE_BACK})\s+{_END}", re.IGNORECASE)
_REASON = re.compile(rf"\b{_OVER}\b|\b(?:don'?t|no longer) need\b|\bchanged my mind\b", re.IGNORECASE)

_WORD = re.compile(r"[^\W_]{3,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_COMMON = frozenset(
    """the and for that this with from into about all any please could would can you your our after more anymore now
    then job task thing work part request idea plan it's its whole entire doing making need want needed just also too
    alone out aside entirely completely altogether continue anyway today anything next todo der die das
    den dem ein eine mit und nicht doch mehr bitte les des une pour que los las del por para""".split()  # noqa: SIM905  # a list of words reads better
)
_PREPOSITION = re.compile(r"\b(?:for|of|in|to|with|from|on|at|by|about|für|von|mit)\b", re.IGNORECASE)
# What is put off or narrowed down is not taken back.
_LIMITS = re.compile(
    r"\b(?:only|but|except|unless|until|yet|first|before|instead|while|when|if|nur|aber|bis|erst)\b", re.IGNORECASE
)
# Words are compared by their beginning: "migrate" and "migration" name the same thing.
_STEM_CHARS = 5
_LEAST_SHARE = 0.5
_JOINED = re.compile(r"\b(?:and|then|und|et|y)\b|[,;\n]|[.!?]\s+\S", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Cancellation:
    """The subject of a message that takes something back."""

    stems: frozenset[str]
    # The stem of the noun in it: of "tests for the export", that of "tests".
    head: str
    # Whether its words cannot ask for work instead.
    is_clear: bool

    def is_about(self, request: str) -> bool:
        """Whether it takes back the whole request; of one with several parts it may take back only one."""
        stems = set(_stems(request))
        shared = {s for s in self.stems if any(s.startswith(r) or r.startswith(s) for r in stems)}
        if self.head not in shared or len(shared) < _LEAST_SHARE * len(self.stems):
            return False
        is_single = _JOINED.search(request.strip().rstrip(".!?")) is None
        return is_single or len(shared) >= _LEAST_SHARE * len(stems)


# The same messages are looked at by the state and by the notes, in every compaction.
@lru_cache(maxsize=1_024)
def read_cancellation(text: str) -> Cancellation | None:
    """Parse a user message that cancels something; None if it names nothing that could be cancelled."""
    if len(text) > _LONGEST_CHARS or text.rstrip().endswith(("?", "？")):
        return None
    clear = _CLEAR.match(text) or _PASSIVE.match(text) or _NAMED_FIRST.match(text)
    match = clear or _UNCLEAR.match(text)
    if match is None or _LIMITS.search(text):
        return None
    what = match["what"] or match.groupdict().get("about", "")
    head = _stems(_PREPOSITION.split(what, maxsplit=1)[0]) or _stems(what)
    if not head:
        return None
    is_clear = clear is not None or _REASON.search(text) is not None
    return Cancellation(frozenset(_stems(what)), head[-1], is_clear)


def _stems(text: str) -> list[str]:
    words = (w.lower() for w in _WORD.findall(text[:2_000]))
    return [w[:_STEM_CHARS] for w in words if w not in _COMMON]


# A message that begins with a bare cancellation and goes on with a refusal: "Stop. Leave the bucket alone."
_REFUSES = re.compile(
    r"^\W*(?:stopp?|halt|never ?mind|scratch that|(?:forget|cancel|drop|scrap|ditch|abandon) (?:it|that|this)"
    r"|vergiss (?:es|das)|lass (?:es|das))[,.;:! –—-]+(?:please |bitte )?"
    r"(?:don'?t|do not|leave|no\b|keine?\b|lass|nicht)",
    re.IGNORECASE,
)
# A plain refusal takes back what was requested in nearly the same words.
_NEGATED = re.compile(rf"{_OPENING}(?:please )?(?:don'?t|do not|n'\w+ pas|no(?= \w+[ae]s\b))\s+{_END}", re.IGNORECASE)
_RECENT_REQUESTS = 8
_NEGATED_SHARE = 0.8
# Of the words of the shorter of a line and a request: the share that makes the line one about the request.
_LINE_SHARE = 0.6
_NAMED_LINE_SHARE = 0.5
_FEWEST_SHARED = 2
# A line of so few words is about a subject that it has, whatever else it has.
_SHORT_LINE = 4


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """The withdrawal of a request by a user message, of a subject that it names, or of both."""

    seq: int
    # Stems of the request; empty where only a subject is known.
    request: frozenset[str]
    # Stems of what the message names; empty for a bare "never mind".
    subject: frozenset[str] = frozenset()
    head: str = ""

    def covers(self, line: str) -> bool:
        """Whether a line of notes is about it."""
        stems = frozenset(_stems(line))
        shared = _count_shared(stems, self.request)
        fewest = min(len(stems), len(self.request))
        is_like_request = shared >= _FEWEST_SHARED and shared >= _LINE_SHARE * fewest
        if not self.subject:
            return is_like_request
        named = _count_shared(self.subject, stems)
        if not named:  # in other words than those of the message
            return is_like_request and shared >= _NAMED_LINE_SHARE * len(stems) and self.head not in self.request
        if named == len(self.subject) and (named >= _FEWEST_SHARED or len(stems) <= _SHORT_LINE):
            return True
        return is_like_request or shared >= max(_FEWEST_SHARED, _NAMED_LINE_SHARE * fewest)


def find_withdrawals(requests: Sequence[UserRequest], stops: Sequence[int] = ()) -> list[Withdrawal]:
    """Return what the user took back and did not request again, from the requests and the bare cancellations."""
    withdrawals: list[Withdrawal] = []
    for n, request in enumerate(requests):
        words = request.own_words or request.text
        earlier = requests[max(0, n - _RECENT_REQUESTS) : n]
        withdrawals += _named_withdrawals(request.seq, words, earlier)
        if earlier and _REFUSES.match(words):
            withdrawals.append(Withdrawal(request.seq, _request_stems(earlier[-1])))
    named = {(w.seq, w.request) for w in withdrawals}
    cancelled = ((r.closed_seq, _request_stems(r)) for r in requests if r.status == "cancelled")
    withdrawals += [Withdrawal(seq, stems) for seq, stems in cancelled if seq is not None and (seq, stems) not in named]
    for seq in stops:
        last = next((r for r in reversed(requests) if r.seq < seq), None)
        if last is not None:
            withdrawals.append(Withdrawal(seq, _request_stems(last)))
    return [w for w in withdrawals if not _is_requested_again(w, requests)]


def _named_withdrawals(seq: int, words: str, earlier: Sequence[UserRequest]) -> list[Withdrawal]:
    cancellation = read_cancellation(words)
    if cancellation is None:
        negated = _NEGATED.match(words) if len(words) <= _LONGEST_CHARS else None
        stems = frozenset(_stems(negated["what"])) if negated is not None else frozenset()
        about = [r for r in earlier if stems and _count_shared(stems, _request_stems(r)) >= _NEGATED_SHARE * len(stems)]
        return [Withdrawal(seq, _request_stems(r), stems) for r in about if len(stems) >= _FEWEST_SHARED]
    about = [r for r in earlier if cancellation.is_about(r.own_words or r.text)]
    if not about and cancellation.is_clear and len(cancellation.stems) >= _FEWEST_SHARED:
        return [Withdrawal(seq, frozenset(), cancellation.stems, cancellation.head)]
    return [Withdrawal(seq, _request_stems(r), cancellation.stems, cancellation.head) for r in about]


def _is_requested_again(withdrawal: Withdrawal, requests: Sequence[UserRequest]) -> bool:
    """Whether a later message requests the same, so that a note about it may be a new one."""
    later = (r for r in requests if r.seq > withdrawal.seq and r.status in ("open", "answered"))
    texts = (r.own_words or r.text for r in later)
    least = max(_FEWEST_SHARED, _LINE_SHARE * len(withdrawal.request or withdrawal.subject))
    return any(
        read_cancellation(text) is None
        and _NEGATED.match(text) is None
        and _count_shared(withdrawal.request or withdrawal.subject, frozenset(_stems(text))) >= least
        for text in texts
    )


def _request_stems(request: UserRequest) -> frozenset[str]:
    return frozenset(_stems(request.own_words or request.text))


def _count_shared(stems: frozenset[str], others: frozenset[str]) -> int:
    return sum(any(s.startswith(o) or o.startswith(s) for o in others) for s in stems)


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
# A question that is answered by words alone, not a task in the form of one ("can you …?", "what if we …?").
_ASKS_TO_KNOW = re.compile(
    r"(?i)^\W*(?:(?:ok(?:ay)?|but|and|so|hm+|wait|sorry|well|also|question|quick question)[,:. ]+)*"
    r"(?:why|what(?!['’]?s? (?:if|about)\b)|how(?! about\b)|which|who|when|where|is|are|was|were|does|do(?! it\b)|did"
    r"|warum|wieso|was|wie|wer|pourquoi|qu'est|comment|por qué|qué|cómo|почему|что|как)\b[^\n]*\?\s*$"
)
# A reply by which an agent skips a message of its client.
_FAILED_CALL = re.compile(
    r"^(?:API Error|Error: \d{3}|Request (?:timed out|failed)|\[(?:error|request failed))\b", re.IGNORECASE
)
_NO_REPLY = frozenset(("No response requested.", TURN_ENDED))
_SHORT_REPLY = 240
_SHORT_ANSWER = 80
_SENT_AGAIN_SHARE = 0.9
_NUMBERS = re.compile(r"\d+")
_SAME_REQUEST_SHARE = 0.6
# Of more open requests only the newest are compared with a message: in some chats every reply asks back.
_MOST_COMPARED = 100


@dataclass(frozen=True, slots=True)
class _Wording:
    """The words and numbers of a request, by which a repetition of it is recognised."""

    words: frozenset[str]
    # Without the omission of a quoted request, as `numbers` are.
    quoted_words: frozenset[str]
    numbers: frozenset[str]
    is_excerpt: bool

    @classmethod
    def of(cls, text: str) -> _Wording:
        excerpt, words = without_omission(text), content_words(text)
        is_excerpt = excerpt != text
        quoted_words = content_words(excerpt) if is_excerpt else words
        return cls(words, quoted_words, frozenset(_NUMBERS.findall(excerpt)), is_excerpt)


@dataclass(slots=True)
class RequestLog:
    """Requests in order, updated by one message at a time."""

    requests: list[UserRequest] = field(default_factory=list)
    # Positions of messages that take back what was under way without naming it.
    stops: list[int] = field(default_factory=list)
    # The question that ended the last reply, until the user writes again.
    question: str = ""
    question_seq: int = -1
    # Position of the last reply, if an edit in it cannot have been applied.
    broken_edit_seq: int | None = None
    # Position of the newest message that cancelled a request.
    cancelled_seq: int | None = None
    # Questions that were answered by a reply that asked back, until they are taken.
    discussed: list[UserRequest] = field(default_factory=list)
    # Position of the last reply, if it asks back after an answer; None where it does not.
    _answer_seq: int | None = None
    # Indexes of the open requests.
    _open: list[int] = field(default_factory=list)
    # Of the requests that were compared, by index.
    _wordings: dict[int, _Wording] = field(default_factory=dict)
    _is_interrupted: bool = False
    _has_worked: bool = False

    def carry(self, requests: Iterable[UserRequest]) -> None:
        """Start from requests of an earlier handoff."""
        self.requests += requests
        self._open = [i for i, r in enumerate(self.requests) if r.status == "open"]

    def add(self, entry: Entry) -> None:
        """Update the requests by the next message of the log."""
        message = entry.message
        if message.role == "tool" or message.tool_calls or message.cut_off is not None:
            self.add_work()
        elif message.is_real_user:
            self.add_user(entry.seq, user_reading(entry))
        elif message.kind == "assistant":
            self.add_reply(entry.seq, reply_reading(entry))

    @property
    def open(self) -> list[UserRequest]:
        return [self.requests[i] for i in self._open]

    @property
    def open_indexes(self) -> Sequence[int]:
        return self._open

    def add_work(self) -> None:
        """Record a call: a reply after it is more than a question, and one before the first call was a promise."""
        if self._has_worked:
            return
        self._has_worked = True
        last = self._last_answered()
        if not self._open and last is not None and last == len(self.requests) - 1:
            self.requests[last] = replace(self.requests[last], status="open", closed_seq=None)
            self._open = [last]

    def add_user(self, seq: int, reading: UserReading, *, about: str = "", question: str = "") -> None:
        """Update the requests by a message of the user.

        `about` is the part of the reply before it that it refers to; `question` is asked there, but not at its end.
        """
        text = reading.text
        if not text:
            return
        if INTERRUPTED.match(text):
            self._is_interrupted = True
            return
        question, self.question = self.question or question, ""
        self.broken_edit_seq = None
        self._close_discussed()
        if reading.is_bare:
            self._add_bare(seq, text, question, about)
            return
        if _CANCELS.match(text):
            last = self._last_answered()
            if not self._open and not self._has_worked and last is not None and last == len(self.requests) - 1:
                self._open = [last]  # a reply without any work may have been a promise, which is not to be resumed
            self.cancelled_seq = seq
            self._close("cancelled", seq)
            self.stops.append(seq)
            return
        self._cancel_named(seq, reading)
        answers = question if _answers(text, question) else ""
        request = UserRequest(text, seq, own_words=reading.own_words, answers=answers, about=about)
        if _REPLACES.match(text):
            self._close("replaced", seq)
        self._close_repeated(request)
        self._append(request)
        self._is_interrupted = False

    def undo_reply(self, reply_seq: int, seq: int) -> list[int]:
        """Close what a reply was for, where the user undid its edits; return the positions of these requests."""
        undone = [i for i, r in enumerate(self.requests) if r.closed_seq == reply_seq and r.status == "answered"]
        for i in undone:
            self.requests[i] = replace(self.requests[i], status="replaced", closed_seq=seq)
        return [self.requests[i].seq for i in undone]

    def _cancel_named(self, seq: int, reading: UserReading) -> None:
        """Close the requests that the user takes back by name; of answered ones only the newest, which could reopen."""
        cancellation = read_cancellation(reading.own_words)
        if cancellation is None:
            return
        about = [i for i in self._open[-_MOST_COMPARED:] if cancellation.is_about(self.requests[i].own_words)]
        last = self._last_answered()
        if not about and cancellation.is_clear and last is not None:
            about = [last] if cancellation.is_about(self.requests[last].own_words) else []
        for i in about:
            self.requests[i] = replace(self.requests[i], status="cancelled", closed_seq=seq)
            self.cancelled_seq = seq
        self._open = [i for i in self._open if i not in about]

    def _append(self, request: UserRequest) -> None:
        self._open.append(len(self.requests))
        self.requests.append(request)
        self._has_worked = False

    def _add_bare(self, seq: int, text: str, question: str, about: str) -> None:
        """Reopen the last request after "continue"; a yes to a question is a request of its own."""
        if question and (about or _AGREES.match(text)):
            self._append(UserRequest(text, seq, own_words=text, answers=question, about=about))
        elif not self._open and goes_on(text) and (last := self._last_answered()) is not None:
            self.requests[last] = replace(self.requests[last], status="open", closed_seq=None)
            self._open = [last]

    def add_reply(self, seq: int, reply: ReplyReading) -> None:
        if not reply.text or reply.text in _NO_REPLY or _FAILED_CALL.match(reply.text):
            return
        self.question, self.question_seq = reply.question, seq
        self.broken_edit_seq = seq if reply.has_broken_edit else None
        if self.broken_edit_seq is not None:  # it was not applied, and what it was for is not done
            return
        if not reply.question or self._is_offer(reply):
            self._close("answered", seq)
        self._answer_seq = seq if reply.question and _is_substantial(reply) else None

    def _close_discussed(self) -> None:
        """Close what the user merely wanted to know, where the last reply answered it and asked back."""
        if self._answer_seq is not None:
            for i in [i for i in self._open if _ASKS_TO_KNOW.match(self.requests[i].own_words)]:
                self.requests[i] = replace(self.requests[i], status="answered", closed_seq=self._answer_seq)
                self._open.remove(i)
                self.discussed.append(self.requests[i])
        self._answer_seq = None

    def _is_offer(self, reply: ReplyReading) -> bool:
        """Whether the closing question offers more after an answer, and does not ask what was meant."""
        return (self._has_worked or _is_substantial(reply)) and _OFFERS.search(reply.question) is not None

    def _close(self, status: RequestStatus, seq: int) -> None:
        for i in self._open:
            self.requests[i] = replace(self.requests[i], status=status, closed_seq=seq)
        self._open = []

    def _close_repeated(self, request: UserRequest) -> None:
        """Close an open request that the user sent again, and after an interruption one that was reworded."""
        if not self._open:
            return
        wording = self._wordings[len(self.requests)] = _Wording.of(request.text)
        for i in self._open[-_MOST_COMPARED:]:
            before = self._wordings.get(i)
            if before is None:
                before = self._wordings[i] = _Wording.of(self.requests[i].text)
            is_reworded = self._is_interrupted and _overlap(wording.words, before.words) >= _SAME_REQUEST_SHARE
            if is_reworded or _is_sent_again(before, wording):
                self.requests[i] = replace(self.requests[i], status="replaced", closed_seq=request.seq)
                self._open.remove(i)

    def _last_answered(self) -> int | None:
        return next((i for i in range(len(self.requests) - 1, -1, -1) if self.requests[i].status == "answered"), None)


def _is_substantial(reply: ReplyReading) -> bool:
    return len(reply.text) - len(reply.question) > _SHORT_REPLY


def _answers(text: str, question: str) -> bool:
    """Return whether a message answers the question before it; an offer is answered by a yes, a no or a choice."""
    if not question or len(text) > _SHORT_ANSWER or text.endswith(("?", "？")):
        return False
    return _OFFERS.search(question) is None or is_answer(text)


def _is_sent_again(before: _Wording, message: _Wording) -> bool:
    """Return whether a message repeats a request: it has its numbers and its words, as far as they are quoted."""
    if not before.numbers <= message.numbers:
        return False
    old, new = before.quoted_words, message.words
    if before.is_excerpt:
        return _overlap(old, new) >= _SENT_AGAIN_SHARE
    return bool(old) and len(old & new) >= _SENT_AGAIN_SHARE * len(old)


def _overlap(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / min(len(a), len(b)) if a and b else 0.0
