"""Separate what a user typed from what they pasted: only the former counts as theirs.

A user message may hold a mail, a web page, a file, a log or a chat of others beside the user's question, marked or not.
Stretches with marks (fences, quotes, tags, tables, JSON, CSV, mail headers, speakers) are removed line by line. Without
marks, the lines that ask or hand over are the user's; the lines before or after them are pasted where they read like a
text: statements in a row, a salutation and a signature, the furniture of a web page, words to "AI assistants".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from perdure.context.user_text import paste_patterns as pat

# More statements in a row read like a text.
_MANY_STATEMENTS = 3
_MANY_FRAGMENTS = 4
# A leading line that ends so asks or hands over.
_OPENERS = ("?", "？", ":", "：")
_LONG_BLOCK = 600
_LONGEST_INTRODUCTION = 300
_SHORT_QUESTION = 160
# Longer messages hold pasted text, whatever it looks like.
_OWN_CHARS = 4_000
_FRAME_CHARS = 1_000

# Lines in the place of removed stretches: one that the user marked, and one of a machine's format.
_MARKED = "\x01"
_MACHINE = "\x02"
_REMOVED = frozenset((_MARKED, _MACHINE))
# The last line of a log, which is no request.
_VERDICT = re.compile(
    r"(?:(?:FAIL(?:ED|URE)?|PASS(?:ED)?|ok|error|exit (?:status|code):? \d+)\b[\t !.]*\n?)+", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Authored:
    """The lines of a message that the user typed, in order; pasted ones are left out."""

    text: str
    # Whether something was removed, so that the rest may be the frame of a paste.
    has_paste: bool


def authored_text(text: str) -> Authored:
    """Return the part of a message's text that the user typed themselves."""
    frame = text if len(text) <= _OWN_CHARS else f"{text[:_FRAME_CHARS]}\n{text[-_FRAME_CHARS:]}"
    stripped = _without_json(_without_markup(frame))
    lines = list(_unmarked_lines(stripped))
    is_long = len(text) > _OWN_CHARS
    own = _own_lines(lines, is_long=is_long)
    result = pat.QUOTED.sub(" ", "\n".join(own)).strip()
    has_paste = _squeeze(result) != _squeeze(text)
    return Authored("" if has_paste and _VERDICT.fullmatch(result) else result, has_paste)


def asks_something(text: str) -> bool:
    """Return whether a short text asks or hands something over, as the part of a message beside an attachment does."""
    lines = [line for line in text.splitlines() if line.strip()]
    return bool(lines) and len(text) <= _LONG_BLOCK and (_is_request(lines[0]) or _is_request(lines[-1]))


def is_for_machines(sentence: str) -> bool:
    """Return whether a sentence addresses AI systems or mentions "the user": a user writes "you" and "I"."""
    return pat.TO_MACHINES.search(_fold(sentence)) is not None


def fold_text(text: str) -> str:
    """Normalize a text to how it looks: compatibility characters replaced, hidden ones removed, in lower case."""
    return _fold(text)


def _fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    return pat.HIDDEN.sub("", unicodedata.normalize("NFKC", text)).lower()


def _squeeze(text: str) -> str:
    return "".join(text.split())


# -- marked stretches ------------------------------------------------------------------------------------------------
def _without_markup(text: str) -> str:
    """Replace every element with its content, from its first opening to its last closing tag, in linear time."""
    if "<" not in text:
        return text
    tags = list(pat.TAG.finditer(text))
    last_closing = {t[1].lower(): t for t in tags if t[0].startswith("</")}
    pieces: list[str] = []
    start = 0
    for tag in tags:
        if tag.start() < start or tag[0].startswith("</"):
            continue
        closing = last_closing.get(tag[1].lower())
        if closing is not None and closing.start() >= tag.end():
            pieces.append(text[start : tag.start()])
            start = closing.end()
        elif pat.OPENS_CONTAINER.match(text, text.rfind("\n", 0, tag.start()) + 1):
            return f"\n{_MARKED}\n".join((*pieces, text[start : tag.start()], ""))  # a container that is never closed
    return f"\n{_MARKED}\n".join([*pieces, text[start:]]) if pieces else text


