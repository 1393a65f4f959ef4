"""Request a summary from a model, in parts if needed, and validate the response."""

from __future__ import annotations

import asyncio
import json
import re
import string
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import isawaitable, signature
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeGuard

from perdure import prompts
from perdure.context.engine import Steps, is_async
from perdure.context.handoff import Handoff
from perdure.context.handoff_sections import has_own_headings, read_sections, shorten
from perdure.context.summary_input import Transcript, size_of
from perdure.context.summary_relevance import is_about
from perdure.context.text import both_ends
from perdure.core.concurrency import describe_error, run_foreign
from perdure.core.errors import ConfigError, ErrorVerdict, NoSummaryModel, ProviderError, SummarySuperseded
from perdure.core.messages import clean
from perdure.core.ports import AsyncSummarize, Summarize, Summary
from perdure.core.usage import CanonicalUsage
from perdure.models.tokens import estimate_text
from perdure.redaction import redact

AnySummarize = Callable[[str], str | Awaitable[str]] | Summarize | AsyncSummarize


async def call_summarize(ask: AnySummarize, prompt: str, *, max_tokens: int) -> object:
    """Call any summarizer: an async one on the event loop, a plain one in a worker thread.

    It takes the prompt, and `max_tokens` where its signature has it; it returns the text or a Summary.
    """
    call: Callable[..., Any] = ask
    call = partial(call, prompt, max_tokens=max_tokens) if _takes_max_tokens(call) else partial(call, prompt)
    answer = call() if is_async(ask) else await run_foreign(call)
    return await answer if isawaitable(answer) else answer


def is_available(ask: AnySummarize | None) -> TypeGuard[AnySummarize]:
    """Whether a summarizer can be called; one with a property `is_available` may answer no."""
    return ask is not None and getattr(ask, "is_available", True)


def _takes_max_tokens(ask: Callable[..., Any]) -> bool:
    try:
        parameters = signature(ask).parameters
    except (TypeError, ValueError):
        return False
    return "max_tokens" in parameters


_REFUSAL = re.compile(
    r"\b(?:i(?:'m| am)? (?:sorry|afraid|unable|not able)|i (?:can(?:no|')?t|cannot|won't|will not|must decline)"
    r"|as an ai\b|unable to (?:assist|help|comply|summari[sz]e))"
    r"|抱歉|无法|無法|不能提供|申し訳|できません|죄송|할 수 없",
    re.IGNORECASE,
)
_MARKUP = re.compile(r"(?:```\w*\s*)?(?:<\?xml\b|<!doctype\b|<(?:html|head|body|title|h1|center)\b)", re.IGNORECASE)
_ERROR_KEYS = frozenset(("error", "errors", "detail", "message", "fault", "exception"))
_LEAST_CHARS = 40
_REFUSAL_CHARS = 700
_LONG_LINE = 40
# Under the headings asked for, this much of the source may be quoted.
_ECHO_SHARE = 0.2
# A summary repeats the headings of the prompt, but not its sentences.
_PROMPT_LINE = 24
_MOST_PROMPT_LINES = 0.5
# Code writes this section itself: a summary that fills no other one is empty.
_WRITTEN_BY_CODE = "Active Task"
_FEWEST_TO_COMPARE = 4


