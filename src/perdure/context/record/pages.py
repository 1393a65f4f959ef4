"""Pages written for people, such as web pages and READMEs, reduced to their statements, dates and figures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from perdure.context.record.call_text import parse_json
from perdure.context.record.passages import Passage, clip, is_prose, size_of, split_passages
from perdure.context.record.redacted import redact_message, redacted
from perdure.core.messages import Entry, Message

_MOST_CHARS = 60_000
_LEAST_DOCUMENT_CHARS = 400
_MOST_DOCUMENT_CHARS = 300_000
# One document may take this share of the record at most, unless more is left.
_DOCUMENT_SHARE = 0.15
_SKILL_SHARE = 0.05
_LEAST_PASSAGE_WORTH = 0.15
_COMMENT = re.compile(r"<!--(?:(?!-->)[\s\S]){0,4000}-->")
_IMAGE = re.compile(r"!\[[^\]\n]{0,300}\]\([^)\n]{0,4000}\)")
_CONTENTS = re.compile(r"^\s*(?:[-*+]|\d{1,3}\.)\s+\[[^\[\]\n]{0,200}\]\(#[^)\n]{0,300}\)\s*$", re.MULTILINE)
_LINK = re.compile(r"\[([^\[\]]{0,1200})\]\((?:[^()\n]|\([^()\n]*\)){0,2000}\)")
_TAG = re.compile(r"</?[a-zA-Z][^<>\n]{0,600}>")
_FRONT = re.compile(r"\s*---\n((?:(?!---)[^\n]*\n){1,40})---\n")
_FRONT_FIELD = re.compile(r"^(name|title|description|date|version):\s*(.+)$", re.MULTILINE)
_BREAK = re.compile(r"\s*\\{1,2}\s*(?=\n|$)")
_ESCAPED = re.compile(r"\\([#*_\[\]()!.-])")
_STRUCTURE = re.compile(r"\s*(?:#|\||>|[-*•+]\s|\d{1,3}[.)]\s|```|~~~)")
_ITEM_MARK = re.compile(r"^\s*(?:[-*•+]|\d{1,3}[.)]|\|)\s+")
_MONTHS = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_DATE = re.compile(
    rf"\b\d{{4}}-\d\d-\d\d\b|\b\d{{1,2}}[./]\d{{1,2}}[./]\d{{2,4}}\b|\b{_MONTHS}\.? \d{{1,2}}\b"
    rf"|\b\d{{1,2}}\.? {_MONTHS}\b|\d{{4}}年|\d{{1,2}}월"
)
_NEWS = re.compile(
    r"(?i)\b(?:announc\w+|releas\w+|launch\w+|introduc\w+|officially|now (?:available|supports?|integrat\w+)|newly"
    r"|deprecat\w+|open[- ]sourced|licensed|found(?:ed|er)|acquired|stands for|developed by|created by|maintained by)\b"
    r"|\bv?\d+\.\d+ (?:is|will|in|on)\b"
    r"|发布|推出|发表|公開|発表|リリース|출시|공개|발표"
)
# Where to look, and comments in code.
_POINTER = re.compile(
    r"(?i)^\s*(?:please |also |then )?(?:refer to|see|read|check out|visit|view|click|press|explore|open|sign up"
    r"|learn more|# ?\S)"
)
_NOTICE = re.compile(r"(?i)^>? ?(?:\[!(?:note|important|warning|caution)\]|\W*(?:note|important|warning|news)\W*:)")
_SENTENCE = re.compile(r"[.!?。！？]")
_SMALL_WORDS = 4
# Letters beside the labels in a line of links.
_MENU_CHARS = 24
_OPENING_SENTENCES = 3
_CONTENT = ("markdown", "content", "text", "raw_content", "body", "page", "result")
_LEAST_CONTENT_CHARS = 400
# What the parts of a page count.
_TITLE_WORTH = 0.95
_NEWS_WORTH = 0.7
_FIRST_WORTH = 0.6
_FIGURE_WORTH = 0.58
_ITEM_WORTH = 0.3
_OTHER_WORTH = 0.22
_HEADING_WORTH = 0.1
_NEXT_DROP = 0.1
# Of two passages of like worth the shorter one comes first.
_SIZE_EXPONENT = 0.12


def page_source(text: str) -> str:
    """Return the text of a page, also where it arrives in an object with its title."""
    if not text[:1_000].lstrip().startswith("{"):
        return text
    body = parse_json(text)
    if not isinstance(body, dict):
        return text
    content = next((v for n in _CONTENT if isinstance(v := body.get(n), str)), "")
    if len(content) < _LEAST_CONTENT_CHARS:
        return text
    heads = [str(body[n]) for n in ("title", "date", "published_date", "published_at") if body.get(n)]
    return f"# {' · '.join(heads)}\n\n{content}" if heads else content


def plain_page(text: str) -> str:
    """Return a page without pictures, targets of links, tags and the labels of its navigation."""
    text = text[:_MOST_CHARS]
    front = ""
    if (match := _FRONT.match(text)) is not None:
        front = "\n".join(f"{m[1]}: {m[2]}" for m in _FRONT_FIELD.finditer(match[1]))
        text = text[match.end() :]
    text = _CONTENTS.sub("", _IMAGE.sub("", _COMMENT.sub("", text)))
    lines = []
    for line in _linked_lines(_LINK.sub(_label, text)):
        line = _ESCAPED.sub(r"\1", _TAG.sub("", _BREAK.sub(" ", line)))
        lines.append(line.rstrip() if _is_text(line) else "")
    return f"{front}\n\n" * bool(front) + "\n".join(lines)


# Marks the label of a link until the lines that are nothing else are left out.
_OPEN, _CLOSE = "\x02", "\x03"
_LABEL = re.compile(f"{_OPEN}([^{_CLOSE}]*){_CLOSE}")


def _label(match: re.Match[str]) -> str:
    label = " ".join(_BREAK.sub(" ", match[1]).split())
    return f"{_OPEN}{label}{_CLOSE}" if label else ""


def _linked_lines(text: str) -> Iterator[str]:
    """The lines with the labels of their links; one that is only short labels leads elsewhere and has no content."""
    for line in text.split("\n"):
        if _OPEN not in line:
            yield line
            continue
        others = _LABEL.sub("", line)
        labels = _LABEL.findall(line)
        is_bare = not any(c.isalnum() for c in others) and _STRUCTURE.match(others) is None
        is_bare = is_bare or (len(labels) > 2 and sum(map(str.isalnum, others)) < _MENU_CHARS)
        if is_bare and all(len(x.split()) < 2 * _SMALL_WORDS for x in labels):
            yield ""
        else:
            yield line.replace(_OPEN, "").replace(_CLOSE, "")


def _is_text(line: str) -> bool:
    """Whether a line has content: not a button or a counter."""
    stripped = line.strip()
    if not stripped or _STRUCTURE.match(line) is not None or _DATE.search(stripped) is not None:
        return True
    if not any(c.isalpha() for c in stripped):
        return False
    is_wide = any(ord(c) > 0x2E7F for c in stripped)
    return is_wide or len(stripped.split()) >= _SMALL_WORDS or _SENTENCE.search(stripped[-1]) is not None


def page_passages(text: str) -> tuple[Passage, ...]:
    """Parse a page into passages; its title, news, dates, figures and the first sentence of each section count most."""
    passages = split_passages(plain_page(page_source(text)))
    leads = {p.lead for p in passages}
    seen: set[int] = set()
    opening = _OPENING_SENTENCES
    out: list[Passage] = []
    for number, passage in enumerate(passages):
        is_first = passage.lead not in seen and number not in leads and not _ITEM_MARK.match(passage.text)
        if is_first:
            seen.add(passage.lead)
        is_sentence = number not in leads and passage.lead <= 0 and not _ITEM_MARK.match(passage.text)
        is_opening = is_sentence and opening > 0 and number > 0 and not passage.text.startswith(">")
        opening -= is_opening
        worth = _TITLE_WORTH if number == 0 else _worth(passage, is_lead=number in leads, is_first=is_first)
        if is_opening:
            worth = max(worth, _NEWS_WORTH)
        if passage.joint == " " and out and out[-1].text.endswith(":"):
            # A label is shown with what it introduces.
            worth = max(worth, out[-1].worth)
            out[-1] = replace(out[-1], worth=_HEADING_WORTH)
            passage = replace(passage, lead=number - 1)
        elif passage.joint == " " and out and out[-1].worth == _NEWS_WORTH:
            # News are seldom told in one sentence.
            worth = max(worth, _NEWS_WORTH - _NEXT_DROP)
        out.append(replace(passage, worth=worth))
    return tuple(out)


def _worth(passage: Passage, *, is_lead: bool, is_first: bool) -> float:
    text = _ITEM_MARK.sub("", passage.text)
    if "\n" in text or (is_lead and passage.text.endswith(":") and not _DATE.search(text)):
        return _HEADING_WORTH
    if _POINTER.match(text):
        return _HEADING_WORTH
    if _DATE.search(text) or _NEWS.search(text) or (passage.lead <= 0 and _NOTICE.match(text)):
        return _NEWS_WORTH
    if is_first:
        return _FIRST_WORTH
    if any(c.isdigit() for c in text):
        return _FIGURE_WORTH
    return _ITEM_WORTH if ": " in text or passage.text.startswith("|") else _OTHER_WORTH


def is_skill(text: str) -> bool:
    """Whether a text is instructions for an agent with a head of their own: they can be read again."""
    return (match := _FRONT.match(text[:6_000])) is not None and "description:" in match[1]


def fair_share(sizes: Sequence[int], room: int) -> int:
    """Return the most one of several texts may take of a room: short ones are whole before long ones grow."""
    share = 0
    for number, size in enumerate(sorted(sizes)):
        share = room // (len(sizes) - number)
        if size > share:
            break
        room -= size
    return share


def within_share(passages: Sequence[Passage], most: int) -> tuple[Passage, ...]:
    """Return the passages, of which only the best within `most` bytes keep their worth."""
    room = most
    chosen: set[int] = set()
    for number in sorted(
        range(len(passages)), key=lambda n: -passages[n].worth / len(passages[n].text[:300]) ** _SIZE_EXPONENT
    ):
        chain = _with_leads(passages, number, chosen)
        size = sum(size_of(passages[n].text) + 2 for n in chain)
        if size <= room:
            chosen.update(chain)
            room -= size
    return tuple(p if n in chosen else replace(p, worth=0.0) for n, p in enumerate(passages))


def _with_leads(passages: Sequence[Passage], number: int, chosen: set[int]) -> list[int]:
    chain = []
    while number >= 0 and number not in chosen:
        chain.append(number)
        number = passages[number].lead
    return chain


def page_rows(text: str, limit: int) -> list[str]:
    """Return the best of a page in at most about `limit` characters, in order."""
    passages = within_share(page_passages(text), limit)
    return [clip(p.text, 300) for p in passages if p.worth > _HEADING_WORTH]


def read_documents(entries: Sequence[Entry], room: int, left: int) -> dict[str, tuple[Passage, ...]]:
    """Return the results that are prose, newest first within a bound, by the ids of their calls.

    Parsed passages are cached. None takes more than its share of the room, or of what is left of it.
    """
    found: list[tuple[str, tuple[Passage, ...], bool]] = []
    chars = 0
    for entry in reversed(entries):
        if entry.message.role != "tool" or chars > _MOST_DOCUMENT_CHARS:
            continue
        text = redacted(entry).text
        if len(text) >= _LEAST_DOCUMENT_CHARS and is_prose(page_source(text)):
            chars += len(text)
            passages = entry.memo("document", _document)
            if any(p.worth > _LEAST_PASSAGE_WORTH for p in passages):
                found.append((entry.message.tool_call_id or "", passages, is_skill(text)))
    sizes = [sum(size_of(p.text) for p in passages) for _, passages, is_known in found if not is_known]
    share = max(int(_DOCUMENT_SHARE * room), fair_share(sizes, left))
    skill_share = int(_SKILL_SHARE * room)
    return {
        call_id: within_share(passages, skill_share if is_known else share) for call_id, passages, is_known in found
    }


def _document(message: Message) -> tuple[Passage, ...]:
    return page_passages(redact_message(message).text)
