"""Text operations of the context engine: sentences, passages with a worth each, excerpts that end at a word.

Passages rank conclusions before narration; rows of tables and lists are shortened instead of dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

# Longer words may be cut.
_LONGEST_WORD = 40
# A Latin mark inside a word or number ends nothing. What is searched for comes first, for speed.
_END = re.compile(r"[\n.!?。！？](?:(?<![.!?])|(?=\s))")
# A dot behind one of these ends no sentence.
_ABBREVIATIONS = (
    *("Dr", "Mr", "Mrs", "Ms", "Prof", "Hr", "Fr", "Sr", "Sra", "Dra", "Mme"),
    *("e.g", "i.e", "vs", "bzw", "z.B", "d.h", "Nr"),
)
_ABBREVIATED = re.compile(rf"\b(?:{'|'.join(map(re.escape, _ABBREVIATIONS))})$")
_LONGEST_ABBREVIATION = 5


def sentences(text: str) -> list[str]:
    """Split a text into sentences, also at line breaks and CJK full stops; fenced code is left out."""
    prose = "".join(text.split("```")[::2]) if "```" in text else text
    pieces: list[str] = []
    start = 0
    for mark in _END.finditer(prose):
        if not _is_abbreviation(prose, mark.start()):
            end = mark.end()
            pieces.append(prose[start:end].strip())
            start = end
    pieces.append(prose[start:].strip())
    return [s for s in pieces if s]


def _is_abbreviation(text: str, at: int) -> bool:
    """Whether the mark at a position is the dot of an abbreviation."""
    return (
        text.startswith(". ", at)
        and text.endswith(_ABBREVIATIONS, 0, at)
        and _ABBREVIATED.search(text[max(0, at - _LONGEST_ABBREVIATION) : at]) is not None
    )


# Line number of a file viewer and its separator; begins with a literal character, for speed.
_NUMBERED = re.compile(r"\n\s{0,200}\d++(?:→|\t|:(?=\s)|\|)")


def tidy(piece: str) -> str:
    """Return an excerpt on one line, without viewer line numbers and repeated blanks."""
    # Skip the regex where no line begins with a digit.
    if "\n" in piece or piece.lstrip()[:1].isdecimal():
        piece = _NUMBERED.sub(" ", f"\n{piece}")
    return " ".join(piece.split())


def last_words(text: str, most: int) -> str:
    """Return the last words of the last paragraph."""
    piece = text.rstrip().rsplit("\n\n", 1)[-1]
    if len(piece) > most:
        at = len(piece) - most
        piece = piece[_at_word(piece, at, 0, len(piece)) :]
    return tidy(piece)


def first_words(text: str, most: int) -> str:
    """Return the first words of a text."""
    piece = text.lstrip()
    return tidy(piece[: _at_word_end(piece, most, 0, len(piece))] if len(piece) > most else piece)


def _at_word(text: str, at: int, lo: int, hi: int) -> int:
    """Return the first word boundary at or after `at`, within lo..hi; CJK text is cut anywhere."""
    if at <= lo:
        return lo
    for i in range(at, min(hi, at + 20)):
        if not (text[i - 1].isalnum() or text[i - 1] == "_"):
            return i
    return min(at, hi)


def _at_word_end(text: str, at: int, lo: int, hi: int) -> int:
    if at >= hi:
        return hi
    for i in range(at, max(lo, at - 20), -1):
        if not (text[i].isalnum() or text[i] == "_"):
            return i
    return max(at, lo)


# A passage longer than this has a short form.
SHORT_CHARS = 130
_CELL_CHARS = 48
_CODE_LINES = 8
# An example of a format is of use as a whole.
_DATA_LINES = 16
_CODE_CHARS = 160
_LONGEST_LEAD = 160
_SAMPLE_CHARS = 4_000
_CODE_MARKS = re.compile(r"[{};=<>]|\b\d+→|^[^\S\n]*(?:def|func|class|import|return|if|for)\b", re.MULTILINE)
_MOST_CODE_MARKS = 0.015
# Longer texts are read from both ends.
_MOST_CHARS = 60_000
# A longer line that introduces others has a statement of its own from this worth on.
_LEAST_LEAD_WORTH = 0.7
_BARE_LEAD_CHARS = 80
# Or one of so many words that denies or opposes something, names a place in code or explains itself in brackets.
_LEAST_STATED_WORDS = 7
_STATES = re.compile(
    r"(?i:\b(?:but|not|never|no|none|cannot|only|instead|already)\b|n['’]t\b)"
    r"|`[^`\n]{0,80}(?:[/_.(]|[a-z][A-Z])[^`\n]{0,80}`|\([^()\n]{8,}\)"
)
# A passage up to this length between two others is shown instead of an ellipsis.
_GAP_CHARS = 70
_LEAST_GAP_WORTH = 0.2


@dataclass(frozen=True, slots=True)
class Passage:
    """A sentence, list item, table row, heading or piece of code."""

    text: str
    # The same up to the end of a clause; equal to `text` where that is short already.
    short: str
    # 0 (filler) to 1 (a decision, a cause, a result).
    worth: float
    # Separator to the passage before it: a newline, or a blank within a paragraph.
    joint: str = "\n"
    # Index of the heading or line that introduces it; -1 without one.
    lead: int = -1


_FENCES = ("```", "~~~")
_RULE = re.compile(r"^\s*(?:[-*_=]\s*){3,}$")
_TABLE_RULE = re.compile(r"^[\s|:+-]+$")
_HEADING = re.compile(r"^\s{0,3}(#{1,6})\s++(.*?)(?:(?<!\s)\s++)?+(?:(?<!#)#++)?+$")
_BOLD_HEADING = re.compile(r"^\*\*([^*:.]{2,60}?):?\*\*:?$")
_ITEM = re.compile(r"^(\s*)(?:[-*•+]|\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?")
_BOLD = re.compile(r"\*\*(\S(?:[^*\n]*?\S)?)\*\*")
# The mark, and what is between two sentences; the mark comes first, for it is searched for.
_SENTENCE_END = re.compile(
    r"[.!?。！？](?:(?<=[.!?])[\"'”’)\]*_`]*\s+(?=[\"'“‘(\[*_`]*[^\s a-z])|(?<=[。！？])(?![。！？…」』）]))"
)
_CLAUSE_END = re.compile(r"[.;:!?。；：！？，、](?=\s|$|[^\x00-\x7f])|,\s|\s[–—-]{1,2}\s|\s\(|\s→")
_DIAGRAM = re.compile(r"[─-▟]|->>|-->|--\)|^\s*(?:graph|flowchart|sequenceDiagram|stateDiagram|participant)\b")
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|approx|no|fig|mr|mrs|dr)\.$", re.IGNORECASE)

# An announcement of the next step, useless once the step was taken.
_NARRATION = re.compile(
    r"^(?:(?:ok(?:ay)?|great|good|perfect|alright|excellent|right|sure|hmm|wait|interesting|got it|i see|now|next"
    r"|first|then|finally|also|so|and|but|yes|there)[,.!:—-]*\s+){0,3}"
    r"(?:let me\b|let's (?:check|look|see|run|verify|take|find|try|start|now|also|first|build|commit|fix|update|add"
    r"|create|write|test|make|read|remove|implement|continue|do|get)\b"
    r"|i(?:'ll| will|'m going to| am going to| need to| should| want to| can)(?: now| also| first| then| start by)?"
    r" (?:check|look|see|run|verify|read|find|search|explore|examine|investigate|analy[sz]e|create|update|add|fix"
    r"|launch|start|begin|write|implement|trace|continue|proceed|take|get|view|review|understand|test|build|commit|do"
    r"|make|use|help)\b"
    r"|(?:checking|looking|reading|running|searching|verifying|updating|fixing|adding|starting|almost there)\b"
    r"|(?:now )?(?:check|run|fix|update|add|test|build|verify|create|remove|commit|push|see|look|read|try|rerun|do) "
    r"|now (?:for|the \w+:)|i (?:now )?(?:understand|see|have a (?:clear|complete|good|full))\b"
    r"|(?:让我|我来|现在我|接下来我|先看|まず|次に|それでは|確認します|먼저|이제|확인(?:해|하겠))"
    r")",
    re.IGNORECASE,
)
_FILLER = re.compile(
    r"^(?:(?:that's |this is )?(?:a )?(?:great|good|excellent|perfect|interesting|fair|nice)"
    r" (?:question|point|catch|idea)"
    r"|(?:i(?:'m| am) )?(?:sorry|i apologi[sz]e)\b"
    r"|you(?:'re| are) (?:absolutely |completely |totally )?right(?! to| that| about)|(?:great|perfect|excellent|done"
    r"|good|nice|ok(?:ay)?|sure|a?ha?|oh|hm+|wait|yes|yeah|no|got it|understood|sounds good"
    r"|absolutely|exactly|of course|certainly)\b)"
    r"[\w ,'’]{0,40}[.!:—✓✅-]*$",
    re.IGNORECASE,
)
# In lower case, for text in lower case: half the price of a search that ignores case.
# Words of a conclusion by their first letter: one long alternation takes three times as long.
_CONCLUSION = re.compile(
    r"\b(?:a(?:pprove\w*|lways|dded)|b(?:ecause|roken|ut|locked)"
    r"|c(?:aused? by|onclusion|hose|annot|an't|orrect(?:ly)?|onfirmed|ompleted?|ommitted|reated|hanged|aveat)"
    r"|d(?:ecid\w+|ecision|oesn't|oes not|one|eployed|efault|eferred)|e(?:xcept|rror)"
    r"|f(?:ixed|ails?|ailed|ailing|ollow-?up|ound)|however|i(?:nstead of|sn't|s not)|l(?:eft|imitation)"
    r"|m(?:eans that|ust|issing|erged)|n(?:ever|ot yet|o longer)|o(?:nly|ut of scope)|p(?:asses|assed|assing|ushed)"
    r"|r(?:oot cause|ather than|ecommend\w*|emoved|enamed|eplaced|emaining|isk)|s(?:ince|o that|kipped)"
    r"|t(?:he (?:issue|problem|bug|cause|fix|reason|answer|key|solution|limitation)|rade-?off|herefore|urns out|odo)"
    r"|unless|ver(?:dict|ified)|w(?:on't|orks|rong))\b"
)
_WIDE_CONCLUSION = re.compile(
    "[✓✅❌⚠]|决定|因为|原因|所以|改用|修复|失败|成功|必须|不能|結論|ため|修正|失敗|必要|決定|때문|원인|결론|수정|실패|성공"
)
# Exact values: a path or a dotted name, a number, code, a hash, an address, an issue. Each begins with the characters
# that are searched for; what has to precede them is checked behind them.
_JOINED_OR_NUMBER = re.compile(r"[/_.\d](?:(?<=\w[/_.])\w|(?<=\d)(?<!\w.)\d*(?!\w))")
_QUOTED_CODE = re.compile(r"`[^`\n]+`")
_HASH = re.compile(r"[0-9a-f](?<!\w.)[0-9a-f]{6,39}(?!\w)")
_ADDRESS = re.compile(r"https?://|#\d")
# Characters of CJK scripts: three bytes each, but two or three of them are two tokens.
_WIDE = re.compile("[\u2e80-\ua4cf\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]")
# The first bytes of wide characters, and the second ones of those that begin like a dash or an arrow.
_WIDE_LEADS, _SECOND_BYTES = range(0xE3, 0xF0), bytes(range(0xBA, 0xC0))
_NO_WIDE_BYTES = bytes(byte for byte in range(256) if byte not in _WIDE_LEADS and byte not in _SECOND_BYTES)
_WIDE_RADICALS = tuple(bytes((0xE2, byte)) for byte in _SECOND_BYTES)
_WIDE_DISCOUNT = 0.6
_WIDE_FACTOR = 3
_QUESTION = re.compile(r"[?？][\"'”’)\]*_`]*$")
# A line or a heading that announces what a review or a discussion came to.
_VERDICT = re.compile(
    r"(?i)\W{0,9}(?:\d+[.)] )?(?:(?:final|overall|my) )?(?:verdict|conclusion|recommendation|decision)\b\W{0,4}:"
    r"|\W{0,9}(?:结论|結論|결론)[:：]"
)


def size_of(text: str) -> int:
    """Size of a text in characters of Latin prose with as many tokens: near its UTF-8 bytes, less for CJK."""
    if text.isascii():
        return len(text)
    raw = text.encode("utf-8", "replace")
    # Most texts have no byte of a wide character, which is seen in a fraction of the pattern's time. A search for pairs
    # of bytes takes as long as all the rest, so it comes last.
    signs = raw.translate(None, _NO_WIDE_BYTES)
    if not signs or (not signs.strip(_SECOND_BYTES) and not any(map(raw.__contains__, _WIDE_RADICALS))):
        return len(raw)
    return len(raw) - int(_WIDE_DISCOUNT * len(_WIDE.findall(text)))


def has_wide(text: str) -> bool:
    """Whether a text has characters of a CJK script."""
    return not text.isascii() and _WIDE.search(text) is not None


def clip_short(text: str) -> str:
    """Return the short form of a passage; wide characters count for more."""
    if len(text) <= SHORT_CHARS // _WIDE_FACTOR or text.isascii():
        return clip(text, SHORT_CHARS)
    return clip(text, SHORT_CHARS * len(text) // size_of(text))


def split_passages(text: str) -> tuple[Passage, ...]:
    """Split a text into passages, in order. Linear in its length."""
    if len(text) > _MOST_CHARS:
        text = f"{text[: _MOST_CHARS // 2]}\n…\n{text[-_MOST_CHARS // 2 :]}"
    out: list[Passage] = []
    leads = _Leads()
    for kind, lines in _blocks(text):
        if kind == "heading":
            level, title = lines[0], lines[1]
            out.append(_heading(title, leads.open_heading(len(out), len(level))))
        elif kind == "rule":
            leads = _Leads()
        elif kind == "code":
            out += _code(lines, leads.current)
        elif kind == "table":
            _add_table(out, lines, leads.current)
        elif kind == "item":
            _add_item(out, lines, leads)
        else:
            _add_paragraph(out, " ".join(lines), leads)
    return tuple(_with_ends(out))


class _Leads:
    """The headings and introducing lines that are open at the current line."""

    def __init__(self) -> None:
        self._headings: list[tuple[int, int]] = []
        self._items: list[tuple[int, int]] = []
        self.intro = -1

    @property
    def current(self) -> int:
        """Return the nearest introduction: an item of the list, a line that ends with a colon, or a heading."""
        if self.intro >= 0:
            return self.intro
        return self._headings[-1][1] if self._headings else -1

    def open_heading(self, index: int, level: int) -> int:
        while self._headings and self._headings[-1][0] >= level:
            self._headings.pop()
        lead = self._headings[-1][1] if self._headings else -1
        self._headings.append((level, index))
        self.intro, self._items = -1, []
        return lead

    def open_item(self, index: int, indent: int) -> int:
        while self._items and self._items[-1][0] >= indent:
            self._items.pop()
        lead = self._items[-1][1] if self._items else self.current
        self._items.append((indent, index))
        return lead

    def end_list(self) -> None:
        self._items = []
        self.intro = -1


def _blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield headings as (marks, title), code and tables as lines, list items with their continuation, paragraphs."""
    kind, fence = "", False
    block: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith(_FENCES):
            if block:
                yield kind, block
            kind, block, fence = ("", [], False) if fence else ("code", [], True)
            continue
        if fence:
            block.append(line)
            continue
        now = _line_kind(line, stripped)
        if now in ("blank", "rule", "heading", "item") or (now != kind and not (kind == "item" and now == "text")):
            if block:
                yield kind, block
            kind, block = "", []
        if now == "heading":
            match = _HEADING.match(line)
            bold = _BOLD_HEADING.match(stripped)
            yield now, [match[1], match[2]] if match else ["#######", bold[1] if bold else stripped]
        elif now == "rule":
            yield now, []
        elif now != "blank":
            kind = kind or now
            block.append(line)
    if block:
        yield kind, block