def problem_with(text: str, source: str, *, source_tokens: int, instructions: str = "", notes: str = "") -> str:
    """Validate a summary of `source`; return the problem in a few words, or "" if it is valid.

    `instructions` is the prompt without the transcript; `notes` are earlier ones, which a summary may repeat.
    """
    body = text.strip()
    if len(body) < min(_LEAST_CHARS, 1 + source_tokens):
        if not body:
            return "the summary is empty"
        if _REFUSAL.search(body):
            return "the summariser refused"
        return f"the summary is only “{redact(' '.join(body.split()))}”"
    if _MARKUP.match(body):
        return "the summary is an error page"
    if _is_json_error(body):
        return "the summary is an error message"
    has_headings = has_own_headings(body)
    if not has_headings and len(body) < _REFUSAL_CHARS and _REFUSAL.search(body[:300]):
        return "the summariser refused"
    if _repeats_prompt(body, instructions):
        return "the summary only repeats the prompt"
    if _is_echo(body, source, has_headings=has_headings):
        return "the summary only repeats the conversation"
    if _is_babble(body):
        return "the summary repeats itself"
    if len(body) > source_tokens and estimate_text(body) > source_tokens:
        return "the summary is longer than what it stands for"
    if not has_headings:
        return "the summary has none of the sections asked for"
    sections = read_sections(body)
    sections.pop(_WRITTEN_BY_CODE, None)
    if not sections:
        return "every section of the summary is empty"
    if len(sections) >= _FEWEST_TO_COMPARE and 2 * len(set(sections.values())) <= len(sections):
        return "most sections of the summary are the same"
    # The heading of each section is the prompt's.
    if (source or notes) and not is_about("\n".join(sections.values()), f"{notes}\n{source}"):
        return "the summary is about something else"
    return ""


def _is_json_error(body: str) -> bool:
    """Whether a response begins with a JSON error object, whatever follows it."""
    start = body.removeprefix("```json").removeprefix("```").lstrip()
    if not start.startswith("{"):
        return False
    try:
        value, _ = json.JSONDecoder().raw_decode(start)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and not _ERROR_KEYS.isdisjoint(value)


def _repeats_prompt(body: str, instructions: str) -> bool:
    """Whether most sentences of a response are copied from the prompt."""
    if body.startswith("You are writing hand-over notes") or "</transcript>" in body:
        return True
    lines = [line for line in map(str.strip, body.splitlines()) if len(line) >= _PROMPT_LINE]
    if not instructions or not lines:
        return False
    return sum(line in instructions for line in lines) > _MOST_PROMPT_LINES * len(lines)


