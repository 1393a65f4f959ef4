"""Later-needed facts: exact strings that an agent used in a tool call long after they were last mentioned.

A fact is a path, URL, file name, id, hash, identifier or number of four digits and more. A call *needs* a fact where
one of its arguments has it and an earlier message had it first. The need is *far* where at least `FAR_TOKENS` tokens of
the conversation lie between the call and the last message with the fact: nothing has repeated it since. Needs follow
from the recording alone, so they are the same for every policy. A fact is visible *in context* where it is near words
that were near it before: a bare list of strings is not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from perdure.context.user_text.standing_instructions import is_standing
from perdure.lab.replay.sessions import ReplayTurn
from perdure.testing.simulator import Call, count_text

FAR_TOKENS = 12_000
_SHORTEST, _LONGEST = 4, 200
_SUFFIXES = (
    "py|pyi|ts|tsx|js|jsx|mjs|java|kt|c|cc|cpp|h|hpp|go|rs|rb|php|swift|md|rst|json|jsonl|yaml|yml|toml|txt|sh|xml|html"
    "|css|sql|csv|lock|cfg|ini|log|db|zip|png|jpg|svg|pdf"
)
_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        r"https?://[^\s'\"<>()\[\]{},\\`]+",
        r"(?<![\w/.])(?:~|\.\.?)?/?(?:[\w.@+-]+/)+[\w.@+-]*\w",
        rf"(?<![\w/.])[\w-]+(?:\.[\w-]+)*\.(?:{_SUFFIXES})\b",
        r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b",
        r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}\b",
        r"\b[A-Za-z][a-z0-9]+(?:[A-Z][a-z0-9]+)+\b",
        r"\b[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+\b",
        r"(?<![\w.])\d{4,}\b",
    )
)
_SHORTEST_NAME = 8
_NAME_PATTERNS = frozenset((5, 6))
_YEAR = re.compile(r"(?:19|20)\d\d")
_COMMON = frozenset(("/dev/null",))
_WORD = re.compile(r"[A-Za-z]{4,}|[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")
_NEAR_CHARS = 120
_LEAST_SHARED_WORDS = 3
_MOST_MENTIONS, _MOST_VISIBLE = 12, 6
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+|\n+")
_LONGEST_INSTRUCTION = 300


@dataclass(frozen=True, slots=True)
class Need:
    """A fact that a call uses, the message that last had it, and how far back that is."""

    fact: str
    distance_tokens: int
    # What the agent wrote and did with the call, without its facts: what it might have searched for.
    question: str = ""
    # The words around its earlier mentions, for far needs.
    context: frozenset[str] = frozenset()

    @property
    def is_far(self) -> bool:
        return self.distance_tokens >= FAR_TOKENS

    def is_in_context(self, prompt: str) -> bool:
        """Whether a prompt has the fact near at least three of the words that were near it before."""
        return any(
            len(_words(around) & self.context) >= _LEAST_SHARED_WORDS
            for around in _surroundings(prompt, self.fact, _MOST_VISIBLE)
        )


def extract_facts(text: str) -> set[str]:
    """Return the facts in a text."""
    facts = set()
    for number, pattern in enumerate(_PATTERNS):
        for match in pattern.finditer(text):
            fact = match[0].rstrip(".,:;")
            if not _SHORTEST <= len(fact) <= _LONGEST or _YEAR.fullmatch(fact) or fact in _COMMON:
                continue
            if number in _NAME_PATTERNS and len(fact) < _SHORTEST_NAME:
                continue
            facts.add(fact)
    return facts


def find_needs(turns: Iterable[ReplayTurn]) -> list[list[Need]]:
    """Return the needs of each reply of a session, in order."""
    position = 0
    last: dict[str, int] = {}
    needs: list[list[Need]] = []

    def mention(text: str) -> None:
        nonlocal position
        position += count_text(text)
        for fact in extract_facts(text):
            last[fact] = position

    turns = list(turns)
    for turn in turns:
        mention(turn.text)
        for step in turn.steps:
            arguments = "\n".join(text for call in step.calls for text in argument_texts(call))
            used = {fact for fact in extract_facts(arguments) if fact in last}
            question = _question(step.text, step.calls, used)
            needs.append([Need(f, position - last[f], question) for f in sorted(used)])
            mention(step.text)
            mention(arguments)
            for result in step.results.values():
                mention(result)
    return _with_contexts(turns, needs)


def _with_contexts(turns: Iterable[ReplayTurn], needs: Sequence[Sequence[Need]]) -> list[list[Need]]:
    """Return the needs, the far ones with the words around earlier mentions of their fact."""
    contexts: dict[str, set[str]] = {need.fact: set() for row in needs for need in row if need.is_far}
    rows = iter(needs)
    out: list[list[Need]] = []

    def mention(text: str) -> None:
        for fact, words in contexts.items():
            if fact in text:
                words.update(*(_words(around) for around in _surroundings(text, fact, _MOST_MENTIONS)))

    for turn in turns:
        mention(turn.text)
        for step in turn.steps:
            row = next(rows)
            out.append([replace(n, context=frozenset(contexts[n.fact])) if n.is_far else n for n in row])
            for text in (step.text, *(t for call in step.calls for t in argument_texts(call)), *step.results.values()):
                mention(text)
    return out


def _surroundings(text: str, fact: str, most: int) -> Iterator[str]:
    """Yield the text around each of the first mentions of a fact."""
    at = text.find(fact)
    while at >= 0 and most > 0:
        yield f"{text[max(0, at - _NEAR_CHARS) : at]} {text[at + len(fact) : at + len(fact) + _NEAR_CHARS]}"
        at = text.find(fact, at + len(fact))
        most -= 1


def _words(text: str) -> set[str]:
    """Return the words of a text that are not part of a path, an address or a name."""
    for pattern in _PATTERNS[:-1]:
        text = pattern.sub(" ", text)
    return {word.lower() for word in _WORD.findall(text)}


def argument_texts(call: Call) -> Iterator[str]:
    """Yield the strings and numbers among the arguments of a call."""
    arguments = call.arguments
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            yield str(arguments)
            return
    yield from _leaves(arguments)


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner)
    elif value is not None:
        yield str(value)


def _question(text: str, calls: Sequence[Call], facts: Iterable[str]) -> str:
    """Build a search query from what the agent was about to do, in its own words, without any of the facts."""
    words = " ".join([text[-300:], *(t for call in calls for t in argument_texts(call) if len(t) < 120)])
    for fact in sorted(facts, key=len, reverse=True):
        words = words.replace(fact, " ")
    return " ".join(words.split())[:300]


def standing_instructions(text: str) -> list[str]:
    """Return the sentences of a user message that bind later work."""
    if len(text) > 20_000 or text.lstrip().startswith("<"):  # a paste or a notice of the recording agent
        return []
    sentences = (s.strip() for s in _SENTENCE.split(text))
    return [s for s in sentences if 8 <= len(s) <= _LONGEST_INSTRUCTION and is_standing(s)]
