"""Dates written in a text: `3 June 2023`, `June 3rd`, `Jun 2023`, `in June`, `2023-06-03`.

A question with a date prefers the messages of that time. Dates count by themselves, whatever form
they are written in; their words are searched as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_NUMBERS = {name[:size]: n for n, name in enumerate(_MONTHS, 1) for size in (3, 4, len(name))}
_DAY = r"(?:0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?"
_NAME = "|".join(sorted(_NUMBERS, key=len, reverse=True))
_IN_WORDS = re.compile(
    # A month alone may be another word (may, march), so it counts only after a word such as `in`.
    r"(?P<time>\b(?:in|during|since|until|till|by|of|before|after|early|late|last|this)\s+)?"
    rf"(?:\b(?P<before>{_DAY})\s+(?:of\s+)?)?\b(?P<month>{_NAME})\b\.?"
    rf"(?:\s+(?P<after>{_DAY})\b(?!:))?(?:,?\s+(?P<year>(?:19|20)\d\d)\b)?",
    re.IGNORECASE,
)
_ISO = re.compile(
    r"(?<![\d-])(?P<year>(?:19|20)\d\d)-(?P<month>0[1-9]|1[0-2])(?:-(?P<day>0[1-9]|[12]\d|3[01]))?(?![\d-])"
)


class CalendarDate(NamedTuple):
    """A day or a month, in a certain year or in any."""

    month: int
    day: int | None = None
    year: int | None = None

    def includes(self, other: CalendarDate) -> bool:
        """Return whether `other` is that day, or in that month."""
        is_year = None in (self.year, other.year) or self.year == other.year
        return is_year and self.month == other.month and self.day in (None, other.day)


def find_dates(text: str) -> tuple[CalendarDate, ...]:
    """Return the dates that a text names."""
    return (*_in_words(text), *_iso(text))


def _in_words(text: str) -> Iterator[CalendarDate]:
    for match in _IN_WORDS.finditer(text):
        day = match["before"] or match["after"]
        if day or match["year"] or match["time"]:
            yield CalendarDate(
                _NUMBERS[match["month"].lower()],
                int(re.sub(r"\D", "", day)) if day else None,
                int(match["year"]) if match["year"] else None,
            )


def _iso(text: str) -> Iterator[CalendarDate]:
    for match in _ISO.finditer(text):
        yield CalendarDate(int(match["month"]), int(match["day"]) if match["day"] else None, int(match["year"]))


def date_of(time_ms: int) -> CalendarDate:
    """Return the day of a time, in UTC as surfaces show it."""
    day = datetime.fromtimestamp(time_ms / 1_000, UTC)
    return CalendarDate(day.month, day.day, day.year)