def _without_json(text: str) -> str:
    """Return a text without what is between the first bracket that opens JSON and the last that closes it."""
    opening = pat.JSON_OPENS.search(text)
    if opening is None:
        return text
    end = max(text.rfind("}"), text.rfind("]"))
    return f"{text[: opening.start()]}\n{_MACHINE}\n{text[end + 1 :] if end > opening.end() else ''}"


def _unmarked_lines(text: str) -> Iterator[str]:
    """Yield the lines outside of marked stretches, and a placeholder for each line that was removed."""
    lines = text.splitlines()
    skipped = _tabular(lines) | _dialogue(lines) | _find_ruled_lines(lines)
    is_fenced = is_introduced = False
    for at, line in enumerate(lines):
        if pat.FENCE.match(line):
            is_fenced = not is_fenced
            yield _MARKED
        elif is_fenced or line == _MARKED or line.lstrip().startswith((">", "|")):
            is_introduced = False  # the pasted text is delimited: what follows it is typed again
            yield _MARKED
        elif at in skipped or line == _MACHINE or line.startswith(("    ", "\t")) or pat.LABELLED.match(line):
            is_introduced = is_introduced and at not in skipped
            yield _MACHINE
        elif (is_introduced and line.strip()) or _ends_own_words(line):
            yield _MARKED
            if not pat.FORGED.search(_fold(line)):
                yield from lines[_letter_end(lines, at) :]
            return
        elif inline := _introduces_inline(line):
            yield line[: inline.end()]
            yield _MARKED
            quoted = pat.WHOLE_QUOTE.match(line, inline.end())
            if quoted is None:
                return
            yield line[quoted.end() :]
        else:
            yield line
            is_introduced = _introduces(lines, at) if line.strip() else is_introduced


def _ends_own_words(line: str) -> bool:
    """Return whether a line begins a mail or a forged handoff, which nothing marks the end of."""
    return (
        pat.FORGED.search(_fold(line)) is not None or pat.MAIL.match(line[:_LONGEST_INTRODUCTION].lstrip()) is not None
    )


def _introduces_inline(line: str) -> re.Match[str] | None:
    """Return the match of an introduction whose text begins on the same line."""
    start = line[: 2 * _LONGEST_INTRODUCTION]
    # Both patterns are costly, and rare are the lines that have the mark that each of them ends with.
    introduction = pat.INTRODUCES_INLINE.search(start) if ":" in start or "：" in start else None
    if introduction is None and ("?" in start or "？" in start):
        introduction = pat.ASKS_INLINE.match(start)
    return introduction


def _introduces(lines: Sequence[str], at: int) -> bool:
    """Return whether a line introduces the text below it: by its words, or by a colon before prose."""
    tail = lines[at].rstrip()[-_LONGEST_INTRODUCTION:]
    if not tail.endswith((":", "：")):
        return pat.HANDS_OVER.search(tail) is not None
    if pat.INTRODUCES.search(tail) or pat.HANDS_OVER.search(tail):
        return True
    below = next((line for line in lines[at + 1 :] if line.strip()), "")
    is_own = pat.RULES_HEADING.match(tail) or pat.SALUTATION.match(tail) or pat.ORDERS.search(tail)
    return len(tail) <= _SHORT_QUESTION and bool(below) and not (is_own or pat.LISTED.match(below))


def _find_ruled_lines(lines: Sequence[str]) -> frozenset[int]:
    """Return the indexes of lines between rules such as `---`, or after a single one up to a closing question.

    A page has rules of its own, so that they do not show where it ends.
    """
    ruled: set[int] = set()
    start = -1
    for i, line in enumerate(lines):
        if pat.RULE.match(line):
            ruled |= set(range(start, i + 1)) if start >= 0 else {i}
            start = i if start < 0 else -1
    if start >= 0:
        ruled.update(range(start, _before_questions(lines, start)))
    return frozenset(ruled)


def _before_questions(lines: Sequence[str], start: int) -> int:
    """Return the end of a stretch from `start` on, without the closing lines that ask something."""
    end = len(lines)
    while end > start and (not lines[end - 1].strip() or _is_request(lines[end - 1])):
        end -= 1
    return end


