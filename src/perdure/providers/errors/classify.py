"""Classify errors, and build ProviderErrors with one-line messages: what failed, where, and what to try.

Classifying takes a status and a body, returns a verdict and never raises. The order of the checks matters. Limits on
one request (images, a rate tier too small for it) come first, as their numbers look like windows and delays; then quota
and rate limits, whose messages mention tokens and large requests; then the length patterns, where numbers distinguish a
prompt that is too long from an output cap; then the status; and last the text of bodies without a status.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from perdure.config.env import FILE
from perdure.core.error_policy import POLICIES
from perdure.core.errors import ErrorKind, ErrorVerdict, ProviderError
from perdure.providers.errors.body import (
    MAX_WAIT_S,
    ErrorText,
    parse_error_body,
    strip_tags,
    wait_from_headers,
    wait_from_text,
)
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
from perdure.providers.http import LONG_WAIT_S, url_of
from perdure.providers.types import Endpoint, Reply

# Limit for quoted error text: HTML pages and stack traces are cut here.
QUOTE_CHARS = 300
READ_CHARS = 4000
_MIN_KEY_CHARS = 12

_MODEL_WORDS = re.compile(r"\bmodel\b|deployment", re.IGNORECASE)
_SENDABLE = re.compile(r"[!-~](?:[ -~]*[!-~])?|")
_KEY_HEADERS = ("authorization", "x-api-key", "api-key")
_USERINFO = re.compile(r"^(\w+://)[^/@]*@")
# OpenSSL's verify codes: a self-signed certificate, one of a chain, no issuer, an issuer that is no authority.
_UNKNOWN_AUTHORITY = (18, 19, 20, 21, 24, 79)
_NAME_MISMATCH = (62, 64)
# OpenSSL reasons for a response that is not TLS, by version.
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
# The service accepted the request but a proxy timed out: 408, nginx's 499.
_TIMEOUT_STATUSES = (408, 499)
# Overloaded: the request was not processed.
_OVERLOADED_STATUSES = (503, 529)
_UNSENT = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "InvalidURL"})
_KEY = re.compile(r"\b(sk|key|gsk|xai|or)-[A-Za-z0-9_\-*]{6,}")


@dataclass(frozen=True, slots=True)
class EndpointLabel:
    """The endpoint of a call as named in error messages."""

    host: str
    base_url: str
    model: str
    provider: str
    # URL of the model list.
    models_url: str
    # The API key, removed from quoted text.
    secret: str = field(default="", repr=False)

    @classmethod
    def of(cls, endpoint: Endpoint) -> EndpointLabel:
        # A password in the URL is as secret as a key.
        base_url = _USERINFO.sub(r"\1", endpoint.base_url)
        host = base_url.partition("://")[2].partition("/")[0] or base_url or endpoint.provider
        models_path = "/v1/models" if endpoint.api_mode == "anthropic_messages" else "/models"
        models_url = url_of(base_url, models_path)
        return cls(host, base_url, endpoint.model, endpoint.provider, models_url, endpoint.api_key or "")

    def quote(self, text: str) -> str:
        """Quote text in one line, without the API key."""
        quoted = quote(text)
        # Dummy keys ("none", "ollama") are not secret, and replacing them would garble the text.
        if len(self.secret) >= _MIN_KEY_CHARS:
            quoted = quoted.replace(self.secret, "[key]")
        return _KEY.sub("[key]", quoted)


def call_error(
    label: EndpointLabel, kind: ErrorKind, line: str, *, status: int | None = None, partial: str = ""
) -> ProviderError:
    """Build a ProviderError for a failure detected here."""
    return ProviderError(ErrorVerdict(kind=kind, message=line, status=status), label.host, partial_text=partial)


def refusal_error(label: EndpointLabel, verdict: ErrorVerdict, *, partial: str = "") -> ProviderError:
    """Build a ProviderError from the service's error message, with a hint appended."""
    if verdict.kind == "transport" and verdict.status is None:
        # Raised while parsing the reply: the message is our own already.
        return ProviderError(verdict, label.host, partial_text=partial)
    quoted = label.quote(verdict.message) or "no reason given"
    code = f" ({verdict.status})" if verdict.status else ""
    line = f"{_summary(label, verdict)}{code}: {quoted.rstrip('.')}.{_hint(label, verdict)}"
    return ProviderError(replace(verdict, message=line), label.host, partial_text=partial)


def network_error(label: EndpointLabel, error: BaseException, *, partial: str = "") -> ProviderError:
    """Build a ProviderError of kind `transport` for a network failure."""
    quoted = bool(partial)
    return call_error(label, "transport", _network_line(label, error, has_started=quoted), partial=partial)


