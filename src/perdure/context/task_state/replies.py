"""Replies of the assistant: the question that ends one, what it answers, and which changes it names.

Each reply is read once and the result is cached with its entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from perdure.context.edit_blocks import edited_paths, has_broken_block
from perdure.context.patterns import PatternMatcher
from perdure.context.task_state.decisions import (
    INTERRUPTED,
    announcement_of,
    content_words,
    decisions_of,
    plan_of,
    user_reading,
)
from perdure.context.task_state.state import SourcedValue
from perdure.context.text import Passage, clip, is_narration, sentences, split_passages, tidy
from perdure.context.user_text.intent import before_fiction
from perdure.core.messages import Entry, Message
from perdure.redaction import redact

# These two are in lower case, for text in lower case: half the price of a search that ignores case.
_STILL_FAILS = re.compile(
    r"\b(?:still (?:fail|broken|red|not work)|could ?n[o']t|cannot|can't|unable to|blocked"
    r"|not (?:yet )?(?:fixed|solved)|remains? (?:broken|open|unsolved)|fail(?:s|ing|ed) (?:with|because)"
    r"|schlägt (?:weiter|noch)|funktioniert nicht|ne (?:marche|fonctionne) pas|sigue fallando|не работает)\b"
    r"|仍然|还是(?:失败|报错)|まだ|失敗|여전히|실패",
)
# A final reply with none of these leaves nothing of the plan open.
_MORE_TO_DO = re.compile(
    r"\b(?:remain\w*|next|still|to-?do|left|later|pending|not yet|follow-?up|noch|nächste|reste|queda"
    r"|pendiente|осталось)\b|接下来|下一步|还需|剩|残り|次に|まだ|다음|남은|아직",
)
_ASKS_BACK = re.compile(r"[?？][\s\"'”’)\]*_`]*$")
_LONGEST_QUESTION = 400
_ANSWER_CHARS = 300
_LEAST_WORTH = 0.45
_LONGEST_CHANGE = 260
_FEWEST_CHANGE_WORDS = 3
_SHORT_EXCLAMATION = 24
_SHORT_REPORT = 80
# "Yes, it's safe." is the point of an answer, however little it says by itself; "Yes." is not.
_VERDICT = re.compile(
    r"(?i)(?:yes|no|ja|nein|oui|non|sí|да|нет)\b[,:;–—-]+ (?!exactly\b|let me|I'll|sure|please)\S.{6,}"
)
# What follows from the sentence before it, or refers to it.
_REFERS_BACK = re.compile(
    r"(?i)(?:this|that|it|its|they|their|these|those|both|each|all (?:of|two|three|four)|either|neither|but|so|and"
    r"|or|however|also|then|which|instead|otherwise|therefore|thus|hence|in (?:that|this|both) case"
    r"|the (?:former|latter))\b"
)
# A change in the words of who made it.
_CHANGED = re.compile(
    r"(?i)\b(?:add|chang|fix|remov|delet|renam|replac|implement|creat|updat|mov|refactor|extract|simplifi|switch|convert"
    r"|introduc|merg|clean|revert|restor|migrat|install|configur|committ|push|publish|deploy|bump|document|dropp|disabl"
    r"|enabl|generat|translat|upgrad|correct|consolidat|unifi|expos|preserv|clarifi|rework|restructur|adjust|extend"
    r"|reduc|resolv|book|cancell?|sav|patch|address|port|rebas|tagg|releas|schedul|refund|submitt|upload)ed\b"
    r"|\b(?:wrote|rewrote|written|rewritten|built|made|sent|split)\b"
    r"|\bnow (?:\w+s|has|have|work|use|return|check|handle|support)\b|\b(?:is|are) now\b|\bno longer\b|\bnow[.!]*$"
)
_CHANGED_ELSEWHERE = re.compile(
    r"(?i)\b(?:hinzugefügt|geändert|entfernt|behoben|umbenannt|erstellt|angepasst|ersetzt|ajouté|modifié|supprimé"
    r"|corrigé|créé|remplacé|añadido|agregado|cambiado|eliminado|corregido|creado|adicionado|alterado|removido|corrigido"
    r"|добавил|изменил|удалил|исправил|создал)\w*|添加了|修改了|修复了|删除了|更新了|实现了|创建了|已(?:添加|修改|修复|删除|更新|实现|创建)"
    r"|(?:追加|修正|変更|削除|更新|作成|実装)し|(?:추가|수정|변경|삭제|구현|생성|적용|제거)(?:했|하였|됨|완료|됐|되었)"
)
# A description, a state of before, a finding, an offer, or what is left to do.
_NO_CHANGE = re.compile(
    r"(?i)\b(?:they|he|she|would|could|should|might|may|will|if|want me|let me|I'll|worth|one thing"
    r"|separately|however|missing"
    r"|previously|was caused|root cause|n't|never|follow-?up|to-?do|remain\w*|as (?:you|user)"
    r"|(?:the|a|this|found|another) (?:\w+ )?(?:bug|issue|problem|race)\b"
    r"(?! (?:is|was|has) (?:now )?(?:fixed|resolved))"
    r"|not (?:yet )?(?:been )?\w+ed"
    r"|(?:is|are|be|gets?|being|when|after|once|whether) (?!now\b|fixed|resolved|done)(?:\w+ )?\w+ed)\b"
)
# Participles that name a thing or a state ("any created files", "fully committed"), and what a part of the work does.
_ATTRIBUTE = re.compile(
    r"(?i)\b(?:(?:the|an?|any|all|each|every|its|their|your|this|that|those|these) (?:\w+ly )?\w{2,}ed(?= [\w`])"
    r"|(?:fully|partially|already|with \S{1,60}) \w{2,}ed)\b"
)
_DOES = re.compile(
    r"(?:Uses|Runs|Commits|Creates|Verifies|Checks|Returns|Asks|Calls|Handles|Supports|Allows|Ensures|Shows|Reads|Writes"
    r"|Validates|Prompts|Logs|Sends|Triggers|Starts|Loads|Stores|Links|Contains|Covers|Explains|Describes|Documents) "
)
_LISTED = re.compile(r"(?:\d{1,2}[.)]|[-•*]) +")
_END_CHARS = 1_000


@dataclass(frozen=True)
class ReplyReading:
    """A final reply: the question that ends it, and whether it mentions failures or open work."""

    text: str
    question: str

    @cached_property
    def has_failed(self) -> bool:
        return _STILL_FAILS.search(self._ends()) is not None

    @cached_property
    def has_more_to_do(self) -> bool:
        return _MORE_TO_DO.search(self._ends()) is not None

    @cached_property
    def has_broken_edit(self) -> bool:
        """Whether it holds an edit that cannot have been applied."""
        return has_broken_block(self.text)

    @cached_property
    def edited_paths(self) -> tuple[str, ...]:
        """The files that the complete edits in it change."""
        return edited_paths(self.text)

    def _ends(self) -> str:
        """Return the ends of a reply, where it states its result."""
        text = self.text
        return (text if len(text) <= 2 * _END_CHARS else f"{text[:_END_CHARS]}\n{text[-_END_CHARS:]}").lower()


def reply_reading(entry: Entry) -> ReplyReading:
    return entry.get_memo("reply reading") or entry.memo("reply reading", _read_reply)


def prepare_reading(entry: Entry) -> None:
    """Compute and cache what the state needs of a message."""
    message = entry.message
    if message.is_real_user:
        own_text(entry)
    elif message.kind == "assistant" and message.text:
        decisions_of(entry)
        plan_of(entry)
        if message.tool_calls:
            announcement_of(entry)
        else:
            reply = reply_reading(entry)
            _ = reply.has_failed, reply.has_more_to_do, reply.edited_paths


def own_text(entry: Entry) -> str:
    """Return the user's own words up to a fiction."""
    return entry.memo("own text", lambda _: before_fiction(user_reading(entry).own_words))


