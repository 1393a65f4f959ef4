"""Pieces of recorded sessions by the kind of text they are, for measuring and fitting the token estimator."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.data import sessions

FILES = (
    "aider_days",
    "beam_100k",
    "deerflow",
    "entire_cli",
    "gjc_ko",
    "memorybank_cn",
    "pi_mono",
    "realpersonachat_ja",
    "tau_airline_gpt4o",
    "trail_swe",
)
KINDS = ("English", "code", "JSON", "Chinese", "Japanese", "Korean")
PIECE_CHARS = 400


@dataclass(frozen=True, slots=True)
class Piece:
    """At least 400 characters of one kind, from one file."""

    source: str
    kind: str
    text: str


def pieces() -> Iterator[Piece]:
    """Every message of that length as it is; shorter ones of one kind joined, within their session."""
    for source in FILES:
        for session in sessions(source):
            short: dict[str, list[str]] = defaultdict(list)
            for role, text in session_texts(session["messages"]):
                kind = kind_of(role, text)
                if len(text) >= PIECE_CHARS:
                    yield Piece(source, kind, text)
                    continue
                short[kind].append(text)
                if sum(map(len, short[kind])) >= PIECE_CHARS:
                    yield Piece(source, kind, "\n".join(short.pop(kind)))


def session_texts(messages: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Role and text of everything a session says, tool-call arguments as role "call"."""
    for message in messages:
        content = message.get("content")
        if isinstance(content, str) and content:
            yield message["role"], content
        elif isinstance(content, list):
            yield from ((message["role"], p["text"]) for p in content if isinstance(p, dict) and p.get("text"))
        for call in message.get("tool_calls") or ():
            yield "call", call["function"]["arguments"]


def kind_of(role: str, text: str) -> str:
    """By script where a fifth of it is one; else JSON by its brackets, code by its marks or by coming from a tool."""
    fifth = len(text) / 5
    if sum("\uac00" <= c <= "\ud7a3" for c in text) > fifth:
        return "Korean"
    if sum("\u3040" <= c <= "\u30ff" for c in text) > fifth:
        return "Japanese"
    if sum("\u4e00" <= c <= "\u9fff" for c in text) > fifth:
        return "Chinese"
    bare = text.strip()
    if bare[:1] in ("{", "[") and bare[-1:] in ("}", "]") and text.count('"') > len(text) / 60:
        return "JSON"
    is_prose = sum(c.isalpha() or c == " " for c in text) >= 0.86 * len(text)
    return "English" if is_prose and role not in ("tool", "call") else "code"
