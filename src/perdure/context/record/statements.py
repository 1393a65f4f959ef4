"""Read what messages state: who each comes from, and its passages with their worth.

In work on files the results of calls hold the facts, and most of what the assistant writes is narration. In a
conversation (a chat, advice, a support case) the sentences of both sides are the facts, and greetings are what can be
left out. `Dialogue` measures what a sentence states: names, numbers, dates and words that are rare in this conversation
count, words that every other message has count little.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from perdure.context.edit_blocks import fold_edit_blocks
from perdure.context.redacted_entries import count_chars, redact_entry
from perdure.context.task_state.decisions import UserReading, announces, read_user, user_reading
from perdure.context.text import Passage, clip, clip_short, size_of, split_passages, split_sentences
from perdure.context.tool_calls.call_line import CallLine
from perdure.context.tool_calls.output_extent import is_not_kept
from perdure.core.messages import SUMMARY_OPENINGS, Entry, ImagePart, Message, ToolCall, files_taken_back, user

# Who a statement comes from: a report of a delegated agent, a note inserted by a program, a document or an instruction
# file that was read.
Speaker = Literal["user", "assistant", "report", "note", "document", "instructions"]

# Texts of a user message up to this size are quoted as typed.
_WHOLE_CHARS = 700
_PASTED_WORTH = 0.3
_ANNOUNCEMENT_WORTH = 0.1
_LONG_CHARS = 1_500
# A choice such as "1+2" or "the first".
_BARE_CHARS = 12
_BRIEF_CHARS = 40


@dataclass(frozen=True, slots=True)
class Statement:
    """The content of a message as passages to choose from, with its speaker."""

    speaker: Speaker
    passages: tuple[Passage, ...]
    # The user corrected, refused or set a rule: no later compaction may drop it.
    is_binding: bool = False
    # Only agreement or "go on": it refers to what the assistant wrote before.
    is_bare: bool = False
    # A short user message, such as a consent or a limit: it costs little, and what it allows is nowhere else.
    is_brief: bool = False
    # The last words of a turn, not a remark between two calls.
    is_final: bool = False
    # Identifies a text that is repeated; 0 for short ones.
    fingerprint: int = 0
    # What a program called it: the name of a command, the title of a task.
    title: str = ""


# Before the files that the user restored.
_TOOK_BACK = "The user took back:"
NOTHING_STATED = Statement("note", ())
CALL = "→"
# The title of the first message of another conversation.
OPENING = "new conversation"
LABELS: Mapping[Speaker, str] = {"user": "USER", "assistant": "ASSISTANT", "report": "REPORT", "note": "NOTE"}
_SPEAKERS: Mapping[str, Speaker] = {label: speaker for speaker, label in LABELS.items()}
_LINE = re.compile(r"^(?:(USER|ASSISTANT|REPORT|NOTE)(?: \(([^\n]{0,200}?)\))?(?: \[\d+\])?: |→ )", re.MULTILINE)

_ELEMENT = re.compile(r"<([a-z][\w-]{1,40})>")
_COMMAND = re.compile(r"<command-name>\s*+(/?[^<\n]{1,80}?)(?:(?<!\s)\s++)?+</command-name>")
_COMMAND_ARGUMENTS = re.compile(r"<command-args>\s*+([^<]{1,4000}?)(?:(?<!\s)\s++)?+</command-args>")
# Elements whose content is of no use to a reader.
_NOISE = frozenset(
    ("local-command-caveat", "system-reminder", "command-message", "command-name", "command-args", "task-id", "status")
)
_REPORTS = ("result", "report", "output", "response")
# What says that something is done, but not what: as the first words of a longer reply.
_ANNOUNCES_END = re.compile(
    r"(?i)(?:all |it is |it's )?(?:\w+ )?(?:done|completed?|finished|fixed|ready|merged)[.!]*"
    r"|완료[.!]*|계속[.!]*|完了(?:しました)?[。！]*|完成(?:了)?[。！]*"
)
_LONGEST_END = 40
_CORRECTION = re.compile(
    r"^\W*(?:no\b(?! problem| worries| need)|nope|not? (?:that|this|like|quite|what)|don't|do not|stop\b|wrong"
    r"|actually\b|wait\b|undo|revert|instead\b|never\b|please don't|rather\b|i (?:said|meant|don't (?:want|like|think)"
    r"|wanted|told|undid|prefer|would rather|would prefer)|that's (?:not|wrong)|this is (?:not|wrong)"
    r"|you (?:should(?:n't| not)|broke|forgot|missed|fucked)|remove (?:this|that|it)|why (?:did|do|are) you"
    r"|不要|不对|不是|别|错了|停|違う|ちがう|やめ|じゃなく|ではなく|아니|하지 ?마|말고|틀렸)",
    re.IGNORECASE,
)
_SKILL = re.compile(r"^(?:Base directory for this skill|# .*\b[Ss]kill\b|---\nname: )")
_LOG_LINE = re.compile(
    r"\b(?:error|fail(?:ed|ure)?|fatal|panic|exception|traceback|assert\w*|expected|warning)\b|^\s*at \S+:\d+"
    # One character is enough before the dot: a run of them would be tried from each of its places.
    r"|(?<=\S)\.\w{1,4}:\d+",
    re.IGNORECASE,
)


def statement_of(entry: Entry) -> Statement:
    """Return the cached statement of an entry."""
    statement: Statement | None = entry.get_memo("statement")
    if statement is not None:
        return statement
    if entry.message.role == "tool":
        return NOTHING_STATED
    reading = user_reading(entry) if entry.message.is_real_user else None
    return entry.memo("statement", lambda _: read_statement(redact_entry(entry), reading))


def read_statement(message: Message, reading: UserReading | None = None) -> Statement:
    """Read what a message states. Pure, so the result can be cached; the message is redacted before.

    `reading` is that of a user message, where it is cached.
    """
    if message.role == "assistant" and message.kind == "assistant":
        if is_not_kept(message.text):
            return NOTHING_STATED
        passages = split_passages(fold_edit_blocks(message.text)) if message.text.strip() else ()
        if message.tool_calls and passages:
            passages = tuple(_introduction(passages, message.tool_calls))
        return Statement("assistant", passages, is_final=not message.tool_calls, fingerprint=_fingerprint(message.text))
    if message.is_real_user:
        statement = _user_statement(message, reading or read_user(message))
        restored = tuple(_describe_restored(message))
        return replace(statement, passages=(*restored, *statement.passages)) if restored else statement
    if message.kind == "note" and message.text.strip():
        restored = tuple(_describe_restored(message))
        return Statement("note", restored, is_binding=True, is_final=True) if restored else _note(message.text)
    return NOTHING_STATED


def announces_end(text: str) -> bool:
    """Whether a sentence says that something is done, but not what."""
    return len(text) <= _LONGEST_END and _ANNOUNCES_END.fullmatch(text) is not None


def _introduction(passages: Sequence[Passage], calls: Sequence[ToolCall]) -> Iterator[Passage]:
    """Yield the passages before calls: what merely announces them is worth less than their outcome."""
    for passage in passages:
        if announces(passage.text, calls):
            yield replace(passage, worth=min(passage.worth, _ANNOUNCEMENT_WORTH))
        elif passage is passages[-1] and passage.text.endswith((":", "：")):
            yield replace(passage, worth=passage.worth * 0.4)
        else:
            yield passage


def _describe_restored(message: Message) -> Iterator[Passage]:
    """Yield a line on the files that the user restored, if a note in a message reports it."""
    restored = files_taken_back(message)
    if restored is not None:
        names = [*restored.paths, *([f"{restored.more:,} more"] if restored.more else [])]
        line = f"{_TOOK_BACK} {', '.join(names)} (/undo files, to before m:{restored.before_seq})"
        yield Passage(line, clip(line, 240), 1.0)


def _note(text: str) -> Statement:
    """Return a summary that another program inserted, or a remark of a repair: background, written by no person."""
    if not text.startswith(SUMMARY_OPENINGS):
        return NOTHING_STATED
    return Statement(
        "note", split_passages(text), fingerprint=_fingerprint(text), title="an earlier summary, not verified"
    )


def _user_statement(message: Message, reading: UserReading) -> Statement:
    text = message.typed_text.strip()
    if not text:
        images = sum(isinstance(p, ImagePart) for p in message.parts)
        return Statement("user", (Passage("[image]", "[image]", 0.5),)) if images else NOTHING_STATED
    if text.startswith(SUMMARY_OPENINGS):
        return _note(text)
    if text.startswith("<") and (wrapped := _parse_program_message(text)) is not None:
        return wrapped
    if len(text) > _LONG_CHARS and _SKILL.match(text):
        passages = tuple(replace(p, worth=p.worth * _PASTED_WORTH) for p in split_passages(text))
        return Statement("note", passages, fingerprint=_fingerprint(text), title="pasted skill text")
    own = reading.own_words
    is_binding = bool(reading.rules or reading.corrections or reading.may_bind) or bool(_CORRECTION.match(own))
    passages = tuple((_typed_whole if len(text) <= _WHOLE_CHARS else _typed_long)(text, own))
    return Statement(
        "user",
        passages,
        is_binding=is_binding,
        is_bare=reading.is_bare or (text.isascii() and len(text) <= _BARE_CHARS),
        is_brief=len(text) <= _BRIEF_CHARS and (reading.may_answer or not reading.is_bare),
        is_final=True,
        fingerprint=_fingerprint(text),
    )


def _typed_whole(text: str, own: str) -> Iterator[Passage]:
    """Yield the paragraphs as typed; pasted lines count less."""
    for line in filter(None, map(str.strip, text.splitlines())):
        is_own = line in own
        yield Passage(line, clip(line, 240), 1.0 if is_own else 0.5)


def _typed_long(text: str, own: str) -> Iterator[Passage]:
    """Yield the passages of a long message: typed text in full, of pasted logs and documents the telling lines."""
    opening = own[:200]
    for passage in split_passages(text):
        words = passage.text.strip("- ")
        if words in own or words[:40] in opening:
            worth = min(1.0, passage.worth + 0.35)
        elif _LOG_LINE.search(passage.text):
            worth = 0.45
        else:
            worth = passage.worth * _PASTED_WORTH
        yield replace(passage, worth=worth)


def _parse_program_message(text: str) -> Statement | None:
    """Return the statement of a message that a program wrote in the user's name (a command, a report); else None."""
    if command := _COMMAND.search(text):
        arguments = _COMMAND_ARGUMENTS.search(text)
        words = arguments[1].strip() if arguments else ""
        line = f"{command[1]} {words}".strip()
        return Statement("user", (Passage(line, clip(line, 200), 0.9 if words else 0.2),), is_bare=not words)
    elements = dict(_elements(text))
    if not elements:
        return None
    title = " ".join(elements.get("summary", "").split())[:120]
    body = next((elements[name] for name in _REPORTS if elements.get(name, "").strip()), "")
    if not body:
        body = "\n".join(content for name, content in elements.items() if name not in _NOISE and name != "summary")
        rest = text[text.rfind(">") + 1 :].strip()
        if rest and not title:
            # Words behind the markup are the user's.
            return Statement("user", tuple(_typed_whole(rest, rest)), is_final=True)
    if not body.strip():
        return NOTHING_STATED if not title else Statement("note", (Passage(title, title, 0.3),))
    return Statement(
        "report", split_passages(body), is_final=True, fingerprint=_fingerprint(body), title=title or "output"
    )