def _is_echo(body: str, source: str, *, has_headings: bool) -> bool:
    """Whether most long lines of a response are copied from the source.

    A few facts quoted word for word under the headings are a summary.
    """
    lines = [line for line in map(str.strip, body.splitlines()) if len(line) > _LONG_LINE]
    if not source or not lines:
        return False
    if has_headings and sum(map(len, lines)) < _ECHO_SHARE * len(source):
        return False
    # A sample is enough to detect an echo.
    sample = lines[:: max(1, len(lines) // 40)]
    return sum(line in source for line in sample) > 0.8 * len(sample)


def _is_babble(body: str) -> bool:
    lines = [line for line in map(str.strip, body.splitlines()) if line]
    if len(lines) >= 30:
        return len(set(lines)) < len(lines) / 5
    words = body.split()
    return len(words) >= 200 and len(set(words)) < len(words) / 40


MOST_PARTS = 6
# One token is about three bytes of UTF-8 at the worst that matters here: code, JSON and CJK alike.
_BYTES_PER_TOKEN = 3
_LEAST_PART_TOKENS = 400
_PROMPT_TOKENS = 900
# Of the newest request.
_REQUEST_CHARS = 3_000
_LEAST_REQUEST_CHARS = 200
_OMISSION = "[…]"
_REQUEST_HEADING = "[The user's newest request, in their own words. It tells what the work is about now.]"
_NO_WORD = re.compile(r"\W+")
_NO_LETTERS = bytes(set(range(128)) - {*b"_", *string.ascii_letters.encode(), *string.digits.encode()})


@dataclass(frozen=True, slots=True)
class Brief:
    """The input of a summary request: transcript, previous notes and budgets."""

    transcript: Transcript
    target_tokens: int
    # Tokens of the summarized messages: a longer response is no summary.
    source_tokens: int
    window_tokens: int
    previous: Handoff | None = None
    focus_topic: str | None = None
    focus_ratio: float = 0.65
    prompts_folder: Path | None = None
    # The newest request in the user's own words: the transcript may leave it out.
    request: str = ""


@dataclass(frozen=True, slots=True)
class SummaryFailure:
    """The reason why there is no summary: a failed request, or an invalid response."""

    why: str
    verdict: ErrorVerdict | None = None
    # No provider is available: an early retry cannot help.
    is_lasting: bool = False
    # No summary model is configured, which is no error; no request was sent.
    is_absent: bool = False
    # The conversation has switched to another model: do not retry.
    is_superseded: bool = False


@dataclass(frozen=True, slots=True)
class SummaryOutcome:
    """A summary or a failure, and the number of requests made."""

    summary: Summary | None
    failure: SummaryFailure | None
    calls: int
    # Seconds until a summary is requested again, where none was after an earlier failure.
    pause_s: float = 0.0


def summarize_transcript(brief: Brief, ask: AnySummarize, *, left_s: Callable[[], float]) -> Steps[SummaryOutcome]:
    """Summarize a transcript before the timeout. Never raises; each response is redacted and validated."""
    brief = _within_window(brief)
    parts = into_parts(brief)
    if len(parts) > 1:
        # Longer notes on a part would not fit the merging request.
        share = max(_LEAST_PART_TOKENS // 2, _notes_tokens(brief) // len(parts))
        part_tokens = min(brief.target_tokens, share)
    else:
        part_tokens = brief.target_tokens
    answers: list[Summary] = []
    for number, part in enumerate(parts, 1):
        text = "\n\n".join(part)
        prompt = _part_prompt(replace(brief, target_tokens=part_tokens), text, number, len(parts))
        answer = yield from _ask(ask, prompt, part_tokens, left_s())
        if isinstance(answer, Summary):
            why = problem_with(
                answer.text,
                text,
                source_tokens=brief.source_tokens,
                instructions=_instructions(prompt),
                notes=brief.previous.body if brief.previous else "",
            )
            answer = SummaryFailure(why) if why else answer
        if isinstance(answer, SummaryFailure):
            return SummaryOutcome(None, answer, number - 1 if answer.is_absent else number)
        answers.append(answer)
    if len(answers) == 1:
        return SummaryOutcome(answers[0], None, 1)
    return (yield from _merge_summaries(brief, answers, ask, left_s()))


def into_parts(brief: Brief) -> list[list[str]]:
    """Split the transcript into as few parts as fit the summary model's window, at most `MOST_PARTS`."""
    reserve = brief.target_tokens * 2 + _PROMPT_TOKENS
    reserve += _previous_tokens(brief) + size_of(_request_excerpt(brief)) // _BYTES_PER_TOKEN
    room = max(brief.window_tokens - reserve, brief.window_tokens // 3, _LEAST_PART_TOKENS) * _BYTES_PER_TOKEN
    transcript = _truncate_blocks(brief.transcript, room)
    # Prefix sums, to bisect for the end of each part.
    ends = [0, *accumulate(size + 2 for size in transcript.sizes)]
    parts: list[list[str]] = []
    start = 0
    while start < len(transcript.blocks) or not parts:
        end = max(start + 1, bisect_right(ends, ends[start] + room) - 1)
        parts.append(transcript.blocks[start:end])
        start = end
    return parts if len(parts) <= MOST_PARTS else _sample_oldest(parts)


def _within_window(brief: Brief) -> Brief:
    """Fit the request to the summary model's window: a quarter for the response, a quarter for previous notes."""
    previous, most = brief.previous, brief.window_tokens // 4
    if previous is not None and _previous_tokens(brief) > most:
        sections = shorten(previous.sections, most, size=lambda text: size_of(text) // _BYTES_PER_TOKEN)
        previous = previous.with_sections(sections)
    return replace(brief, previous=previous, target_tokens=min(brief.target_tokens, max(1, brief.window_tokens // 4)))


def _previous_tokens(brief: Brief) -> int:
    return size_of(brief.previous.body) // _BYTES_PER_TOKEN if brief.previous else 0


def _notes_tokens(brief: Brief) -> int:
    """Return the tokens available for the notes on the parts in the request that merges them."""
    remaining = brief.window_tokens - brief.target_tokens - _PROMPT_TOKENS - _previous_tokens(brief)
    return max(remaining * 4 // 5, brief.window_tokens // 6, _LEAST_PART_TOKENS // 2)


def _part_prompt(brief: Brief, part: str, number: int, count: int) -> str:
    if count > 1:
        task = _text(brief, "summary_part", number=str(number), count=str(count)).strip()
    else:
        task = _text(brief, "summary_update" if brief.previous else "summary_first").strip()
    previous = brief.previous if count == 1 else None
    return _prompt(brief, task, part, previous)


def _merge_summaries(
    brief: Brief, answers: Sequence[Summary], ask: AnySummarize, timeout_s: float
) -> Steps[SummaryOutcome]:
    """Merge the summaries of the parts, and the previous handoff, in one more request."""
    room = _notes_tokens(brief) * _BYTES_PER_TOKEN
    notes = "\n\n".join(
        f"PART {i} OF {len(answers)}\n{_whole_lines(a.text.strip(), room // len(answers))}"
        for i, a in enumerate(answers, 1)
    )
    task = _text(brief, "summary_merge").strip()
    if brief.previous:
        task += "\n" + _text(brief, "summary_update").strip()
    prompt = _prompt(brief, task, notes, brief.previous)
    answer = yield from _ask(ask, prompt, brief.target_tokens, timeout_s)
    calls = len(answers) + 1
    if isinstance(answer, SummaryFailure):
        return SummaryOutcome(None, answer, calls)
    why = problem_with(
        answer.text,
        "",
        source_tokens=brief.source_tokens,
        instructions=_instructions(prompt),
        notes=f"{notes}\n{brief.previous.body if brief.previous else ''}",
    )
    if why:
        return SummaryOutcome(None, SummaryFailure(why), calls)
    usage = sum((a.usage for a in answers), answer.usage)
    return SummaryOutcome(Summary(answer.text, answer.model, usage, _sum_cost([*answers, answer])), None, calls)


def _whole_lines(text: str, most_bytes: int) -> str:
    """Return the first whole lines of a text within a number of bytes."""
    whole, spent = [], 0
    for line in text.splitlines():
        spent += size_of(line) + 1
        if spent > most_bytes:
            break
        whole.append(line)
    return "\n".join(whole)


def _prompt(brief: Brief, task: str, transcript: str, previous: Handoff | None) -> str:
    focus = ""
    if brief.focus_topic:
        topic = redact(" ".join(str(brief.focus_topic).split())[:300])
        focus = _text(brief, "summary_focus", topic=topic, share=f"{brief.focus_ratio:.0%}").strip() + "\n"
    notes = f"<notes-so-far>\n{redact(previous.body)}\n</notes-so-far>\n\n" if previous else ""
    # A transcript may contain its own closing tag.
    transcript = _with_request(transcript, _request_excerpt(brief)).replace("</transcript>", "<\\/transcript>")
    return _text(
        brief,
        "summary",
        task=task,
        focus=focus,
        previous=notes,
        transcript=transcript,
        target_tokens=str(brief.target_tokens),
    )


def _request_excerpt(brief: Brief) -> str:
    """Return the newest request, of a long one both ends; it takes at most a part of the window."""
    request, most = (
        redact(brief.request.strip()),
        max(_LEAST_REQUEST_CHARS, min(_REQUEST_CHARS, brief.window_tokens // 4)),
    )
    return f"\n{_OMISSION}\n".join(map(str.strip, both_ends(request, most))) if len(request) > most else request


def _ascii_letters(text: str) -> bytes:
    """Return the letters and digits of a text that are in ASCII."""
    return text.encode("ascii", "ignore").translate(None, _NO_LETTERS)


def _with_request(transcript: str, request: str) -> str:
    """Append the newest request to a transcript that does not have all of it."""
    pieces = request.split(_OMISSION)
    if all(piece in transcript for piece in pieces):
        return transcript
    # The pattern is slow, so what tells most of the others apart comes first.
    letters = _ascii_letters(transcript)
    if all(_ascii_letters(piece) in letters for piece in pieces):
        words = _NO_WORD.sub("", transcript)
        if all(_NO_WORD.sub("", piece) in words for piece in pieces):
            return transcript
    # Only labels and calls begin at the margin.
    lines = "\n".join(f" {line}" for line in request.splitlines())
    return f"{transcript}\n\n{_REQUEST_HEADING}\n{lines}"


def _instructions(prompt: str) -> str:
    """Return the prompt without previous notes and transcript, which a summary may repeat."""
    before, _, rest = prompt.partition("<transcript>\n")
    return before.partition("<notes-so-far>\n")[0] + rest.rpartition("\n</transcript>")[2]


def _ask(ask: AnySummarize, prompt: str, max_tokens: int, timeout_s: float) -> Steps[Summary | SummaryFailure]:
    """Send one request with a timeout; the callable may be foreign code, so every exception is caught."""
    try:
        return _as_summary((yield partial(_answer_in_time, ask, prompt, max_tokens, timeout_s)))
    except ProviderError as error:
        return SummaryFailure(str(error) or type(error).__name__, error.verdict)
    except NoSummaryModel as error:
        return SummaryFailure(str(error), is_absent=True)
    except SummarySuperseded as error:
        return SummaryFailure(str(error), is_superseded=True)
    except ConfigError as error:
        return SummaryFailure(str(error), is_lasting=True)
    except Exception as error:  # foreign code may raise anything
        return SummaryFailure(describe_error(error))


async def _answer_in_time(ask: AnySummarize, prompt: str, max_tokens: int, timeout_s: float) -> object:
    deadline = asyncio.timeout(max(0.0, timeout_s))
    try:
        async with deadline:
            return await call_summarize(ask, prompt, max_tokens=max_tokens)
    except TimeoutError:
        if deadline.expired():
            return SummaryFailure("no answer in time")
        raise


def _as_summary(answer: object) -> Summary | SummaryFailure:
    if isinstance(answer, SummaryFailure):
        return answer
    if answer is None or isinstance(answer, str):
        answer = Summary(answer or "")
    if not isinstance(answer, Summary):
        return SummaryFailure(f"summarize must return text, not {_type_label(answer)}")
    usage = answer.usage if isinstance(answer.usage, CanonicalUsage) else CanonicalUsage(reported=False)
    # Lone surrogates cannot be encoded.
    return Summary(redact(clean(str(answer.text))), clean(str(answer.model)), usage, answer.cost_usd)


def _type_label(answer: object) -> str:
    """Return the type of a value that is no text, and where the text of a message is."""
    has_text = isinstance(getattr(answer, "content", None), str)
    return f"{type(answer).__name__}{': return its .content' if has_text else ''}"


def _truncate_blocks(transcript: Transcript, room: int) -> Transcript:
    """Truncate blocks so that they fit into `MOST_PARTS` parts."""
    most = room // 2
    # Sizes are in bytes, at least the length in characters: usually there is nothing to do.
    if sum(transcript.sizes) <= room * MOST_PARTS and max(transcript.sizes, default=0) <= most:
        return transcript
    blocks = transcript.blocks
    if sum(map(len, blocks)) > room * MOST_PARTS:
        most = min(most, max(80, room * MOST_PARTS // max(1, len(blocks)) // 2))
    shorter = [b if len(b) <= most else f"{b[: most * 2 // 3]} … {b[-(most // 3) :]}" for b in blocks]
    return Transcript(shorter, list(map(size_of, shorter)))


def _sample_oldest(parts: list[list[str]]) -> list[list[str]]:
    """Reduce the parts to `MOST_PARTS` by sampling the oldest ones evenly."""
    keep = parts[-(MOST_PARTS - 1) :]
    old = [b for part in parts[: -(MOST_PARTS - 1)] for b in part]
    step = max(1, -(-len(old) // max(1, len(parts[0]))))
    return [[f"[every {step}th message of a long beginning]", *old[::step]], *keep]


def _text(brief: Brief, name: str, **values: str) -> str:
    """Render a prompt: the user's override, or the default where that is invalid."""
    try:
        return prompts.render(name, values, brief.prompts_folder)
    except ConfigError:
        # An invalid override must not stop a compaction; `perdure doctor` reports it.
        return prompts.render(name, values)


def _sum_cost(answers: Sequence[Summary]) -> float | None:
    costs = [a.cost_usd for a in answers if a.cost_usd is not None]
    return sum(costs) if costs else None
