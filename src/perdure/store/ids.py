"""Sortable ids and the canonical encoding of message bodies."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, cast, get_args

from perdure.core.errors import CorruptStore, InvalidMessage
from perdure.core.messages import Kind, Message, Role, ToolState, canonical_json, clean
from perdure.core.ports import Clock
from perdure.store.db.database import to_bytes, to_text

Prefix = Literal["c_", "s_", "t_", "o_"]

# Digits and letters in ASCII order, without the easily confused i, l, o and u.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_TIME_CHARS = 9
_RANDOM_BITS = 50
_RANDOM_CHARS = _RANDOM_BITS // 5


class IdSource(Protocol):
    """Source of ids; tests pass a deterministic one."""

    def new(self, prefix: Prefix) -> str:
        """Return a unique id; ids sort in the order of creation."""
        ...


class TimeIds:
    """Generate 19-character ids: a millisecond timestamp, then random bits that increase within a millisecond."""

    def __init__(self, clock: Clock, random_bits: Callable[[int], int] = secrets.randbits) -> None:
        self._clock = clock
        self._random_bits = random_bits
        self._lock = threading.Lock()
        self._last = (0, 0)

    def new(self, prefix: Prefix) -> str:
        with self._lock:
            now, (last_ms, last_random) = self._clock.now_ms(), self._last
            # Ids must stay sorted when the clock is set back.
            ms = max(now, last_ms)
            # One bit is left free, so that incrementing within a millisecond cannot overflow.
            random = last_random + 1 if ms == last_ms else self._random_bits(_RANDOM_BITS - 1)
            self._last = (ms, random)
        return prefix + _base32(ms, _TIME_CHARS) + _base32(random, _RANDOM_CHARS)


def _base32(value: int, width: int) -> str:
    return "".join(_ALPHABET[(value >> (5 * digit)) & 31] for digit in reversed(range(width)))


PLAIN, ZLIB = 0, 1
# Below this size, compression costs more than it saves.
_COMPRESS_FROM_BYTES = 512
_KEY_BYTES = 16
BODY_KEY_BYTES = 20
RESTORE = "restore it from a backup (`perdure sessions verify` lists what is damaged)"
FIRST_KEY = b""
# Stored bodies contain no escaped surrogates, but a damaged escape sequence may be one.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
KINDS = frozenset(get_args(Kind))
TOOL_STATES = get_args(ToolState)


@dataclass(frozen=True, slots=True)
class Body:
    """A message body as stored, and its canonical JSON."""

    stored: bytes
    encoding: int
    canonical: bytes


def encode(message: Message) -> Body:
    canonical = clean(canonical_json(message.to_dict())).encode()
    return Body(*pack(canonical), canonical)


def decode(stored: object, encoding: object, kind: object, tool_state: object = None) -> Message:
    """Decode a message body. `kind` and `tool_state` have columns, because the provider format has no field for them.

    Raises CorruptStore for a damaged body.
    """
    return decode_canonical(unpack(stored, encoding), kind, tool_state)


def decode_canonical(canonical: bytes, kind: object, tool_state: object = None) -> Message:
    try:
        raw = json.loads(canonical)
        if _SURROGATE.search(canonical):
            raw = json.loads(clean(canonical_json(raw)))
        message = Message.from_dict(raw)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, InvalidMessage) as error:
        raise CorruptStore(f"a stored message is damaged and cannot be read ({error}); {RESTORE}") from error
    if message.kind != kind and kind in KINDS:
        message = replace(message, kind=cast(Kind, kind))
    return message if tool_state is None else replace(message, tool_state=to_tool_state(tool_state))


def to_tool_state(value: object) -> ToolState | None:
    """The state of a call as stored; None where it was not recorded or is damaged."""
    return cast(ToolState, value) if value in TOOL_STATES else None


def damaged_message(seq: int, kind: object) -> Message:
    """Return the placeholder for a message that cannot be read."""
    kind = kind if kind in KINDS else "user"
    role: Role = kind if kind in ("assistant", "tool", "system") else "user"
    text = f"[Message m:{seq} is damaged in the database and cannot be read.]"
    return Message(role, text, kind=cast(Kind, kind))


def decode_or_placeholder(
    stored: object, encoding: object, kind: object, *, seq: int, tool_state: object = None
) -> Message:
    """Decode a message body, or return a placeholder for a damaged one."""
    try:
        return decode(stored, encoding, kind, tool_state)
    except CorruptStore:
        return damaged_message(seq, kind)


def pack(raw: bytes) -> tuple[bytes, int]:
    if len(raw) >= _COMPRESS_FROM_BYTES:
        packed = zlib.compress(raw, 6)
        if len(packed) < len(raw):
            return packed, ZLIB
    return raw, PLAIN


def unpack(stored: object, encoding: object) -> bytes:
    """Decompress a body. Raises CorruptStore for a damaged one."""
    try:
        return zlib.decompress(to_bytes(stored)) if encoding == ZLIB else to_bytes(stored)
    except zlib.error as error:
        raise CorruptStore(f"a stored message is damaged and cannot be read ({error}); {RESTORE}") from error


def unpack_or_empty(stored: object, encoding: object) -> bytes:
    """Decompress a body for scanning; a damaged one is empty."""
    try:
        return unpack(stored, encoding)
    except CorruptStore:
        return b""


def load_json(text: object, what: str) -> Any:
    """Parse stored JSON. Raises CorruptStore, naming `what`, for damaged text."""
    try:
        return json.loads(to_text(text))
    except (ValueError, RecursionError) as error:
        raise CorruptStore(f"{what} is damaged in the database and cannot be read ({error}); {RESTORE}") from error


def load_payload(text: object) -> Mapping[str, Any]:
    """Parse an event payload; a damaged one is empty, so that the other events stay readable."""
    try:
        payload = json.loads(to_text(text))
    except (ValueError, RecursionError):
        return {}
    return payload if isinstance(payload, dict) else {}


def ingest_key(previous: bytes, canonical: bytes) -> bytes:
    """Hash a message together with the key before it.

    Equal messages at different positions get different keys; replaying the same history gives the same keys.
    """
    return hashlib.blake2b(previous + canonical, digest_size=_KEY_BYTES).digest()


def body_key(canonical: bytes) -> bytes:
    """Hash a body alone: the key of a handoff, which is not part of the hash chain.

    It is longer than chained keys. Handoff keys of older versions have the chained length and do not verify the body.
    """
    return hashlib.blake2b(canonical, digest_size=BODY_KEY_BYTES).digest()
