"""What an error means (SPEC G1): status and body in, a verdict out. Failure is a value; nothing here ever raises.

The order of questions is what keeps the kinds apart. Limits on one request (images, a rate tier too small for it) come
first, for their figures look like windows and waits; then money and rate limits, for their texts speak of tokens
and of too large requests; then the length tables, where figures tell a prompt that does not fit from an output that
was asked for too large; then the plain status; and last the words of bodies that came without one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from perdure.core.error_policy import POLICIES
from perdure.core.errors import ErrorKind, ErrorVerdict
from perdure.providers.errors.body import ErrorText, parse_error_body
from perdure.providers.errors.limits import ErrorCase, image_verdict, length_verdict, tier_verdict
from perdure.providers.errors.patterns import (
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
from perdure.providers.errors.retry_after import wait_from_headers, wait_from_text
from perdure.providers.types import Reply

# A bare 400 after a request of this size is taken for an overflow that some proxy swallowed the text of.
HUGE_REQUEST_TOKENS = 32_000

_SAYS_NOTHING = re.compile(
    r"\b(?:bad[_ ]request|invalid[_ ]request(?:[_ ]error)?|error|status|code|null|none|unknown|no body|400|http|failed|"
    r"object|badrequesterror|exception|an|occurred)\b|[\W_]",
    re.IGNORECASE,
)


def classify_error(
    status: int | str | None,
    body: object,
    *,
    headers: object = None,
    request_tokens: int | None = None,
    now_s: float | None = None,
) -> ErrorVerdict:
    """What an error means and what it states. `status` None: the network failed, or a stream broke in its middle.

    `body` may be text, bytes, decoded JSON, an exception or nothing; `request_tokens` is our estimate of the prompt.
    """
    said = parse_error_body(body)
    status = _as_status(status)
    if status is None or 200 <= status < 300:
        status = said.status if said.status is not None else status
    verdict = _verdict(ErrorCase(status, said, request_tokens))
    if verdict.kind == "unknown" and isinstance(body, BaseException):
        verdict = ErrorVerdict("transport", verdict.message, status)
    if not POLICIES[verdict.kind].has_wait:
        return verdict
    # A date in a header needs a present to be told from; the header's own is used first.
    now = now_s if now_s is not None else time.time()
    wait = wait_from_headers(headers, now_s=now)
    wait = wait if wait is not None else said.wait_s
    wait = wait if wait is not None else wait_from_text(said.text)
    return ErrorVerdict(verdict.kind, verdict.message, status, retry_after_s=wait)


def _as_status(given: object) -> int | None:
    """A status as a number; some bodies and headers carry it as text. What is neither says nothing."""
    text = str(given).strip() if isinstance(given, int | str) and not isinstance(given, bool) else ""
    return int(text) if text.isascii() and text.lstrip("-").isdigit() and len(text) <= 6 else None


def overflow_verdict(reply: Reply, *, window: int | None = None) -> ErrorVerdict | None:
    """Return the verdict on a reply that ended because the window was full; None for any other end.

    Some services only cut such a reply off. An empty one is taken for that where the prompt is near the window:
    with a small prompt, an output allowance or hidden reasoning is to blame.
    """
    is_empty = not reply.message.text and not reply.message.tool_calls and not reply.usage.output_tokens
    is_cut_off = reply.finish == "length" and reply.usage.reported and is_empty
    is_near_window = window is not None and reply.usage.prompt_tokens * 2 >= window
    if reply.finish == "context_overflow" or (is_cut_off and is_near_window):
        return ErrorVerdict("prompt_too_long", "the model stopped because its context window was full")
    return None


def find_error(body: Mapping[str, Any]) -> object | None:
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


def _verdict(case: ErrorCase) -> ErrorVerdict:
    status, said = case.status, case.said
    if (counted := image_verdict(case) or tier_verdict(case)) is not None:
        return counted
    kind = _money_or_rate(status, said.text)
    if kind is not None:
        return ErrorVerdict(kind, said.message or kind.replace("_", " "), status)
    found = length_verdict(case)
    if found is not None:
        return found
    if status == 413:
        kind = "rate_limit" if PLAN.search(said.text) else "prompt_too_long"
        return ErrorVerdict(kind, said.message or "the request is too large", status)
    if status == 400 and (case.request_tokens or 0) >= HUGE_REQUEST_TOKENS and _is_bare(said):
        line = f"rejected without a reason after a request of about {case.request_tokens} tokens: taken for too long"
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
    numbers = set(re.findall(r"(?<!\d)\d{4}(?!\d)", said.codes))
    for code, kind in CODES.items():
        if code in numbers:
            return kind
    return "transport" if not said.text.strip(" |") else "unknown"


def _default_line(status: int | None) -> str:
    return f"HTTP {status} without a reason" if status is not None else "the connection failed"
