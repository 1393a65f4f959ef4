"""The sections of a handoff: parse a model's summary leniently, shorten it by its least valuable lines, assemble.

Assembling shares out the budget of a handoff between sections, record and index.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from perdure.context.handoff import SECTIONS, Handoff, render
from perdure.context.text import size_of
from perdure.core.messages import ImagePart, Message, Role, TextPart
from perdure.models.tokens import estimate_text
from perdure.redaction import redact

# Keywords of headings that models use instead of ours, often in the user's language; the first match decides, so
# specific ones ("resolved issues") come before general ones.
_LIKELY = (
    ("Active Task", ("active task", "aktive aufgabe", "tâche active", "tarea activa", "активная задача")),
    ("Pending User Asks", (
        "pending user", "user ask", "user message", "open question", "offene frage", "questions en suspens",
        "preguntas pendientes", "perguntas pendentes", "открытые вопросы", "待回答", "未回答",
    )),
    ("Blocked", ("unresolved", "unsolved", "ungelöst", "нерешённ", "нерешенн", "未解决", "未解決", "미해결")),
    ("Resolved Questions", (
        "resolved", "solved", "gelöst", "résolu", "resuelt", "resolvid", "решённ", "решенн", "已解决", "解決済",
        "해결된",
    )),
    ("Constraints & Preferences", (
        "constraint", "preference", "rule", "instruction", "einschränkung", "vorgabe", "vorlieb", "contrainte",
        "préférence", "restriccion", "preferenc", "restriç", "preferên", "vincol", "preferenz", "ограничен",
        "предпочтен", "约束", "偏好", "制約", "제약",
    )),
    ("Relevant Files", (
        "file", "code section", "datei", "fichier", "archivo", "arquivo", "файл", "文件", "ファイル", "파일",
    )),
    ("Blocked", (
        "block", "error", "problem", "issue", "fehler", "bloqu", "problème", "erreur", "blocc", "ошибк", "проблем",
        "错误", "问题", "阻塞", "エラー", "問題", "오류", "문제",
    )),
    ("In Progress", (
        "in progress", "current work", "under way", "in arbeit", "en cours", "en curso", "em andamento", "in corso",
        "в работе", "в процессе", "进行中", "進行中", "진행",
    )),
    ("Remaining Work", (
        "remaining", "next step", "pending", "todo", "to do", "nächste schritte", "verbleibend", "prochaines étapes",
        "restant", "próximos pas", "siguientes pasos", "pendient", "prossimi passi", "следующие шаги", "оставш",
        "осталось", "剩余", "下一步", "待办", "残り", "次のステップ", "남은", "다음 단계",
    )),
    ("Completed Actions", (
        "complet", "done", "action", "progress", "accomplish", "erledigt", "abgeschlossen", "terminé", "accompli",
        "realizad", "concluíd", "выполнен", "сделано", "завершён", "завершен", "已完成", "完了", "완료",
    )),
    ("Active State", (
        "state", "status", "environment", "zustand", "état", "estado", "stato", "состояние", "状态", "状態", "상태",
    )),
    ("Key Decisions", (
        "decision", "concept", "approach", "design", "entscheidung", "décision", "decisão", "decisõe", "решени", "决策",
        "决定", "決定", "결정",
    )),
    ("Resolved Questions", ("answer", "question", "q&a", "beantwort", "已回答", "回答済")),
    ("Goal", (
        "goal", "request", "intent", "objective", "aim", "overview", "summary", "ziel", "objectif", "objetivo",
        "obiettivo", "цель", "目标", "目的", "목표",
    )),
    ("Critical Context", (
        "critical", "context", "detail", "fact", "note", "kontext", "contesto", "контекст", "背景", "上下文",
        "文脈", "맥락",
    )),
)  # fmt: skip
_HEADING = re.compile(
    r"^[ \t]*(?:#{1,6}[ \t]++(?:\d{1,2}[.)][ \t]*+)?\*{0,3}(?P<hash>[^\n]{2,60}?)\*{0,3}:?\*{0,3}"
    r"|(?:\d{1,2}[.)][ \t]+)?\*\*(?:\d{1,2}[.)][ \t]*+)?(?P<bold>[^\n*]{2,60}?):?\*\*:?"
    r"|\d{1,2}[.)][ \t]+(?P<number>[A-Z][^\n:.]{2,50}):)[ \t]*$",
    re.MULTILINE,
)
_EXACT = {s.lower(): s for s in SECTIONS} | {s.lower().replace("&", "and"): s for s in SECTIONS}
# A heading with text on the same line: `**Goal:** ship it`, `- Goal: ship it`.
_INLINE = re.compile(
    r"^[ \t]*(?:#{1,6}[ \t]+|[-*•][ \t]+|\d{1,2}[.)][ \t]+)?\**(?P<name>"
    + "|".join(map(re.escape, _EXACT))
    + r")\**[ \t]*:\**[ \t]*",
    re.MULTILINE | re.IGNORECASE,
)
# fmt: off
_NOTHING_SAID = frozenset((
    "", "none", "n/a", "na", "nil", "nothing", "not applicable", "none yet", "none so far", "nothing yet", "keine",
    "keiner", "keines", "nichts", "entfällt", "aucun", "aucune", "rien", "néant", "ninguno", "ninguna", "nada",
    "nenhum", "nenhuma", "nessuno", "nessuna", "niente", "нет", "ничего", "无", "無", "没有", "暂无", "なし",
    "特になし", "없음", "해당 없음",
))
# fmt: on
_FENCE = re.compile(r"\A\s*```[a-z]*\n(.*)\n```\s*\Z", re.DOTALL)
_ASIDE = re.compile(r"<(analysis|think|thinking|scratchpad)>.*?</\1>", re.DOTALL)

# Size of a heading, in tokens or (roughly) characters.
_HEADING_SIZE = 4
# In the order in which they are shortened. Sections written by code are not listed.
_LEAST_FIRST = (
    "Resolved Questions",
    "Completed Actions",
    "Key Decisions",
    "Relevant Files",
    "Remaining Work",
    "Goal",
    "Pending User Asks",
    "In Progress",
    "Active State",
    "Blocked",
    "Critical Context",
    "Constraints & Preferences",
    "Active Task",
)
# Minor sections are reduced to their minimum before the others, and emptied before those are. Answers, which the record
# has as well, go before a line of the state does.
_PASSES = (
    (_LEAST_FIRST[:5], 0.4),
    (_LEAST_FIRST[:5], 0.3),
    (_LEAST_FIRST[:1], 0.0),
    (_LEAST_FIRST[:10], 0.4),
    (_LEAST_FIRST, 0.0),
)
# A section larger than this share of all is shortened before the others.
_MOST_SHARE = 0.75
# Newest lines are last here, so the first are dropped first; behind the rules come corrections and refusals.
_NEWEST_LAST = frozenset(
    ("Completed Actions", "Resolved Questions", "Key Decisions", "Constraints & Preferences", "Active Task")
)
# The first line introduces the others here.
_LED = frozenset(("Constraints & Preferences", "Active Task"))
# A longer line is a paragraph.
_LONGEST_LINE = 600
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+(?=\S)|(?<=[。！？；])")
_LONGEST_GREETING = 200
_NOTE = re.compile(r"\[(\d+) more lines? left out\]")


@dataclass(frozen=True, slots=True)
class _Head:
    """A heading in a summary: its position, and the section it maps to."""

    start: int
    end: int
    name: str
    # Exactly one of our titles, and a Markdown heading.
    is_exact: bool
    is_hash: bool


def read_sections(text: str) -> dict[str, str]:
    """Map a summary to our thirteen sections, whatever headings it uses; other text is Critical Context."""
    text = _unwrap(text)
    heads = _heads(text)
    preface = text[: heads[0].start] if heads else text
    texts: dict[str, list[str]] = {}
    # Text before the first heading is a greeting or reasoning, unless it is most of the summary.
    if len(preface.strip()) > (max(_LONGEST_GREETING, len(text) // 2) if heads else 0):
        texts["Critical Context"] = [preface.strip()]
    for head, following in zip_longest(heads, heads[1:]):
        body = text[head.end : following.start if following else len(text)].strip("\n")
        if not says_nothing(body):
            texts.setdefault(head.name, []).append(body.strip("\n").rstrip())
    return {s: "\n".join(texts[s]) for s in SECTIONS if s in texts}


def split_headings(text: str) -> list[tuple[str, str, str]]:
    """Split a summary at its topmost headings into (title, section, text); the section is "" for other titles.

    The title is "" for text before the first heading, unless that is a mere greeting.
    """
    text = _unwrap(text)
    heads = _top_heads(list(_HEADING.finditer(text)))
    preface = text[: heads[0].start()].strip() if heads else text.strip()
    pieces = []
    if len(preface) > (_LONGEST_GREETING if heads else 0):
        pieces.append(("", "" if heads else "Critical Context", preface))
    for head, following in zip_longest(heads, heads[1:]):
        title = (head["hash"] or head["bold"] or head["number"]).strip().strip("*:").strip()
        body = text[head.end() : following.start() if following else len(text)].strip("\n").rstrip()
        pieces.append((title, _EXACT.get(title.lower(), ""), body))
    return pieces


def _top_heads(heads: list[re.Match[str]]) -> list[re.Match[str]]:
    """Return the headings of the level that divides a summary: that of our titles, else the topmost with several."""
    levels = [_level(h) for h in heads]
    ours = [
        level for h, level in zip(heads, levels, strict=True) if _clean(h["hash"] or h["bold"] or h["number"]) in _EXACT
    ]
    candidates = [min(ours)] if ours else [n for n in sorted(set(levels)) if levels.count(n) > 1] or levels[:1]
    return [h for h, level in zip(heads, levels, strict=True) if level <= candidates[0]] if heads else []


def _level(head: re.Match[str]) -> int:
    if head["hash"] is not None:
        return len(head[0].lstrip()) - len(head[0].lstrip().lstrip("#"))
    return 7 if head["bold"] is not None else 8


def has_own_headings(text: str) -> bool:
    """Whether a text has our layout: one exact heading, or two that map to sections."""
    heads = _heads(_unwrap(text))
    return any(h.is_exact for h in heads) or len({h.name for h in heads}) > 1


def says_nothing(body: str) -> bool:
    """Whether a section's text is blank or means "none", in many languages."""
    return body.strip().strip("-*•—–_()[].。<>").strip().lower() in _NOTHING_SAID


