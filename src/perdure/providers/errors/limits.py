"""Limits stated in error bodies: context length, output cap, retry-after."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from perdure.core.errors import ErrorKind, ErrorVerdict
from perdure.models.windows import plausible_window
from perdure.providers.errors.body import ErrorText
from perdure.providers.errors.overflow_patterns import CAP_ROWS, SUM_ROWS, LimitRow
from perdure.providers.errors.patterns import GENERIC_ROWS, PROMPT_ROWS, SIZE_ROWS

RequestKind = Literal["images", "tier"]


@dataclass(frozen=True, slots=True)
class RequestRow:
    kind: RequestKind
    pattern: re.Pattern[str]
    service: str
    sample: str
    status: int = 400


def _row(kind: RequestKind, pattern: str, service: str, sample: str, status: int = 400) -> RequestRow:
    return RequestRow(kind, re.compile(pattern, re.IGNORECASE), service, sample, status)


_MEDIA = r"(?:images?|image\(s\)|documents?|media|pictures?|attachments?)"

IMAGE_ROWS: tuple[RequestRow, ...] = (
    _row(
        "images",
        rf"too many {_MEDIA}[^:]{{0,30}}: ?\d+ \+ \d+ > (?P<most>\d+)",
        "Anthropic, Bedrock",
        "messages.22.content: too many images and documents: 104 + 1 > 100",
    ),
    _row(
        "images",
        r"too much media: \d+ document pages \+ \d+ images > (?P<most>\d+)",
        "Anthropic",
        "Too much media: 0 document pages + 107 images > 100",
    ),
    _row(
        "images",
        rf"at most (?P<most>\d+) {_MEDIA} may be provided",
        "vLLM",
        "At most 5 image(s) may be provided in one request.",
    ),
    _row(
        "images",
        rf"too many {_MEDIA}.{{0,60}}?(?:max(?:imum)?|up to|at most|limit)\D{{0,30}}?(?P<most>\d+)",
        "OpenAI, Azure, Copilot",
        "Too many images in request. Max is 50.",
    ),
    _row(
        "images",
        rf"\d+ {_MEDIA},? (?:which )?exceed(?:s|ing)? the (?:maximum|limit) of (?P<most>\d+)",
        "routers",
        "request contains 54 images, exceeding the maximum of 50 allowed per request",
    ),
    _row("images", rf"too many {_MEDIA}", "services that state no figure", "Too many images in the request"),
)

# The two numbers show whether the request can ever fit. With "Used 28911" between them, waiting helps.
TIER_ROWS: tuple[RequestRow, ...] = (
    _row(
        "tier",
        r"token.{0,60}?limit:? (?P<most>\d+),? requested:? (?P<sent>\d+)",
        "Groq",
        "Request too large for model `llama-3.3-70b-versatile` in organization `org_x` service tier `on_demand` on "
        "tokens per minute (TPM): Limit 6000, Requested 14810, please reduce your message size and try again.",
        413,
    ),
    _row(
        "tier",
        r"token.{0,60}?limit:? (?P<most>\d+),? requested:? (?P<sent>\d+)",
        "OpenAI",
        "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 45000. The "
        "input or output tokens must be reduced in order to run successfully.",
        429,
    ),
)


_OUTPUT_WORDS = re.compile(r"completion|output|response|generat|max_?(?:new_)?tokens|prediction", re.IGNORECASE)
_BREAKDOWN = re.compile(r"(\d+)((?: [a-z_]+){1,6})", re.IGNORECASE)
_TOOL_FAILURE = re.compile(
    r"\b(?:tool|function|command|plugin|mcp)\b[^.|]{0,60}?\b(?:failed|error|returned|raised|reported|said|exited)\b",
    re.IGNORECASE,
)
# Numbers that may be token counts: not part of names, not in other units.
_FIGURE = re.compile(r"(?<![\w.-])\d{3,9}(?![\w-]|\.\d| ?(?:characters?|chars?|bytes?|[km]i?b)\b)", re.IGNORECASE)
_LIMIT = re.compile(
    r"(?:max(?:imum)?|limit(?:ed)?|up to|at most|allowed|supports?|window|only|<=?|less than|size|length)\b\D{0,25}?"
    + _FIGURE.pattern.replace(r"\d{3,9}", r"(\d{3,9})", 1),
    re.IGNORECASE,
)
_LEAST_WINDOW = 1_000


@dataclass(frozen=True, slots=True)
class ErrorCase:
    """An error body with its status and our estimate of the prompt size."""

    status: int | None
    error_text: ErrorText
    request_tokens: int | None = None

    def verdict(self, kind: ErrorKind, *, window: int | None = None, output: int | None = None) -> ErrorVerdict:
        return ErrorVerdict(kind, self.error_text.message, self.status, context_limit=window, output_limit=output)


def image_verdict(case: ErrorCase) -> ErrorVerdict | None:
    """Return the verdict on too many images; their number is never treated as a token count."""
    for row in IMAGE_ROWS:
        if (match := row.pattern.search(case.error_text.words)) is not None:
            stated = match.groupdict().get("most")
            return ErrorVerdict(
                "bad_request", case.error_text.message, case.status, image_limit=int(stated) if stated else None
            )
    return None


def tier_verdict(case: ErrorCase) -> ErrorVerdict | None:
    """Return the verdict on a request that alone exceeds the per-minute limit; None if waiting helps."""
    for row in TIER_ROWS:
        match = row.pattern.search(case.error_text.words)
        limit = plausible_window(int(match["most"])) if match is not None else None
        if match is None or limit is None or int(match["sent"]) <= limit:
            continue
        # Services count max_tokens too: a prompt of less than half the limit is not the cause.
        prompt = case.request_tokens
        is_output = prompt is not None and prompt < limit // 2
        return ErrorVerdict(
            "output_cap" if is_output else "prompt_too_long",
            case.error_text.message,
            case.status,
            output_limit=limit - prompt if is_output and prompt is not None else None,
            request_limit=limit,
        )
    return None


def length_verdict(case: ErrorCase) -> ErrorVerdict | None:
    """Return the verdict on an error about length; None for any other."""
    error_text = case.error_text
    if case.status == 429:  # a limit on tokens per minute, not on length
        return None
    for row in (*SUM_ROWS, *CAP_ROWS, *PROMPT_ROWS, *SIZE_ROWS):
        match = row.pattern.search(error_text.text)
        if match is not None:
            return _verdict_of_row(row, match, case=case)
    # An unknown wording does not override a status that already states the cause.
    if case.status in (401, 403, 404) or error_text.is_html:
        return None
    # An error about a failed tool may quote its output; the service's own codes still count.
    text = error_text.codes if _TOOL_FAILURE.search(error_text.words) else error_text.text
    for row in GENERIC_ROWS:
        if row.pattern.search(text):
            window = (error_text.figures or {}).get("window") or _guessed_window(error_text.words)
            return case.verdict("prompt_too_long", window=window)
    return None


def _verdict_of_row(row: LimitRow, match: re.Match[str], *, case: ErrorCase) -> ErrorVerdict:
    stated = {k: v for k, v in match.groupdict().items() if v is not None}
    figures = {k: int(v) for k, v in stated.items() if v.isdigit()}
    window = figures.get("window") or figures.get("n_ctx") or (case.error_text.figures or {}).get("window")
    if row.kind == "cap":
        cap = figures.get("cap") or figures.get("most") or figures.get("below", 0) - 1
        return case.verdict("output_cap", output=cap if cap > 0 else None)
    if row.kind == "prompt" or window is None:
        return case.verdict("prompt_too_long", window=window)
    prompt = _prompt_of(stated["parts"]) if "parts" in stated else figures.get("prompt")
    if prompt is None:
        return _by_estimate(row, window, case=case)
    if "least" in stated and case.request_tokens is not None:
        # Counting stopped at the limit: our estimate is better where it is higher.
        prompt = max(prompt, case.request_tokens)
    if prompt >= window:
        return case.verdict("prompt_too_long", window=window)
    return case.verdict("output_cap", window=window, output=window - prompt)


def _by_estimate(row: LimitRow, window: int, *, case: ErrorCase) -> ErrorVerdict:
    """Decide whether prompt or output is too long where only their sum is stated: by our estimate, else the wording."""
    room = None if case.request_tokens is None else window - case.request_tokens
    # A sum without an output figure is an output cap only where the prompt is far from the window.
    is_output = row.kind == "sum" if room is None else room > (window // 5 if row.kind == "total" else 0)
    return (
        case.verdict("output_cap", window=window, output=room)
        if is_output
        else case.verdict("prompt_too_long", window=window)
    )


def _prompt_of(parts: str) -> int | None:
    """Return the prompt's share of "3120 in the messages, 100 in the functions, 1000 in the completion"."""
    counts = [int(n) for n, label in _BREAKDOWN.findall(parts) if not _OUTPUT_WORDS.search(label)]
    return sum(counts) if counts else None


def _guessed_window(error_text: str) -> int | None:
    """Guess the window from an unknown error message: the smaller of two numbers, or the one called a limit."""
    figures = sorted({int(f) for f in _FIGURE.findall(error_text) if int(f) >= _LEAST_WINDOW})
    if len(figures) == 2:
        return figures[0]
    named = {int(m) for m in _LIMIT.findall(error_text) if int(m) >= _LEAST_WINDOW}
    # A lone number may be an error code: it is a limit only where the text mentions tokens.
    return named.pop() if len(named) == 1 and "token" in error_text.lower() else None