def _line_kind(line: str, stripped: str) -> str:
    if not stripped:
        return "blank"
    first = stripped[0]
    if first == "|":
        return "table"
    if (first == "#" and _HEADING.match(line)) or (first == "*" and _BOLD_HEADING.match(stripped)):
        return "heading"
    if first in "-*_=" and _RULE.match(stripped):
        return "rule"
    return "item" if (first in "-*•+" or first.isdecimal()) and _ITEM.match(line) else "text"


def _plain(text: str) -> str:
    plain = " ".join(text.split())
    # What is split off is what stands between the marks: faster than to replace each by its content.
    return "".join(_BOLD.split(plain)) if "**" in plain else plain


def _heading(title: str, lead: int) -> Passage:
    title = _plain(title).strip("*: ")
    if ": " in title:
        return Passage(title, clip(title, 80), 1.0 if _VERDICT.match(title) else 0.75, "\n", lead)
    return Passage(f"{title}:", f"{clip(title, 80)}:", 0.6 if _concludes(title) else 0.3, "\n", lead)


def _code(lines: Sequence[str], lead: int) -> list[Passage]:
    """Code in pieces of a few lines, with narrow indentation; diagrams are worth less."""
    lines = [clip(_narrow(line), _CODE_CHARS) for line in lines if line.strip()]
    if not lines:
        return []
    is_data = lines[0].strip() in ("{", "[")
    worth = 0.15 if _DIAGRAM.search("\n".join(lines[:6])) else 0.6 if len(lines) <= 4 or is_data else 0.45
    out = []
    size = _DATA_LINES if is_data else _CODE_LINES
    for start in range(0, len(lines), size):
        piece = "\n".join(lines[start : start + size])
        out.append(Passage(piece, piece, worth, "\n", lead))
        worth *= 0.85
    return out


