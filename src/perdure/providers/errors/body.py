"""Parse error bodies of any form, JSON of any shape or depth, HTML, or truncated text; and the retry delay they state.

Classification happens elsewhere. The result is one bounded line of text to match patterns against, the error codes, the
one sentence to show to the user, and the delay from headers, body fields or text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

# Longer delays are capped here; none of them is waited for.
MAX_WAIT_S = 31 * 86_400.0
# A number of seconds this large may be a Unix timestamp.
_EPOCH_S = 10**9

_ONE = r"\d+(?:\.\d+)? ?(?:ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)(?![a-z])"
_DURATION = rf"(?:{_ONE}[ ,]{{0,2}}(?:and )?){{1,5}}"
_IN_WORDS = re.compile(
    r"(?:try again|retry(?:ing)?|wait|available(?: again)?|resets?)(?: [a-z]+){0,3}? "
    rf"(?:(?P<wait>{_DURATION})|(?:in|after|for) (?P<bare>\d+(?:\.\d+)?)(?![\d.]* ?[a-z]))",
    re.IGNORECASE | re.ASCII,
)
_NUMBER = re.compile(r"\d+(?:\.\d*)?(?:e[+-]?\d+)?|inf(?:inity)?", re.IGNORECASE | re.ASCII)
_MOST_DIGITS = 400
_UNIT = re.compile(r"(\d+(?:\.\d+)?) ?(ms|milli|s|m(?!s|illi)|h|d)", re.IGNORECASE | re.ASCII)
_SECONDS = {"ms": 0.001, "milli": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def wait_from_headers(headers: object, *, now_s: float) -> float | None:
    """Parse `retry-after-ms`, `retry-after` (seconds or a date), then the reset of an exhausted limit."""
    fields = _lower_names(headers)
    if (ms := _number(fields.get("retry-after-ms"))) is not None:
        return _sane(ms / 1000)
    if "retry-after" in fields:
        wait = _after(fields["retry-after"], _date(fields.get("date", "")) or now_s)
        if wait is not None:
            return wait
    return _reset(fields, now_s)


def wait_from_text(text: str) -> float | None:
    """Parse "Please try again in 6m0.5s" or "retry after 20 seconds"."""
    match = _IN_WORDS.search(text)
    if match is None:
        return None
    return parse_duration(match["wait"]) if match["wait"] else _sane(float(match["bare"]))


def parse_duration(duration: str) -> float | None:
    """Parse a duration in seconds: "1.5s", "6m0s", "120ms", "2 hours", "20"."""
    if (bare := _number(duration)) is not None:
        return _sane(bare)
    units = _UNIT.findall(duration)
    return _sane(sum(float(n) * _SECONDS[u.lower()] for n, u in units)) if units else None


def _after(value: str, now_s: float) -> float | None:
    wait = parse_duration(value)
    if (number := _number(value)) is not None:
        return _sane(number - now_s) if number > max(_EPOCH_S, now_s) else wait
    moment = _date(value)
    return _sane(max(0.0, moment - now_s)) if moment is not None else wait


def _reset(fields: Mapping[str, str], now_s: float) -> float | None:
    """Return the reset of the exhausted limit; the nearest reset where none is marked as exhausted."""
    waits: list[tuple[bool, float]] = []
    for name, value in fields.items():
        if "ratelimit" not in name or "reset" not in name:
            continue
        remaining = _number(fields.get(name.replace("reset", "remaining"), ""))
        wait = _until(value, now_s)
        if wait is not None:
            waits.append((remaining == 0, wait))
    spent = [w for is_spent, w in waits if is_spent]
    return max(spent) if spent else min((w for _, w in waits), default=None)


def _until(value: str, now_s: float) -> float | None:
    """Parse a reset given as a duration, as seconds, as an epoch in seconds or milliseconds, or as a date."""
    number = _number(value)
    if number is not None and number > 10**11:
        return _sane(max(0.0, number / 1000 - now_s))
    if number is not None and number > _EPOCH_S:
        return _sane(max(0.0, number - now_s))
    moment = _date(value) if number is None else None
    return _sane(max(0.0, moment - now_s)) if moment is not None else parse_duration(value)


def _date(value: str) -> float | None:
    is_iso = bool(re.match(r"\d{4}-\d\d-\d\dT", value))
    if not value or (value[:1].isdigit() and not is_iso):
        return None
    try:
        moment = datetime.fromisoformat(value.replace("Z", "+00:00")) if is_iso else parsedate_to_datetime(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _number(value: str | None) -> float | None:
    """Parse a number of any size; one too large for a float is infinite."""
    text = (value or "").strip()
    return float(text) if len(text) <= _MOST_DIGITS and _NUMBER.fullmatch(text) else None


def _sane(wait_s: float) -> float | None:
    return min(wait_s, MAX_WAIT_S) if wait_s >= 0 else None


def _lower_names(headers: object) -> dict[str, str]:
    """Return headers by lower-case name, from a mapping or pairs, bytes or text."""
    pairs: Iterable[object] = ()
    if isinstance(headers, Mapping):
        pairs = list(headers.items())
    elif isinstance(headers, list | tuple):
        pairs = headers
    fields: dict[str, str] = {}
    for pair in pairs:
        if isinstance(pair, tuple | list) and len(pair) == 2:
            name, value = (p.decode("latin-1") if isinstance(p, bytes) else str(p) for p in pair)
            fields.setdefault(name.strip().lower(), value.strip())
    return fields


# Bounding the text bounds the time of every pattern; the message is in the first lines.
_MAX_CHARS = 6_000
_MAX_LEAVES = 120
_MAX_DEPTH = 24

# Keys under which servers echo the request: a conversation may itself contain "prompt is too long".
_ECHO_KEYS = frozenset({"input", "messages", "request", "body", "prompt", "tools", "content", "url", "help"})
_ID_KEYS = frozenset({"request_id", "id", "user_id", "trace_id", "requestid", "session_id", "@type", "logid"})
_CODE_KEYS = frozenset(
    {"code", "type", "status", "reason", "__type", "error_code", "param", "error_type", "stop_reason", "finish_reason"}
    | {"quotaid", "quotametric", "object", "errorcode", "status_code", "object_type", "title"}
)
_STATUS_KEYS = ("code", "status", "status_code", "http_status", "statusCode")
_MESSAGE_KEYS = ("message", "msg", "error", "detail", "error_message", "errorMessage", "Message", "status_msg", "raw")

_TAGS = re.compile(r"<(script|style)\b.{0,20000}?</\1\s*>|<!--.{0,5000}?-->|<[^<>]{0,2000}>", re.IGNORECASE | re.DOTALL)
_TITLE = re.compile(r"<title[^<>]{0,200}>([^<]{1,300})", re.IGNORECASE)
_URL = re.compile(r"https?(?://|%3A)\S+", re.IGNORECASE)
_THOUSANDS = re.compile(r"(?<!\[\d)(?<=\d)[,_’](?=\d{3}(?!\d))")
# No count has so many digits, and a pattern could backtrack over each of them.
_LONG_NUMBER = re.compile(r"\d{13,}")
_ESCAPES = {'\\"': '"', "\\n": " ", "\\t": " ", "\\u003c": "<", "\\u003e": ">", "\\u0026": "&", "\\u0027": "'"}


@dataclass(frozen=True, slots=True)
class ErrorText:
    """A parsed error body: one line to match, error codes, a sentence for the user, and the retry delay."""

    # All text on one line, codes after a bar, URLs and digit separators removed.
    text: str
    # The message for the user.
    message: str
    # The codes alone, and the text without them.
    codes: str = ""
    words: str = ""
    # The HTTP status stated in the body.
    status: int | None = None
    # Limits some servers state as fields.
    figures: Mapping[str, int] | None = None
    # Retry delay some servers state as a field, in seconds.
    wait_s: float | None = None
    is_html: bool = False


def parse_error_body(body: object) -> ErrorText:
    """Parse an error body. Never raises."""
    value = _decode(body)
    if isinstance(value, str):
        return _parse_text(value)
    leaves = list(_leaves(value))
    texts = [v for k, v in leaves if k not in _CODE_KEYS]
    codes = [v for k, v in leaves if k in _CODE_KEYS]
    message = _message(value) or next(iter(texts), "") or " ".join(codes)
    words, coded = _flatten(" ".join(texts)), _flatten(" ".join(codes))
    figures, wait_s = _figures(value), _wait(value)
    return ErrorText(f"{words} | {coded}", _truncate(message), coded, words, _status(value), figures, wait_s)


def _decode(body: object) -> Any:
    """Decode the body as JSON, else as text."""
    if isinstance(body, BaseException):
        return f"{type(body).__name__}: {body}"
    if isinstance(body, bytes | bytearray | memoryview):
        body = bytes(body[: 1 << 20]).decode("utf-8", "replace")
    if isinstance(body, str):
        return _parse_json(body)
    if body is None:
        return ""
    return body if isinstance(body, Mapping | list | tuple) else str(body)


def _parse_json(text: str) -> Any:
    text = text.strip().lstrip("\ufeff")
    if text.startswith(("data:", "event:")):
        data = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
        text = next((d for d in data if d.startswith("{")), " ".join(data))
    if text[:1] in "{[" and len(text) < 1 << 20:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def strip_tags(text: str) -> str:
    """Replace HTML tags, comments, scripts and styles with a space each."""
    return _TAGS.sub(" ", text) if "<" in text else text


def _parse_text(text: str) -> ErrorText:
    is_html = bool(re.match(r"\s*<(?:!doctype|html|head|body|\?xml|center|h1)", text[:200], re.IGNORECASE))
    title = _TITLE.search(text[:20_000]) if is_html else None
    plain = strip_tags(text[:40_000]) if "<" in text else text
    for escaped, char in _ESCAPES.items():
        plain = plain.replace(escaped, char)
    message = title[1] if title else plain
    if text[:1] in "{[":  # truncated JSON: extract its message
        match = re.search(r'"(?:message|msg|detail|error)"\s*:\s*"([^"]{3,2000})', plain)
        message = match[1] if match else plain
    words = _flatten(plain)
    return ErrorText(words, _truncate(message), words=words, is_html=is_html)


def _leaves(value: Any) -> Iterator[tuple[str, str]]:
    """Yield every string and integer with its key, echoes of the request excluded."""
    pending: list[tuple[str, Any, int]] = [("", value, 0)]
    count = 0
    while pending and count < _MAX_LEAVES:
        key, item, depth = pending.pop(0)
        if isinstance(item, str):
            inner = _parse_json(item) if item.lstrip()[:1] in ("{", "[") and depth < _MAX_DEPTH else item
            if isinstance(inner, str):
                count += 1
                yield key, item[:_MAX_CHARS]
                continue
            item = inner
        if isinstance(item, int) and not isinstance(item, bool) and key in _CODE_KEYS:
            count += 1
            yield key, str(item)[:20]
        elif isinstance(item, Mapping) and depth < _MAX_DEPTH:
            entries = [(str(k), str(k).lower(), v) for k, v in list(item.items())[:60]]
            pending += [(low, v, depth + 1) for _, low, v in entries if low not in _ECHO_KEYS and low not in _ID_KEYS]
        elif key == "loc" and isinstance(item, list | tuple):  # a validator's path to what it refuses
            yield key, ".".join(map(str, item[:8]))[:200]
        elif isinstance(item, list | tuple) and depth < _MAX_DEPTH:
            pending += [(key, v, depth + 1) for v in item[:30]]
        elif isinstance(item, Mapping | list | tuple):  # wrapped once too often: its text will do
            count += 1
            yield key, str(item)[:_MAX_CHARS]


def _message(value: Any, depth: int = 0) -> str:
    """Return the innermost message: routers wrap the service's error in their own."""
    if isinstance(value, str):
        inner = _parse_json(value) if value.lstrip()[:1] in ("{", "[") else value
        return value if isinstance(inner, str) else _message(inner, depth + 1)
    if depth > _MAX_DEPTH:
        return ""
    if isinstance(value, list | tuple):
        return next((m for v in value[:5] if (m := _message(v, depth + 1))), "")
    if not isinstance(value, Mapping):
        return ""
    metadata = value.get("metadata")
    if isinstance(metadata, Mapping) and (raw := _message(metadata.get("raw"), depth + 1)):
        return raw
    for key in ("error", "response", "base_resp", *_MESSAGE_KEYS):
        if value.get(key) and (inner_message := _message(value[key], depth + 1)):
            return inner_message
    return ""