def not_an_api_error(label: EndpointLabel, status: int, body: bytes, *, partial: str = "") -> ProviderError:
    """Build the error for a response that is neither JSON nor an event stream."""
    text = body[: 4 * READ_CHARS].decode("utf-8", "replace")
    what = "a web page" if is_html(body) else "something that is not a model's reply"
    quoted = label.quote(text)
    line = f"responded with {what}" + (f": {quoted!r}" if quoted else "")
    line += f". Is {label.base_url} the API's address? It usually ends in /v1."
    return call_error(label, "transport", line, status=status, partial=partial)


def find_invalid_header(headers: Mapping[str, str]) -> str | None:
    """Return the name of a header with a value HTTP cannot carry, e.g. a key pasted with a line break."""
    return next((name for name, value in headers.items() if not _SENDABLE.fullmatch(value)), None)


def invalid_header_error(label: EndpointLabel, name: str) -> ProviderError:
    """Build the error for an invalid header; never quotes its value, which may be a key."""
    if name.lower() in _KEY_HEADERS:
        line = "the API key contains a blank, a line break or an invalid character"
        line += f". Check the key for {label.provider!r}: `perdure doctor` shows where it is read from."
        return call_error(label, "auth", line)
    return call_error(label, "bad_request", f"the header {name!r} contains a character that cannot be sent: check it.")


def is_html(body: bytes) -> bool:
    return body.lstrip()[:1] == b"<"


def quote(text: str) -> str:
    """Return text as one line without tags, cut to QUOTE_CHARS."""
    plain = " ".join(strip_tags(text[:READ_CHARS]).split())
    return plain if len(plain) <= QUOTE_CHARS else plain[: QUOTE_CHARS - 1] + "…"


def is_worth_retrying(error: BaseException) -> bool:
    """Whether a retry may succeed; not for an unknown host or a bad certificate."""
    causes = _causes(error)
    if any(_is_tls_failure(c) for c in causes):
        return False
    resolving = next((c for c in causes if isinstance(c, socket.gaierror)), None)
    return resolving is None or resolving.errno == socket.EAI_AGAIN


def is_refusal_status(status: int) -> bool:
    """Whether this status means the request was refused; a gateway timeout may hide a billed reply."""
    return (400 <= status < 500 and status not in _TIMEOUT_STATUSES) or status in _OVERLOADED_STATUSES


def is_refusal(verdict: ErrorVerdict) -> bool:
    """Whether an error means that no reply was generated."""
    return POLICIES[verdict.kind].is_free or (verdict.status is not None and is_refusal_status(verdict.status))


def was_never_sent(error: BaseException) -> bool:
    """Whether the connection failed before the request was sent."""
    causes = _causes(error)
    names = {type(c).__name__ for c in causes}
    is_refused = any(
        isinstance(c, ConnectionRefusedError | socket.gaierror | ssl.SSLCertVerificationError) for c in causes
    )
    return is_refused or bool(names & _UNSENT)


def _summary(label: EndpointLabel, verdict: ErrorVerdict) -> str:
    if verdict.kind == "auth":
        return "the key was refused" if verdict.status != 403 else "this key may not do that"
    if verdict.status == 404:
        return f"no model {label.model!r} here" if _MODEL_WORDS.search(verdict.message) else "nothing at this address"
    return _SUMMARIES.get(verdict.kind, "the call failed")


_SUMMARIES: dict[str, str] = {
    "prompt_too_long": "the prompt is too long",
    "output_cap": "max_tokens is too large",
    "rate_limit": "too many requests",
    "overloaded": "the service is overloaded",
    "quota": "no credit left",
    "bad_request": "the request was rejected",
    "transport": "the service is unavailable",
}


def _hint(label: EndpointLabel, verdict: ErrorVerdict) -> str:
    if verdict.kind == "auth":
        return f" Check the key for {label.provider!r}: `perdure doctor` shows where it is read from."
    if verdict.status == 404 and _MODEL_WORDS.search(verdict.message):
        return f" Check `model.name`; what {label.host} offers is listed at {label.models_url}."
    if verdict.status == 404:
        return f" Check `model.base_url`, now {label.base_url}."
    if verdict.kind != "quota" and verdict.retry_after_s is not None and verdict.retry_after_s > LONG_WAIT_S:
        return f" The service asks to wait {_duration(verdict.retry_after_s)}, which is too long to wait for here."
    if verdict.kind == "quota":
        return f" Top up the account at {label.provider!r}, or choose another model."
    return ""