def newest_request_text(entries: Sequence[Entry]) -> str:
    """Return the newest request in the user's own words, with a "yes" or "go on" after it."""
    texts: list[str] = []
    for entry in reversed(entries):
        if not entry.message.is_real_user:
            continue
        reading = user_reading(entry)
        if not reading.text or INTERRUPTED.match(reading.text):
            continue
        texts.append(own_text(entry) or reading.text)
        if not reading.is_bare:
            break
    return "\n".join(reversed(texts))


def answer_of(entry: Entry) -> str:
    """Return the point of a reply: its opening statement, and the conclusions that fit beside it, in order."""
    return entry.memo("answer", _read_answer)


def changes_of(entry: Entry) -> tuple[str, ...]:
    """Return the statements of a reply that name what was changed."""
    return entry.memo("changes", _read_changes)


def _read_changes(message: Message) -> tuple[str, ...]:
    text = redact(message.text)
    prose = "\n\n".join(text.split("```")[::2]) if "```" in text else text
    passages = (p.text for p in split_passages(prose) if not p.text.startswith("|"))
    plain = (tidy(_LISTED.sub("", p.strip(), count=1)) for p in passages)
    fewest = 1 if len(text) <= _SHORT_REPORT else _FEWEST_CHANGE_WORDS
    return tuple(p for p in plain if len(p) <= _LONGEST_CHANGE and _states_change(p, fewest))


