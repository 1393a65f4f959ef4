"""What a reply puts to the user, and what a short answer ("yes", "option 2", "1+3") takes up of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from perdure.context.entries import redact_part
from perdure.context.text import beginning, clip, sentences, tidy
from perdure.core.messages import Entry, Message
from perdure.redaction import redact

_LONGEST_ANSWER = 120
_QUESTION_CHARS = 400
_OPTION_CHARS = 150
_ABOUT_CHARS = 330
_END_CHARS = 4_000
_MOST_OPTIONS = 6
_VAGUE_CHARS = 60
_SHORTEST_STATEMENT = 25
_ASKS_BACK = re.compile(r"[?？][\s\"'”’)\]*_`]*$")
_OPTION = re.compile(
    r"^[ \t]*(?:[-*•][ \t]+|#{1,6}[ \t]+)?\**(?:(?:option|approach|choice|alternative|variant|solution|idea|way|fix"
    r"|opción|opção|вариант|方案|選択肢|案|옵션)[ \t]*)?\(?([1-9]\d?|[A-Ha-h])(?:[.):：、]|[ \t]+[—–-])\**:?[ \t]*"
    r"(\S[^\n]*)$",
    re.IGNORECASE | re.MULTILINE,
)
# A number of a list: not a part of a name, and before a word only where that word joins or ends the choice.
_NUMBER = re.compile(
    r"(?<![\w.#/:=-])#?([1-9]\d?)(?:st|nd|rd|th)?(?:[.)](?!\d))?(?![\w%/:-])"
    r"(?=\W*$|\s*[,;.+&/)]|\s+(?:and|or|is|are|then|first|please|only|for|with|looks?|sounds?|instead|now|plus|but|too|as"
    r"|to|und|oder|et|ou|y|o|и)\b|\s*[和与とも과번])",
    re.IGNORECASE,
)
_LETTER = re.compile(
    r"\b(?:option|approach|choice|variant|alternative)s? ([A-H])\b|\A\W*([A-Ha-h])(?:\W+(?:and\W+)?([A-Ha-h]))?\W*\Z"
)
_ORDINALS = ("first", "second", "third", "fourth", "fifth")
_ORDINAL = re.compile(
    r"\bthe (first|second|third|fourth|fifth|last|latter|former)(?: (?:one|option|approach|way))?\b", re.I
)
_ALL = re.compile(
    r"\b(?:both|all(?: (?:of (?:them|these|those)|\d|three|four))?|alle|beide|todos|tous)\b|都要|全部|両方|둘 ?다|모두",
    re.I,
)
_AGREES = re.compile(
    r"\A\W*(?:(?:ok(?:ay)?|hm+|ah|cool|great|good|nice|perfect|alright)\W+)*"
    r"(?:yes|y|yep|yeah|yup|sure|ok|okay|please do|do (?:it|that|this|so)|go (?:ahead|for it|with)|sounds good|agreed"
    r"|exactly|correct|right|absolutely|definitely|perfect|lgtm|approved?|proceed|implement (?:it|this|that)"
    r"|fix (?:it|this|that)|let'?s (?:do|go|implement|apply|use|try|fix|keep|add|take)"
    r"|I(?:'d| would)? (?:like|agree|think (?:so|this|that))"
    r"|ja|gern|genau|mach das|oui|d'accord|sí|si|vale|claro|sim|да|давай|хорошо)\b"
    r"|\A\W*(?:好|是的|可以|对|行|はい|お願い|うん|そうして|네|예|응|좋아|그렇게|해 ?줘|진행)",
    re.IGNORECASE,
)
_DECLINES = re.compile(
    r"\A\W*(?:no|nope|nah|not now|not yet|later|skip|leave it|don'?t|do nothing|nein|non|нет)\b"
    r"|\A\W*(?:不用|不要|不|いいえ|いや|아니)",
    re.IGNORECASE,
)
_PROPOSES = re.compile(
    r"\b(?:I(?:'d| would) (?:suggest|recommend|propose|go with|lean|prefer|rather)|I (?:suggest|recommend|propose)"
    r"|(?:my )?(?:recommendation|proposal|suggestion)\b|we (?:could|should|can)|(?:the )?(?:fix|solution|approach|plan)"
    r" (?:is|would be|here)|could be|would be to|need(?:s)? to|ich (?:würde|schlage)|je propose|propongo|sugiero)\b"
    r"|建议|可以|推荐|提案|すると|方がいい|제안|추천|하면",
    re.IGNORECASE,
)
# "Want me to implement this?" says nothing without the sentence before it.
_REFERS = re.compile(
    r"\b(?:this|that|it|these|those|them|so|then|proceed|continue|go ahead|preference|prefer|think|thoughts)\b", re.I
)

# An answer that points at what was proposed, instead of naming it.
_POINTS = re.compile(
    r"\b(?:do|apply|implement|use|try|fix|take|build|make|keep|add|with|for) (?:this|that|these|those|it)\b"
    r"|这[样么个]|那[样么个]就|これで|それで|이걸로|그걸로|그렇게",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Proposal:
    """The question that ends a reply, its lists of options, the last one last, and what it recommends."""

    question: str = ""
    lists: tuple[Mapping[str, str], ...] = ()
    statement: str = ""
    is_recommended: bool = False


def proposal_of(entry: Entry) -> Proposal:
    """Return the cached proposal of a reply."""
    return entry.memo("proposal", lambda m: read_proposal(m, partial(redact_part, entry)))


def read_proposal(message: Message, redact: Callable[[str], str] = redact) -> Proposal:
    """Read what a reply puts to the user. Pure, so the result can be cached; `redact` may know that it is clean."""
    text = redact(message.typed_text.strip()[-_END_CHARS:])
    spoken = [s.strip(" *_-#>") for s in sentences(text)]
    is_asked = _ASKS_BACK.search(text[-60:]) is not None
    question = beginning(spoken[-1], _QUESTION_CHARS) if is_asked and spoken else ""
    stated = [s for s in spoken if len(s) >= _SHORTEST_STATEMENT and not _ASKS_BACK.search(s) and s[-1] not in ":："]
    recommended = next((s for s in reversed(stated) if _PROPOSES.search(s)), None)
    statement = recommended or (stated[-1] if stated else "")
    return Proposal(question, tuple(_lists(text)), tidy(statement), recommended is not None)


def _lists(text: str) -> Iterator[Mapping[str, str]]:
    """Yield the lists of a reply with at least two numbered or lettered items; a first label begins a new list."""
    items: dict[str, str] = {}
    for label, body in _OPTION.findall(text):
        name = label.upper()
        if name in items or name in ("1", "A"):
            if len(items) > 1:
                yield items
            items = {}
        items[name] = clip(tidy(body.replace("**", "")), _OPTION_CHARS)
    if len(items) > 1:
        yield items


def is_answer(answer: str) -> bool:
    """Return whether a text answers an offer: it agrees, declines or chooses."""
    return _AGREES.match(answer) is not None or _DECLINES.match(answer) is not None


def may_take_up(answer: str) -> bool:
    """Return whether a short answer can take up anything, whatever was proposed: it agrees, declines or chooses."""
    if len(answer) > _LONGEST_ANSWER or answer.rstrip().endswith(("?", "？")):
        return False
    return is_answer(answer) or any(p.search(answer) for p in (_NUMBER, _LETTER, _ORDINAL, _ALL))


def taken_up(answer: str, proposal: Proposal) -> str:
    """Return what a short answer takes up of a proposal, in the assistant's words; "" where it takes up nothing."""
    if len(answer) > _LONGEST_ANSWER or answer.rstrip().endswith(("?", "？")):
        return ""
    if options := _chosen(answer, proposal.lists):
        return "; ".join(f"{label}. {text}" for label, text in options)
    is_refusal = _DECLINES.match(answer) is not None
    if not is_refusal and not _AGREES.match(answer):
        return ""
    if not proposal.question:
        is_meant = proposal.is_recommended or _POINTS.search(answer) is not None
        return beginning(proposal.statement, _ABOUT_CHARS) if is_meant and not is_refusal else ""
    is_vague = len(proposal.question) <= _VAGUE_CHARS and _REFERS.search(proposal.question) is not None
    before = f"{beginning(proposal.statement, _ABOUT_CHARS - len(proposal.question))} " if is_vague else ""
    return f"{before}{proposal.question}".strip()


def _chosen(answer: str, lists: Sequence[Mapping[str, str]]) -> list[tuple[str, str]]:
    """Return the options that an answer names, of the last list that has them all."""
    labels = list(_NUMBER.findall(answer))
    labels += [x.upper() for groups in _LETTER.findall(answer) for x in groups if x]
    for options in reversed(lists):
        names = labels or _named_by_place(answer, list(options))
        if names and all(name in options for name in names):
            return [(name, options[name]) for name in dict.fromkeys(names)][:_MOST_OPTIONS]
    return []


def _named_by_place(answer: str, labels: Sequence[str]) -> Sequence[str]:
    if (place := _ORDINAL.search(answer)) is not None:
        word = place[1].lower()
        at = -1 if word in ("last", "latter") else 0 if word == "former" else _ORDINALS.index(word)
        return [labels[at]] if at < len(labels) else ()
    return labels if _ALL.search(answer) and len(labels) <= _MOST_OPTIONS else ()