def _tabular(lines: Sequence[str]) -> frozenset[int]:
    """Return the indexes of the lines of a table, a log or a config, and of other lines in the same paragraph.

    A line at the edge that asks something is the user's.
    """
    rows = _rows(lines) | {i for i, line in enumerate(lines) if pat.LABELLED.match(line)}
    rows |= {i for block in _blocks(lines) for i in _program_lines(lines, block)}
    indexes: set[int] = set()
    for block in _blocks(lines):
        if sum(i in rows for i in block) >= 2:
            while block and block[0] not in rows and _is_request(lines[block[0]]):
                block = block[1:]
            while block and block[-1] not in rows and _is_request(lines[block[-1]]):
                block = block[:-1]
            indexes.update(block)
    return frozenset(indexes)


def _blocks(lines: Sequence[str]) -> Iterator[list[int]]:
    """Yield the indexes of lines between blank ones."""
    block: list[int] = []
    for i, line in enumerate(lines):
        if line.strip():
            block.append(i)
        elif block:
            yield block
            block = []
    if block:
        yield block


def _rows(lines: Sequence[str]) -> set[int]:
    """Return the indexes of lines with the same count of a separator as their neighbour, or of YAML."""
    rows: set[int] = set()
    for separator in pat.SEPARATORS:
        counts = [line.count(separator) for line in lines]
        least = 1 if separator == "\t" else 2
        for i in range(len(lines) - 1):
            if counts[i] >= least and counts[i] == counts[i + 1] and not _is_prose(lines[i], separator):
                rows |= {i, i + 1}
    pairs = {i for i, line in enumerate(lines) if pat.PAIR.match(line)}
    rows |= pairs if len(pairs) > 2 else set()
    for i, (line, following) in enumerate(pairwise(lines)):
        if (prefix := pat.LOG_PREFIX.match(line)) is not None and following.startswith(prefix[0]):
            rows |= {i, i + 1}
    keys = [i for i, line in enumerate(lines) if pat.YAML.match(line)]
    for a, b, c in zip(keys, keys[1:], keys[2:], strict=False):
        if c - a == 2:
            rows |= {a, b, c}
    return rows


def _program_lines(lines: Sequence[str], block: Sequence[int]) -> set[int]:
    """Return the indexes of code with its comments, of a YAML list between keys, and of a block comment."""
    indexes = {i for i in block if pat.CODE.match(lines[i])}
    prompt = next((i for i in block if pat.PROMPT.match(lines[i])), block[-1] + 1)
    indexes |= {i for i in block if i >= prompt}
    indexes |= {i for i in block if indexes and pat.COMMENT.match(lines[i])}
    keys = [m[0].strip(" :-").lower() for i in block if (m := pat.YAML.match(lines[i]))]
    if len(keys) > 1 and any(key.partition(":")[0] not in pat.OWN_LABELS for key in keys):
        indexes |= {i for i in block if pat.YAML_ITEM.match(lines[i]) or pat.YAML.match(lines[i])}
    is_comment = False
    for i in block:
        is_comment = is_comment or lines[i].lstrip().startswith("/*")
        indexes |= {i} if is_comment else set()
        is_comment = is_comment and "*/" not in lines[i]
    return indexes


def _is_prose(line: str, separator: str) -> bool:
    """Return whether a line has its separators as punctuation: each followed by a blank."""
    return separator != "\t" and line.count(f"{separator} ") == line.count(separator)


def _dialogue(lines: Sequence[str]) -> frozenset[int]:
    """Return the indexes of lines of a chat: from the first speaker on, where there are two."""
    speakers = {i: m[1].lower() for i, line in enumerate(lines) if (m := pat.SPEAKER.match(line[:80]))}
    named = {i: name for i, name in speakers.items() if name not in pat.OWN_LABELS | pat.MAIL_LABELS}
    if len(set(named.values())) < 2:
        return frozenset()
    first = next(block for block in _blocks(lines) if min(named) in block)
    start = next(i for i in first if i == min(named) or not _is_request(lines[i]))
    return frozenset(range(start, max(_before_questions(lines, start), max(named) + 1)))


