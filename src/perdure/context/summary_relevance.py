"""Decide whether a summary is about its source: a fluent text about something else is no summary.

A statement of a true summary shares most of its rare terms with one passage of the source. Terms are weighted by
their rarity among the passages, so that words which fit any project prove little. A summary in another language than
its source is judged by what languages share: numbers, identifiers and paths. Where there are too few of these,
nothing is decided.

Words of one project fit each of its sessions; its exact values do not. Of the numbers, names in code, paths and commits
that a true summary states, nearly all occur in the source as they are written.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Set

_TERM = re.compile(
    r"(?<![^\W\d_])[^\W\d_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{3,6}|(?<!\d)\d{2,8}",
)
_ASCII_TERM = re.compile(r"(?<![a-z])[a-z]{3,6}|(?<!\d)\d{2,8}")
_LONGEST_WORD, _LONGEST_NUMBER = 6, 8
_LETTERS = bytes(byte if chr(byte) in string.ascii_lowercase else 32 for byte in range(256))
_DIGITS = bytes(byte if chr(byte) in string.digits else 32 for byte in range(256))
# Signs that end a word, in otherwise plain text.
_SIGNS = "…→“”‘’–—·•×✓✗"
_CJK_RUN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2,}")
# Words that no translation changes: with a digit, an underscore, a capital inside, or parts joined by signs.
_WORD = re.compile(r"[A-Za-z0-9_./:@%-]{2,}")
_NAME_SIGN = re.compile(r"[\d_]|[A-Za-z][./:@-][A-Za-z0-9]|[a-z][A-Z]|[A-Z]{2}")
_LATIN_WORD = re.compile(r"[A-Za-z]{3,}")
# Speakers of a transcript.
_LABELS = frozenset(f"{name}{sign}" for name in ("USER", "ASSISTANT", "REPORT", "NOTE", "TOOL") for sign in ("", ":"))
# Frequent words that distinguish languages of one script; a word of two languages is left out.
_LANGUAGES = {
    word: language
    for language, words in {
        "en": "the of and to is that for with was this are it not be from by on",
        "de": "der die und den das ist nicht mit ein eine für auf sich von wurde zu",
        "fr": "le la les des et est une pour dans que qui avec sur du au par",
        "es": "el los las y del por con una para se como fue más su al",
        "it": "il di che è per gli della con sono una nel non si dei",
        "pt": "o os da do não em uma com para ao dos foi mais como",
        "nl": "het een van dat niet op zijn voor aan met wordt er bij",
        "pl": "się nie jest na że przez dla są oraz jak było",
        "sv": "och att som på är för inte av ett med till",
        "tr": "ve bir bu için ile olarak değil var daha gibi",
        "ru": "и в не на что с по для это был как из",
        "uk": "і та що не для це був як із до",
    }.items()
    for word in words.split()
}
_SHORT_WORD = re.compile(r"(?<![^\W\d_])[^\W\d_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{1,5}(?![^\W\d_])")
_SCRIPTS = {
    "kana": re.compile(r"[\u3040-\u30ff]"),
    "hangul": re.compile(r"[\uac00-\ud7af]"),
    "han": re.compile(r"[\u3400-\u9fff]"),
    "cyrillic": re.compile(r"[\u0400-\u04ff]"),
    "arabic": re.compile(r"[\u0590-\u06ff]"),
    "latin": re.compile(r"[A-Za-z\u00c0-\u024f]"),
}
_ORDINAL = re.compile(r"^\W*\d{1,3}[.)]\s")
_PASSAGE_CHARS = 600
_OVERLAP_CHARS = 100
_MOST_STATEMENTS = 40
_FEWEST_TERMS = 4
# Mean share of a statement's weight that its best passage has. On recorded sessions true summaries have 0.6 and more,
# invented ones below 0.3; one that is half true is accepted, and its inventions are marked.
_LEAST_SHARE = 0.33
# Fewer statements may be all new words for what happened.
_FEWEST_STATEMENTS = 4
# Share of its letters in another script from which a source has passages in another language.
_MIXED = 0.15
# Letters of an alphabet that correspond to one character of these scripts.
_LETTERS_PER_CHARACTER = {"kana": 2, "hangul": 3, "han": 4}
_FEWEST_NAMES = 6
_LEAST_NAMES = 0.2
_LEAST_NAME_CHARS = 3
# Fewer names are none that a summary would need; among many, one may match by chance.
_FEW_NAMES = 3
_RICH_IN_NAMES = 30
_SAMPLE_CHARS = 20_000
# Values that no two sessions share by chance: three digits, digits among letters, names in code, paths, files.
_VALUE_WORD = re.compile(r"[A-Za-z0-9_./:@%#+-]{4,}")
_VALUE_SIGN = re.compile(
    r"\d\D?\d\D?\d|[A-Za-z]\d|\d[A-Za-z]|_|[a-z][A-Z]|[A-Za-z0-9][/@][A-Za-z0-9]|[a-z0-9]\.[a-z]{1,4}\b"
)
# Of so many values this share has to occur in the source. Summaries of the source itself have 0.89 and more, those of
# other sessions of the project 0.1 to 0.7.
_FEWEST_VALUES = 8
_LEAST_VALUES = 0.5


def is_about(summary: str, source: str) -> bool:
    """Return whether a summary shares enough with its source; True where that cannot be decided."""
    body = "\n".join(line for line in summary.splitlines() if not line.lstrip().startswith("#"))
    if not _shares_values(body, source):
        return False
    statements = [terms for terms in _statements(body) if len(terms) >= _FEWEST_TERMS]
    statements = statements[:: max(1, len(statements) // _MOST_STATEMENTS)]
    if len(statements) < _FEWEST_STATEMENTS:
        return True
    passages = _Passages(source, frozenset().union(*statements))
    shares = [passages.best_share(terms) for terms in statements]
    if sum(shares) >= _LEAST_SHARE * len(shares):
        return True
    return _is_foreign(body, source) and _shares_names(body, source)


class _Passages:
    """An index of the passages of a source by the terms of the summary."""

    def __init__(self, source: str, wanted: frozenset[str]) -> None:
        self._by_term: defaultdict[str, list[int]] = defaultdict(list)
        self._count = 0
        for terms in _terms_of_passages(source.lower(), wanted):
            for term in terms:
                self._by_term[term].append(self._count)
            self._count += 1

    def best_share(self, terms: Iterable[str]) -> float:
        """Return the weight of the terms that one passage has together, as a share of their whole weight."""
        total, by_passage = 0.0, defaultdict[int, float](float)
        for term in terms:
            passages = self._by_term.get(term, ())
            weight = math.log(1 + self._count / (len(passages) or 0.5))
            total += weight
            for passage in passages:
                by_passage[passage] += weight
        return max(by_passage.values(), default=0.0) / total if total else 0.0


def _is_foreign(body: str, source: str) -> bool:
    """Return whether the summary is in another language than the source or a part of it."""
    script, share = _script_of(body)
    if not script or 1 - _script_shares(source)[script] > max(_MIXED, 1 - share):
        return True
    return _language_of(body) != _language_of(source[:_SAMPLE_CHARS])


def _shares_names(body: str, source: str) -> bool:
    """Return whether enough names of the summary are the source's; True where the source has none to share."""
    names, theirs = _names(body), _names(source)
    known = len(names & theirs)
    if len(theirs) < _FEW_NAMES:
        return known > 0 or len(names) < _FEWEST_NAMES
    return known >= max(1 if len(theirs) < _RICH_IN_NAMES else 2, _LEAST_NAMES * len(names))


