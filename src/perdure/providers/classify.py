"""What an error means (SPEC G1): status and body in, a verdict out. Failure is a value; nothing here ever raises.

The order of questions is what keeps the kinds apart. Money and rate limits come first, for their texts speak of tokens
and of too large requests; then the length tables, where figures tell a prompt that does not fit from an output that
was asked for too large; then the plain status; and last the words of bodies that came without one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from perdure.core.errors import ErrorKind, ErrorVerdict
from perdure.providers.error_body import ErrorText, read_error
from perdure.providers.exchange import Reply
from perdure.providers.fault_table import (
    AUTH,
    BAD_REQUEST,
    CODES,
    MAYBE_QUOTA,
    OVERLOADED,
    PER_DAY,
    PLAN,
    QUOTA,
    RATE,
    SOON,
    TRANSPORT,
)
from perdure.providers.overflow_table import CAP_ROWS, SUM_ROWS, LimitRow
from perdure.providers.prompt_table import GENERIC_ROWS, PROMPT_ROWS, SIZE_ROWS
from perdure.providers.retry_after import wait_of_headers, wait_of_text

# A bare 400 after a request of this size is taken for an overflow that some proxy swallowed the text of.
HUGE_REQUEST_TOKENS = 32_000

_WAITING = frozenset({"rate_limit", "overloaded", "quota", "transport", "unknown"})
_SAYS_NOTHING = re.compile(
    r"\b(?:bad[_ ]request|invalid[_ ]request(?:[_ ]error)?|error|status|code|null|none|unknown|no body|400|http|failed|"
    r"object|badrequesterror|exception|an|occurred)\b|[\W_]",
    re.IGNORECASE,
)
_OUTPUT_WORDS = re.compile(r"completion|output|response|generat|max_?(?:new_)?tokens|prediction", re.IGNORECASE)
_BREAKDOWN = re.compile(r"(\d+)((?: [a-z_]+){1,6})", re.IGNORECASE)
# Figures that may be tokens: neither parts of names nor counted in something else.
_FIGURE = re.compile(r"(?<![\w.-])\d{3,9}(?![\w-]|\.\d| ?(?:characters?|chars?|bytes?|[km]i?b)\b)", re.IGNORECASE)
_LIMIT = re.compile(
    r"(?:max(?:imum)?|limit(?:ed)?|up to|at most|allowed|supports?|window|only|<=?|less than|size|length)\b\D{0,25}?"
    + _FIGURE.pattern.replace(r"\d{3,9}", r"(\d{3,9})", 1),
    re.IGNORECASE,
)
_LEAST_WINDOW = 1_000


def classify_error(
    status: int | None,
    body: object,
    *,
    headers: object = None,
    request_tokens: int | None = None,
    now_s: float | None = None,
) -> ErrorVerdict:
    """What an error means and what it states. `status` None: the network failed, or a stream broke in its middle.

    `body` may be text, bytes, decoded JSON, an exception or nothing; `request_tokens` is our estimate of the prompt.
    """
    said = read_error(body)
    if status is None or 200 <= status < 300:
        status = said.status if said.status is not None else status
    verdict = _verdict(status, said, request_tokens)
    if verdict.kind == "unknown" and isinstance(body, BaseException):
        verdict = ErrorVerdict("transport", verdict.message, status)
    if verdict.kind not in _WAITING:
        return verdict
    # A date in a header needs a present to be told from; the header's own is used first.
    now = now_s if now_s is not None else time.time()
    wait = wait_of_headers(headers, now_s=now)
    wait = wait if wait is not None else said.wait_s
    wait = wait if wait is not None else wait_of_text(said.text)
    return ErrorVerdict(verdict.kind, verdict.message, status, retry_after_s=wait)


def stop_verdict(reply: Reply) -> ErrorVerdict | None:
    """The verdict on a reply that ended because the window was full; None for any other end."""
    if reply.finish != "context_overflow":
        return None
    return ErrorVerdict("prompt_too_long", "the model's context window was full before the reply was complete")


def error_in(body: Mapping[str, Any]) -> object | None:
    """The part of an answer that tells of a failure; None where the answer is one."""
    if body.get("error"):
        return body
    if body.get("object") == "error" or body.get("type") == "error":
        return body
    resp = body.get("base_resp")  # MiniMax
    if isinstance(resp, Mapping) and resp.get("status_code") not in (0, None, "0"):
        return body
    is_answer = any(k in body for k in ("choices", "content", "output", "usage", "delta"))
    if not is_answer and isinstance(body.get("message"), str) and any(k in body for k in ("code", "status", "__type")):
        return body
    return body if not is_answer and "detail" in body else None


def _verdict(status: int | None, said: ErrorText, request_tokens: int | None) -> ErrorVerdict:
    text = said.text
    money = _money_or_rate(status, text)
    if money is not None:
        return ErrorVerdict(money, said.message or money.replace("_", " "), status)
    found = _length(status, said, request_tokens)
    if found is not None:
        return found
    if status == 413:
        kind: ErrorKind = "rate_limit" if PLAN.search(text) else "prompt_too_long"
        return ErrorVerdict(kind, said.message or "the request is too large", status)
    if status == 400 and request_tokens is not None and request_tokens >= HUGE_REQUEST_TOKENS and _is_bare(said):
        line = f"rejected without a reason after a request of about {request_tokens} tokens: taken for too long"
        return ErrorVerdict("prompt_too_long", line, status)
    kind = _by_status(status, said) or ("transport" if said.is_html else _by_words(said))
    return ErrorVerdict(kind, said.message or _default_line(status), status)


def _money_or_rate(status: int | None, text: str) -> ErrorKind | None:
    if status == 402 or QUOTA.pattern.search(text):
        return "quota"
    is_rate = bool(RATE.pattern.search(text))
    if MAYBE_QUOTA.search(text):
        is_passing = is_rate or bool(SOON.search(text))
        return "rate_limit" if is_passing and not PER_DAY.search(text) else "quota"
    return "rate_limit" if is_rate else None


def _length(status: int | None, said: ErrorText, request_tokens: int | None) -> ErrorVerdict | None:
    for row in (*SUM_ROWS, *CAP_ROWS, *PROMPT_ROWS, *SIZE_ROWS):
        match = row.pattern.search(said.text)
        if match is not None:
            return _of_row(row, match, said, status, request_tokens)
    # Words nobody has seen before are not believed against a status that already says what is wrong.
    if status in (401, 403, 404, 429) or said.is_html:
        return None
    for row in GENERIC_ROWS:
        if row.pattern.search(said.text):
            window = (said.figures or {}).get("window") or _guessed_window(said.text)
            return ErrorVerdict("prompt_too_long", said.message, status, context_limit=window)
    return None


def _of_row(
    row: LimitRow, match: re.Match[str], said: ErrorText, status: int | None, request_tokens: int | None
) -> ErrorVerdict:
    stated = {k: v for k, v in match.groupdict().items() if v is not None}
    figures = {k: int(v) for k, v in stated.items() if v.isdigit()}
    window = figures.get("window") or figures.get("n_ctx") or (said.figures or {}).get("window")
    if row.kind == "cap":
        cap = figures.get("cap") or figures.get("most") or figures.get("below", 0) - 1
        return ErrorVerdict("output_cap", said.message, status, output_limit=cap if cap > 0 else None)
    if row.kind == "prompt" or window is None:
        return ErrorVerdict("prompt_too_long", said.message, status, context_limit=window)
    prompt = figures.get("prompt")
    if "parts" in stated:
        prompt = _prompt_of(stated["parts"])
    if prompt is None:
        return _by_estimate(row, said, window, status, request_tokens)
    if "least" in stated and request_tokens is not None:
        # Counting stopped at the limit: our own estimate is the better figure where it is higher.
        prompt = max(prompt, request_tokens)
    if prompt >= window:
        return ErrorVerdict("prompt_too_long", said.message, status, context_limit=window)
    return ErrorVerdict("output_cap", said.message, status, context_limit=window, output_limit=window - prompt)


def _by_estimate(
    row: LimitRow, said: ErrorText, window: int, status: int | None, request_tokens: int | None
) -> ErrorVerdict:
    """Only a sum was stated: our estimate of the prompt tells who is to blame, and without one the wording does."""
    room = None if request_tokens is None else window - request_tokens
    # A sum that names no output is believed to be the output's fault only where the prompt is far from the window.
    is_output = row.kind == "sum" if room is None else room > (window // 5 if row.kind == "total" else 0)
    if not is_output:
        return ErrorVerdict("prompt_too_long", said.message, status, context_limit=window)
    return ErrorVerdict("output_cap", said.message, status, context_limit=window, output_limit=room)


def _prompt_of(parts: str) -> int | None:
    """The prompt's share of "3120 in the messages, 100 in the functions, 1000 in the completion"."""
    counts = [int(n) for n, label in _BREAKDOWN.findall(parts) if not _OUTPUT_WORDS.search(label)]
    return sum(counts) if counts else None


