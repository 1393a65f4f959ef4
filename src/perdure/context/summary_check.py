"""Whether what a summariser sent back is a summary at all (F4).

What stands under headings of ours is believed; what reads like an error page, a refusal, the prompt or the transcript
is not, and neither are headings with nothing under them. A rejected answer costs a second call or the digest; an
accepted one that says nothing costs the conversation its memory.
"""

from __future__ import annotations

import json
import re

from perdure.context.sections import has_own_headings, read_sections
from perdure.models.tokens import estimate_text

_REFUSAL = re.compile(
    r"\b(?:i(?:'m| am)? (?:sorry|afraid|unable|not able)|i (?:can(?:no|')?t|cannot|won't|will not|must decline)"
    r"|as an ai\b|unable to (?:assist|help|comply|summari[sz]e))"
    r"|抱歉|无法|無法|不能提供|申し訳|できません|죄송|할 수 없",
    re.IGNORECASE,
)
_MARKUP = re.compile(r"(?:```\w*\s*)?(?:<\?xml\b|<!doctype\b|<(?:html|head|body|title|h1|center)\b)", re.IGNORECASE)
_ERROR_KEYS = frozenset(("error", "errors", "detail", "message", "fault", "exception"))
_LEAST_CHARS = 40
_REFUSAL_CHARS = 700
_LONG_LINE = 40
# Of a prompt's lines the headings are what a summary must repeat; its sentences are not.
_PROMPT_LINE = 24
_MOST_PROMPT_LINES = 0.5
# The section that code writes anew in every handoff: a summary that fills no other one says nothing.
_WRITTEN_BY_CODE = "Active Task"


def problem_with(text: str, source: str, *, source_tokens: int, instructions: str = "") -> str:
    """Why this is no summary of `source`, in a few words; "" where it is one.

    `instructions` are what the prompt says around the transcript.
    """
    body = text.strip()
    if len(body) < min(_LEAST_CHARS, 1 + source_tokens):
        return "the summary is empty"
    if _MARKUP.match(body):
        return "the summary is an error page"
    if _is_json_error(body):
        return "the summary is an error message"
    has_headings = has_own_headings(body)
    if not has_headings and len(body) < _REFUSAL_CHARS and _REFUSAL.search(body[:300]):
        return "the summariser refused"
    if _repeats_prompt(body, instructions):
        return "the summary only repeats the prompt"
    if _is_echo(body, source):
        return "the summary only repeats the conversation"
    if _is_babble(body):
        return "the summary repeats itself"
    if len(body) > source_tokens and estimate_text(body) > source_tokens:
        return "the summary is longer than what it stands for"
    if not has_headings:
        return "the summary has none of the sections asked for"
    if not read_sections(body).keys() - {_WRITTEN_BY_CODE}:
        return "every section of the summary is empty"
    return ""


def _is_json_error(body: str) -> bool:
    """Whether an answer begins with a JSON object that reports an error, whatever follows it."""
    start = body.removeprefix("```json").removeprefix("```").lstrip()
    if not start.startswith("{"):
        return False
    try:
        value, _ = json.JSONDecoder().raw_decode(start)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and not _ERROR_KEYS.isdisjoint(value)


def _repeats_prompt(body: str, instructions: str) -> bool:
    """Whether most of its sentences are the prompt's own."""
    if body.startswith("You are writing hand-over notes") or "</transcript>" in body:
        return True
    lines = [line for line in map(str.strip, body.splitlines()) if len(line) >= _PROMPT_LINE]
    if not instructions or not lines:
        return False
    return sum(line in instructions for line in lines) > _MOST_PROMPT_LINES * len(lines)


def _is_echo(body: str, source: str) -> bool:
    """Whether most of its long lines stand word for word in the source."""
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