def _unwrap(text: str) -> str:
    """Remove reasoning tags and an enclosing code fence."""
    text = _ASIDE.sub("", text)
    fenced = _FENCE.match(text)
    return fenced[1] if fenced else text


def _heads(text: str) -> list[_Head]:
    heads = []
    for m in _HEADING.finditer(text):
        if name := _section_named(m):
            title = _clean(m["hash"] or m["bold"] or m["number"])
            heads.append(_Head(m.start(), m.end(), name, title in _EXACT, m["hash"] is not None))
    if exact := [h for h in heads if h.is_exact and h.is_hash]:
        return exact
    return heads or [
        _Head(m.start(), m.end(), _EXACT[m["name"].lower()], is_exact=True, is_hash=False)
        for m in _INLINE.finditer(text)
    ]


def shorten(sections: Mapping[str, str], most: int, *, size: Callable[[str], int]) -> dict[str, str]:
    """Shorten the sections to `most` by dropping whole lines, least valuable first; each cut leaves a note.

    Paragraphs on one line are shortened by sentences.
    """
    trimmed = {name: _Lines.of(name, text, size) for name, text in sections.items() if text}
    over = sum(lines.total for lines in trimmed.values()) - most
    for lines in trimmed.values():
        # A summary in another format is one long section: it leaves the others, which are short, their room.
        if over > 0 and lines.total > _MOST_SHARE * most:
            over -= lines.drop(over, least=int(_MOST_SHARE * most))
    for names, share in _PASSES:
        for name in names:
            if over > 0 and name in trimmed:
                over -= trimmed[name].drop(over, least=int(trimmed[name].total * share))
    for name in _LEAST_FIRST:
        # An empty section would read as "none", so the note about the cut is dropped last.
        if over > 0 and name in trimmed and not trimmed[name].pieces:
            over -= trimmed.pop(name).total
    return {name: text for name in sections if name in trimmed and (text := trimmed[name].text)}


