"""What a program was found to run in turn."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Words:
    """A program and its arguments."""

    words: tuple[str, ...]
    stdin: str | None = None
    is_elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Script:
    """Shell text."""

    text: str
    arguments: tuple[str, ...] = ()
    is_elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Code:
    """Text in another language."""

    language: str
    text: str


Inner = Words | Script | Code