def _narrow(line: str) -> str:
    body = line.strip()
    indent = len(line) - len(line.lstrip())
    tabs = line[:indent].count("\t")
    return " " * (tabs + (indent - tabs) // 2) + " ".join(body.split())


def _add_table(out: list[Passage], lines: Sequence[str], lead: int) -> None:
    rows = [line.strip() for line in lines if not _TABLE_RULE.match(line)]
    header = -1
    for n, row in enumerate(rows):
        cells = [_plain(c) for c in row.strip("|").split("|")]
        text = " | ".join(cells)
        short = " | ".join(clip(c, _CELL_CHARS) for c in cells)
        if n == 0 and len(rows) > 1:
            header = len(out)
            out.append(Passage(f"| {text}", f"| {short}", 0.25, "\n", lead))
        else:
            out.append(Passage(f"| {text}", f"| {short}", 0.7, "\n", header if header >= 0 else lead))


def _add_item(out: list[Passage], lines: Sequence[str], leads: _Leads) -> None:
    match = _ITEM.match(lines[0])
    indent = len(match[1].expandtabs(4)) if match else 0
    text = _plain(lines[0] if len(lines) == 1 else " ".join(lines))
    lead = leads.open_item(len(out), indent)
    depth = min(indent // 2, 3)
    worth = _statement_worth(text[2:].lstrip(), 0.62) - 0.12 * depth
    mark = " " * depth
    out.append(Passage(mark + text, mark + clip_short(text), max(worth, 0.1), "\n", lead))


def _add_paragraph(out: list[Passage], text: str, leads: _Leads) -> None:
    leads.end_list()
    joint, lead = "\n", leads.current
    first = len(out)
    for sentence in split_sentences(_plain(text)):
        out.append(Passage(sentence, clip_short(sentence), _sentence_worth(sentence), joint, lead))
        # CJK scripts have no blank between sentences.
        joint = "" if sentence[-1] in "。！？" else " "
    # The line introduces the list, table or code behind it.
    if len(out) > first and out[-1].text.endswith((":", "：")) and len(out[-1].text) <= _LONGEST_LEAD:
        leads.intro = len(out) - 1


_LONGEST_NUMBER = 6


def split_sentences(text: str) -> list[str]:
    """Return the sentences of one paragraph; a full stop inside a word, a number or an abbreviation ends none."""
    out: list[str] = []
    start = 0
    for mark in _SENTENCE_END.finditer(text):
        behind = mark.start() + 1
        if behind - start < 2 or _ABBREVIATION.search(text[max(start, behind - 8) : behind]):
            continue
        if behind - start <= _LONGEST_NUMBER and text[start:behind].strip("*_ .").isdigit():
            continue  # the number of a list, also in bold: "**1. Why?**"
        # Closing quotes and brackets belong to the sentence.
        end = mark.start() + len(mark[0].rstrip())
        if sentence := text[start:end].strip():
            out.append(sentence)
        start = mark.end()
    if rest := text[start:].strip():
        out.append(rest)
    return out


def _sentence_worth(sentence: str) -> float:
    if _FILLER.match(sentence):
        return 0.06
    if _NARRATION.match(sentence):
        # An announcement may carry its reason.
        return 0.3 if len(sentence) > 60 and _concludes(sentence) else 0.12
    return _statement_worth(sentence, 0.5)


def is_narration(sentence: str) -> bool:
    """Return whether a sentence announces the next step."""
    return _NARRATION.match(sentence) is not None


def _statement_worth(sentence: str, worth: float) -> float:
    if (":" in sentence or "：" in sentence) and _VERDICT.match(sentence):
        return 1.0
    if _concludes(sentence):
        worth += 0.25
    if _has_exact_value(sentence):
        worth += 0.15
    return min(worth, 1.0)


def _concludes(text: str) -> bool:
    low = text.lower()
    return _CONCLUSION.search(low) is not None or (not low.isascii() and _WIDE_CONCLUSION.search(low) is not None)


def _has_exact_value(text: str) -> bool:
    return (
        _JOINED_OR_NUMBER.search(text) is not None
        or ("`" in text and _QUOTED_CODE.search(text) is not None)
        or _HASH.search(text) is not None
        or (("#" in text or "://" in text) and _ADDRESS.search(text) is not None)
    )


def _with_ends(passages: list[Passage]) -> list[Passage]:
    """Raise the worth of the opening statement and of the closing question or remark."""
    solid = [i for i, p in enumerate(passages) if p.worth >= 0.45 and not p.text.startswith("|")]
    if not solid:
        return passages
    for at, passage in enumerate(passages):
        if passage.lead == at - 1 >= 0 and _VERDICT.match(passages[at - 1].text):
            passages[at] = replace(passage, worth=1.0)
    first, last = solid[0], solid[-1]
    passages[first] = replace(passages[first], worth=min(1.0, passages[first].worth + 0.25))
    raised = 0.35 if _QUESTION.search(passages[last].text) else 0.15
    if last > first:
        passages[last] = replace(passages[last], worth=min(1.0, passages[last].worth + raised))
    if passages[-1].joint == "\n" and _QUESTION.search(passages[-1].text):
        # A closing question needs no heading.
        passages[-1] = replace(passages[-1], lead=-1)
    return passages


def both_ends(text: str, most_chars: int) -> tuple[str, str]:
    """Return the beginning and the end of a longer text, two thirds and a third of the room; no word is cut."""
    head, tail = text[: most_chars * 2 // 3], text[-(most_chars // 3) :]
    if not text[len(head)].isspace() and (end := max(map(head.rfind, " \n"))) > len(head) - _LONGEST_WORD:
        head = head[:end]
    if not text[-len(tail) - 1].isspace() and (start := _first_blank(tail)) < _LONGEST_WORD:
        tail = tail[start:]
    return head, tail


def _first_blank(text: str) -> int:
    return next((at for at, char in enumerate(text) if char.isspace()), len(text))


def clip(text: str, most: int) -> str:
    """Return the beginning of a text up to the end of a clause or word, with an ellipsis; whole where it fits."""
    if len(text) <= most:
        return text
    room = text[: most - 1]
    end = max((m.start() for m in _CLAUSE_END.finditer(room, most // 2)), default=-1)
    if end < 0:
        end = room.rfind(" ", most // 3)
    cut = room[:end] if end > 0 else room
    return cut.rstrip(" ,;:–—-(→") + "…"


def is_prose(text: str) -> bool:
    """Whether a text is written for people: hardly any of the marks that code and data are full of."""
    sample = text[:_SAMPLE_CHARS]
    if sample.lstrip().startswith(("{", "[", "<?xml", "<!DOCTYPE")):
        return False
    return len(_CODE_MARKS.findall(sample)) < _MOST_CODE_MARKS * len(sample)


def join_passages(passages: Sequence[Passage], levels: Sequence[int]) -> str:
    """Join passages by their levels: 0 leaves one out, 1 shows its short form, 2 all of it; … marks omissions."""
    visible = list(levels)
    _drop_bare_leads(passages, visible)
    _close_gaps(passages, visible)
    return "".join(_join_passages(passages, visible))


def _drop_bare_leads(passages: Sequence[Passage], levels: list[int]) -> None:
    """Hide a heading, introducing line or header of a table of which nothing is shown."""
    leads = {p.lead for p in passages}
    visible = {p.lead for p, level in zip(passages, levels, strict=True) if level}
    for n in range(len(passages) - 1, -1, -1):
        if levels[n] and n in leads and n not in visible and _only_introduces(passages[n]):
            levels[n] = 0
            visible = {p.lead for p, level in zip(passages, levels, strict=True) if level}


def _only_introduces(passage: Passage) -> bool:
    """Whether a passage says nothing without what it introduces."""
    if passage.text.startswith("|"):
        return True
    is_open = passage.text.endswith((":", "："))
    if is_open and passage.text.count(" ") >= _LEAST_STATED_WORDS - 1 and _STATES.search(passage.text):
        return False
    return is_open and (len(passage.text) <= _BARE_LEAD_CHARS or passage.worth < _LEAST_LEAD_WORTH)


def _close_gaps(passages: Sequence[Passage], levels: list[int]) -> None:
    """Show a short passage between two that are shown: an ellipsis would hardly be shorter."""
    for n in range(1, len(passages) - 1):
        is_between = not levels[n] and levels[n - 1] and levels[n + 1]
        if is_between and len(passages[n].text) <= _GAP_CHARS and passages[n].worth > _LEAST_GAP_WORTH:
            levels[n] = 2


def _join_passages(passages: Sequence[Passage], levels: Sequence[int]) -> Iterator[str]:
    """Yield the shown passages with their separators, and an ellipsis where something of worth is left out."""
    is_first, has_gap, is_open = True, False, False
    for passage, level in zip(passages, levels, strict=True):
        if not level:
            has_gap = has_gap or passage.worth > _LEAST_GAP_WORTH
            continue
        text = passage.text if level > 1 else passage.short
        if has_gap and not is_first and not is_open:
            yield " …"
        if not is_first:
            yield passage.joint
        yield text
        is_first, has_gap, is_open = False, False, text.endswith("…")
    if has_gap and not is_first and not is_open:
        yield " …"
