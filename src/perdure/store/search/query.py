"""Parse search queries. Any text is a valid query; parsing never raises.

plain words        ranked: rare ones count more         "in quotes"       required, these words adjacent
prefix*            words with this prefix               src/gate.py       as written, or its parts adjacent
模型               these characters adjacent; longer runs are ranked by their pairs
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from perdure.store.search.dates import CalendarDate, find_dates
from perdure.store.search.tokenizer import fold_text, is_cjk, split_chunks, strip_accents, tokenize
from perdure.store.search.words import STOP_WORDS, word_forms

_PIECE = re.compile(r'"([^"]*)"|(\S+)')
_MAX_CLAUSES = 64
_MAX_TOKENS = 32
_MAX_TERMS = 24
# Words by which a question asks about the present state, not for the words themselves.
_PRESENT = re.compile(
    r"\b(?:right now|now that|at (?:the|this) (?:moment|point)|current(?:ly)?|in progress|under ?way|so far|still"
    r"|most recent(?:ly)?|latest|newest|ask(?:ed)? last|not .{0,20}\byet|remain(?:s|ing)?"
    r"|left (?:to|over|open|off|undone)"
    r"|last (?:message|edit|step|command|result|run|thing|change|commit|known|request|question|answer|test)s?"
    r"|next (?:steps?|things?|tasks?)|(?:do|done|happens?) next|pending|unfinished|interrupted)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Clause:
    """A condition on a text: adjacent `parts` and all `wholes`, or, tried first, `exact` alone.

    `names` are the components of a path, for paths typed in another case than stored.
    """

    needle: str
    parts: tuple[str, ...] = ()
    wholes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    is_prefix: bool = False
    is_quoted: bool = False
    exact: str | None = None

    @property
    def is_word(self) -> bool:
        """Whether the clause is a single word, which matches a part or a whole."""
        return len(self.parts) == 1 and not self.wholes


@dataclass(frozen=True, slots=True)
class Term:
    """A term that texts are ranked by: a word in any of its `forms`, or a `needle` that occurs literally.

    A text has the term if one of `clauses` matches. A part of a name (`is_part`) only adds to the rank of texts found
    by other terms, unless the whole name occurs nowhere.
    """

    label: str
    clauses: tuple[Clause, ...]
    forms: tuple[str, ...] = ()
    needle: str = ""
    is_part: bool = False

    @property
    def is_required(self) -> bool:
        return self.clauses[0].is_quoted

    @property
    def is_name(self) -> bool:
        """Whether the term is an identifier or a path, which may also match by its adjacent parts."""
        return bool(self.needle) and len(self.clauses[0].parts) > 1 and not self.is_required


@dataclass(frozen=True)
class SearchQuery:
    """A parsed query: what to rank by, and the words that were ignored because they mean nothing."""

    text: str
    terms: tuple[Term, ...]
    ignored: tuple[str, ...] = ()

    @property
    def has_meaning(self) -> bool:
        """Whether the query is a sentence or several words, which other words may answer.

        A name, a phrase, a prefix or two words ask for themselves.
        """
        words = sum(1 for t in self.terms if t.forms and not t.is_part)
        return not self.required and words >= (2 if self.ignored else 3)

    @cached_property
    def is_about_present(self) -> bool:
        """Whether the query is a question about the present state, which the newest messages answer."""
        return self.has_meaning and _PRESENT.search(self.text) is not None

    @cached_property
    def dates(self) -> tuple[CalendarDate, ...]:
        """The days and months that a question names."""
        return find_dates(self.text) if self.has_meaning else ()

    @cached_property
    def required(self) -> tuple[Term, ...]:
        return tuple(t for t in self.terms if t.is_required)


def parse_query(text: str) -> SearchQuery:
    """Return the terms of a query; none for a text without letters and digits."""
    terms: dict[str, Term] = {}
    ignored: dict[str, None] = {}
    for term in _terms(parse(text)):
        if term.label in STOP_WORDS and len(term.forms) and not term.clauses[0].is_prefix:
            ignored[term.label] = None
        else:
            terms.setdefault(_key(term), term)
    if not terms:
        # The query has only stop words, so search for those.
        words = [Term(w, (Clause(w, (w,), names=(w,)),), (w,)) for w in ignored]
        return SearchQuery(text, tuple(words[:_MAX_TERMS]))
    return SearchQuery(text, tuple(terms.values())[:_MAX_TERMS], tuple(ignored))


def _key(term: Term) -> str:
    """Return what makes two terms the same: words with the same forms are one."""
    return f'"{term.needle}"' if term.needle else min(term.forms, key=lambda f: (len(f), f))


def _terms(clauses: Iterable[Clause]) -> Iterator[Term]:
    for clause in clauses:
        if clause.is_quoted:
            yield Term(f'"{clause.needle}"', (clause,), needle=clause.needle)
        elif clause.is_prefix:
            yield Term(f"{clause.needle}*", (clause,), needle=clause.needle)
        elif clause.is_word:
            yield _word_term(clause.parts[0])
        elif clause.exact is None:
            yield from _pieces(clause)
        else:
            yield Term(clause.needle, (clause,), needle=clause.needle)
            # Hyphens join plain words, which are also written apart; other joiners make names.
            is_prose = all(p.isalpha() for p in clause.parts) and clause.exact == "-".join(clause.parts)
            yield from (_word_term(p, is_part=not is_prose) for p in clause.parts if len(p) > 1)


def _word_term(word: str, *, is_part: bool = False) -> Term:
    forms = word_forms(word)
    return Term(word, tuple(Clause(f, (f,), names=(f,)) for f in forms), forms, is_part=is_part)


def _pieces(clause: Clause) -> Iterator[Term]:
    """Yield the words of a piece that is not a name, such as `it's`, and the pairs of its CJK characters."""
    for pair in clause.wholes:
        yield Term(pair, (Clause(pair, tuple(pair), exact=pair),), needle=pair)
    for part in clause.parts:
        if not is_cjk(part[0]):
            yield _word_term(part)


def parse(text: str) -> tuple[Clause, ...]:
    """Return the clauses of a query, in order; none for a text without letters and digits."""
    clauses: dict[Clause, None] = {}
    for quoted, bare in _PIECE.findall(text):
        for clause in _phrase(quoted) if quoted else _word(bare):
            clauses[clause] = None
            if len(clauses) == _MAX_CLAUSES:
                return tuple(clauses)
    return tuple(clauses)


def _phrase(text: str) -> list[Clause]:
    tokens = tokenize(text)
    pairs = tuple(w for w in tokens.wholes if is_cjk(w[0]))
    if not tokens.parts:
        return []
    return [Clause(fold_text(text), tokens.parts[:_MAX_TOKENS], pairs[:_MAX_TOKENS], is_quoted=True)]


def _word(text: str) -> list[Clause]:
    """Return a clause for each word, name or CJK run of a piece; a `*` at its end makes the last one a prefix."""
    pieces = split_chunks(text)
    is_prefix = text.endswith("*") and len(text) > 1
    return [_chunk(c, is_prefix=is_prefix and n == len(pieces)) for n, c in enumerate(pieces, 1)]


def _chunk(text: str, *, is_prefix: bool) -> Clause:
    tokens = tokenize(text)
    needle = fold_text(text)
    if len(tokens.parts) == 1:
        return Clause(needle, tokens.parts, names=tokens.parts, is_prefix=is_prefix)
    pairs = tuple(w for w in tokens.wholes if is_cjk(w[0]))
    exact = tokens.wholes[0] if tokens.wholes and not pairs and not is_prefix else None
    names = () if pairs else _names(text)
    return Clause(needle, tokens.parts[:_MAX_TOKENS], pairs[:_MAX_TOKENS], names, is_prefix, exact=exact)


def _names(text: str) -> tuple[str, ...]:
    """Return the indexed tokens of a path's components."""
    names: list[str] = []
    for piece in strip_accents(text).split("/"):
        tokens = tokenize(piece)
        names += tokens.wholes[:1] or tokens.parts
    return tuple(names[:_MAX_TOKENS])