def _status(value: Any, depth: int = 0) -> int | None:
    if isinstance(value, list | tuple) and value:
        value = value[0]
    if not isinstance(value, Mapping) or depth > 3:
        return None
    for key in _STATUS_KEYS:
        code = value.get(key)
        if isinstance(code, str) and code.isascii() and code.isdigit() and len(code) == 3:
            code = int(code)
        if isinstance(code, int) and not isinstance(code, bool) and 400 <= code <= 599:
            return code
    return _status(value.get("error"), depth + 1) or _status(value.get("response"), depth + 1)


def _figures(value: Any) -> dict[str, int]:
    """Return llama.cpp's numeric fields: n_ctx, n_prompt_tokens."""
    for item in (value, value.get("error") if isinstance(value, Mapping) else None):
        if isinstance(item, Mapping):
            names = {"window": item.get("n_ctx"), "prompt": item.get("n_prompt_tokens")}
            figures = {k: v for k, v in names.items() if isinstance(v, int) and not isinstance(v, bool) and v > 0}
            if "window" in figures:
                return figures
    return {}


def _wait(value: Any, depth: int = 0) -> float | None:
    """Parse the retry delay fields: `retry_after`, `resets_in_seconds`, `estimated_time`, Google's `retryDelay`."""
    if isinstance(value, list | tuple):
        return next((w for v in value[:10] if (w := _wait(v, depth + 1)) is not None), None)
    if not isinstance(value, Mapping) or depth > 6:
        return None
    for key in ("retry_after", "retryAfter", "retry_after_seconds", "resets_in_seconds", "estimated_time"):
        wait = value.get(key)
        if isinstance(wait, int | float) and not isinstance(wait, bool) and wait >= 0:
            return min(float(wait), MAX_WAIT_S)
    delay = value.get("retryDelay")
    if isinstance(delay, str) and re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?s", delay):
        return min(float(delay[:-1]), MAX_WAIT_S)
    nested = (value.get(k) for k in ("error", "details", "metadata", "parameters", "response"))
    return next((w for v in nested if (w := _wait(v, depth + 1)) is not None), None)


def _flatten(text: str) -> str:
    """Flatten text to one bounded line, including its end, where wrappers put the cause."""
    if len(text) > _MAX_CHARS:
        text = f"{text[: _MAX_CHARS * 2 // 3]} … {text[-_MAX_CHARS // 3 :]}"
    return _LONG_NUMBER.sub("#", _THOUSANDS.sub("", " ".join(_URL.sub(" ", text).split())))


def _truncate(text: str) -> str:
    plain = " ".join(strip_tags(text[:4_000]).split())
    return plain if len(plain) <= 600 else f"{plain[:599]}…"