def _duration(wait_s: float) -> str:
    for unit, unit_s in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if wait_s >= 2 * unit_s:
            more = "more than " if wait_s >= MAX_WAIT_S else ""
            return f"{more}{round(wait_s / unit_s)} {unit}s"
    return f"{round(wait_s)} seconds"


def _causes(error: BaseException) -> list[BaseException]:
    """Return the exception and its causes, innermost last."""
    chain: list[BaseException] = []
    pending: list[BaseException | None] = [error]
    while pending and len(chain) < 20:
        item = pending.pop()
        if item is None or item in chain:
            continue
        chain.append(item)
        pending += [item.__cause__, item.__context__]
        pending += getattr(item, "exceptions", ())
    return chain


def _is_tls_failure(error: BaseException) -> bool:
    """Whether this is a TLS failure; a handshake that waits for data is not."""
    return isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLWantReadError | ssl.SSLWantWriteError)


def _tls_advice(error: ssl.SSLError, check: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _NAME_MISMATCH:
            return f"the certificate is for another name; {check}."
        if error.verify_code in _UNKNOWN_AUTHORITY:
            return f"if you trust who signed it, name their certificate's file in {FILE}; else {check}."
        return f"{check} and the server's certificate."
    if error.reason in _NO_TLS:
        return f"the server there may speak plain http://; {check}."
    return f"{check} and the server's certificate."


def _network_line(label: EndpointLabel, error: BaseException, *, has_started: bool) -> str:
    causes = _causes(error)
    check = f"check `model.base_url` ({label.base_url})"
    for cause in causes:
        if isinstance(cause, socket.gaierror):
            return f"no such host, or no network: {check} and your connection."
        if isinstance(cause, ssl.SSLError) and _is_tls_failure(cause):
            return f"the secure connection failed ({label.quote(str(cause))}): {_tls_advice(cause, check)}"
        if isinstance(cause, ConnectionRefusedError) or getattr(cause, "errno", None) == errno.ECONNREFUSED:
            return f"nothing is listening there: start the server, or {check}."
        if getattr(cause, "errno", None) in (errno.ENETUNREACH, errno.EHOSTUNREACH):
            return "the network is unreachable: check your connection."
    names = {type(c).__name__ for c in causes}
    if "ConnectTimeout" in names:
        return f"no answer to the connection attempt: {check} and your connection."
    if names & {"UnsupportedProtocol", "InvalidURL", "LocalProtocolError"}:
        return f"{label.base_url!r} is not a valid URL ({label.quote(str(error))}): it looks like https://host/v1."
    if "ConnectError" in names and "all connection attempts failed" in str(error).lower():
        return f"nothing is listening there: start the server, or {check}."
    if "ConnectError" in names:
        return f"could not connect ({label.quote(str(error))}): {check} and your connection."
    when = "in the middle of the reply" if has_started else "before the reply"
    why = label.quote(str(error)) or type(error).__name__
    return f"the connection was lost {when} ({why}); the partial reply was discarded, try again."


# A bare 400 after a request of this size is treated as an overflow whose message a proxy dropped.
HUGE_REQUEST_TOKENS = 32_000

_BOILERPLATE = re.compile(
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
    wait = wait_from_headers(headers, now_s=now)
    wait = wait if wait is not None else error_text.wait_s
    wait = wait if wait is not None else wait_from_text(error_text.text)
    return ErrorVerdict(verdict.kind, verdict.message, status, retry_after_s=wait)


def _as_status(raw: object) -> int | None:
    """Parse a status, which some bodies and headers send as text; None for anything else."""
    text = str(raw).strip() if isinstance(raw, int | str) and not isinstance(raw, bool) else ""
    return int(text) if text.isascii() and text.lstrip("-").isdigit() and len(text) <= 6 else None


def overflow_verdict(reply: Reply, *, window: int | None = None) -> ErrorVerdict | None:
    """Return the verdict on a reply that ended because the window was full; None for any other end.

    Some services only truncate such a reply. An empty one counts as an overflow where the prompt is near the window:
    with a small prompt, max_tokens or hidden reasoning is the cause.
    """
    is_empty = not reply.message.text and not reply.message.tool_calls and not reply.usage.output_tokens
    is_cut_off = reply.finish == "length" and reply.usage.reported and is_empty
    is_near_window = window is not None and reply.usage.prompt_tokens * 2 >= window
    if reply.finish == "context_overflow" or (is_cut_off and is_near_window):
        return ErrorVerdict("prompt_too_long", "the model stopped because its context window was full")
    return None


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
