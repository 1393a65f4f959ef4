"""Conversations whose messages are the content: chats, advice, support cases.

In work on files the results of calls hold the facts, and most of what the assistant writes is narration. In a
conversation the sentences of both sides are the facts, and greetings are what can be left out. `Dialogue` measures what
a sentence states: names, numbers, dates and words that are rare in this conversation count, words that every other
message has count little.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from perdure.context.record.entries import count_chars
from perdure.context.record.messages import Speaker, Statement
from perdure.context.record.task import CallLine
from perdure.context.text import Passage, clip_short, size_of, split_sentences
from perdure.core.messages import Entry

# Shares of the messages in the text of a session, beside the calls that work on something: a dialogue from the first.
_LEAST_SHARE, _WHOLE_SHARE = 0.5, 0.8
# The newest messages decide about a longer session.
_MOST_ENTRIES = 2_500
_SPEAKERS: frozenset[Speaker] = frozenset(("user", "assistant"))
_KANA = "\u3040-\u309f"
_KATAKANA = "\u30a0-\u30ff\uff66-\uff9f"
_HAN = "\u3400-\u4dbf\u4e00-\u9fff々"
_HANGUL = "\uac00-\ud7af"
_CJK = f"{_KANA}{_KATAKANA}{_HAN}{_HANGUL}"
_LATIN_TERM = re.compile(r"(?P<code>[$€£¥]?[\w.,:/%#-]{0,40}?\d[\w.,:/%#-]{0,40})|(?P<word>[^\W\d]{3,})")
_TERM = re.compile(
    r"(?P<title>《[^《》\n]{1,30}》|『[^『』\n]{1,30}』|「[^「」\n]{2,20}」)"
    rf"|(?P<katakana>[{_KATAKANA}]{{2,}})|(?P<han>[{_HAN}]+)|(?P<hangul>[{_HANGUL}]{{2,}})"
    rf"|(?P<code>[$€£¥]?(?:[^\W{_CJK}]|[.,:/%#-]){{0,40}}?\d(?:[^\W{_CJK}]|[.,:/%#-]){{0,40}})"
    rf"|(?P<word>[^\W\d{_CJK}]{{3,}})"
)
# What a term counts in its first message.
_CODE_WEIGHT = 1.0
_NAME_WEIGHT = 0.9
# The title of a book, a film, a game.
_TITLE_WEIGHT = 1.4
_HAN_WEIGHT = 0.6
_HANGUL_WEIGHT = 0.5
_WORD_WEIGHT = 0.35
_SHORT_WEIGHT = 0.2
_PAIR_WEIGHT = 0.3
_MOST_WEIGHT = 4.0
_SHARE_EXPONENT = 0.7
# The sentences of a message beside the one with the most information.
_OTHER_FACTOR = 0.7
# Weight of the information in a passage, against its worth by kind (0 to 1).
_KIND_BASE = 0.45
# A term that an earlier message has.
_AGAIN_FACTOR = 0.3
# Longer runs of Han are sentences without blanks, as in Chinese: each pair of characters is a term.
_LONGEST_HAN_WORD = 4
_MOST_CHARS = 2_000
# What information counts beside the worth of calls; less is a greeting or a polite phrase.
_INFORMATION_WEIGHT = 0.6
_LEAST_INFORMATION = 0.15
# A passage of this size has the worth of its information; a longer one needs more for the same.
_TYPICAL_SIZE = 60
_LEAST_SIZE = 20
_SIZE_EXPONENT = 0.4
# An answer up to this size is understood with its question alone.
_LONGEST_BARE_ANSWER = 70
_ANSWER_SHARE = 0.5
_QUESTION_FACTOR = 0.5
_ASKS = re.compile(r"[?？]\W*$|(?:か|の|かな)[。～〜]?$|[吗呢][。]?$|(?:까요|나요|니까)[.]?$")
_GREETS = re.compile(
    r"\W*(?:hi\b|hello\b|hey\b|good (?:morning|afternoon|evening)|greetings\b|hallo\b|guten (?:tag|morgen|abend)"
    r"|bonjour\b|hola\b|ciao\b|olá\b|привет|здравствуйте|добрый|こんにち|こんばん|おはよう|はじめまして|初めまして"
    r"|よろしくお願い|你好|您好|早上好|晚上好|안녕)",
    re.IGNORECASE,
)
# Fewer statements do not make a conversation: the greeting is part of the one before.
_FEWEST_STATEMENTS = 4


def dialogue_share(entries: Sequence[Entry], lines: Mapping[tuple[int, str], CallLine]) -> float:
    """Return how much of a stretch is a dialogue, 0 to 1: its messages, beside calls on files, commands and pages.

    Calls of services, whose results are records of a few values, count on neither side.
    """
    dialogue_chars = work_chars = 0
    is_work = False
    for entry in entries[-_MOST_ENTRIES:]:
        message = entry.message
        if message.role == "tool":
            if is_work:
                work_chars += entry.memoized("chars") or entry.memo("chars", count_chars)
            continue
        chars = len(message.text)
        if message.kind in _SPEAKERS:
            dialogue_chars += chars
        if message.tool_calls:
            called = [lines.get((entry.seq, c.id)) for c in message.tool_calls]
            is_work = any(line is None or line.kind != "other" for line in called)
            if is_work:
                work_chars += (entry.memoized("chars") or entry.memo("chars", count_chars)) - chars
    share = dialogue_chars / max(1, dialogue_chars + work_chars)
    return min(1.0, max(0.0, (share - _LEAST_SHARE) / (_WHOLE_SHARE - _LEAST_SHARE)))


@dataclass(frozen=True, slots=True)
class Utterance:
    """A statement of a dialogue by sentences, with the terms of each and what they count."""

    statement: Statement
    terms: tuple[Mapping[str, float], ...]
    asks: bool
    # The first words greet: another conversation may begin here.
    greets: bool


def read_utterance(statement: Statement) -> Utterance:
    """Split a statement into sentences and read their terms. Pure, so the result can be cached."""
    if statement.speaker == "user":
        statement = replace(statement, passages=tuple(_sentences(statement.passages)))
    passages = statement.passages
    return Utterance(
        statement,
        tuple(dict(_terms(p.text[:_MOST_CHARS])) for p in passages),
        asks=bool(passages) and _ASKS.search(passages[-1].text) is not None,
        greets=bool(passages) and _GREETS.match(passages[0].text) is not None,
    )


def _sentences(passages: Sequence[Passage]) -> Iterator[Passage]:
    for passage in passages:
        joint = passage.joint
        for sentence in split_sentences(passage.text):
            yield Passage(sentence, clip_short(sentence), passage.worth, joint)
            joint = " " if sentence[-1].isascii() else ""


def _terms(text: str) -> Iterator[tuple[str, float]]:
    is_latin = text.isascii()
    for match in (_LATIN_TERM if is_latin else _TERM).finditer(text):
        term, kind = match[0], match.lastgroup
        if kind == "title":
            yield term, _TITLE_WEIGHT
        elif kind == "code":
            yield term.strip(".,:-/").lower(), _CODE_WEIGHT
        elif kind == "katakana":
            yield term, _NAME_WEIGHT
        elif kind == "hangul":
            yield term, _HANGUL_WEIGHT
        elif kind == "word":
            is_name = term[0].isupper() and (not is_latin or term.isupper() or not _opens(text, match.start()))
            yield term.lower(), _NAME_WEIGHT if is_name else _WORD_WEIGHT
        elif len(term) <= _LONGEST_HAN_WORD:
            yield term, _HAN_WEIGHT if len(term) > 1 else _SHORT_WEIGHT
        else:
            yield from ((term[i : i + 2], _PAIR_WEIGHT) for i in range(len(term) - 1))


def _opens(text: str, start: int) -> bool:
    """Return whether a word begins a sentence or a list item: its capital means nothing."""
    before = text[max(0, start - 8) : start].rstrip(" \"'“‘(*-•")
    return not before or before[-1] in ".!?:\n"


def _is_short(statement: Statement) -> bool:
    return sum(size_of(p.text) for p in statement.passages) <= _LONGEST_BARE_ANSWER


def _factor(passage: Passage) -> float:
    """Return the factor of a passage by kind and size: a conclusion before narration, a short one before a long one."""
    size = max(_LEAST_SIZE, size_of(passage.text))
    return min(1.0, _KIND_BASE + passage.worth) * math.pow(_TYPICAL_SIZE / size, _SIZE_EXPONENT)


class Dialogue:
    """The information in the sentences of one dialogue."""

    def __init__(self, level: float, utterances: Mapping[int, Utterance]) -> None:
        # How much the measure counts beside that for work.
        self.level = level
        self._utterances = utterances
        self._messages: Counter[str] = Counter(
            term for s in utterances.values() for term in {t for terms in s.terms for t in terms}
        )
        self._scale = 1.0 / math.log(len(utterances) + 2)
        self.openings = frozenset(self._find_openings())
        self._questions: dict[int, int] = dict(self._find_answers())
        self._weights = self._speaker_weights()
        self._worths: dict[int, list[float]] = dict(self._read_worths())

    @classmethod
    def read(cls, entries: Sequence[Entry], statements: Sequence[Statement], level: float) -> Dialogue:
        """Read the statements of both sides; what is computed of each is cached with its entry."""
        utterances: dict[int, Utterance] = {}
        for entry, statement in zip(entries, statements, strict=True):
            if statement.passages and statement.speaker in _SPEAKERS:
                cached: Utterance | None = entry.memoized("utterance")
                if cached is None:
                    cached = read_utterance(statement)
                    entry.set_memo("utterance", cached)
                utterances[entry.seq] = cached
        return cls(level, utterances)

    def has(self, seq: int) -> bool:
        """Return whether a message is a statement of either side."""
        return seq in self._utterances

    def statement(self, seq: int) -> Statement:
        """Return the statement of a message by sentences."""
        return self._utterances[seq].statement

    def blend(self, worth: float, info: float) -> float:
        """Return the score of a passage: its worth as a step of the work and its information, weighted by `level`."""
        if worth <= 0.0 or info < _LEAST_INFORMATION:
            return 0.0
        return worth * (1.0 - self.level) + _INFORMATION_WEIGHT * info * self.level

    def question_of(self, seq: int) -> int:
        """Return the message with the question that a short statement answers; -1 for none."""
        return self._questions.get(seq, -1)

    def worths(self, seq: int) -> list[float]:
        """Return the worth of each sentence of a message."""
        return self._worths[seq]

    def _read_worths(self) -> Iterator[tuple[int, list[float]]]:
        """Yield the worth of each sentence, by message: the first mention of a term counts more than later ones."""
        mentioned: set[str] = set()
        questions: dict[int, float] = {}
        for seq, utterance in self._utterances.items():
            info = [self._information(terms, mentioned) for terms in utterance.terms]
            questions[seq] = info[-1]
            if question := questions.get(self.question_of(seq), 0.0):
                info[info.index(max(info))] += question * _ANSWER_SHARE
            if utterance.asks:
                info[-1] *= _QUESTION_FACTOR
            weight = self._weights[utterance.statement.speaker]
            info = [weight * t * _factor(p) for t, p in zip(info, utterance.statement.passages, strict=True)]
            best = max(info)
            yield seq, [t if t == best else t * _OTHER_FACTOR for t in info]

    def _information(self, terms: Mapping[str, float], mentioned: set[str]) -> float:
        total = len(self._utterances) + 2
        counts = self._messages
        info = 0.0
        for term, weight in terms.items():
            info += weight * math.log(total / counts[term]) * (_AGAIN_FACTOR if term in mentioned else 1.0)
        mentioned.update(terms)
        return info * self._scale

    def _speaker_weights(self) -> dict[Speaker, float]:
        """Return the weight of each speaker, larger for the one that wrote fewer characters."""
        sizes = dict.fromkeys(_SPEAKERS, 1)
        for utterance in self._utterances.values():
            sizes[utterance.statement.speaker] += sum(len(p.text) for p in utterance.statement.passages)
        total = sum(sizes.values())
        return {
            speaker: min(_MOST_WEIGHT, math.pow(total / (2 * size), _SHARE_EXPONENT)) for speaker, size in sizes.items()
        }

    def _find_answers(self) -> Iterator[tuple[int, int]]:
        """Yield the sequence numbers of a short answer and of the other speaker's question before it."""
        before: tuple[int, Utterance] | None = None
        for seq, utterance in self._utterances.items():
            is_reply = before is not None and before[1].statement.speaker != utterance.statement.speaker
            if before is not None and is_reply and before[1].asks and _is_short(utterance.statement):
                yield seq, before[0]
            before = seq, utterance

    def _find_openings(self) -> Iterator[int]:
        """Yield the messages that begin another conversation, with another person perhaps."""
        since = 0
        for seq, utterance in self._utterances.items():
            if utterance.greets and utterance.statement.speaker == "user" and since >= _FEWEST_STATEMENTS:
                yield seq
                since = 0
            since += 1