@dataclass(frozen=True, slots=True)
class _Piece:
    """A line, or a sentence of a long one; `gap` is the separator before it."""

    text: str
    gap: str
    size: int

    @property
    def stands_for(self) -> int:
        """Return how many pieces it counts for: a note about an earlier cut counts for all it replaced."""
        return int(match[1]) if (match := _NOTE.fullmatch(self.text)) else 1


@dataclass(slots=True)
class _Lines:
    """The lines of one section with their sizes, dropped one by one from the less valuable end."""

    pieces: list[_Piece]
    newest_last: bool
    # The introducing line is dropped last: without it a closed request would read as an open one.
    is_led: bool
    # Size of the note about a cut.
    note_size: int
    dropped: int = 0

    @classmethod
    def of(cls, name: str, text: str, size: Callable[[str], int]) -> _Lines:
        pieces = [_Piece(piece, gap, size(piece) + 1) for piece, gap in _pieces(text)]
        return cls(pieces, name in _NEWEST_LAST, name in _LED, size(_omission_note(1_000)) + 1)

    @property
    def total(self) -> int:
        """Return the size with the heading, and with the note once something was dropped."""
        return _HEADING_SIZE + sum(p.size for p in self.pieces) + (self.note_size if self.dropped else 0)

    def drop(self, amount: int, *, least: int) -> int:
        """Drop lines until `amount` is freed or less than `least` would remain; return what was freed."""
        at_first = remaining = self.total
        while len(self.pieces) > (1 if least else 0) and at_first - remaining < amount:
            at = int(self.is_led and len(self.pieces) > 1) if self.newest_last else -1
            if remaining - self.pieces[at].size < least:
                break
            piece = self.pieces.pop(at)
            remaining -= piece.size - (0 if self.dropped else self.note_size)
            self.dropped += piece.stands_for
        return at_first - remaining

    @property
    def text(self) -> str:
        if not self.dropped:
            return _join_pieces(self.pieces)
        cut = int(self.is_led) if self.newest_last else len(self.pieces)
        before, after = _join_pieces(self.pieces[:cut]), _join_pieces(self.pieces[cut:])
        return "\n".join(filter(None, (before, _omission_note(self.dropped), after)))