# -- stretches without marks -----------------------------------------------------------------------------------------
def _own_lines(lines: Sequence[str], *, is_long: bool) -> list[str]:
    """Return the lines that are the user's own: all of them, or those around a text that was pasted without marks."""
    remaining = ["" if line in _REMOVED else line for line in lines]
    filled = [i for i, line in enumerate(remaining) if line.strip()]
    if not filled:
        return []
    is_caption = _is_caption(lines)
    is_head = is_caption or _is_request(remaining[filled[0]]) or _points_to_text(lines, filled[0])
    head = filled[0] if is_head else -1
    is_tail = _is_request(_last_sentence(remaining[filled[-1]])) or _points_to_text(lines, filled[-1])
    tail = filled[-1] if filled[-1] > head and is_tail else len(remaining)
    if head >= 0 and tail < len(remaining) and not _is_short_question(remaining[tail]):
        is_announced = any(_refers(lines, head, p) for p in (pat.REFERS, pat.REFERS_VAGUELY))
        is_announced = is_announced or _points_to_text(lines, head)
        tail = len(remaining) if is_announced else tail  # the end of an announced text is not the user's
    statements = _statements([remaining[head]]) if head >= 0 and tail < len(remaining) else 0
    is_behind = 0 <= head < tail < len(remaining) and _points_to_text(lines, tail) and not _points_to_text(lines, head)
    if statements > 1 or (statements and not remaining[head].rstrip().endswith(_OPENERS)) or is_behind:
        head = -1  # the question is at the end, and this is the first paragraph of a text
    body = [i for i in filled if head < i < tail]
    if not body:
        return remaining
    anchors = [i for i in (head, tail) if 0 <= i < len(remaining)]
    evidence = _BodyEvidence.of([remaining[i] for i in body])
    is_text = evidence.is_text or _MACHINE in lines[head + 1 : tail]
    is_referred = is_caption or any(_refers(lines, i, pat.REFERS) or _points_to_text(lines, i) for i in anchors)
    is_referred |= is_text and any(_refers(lines, i, pat.REFERS_VAGUELY) for i in anchors)
    if not (is_long or is_referred or evidence.is_pasted(has_frame=bool(anchors))):
        return remaining
    own = _after_question(remaining[tail:])
    return [*remaining[: head + 1], *(own or remaining[_letter_end(remaining, head + 1) :])]


def _points_to_text(lines: Sequence[str], at: int) -> bool:
    """Return whether a short line in a paragraph of its own points at text above or below it that nothing marks."""
    line = lines[at]
    is_apart = not any(x.strip() for x in (*lines[max(0, at - 1) : at], *lines[at + 1 : at + 2]))
    before, after = _neighbours(lines, at)
    if not is_apart or len(line) > _SHORT_QUESTION or (not after and line.rstrip().endswith((":", "："))):
        return False
    if before in _REMOVED or after in _REMOVED or pat.RULES_HEADING.match(line) or pat.NAMES_OBJECT.search(line):
        return False
    is_other = pat.CODE_WORK.search(line) or pat.JUDGES_OR_WRITES.search(line) or pat.ORDERS.search(line)
    is_ours = pat.OWN_OPENING.search(line) and pat.SUBJECT.search(line)
    return pat.POINTS_TO_TEXT.search(line) is not None and not (is_other or is_ours)


def _is_caption(lines: Sequence[str]) -> bool:
    """Whether a short paragraph that is not in the user's voice precedes directions and no request."""
    filled = [i for i, line in enumerate(lines) if line.strip()]
    first = lines[filled[0]]
    if len(filled) < 2 or filled[1] == filled[0] + 1 or len(first) > _SHORT_QUESTION or _REMOVED & set(lines):
        return False
    below = [s.strip() for i in filled[1:] for s in pat.SENTENCE.findall(lines[i]) if s.strip()]
    directions = sum(pat.ORDERS.search(pat.PLEASE.sub("", s)) is not None for s in below)
    if len(below) < 2 or directions * 2 < len(below) or any(_hands_out_work(s) for s in below):
        return False
    patterns = (pat.OWN_OPENING, pat.CODE_WORK, pat.JUDGES_OR_WRITES, pat.RULES_HEADING, pat.ORDERS, pat.NAMES_OBJECT)
    is_ours = any(p.search(first) for p in patterns) or (pat.SUBJECT.search(first) and not pat.TREATED.search(first))
    return not is_ours and not _is_personal([lines[i] for i in filled[1:]])


def _hands_out_work(sentence: str) -> bool:
    is_order = pat.ORDERS.search(pat.PLEASE.sub("", sentence)) is not None
    return not is_order and (pat.REQUESTS.match(sentence) or pat.ASSIGNS.match(sentence)) is not None


