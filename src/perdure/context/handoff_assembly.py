"""Share out the budget of a handoff, and assemble it from sections, record and index."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from perdure.context.handoff import SECTIONS, Handoff, render
from perdure.context.sections import shorten
from perdure.core.messages import ImagePart, Message, Role, TextPart
from perdure.models.tokens import estimate_text
from perdure.redaction import redact

# Characters per token of handoff text.
CHARS_PER_TOKEN = 3.4
# Of a handoff with a total limit, the share of the sections; the rest is for record and index.
_SECTIONS_SHARE = 0.5
# A record repeats nothing of the sections, which need less room beside it.
_BESIDE_RECORD = 0.85
# Sections longer than code writes them cost the record so many times the rest, but it keeps a share of its budget.
_LONG_SECTIONS = 2.6
# Shorter ones leave it a part of their room.
_SHORT_SECTIONS = 0.15
_FRAME_CHARS = 1_000
_LEAST_RECORD_SHARE = 0.4
# Sections that code writes, as a share of the record's budget: the record has the details.
_CODE_SHARE = 0.2
_LEAST_CODE_CHARS = 2_000
_INDEX_SHARE = 0.12
_MOST_INDEX_CHARS = 2_400
# Drawing the record again costs time: only for more than this share of its room.
_LEAST_REDRAW_SHARE = 0.04
_INDEX_MARGIN_CHARS = 120
# More tokens than this many times the budget make it draw again.
_TOKEN_TOLERANCE = 1.08
_BY_USER = frozenset(("Active Task", "Constraints & Preferences"))
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

    @property
    def code_chars(self) -> int:
        """Characters of the sections that code writes."""
        record_chars = int(self.record_tokens * CHARS_PER_TOKEN)
        most = int(self.summary_tokens * CHARS_PER_TOKEN)
        return min(most, max(int(record_chars * _CODE_SHARE), _LEAST_CODE_CHARS))


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
) -> Shares:
    """Compute the budgets for a middle of this size. A handoff is never longer than what it replaces."""
    summary_tokens = min(summary_cap_tokens, max(summary_min_tokens, int(middle_tokens * summary_ratio)))
    record = min(record_tokens, middle_tokens // 3)
    if whole_tokens is not None:
        summary_tokens = min(summary_tokens, whole_tokens)
        record = min(record, whole_tokens)
    if whole_chars is not None:
        total = max(1, int(whole_chars / CHARS_PER_TOKEN))
        summary_tokens = min(summary_tokens, max(1, int(total * _SECTIONS_SHARE)))
        record = total
    return Shares(summary_tokens, record, whole_tokens, whole_chars, is_short)


@dataclass(frozen=True, slots=True)
class HandoffParts:
    """What a handoff is assembled from: the sections, and functions that draw record and index within a budget."""

    sections: Mapping[str, str]
    # Takes the characters available and the text of the sections, whose sentences it does not repeat.
    draw_record: Callable[[int, str], str]
    # Takes the characters available and the text of sections and record.
    draw_index: Callable[[int, str], str]


def assemble(parts: HandoffParts, frame: Handoff, shares: Shares) -> Handoff:
    """Assemble the handoff: sections within their cap, then the record, then the index, in what room is left."""
    texts = {name: redact(parts.sections.get(name, "")) for name in SECTIONS}
    active_task = texts.pop("Active Task")
    most = int(shares.summary_tokens * _BESIDE_RECORD) if shares.record_tokens else shares.summary_tokens
    sections = shorten(texts, most, size=estimate_text)
    handoff = _bounded(frame.with_sections({**sections, "Active Task": active_task}), shares)
    room = _room(handoff, shares)
    if room < _LEAST_RECORD_CHARS:
        return handoff
    reserve = 0 if shares.is_short else min(int(room * _INDEX_SHARE), _MOST_INDEX_CHARS)
    record = _within_tokens(parts.draw_record, room - reserve, handoff.body)
    index = _draw_index(parts, room - len(record), f"{handoff.body}\n{record}")
    if reserve - len(index) > _LEAST_REDRAW_SHARE * room:
        # Few values were worth listing: the record takes their room.
        record = _within_tokens(parts.draw_record, room - len(index) - _INDEX_MARGIN_CHARS, handoff.body)
        index = _draw_index(parts, room - len(record), f"{handoff.body}\n{record}")
    return _without_overrun(replace(handoff, record=record, index=index), shares)


def _draw_index(parts: HandoffParts, room: int, text: str) -> str:
    room = min(room, _MOST_INDEX_CHARS)
    return _within_tokens(parts.draw_index, room, text) if room >= _LEAST_RECORD_CHARS else ""


def _within_tokens(draw: Callable[[int, str], str], room: int, text: str) -> str:
    """Draw a text, and once more in less room where it is more tokens than prose of its length."""
    drawn = redact(draw(room, text))
    most = room / CHARS_PER_TOKEN
    if len(drawn) > most and (tokens := estimate_text(drawn)) > _TOKEN_TOLERANCE * most:
        drawn = redact(draw(int(room * most / tokens), text))
    return drawn


def _room(handoff: Handoff, shares: Shares) -> int:
    """Return the characters for record and index: their budget, less what long sections take of it."""
    if not shares.record_tokens:
        return 0
    # What the user laid down costs the record nothing.
    used = sum(estimate_text(text) for name, text in handoff.sections.items() if name not in _BY_USER)
    unused = (shares.code_chars + _FRAME_CHARS) / CHARS_PER_TOKEN - used
    spare = int(unused * (_SHORT_SECTIONS if unused > 0 else _LONG_SECTIONS))
    least = int(shares.record_tokens * _LEAST_RECORD_SHARE)
    room = int(max(least, shares.record_tokens + spare) * CHARS_PER_TOKEN)
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


def _bounded(handoff: Handoff, shares: Shares) -> Handoff:
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
    """The last image of a history and the index of its message."""
    for i in range(len(messages) - 1, -1, -1):
        content = messages[i].content
        for part in reversed(content) if isinstance(content, tuple) else ():
            if isinstance(part, ImagePart):
                return i, part
    return None
