"""Whether what a summariser sent back is a summary at all (F4)."""

from __future__ import annotations

import re

from perdure.context.handoff import SECTIONS
from perdure.models.tokens import estimate_text

_REFUSAL = re.compile(
    r"\b(?:i(?:'m| am)? (?:sorry|afraid|unable|not able)|i (?:can(?:no|')?t|cannot|won't|will not|must decline)"
    r"|as an ai\b|unable to (?:assist|help|comply|summari[sz]e))"
    r"|抱歉|无法|無法|不能提供|申し訳|できません|죄송|할 수 없",
    re.IGNORECASE,
)
_LEAST_CHARS = 40
_REFUSAL_CHARS = 700
_LONG_LINE = 40


def problem_with(text: str, source: str, *, source_tokens: int) -> str:
    """Why this is no summary of `source`, in a few words; "" where it is one."""
    body = text.strip()
    if len(body) < min(_LEAST_CHARS, 1 + source_tokens):
        return "the summary is empty"
    is_structured = any(f"## {s}" in body for s in SECTIONS)
    if not is_structured and len(body) < _REFUSAL_CHARS and _REFUSAL.search(body[:300]):
        return "the summariser refused"
    if _is_echo(body, source):
        return "the summary only repeats the conversation"
    if _is_babble(body):
        return "the summary repeats itself"
    if len(body) > source_tokens and estimate_text(body) > source_tokens:
        return "the summary is longer than what it stands for"
    return ""


def _is_echo(body: str, source: str) -> bool:
    """Most of its long lines stand word for word in the source, or it starts the way the prompt does."""
    if body.startswith("You are writing hand-over notes") or "</transcript>" in body:
        return True
    lines = [line for line in map(str.strip, body.splitlines()) if len(line) > _LONG_LINE]
    if not source or not lines:
        return False
    # Judged on a sample: an echo is one from end to end.
    sample = lines[:: max(1, len(lines) // 40)]
    return sum(line in source for line in sample) > 0.8 * len(sample)


def _is_babble(body: str) -> bool:
    lines = [line for line in map(str.strip, body.splitlines()) if line]
    if len(lines) >= 30:
        return len(set(lines)) < len(lines) / 5
    words = body.split()
    return len(words) >= 200 and len(set(words)) < len(words) / 40