def _neighbours(lines: Sequence[str], at: int) -> tuple[str, str]:
    """Return the nearest lines with text before and after a line; "" for none."""
    after = next((x for x in lines[at + 1 :] if x.strip()), "")
    return next((x for x in reversed(lines[:at]) if x.strip()), ""), after


def _refers(lines: Sequence[str], at: int, pattern: re.Pattern[str]) -> bool:
    """Return whether a line refers to a text in the same message that the user did not mark."""
    line = lines[at]
    if not pattern.search(line) or pat.NAMES_OBJECT.search(line):
        return False
    before, after = _neighbours(lines, at)
    if line.rstrip().endswith((":", "：")) and after in _REMOVED:
        return False  # it refers to what was removed behind it
    return _MARKED not in (before, after)


def _is_request(line: str) -> bool:
    """Return whether a line is the user's: a question, or a short request that refers to a text."""
    if len(line) > _LONGEST_INTRODUCTION:
        return False
    sentences = [s.strip() for s in pat.SENTENCE.findall(line) if s.strip()]
    return any(pat.ASKS.search(s) or (pat.REQUESTS.match(s) and not pat.ORDERS.match(s)) for s in sentences)


def _is_short_question(line: str) -> bool:
    return len(line) <= _SHORT_QUESTION and pat.ASKS.search(line) is not None


def _last_sentence(line: str) -> str:
    return next((s for s in reversed(pat.SENTENCE.findall(line)) if s.strip(" .!?")), line)


def _after_question(lines: Sequence[str]) -> list[str]:
    """Return the closing lines from the first question on: text before it may be the end of the paste."""
    if not lines:
        return []
    first = lines[0]
    for sentence in pat.SENTENCE.finditer(first):
        text = sentence[0].strip()
        if pat.ASKS.search(text) or (pat.REQUESTS.match(text) and not pat.ORDERS.match(text)):
            return [first[sentence.start() :].lstrip(), *lines[1:]]
    return list(lines)


@dataclass(frozen=True, slots=True)
class _BodyEvidence:
    """Evidence that lines without marks are another author's text."""

    lines: Sequence[str]
    # Sentences that are neither questions nor orders and have no first or second person.
    statements: int
    # Lines that are no sentences: `Key: value`, titles, rows.
    fragments: int
    is_personal: bool
    sentences: int

    @classmethod
    def of(cls, lines: Sequence[str]) -> _BodyEvidence:
        count = sum(1 for line in lines for _ in pat.SENTENCE.finditer(line))
        return cls(lines, _statements(lines), sum(map(_is_fragment, lines)), _is_personal(lines), count)

    @property
    def is_text(self) -> bool:
        """Return whether there is more than a sentence or two of orders."""
        return bool(self.statements or self.fragments) or len(self.lines) > 2 or self.sentences > 2

    def is_pasted(self, *, has_frame: bool) -> bool:
        if not has_frame and (len(self.lines) == 1 or pat.RULES_HEADING.match(self.lines[0])):
            return False  # a single paragraph counts as typed, and so does a list of rules
        text = "\n".join(self.lines)
        if not has_frame and _is_signed_note(self.lines):
            return pat.TO_MACHINES.search(_fold(text)) is not None
        if _is_letter(self.lines) or (pat.TO_MACHINES.search(_fold(text)) and (has_frame or len(self.lines) > 1)):
            return True
        if pat.FURNITURE.search(text) and self.statements + self.fragments > 1:
            return True
        if not has_frame and any(_hands_out_work(m[0]) for line in self.lines for m in pat.SENTENCE.finditer(line)):
            return False  # a task, perhaps with a title
        has_title = len(self.lines) > 1 and pat.TITLE.match(self.lines[0]) is not None and self.statements >= 2
        if (has_title or self.fragments >= 2) and not self.is_personal:
            return True
        if not has_frame:
            is_addressed = self.is_personal or pat.ADDRESSES.search(text)
            return self.fragments >= _MANY_FRAGMENTS or (self.statements > 2 * _MANY_STATEMENTS and not is_addressed)
        if self.is_personal and self.statements + self.fragments < 2 * _MANY_STATEMENTS:
            return False
        return self.statements >= _MANY_STATEMENTS or len(text) > _LONG_BLOCK


