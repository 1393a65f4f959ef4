"""Parse the retry delay a service states: in headers, body fields or text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

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
    fields = _lowered(headers)
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


def _lowered(headers: object) -> dict[str, str]:
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
