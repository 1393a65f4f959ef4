"""What was said, read from the text of messages: decisions with their reasons, questions with their answers, plans."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perdure.context.facts import facts_in
from perdure.context.facts.quotes import beginning, tidy
from perdure.context.own_words import own_words
from perdure.context.wording import Wording
from perdure.core.messages import Entry, Message

_END = re.compile(r"[\n.!?。！？]")
# Of a sentence without white space around it.
_QUESTION = re.compile(r"[?？]$|[吗呢か]\s*[。.]?$|(?:까요|나요|는지)\s*[.]?$")
DECISION = Wording(
    marks=(
        "deci", "chose", "choosing", "instead of", "rather than", "opted", "going with", "let's use", "ll use", "cause",
        "the issue", "the problem", "the bug", "the fix", "trade", "should",
    ),
    pattern=re.compile(
        r"\b(?:decided?|decision|chose|choosing|instead of|rather than|opted|going with|let's use"
        r"|(?:we|I)(?:'ll| will) use|because|root cause|the (?:issue|problem|bug|cause|fix) (?:is|was)|trade-?off"
        r"|should (?:not )?be)\b",
        re.IGNORECASE,
    ),
    cjk=re.compile("决定|改用|选择|因为|原因|決め|ことにし|ではなく|ため、|결정|대신|때문에|원인"),
)  # fmt: skip
PLAN = Wording(
    marks=("next", "then", "remain", "still", "to do", "todo", "[ ] "),
    pattern=re.compile(
        r"^(?:\W*(?:next(?: steps?)?|then|remaining|still (?:need|to do|left)|to ?do|left to do)\b|\W*\[ \] "
        r"|.*\b(?:remains to be|still needs? to)\b)",
        re.IGNORECASE,
    ),
    cjk=re.compile("接下来|下一步|还需要|次に|残り|まだ|다음(?:으로|은)|남은"),
)
_LONGEST_SENTENCE = 400


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question of the user and the reply that answered it."""

    question: str
    answer: str


def sentences(text: str) -> list[str]:
    """The sentences of a text in any script, lines counting as ends; code blocks are left out."""
    prose = "".join(text.split("```")[::2]) if "```" in text else text
    found: list[str] = []
    start = 0
    for mark in _END.finditer(prose):
        end = mark.end()
        # A Latin mark inside a word or number ends nothing.
        if mark[0] not in ".!?" or prose[end : end + 1].isspace():
            found.append(prose[start:end].strip())
            start = end
    found.append(prose[start:].strip())
    return [s for s in found if s]


@dataclass(frozen=True, slots=True)
class MessageAnalysis:
    """What one message says of decisions, plans, questions and answers; `choices` are the user's decisions."""

    decisions: tuple[str, ...] = ()
    plans: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    answer: str = ""
    choices: tuple[str, ...] = ()


_NOTHING = MessageAnalysis()


def talk_of(message: Message) -> MessageAnalysis:
    """Pure, so that it can be kept beside the message."""
    if message.is_real_user:
        # In ASCII only a question mark at the very end makes a question.
        said = sentences(own_words(message))
        asked = [s for s in said if s[-1] == "?" or (not s.isascii() and _QUESTION.search(s))][-3:]
        chosen = _decided(said, message.text)
        return MessageAnalysis(questions=tuple(asked), choices=chosen) if asked or chosen else _NOTHING
    if message.kind != "assistant" or not message.text.strip():
        return _NOTHING
    said = sentences(message.text)
    decided = _decided(said, message.text)
    planned = tuple(tidy(s.lstrip("-*#> ")) for s in PLAN.among(said, message.text) if len(s) > 12)
    answer = "" if message.tool_calls else beginning(" ".join(said[:3]) or message.text, 260)
    return MessageAnalysis(decided, planned[:8], answer=answer)


def _decided(said: Iterable[str], text: str) -> tuple[str, ...]:
    told = DECISION.among((s for s in said if 25 <= len(s) <= _LONGEST_SENTENCE), text)
    return tuple(tidy(s.lstrip("-*#> ")) for s in told)


def talk_in(entry: Entry) -> MessageAnalysis:
    """The same of an entry, read once, from its redacted text: a line cut short may halve a secret."""
    return entry.known("talk") or entry.memo("talk", lambda _: talk_of(facts_in(entry).message))


def decisions(talks: Iterable[MessageAnalysis]) -> list[str]:
    """The assistant's sentences that decide something or say why, in their order, none twice."""
    return list(dict.fromkeys(d for talk in talks for d in talk.decisions))


def plans(talks: Sequence[MessageAnalysis]) -> Sequence[str]:
    """What the newest message of the assistant that has plans says is still to be done."""
    return next((talk.plans for talk in reversed(talks) if talk.plans), ())


def exchanges(talks: Iterable[MessageAnalysis]) -> tuple[list[Exchange], list[str]]:
    """Questions with the reply that closed them, and those that none closed."""
    answered: list[Exchange] = []
    waiting: list[str] = []
    for talk in talks:
        waiting += talk.questions
        if talk.answer and waiting:
            answered.append(Exchange(beginning(waiting[-1], 200), talk.answer))
            waiting = []
    return answered, [beginning(q, 300) for q in waiting]