def _states_change(sentence: str, fewest: int) -> bool:
    if sentence.endswith((":", "：", "?", "？")) or _NO_CHANGE.search(sentence) or _DOES.match(sentence):
        return False
    stated = _ATTRIBUTE.sub(" ", sentence)
    is_stated = _CHANGED.search(stated) is not None or _CHANGED_ELSEWHERE.search(sentence) is not None
    # "All done." and "Fixed." have no object.
    return is_stated and len(content_words(sentence)) >= fewest


def _read_answer(message: Message) -> str:
    text = redact(message.text)
    prose = "\n\n".join(text.split("```")[::2]) if "```" in text else text
    passages = split_passages(prose)
    leads = {p.lead for p in passages}
    solid = [
        n
        for n, p in enumerate(passages)
        if (p.worth >= _LEAST_WORTH or _VERDICT.match(p.text)) and p.text[-1:] not in ":：?？|" and p.text[0] != "|"
    ]
    solid = [n for n in solid if len(passages[n].text) >= _SHORT_EXCLAMATION or passages[n].text[-1] != "!"]
    # Items mean little without the line above their list, and a heading says what comes.
    stated = [
        n
        for n in solid
        if not _LISTED.match(passages[n].text.strip()) and not (n in leads and passages[n].worth >= 1.0)
    ]
    first = next((n for n in stated if not _REFERS_BACK.match(passages[n].text)), None)
    if first is None:
        return _read_list(passages, [n for n in solid if n not in stated])
    chosen: set[int] = set()
    room = _ANSWER_CHARS
    for n in sorted(stated, key=lambda n: (n != first, -passages[n].worth)):
        piece = passages[n].text
        # "This is safe" needs what it refers to.
        behind = n - 2 if n and passages[n - 1].text.endswith((":", "：")) else n - 1
        is_understood = n == first or behind in chosen or not _REFERS_BACK.match(piece)
        if is_understood and (n == first or len(piece) < room):
            chosen.add(n)
            room -= len(piece) + 1
    return clip(_join(passages[n].text for n in sorted(chosen)), _ANSWER_CHARS)


def _read_list(passages: Sequence[Passage], items: Sequence[int]) -> str:
    """Return the first list with the line above it."""
    lead = next((passages[n].lead for n in items), -1)
    if lead < 0:
        return clip(_join(passages[n].text for n in items), _ANSWER_CHARS)
    listed = [passages[n].text for n in items if passages[n].lead == lead]
    return clip(f"{tidy(passages[lead].text)} {_join(listed)}", _ANSWER_CHARS)