def _join_pieces(pieces: Sequence[_Piece]) -> str:
    return "".join((p.gap if n else "") + p.text for n, p in enumerate(pieces))


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """Yield the droppable pieces of a text, each with the separator before it."""
    for line in text.splitlines():
        gap, start = "\n", 0
        is_paragraph = len(line) > _LONGEST_LINE and not line.startswith(">")  # a quote is word for word
        for end in _SENTENCE_END.finditer(line) if is_paragraph else ():
            yield line[start : end.start()], gap
            gap, start = end[0], end.end()
        yield line[start:], gap


def _omission_note(lines: int) -> str:
    return f"[{lines} more line{'s' if lines > 1 else ''} left out]"


def _section_named(head: re.Match[str]) -> str:
    title = _clean(head["hash"] or head["bold"] or head["number"] or "")
    is_minor = head["hash"] is not None and head[0].lstrip().startswith("####")
    return _EXACT.get(title, "") if is_minor else section_of(title)


def section_of(title: str) -> str:
    """Map a heading in other words to one of our sections; "" where it fits none."""
    title = _clean(title)
    return _EXACT.get(title) or next((name for name, words in _LIKELY if any(w in title for w in words)), "")


def _clean(title: str | None) -> str:
    return (title or "").strip().strip("*:").strip().lower()


