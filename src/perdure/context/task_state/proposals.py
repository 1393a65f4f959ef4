"""Find what a reply proposes to the user, and what a short answer ("yes", "option 2", "1+3") chooses of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from perdure.context.redacted_entries import redact_part
from perdure.context.text import clip, first_words, sentences, tidy
from perdure.context.tool_calls.call_line import CallLine
from perdure.context.tool_calls.tasks import asks_user
from perdure.core.messages import Entry, Message
from perdure.redaction import redact

_LONGEST_ANSWER = 120
_BARE_CHARS = 16
_QUESTION_CHARS = 400
_OPTION_CHARS = 150
_ABOUT_CHARS = 330
_END_CHARS = 4_000
_MOST_OPTIONS = 6
# A question of this size about "this" or "it" says nothing alone.
_VAGUE_CHARS = 110
# What may follow the question that ends a reply.
_MOST_BEHIND = 3
_LONGEST_BEHIND = 80
_ENDING_CHARS = 260
_SHORTEST_STATEMENT = 25
_ASKS_BACK = re.compile(r"[?？][\s\"'”’)\]*_`]*$")
# A question in the form of a request.
_ASKS_TO_CONFIRM = re.compile(
    r"\A\W*(?:please |kindly |just )*confirm\b|\b(?:please|kindly) (?:reply|confirm|say|respond|answer)\b"
    r"|\blet me know (?:if|whether|that) (?:I (?:should|can|may)|you(?:['’]d| would) like me to|you want me to"
    r"|(?:this|that) works|you (?:agree|approve))\b"
    r"|\bbitte bestätig|\b(?:merci de|veuillez) confirmer\b|\bpor favor,? confirm[ae]\b"
    r"|请确认|請確認|ご確認ください|확인해 ?(?:주세요|줘)",
    re.IGNORECASE,
)
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
    r"|\A\W*(?:好|是的|可以|对|行|就这样|没问题|はい|お願い|うん|そうして|それで|了解|オーケー|いいよ|네|예|응|ㅇㅇ|ㅇㅋ|고고|ㄱㄱ|오케이"
    r"|그래|좋아|그렇게|해 ?줘|진행|계속 ?진행)",
    re.IGNORECASE,
)
# At the beginning of a longer message it is a request of its own.
_NAMES_OWN_WISH = re.compile(r"\A\W*(?:I\b|let'?s\b)", re.IGNORECASE)
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
# "Want me to implement this?"
_REFERS = re.compile(
    r"\b(?:this|that|it|these|those|them|so|then|proceed|continue|go ahead|preference|prefer|think|thoughts)\b", re.I
)

_ASKS_FOR_DATA = re.compile(
    r"(?i)\b(?:(?:could|can|would|may|please|kindly)\b[^?]{0,30}\b(?:provide|share|give|tell|send|have|enter|specify)"
    r"\b[^?]{0,40}\b(?:your|me|the) |what(?:['’]s| is| are) your )"
)
_ASKS_OPENLY = re.compile(
    r"(?i)^\W*(?:(?:so|and|ok(?:ay)?|now)[,. ]+)*(?:what|which|how|who|where|when|why|was|welche[rs]?|wie|que|qué)\b"
    r"(?! (?:if|about)\b)|^\W*(?:뭐|뭘|무엇|어떤|어느|어디|언제|什么|哪|怎么|要做什么|何|どの|どう|いつ)"
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
    # The sentences right before the question.
    ending: str = ""


def proposal_of(entry: Entry) -> Proposal:
    """Return the cached proposal of a reply."""
    return entry.memo("proposal", lambda m: read_proposal(m, partial(redact_part, entry)))


def read_proposal(message: Message, redact: Callable[[str], str] = redact) -> Proposal:
    """Read what a reply puts to the user. Pure, so the result can be cached; `redact` may know that it is clean."""
    text = redact(message.typed_text.strip()[-_END_CHARS:])
    prose = "\n".join(text.split("```")[::2]) if "```" in text else text
    pieces = [s.strip(" *_-#>") for s in sentences(prose)]
    asked = _closing_question(pieces)
    question = first_words(pieces[asked], _QUESTION_CHARS) if asked is not None else ""
    stated = [s for s in pieces if len(s) >= _SHORTEST_STATEMENT and not _ASKS_BACK.search(s) and s[-1] not in ":："]
    # One option of several is not what is proposed.
    options = [body.replace("*", "") for _, body in _OPTION.findall(text)]
    stated = [s for s in stated if not any(s.replace("*", "") in option for option in options)]
    recommended = next((s for s in reversed(stated) if _PROPOSES.search(s)), None)
    statement = recommended or (stated[-1] if stated else "")
    ending = _join_last_pieces(pieces[:asked]) if question else ""
    return Proposal(question, tuple(_lists(text)), tidy(statement), recommended is not None, ending)


def _closing_question(pieces: Sequence[str]) -> int | None:
    """Return the index of the question that ends a reply; a short sentence may follow, such as "Please confirm."."""
    for at in range(len(pieces) - 1, max(-1, len(pieces) - 1 - _MOST_BEHIND), -1):
        if _ASKS_BACK.search(pieces[at]) or _ASKS_TO_CONFIRM.search(pieces[at]):
            is_asked_before = at > 0 and _ASKS_BACK.search(pieces[at - 1])  # "Shall I go on? Please confirm."
            return at - 1 if is_asked_before else at
        if len(pieces[at]) > _LONGEST_BEHIND:
            break
    return None


def _join_last_pieces(pieces: Sequence[str]) -> str:
    """Return the last sentences and items of a list that fit, which a question about "this" is about."""
    chosen: list[str] = []
    room = _ENDING_CHARS
    for sentence in reversed(pieces):
        if (room := room - len(sentence) - 2) < 0:
            break
        chosen.append(tidy(sentence.replace("**", "")))
    ending = " ".join(s if s[-1:] in ".!?;:。！？：" else f"{s};" for s in reversed(chosen) if s)
    return ending if len(ending) >= _SHORTEST_STATEMENT else ""


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


def is_bare_answer(answer: str) -> bool:
    """Return whether a message agrees or declines in a few words, and nothing else."""
    return len(answer) <= _BARE_CHARS and is_answer(answer)


def asks_for_data(question: str) -> bool:
    """Return whether a question asks for an id or a name: its answer decides nothing."""
    return _ASKS_FOR_DATA.search(question) is not None


def asks_openly(question: str) -> bool:
    """Return whether a question cannot be answered by a yes: what, which, how."""
    last = sentences(question)[-1:]
    return bool(last) and _ASKS_OPENLY.search(last[0]) is not None


def may_take_up(answer: str) -> bool:
    """Return whether an answer can refer to any proposal at all: it agrees, declines or chooses."""
    lead = _lead(answer)
    return bool(lead) and (is_answer(lead) or any(p.search(lead) for p in (_NUMBER, _LETTER, _ORDINAL, _ALL)))


def _lead(answer: str) -> str:
    """Return the part of a message that may answer: all of a short one, of others the first sentence if it agrees."""
    if answer.rstrip().endswith((":", "：")):
        return ""  # what follows says what is meant
    if len(answer) <= _LONGEST_ANSWER and not answer.rstrip().endswith(("?", "？")):
        return answer
    first = next(iter(sentences(answer[: 4 * _LONGEST_ANSWER])), "")
    is_lead = len(first) <= _LONGEST_ANSWER and first != answer.strip() and not _ASKS_BACK.search(first)
    return first if is_lead and _AGREES.match(first) and not _NAMES_OWN_WISH.match(first) else ""


def find_referent(answer: str, proposal: Proposal) -> str:
    """Return the part of a proposal that an answer refers to, in the assistant's words; "" if there is none."""
    answer = _lead(answer)
    if not answer:
        return ""
    if options := _find_chosen(answer, proposal.lists):
        return "; ".join(f"{label}. {text}" for label, text in options)
    is_refusal = _DECLINES.match(answer) is not None
    if not is_refusal and not _AGREES.match(answer):
        return ""
    if not proposal.question:
        is_meant = proposal.is_recommended or _POINTS.search(answer) is not None
        return first_words(proposal.statement, _ABOUT_CHARS) if is_meant and not is_refusal else ""
    is_vague = any(p.search(proposal.question) for p in (_REFERS, _ASKS_TO_CONFIRM))
    if len(proposal.question) > _VAGUE_CHARS or not is_vague:
        return proposal.question
    statement = first_words(proposal.statement, _ABOUT_CHARS - len(proposal.question))
    return f"{statement if proposal.is_recommended else proposal.ending or statement} {proposal.question}".strip()


def _find_chosen(answer: str, lists: Sequence[Mapping[str, str]]) -> list[tuple[str, str]]:
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


# How a tool that shows a plan to the user reports their consent.
_APPROVED = re.compile(r"(?i)\b(?:approved|accepted|confirmed)\b")
_NOT_APPROVED = re.compile(r"(?i)\b(?:not|never|n['’]t|reject\w*|declin\w*|without)\b")


def approvals_in(lines: Iterable[CallLine]) -> Iterator[str]:
    """Yield what the user approved or answered through a tool: a plan that was shown to them, the answer to a question.

    The name of the tool decides, never the words of a result: any page can say that the user approved it.
    """
    for line in lines:
        if line.outcome != "ok":
            continue
        if line.kind == "task" and line.report:
            answer = line.target.partition(" → ")[2]
            if _APPROVED.search(answer) and not _NOT_APPROVED.search(answer):
                yield f"The user approved the plan.\n{line.report}"
        elif asks_user(line.name):
            yield line.detail
