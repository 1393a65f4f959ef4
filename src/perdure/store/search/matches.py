"""Matches of a search, and evidence for each beyond its own words: its conversation, its turn, its meaning."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from perdure.store.db.database import Row, Transaction, Value, to_int, to_text, to_time_ms
from perdure.store.search.dates import CalendarDate, date_of, find_dates
from perdure.store.search.embedding import WordVectors
from perdure.store.search.query import Term
from perdure.store.search.ranking import Ranker, Relevance, split_words
from perdure.store.search.vectors import Similarities

# How much nearness in meaning counts, as a share of the best score by words.
_MEANING_SHARE = 0.45
# What the nearer of the messages before and after adds to that: a remark is about the ones around it.
_NEIGHBOUR_SHARE = 0.1
# What the best match of a turn adds to the user's message that began it. Longer turns are not followed to their start.
_TURN_SHARE = 0.6
_TURN_MATCHES = 60
_MAX_TURN = 100
# In working sessions the messages after this many of the best matches are ranked as well.
_FOLLOWED_MATCHES = 40
# What the newest message of a conversation gains in a question about the present, as a share of the best score, and how
# many messages before it gain half of that.
_NEWEST_SHARE = 0.5
_NEWEST_HALF = 5
_MAX_NEWEST = 12
# What a message gains that is from a date of the question, or whose conversation has it in its title, as a share of the
# best score.
_DATE_SHARE = 0.5
# Only the beginnings of the best matches are compared.
_COMPARED = 50
_COMPARED_CHARS = 4_000
# Less similar words do not count. An equal one counts as much as the word itself, once.
_MIN_COSINE = 0.35
# Long texts have a similar word for everything.
_TYPICAL_CHARS = 600
_LENGTH_SHARE = 0.5
_MAX_LENGTH = 10.0

# Reciprocal rank fusion: the smaller, the more the first matches of each query count.
_RANK_OFFSET = 11


class TextMatch(NamedTuple):
    """A ranked text with its row; the hit and its snippet are built only if it is among the results."""

    row: Row
    text: str
    relevance: Relevance
    # With what its conversation adds.
    score: float = 0.0
    # Where `text` begins in what it is a part of; negative where something precedes it.
    start: int = 0

    @property
    def is_message(self) -> bool:
        return isinstance(self.row[4], int)

    @property
    def message_id(self) -> int | None:
        """The index id of a message; None for an output, whose numbers are of their own."""
        return self.row[0] if self.is_message else None

    @property
    def conversation_id(self) -> str:
        return to_text(self.row[1])


def message_ids(matches: Sequence[TextMatch]) -> set[int]:
    """Return the index ids of messages."""
    return {m.row[0] for m in matches if m.is_message}


def with_conversations(matches: Sequence[TextMatch], ranker: Ranker) -> list[TextMatch]:
    """Add what each conversation's title and other matches supply."""
    by_conversation: dict[str, list[TextMatch]] = defaultdict(list)
    for match in matches:
        by_conversation[match.conversation_id].append(match)
    titles = {c: ranker.title_terms(to_text(group[0].row[7])) for c, group in by_conversation.items()}
    weights = ranker.title_weights(titles.values())
    ranked: list[TextMatch] = []
    for conversation_id, group in by_conversation.items():
        terms = Counter(n for m in group if not m.relevance.is_echo for n in m.relevance.matched)
        # The title of a conversation that began with the question repeats it.
        has_echo = any(m.relevance.is_echo for m in group)
        title = 0.0 if has_echo else sum(weights[n] for n in sorted(titles[conversation_id]))
        added = ranker.context(title, terms, messages=to_int(group[0].row[8]))
        ranked += [m._replace(score=m.relevance.score + (0.0 if m.relevance.is_echo else added)) for m in group]
    return ranked


class TurnNeighbours(NamedTuple):
    """The messages next to the best matches in their turns."""

    # The user's message before a match that is not a user's, both by id.
    openers: Mapping[int, int]
    # The messages after matches in working sessions.
    following: Sequence[int]


