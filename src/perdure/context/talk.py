"""What was said, read from the text of messages: decisions with their reasons, questions with their answers, plans."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perdure.context.facts.quotes import beginning, tidy
from perdure.core.messages import Message

_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_QUESTION = re.compile(r"[?？]\s*$|[吗呢か]\s*[。.]?\s*$|(?:까요|나요|는지)\s*[.]?\s*$")
_DECISION = re.compile(
    r"\b(?:decided?|decision|chose|choosing|instead of|rather than|opted|going with|let's use|(?:we|I)(?:'ll| will) use"
    r"|because|root cause|the (?:issue|problem|bug|cause|fix) (?:is|was)|trade-?off|should (?:not )?be)\b"
    r"|决定|改用|选择|因为|原因|決め|ことにし|ではなく|ため、|原因|결정|대신|때문에|원인",
    re.IGNORECASE,
)
_PLAN = re.compile(
    r"^(?:\W*(?:next(?: steps?)?|then|remaining|still (?:need|to do|left)|to ?do|left to do)\b|\W*\[ \] "
    r"|.*\b(?:remains to be|still needs? to)\b)"
    r"|接下来|下一步|还需要|次に|残り|まだ|다음(?:으로|은)|남은",
    re.IGNORECASE,
)
# Text that a program put into a user message: nobody said it.
_MARKUP = re.compile(r"<([a-z][\w-]*)>.*?</\1>|<[/a-z][^>]*>", re.DOTALL)

_LONGEST_SENTENCE = 400


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question of the user and the reply that answered it."""

    question: str
    answer: str


def sentences(text: str) -> list[str]:
    """The sentences of a text in any script, lines counting as ends; code blocks are left out."""
    prose = "".join(text.split("```")[::2]) if "```" in text else text
    return [s.strip() for s in _SENTENCE.split(prose) if s and s.strip()]


def spoken(message: Message) -> str:
    """What a person said in a message, without the markup that programs wrap around it."""
    text = message.text
    return _MARKUP.sub(" ", text).strip() if "<" in text else text.strip()


def decisions(messages: Iterable[Message]) -> list[str]:
    """The assistant's sentences that decide something or say why, in their order, none twice."""
    found: dict[str, None] = {}
    for message in messages:
        if message.role == "assistant" and message.kind == "assistant" and message.text:
            for sentence in sentences(message.text):
                if 25 <= len(sentence) <= _LONGEST_SENTENCE and _DECISION.search(sentence):
                    found[tidy(sentence.lstrip("-*#> "))] = None
    return list(found)


def plans(messages: Sequence[Message]) -> list[str]:
    """What the newest messages of the assistant say is still to be done."""
    for message in reversed(messages):
        if message.role == "assistant" and message.text:
            found = [tidy(s.lstrip("-*#> ")) for s in sentences(message.text) if _PLAN.search(s) and len(s) > 12]
            if found:
                return found[:8]
    return []


def exchanges(messages: Iterable[Message]) -> tuple[list[Exchange], list[str]]:
    """Questions with the reply that closed them, and those that none closed."""
    answered: list[Exchange] = []
    waiting: list[str] = []
    for message in messages:
        if message.is_real_user:
            waiting += [s for s in sentences(spoken(message)) if _QUESTION.search(s)][-3:]
        elif message.role == "assistant" and not message.tool_calls and waiting and message.text.strip():
            answer = beginning(" ".join(sentences(message.text)[:3]), 260)
            answered += [Exchange(beginning(q, 200), answer) for q in waiting[-1:]]
            waiting = []
    return answered, [beginning(q, 300) for q in waiting]
