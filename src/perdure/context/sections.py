"""Sections of a handoff as a model wrote them: read leniently, shortened from their least valuable lines (E12)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from perdure.context.handoff import NOTHING, SECTIONS

# Models that do not keep to the headings still use telling ones; the first word found decides.
_LIKELY = (
    ("Active Task", ("active task",)),
    ("Pending User Asks", ("pending user", "user ask", "user message", "open question")),
    ("Constraints & Preferences", ("constraint", "preference", "rule", "instruction", "约束", "偏好", "制約", "제약")),
    ("Relevant Files", ("file", "code section", "文件", "ファイル", "파일")),
    ("Blocked", ("block", "error", "problem", "issue", "错误", "问题", "エラー", "오류")),
    ("In Progress", ("in progress", "current work", "under way", "进行中", "進行中", "진행")),
    ("Remaining Work", ("remaining", "next step", "pending", "todo", "to do", "剩余", "下一步", "残り", "남은")),
    ("Completed Actions", ("complet", "done", "action", "progress", "accomplish", "已完成", "完了", "완료")),
    ("Active State", ("state", "status", "environment", "状态", "状態", "상태")),
    ("Key Decisions", ("decision", "concept", "approach", "design", "决策", "決定", "결정")),
    ("Resolved Questions", ("resolved", "answer", "question", "q&a")),
    ("Goal", ("goal", "request", "intent", "objective", "aim", "overview", "summary", "目标", "目的", "목표")),
    ("Critical Context", ("critical", "context", "detail", "fact", "note", "背景")),
)  # fmt: skip
_HEADING = re.compile(
    r"^[ \t]*(?:#{1,6}[ \t]+(?:\d{1,2}[.)][ \t]*)?\**(?P<hash>[^\n]{2,60}?)\**:?\**"
    r"|\*\*(?:\d{1,2}[.)][ \t]*)?(?P<bold>[^\n*]{2,60}?):?\*\*:?"
    r"|\d{1,2}[.)][ \t]+(?P<number>[A-Z][^\n:.]{2,50}):)[ \t]*$",
    re.MULTILINE,
)
_EXACT = {s.lower(): s for s in SECTIONS} | {s.lower().replace("&", "and"): s for s in SECTIONS}
_FENCE = re.compile(r"\A\s*```[a-z]*\n(.*)\n```\s*\Z", re.DOTALL)
_ASIDE = re.compile(r"<(analysis|think|thinking|scratchpad)>.*?</\1>", re.DOTALL)

# What a heading comes to beside its lines, in tokens or (roughly) in characters.
_HEADING_SIZE = 4
# From the first to be shortened to the last. What only code may write is not here.
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
# The lesser ones give way to what they can spare before the others give anything, and to nothing before those do.
_PASSES = ((_LEAST_FIRST[:5], 0.4), (_LEAST_FIRST[:5], 0.3), (_LEAST_FIRST[:10], 0.4), (_LEAST_FIRST, 0.0))
# In these the newest lines stand last, so the oldest go first.
_NEWEST_LAST = frozenset(("Completed Actions", "Resolved Questions", "Key Decisions", "Active Task"))


def read_sections(text: str) -> dict[str, str]:
    """The thirteen sections a summary fills, whatever headings it used; text under none is Critical Context."""
    text = _ASIDE.sub("", text)
    if fenced := _FENCE.match(text):
        text = fenced[1]
    heads = [(m, name) for m in _HEADING.finditer(text) if (name := _section_named(m))]
    if any(m["hash"] is not None and _clean(m["hash"]) in _EXACT for m, _ in heads):
        heads = [(m, n) for m, n in heads if m["hash"] is not None and _clean(m["hash"]) in _EXACT]
    preface = text[: heads[0][0].start()] if heads else text
    found: dict[str, list[str]] = {}
    if not heads and preface.strip():
        found["Critical Context"] = [preface.strip()]
    for (head, name), following in zip_longest(heads, heads[1:]):
        body = text[head.end() : following[0].start() if following else len(text)].strip("\n")
        if body.strip() and body.strip().rstrip(".").lower() not in (NOTHING.lower(), "n/a", "-", "- none"):
            found.setdefault(name, []).append(body.strip("\n").rstrip())
    return {s: "\n".join(found[s]) for s in SECTIONS if s in found}


def shorten(sections: Mapping[str, str], most: int, *, size: Callable[[str], int]) -> dict[str, str]:
    """The sections within `most`, whole lines taken from the least valuable ones first, each cut told in place."""
    trimmed = {name: _Lines.of(name, text, size) for name, text in sections.items() if text}
    over = sum(lines.total for lines in trimmed.values()) - most
    for names, share in _PASSES:
        for name in names:
            if over > 0 and name in trimmed:
                over -= trimmed[name].drop(over, least=int(trimmed[name].total * share))
    return {name: text for name in sections if name in trimmed and (text := trimmed[name].text)}


@dataclass(slots=True)
class _Lines:
    """The lines of one section with their sizes, given up one by one from the less valuable end."""

    lines: list[str]
    sizes: list[int]
    newest_last: bool
    # What the line that tells of a cut comes to.
    note_size: int
    dropped: int = 0

    @classmethod
    def of(cls, name: str, text: str, size: Callable[[str], int]) -> _Lines:
        lines = text.splitlines()
        return cls(lines, [size(line) + 1 for line in lines], name in _NEWEST_LAST, size(_left_out(1_000)) + 1)

    @property
    def total(self) -> int:
        """With its heading, and with the note once something is gone."""
        if not self.lines:
            return 0
        return _HEADING_SIZE + sum(self.sizes) + (self.note_size if self.dropped else 0)

    def drop(self, wanted: int, *, least: int) -> int:
        """Gives up lines until `wanted` is gained or only `least` is left; what was gained."""
        at_first = left = self.total
        while self.lines and at_first - left < wanted and left > least:
            at = 0 if self.newest_last else -1
            self.lines.pop(at)
            freed = self.sizes.pop(at) - (0 if self.dropped else self.note_size)
            self.dropped += 1
            left = left - freed if self.lines else 0
        return at_first - left

    @property
    def text(self) -> str:
        if not self.dropped or not self.lines:
            return "\n".join(self.lines)
        told = _left_out(self.dropped)
        return "\n".join((told, *self.lines) if self.newest_last else (*self.lines, told))


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
