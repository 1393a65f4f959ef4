"""The simulator's exact token, four bytes of UTF-8 counted by segment; and the prompt caches of two services."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
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
    """Return the one token a message's role costs."""
    return _ROLE_TAGS.get(role, b"???:")


def image(source: object) -> bytes:
    """Encode an image: a fixed number of tokens, distinct for each image."""
    digest = hashlib.sha256(canonical_json(source).encode()).digest()
    return (digest * (IMAGE_TOKENS * TOKEN_BYTES // len(digest)))[: IMAGE_TOKENS * TOKEN_BYTES]


def schema(tool: object) -> bytes:
    return segment(canonical_json(tool))


def count_text(text: str) -> int:
    """Return the tokens of one text."""
    return len(segment(text)) // TOKEN_BYTES


def count_call(call_id: str, name: str, arguments: str) -> int:
    """Return the tokens of one tool call."""
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


PREFIX_MINIMUM = 1024
PREFIX_STEP = 128
PREFIX_TTL_S = 600.0
LOOK_BACK_BLOCKS = 20
MARK_TTL_S: dict[Ttl, float] = {"5m": 300.0, "1h": 3600.0}


@dataclass(frozen=True, slots=True)
class CacheUse:
    """Tokens one request read from the cache, and the entries it writes once its response has begun."""

    read_tokens: int = 0
    write_tokens: int = 0
    write_1h_tokens: int = 0
    entries: tuple[tuple[bytes, float], ...] = ()


class _Entries:
    """Cache entries by prefix hash, each with its TTL and expiry."""

    def __init__(self) -> None:
        self._lives: dict[bytes, tuple[float, float]] = {}

    def has(self, key: bytes, now_s: float) -> bool:
        return key in self._lives and self._lives[key][1] > now_s

    def ttl_s(self, key: bytes) -> float:
        return self._lives[key][0]

    def keep(self, entries: Sequence[tuple[bytes, float]], now_s: float) -> None:
        for key, ttl_s in entries:
            # A live entry keeps its longer TTL.
            longest = max(ttl_s, self.ttl_s(key)) if self.has(key, now_s) else ttl_s
            self._lives[key] = (longest, now_s + longest)


class PrefixCache:
    """Automatic prefix caching: every full step of a prompt is stored under the hash of its prefix."""

    def __init__(
        self,
        now_s: Callable[[], float],
        *,
        step: int = PREFIX_STEP,
        minimum: int = PREFIX_MINIMUM,
        ttl_s: float = PREFIX_TTL_S,
    ) -> None:
        self._now_s = now_s
        self._step = step
        self._minimum = minimum
        self._ttl_s = ttl_s
        self._entries = _Entries()
        # The last prompt and the hashes of its steps: the next one mostly begins with it.
        self._last: tuple[bytes, list[bytes]] = (b"", [])

    def look_up(self, blocks: Sequence[PromptBlock]) -> CacheUse:
        """Look up a prompt; return what it reads and writes."""
        now_s = self._now_s()
        prompt = b"".join(b.data for b in blocks)
        if len(prompt) // TOKEN_BYTES < self._minimum:
            return CacheUse()
        keys = self._keys(prompt)
        hits = next((i for i, key in enumerate(keys) if not self._entries.has(key, now_s)), len(keys))
        read = hits * self._step if hits * self._step >= self._minimum else 0
        written = len(keys) * self._step - read
        return CacheUse(read, written, entries=tuple((key, self._ttl_s) for key in keys))

    def _keys(self, prompt: bytes) -> list[bytes]:
        """Hash each step together with the hash of the steps before it."""
        last, keys = self._last
        step = self._step * TOKEN_BYTES
        shared = _shared_steps(last, prompt, step, len(keys))
        keys = keys[:shared]
        key = keys[-1] if keys else b""
        for end in range((shared + 1) * step, len(prompt) // TOKEN_BYTES * TOKEN_BYTES + 1, step):
            key = hashlib.sha256(key + prompt[end - step : end]).digest()
            keys.append(key)
        self._last = (prompt, keys)
        return list(keys)

    def keep(self, use: CacheUse) -> None:
        """Store the entries of a request; called when its response begins."""
        self._entries.keep(use.entries, self._now_s())


def _shared_steps(one: bytes, other: bytes, step: int, most: int) -> int:
    """Return how many whole steps two prompts begin with alike."""
    low, high = 0, min(most, len(other) // step)
    while low < high:
        middle = (low + high + 1) // 2
        if one[: middle * step] == other[: middle * step]:
            low = middle
        else:
            high = middle - 1
    return low


class MarkCache:
    """Explicit caching at cache_control blocks."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._entries = _Entries()

    def look_up(self, blocks: Sequence[PromptBlock], *, minimum: int, messages_seed: bytes) -> CacheUse:
        """Look up a prompt. `messages_seed` is what else the entries of messages depend on."""
        now_s = self._now_s()
        keys, ends = _prefixes(blocks, messages_seed)
        marks = [i for i, b in enumerate(blocks) if b.mark is not None and ends[i] >= minimum]
        hit = self._longest_hit(keys, marks, now_s)
        read = ends[hit] if hit is not None else 0
        written = max((ends[i] for i in marks), default=0)
        hour = max((ends[i] for i in marks if blocks[i].mark == "1h"), default=0)
        entries = [(keys[i], MARK_TTL_S[blocks[i].mark or "5m"]) for i in marks]
        if hit is not None:
            # Reading an entry renews it for its TTL.
            entries.append((keys[hit], self._entries.ttl_s(keys[hit])))
        return CacheUse(read, max(0, written - read), max(0, hour - read), tuple(entries))

    def keep(self, use: CacheUse) -> None:
        """Store the entries of a request; called when its response begins."""
        self._entries.keep(use.entries, self._now_s())

    def _longest_hit(self, keys: Sequence[bytes], marks: Sequence[int], now_s: float) -> int | None:
        for mark in reversed(marks):
            for i in range(mark, max(-1, mark - LOOK_BACK_BLOCKS), -1):
                if self._entries.has(keys[i], now_s):
                    return i
        return None


def _prefixes(blocks: Sequence[PromptBlock], messages_seed: bytes) -> tuple[list[bytes], list[int]]:
    """Return for each block the hash and token count of the prompt up to and including it."""
    chain, tokens = hashlib.sha256(), 0
    keys: list[bytes] = []
    ends: list[int] = []
    is_seeded = False
    for block in blocks:
        if block.level == "messages" and not is_seeded:
            chain.update(messages_seed)
            is_seeded = True
        chain.update(len(block.data).to_bytes(8, "big") + block.level.encode() + block.data)
        tokens += block.tokens
        keys.append(chain.copy().digest())
        ends.append(tokens)
    return keys, ends
