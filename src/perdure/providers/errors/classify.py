"""Classify errors: status and body in, a verdict out. Never raises.

The order of the checks matters. Limits on one request (images, a rate tier too small for it) come first, as their
numbers look like windows and delays; then quota and rate limits, whose messages mention tokens and large requests; then
the length patterns, where numbers distinguish a prompt that is too long from an output cap; then the status; and last
the text of bodies without a status.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from perdure.core.arguments import TOKENS, check_arguments, optional
from perdure.core.error_policy import POLICIES
from perdure.core.errors import ErrorKind, ErrorVerdict
from perdure.providers.errors.body import ErrorText, parse_error_body, wait_from_headers, wait_from_text
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

# A bare 400 after a request of this size is treated as an overflow whose message a proxy dropped.
HUGE_REQUEST_TOKENS = 32_000

_BOILERPLATE = re.compile(
    r"\b(?:bad[_ ]request|invalid[_ ]request(?:[_ ]error)?|error|status|code|null|none|unknown|no body|400|http|failed|"
    r"object|badrequesterror|exception|an|occurred)\b|[\W_]",
    re.IGNORECASE,
)


@check_arguments(request_tokens=optional(TOKENS))
def classify_error(
    status: int | str | None,
    body: object,
    *,
    headers: object = None,
    request_tokens: int | None = None,
    now_s: float | None = None,
) -> ErrorVerdict:
    """Classify an error. `status` None: a network failure, or an error inside a stream.

    `body` may be text, bytes, decoded JSON, an exception or None; `request_tokens` is our estimate of the prompt.
    """
    error_text = parse_error_body(body)
    status = _as_status(status)
    if status is None or 200 <= status < 300:
        status = error_text.status if error_text.status is not None else status
    verdict = _verdict(ErrorCase(status, error_text, request_tokens))
    if verdict.kind == "unknown" and isinstance(body, BaseException):
        verdict = ErrorVerdict("transport", verdict.message, status)
    if not POLICIES[verdict.kind].has_wait:
        return verdict
    # A date needs a reference time; the response's own Date header is used first.
    now = now_s if now_s is not None else time.time()
    wait = wait_from_headers(headers if headers is not None else _headers_of(body), now_s=now)
    wait = wait if wait is not None else error_text.wait_s
    wait = wait if wait is not None else wait_from_text(error_text.text)
    return ErrorVerdict(verdict.kind, verdict.message, status, retry_after_s=wait)


def _headers_of(body: object) -> object:
    """Return the response headers of an exception of an HTTP client or SDK; None for anything else."""
    if not isinstance(body, BaseException):
        return None
    try:
        return getattr(getattr(body, "response", None), "headers", None)
    except Exception:  # foreign code
        return None


def _as_status(raw: object) -> int | None:
    """Parse a status, which some bodies and headers send as text; None for anything else."""
    text = str(raw).strip() if isinstance(raw, int | str) and not isinstance(raw, bool) else ""
    return int(text) if text.isascii() and text.lstrip("-").isdigit() and len(text) <= 6 else None


def find_error(body: Mapping[str, Any]) -> object | None:
    """Return the error in a response body; None where the body is a reply."""
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
    status, error_text = case.status, case.error_text
    if (limited := image_verdict(case) or tier_verdict(case)) is not None:
        return limited
    kind = _quota_or_rate(status, error_text.text)
    if kind is not None:
        return ErrorVerdict(kind, error_text.message or kind.replace("_", " "), status)
    by_length = length_verdict(case)
    if by_length is not None:
        return by_length
    if status == 413:
        kind = "rate_limit" if PLAN.search(error_text.text) else "prompt_too_long"
        return ErrorVerdict(kind, error_text.message or "the request is too large", status)
    if status == 400 and (case.request_tokens or 0) >= HUGE_REQUEST_TOKENS and _is_bare(error_text):
        line = f"rejected without a reason after a request of about {case.request_tokens} tokens: probably too long"
        return ErrorVerdict("prompt_too_long", line, status)
    kind = _kind_by_status(status, error_text) or ("transport" if error_text.is_html else _kind_by_text(error_text))
    return ErrorVerdict(kind, error_text.message or _default_message(status), status)


def _quota_or_rate(status: int | None, text: str) -> ErrorKind | None:
    if status == 402 or QUOTA.pattern.search(text):
        return "quota"
    is_rate = bool(RATE.pattern.search(text))
    if MAYBE_QUOTA.search(text):
        is_passing = is_rate or bool(SOON.search(text))
        return "rate_limit" if is_passing and not PER_DAY.search(text) else "quota"
    return "rate_limit" if is_rate else None


def _is_bare(error_text: ErrorText) -> bool:
    return not _BOILERPLATE.sub("", error_text.text)


def _kind_by_status(status: int | None, error_text: ErrorText) -> ErrorKind | None:
    if status is None or status < 400:
        return None
    if status in (401, 403):
        return "bad_request" if re.search(r"moderation|flagged", error_text.text, re.IGNORECASE) else "auth"
    if status == 429:
        return "overloaded" if re.search(r"overload", error_text.text, re.IGNORECASE) else "rate_limit"
    if status in (408, 425, 499, 502, 504, 598, 599) or 520 <= status <= 527:
        return "transport"
    if status >= 500 or status == 424:
        return "overloaded"
    return "auth" if AUTH.pattern.search(error_text.text) else "bad_request"


def _kind_by_text(error_text: ErrorText) -> ErrorKind:
    """Classify bodies without a status: truncated streams, network exceptions, replies that contain an error."""
    for row in (AUTH, OVERLOADED, TRANSPORT, BAD_REQUEST):
        if row.pattern.search(error_text.text):
            return row.kind
    numbers = set(re.findall(r"(?<!\d)\d{4}(?!\d)", error_text.codes))
    for code, kind in CODES.items():
        if code in numbers:
            return kind
    return "transport" if not error_text.text.strip(" |") else "unknown"


def _default_message(status: int | None) -> str:
    return f"HTTP {status} without a reason" if status is not None else "the connection failed"
