"""Parse the sections of a model's summary leniently, and shorten them by their least valuable lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from perdure.context.handoff import SECTIONS

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
    r"^[ \t]*(?:#{1,6}[ \t]+(?:\d{1,2}[.)][ \t]*)?\**(?P<hash>[^\n]{2,60}?)\**:?\**"
    r"|(?:\d{1,2}[.)][ \t]+)?\*\*(?:\d{1,2}[.)][ \t]*)?(?P<bold>[^\n*]{2,60}?):?\*\*:?"
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
# Minor sections are reduced to their minimum before the others, and emptied before those are.
_PASSES = ((_LEAST_FIRST[:5], 0.4), (_LEAST_FIRST[:5], 0.3), (_LEAST_FIRST[:10], 0.4), (_LEAST_FIRST, 0.0))
# Newest lines are last here, so the first are dropped first.
_NEWEST_LAST = frozenset(("Completed Actions", "Resolved Questions", "Key Decisions", "Active Task"))
# The first line introduces the others here.
_LED = frozenset(("Active Task",))
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
    text = _unwrapped(text)
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
    text = _unwrapped(text)
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
    """The headings of the level that divides a summary: that of our titles, else the topmost with more than one."""
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
    heads = _heads(_unwrapped(text))
    return any(h.is_exact for h in heads) or len({h.name for h in heads}) > 1


def says_nothing(body: str) -> bool:
    """Whether a section's text is blank or means "none", in many languages."""
    return body.strip().strip("-*•—–_()[].。<>").strip().lower() in _NOTHING_SAID


def _unwrapped(text: str) -> str:
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
        """How many pieces it counts for: a note about an earlier cut counts for all it replaced."""
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
        return cls(pieces, name in _NEWEST_LAST, name in _LED, size(_left_out(1_000)) + 1)

    @property
    def total(self) -> int:
        """Size with the heading, and with the note once something was dropped."""
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
        return "\n".join(filter(None, (before, _left_out(self.dropped), after)))


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


def _left_out(lines: int) -> str:
    return f"[{lines} more line{'s' if lines > 1 else ''} left out]"


def _section_named(head: re.Match[str]) -> str:
    title = _clean(head["hash"] or head["bold"] or head["number"] or "")
    if title in _EXACT:
        return _EXACT[title]
    if head["hash"] is not None and head[0].lstrip().startswith("####"):
        return ""
    return next((name for name, words in _LIKELY if any(w in title for w in words)), "")


def _clean(title: str | None) -> str:
    return (title or "").strip().strip("*:").strip().lower()