def _shares_values(body: str, source: str) -> bool:
    """Return whether enough exact values of the summary occur in the source; True where it states few."""
    words = (word.strip(".,:;-+#%/").lower() for word in _VALUE_WORD.findall(body) if _VALUE_SIGN.search(word))
    values = sorted({word for word in words if len(word) > _LEAST_NAME_CHARS})
    if len(values) < _FEWEST_VALUES:
        return True
    values, low = values[:: max(1, len(values) // _MOST_STATEMENTS)], source.lower()
    return sum(value in low for value in values) >= _LEAST_VALUES * len(values)


def _terms_of_passages(low: str, wanted: frozenset[str]) -> Iterator[Set[str]]:
    """Yield the wanted terms of each passage of a text in lower case."""
    for sign in _SIGNS:
        low = low.replace(sign, " ")
    # Of plain passages the beginnings of words and numbers, as the pattern has them, in a fraction of its time.
    raw = low.encode("ascii", "replace")
    letters, digits = raw.translate(_LETTERS), raw.translate(_DIGITS)
    plain = {term.encode("ascii"): term for term in wanted if term.isascii()}
    has_numbers = any(term.isdigit() for term in plain)
    for start, end in _split_passages(low):
        if not low[start:end].isascii():
            yield wanted & _terms(low[start:end])
            continue
        words = {word[:_LONGEST_WORD] for word in letters[start:end].split()}
        if has_numbers:
            words.update(number[:_LONGEST_NUMBER] for number in digits[start:end].split())
        yield {plain[word] for word in words & plain.keys()}


def _split_passages(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of overlapping passages; lines stay together where they are short."""
    start = 0
    while start < len(text):
        end = min(start + _PASSAGE_CHARS, len(text))
        newline = text.rfind("\n", start + _PASSAGE_CHARS // 2, end)
        end = newline if newline > 0 and end < len(text) else end
        yield max(0, start - _OVERLAP_CHARS), end
        start = end


def _terms(low: str) -> set[str]:
    """Return the beginnings of words, the numbers and the pairs of CJK characters in a text in lower case."""
    if low.isascii():
        return set(_ASCII_TERM.findall(low))
    terms = set(_TERM.findall(low))
    for run in _CJK_RUN.findall(low):
        terms.update(run[i : i + 2] for i in range(len(run) - 1))
    return terms


def _statements(body: str) -> Iterator[set[str]]:
    """Yield the terms of each line; a line with few of them is read together with the next."""
    terms: set[str] = set()
    for line in body.lower().splitlines():
        terms |= _terms(_ORDINAL.sub("", line))
        if len(terms) >= _FEWEST_TERMS:
            yield terms
            terms = set()
    if terms:
        yield terms


def _names(text: str) -> set[str]:
    pieces = [word for word in _WORD.findall(text) if _NAME_SIGN.search(word)]
    if _script_of(text)[0] not in ("latin", ""):
        pieces += _LATIN_WORD.findall(text)  # Latin words in another script are names, too
    names = set().union(*(_ASCII_TERM.findall(piece.lower()) for piece in pieces if piece not in _LABELS))
    return {name for name in names if len(name) >= _LEAST_NAME_CHARS}


def _script_of(text: str) -> tuple[str, float]:
    """Return the script that identifies the language of a text, and its share; a few kana mean Japanese."""
    shares = _script_shares(text)
    for script, least in (("kana", 0.1), ("hangul", 0.2), ("han", 0.2)):
        if shares[script] >= least:
            return script, shares[script]
    script = max(shares, key=lambda name: shares[name])
    return (script, shares[script]) if shares[script] else ("", 0.0)


def _script_shares(text: str) -> dict[str, float]:
    sample = text if len(text) <= _SAMPLE_CHARS else text[:: len(text) // _SAMPLE_CHARS]
    counts = {
        name: len(pattern.findall(sample)) * _LETTERS_PER_CHARACTER.get(name, 1) for name, pattern in _SCRIPTS.items()
    }
    total = sum(counts.values()) or 1
    return {name: count / total for name, count in counts.items()}


def _language_of(text: str) -> str:
    """Return the language with most of the frequent words; "" without any of them."""
    counts = Counter(_LANGUAGES[word] for word in _SHORT_WORD.findall(text.lower()) if word in _LANGUAGES)
    return counts.most_common(1)[0][0] if counts else ""