def _is_fragment(line: str) -> bool:
    if (keyed := pat.KEYED.match(line)) and keyed[1].strip().lower() not in pat.OWN_LABELS:
        return not pat.ORDERS.search(line)
    return len(line) <= _LONGEST_INTRODUCTION and bool(pat.TITLE_CASE.match(line) or pat.ROW.match(line))


def _letter_end(lines: Sequence[str], start: int) -> int:
    """Return where the user speaks again below a letter: in its last paragraph, if that asks for something.

    Below a closing any short order counts; below a mail without one, only a question or a request to treat the mail.
    """
    blocks = [block for block in _blocks(lines) if block[0] >= start]
    if len(blocks) < 2 or len(blocks[-1]) > 3:
        return len(lines)
    last = blocks[-1]
    closing = max((i for i in range(start, last[0]) if pat.SIGN_OFF.match(lines[i])), default=-1)
    text = "\n".join(lines[i] for i in last)
    opening = pat.PLEASE.sub("", text)
    is_request = pat.ASKS.search(next(iter(pat.SENTENCE.findall(text)), text)) or pat.TREATS_MAIL.match(opening)
    is_order = closing >= 0 and len(text) <= _SHORT_QUESTION and pat.ORDERS.match(opening)
    is_part_of_letter = (
        pat.POSTSCRIPT.match(text)
        or pat.TO_MACHINES.search(_fold(text))
        or pat.FURNITURE.search(text)
        or pat.RISKY.search(text)
        or any(pat.SIGN_OFF.match(lines[i]) or pat.SIGNED_NAME.match(lines[i]) for i in last)
    )
    is_short = len(text) <= _LONGEST_INTRODUCTION
    return last[0] if is_short and (is_request or is_order) and not is_part_of_letter else len(lines)


def _is_signed_note(body: Sequence[str]) -> bool:
    """Return whether a short message with a closing and a name is to us: an order or two, no greeting of others."""
    closing = next((i for i, line in enumerate(body) if pat.SIGN_OFF.match(line)), -1)
    if closing < 0 or any(not pat.SIGNED_NAME.match(line) for line in body[closing + 1 :]):
        return False
    greeting = pat.SALUTATION.match(body[0])
    is_to_us = greeting is None or pat.ASSISTANT.search(greeting[0])
    if not is_to_us and greeting and (pat.TO_OTHERS.search(greeting[0]) or pat.NAMED.search(greeting[0])):
        return False
    text = body[1 if greeting else 0 : closing]
    is_short = 0 < len(text) <= 3 and sum(map(len, text)) <= _LONGEST_INTRODUCTION
    return is_short and _statements(text) <= 1 and any(pat.ORDERS.search(x) or pat.ADDRESSES.search(x) for x in text)


def _is_letter(body: Sequence[str]) -> bool:
    greeting = next((m for line in body[:2] if (m := pat.SALUTATION.match(line))), None)
    signs = any(pat.SIGN_OFF.match(line) for line in body[-3:])
    if greeting is None:
        return signs and len(body) > 2
    is_to_others = pat.TO_OTHERS.search(greeting[0]) is not None
    has_name = len(body) > 2 and pat.NAMED.search(greeting[0]) is not None and not pat.ASSISTANT.search(greeting[0])
    return signs or ((is_to_others or has_name) and len(body) > 1)


def _is_personal(lines: Sequence[str]) -> bool:
    """Return whether a statement has the first person as its subject; "I want you to" does not count."""
    sentences = (m[0] for line in lines for m in pat.SENTENCE.finditer(line))
    return any(pat.SUBJECT.search(s) and not (pat.ADDRESSES.search(s) or pat.ORDERS.search(s)) for s in sentences)


def _statements(lines: Sequence[str]) -> int:
    return sum(is_statement(m[0]) for line in lines for m in pat.SENTENCE.finditer(line))


def is_statement(sentence: str) -> bool:
    """Return whether a sentence is neither a question nor an order and has no first or second person."""
    sentence = sentence.strip()
    if len(sentence) < (15 if sentence.isascii() else 6) or pat.ASKS.search(sentence):
        return False
    return not (pat.ORDERS.search(sentence) or pat.FIRST_PERSON.search(sentence) or pat.ADDRESSES.search(sentence))
