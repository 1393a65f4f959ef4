"""Classify the answer that a question asks for, and locate it in a working session.

In a conversation with tool calls the message that answers seldom repeats the question's words: it follows one that has
them, it is the user's own if the question is about the user, and it has a number or gives a reason if asked for one.
Without tools a conversation is ranked by its words alone: the answers of a model elaborate what a person wrote.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from perdure.store.db.database import Transaction, Value
from perdure.store.encoding import decode_or_placeholder
from perdure.store.search.matches import TextMatch
from perdure.store.search.ranking import ASKS, ECHO_SHARE, Ranker, Relevance
from perdure.store.search.scope import SearchScope

# What a message gains from the one before it, as a share of that one's score by words.
_PREVIOUS_SHARE = 0.25
# As shares of the best score by words: what a user's message gains or loses by whom the question is about, and what a
# message gains that has what the question asks for.
_OWN_SHARE = 0.6
_OTHERS_SHARE = -0.5
_NUMBER_SHARE = 0.45
_REASON_SHARE = 0.5
# A shorter message of the user, such as "yes", gains only if it has a word of the query.
_BARE_CHARS = 40
# Only the beginning of a text is examined, and not the arguments of its calls: those are full of numbers.
_EXAMINED_CHARS = 6_000

# Replies are read for this many hits: the first messages after the question, and the last one before the next.
_ANSWERED_HITS = 20
_FIRST_MESSAGES = 12
_MAX_TURN = 100
_LAST_SHARE = 1.5
# A message of the user up to this length is taken for a request, whether or not it has a question mark.
_REQUEST_CHARS = 300
# A message of the model with calls and no more than this is taken for the calls.
_LEAD_IN_CHARS = 120

_ABOUT_USER = re.compile(r"\bi\b(?!\.)|\b(?:my|me|mine|(?:the|our) user(?:'s)?)\b", re.IGNORECASE)
_ASKS_NUMBER = re.compile(
    r"\bhow (?:many|much|long|large|big|fast|often|old)\b|\bwhen\b"
    r"|\b(?:what|which) (?:size|number|version|percentage|date|time|commit|release|line|port)\b",
    re.IGNORECASE,
)
_ASKS_REASON = re.compile(r"\bwhy\b|\bwhat caused\b|\b(?:reason|cause)\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d")
_REASON = re.compile(
    r"\b(?:because|since|so that|reason|due to|the (?:issue|problem|cause) (?:is|was)|root cause|that's why|means that"
    r"|otherwise|which (?:means|causes)|caused by)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Expectation:
    """The properties that the answer to a question should have."""

    is_about_user: bool
    is_number: bool
    is_reason: bool

    def share(self, match: TextMatch) -> float:
        """Return what a message gains, as a share of the best score by words."""
        kind = match.row[5]
        own = (_OWN_SHARE if self.is_about_user else _OTHERS_SHARE) if kind == "user" else 0.0
        if own > 0 and len(match.text) < _BARE_CHARS and not match.relevance.matched:
            own = 0.0
        if not (self.is_number or self.is_reason):
            return own
        text = _own_text(match)[:_EXAMINED_CHARS]
        number = _NUMBER_SHARE if self.is_number and _NUMBER.search(text) else 0.0
        return own + number + (_REASON_SHARE if self.is_reason and _REASON.search(text) else 0.0)

    def fits(self, passage: str) -> bool:
        """Whether a passage has the number or the reason that the question asks for."""
        return (self.is_number and _NUMBER.search(passage) is not None) or (
            self.is_reason and _REASON.search(passage) is not None
        )


def _own_text(match: TextMatch) -> str:
    """Return the text of a message without calls: those it makes, or the one it was ranked with."""
    if match.row[5] == "assistant":
        return decode_or_placeholder(match.row[-2], match.row[-1], "assistant", seq=match.row[4]).text
    return match.text[max(0, -match.start) :]


def expected_answer(question: str) -> Expectation:
    """Return what a question asks for, by its English words; nothing in particular in other languages."""
    return Expectation(
        is_about_user=_ABOUT_USER.search(question) is not None,
        is_number=_ASKS_NUMBER.search(question) is not None,
        is_reason=_ASKS_REASON.search(question) is not None,
    )


def working_sessions(matches: Sequence[TextMatch]) -> frozenset[str]:
    """Return the conversations with tool results among their matches."""
    return frozenset(m.conversation_id for m in matches if m.is_message and m.row[5] == "tool")


def with_answers(
    matches: Sequence[TextMatch], expected: Expectation, conversations: frozenset[str]
) -> Sequence[TextMatch]:
    """Add to messages of working sessions what makes them the answer, and a share of the message before."""
    if not conversations:
        return matches
    top = max((m.relevance.score for m in matches), default=0.0)
    sources = [m for m in matches if m.is_message and not m.relevance.is_echo and m.row[5] != "handoff"]
    words = {(m.conversation_id, m.row[4]): m.relevance.score for m in sources if m.conversation_id in conversations}

    def compute_bonus(match: TextMatch) -> float:
        owner, seq = match.conversation_id, match.row[4]
        if (owner, seq) not in words:
            return 0.0
        return _PREVIOUS_SHARE * words.get((owner, seq - 1), 0.0) + top * expected.share(match)

    return [m._replace(score=m.score + compute_bonus(m)) for m in matches]


# "Anything else?", "Is there something else I can do?": what follows is a request of its own.
_COURTESY = re.compile(r"(?i)\b(?:(?:any|some)thing (?:else|more)|what else)\b[^?.!\n]*\?$")
_END_CHARS = 200


class ReplyMessage(NamedTuple):
    """A message that replies to a request, a question or a call."""

    ident: int
    seq: int
    text: str


def read_replies(
    tx: Transaction, hits: Sequence[TextMatch], scope: SearchScope, *, highest: int
) -> Mapping[int, Sequence[ReplyMessage]]:
    """Return the replies to requests of the user and to questions and calls of the model, by the id of their hit.

    Only messages in scope, with an id up to `highest`.
    """
    requests = [(m, kind) for m in hits if m.is_message and (kind := expected_reply(m)) is not None][:_ANSWERED_HITS]
    if not requests or scope.role is not None:
        return {}
    rows = ", ".join(["(CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS TEXT))"] * len(requests))
    values: list[Value] = [v for m, kind in requests for v in (m.row[0], m.conversation_id, m.row[4], kind)]
    following = (
        "SELECT MIN(m.seq) FROM message m WHERE m.conversation = anchor.conversation AND m.seq > anchor.seq"
        f" AND m.seq <= anchor.seq + {_MAX_TURN} AND (m.kind = 'user' OR (anchor.reply = 'tool' AND m.kind <> 'tool'))"
    )
    last = (
        "SELECT MAX(m.seq) FROM message m WHERE m.conversation = turn.conversation AND m.seq > turn.seq"
        " AND m.seq < turn.next AND m.kind = turn.reply"
    )
    where, more = scope.conditions("m")
    sql = (
        f"WITH anchor (id, conversation, seq, reply) AS (VALUES {rows}), turn (id, conversation, seq, reply, next) AS ("
        " SELECT id, conversation, seq, reply, CASE WHEN reply = 'user' THEN seq + 2"
        f" ELSE COALESCE(({following}), seq + {_MAX_TURN + 1}) END FROM anchor),"
        " range (id, conversation, lo, hi, reply, next) AS ("
        f" SELECT id, conversation, seq + 1, seq + {_FIRST_MESSAGES}, reply, next FROM turn UNION ALL"
        f" SELECT id, conversation, ({last}), ({last}), reply, next FROM turn)"
        " SELECT range.id, m.id, m.seq, m.body, m.encoding, m.kind FROM range JOIN message m"
        " ON m.conversation = range.conversation AND m.seq BETWEEN range.lo AND range.hi"
        " JOIN conversation c ON c.id = m.conversation"
        f" WHERE m.seq < range.next AND m.kind = range.reply AND m.id <= ?{where}"
    )
    replies: dict[int, dict[int, ReplyMessage]] = defaultdict(dict)
    for hit, ident, seq, body, encoding, kind in tx.rows(sql, [*values, highest, *more]):
        if text := decode_or_placeholder(body, encoding, kind, seq=seq).text.strip():
            replies[hit][seq] = ReplyMessage(ident, seq, text)
    return {hit: list(by_seq.values()) for hit, by_seq in replies.items()}


def expected_reply(match: TextMatch) -> str | None:
    """Return the role that replies: to a request of the user, a question that the model ends with, or its calls."""
    kind, text = match.row[5], match.text
    if kind == "user" and (len(text) <= _REQUEST_CHARS or ASKS.search(text[:_EXAMINED_CHARS])):
        return "assistant"
    if kind != "assistant":
        return None
    end = text[-_END_CHARS:].rstrip("*_`\"')”’ \n")
    if end.endswith(("?", "？", "؟")) and not _COURTESY.search(end):
        return "user"
    own = _own_text(match)
    return "tool" if len(own) <= _LEAD_IN_CHARS and len(own) < len(text) else None


def best_reply(replies: Sequence[ReplyMessage], ranker: Ranker) -> ReplyMessage:
    """Return the message that answers best; the last one of a turn mostly does."""
    last = max(r.seq for r in replies)

    def rank(reply: ReplyMessage) -> tuple[float, int]:
        score = ranker.score(reply.text, kind="assistant").score
        return round(score * (_LAST_SHARE if reply.seq == last else 1.0), 6), reply.seq

    return max(replies, key=rank)


def answers_before(
    tx: Transaction, matches: Sequence[TextMatch], ranker: Ranker, scope: SearchScope, *, highest: int, asked: set[int]
) -> Mapping[int, float]:
    """Return the answers that the query got when the user asked it before: by id, what each gains.

    A question that lacks a word of the query asks about something else. The questions `asked` just now have no answer.
    """
    wanted = {n for n, term in enumerate(ranker.query.terms) if not term.is_part}
    echoes = [m for m in matches if m.relevance.is_echo and m.is_message and m.row[5] == "user"]
    echoes = [m for m in echoes if m.relevance.matched >= wanted and m.row[0] not in asked]
    echoes = sorted(echoes, key=lambda m: -m.row[0])[:_ANSWERED_HITS]
    scores = {m.row[0]: m.relevance.score / ECHO_SHARE for m in echoes}
    answers: dict[int, float] = {}
    for question, replies in read_replies(tx, echoes, scope, highest=highest).items():
        ident = best_reply(replies, ranker).ident
        answers[ident] = max(answers.get(ident, 0.0), scores[question])
    return answers


def with_questions(matches: Sequence[TextMatch], answers: Mapping[int, float]) -> list[TextMatch]:
    """Add to each answer what it gains from the question."""

    def relevance(match: TextMatch) -> Relevance:
        added = answers.get(match.row[0], 0.0) if match.is_message and not match.relevance.is_echo else 0.0
        return replace(match.relevance, score=match.relevance.score + added)

    return [m._replace(relevance=relevance(m)) for m in matches] if answers else list(matches)