def turn_neighbours(tx: Transaction, matches: Sequence[TextMatch], working: Collection[str]) -> TurnNeighbours:
    """Return the messages around the best matches; `working` are the conversations whose next messages are wanted."""
    best = sorted((m for m in matches if m.is_message and not m.relevance.is_echo), key=_rank)
    answers = {m.row[0]: m for m in [m for m in best if m.row[5] not in ("user", "handoff")][:_TURN_MATCHES]}
    leading = {m.row[0]: m for m in [m for m in best if m.conversation_id in working][:_FOLLOWED_MATCHES]}
    anchors = [*(answers | leading).values()]
    if not anchors:
        return TurnNeighbours({}, ())
    rows = ", ".join("(CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT))" for _ in anchors)
    values: list[Value] = [v for m in anchors for v in (m.row[0], m.conversation_id, m.row[4])]
    opener = (
        "SELECT m.id FROM message m WHERE m.conversation = anchor.conversation AND m.seq < anchor.seq"
        f" AND m.seq >= anchor.seq - {_MAX_TURN} AND m.kind = 'user' ORDER BY m.seq DESC LIMIT 1"
    )
    # Of two messages with the same number, as a damaged database may have them, the older one.
    following = "SELECT MIN(m.id) FROM message m WHERE m.conversation = anchor.conversation AND m.seq = anchor.seq + 1"
    sql = f"WITH anchor (id, conversation, seq) AS (VALUES {rows}) SELECT id, ({opener}), ({following}) FROM anchor"
    read = list(tx.rows(sql, values))
    return TurnNeighbours(
        {ident: first for ident, first, _ in read if first is not None and ident in answers},
        [after for ident, _, after in read if after is not None and ident in leading],
    )


def with_turns(matches: Sequence[TextMatch], openers: Mapping[int, int]) -> list[TextMatch]:
    """Add to the message that began a turn what its best answer supplies."""
    best: dict[int, float] = defaultdict(float)
    for match in matches:
        if match.is_message and (opener := openers.get(match.row[0])) is not None:
            best[opener] = max(best[opener], match.relevance.score)
    return [
        m._replace(score=m.score + _TURN_SHARE * best[m.row[0]])
        if m.is_message and m.row[0] in best and not m.relevance.is_echo
        else m
        for m in matches
    ]


def newest_messages(tx: Transaction, conversation_id: str, *, highest: int) -> list[tuple[int, int]]:
    """Return the ids and seqs of a conversation's newest messages with an id up to `highest`, newest first."""
    sql = (
        "SELECT id, seq FROM message WHERE conversation = ? AND id <= ? AND kind <> 'handoff'"
        f" ORDER BY seq DESC LIMIT {_MAX_NEWEST}"
    )
    return [(ident, seq) for ident, seq in tx.rows(sql, (conversation_id, highest))]


def newest_question(tx: Transaction, conversation_id: str | None) -> set[int]:
    """Return the id of the newest question of a conversation, the one being searched for; empty without one."""
    sql = "SELECT id FROM message WHERE conversation = ? AND kind = 'user' ORDER BY seq DESC LIMIT 1"
    row = tx.row(sql, (conversation_id,)) if conversation_id is not None else None
    return set() if row is None else {row[0]}


def open_questions(tx: Transaction, conversation_id: str | None) -> set[int]:
    """Return the ids of what the user asked in the running turn of a conversation, also in the middle of it."""
    if conversation_id is None:
        return set()
    sql = f"SELECT id, kind FROM message WHERE conversation = ? ORDER BY seq DESC LIMIT {_MAX_TURN}"
    newest = list(tx.rows(sql, (conversation_id,)))
    questions: set[int] = set()
    for (ident, kind), (_, kind_before) in pairwise([*newest, (0, "")]):
        if kind == "user":
            questions.add(ident)
            # A turn begins after a reply, not between a tool's result and the next step.
            if kind_before not in ("tool", "user"):
                break
    return questions


def with_newest(matches: Sequence[TextMatch], conversation_id: str, last_seq: int) -> list[TextMatch]:
    """Add to the messages of a conversation how near they are to its last one."""
    top = max((m.score for m in matches), default=0.0)

    def compute_bonus(match: TextMatch) -> float:
        is_other = not match.is_message or match.conversation_id != conversation_id or match.row[4] > last_seq
        if is_other or match.relevance.is_echo or match.row[5] == "handoff":
            return 0.0
        return _NEWEST_SHARE * top / (1 + (last_seq - int(match.row[4])) / _NEWEST_HALF)

    return [m._replace(score=m.score + compute_bonus(m)) for m in matches]


def with_dates(matches: Sequence[TextMatch], dates: Sequence[CalendarDate]) -> list[TextMatch]:
    """Add to messages from one of `dates`, and to those of conversations whose titles have one."""
    top = max((m.relevance.score for m in matches), default=0.0)
    titles = {to_text(m.row[7]) for m in matches}
    dated = {t for t in titles if any(d.includes(date) for date in find_dates(t) for d in dates)}

    def compute_bonus(match: TextMatch) -> float:
        if match.relevance.is_echo:
            return 0.0
        day = date_of(to_time_ms(match.row[6]))
        return _DATE_SHARE * top * ((to_text(match.row[7]) in dated) + any(d.includes(day) for d in dates))

    return [m._replace(score=m.score + compute_bonus(m)) for m in matches]