def _join(passages: Iterable[str]) -> str:
    """Join sentences by blanks and items of a list by semicolons."""
    text = ""
    for passage in passages:
        mark = _LISTED.match(passage)
        plain = tidy(passage[mark.end() :] if mark else passage)
        gap = "; " if mark and text and text[-1] not in ".!?。！？:：" else " "
        text = f"{text}{gap}{plain}" if text else plain
    return text


def _read_reply(message: Message) -> ReplyReading:
    text = message.typed_text.strip()
    # Code is left out first: the end of a long block would be taken for prose.
    prose = "".join(text.split("```")[::2]) if "```" in text else text
    questions = sentences(prose[-_LONGEST_QUESTION:])[-1:] if _ASKS_BACK.search(text[-60:]) else []
    return ReplyReading(text, redact(questions[0].strip(" *_-")) if questions else "")


# -- the newest finding: what fails and why, what was found
_STATES_CAUSE = PatternMatcher(
    marks=(
        "issue", "problem", "bug", "cause", "reason", "culprit", "because", "due to", "turns out", "found", "fail",
        "broken", "missing", "verdict", "result", "the fix", "confirmed", "which means",
    ),
    pattern=re.compile(
        r"\b(?:the (?:\w+ ){0,3}(?:issue|problem|bug|cause|reason|culprit|error|failures?|fix|difference)"
        r"(?: here)? (?:is|was|comes?|lies?|seems)\b"
        r"|root cause|caused by|due to|turns out|which means|found (?:it|the|that|an?|\d|\w+ (?:issue|bug|problem)s?)"
        r"|because\b|(?:fails?|failed|failing|broken|missing)\b|(?:review )?verdict|confirmed\b)",
        re.IGNORECASE,
    ),
    cjk=re.compile("原因|因为|问题(?:是|在)|发现|失败|ため|原因|問題は|失敗|때문|원인|문제는|실패|회귀|검증 결과"),
)  # fmt: skip
_SHORTEST_FINDING, _LONGEST_FINDING = 24, 320
# What is only supposed or announced is no finding.
_SUPPOSES = re.compile(r"(?i)\b(?:if|let me|let's|should (?:now )?(?:pass|work|fix))\b")
# What it announces follows in the next sentence.
_ANNOUNCES = re.compile(
    r"(?i)\W*(?:(?:ok(?:ay)?|ah|now|yes|great|perfect)[,.! ]+)*"
    r"(?:I (?:think I )?(?:now )?(?:can )?(?:see|found|understand) (?:the |it\b|what|why)"
    r"|found (?:it|the (?:issue|problem|bug|cause))\b)"
)
_MOST_LOOKED_AT = 12


def newest_finding(entries: Sequence[Entry]) -> SourcedValue | None:
    """Return the newest sentence of the assistant that states what fails, why, or what was found."""
    for entry in entries[: -_MOST_LOOKED_AT - 1 : -1]:
        if finding := entry.memo("finding", _read_finding):
            return SourcedValue(finding, entry.seq)
    return None


def _read_finding(message: Message) -> str:
    if not _STATES_CAUSE.may_be_in(message.text):
        return ""
    pieces = [tidy(s.strip(" *_-#>")) for s in sentences(message.text)]
    for n in range(len(pieces) - 1, -1, -1):
        if n and _ANNOUNCES.match(pieces[n - 1]) and _is_statement(pieces[n]):
            return redact(pieces[n])
        if _is_statement(pieces[n]) and _STATES_CAUSE.is_in(pieces[n]):
            return redact(pieces[n])
    return ""


def _is_statement(sentence: str) -> bool:
    if sentence.endswith((":", "：", "?", "？")) or _SUPPOSES.search(sentence) or is_narration(sentence):
        return False
    if sentence[:1].islower():  # a piece of a sentence
        return False
    return (_SHORTEST_FINDING if sentence.isascii() else _SHORTEST_FINDING // 2) <= len(sentence) <= _LONGEST_FINDING
