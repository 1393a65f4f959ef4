"""Pages written for people, such as web pages and READMEs, reduced to their statements, dates and figures.

Instruction files that an agent read (a skill, AGENTS.md) are reduced to their rules.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from perdure.context.fitting import fair_share
from perdure.context.redacted_entries import redact_entry, redact_message
from perdure.context.text import Passage, clip, is_prose, join_passages, size_of, split_passages
from perdure.context.tool_calls.call_line import CallKind, CallLine
from perdure.context.tool_calls.edits import written_text
from perdure.context.tool_calls.logs import is_log
from perdure.context.tool_calls.output import parse_json
from perdure.core.messages import Entry, Message
from perdure.redaction import redact

_MOST_CHARS = 60_000
_LEAST_DOCUMENT_CHARS = 400
_MOST_DOCUMENT_CHARS = 300_000
# One document may take this share of the record, unless more is left.
_DOCUMENT_SHARE = 0.08
# Instruction files together: a share of the record, and of what nothing else needs.
_INSTRUCTIONS_SHARE = 0.09
_SPARE_INSTRUCTIONS_SHARE = 0.35
# Reports that a research session wrote, together.
_REPORTS_SHARE = 0.3
_LEAST_REPORT_CHARS = 800
_FEWEST_PAGES = 3
_CODE_KINDS: tuple[CallKind, ...] = ("edit", "test", "build", "git")
_LEAST_PASSAGE_WORTH = 0.15
_COMMENT = re.compile(r"<!--(?:(?!-->)[\s\S]){0,4000}-->")
_IMAGE = re.compile(r"!\[[^\]\n]{0,300}\]\([^)\n]{0,4000}\)")
_CONTENTS = re.compile(r"^\s{0,200}(?:[-*+]|\d{1,3}\.)\s+\[[^\[\]\n]{0,200}\]\(#[^)\n]{0,300}\)\s*$", re.MULTILINE)
_LINK = re.compile(r"\[([^\[\]]{0,1200})\]\((?:[^()\n]|\([^()\n]*\)){0,2000}\)")
_TAG = re.compile(r"</?[a-zA-Z][^<>\n]{0,600}>")
_FRONT = re.compile(r"\s*---\n((?:(?!---)[^\n]*\n){1,40})---\n")
_FRONT_FIELD = re.compile(r"^(name|title|description|date|version):\s*(.+)$", re.MULTILINE)
_BREAK = re.compile(r"(?:(?<!\s)\s+)?+\\{1,2}\s*(?=\n|$)")
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
_FIRST_WORTH = 0.52
_FIGURE_WORTH = 0.58
_ITEM_WORTH = 0.3
_OTHER_WORTH = 0.22
_HEADING_WORTH = 0.1
_NEXT_DROP = 0.1
# A name at the head of a list item, and the description behind it.
_NAME_WORTH = 0.6
_REST_FACTOR = 0.6
_NAME_CHARS = 32
_NAME = re.compile(r"^\s*(?:[-*•+]|\d{1,3}[.)])\s+([^\n:：]{2,60}?)(?::|：| [-–—]) ")
# The parts of instructions.
_RULE_WORTH = 0.8
_STEP_WORTH = 0.65
_SAMPLE_WORTH = 0.4
_RULE = re.compile(
    r"(?i)\b(?:must|never|always|only|do not|don't|avoid|ensure|require\w*|should|instead of|at least|at most|before"
    r"|after|first|save\w*|format\w*|name[ds]?|use)\b|必须|不要|禁止|必ず|しない|반드시|금지|[`<{]"
)
_DIAGRAM = re.compile(
    r"\A\s*(?:gantt|pie|graph|flowchart|sequenceDiagram|stateDiagram|classDiagram|mindmap|timeline)\b|--[->]"
)
_INSTRUCTION_FILE = re.compile(
    r"(?:^|[/\\])(?:(?:SKILL|AGENTS?|CLAUDE|GEMINI|QWEN|CONVENTIONS|RULES|INSTRUCTIONS|copilot-instructions)(?:\.local)?"
    r"\.mdc?|\.(?:cursor|windsurf|cline)rules)$|[/\\]\.cursor[/\\]rules[/\\]",
    re.IGNORECASE,
)
_LINE_NUMBER = re.compile(r"^ {0,8}\d{1,6}(?:→|\t| \| )", re.MULTILINE)
_REMINDER = re.compile(r"<system-reminder>(?:(?!</system-reminder>)[\s\S]){0,4000}</system-reminder>")
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
    front, text = _split_front(text[:_MOST_CHARS])
    text = _CONTENTS.sub("", _IMAGE.sub("", _COMMENT.sub("", text)))
    lines = []
    for line in _linked_lines(_LINK.sub(_label, text)):
        line = _ESCAPED.sub(r"\1", _TAG.sub("", _BREAK.sub(" ", line)))
        lines.append(line.rstrip() if _is_text(line) else "")
    return f"{front}\n\n" * bool(front) + "\n".join(lines)


def _split_front(text: str) -> tuple[str, str]:
    """Return the telling fields of the front matter, and the text behind it."""
    if (match := _FRONT.match(text)) is None:
        return "", text
    return "\n".join(f"{m[1]}: {m[2]}" for m in _FRONT_FIELD.finditer(match[1])), text[match.end() :]


# Marks the label of a link until the lines that are nothing else are left out.
_OPEN, _CLOSE = "\x02", "\x03"
_LABEL = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*){_CLOSE}")


def _label(match: re.Match[str]) -> str:
    label = " ".join(_BREAK.sub(" ", match[1]).split())
    return f"{_OPEN}{label}{_CLOSE}" if label else ""


def _linked_lines(text: str) -> Iterator[str]:
    """Return the lines with the labels of their links; one of short labels alone leads elsewhere."""
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
    has_letter = any(map(str.isalpha, stripped))
    # What costs least comes first: most lines are sentences.
    if not stripped or (has_letter and len(stripped.split()) >= _SMALL_WORDS) or _STRUCTURE.match(line) is not None:
        return True
    if _DATE.search(stripped) is not None:
        return True
    is_wide = not stripped.isascii() and any(ord(c) > 0x2E7F for c in stripped)
    return has_letter and (is_wide or _SENTENCE.search(stripped[-1]) is not None)


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
        if passage.joint != "\n" and out and out[-1].worth == _NEWS_WORTH:
            # News are seldom told in one sentence.
            worth = max(worth, _NEWS_WORTH - _NEXT_DROP)
        if _HEADING_WORTH < worth < _FIGURE_WORTH and (name := _name_of(passage.text)):
            # The names of a list tell more than the description of one.
            worth = max(worth, _NAME_WORTH)
            passage = replace(passage, short=name)
        out.append(replace(passage, worth=worth))
    return _under_nearest(out, leads)


def _name_of(item: str) -> str:
    """Return the list item up to the end of its name; "" for one without a name, or below another item."""
    if item.startswith((" ", "|")) or (mark := _ITEM_MARK.match(item)) is None:
        return ""
    name = _NAME.match(item)
    return item[: name.end(1)] if name else item if len(item) - mark.end() <= _NAME_CHARS else ""


def _under_nearest(passages: Sequence[Passage], leads: set[int]) -> tuple[Passage, ...]:
    """Return the passages below their nearest heading alone: those above it say little more."""
    return tuple(
        replace(p, lead=-1) if n in leads and p.text.endswith(":") and not _ITEM_MARK.match(p.text) else p
        for n, p in enumerate(passages)
    )


def rule_passages(text: str) -> tuple[Passage, ...]:
    """Parse an instruction file into passages; rules, steps and formats count most, diagrams and samples least."""
    front, text = _split_front(text[:_MOST_CHARS])
    text = _LINK.sub(r"\1", _IMAGE.sub("", _COMMENT.sub("", text)))
    passages = split_passages(f"{front}\n\n" * bool(front) + text)
    leads = {p.lead for p in passages}
    out: list[Passage] = []
    for number, passage in enumerate(passages):
        body = _ITEM_MARK.sub("", passage.text)
        if number in leads and passage.text.endswith(":"):
            worth = _HEADING_WORTH
        elif _DIAGRAM.search(body):
            worth = 0.0
        elif "\n" in body:
            worth = _SAMPLE_WORTH
        else:
            worth = _RULE_WORTH if _RULE.search(body) else _STEP_WORTH if body != passage.text else _FIRST_WORTH
        if passage.lead >= 0 and not out[passage.lead].worth:
            worth = 0.0
        out.append(replace(passage, worth=worth))
    return _under_nearest(out, leads)


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
    """Whether a text is instructions for an agent with a head of their own."""
    return (match := _FRONT.match(text[:6_000])) is not None and "description:" in match[1]


def within_share(passages: Sequence[Passage], most: int) -> tuple[Passage, ...]:
    """Return the passages, of which only the best within `most` bytes keep their worth; some are shortened."""
    room = most
    selected: set[int] = set()
    whole: set[int] = set()
    steps = [(_rate(p.worth, p.short), n, False) for n, p in enumerate(passages)]
    steps += [(_rate(p.worth * _REST_FACTOR, p.text), n, True) for n, p in enumerate(passages) if p.text != p.short]
    for _, number, is_rest in sorted(steps, key=lambda s: -s[0]):
        if is_rest and number not in selected:
            continue
        chain = [] if is_rest else _with_leads(passages, number, selected)
        size = sum(size_of(passages[n].short) + 2 for n in chain)
        if is_rest:
            size = size_of(passages[number].text) - size_of(passages[number].short)
        if size <= room:
            selected.update(chain)
            whole.update([number] if is_rest else [])
            room -= size
    return tuple(
        replace(p, worth=0.0) if n not in selected else p if n in whole else replace(p, text=p.short)
        for n, p in enumerate(passages)
    )


def _rate(worth: float, text: str) -> float:
    return worth / math.pow(max(1, len(text[:300])), _SIZE_EXPONENT)


def _with_leads(passages: Sequence[Passage], number: int, selected: set[int]) -> list[int]:
    chain = []
    while number >= 0 and number not in selected:
        chain.append(number)
        number = passages[number].lead
    return chain


@lru_cache(maxsize=32)
def excerpt(text: str, most: int) -> str:
    """Return the best of a text written for people in about `most` bytes; "" for code, data and listings."""
    text = _LINE_NUMBER.sub("", _REMINDER.sub("", text[:_MOST_CHARS]))
    if not is_prose(text):
        return ""
    passages = within_share(split_passages(text), most)
    return join_passages(passages, [2 if p.worth else 0 for p in passages])


def page_rows(text: str, limit: int) -> list[str]:
    """Return the best of a page in at most about `limit` characters, in order."""
    passages = within_share(page_passages(text), limit)
    return [clip(p.text, 300) for p in passages if p.worth > _HEADING_WORTH]


@dataclass(frozen=True, slots=True)
class QuotedDocument:
    """A text that was read, by its best passages."""

    passages: tuple[Passage, ...]
    # Rules for the agent, such as a skill or AGENTS.md.
    is_instructions: bool = False
    # Written by the agent: a result of its work.
    is_report: bool = False

    @property
    def size(self) -> int:
        return sum(size_of(p.text) + 2 for p in self.passages if p.worth)


def share_instructions(instructions: Mapping[str, QuotedDocument], room: int) -> dict[str, QuotedDocument]:
    """Reduce instruction files to their share of a room."""
    return _within(instructions, int(_INSTRUCTIONS_SHARE * room))


def find_instructions(entries: Sequence[Entry], reads: Mapping[str, CallLine]) -> dict[str, QuotedDocument]:
    """Return the instruction files among the results, the newest reading of each; `reads` are the calls by id."""
    newest: dict[str, tuple[str, QuotedDocument]] = {}
    for entry in reversed(entries):
        call_id = entry.message.tool_call_id or ""
        if call_id not in reads or len(entry.message.text) < _LEAST_DOCUMENT_CHARS:
            continue
        line = reads[call_id]
        path = next((p for p in line.facts.read_files if _INSTRUCTION_FILE.search(p)), "")
        is_rules = bool(path) or is_skill(entry.message.text)
        if is_rules and (path or call_id) not in newest and not is_log(line.line):
            rules = QuotedDocument(entry.memo("rules", _rules), is_instructions=True)
            newest[path or call_id] = call_id, rules
    return dict(newest.values())


def written_reports(
    entries: Sequence[Entry], lines: Mapping[tuple[int, str], CallLine], room: int
) -> dict[str, QuotedDocument]:
    """Return the prose files that a session wrote, by the ids of their calls, within their share of the room."""
    newest: dict[str, tuple[str, QuotedDocument]] = {}
    for entry in reversed(entries):
        for call in entry.message.tool_calls:
            line = lines.get((entry.seq, call.id))
            if line is None or line.kind != "write" or line.outcome != "ok" or line.target in newest:
                continue
            content = written_text(call.parsed_arguments() or {})
            if len(content) >= _LEAST_REPORT_CHARS and is_prose(content):
                report = QuotedDocument(split_passages(redact(content[:_MOST_CHARS])), is_report=True)
                newest[line.target] = call.id, report
    return _within(dict(newest.values()), int(_REPORTS_SHARE * room))


def is_research(lines: Iterable[CallLine]) -> bool:
    """Return whether a session collected information: it opened pages of the web and worked on no code."""
    pages = 0
    for line in lines:
        if line.kind in _CODE_KINDS:  # as in most sessions, among the first calls
            return False
        pages += line.kind == "web"
    return pages >= _FEWEST_PAGES


def find_documents(
    entries: Sequence[Entry], reads: Mapping[str, CallLine], instructions: Mapping[str, QuotedDocument]
) -> dict[str, QuotedDocument]:
    """Add the results that are prose to the instruction files, by the ids of their calls, newest within a bound.

    Parsed passages are cached.
    """
    documents = dict(instructions)
    chars = 0
    for entry in reversed(entries):
        call_id = entry.message.tool_call_id or ""
        if call_id not in reads or call_id in documents or chars > _MOST_DOCUMENT_CHARS:
            continue
        text = redact_entry(entry).text
        if len(text) < _LEAST_DOCUMENT_CHARS or is_log(reads[call_id].line):
            continue
        if _has_prose(entry, text):
            chars += len(text)
            passages = entry.memo("document", _document)
            if any(p.worth > _LEAST_PASSAGE_WORTH for p in passages):
                documents[call_id] = QuotedDocument(passages)
    return documents


def _has_prose(entry: Entry, text: str) -> bool:
    # Cached: every compaction reads all results again, and most of them are no prose.
    return entry.memo("has prose", lambda _: is_prose(page_source(text)))


def share_documents(documents: Mapping[str, QuotedDocument], room: int, left: int) -> dict[str, QuotedDocument]:
    """Reduce documents to their share of a room, and of what nothing else needs of it."""
    rules = {i: d for i, d in documents.items() if d.is_instructions}
    most = max(int(_INSTRUCTIONS_SHARE * room), int(_SPARE_INSTRUCTIONS_SHARE * left))
    out = _within(rules, most)
    left -= sum(d.size for d in out.values())
    pages = {i: d for i, d in documents.items() if not d.is_instructions}
    # A longer document has more to tell, but not in proportion to its length.
    total = sum(math.sqrt(d.size) for d in pages.values())
    for call_id, page in pages.items():
        share = max(int(_DOCUMENT_SHARE * room), int(left * math.sqrt(page.size) / total))
        out[call_id] = replace(page, passages=within_share(page.passages, share))
    return out


def _within(documents: Mapping[str, QuotedDocument], most: int) -> dict[str, QuotedDocument]:
    share = fair_share([d.size for d in documents.values()], most)
    return {i: replace(d, passages=within_share(d.passages, share)) for i, d in documents.items()}


def _rules(message: Message) -> tuple[Passage, ...]:
    text = _REMINDER.sub("", redact_message(message).text)
    return rule_passages(_LINE_NUMBER.sub("", text))


def _document(message: Message) -> tuple[Passage, ...]:
    return page_passages(redact_message(message).text)
