"""Readers: an auxiliary model that reads a long page or search hits, its answer checked against what it was given.

The reader's text is never trusted: a quote must occur in the page, and an address must be one of those it was given.
Where nothing of it can be checked, or no model answers, the caller shows its plain result.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perdure import prompts
from perdure.core.errors import ConfigError, ProviderError
from perdure.core.ports import AuxiliaryModels, ScoreTexts

_WORDS = 400
_ANSWER_TOKENS = 1_500
# A page is read whole up to this size; of a longer one, the passages nearest to the question.
_PAGE_CHARS = 60_000
_PASSAGE_CHARS = 3_000
_QUESTION_CHARS = 1_000
_QUOTE = re.compile(r"^[ \t]*>[ \t]*(\S.*)$")
_MIN_QUOTE_CHARS = 8
_QUOTE_CHARS = 1_000
_CITED = re.compile(r"\[([^\[\]\n]{1,200})\]|\(([^()\n]{1,200})\)")
_ADDRESS = re.compile(r"\S*(?:[mh]:\d|output:)\S*")
_NOT_ON_PAGE = "NOT ON THIS PAGE"
_NOT_IN_PASSAGES = "NOT IN THESE PASSAGES"


@dataclass(frozen=True, slots=True)
class CitedPassage:
    """A passage that a reader may cite."""

    address: str
    text: str


@dataclass(frozen=True, slots=True)
class ReadingFailure:
    """The reason why a reader has no checked answer, for the user and the model."""

    reason: str


class PageReader:
    """Reduces a web page to what was asked, with quotes that occur on the page."""

    def __init__(self, models: AuxiliaryModels, *, score: ScoreTexts | None, prompts_folder: Path | None) -> None:
        self._models = models
        self._score = score
        self._prompts_folder = prompts_folder

    async def read(self, page: str, question: str, *, conversation_id: str) -> str | ReadingFailure:
        """Return the answer with checked quotes, each with its offset on the page."""
        question = question.strip()[:_QUESTION_CHARS]
        values = {"question": question, "words": str(_WORDS), "page": self._select(page, question)}
        try:
            prompt = prompts.render("web_extract", values, self._prompts_folder)
            reply = await self._models.ask(
                "web_extract", prompt, conversation_id=conversation_id, max_tokens=_ANSWER_TOKENS
            )
        except (ProviderError, ConfigError) as error:
            return ReadingFailure(f"no model could read it: {error}")
        if _NOT_ON_PAGE in reply.text:
            return ReadingFailure(f"{reply.model} did not find an answer on it")
        answer, count = await asyncio.to_thread(check_quotes, reply.text, page)
        if not count:
            return ReadingFailure(f"the answer of {reply.model} had no quote that the page contains")
        return f"[Extracted by {reply.model}; quotes checked against the page, with their offset]\n{answer}"

    def _select(self, page: str, question: str) -> str:
        """Return the page, or the passages of a long one that match the question best, in their order."""
        if len(page) <= _PAGE_CHARS:
            return page
        passages = [page[at : at + _PASSAGE_CHARS] for at in range(0, len(page), _PASSAGE_CHARS)]
        most = _PAGE_CHARS // _PASSAGE_CHARS
        chosen = range(most)  # type: Sequence[int]
        if self._score is not None:
            scores = self._score(question, [("", passage) for passage in passages])
            # The first passage has the title.
            best = sorted(range(1, len(passages)), key=lambda n: -scores[n])[: most - 1]
            chosen = [0, *sorted(best)]
        return "\n[…]\n".join(passages[n] for n in chosen)


def check_quotes(answer: str, page: str) -> tuple[str, int]:
    """Return the answer with only those quotes that the page contains, each with its offset, and their number."""
    lines: list[str] = []
    count = 0
    for line in answer.strip().splitlines():
        match = _QUOTE.match(line)
        if match is None:
            lines.append(line)
            continue
        quote = match.group(1).strip().strip('“”"«»')
        at = _locate(quote, page) if len(quote) >= _MIN_QUOTE_CHARS else None
        if at is not None:
            lines.append(f"> {quote} [offset {at}]")
            count += 1
        else:
            lines.append("> [a quote that the page does not contain was removed; do not rely on the statement above]")
    return "\n".join(lines), count


def _locate(quote: str, page: str) -> int | None:
    """Return where the page has a quote; white space and the form of quotation marks may differ."""
    words = [re.escape(word) for word in quote[:_QUOTE_CHARS].split()]
    pattern = re.sub("['’‘]", "['’‘]", r"\s+".join(words))
    match = re.search(re.sub('["“”]', '["“”]', pattern), page)
    return match.start() if match is not None else None


class HitReader:
    """Answers a question from search hits, with addresses that are among them."""

    def __init__(self, models: AuxiliaryModels, *, prompts_folder: Path | None) -> None:
        self._models = models
        self._prompts_folder = prompts_folder

    async def read(
        self, passages: Sequence[CitedPassage], question: str, *, conversation_id: str
    ) -> str | ReadingFailure:
        """Return the answer with checked addresses."""
        listed = "\n\n".join(f"[{p.address}]\n{p.text}" for p in passages)
        values = {"question": question.strip()[:_QUESTION_CHARS], "words": str(_WORDS), "passages": listed}
        try:
            prompt = prompts.render("session_search", values, self._prompts_folder)
            reply = await self._models.ask(
                "session_search", prompt, conversation_id=conversation_id, max_tokens=_ANSWER_TOKENS
            )
        except (ProviderError, ConfigError) as error:
            return ReadingFailure(f"no model could read them: {error}")
        if _NOT_IN_PASSAGES in reply.text:
            return ReadingFailure(f"{reply.model} found no answer in them")
        addresses = {p.address for p in passages}
        groups = (in_brackets or in_parentheses for in_brackets, in_parentheses in _CITED.findall(reply.text))
        cited = {a.strip() for group in groups for a in re.split(r"[,;]\s+", group)}
        if not cited & addresses:
            return ReadingFailure(f"the answer of {reply.model} cited none of them")
        unknown = sorted(a for a in cited - addresses if _ADDRESS.fullmatch(a))
        note = f"\n[not among the results, do not rely on: {', '.join(unknown)}]" if unknown else ""
        return f"[Answered by {reply.model} from the results below]\n{reply.text.strip()}{note}"