def with_similarity(matches: Sequence[TextMatch], near: Similarities | None) -> Sequence[TextMatch]:
    """Add how near each message is in meaning, as a share of the best score by words."""
    if near is None or not matches:
        return matches
    top = max(m.relevance.score for m in matches) or 1.0
    shares = near.of([m.row[0] for m in matches if m.is_message])
    # What has no vector, such as an output or the newest message, is taken to be as near as most.
    usual = sorted(shares.values())[len(shares) // 2] if shares else 0.0
    nearness = {(m.conversation_id, m.row[4]): shares.get(m.row[0], usual) for m in matches if m.is_message}

    def share(match: TextMatch) -> float:
        owner, seq = match.conversation_id, match.row[4]
        if not match.is_message:
            return usual
        around = max(nearness.get((owner, seq - 1), 0.0), nearness.get((owner, seq + 1), 0.0))
        return nearness[owner, seq] + _NEIGHBOUR_SHARE * around

    return [m._replace(score=m.score + _MEANING_SHARE * top * share(m)) for m in matches]


def with_similar_words(matches: Sequence[TextMatch], ranker: Ranker, model: WordVectors) -> list[TextMatch]:
    """Add to the best matches what words of a similar meaning supply for the terms they lack."""
    terms = [(n, t) for n, t in enumerate(ranker.query.terms) if t.forms and t.forms[0].isalpha()]
    compared = sorted((m for m in matches if not m.relevance.is_echo), key=_rank)[:_COMPARED]
    if not terms or not compared:
        return list(matches)
    added = dict(zip(map(_rank, compared), _shares(compared, terms, ranker.weights, model), strict=True))
    return [
        m._replace(relevance=replace(m.relevance, score=m.relevance.score + added.get(_rank(m), 0.0))) for m in matches
    ]


def _rank(match: TextMatch) -> tuple[float, bool, int]:
    """Return a key that is unique to a match and sorts the best first."""
    return -round(match.relevance.score, 6), match.is_message, -match.row[0]


def _shares(
    matches: Sequence[TextMatch], terms: Sequence[tuple[int, Term]], weights: Sequence[float], model: WordVectors
) -> list[float]:
    import numpy as np

    words = [list(split_words(m.text[:_COMPARED_CHARS])) for m in matches]
    vocabulary = list(dict.fromkeys(w for own in words for w in own))
    rows = {word: row for row, word in enumerate(vocabulary)}
    cosines = model.embed_words(vocabulary) @ model.embed_words([t.forms[0] for _, t in terms]).T
    # Rounded, because the last digits depend on the order of the words.
    similar = np.maximum(0.0, (np.round(cosines, 3) - _MIN_COSINE) / (1.0 - _MIN_COSINE))
    shares = []
    for match, own in zip(matches, words, strict=True):
        nearest = similar[[rows[w] for w in own]].max(axis=0) if own else np.zeros(len(terms))
        total = sum(
            weights[number] * float(value)
            for (number, _), value in zip(terms, nearest, strict=True)
            if number not in match.relevance.matched
        )
        length = min(_MAX_LENGTH, len(match.text) / _TYPICAL_CHARS)
        shares.append(total / (1 - _LENGTH_SHARE + _LENGTH_SHARE * length))
    return shares


def sort_matches(matches: Sequence[TextMatch]) -> list[TextMatch]:
    """Sort by score; the newest first among equals."""
    return sorted(matches, key=lambda m: (-round(m.score, 6), -to_time_ms(m.row[6]), -m.row[0]))


class FusedMatch(NamedTuple):
    """A match of one or several queries."""

    match: TextMatch
    score: float
    # The number of the query that ranks it highest.
    query: int = 0


def fuse_rankings(rankings: Sequence[Sequence[TextMatch]]) -> list[FusedMatch]:
    """Join the rankings of several queries, by rank: scores of different queries are not comparable."""
    if len(rankings) == 1:
        return [FusedMatch(m, m.score) for m in rankings[0]]
    ranks_by_text: dict[tuple[bool, int], list[tuple[int, int]]] = defaultdict(list)
    for query, ranking in enumerate(rankings):
        for rank, match in enumerate(ranking):
            ranks_by_text[match.is_message, match.row[0]].append((rank, query))
    fused = []
    for ranks in ranks_by_text.values():
        rank, query = min(ranks)
        score = sum(1 / (_RANK_OFFSET + rank) for rank, _ in ranks)
        fused.append(FusedMatch(rankings[query][rank], score, query))
    return sorted(fused, key=lambda f: (-round(f.score, 6), f.query, -f.match.row[0]))