# Characters per token of handoff text.
CHARS_PER_TOKEN = 3.4
# Of a handoff with a total limit, the share of the sections; the rest is for record and index.
_SECTIONS_SHARE = 0.5
# A record repeats nothing of the sections, which need less room beside it.
_BESIDE_RECORD = 0.85
# A summary in another format retells what was done, for which the record needs less room.
_OTHER_FORMAT = 0.9
# Shorter sections than code writes leave the record a part of their room, more of it in a dialogue, which has little
# for the sections. Longer ones take theirs from the record, down to a share of its budget: the sum stays the same.
_SHORT_SECTIONS = 0.15
_SHORT_SECTIONS_IN_DIALOGUE = 0.5
# The sentences of a dialogue are its content: less can be left out of them than of the output of calls.
_DIALOGUE_RECORD = 2.0
_DIALOGUE_LEVEL = 0.5
_LEAST_RECORD_SHARE = 0.4
# Of the messages it replaces: a short stretch is rendered nearly whole.
_LARGEST_RECORD_SHARE = 0.5
# Sections that code writes, as a share of the record's budget: the record has the details.
_CODE_SHARE = 0.145
_CODE_SHARE_IN_DIALOGUE = 0.1
# What these sections have on average, beside what the user laid down: longer ones of a model cost the record as much.
_USUAL_SHARE = 0.07
# Characters that short sections leave to the record and to the frame beyond that.
_SPARE_CHARS = 2_400
_LEAST_CODE_CHARS = 2_000
_INDEX_SHARE = 0.12
_MOST_INDEX_CHARS = 2_400
# Drawing the record again costs time: only for more than this share of its room.
_LEAST_REDRAW_SHARE = 0.04
_INDEX_MARGIN_CHARS = 120
# More tokens than this many times the budget make it draw again.
_TOKEN_TOLERANCE = 1.08
# A record that fills less of its room has nothing more to show.
_FULL_RECORD_SHARE = 0.9
# Code quotes the user there, within limits of their own.
_BY_USER = ("Active Task", "Constraints & Preferences")
# Less room is not worth a heading.
_LEAST_RECORD_CHARS = 160


@dataclass(frozen=True, slots=True)
class Shares:
    """Budgets of the parts of a handoff; the whole has a limit of its own only where one is set."""

    # The most that the sections may take, and the record with the index.
    summary_tokens: int
    record_tokens: int
    whole_tokens: int | None = None
    whole_chars: int | None = None
    is_short: bool = False
    # How much of what it covers is a dialogue, 0 to 1.
    dialogue: float = 0.0
    # The most that the record may take with the room that short sections leave; it must stay shorter than the messages.
    record_max_tokens: int | None = None

    @property
    def code_chars(self) -> int:
        """Characters of the sections that code writes."""
        record_chars = int(self.record_tokens * CHARS_PER_TOKEN)
        share = _CODE_SHARE + (_CODE_SHARE_IN_DIALOGUE - _CODE_SHARE) * self.dialogue
        return min(int(self.summary_tokens * CHARS_PER_TOKEN), max(int(record_chars * share), _LEAST_CODE_CHARS))

    @property
    def usual_chars(self) -> int:
        """Characters of sections that cost the record nothing."""
        return int(self.record_tokens * CHARS_PER_TOKEN * _USUAL_SHARE)


def share_out(
    *,
    middle_tokens: int,
    summary_cap_tokens: int,
    record_tokens: int,
    summary_ratio: float = 0.20,
    summary_min_tokens: int = 2_000,
    whole_tokens: int | None = None,
    whole_chars: int | None = None,
    is_short: bool = False,
    dialogue: float = 0.0,
    record_max_tokens: int | None = None,
) -> Shares:
    """Compute the budgets for a middle of this size. A handoff is never longer than what it replaces.

    The record of a dialogue has more room, up to `record_max_tokens`.
    """
    summary_tokens = min(summary_cap_tokens, max(summary_min_tokens, int(middle_tokens * summary_ratio)))
    longer = int(record_tokens * (1 + (_DIALOGUE_RECORD - 1) * dialogue))
    record_tokens = max(record_tokens, min(longer, record_max_tokens or longer))
    largest = int(middle_tokens * _LARGEST_RECORD_SHARE)
    record = min(record_tokens, largest)
    if whole_tokens is not None:
        summary_tokens = min(summary_tokens, whole_tokens)
        record = min(record, whole_tokens)
    if whole_chars is not None:
        total = max(1, int(whole_chars / CHARS_PER_TOKEN))
        summary_tokens = min(summary_tokens, max(1, int(total * _SECTIONS_SHARE)))
        record = largest = total
    return Shares(summary_tokens, record, whole_tokens, whole_chars, is_short, dialogue, largest)