def _elements(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and contents of the elements of a text, outer ones opened. Linear in its length."""
    at = 0
    while tag := _ELEMENT.search(text, at):
        end = text.find(f"</{tag[1]}>", tag.end())
        content = text[tag.end() : end if end >= 0 else len(text)]
        if tag[1].endswith(("notification", "message", "event")) and tag[1] not in _NOISE:
            at = tag.end()
            continue
        yield tag[1], content
        at = end if end >= 0 else len(text)


def _fingerprint(text: str) -> int:
    """Return a hash of a text long enough to be shown only once."""
    words = text.strip()
    return hash(words[:2_000]) if len(words) > 200 else 0


def parse_items(record: str) -> Iterator[tuple[str, str, str]]:
    """Yield the label (`→` for a call), title and text of each item; the header and a cut beginning are skipped."""
    starts = list(_LINE.finditer(record))
    ends = [*(m.start() for m in starts[1:]), len(record)][: len(starts)]
    for start, end in zip(starts, ends, strict=True):
        label = start[1] or CALL
        text = record[start.end() : end].rstrip("\n")
        yield label, start[2] or "", text if label == CALL else text.replace("\n ", "\n")


def carried_statement(label: str, text: str) -> Statement:
    """Return the statement of an item that was carried over: the user's words are quoted again as they are."""
    speaker = _SPEAKERS[label]
    if speaker != "user":
        is_binding = speaker == "note" and text.startswith(_TOOK_BACK)
        return Statement(speaker, split_passages(text), is_binding=is_binding, is_final=True)
    read = read_statement(user(text))
    passages = read.passages if read.speaker == "user" else (Passage(text, clip(text, 240), 1.0),)
    return replace(read, speaker="user", passages=passages, is_final=True, fingerprint=0, title="")


# Shares of the messages in the text of a session, beside the calls that work on something: a dialogue from the first.
_LEAST_SHARE, _WHOLE_SHARE = 0.5, 0.8
# The newest messages decide about a longer session.
_MOST_ENTRIES = 2_500
_DIALOGUE_SPEAKERS: frozenset[Speaker] = frozenset(("user", "assistant"))
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
# A farewell, or the mark of a client at the end of a conversation.
_TAKES_LEAVE = re.compile(
    r"\W*(?:(?:ok(?:ay)?|great|perfect|thanks?(?: you)?(?: (?:so|very) much)?|bye(?:[ -]bye)?|goodbye|see you(?: soon)?"
    r"|have a (?:nice|good|great) (?:day|one|evening)|danke|tschüss|auf wiedersehen|merci|au revoir|gracias|adiós"
    r"|さようなら|ありがとうございました|再见|谢谢|감사합니다|안녕히 계세요)[\s,.!。！，、]*)+"
    r"|\W*[#<\[(]{1,3}\W*(?:stop|end|done|transfer)\W*",
    re.IGNORECASE,
)
# A farewell is short, and so is what follows the sign that asks: text without a word may be of any length.
_FAREWELL_CHARS = 120
_ASKING_CHARS = 60
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
                work_chars += entry.get_memo("chars") or entry.memo("chars", count_chars)
            continue
        chars = len(message.text)
        if message.kind in _DIALOGUE_SPEAKERS:
            dialogue_chars += chars
        if message.tool_calls:
            called = [lines.get((entry.seq, c.id)) for c in message.tool_calls]
            is_work = any(line is None or line.kind != "other" for line in called)
            if is_work:
                work_chars += (entry.get_memo("chars") or entry.memo("chars", count_chars)) - chars
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
        asks=bool(passages) and _ASKS.search(passages[-1].text[-_ASKING_CHARS:]) is not None,
        greets=_greets(passages),
    )


def _greets(passages: Sequence[Passage]) -> bool:
    """Return whether the first words greet; a farewell to the conversation before may precede them."""
    first = next((p for p in passages if not _takes_leave(p.text.strip())), None)
    return first is not None and _GREETS.match(first.text) is not None


def _takes_leave(text: str) -> bool:
    return len(text) <= _FAREWELL_CHARS and _TAKES_LEAVE.fullmatch(text) is not None


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
            if statement.passages and statement.speaker in _DIALOGUE_SPEAKERS:
                cached: Utterance | None = entry.get_memo("utterance")
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
        sizes = dict.fromkeys(_DIALOGUE_SPEAKERS, 1)
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
