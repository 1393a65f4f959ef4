"""Describe the result of a search in words, the same on every surface: an empty answer never reads as absence."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.core.ports import SearchHit, SearchReport

_MAX_WORDS = 8


def describe_report(report: SearchReport) -> str:
    """Say what was searched and how well the hits match, in one or two sentences."""
    searched = f"Searched {_count(report.texts, 'message')}{_progress(report)}"
    if not report.words:
        return "The query has no words to search for."
    if not report.hits:
        words = "the word" if len(report.words) == 1 else f"any of the {len(report.words)} words"
        return (
            f"{searched}: none has {words}. It may have been said in other words: try a synonym, a name,"
            " or a prefix such as deplo*."
        )
    if report.is_relaxed:
        return f"{searched}: none has the quoted phrase. These have some of its words."
    counts = ", ".join(f"{w.word} ({'' if w.is_exact else 'about '}{w.texts:,})" for w in report.words[:_MAX_WORDS])
    if not report.is_partial:
        return f"{searched}: {counts}."
    missing = f" Nowhere: {_words(report.missing)}." if report.missing else ""
    return f"{searched}: {counts}. None has all {len(report.words)} words; the nearest come first.{missing}"


def full_address(hit: SearchHit) -> str:
    """Return an address that opens the hit from any conversation of its user."""
    return f"{hit.conversation_id}/{hit.address}"


def split_address(address: str) -> tuple[str | None, str]:
    """Split `c_…/m:57` into the conversation, None if it names none, and the address within it."""
    owner, separator, rest = address.strip().partition("/")
    return (owner, rest) if separator and owner.startswith(("c_", "s_")) else (None, address.strip())


def _progress(report: SearchReport) -> str:
    if report.indexed_share >= 1:
        return ""
    return f" (the index is being rebuilt: {report.indexed_share:.0%} is searchable so far)"


def _words(words: Sequence[str]) -> str:
    listed = ", ".join(words[:_MAX_WORDS])
    return f"{listed} …" if len(words) > _MAX_WORDS else listed


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