@dataclass(frozen=True, slots=True)
class HandoffParts:
    """Parts of a handoff: the sections, and functions that draw record and index within a budget."""

    sections: Mapping[str, str]
    # Takes the characters available and the text of the sections, whose sentences it does not repeat.
    draw_record: Callable[[int, str], str]
    # Takes the characters available and the text of sections and record.
    draw_index: Callable[[int, str], str]


def assemble(parts: HandoffParts, frame: Handoff, shares: Shares) -> Handoff:
    """Assemble the handoff: sections within their cap, then the record, then the index, in what room is left."""
    texts = {name: redact(parts.sections.get(name, "")) for name in SECTIONS}
    by_user = {name: texts.pop(name) for name in _BY_USER}
    most = int(shares.summary_tokens * _BESIDE_RECORD) if shares.record_tokens else shares.summary_tokens
    if shares.record_tokens and _is_one_section(texts):
        most = int(most * _OTHER_FORMAT)
    sections = shorten(texts, most, size=estimate_text)
    handoff = _shorten_to_limits(frame.with_sections({**sections, **by_user}), shares)
    room = _room(handoff, shares)
    if room < _LEAST_RECORD_CHARS:
        return handoff
    reserve = 0 if shares.is_short else min(int(room * _INDEX_SHARE), _MOST_INDEX_CHARS)
    is_dialogue = shares.dialogue >= _DIALOGUE_LEVEL and shares.whole_chars is None
    record = _within_tokens(parts.draw_record, room - reserve, handoff.body, is_dialogue=is_dialogue)
    index = _draw_index(parts, max(reserve, room - len(record)), f"{handoff.body}\n{record}")
    if reserve - len(index) > _LEAST_REDRAW_SHARE * room:
        # Few values were worth listing: the record takes their room.
        left = room - len(index) - _INDEX_MARGIN_CHARS
        record = _within_tokens(parts.draw_record, left, handoff.body, is_dialogue=is_dialogue)
        index = _draw_index(parts, max(len(index), room - len(record)), f"{handoff.body}\n{record}")
    return _without_overrun(replace(handoff, record=record, index=index), shares)


def _is_one_section(texts: Mapping[str, str]) -> bool:
    """Whether nearly all is under one heading, as in a summary of another format."""
    sizes = [len(text) for text in texts.values()]
    return max(sizes, default=0) > _MOST_SHARE * sum(sizes) and sum(sizes) > _LEAST_CODE_CHARS


def _draw_index(parts: HandoffParts, room: int, text: str) -> str:
    room = min(room, _MOST_INDEX_CHARS)
    return _within_tokens(parts.draw_index, room, text) if room >= _LEAST_RECORD_CHARS else ""


def _within_tokens(draw: Callable[[int, str], str], room: int, text: str, *, is_dialogue: bool = False) -> str:
    """Draw a text, and once more in less room where it is more tokens than its budget.

    A dialogue is plain prose, of fewer tokens: its record is drawn again in more room.
    """
    drawn = redact(draw(room, text))
    most = room / CHARS_PER_TOKEN
    if len(drawn) <= most:
        return drawn
    tokens = estimate_text(drawn)
    if tokens > _TOKEN_TOLERANCE * most:
        return redact(draw(int(room * most / tokens), text))
    if is_dialogue and tokens * _TOKEN_TOLERANCE < most and size_of(drawn) > _FULL_RECORD_SHARE * room:
        longer = redact(draw(int(room * most / tokens), text))
        return longer if estimate_text(longer) <= _TOKEN_TOLERANCE * most else drawn
    return drawn