def _guessed_window(text: str) -> int | None:
    """The window an unknown wording states: the smaller of two figures, or the one that is called a limit."""
    said = text.partition(" | ")[0]
    figures = sorted({int(f) for f in _FIGURE.findall(said) if int(f) >= _LEAST_WINDOW})
    if len(figures) == 2:
        return figures[0]
    named = {int(m) for m in _LIMIT.findall(said) if int(m) >= _LEAST_WINDOW}
    # A lone number may be an error's own: it is a limit only where tokens are spoken of.
    return named.pop() if len(named) == 1 and "token" in said.lower() else None


def _is_bare(said: ErrorText) -> bool:
    return not _SAYS_NOTHING.sub("", said.text)


def _by_status(status: int | None, said: ErrorText) -> ErrorKind | None:
    if status is None or status < 400:
        return None
    if status in (401, 403):
        return "bad_request" if re.search(r"moderation|flagged", said.text, re.IGNORECASE) else "auth"
    if status == 429:
        return "overloaded" if re.search(r"overload", said.text, re.IGNORECASE) else "rate_limit"
    if status in (408, 425, 499, 502, 504, 598, 599) or 520 <= status <= 527:
        return "transport"
    if status >= 500 or status == 424:
        return "overloaded"
    return "auth" if AUTH.pattern.search(said.text) else "bad_request"


def _by_words(said: ErrorText) -> ErrorKind:
    """Bodies without a status: streams that broke off, exceptions of the network, answers that hold an error."""
    for row in (AUTH, OVERLOADED, TRANSPORT, BAD_REQUEST):
        if row.pattern.search(said.text):
            return row.kind
    numbers = set(re.findall(r"(?<!\d)\d{4}(?!\d)", said.text.partition(" | ")[2]))
    for code, kind in CODES.items():
        if code in numbers:
            return kind
    return "transport" if not said.text.strip(" |") else "unknown"


def _default_line(status: int | None) -> str:
    return f"HTTP {status} without a reason" if status is not None else "the connection failed"
