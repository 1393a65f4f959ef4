"""The simulator's exact token: four bytes of UTF-8, counted by segment.

A prompt is a row of blocks. Each block is made of segments (a text, a tool's name, its arguments, …), and each segment
is padded to a whole number of tokens, so that it starts on a fresh one:

- a text of n bytes of UTF-8 is ceil(n / 4) tokens; an empty one is none;
- a message costs one token more, for its role; so does a block of system prompt;
- a tool call is its id, its name and its arguments, three segments; a tool result is its id and its content;
- a tool's schema is its JSON with sorted keys and no spaces;
- an image is 256 tokens, whatever its size; two images share a prefix only if they are the same.

Because a block is bytes, "the same prefix" means the same bytes, which is what the cache looks for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from perdure.core.messages import canonical_json

TOKEN_BYTES = 4
IMAGE_TOKENS = 256

Level = Literal["tools", "system", "messages"]
Ttl = Literal["5m", "1h"]

_ROLE_TAGS = {"user": b"usr:", "assistant": b"ast:", "tool": b"tol:", "system": b"sys:", "developer": b"sys:"}


@dataclass(frozen=True, slots=True)
class PromptBlock:
    """A part of a prompt that may carry cache_control."""

    data: bytes
    level: Level = "messages"
    mark: Ttl | None = None
    has_image: bool = False

    @property
    def tokens(self) -> int:
        return len(self.data) // TOKEN_BYTES


def segment(text: str) -> bytes:
    """Encode text, padded to whole tokens."""
    raw = text.encode("utf-8", "replace")
    return raw + b"\0" * (-len(raw) % TOKEN_BYTES)


def role_tag(role: str) -> bytes:
    """The one token a message's role costs."""
    return _ROLE_TAGS.get(role, b"???:")


def image(source: object) -> bytes:
    """Encode an image: a fixed number of tokens, distinct for each image."""
    digest = hashlib.sha256(canonical_json(source).encode()).digest()
    return (digest * (IMAGE_TOKENS * TOKEN_BYTES // len(digest)))[: IMAGE_TOKENS * TOKEN_BYTES]


def schema(tool: object) -> bytes:
    return segment(canonical_json(tool))


def count_text(text: str) -> int:
    """The tokens of one text."""
    return len(segment(text)) // TOKEN_BYTES


def count_call(call_id: str, name: str, arguments: str) -> int:
    """The tokens of one tool call."""
    return count_text(call_id) + count_text(name) + count_text(arguments)


def count_blocks(blocks: Iterable[PromptBlock]) -> int:
    return sum(b.tokens for b in blocks)


def cut_text(text: str, tokens: int) -> str:
    """Return the longest prefix of a text within a token limit."""
    return text.encode("utf-8", "replace")[: max(0, tokens) * TOKEN_BYTES].decode("utf-8", "ignore")


def cache_ttl(part: Any) -> Ttl | None:
    """Return the cache TTL of a part; None without cache_control."""
    control = part.get("cache_control") if isinstance(part, dict) else None
    if not isinstance(control, dict):
        return None
    return "1h" if control.get("ttl") == "1h" else "5m"
