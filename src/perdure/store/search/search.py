"""Search messages and outputs: choose candidates, rank them, build snippets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import Any

from perdure.core.errors import StoreError
from perdure.core.ports import Page, SearchAnswer, SearchHit, SearchReport, WordCount
from perdure.core.visibility import Visibility
from perdure.store.db.database import Row, Transaction, Value, to_int, to_text, to_time_ms
from perdure.store.messages import stored_text
from perdure.store.outputs import OutputStore
from perdure.store.queries import StoreContext
from perdure.store.search.addresses import Addresses
from perdure.store.search.answers import (
    ReplyMessage,
    answers_before,
    best_reply,
    expected_answer,
    expected_reply,
    read_replies,
    with_answers,
    with_questions,
    working_sessions,
)
from perdure.store.search.candidates import CandidateSearch, term_weights
from perdure.store.search.index import IdRange, IndexName
from perdure.store.search.matches import (
    FusedMatch,
    TextMatch,
    fuse_rankings,
    message_ids,
    newest_messages,
    newest_question,
    open_questions,
    sort_matches,
    turn_neighbours,
    with_conversations,
    with_dates,
    with_newest,
    with_similar_words,
    with_similarity,
    with_turns,
)
from perdure.store.search.pairs import call_texts
from perdure.store.search.progress import load_progress
from perdure.store.search.query import SearchQuery, Term, parse_query
from perdure.store.search.ranking import Ranker, is_search_text
from perdure.store.search.scope import SearchScope, build_scope
from perdure.store.search.snippets import Snippets, highlight
from perdure.store.search.tokenizer import fold_text
from perdure.store.search.vectors import Similarities, VectorIndex

MAX_RESULTS = 200
MAX_REWORDINGS = 4
# This many candidates are ranked, or as many as are asked for.
_RANKED = 150
_RANKED_OUTPUTS = 40
_BATCH = 250
# How many texts are ranked because they are near in meaning, and how near they must be.
_NEAREST = 40
_MIN_SIMILARITY = 0.5
# One word alone is searched literally, not in the call of a result.
_MIN_JOINED_TERMS = 2
# Most candidates examined for a scope the index cannot narrow.
_MAX_EXAMINED = 6_000
# Outputs too large for the index are scanned, newest first, up to this many characters in total.
_SCANNED_CHARS = 16_000_000
_OVERLAP_CHARS = 256

_MESSAGE = (
    "SELECT m.id, m.conversation, m.session, c.tip, m.seq, m.kind, m.created_at, c.title, c.last_seq, m.body,"
    " m.encoding FROM message m JOIN conversation c ON c.id = m.conversation"
)
_OUTPUT = (
    "SELECT o.number, o.conversation, o.session, c.tip, o.id, 'tool', o.created_at, c.title, c.last_seq, o.place,"
    " o.chars FROM output o JOIN conversation c ON c.id = o.conversation"
)


class SearchIndex:
    """Search port: search all messages and outputs, and open addresses."""

    def __init__(self, context: StoreContext, outputs: OutputStore, addresses: Addresses, vectors: VectorIndex) -> None:
        self._context = context
        self._outputs = outputs
        self._addresses = addresses
        self.vectors = vectors

    def search(
        self,
        query: str,
        *,
        visibility: Visibility,
        scope: Mapping[str, Any] | None = None,
        limit: int = 20,
        rewordings: Sequence[str] = (),
    ) -> Sequence[SearchHit]:
        """Return the best matches first; every query text is valid.

        A phrase alone must occur; one in a question need not if nothing has it. `scope` may restrict `conversation`,
        `session`, `role`, `since_ms` and `until_ms`; the newest question of the conversation `asked_in` comes last,
        and those of the running turn of the conversation `answering` are left out; with one of the two, calls of search
        tools and their results are, too. Raises StoreError for others.
        `rewordings` are queries for the same in other words; what several of them find comes first. A `limit` below 1
        returns none.
        """
        if limit < 1:
            return []
        texts = _distinct(query, rewordings)
        parsed = list(map(parse_query, texts))
        hits = self._run(parsed, visibility, scope or {}, limit=limit, cursor=None).hits
        if not hits and any(p.required and p.ignored for p in parsed):
            hits = self._run(list(map(_without_quotes, texts)), visibility, scope or {}, limit=limit, cursor=None).hits
        listed = {(h.conversation_id, h.address) for h in hits}
        return [replace(h, answer=None) if _answer_key(h) in listed else h for h in hits]

    def report(
        self,
        query: str,
        *,
        visibility: Visibility,
        scope: Mapping[str, Any] | None = None,
        limit: int = 20,
        cursor: str | None = None,
        rewordings: Sequence[str] = (),
    ) -> SearchReport:
        """Search, and report what was searched for, where, and how often each word occurs.

        A request and the reply to it are one hit where the request is the better match, so there may be fewer hits than
        `limit` although more follow. Where a quoted phrase does not occur, the hits have its words.
        Raises StoreError for an invalid cursor.
        """
        texts = _distinct(query, rewordings)
        parsed = list(map(parse_query, texts))
        report = self._run(parsed, visibility, scope or {}, limit=limit, cursor=cursor)
        if not report.hits and any(p.required for p in parsed):
            unquoted = list(map(_without_quotes, texts))
            nearest = self._run(unquoted, visibility, scope or {}, limit=limit, cursor=cursor)
            report = replace(nearest, is_relaxed=True) if nearest.hits else report
        return replace(report, hits=_with_replies(report.hits))

    def _run(
        self,
        queries: Sequence[SearchQuery],
        visibility: Visibility,
        scope: Mapping[str, Any],
        *,
        limit: int,
        cursor: str | None,
    ) -> SearchReport:
        limit = max(1, min(limit, MAX_RESULTS))
        start, highest = _parse_cursor(cursor)
        enough = max(_RANKED, start + limit + 1)
        works = [_Search(self._context, self._outputs, self.vectors, q, enough=enough) for q in queries if q.terms]
        if not works:
            return SearchReport(())
        end = start + limit
        if self.vectors.is_available:
            self.vectors.start()

        def read(tx: Transaction) -> list[FusedMatch]:
            built = build_scope(tx, scope, visibility)
            unanswered, newest = open_questions(tx, built.answering), newest_question(tx, built.asked_in)
            rankings = [w.run(tx, built, highest=highest, asked=unanswered | newest) for w in works]
            fused = [f for f in fuse_rankings(rankings) if f.match.message_id not in unanswered]
            if built.leaves_out_searches:
                fused = [f for f in fused if not is_search_text(f.match.text, kind=f.match.row[5])]
            fused.sort(key=lambda f: f.match.message_id in newest)
            for number, work in enumerate(works):
                work.read_replies(tx, [f.match for f in fused[start:end] if f.query == number], built)
            return fused

        fused = self._context.database.read(read)
        hits = tuple(works[f.query].to_hit(f) for f in fused[start:end])
        following = f"{end}.{works[0].highest}" if len(fused) > end and end < MAX_RESULTS else None
        words = {count.word: count for work in reversed(works) for count in work.word_counts()}
        return SearchReport(
            hits,
            tuple(words[w] for w in dict.fromkeys(c.word for work in works for c in work.word_counts())),
            tuple(dict.fromkeys(w for work in works for w in work.ignored)),
            int(works[0].texts),
            following,
            indexed_share=works[0].indexed_share,
            queries=len(works),
        )

    def open(self, address: str, *, conversation_id: str, offset: int = 0, limit: int = 20_000) -> Page:
        """Return a page of the text at an address. Raises NotFound."""
        return self._addresses.open(address, conversation_id=conversation_id, offset=offset, limit=limit)


class _Search:
    """One search: reads within one transaction, so that it sees one state of the store."""

    def __init__(
        self, context: StoreContext, outputs: OutputStore, vectors: VectorIndex, query: SearchQuery, *, enough: int
    ) -> None:
        self._context = context
        self._outputs = outputs
        self._vectors = vectors
        self._query = query
        self._enough = enough
        self._totals = [(0.0, True) for _ in query.terms]
        self.texts = 0.0
        self.indexed_share = 1.0
        self.highest = 0
        self._ranker = Ranker(query, [0.0] * len(query.terms))
        self._snippets = Snippets((), ())
        self._replies: Mapping[int, Sequence[ReplyMessage]] = {}

    @property
    def ignored(self) -> tuple[str, ...]:
        return self._query.ignored

    def read_replies(self, tx: Transaction, matches: Sequence[TextMatch], scope: SearchScope) -> None:
        """Read the replies to the questions among the matches of a page."""
        self._replies = read_replies(tx, matches, scope, highest=self.highest)

    def run(self, tx: Transaction, scope: SearchScope, *, highest: int | None, asked: set[int]) -> list[TextMatch]:
        """Return the ranked matches, best first.

        `highest` keeps pages of one search on the same messages; the questions `asked` just now have no answer yet.
        """
        self.indexed_share = load_progress(tx).share
        messages, outputs = _id_ranges(tx, highest)
        if messages is None:
            return []
        self.highest = messages.highest
        searches = [self._candidates(tx, "message", scope, messages)]
        if outputs is not None and scope.includes_outputs:
            searches.append(self._candidates(tx, "output", scope, outputs))
        weights = term_weights(searches, self._query)
        self.texts = sum(s.texts() for s in searches)
        self._totals = [
            (sum(s.postings[n].total for s in searches), all(s.postings[n].is_complete for s in searches))
            for n in range(len(self._query.terms))
        ]
        ranker = self._ranker = Ranker(self._query, weights)
        expected = expected_answer(self._query.text)
        self._snippets = Snippets(self._query.terms, ranker.weights, expected.fits if self._query.has_meaning else None)
        matches = list(self._messages(tx, searches[0], ranker, scope))
        if len(searches) > 1:
            matches += self._indexed_outputs(tx, searches[1], ranker, scope)
            matches += self._large_outputs(tx, ranker, scope)
        matches = self._with_calls(tx, matches, ranker, scope)
        answers = answers_before(tx, matches, ranker, scope, highest=self.highest, asked=asked)
        matches += self._read_unmatched(tx, answers, ranker, scope, matched_ids=message_ids(matches))
        matches = with_questions(matches, answers)
        if not self._query.has_meaning:
            return sort_matches(with_conversations(matches, ranker))
        near = self._vectors.nearest(tx, self._query.text, limit=_NEAREST)
        if near is not None:
            self._snippets.similarity = near.of_passages
            matches += self._by_meaning(tx, near, ranker, scope, matched_ids=message_ids(matches))
        working = working_sessions(matches)
        around_best = turn_neighbours(tx, matches, working)
        around = (i for i in [*around_best.openers.values(), *around_best.following] if i <= self.highest)
        matches += self._read_unmatched(tx, around, ranker, scope, matched_ids=message_ids(matches))
        best, newest = self._newest(tx, matches, ranker) if self._query.is_about_present else ("", [])
        ids = [ident for ident, _ in newest]
        matches += self._read_unmatched(tx, ids, ranker, scope, matched_ids=message_ids(matches))
        if near is not None:
            matches = with_similar_words(matches, ranker, near.model)
        ranked = with_similarity(with_turns(with_conversations(matches, ranker), around_best.openers), near)
        ranked = with_answers(ranked, expected, working)
        if self._query.dates:
            ranked = with_dates(ranked, self._query.dates)
        return sort_matches(with_newest(ranked, best, newest[0][1]) if newest else ranked)

    def _newest(
        self, tx: Transaction, matches: Sequence[TextMatch], ranker: Ranker
    ) -> tuple[str, Sequence[tuple[int, int]]]:
        """Return the conversation of the best match, and the ids and seqs of its newest messages."""
        ranked = sort_matches(with_conversations([m for m in matches if m.is_message], ranker))
        if not ranked:
            return "", []
        best = ranked[0].conversation_id
        return best, newest_messages(tx, best, highest=self.highest)

    def _with_calls(
        self, tx: Transaction, matches: Sequence[TextMatch], ranker: Ranker, scope: SearchScope
    ) -> list[TextMatch]:
        """Rank each result together with its call, and add the results of calls that match."""
        if self._query.required or len(self._query.terms) < _MIN_JOINED_TERMS:
            return list(matches)
        calls = {i: c for i, c in call_texts(tx, matches).items() if i <= self.highest and ranker.title_terms(c)}
        ranked = [_join_call(m, calls[m.row[0]], ranker) if m.is_message and m.row[0] in calls else m for m in matches]
        return [*ranked, *self._read_unmatched(tx, calls, ranker, scope, matched_ids=message_ids(matches), calls=calls)]

    def _by_meaning(
        self, tx: Transaction, near: Similarities, ranker: Ranker, scope: SearchScope, *, matched_ids: set[int]
    ) -> Iterator[TextMatch]:
        """Yield the messages nearest in meaning that no word found."""
        share = near.of(near.nearest)
        ids = [i for i in near.nearest if i <= self.highest and share[i] >= _MIN_SIMILARITY]
        return self._read_unmatched(tx, ids, ranker, scope, matched_ids=matched_ids)

    def _read_unmatched(
        self,
        tx: Transaction,
        ids: Iterable[int],
        ranker: Ranker,
        scope: SearchScope,
        *,
        matched_ids: set[int],
        calls: Mapping[int, str] = MappingProxyType({}),
    ) -> Iterator[TextMatch]:
        """Yield the messages in scope that are not `matched_ids`; results of `calls` with their call."""
        missing = [i for i in dict.fromkeys(ids) if i not in matched_ids]
        rows = _rows_by_id(tx, "message", missing, scope) if missing else {}
        for ident in missing:
            if ident in rows and scope.role in (None, rows[ident][5]):
                text = stored_text(rows[ident][-2], rows[ident][-1], rows[ident][5], seq=rows[ident][4])
                text = f"{calls[ident]}\n{text}" if ident in calls else text
                yield TextMatch(rows[ident], text, ranker.score(text, kind=rows[ident][5]))

    def to_hit(self, fused: FusedMatch) -> SearchHit:
        match = fused.match
        _, conversation, session, tip, place, kind, created_at, title, *_ = match.row
        line, marks, offset = self._snippets.excerpt(match.text)
        matched = (self._query.terms[n] for n in sorted(match.relevance.matched))
        return SearchHit(
            conversation_id=to_text(conversation),
            session_id=to_text(session),
            tip_session_id=to_text(tip),
            address=f"m:{place}" if match.is_message else f"output:{place}",
            role=to_text(kind),
            created_at_ms=to_time_ms(created_at),
            snippet=highlight(line, marks),
            title=to_text(title),
            excerpt=line,
            offset=max(0, match.start + offset),
            marks=marks,
            score=round(fused.score, 4),
            matched=tuple(t.label for t in matched if not t.is_part),
            answer=self._answer(match),
        )

    def _answer(self, match: TextMatch) -> SearchAnswer | None:
        replies = self._replies.get(match.row[0]) if match.is_message else None
        if not replies:
            return None
        reply = best_reply(replies, self._ranker)
        line, marks, _ = self._snippets.excerpt(reply.text)
        role = expected_reply(match) or "assistant"
        return SearchAnswer(f"m:{reply.seq}", highlight(line, marks), line, marks, role)

    def word_counts(self) -> tuple[WordCount, ...]:
        return tuple(
            WordCount(term.label, round(total), is_exact=is_exact)
            for term, (total, is_exact) in zip(self._query.terms, self._totals, strict=True)
            if not term.is_part
        )

    def _candidates(self, tx: Transaction, index: IndexName, scope: SearchScope, ids: IdRange) -> CandidateSearch:
        return CandidateSearch(tx, self._context.index, index, self._query, scope, ids)

    def _messages(
        self, tx: Transaction, search: CandidateSearch, ranker: Ranker, scope: SearchScope
    ) -> Iterator[TextMatch]:
        for row, terms in self._rows(tx, "message", search, ranker, scope, enough=self._enough):
            text = stored_text(row[-2], row[-1], row[5], seq=row[4])
            yield TextMatch(row, text, ranker.score(text, terms, kind=row[5]))

    def _indexed_outputs(
        self, tx: Transaction, search: CandidateSearch, ranker: Ranker, scope: SearchScope
    ) -> Iterator[TextMatch]:
        for row, terms in self._rows(tx, "output", search, ranker, scope, enough=_RANKED_OUTPUTS):
            # An output whose file is missing cannot be shown.
            with suppress(StoreError):
                text = "".join(self._outputs.blobs.chunks(to_text(row[-2])))
                yield TextMatch(row, text, ranker.score(text, terms))

    def _large_outputs(self, tx: Transaction, ranker: Ranker, scope: SearchScope) -> Iterator[TextMatch]:
        budget = _SCANNED_CHARS
        where, values = scope.conditions("o")
        sql = f"{_OUTPUT} WHERE o.is_indexed = 0{where} ORDER BY o.number DESC LIMIT 200"
        for row in tx.rows(sql, values):
            budget -= to_int(row[-1])
            if budget < 0:
                return
            passage = self._passage(row)
            if passage is not None:
                text, start = passage
                yield TextMatch(row, text, ranker.score(text, range(len(self._query.terms))), start=start)

    def _rows(
        self,
        tx: Transaction,
        index: IndexName,
        search: CandidateSearch,
        ranker: Ranker,
        scope: SearchScope,
        *,
        enough: int,
    ) -> Iterator[tuple[Row, frozenset[int]]]:
        """Yield the rows of the best candidates in scope with their known terms."""
        candidates = search.candidates(ranker.weights, enough=enough).rank(ranker.weights)
        yielded = examined = 0
        while yielded < enough and examined < _MAX_EXAMINED:
            batch = dict(islice(candidates, min(_BATCH, enough) if not examined else _BATCH * 4))
            if not batch:
                return
            examined += len(batch)
            rows = _rows_by_id(tx, index, list(batch), scope)
            for ident, terms in batch.items():
                if ident in rows and yielded < enough:
                    yielded += 1
                    yield rows[ident], terms

    def _passage(self, row: Row) -> tuple[str, int] | None:
        """Return the first part of a large output that has a term, and its offset, if the output has all terms."""
        terms = [t for t in self._query.terms if not t.is_part]
        missing, tail, end = terms, "", 0
        passage: tuple[str, int] | None = None
        with suppress(StoreError):
            for chunk in self._outputs.blobs.chunks(to_text(row[-2])):
                # Chunks overlap, so that a match across their boundary is not missed.
                part = tail + chunk
                folded = fold_text(part)
                matching = [t for t in missing if _occurs(t, folded)]
                passage = (part, end - len(tail)) if matching and passage is None else passage
                end += len(chunk)
                missing = [t for t in missing if t not in matching]
                if not missing:
                    return passage
                tail = chunk[-_OVERLAP_CHARS:]
        return None


def _with_replies(hits: Sequence[SearchHit]) -> tuple[SearchHit, ...]:
    """Join each request with the reply below it, so that no question comes before its answer."""
    positions = {(h.conversation_id, h.address): n for n, h in enumerate(hits)}
    replies: set[int] = set()
    result: list[SearchHit] = []
    for number, hit in enumerate(hits):
        reply = positions.get(_answer_key(hit))
        if number in replies:
            continue
        if reply is not None and reply > number:
            replies.add(reply)
        result.append(replace(hit, answer=None) if reply is not None and reply < number else hit)
    return tuple(result)


def _answer_key(hit: SearchHit) -> tuple[str, str]:
    return hit.conversation_id, hit.answer.address if hit.answer is not None else ""


def _join_call(match: TextMatch, call: str, ranker: Ranker) -> TextMatch:
    """Rank a result again, together with its call."""
    text = f"{call}\n{match.text}"
    return match._replace(
        text=text, start=-len(call) - 1, relevance=ranker.score(text, match.relevance.matched, kind=match.row[5])
    )


def _distinct(query: str, rewordings: Sequence[str]) -> list[str]:
    """Return the different queries, the first and at most so many rewordings."""
    texts: dict[str, str] = {}
    for text in (query, *rewordings):
        texts.setdefault(" ".join(text.casefold().split()), text)
    return list(texts.values())[: 1 + MAX_REWORDINGS]


def _without_quotes(query: str) -> SearchQuery:
    return parse_query(query.replace('"', " "))


def _occurs(term: Term, folded: str) -> bool:
    """Return whether a folded text has a term, for scanning without an index."""
    return any(f in folded for f in term.forms) if term.forms else term.needle in folded


def _rows_by_id(tx: Transaction, index: IndexName, ids: Sequence[int], scope: SearchScope) -> dict[int, Row]:
    select, key = (_MESSAGE, "m.id") if index == "message" else (_OUTPUT, "o.number")
    where, values = scope.conditions("m" if index == "message" else "o")
    placeholders = ", ".join("?" * len(ids))
    more: list[Value] = [*ids, *values]
    return {row[0]: row for row in tx.rows(f"{select} WHERE {key} IN ({placeholders}){where}", more)}


def _id_ranges(tx: Transaction, highest: int | None) -> tuple[IdRange | None, IdRange | None]:
    """Return the ids of all messages, up to `highest`, and of all outputs; None where there are none."""
    columns = ("message", "id"), ("output", "number")
    # A subquery for each, because one with both aggregates reads the whole table in SQLite.
    bounds = (f"(SELECT {end}({column}) FROM {table})" for table, column in columns for end in ("MIN", "MAX"))
    first, last, first_output, last_output = tx.row(f"SELECT {', '.join(bounds)}") or (None,) * 4
    messages = None if first is None else IdRange(first, last if highest is None else min(last, highest))
    return messages, None if first_output is None else IdRange(first_output, last_output)


def _parse_cursor(cursor: str | None) -> tuple[int, int | None]:
    """Return where a page starts, and the newest message it may contain. Raises StoreError."""
    if cursor is None:
        return 0, None
    start, _, highest = cursor.partition(".")
    if not (start.isdecimal() and highest.isdecimal() and len(cursor) < 40):
        raise StoreError("the cursor is invalid; pass the one of the previous page, or none for the first")
    return min(int(start), MAX_RESULTS), int(highest)
