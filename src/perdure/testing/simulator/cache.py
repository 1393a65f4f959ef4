"""What a service need not read again: two caches, each by its service's own rules.

`PrefixCache` (OpenAI): automatic, from 1,024 tokens, in steps of 128, exact prefix. `MarkCache` (Anthropic): entries
are written where marks stand, found by walking back at most 20 blocks from a mark, live five minutes or an hour from
their last use, and are readable once the response that wrote them has begun.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perdure.testing.simulator.tokens import TOKEN_BYTES, PromptBlock, Ttl

PREFIX_MINIMUM = 1024
PREFIX_STEP = 128
PREFIX_TTL_S = 600.0
LOOK_BACK_BLOCKS = 20
MARK_TTL_S: dict[Ttl, float] = {"5m": 300.0, "1h": 3600.0}


@dataclass(frozen=True, slots=True)
class CacheUse:
    """What one request read, and what it will leave behind once its response has begun."""

    read_tokens: int = 0
    write_tokens: int = 0
    write_1h_tokens: int = 0
    entries: tuple[tuple[bytes, float], ...] = ()


class _Entries:
    """Prefixes by their hash, each with how long it lives and until when."""

    def __init__(self) -> None:
        self._lives: dict[bytes, tuple[float, float]] = {}

    def has(self, key: bytes, now_s: float) -> bool:
        return key in self._lives and self._lives[key][1] > now_s

    def ttl_s(self, key: bytes) -> float:
        return self._lives[key][0]

    def keep(self, entries: Sequence[tuple[bytes, float]], now_s: float) -> None:
        for key, ttl_s in entries:
            # An entry alive under a longer promise keeps it.
            longest = max(ttl_s, self.ttl_s(key)) if self.has(key, now_s) else ttl_s
            self._lives[key] = (longest, now_s + longest)


class PrefixCache:
    """Automatic prefix caching: every full step of a prompt is kept under the hash of all that precedes it."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._entries = _Entries()

    def look_up(self, blocks: Sequence[PromptBlock]) -> CacheUse:
        """What of this prompt is known, and what will be."""
        now_s = self._now_s()
        prompt = b"".join(b.data for b in blocks)
        tokens = len(prompt) // TOKEN_BYTES
        if tokens < PREFIX_MINIMUM:
            return CacheUse()
        chain, step, read = hashlib.sha256(), PREFIX_STEP * TOKEN_BYTES, 0
        keys: list[bytes] = []
        for end in range(step, tokens * TOKEN_BYTES + 1, step):
            chain.update(prompt[end - step : end])
            keys.append(chain.copy().digest())
            is_unbroken = read == end // TOKEN_BYTES - PREFIX_STEP
            if is_unbroken and self._entries.has(keys[-1], now_s):
                read = end // TOKEN_BYTES
        read = read if read >= PREFIX_MINIMUM else 0
        written = len(keys) * PREFIX_STEP - read
        return CacheUse(read, written, entries=tuple((key, PREFIX_TTL_S) for key in keys))

    def keep(self, use: CacheUse) -> None:
        """Makes what a request wrote readable: called when its response begins."""
        self._entries.keep(use.entries, self._now_s())


class MarkCache:
    """Explicit caching at marks."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._entries = _Entries()

    def look_up(self, blocks: Sequence[PromptBlock], *, minimum: int, messages_seed: bytes) -> CacheUse:
        """What is read and written. `messages_seed` is what, besides the blocks, the messages' entries depend on."""
        now_s = self._now_s()
        keys, ends = _prefixes(blocks, messages_seed)
        marks = [i for i, b in enumerate(blocks) if b.mark is not None and ends[i] >= minimum]
        hit = self._longest_hit(keys, marks, now_s)
        read = ends[hit] if hit is not None else 0
        written = max((ends[i] for i in marks), default=0)
        hour = max((ends[i] for i in marks if blocks[i].mark == "1h"), default=0)
        entries = [(keys[i], MARK_TTL_S[blocks[i].mark or "5m"]) for i in marks]
        if hit is not None:
            # Reading an entry renews it for as long as it was written for.
            entries.append((keys[hit], self._entries.ttl_s(keys[hit])))
        return CacheUse(read, max(0, written - read), max(0, hour - read), tuple(entries))

    def keep(self, use: CacheUse) -> None:
        """Makes what a request wrote readable: called when its response begins."""
        self._entries.keep(use.entries, self._now_s())

    def _longest_hit(self, keys: Sequence[bytes], marks: Sequence[int], now_s: float) -> int | None:
        for mark in reversed(marks):
            for i in range(mark, max(-1, mark - LOOK_BACK_BLOCKS), -1):
                if self._entries.has(keys[i], now_s):
                    return i
        return None


def _prefixes(blocks: Sequence[PromptBlock], messages_seed: bytes) -> tuple[list[bytes], list[int]]:
    """For each block the hash and the tokens of everything up to and including it."""
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