def _room(handoff: Handoff, shares: Shares) -> int:
    """Return the characters for record and index: their budget, less what long sections take of it."""
    if not shares.record_tokens:
        return 0
    # What the user laid down costs the record nothing.
    texts = [text for name, text in handoff.sections.items() if name not in _BY_USER]
    used = max(sum(map(estimate_text, texts)), sum(map(size_of, texts)) / CHARS_PER_TOKEN)
    unused = shares.usual_chars / CHARS_PER_TOKEN - used
    part = _SHORT_SECTIONS + (_SHORT_SECTIONS_IN_DIALOGUE - _SHORT_SECTIONS) * shares.dialogue
    spare = int(part * (_SPARE_CHARS / CHARS_PER_TOKEN + max(unused, 0)) + (0 if handoff.is_digest else min(unused, 0)))
    least = int(shares.record_tokens * _LEAST_RECORD_SHARE)
    most = shares.record_tokens + spare
    if shares.record_max_tokens is not None:
        most = min(most, shares.record_max_tokens)
    room = int(max(least, most) * CHARS_PER_TOKEN)
    text = render(handoff, is_short=shares.is_short)
    if shares.whole_chars is not None:
        room = min(room, shares.whole_chars - len(text) - 24)
    if shares.whole_tokens is not None:
        # In other scripts the same number of characters is more tokens.
        tokens = estimate_text(text)
        per_token = min(CHARS_PER_TOKEN, len(text) / max(1, tokens))
        room = min(room, int((shares.whole_tokens - tokens - 8) * per_token))
    return room


def _without_overrun(handoff: Handoff, shares: Shares) -> Handoff:
    """Drop the index, then the oldest lines of the record, while the handoff exceeds a total limit."""
    limits: list[tuple[int, Callable[[str], int]]] = []
    if shares.whole_chars is not None:
        limits.append((shares.whole_chars, len))
    if shares.whole_tokens is not None:
        limits.append((shares.whole_tokens, estimate_text))
    for most, size in limits:
        if size(render(handoff, is_short=shares.is_short)) > most:
            handoff = replace(handoff, index="")
        while handoff.record and (over := size(render(handoff, is_short=shares.is_short)) - most) > 0:
            lines = handoff.record.split("\n")
            drop = max(1, len(lines) * over // max(1, size(handoff.record)))
            kept = [lines[0], *lines[1 + drop :]]
            handoff = replace(handoff, record="\n".join(kept) if len(kept) > 1 else "")
    return handoff


def _shorten_to_limits(handoff: Handoff, shares: Shares) -> Handoff:
    """Shorten the sections until their rendering fits the total limits, or nothing is left to cut."""
    for most, size in ((shares.whole_chars, len), (shares.whole_tokens, estimate_text)):
        if most is None:
            continue
        for _ in range(4):
            over = size(render(handoff, is_short=shares.is_short)) - most
            if over <= 0:
                break
            within = sum(size(line) + 1 for text in handoff.sections.values() for line in text.splitlines())
            handoff = handoff.with_sections(shorten(handoff.sections, max(0, within - over - 8), size=size))
    return handoff


def handoff_message(
    text: str, before: Message | None, after: Message | None, image: ImagePart | None = None
) -> Message:
    """Choose the role that is valid between the neighbours; where none is, that of the next message, with which the
    projection then merges it.
    """
    # Only a user message may hold an image; after a tool result the projection inserts a reply between the two.
    role: Role = "assistant" if image is None and must_be_reply(before, after) else "user"
    return Message(role=role, content=(TextPart(text), image) if image else text, kind="handoff")


def must_be_reply(before: Message | None, after: Message | None) -> bool:
    """Whether it needs the assistant role: after a user message, note or result, unless it ends the history."""
    return before is not None and before.role != "assistant" and after is not None


def newest_image(messages: Sequence[Message]) -> tuple[int, ImagePart] | None:
    """Return the last image of a history and the index of its message."""
    with_parts = [i for i, m in enumerate(messages) if isinstance(m.content, tuple)]
    for i in reversed(with_parts):
        image = next((part for part in reversed(messages[i].parts) if isinstance(part, ImagePart)), None)
        if image is not None:
            return i, image
    return None
