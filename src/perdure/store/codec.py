"""A message's stored form: canonical JSON, compressed where that pays, and the key that makes replay add nothing."""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass, replace
from typing import cast

from perdure.core.errors import CorruptStore
from perdure.core.messages import Kind, Message, canonical_json, clean

PLAIN, ZLIB = 0, 1
# Below this, zlib's frame and the time it takes outweigh what it saves.
_COMPRESS_FROM_BYTES = 512
_KEY_BYTES = 16
FIRST_KEY = b""


@dataclass(frozen=True, slots=True)
class Body:
    """What stands in a message's row."""

    stored: bytes
    encoding: int
    canonical: bytes


def encode(message: Message) -> Body:
    canonical = clean(canonical_json(message.to_dict())).encode()
    return Body(*pack(canonical), canonical)


def decode(stored: bytes, encoding: int, kind: str) -> Message:
    """The message; its kind stands beside the body, for no provider's dict has a place for it."""
    message = Message.from_dict(json.loads(unpack(stored, encoding)))
    return message if message.kind == kind else replace(message, kind=cast(Kind, kind))


def pack(raw: bytes) -> tuple[bytes, int]:
    if len(raw) >= _COMPRESS_FROM_BYTES:
        packed = zlib.compress(raw, 6)
        if len(packed) < len(raw):
            return packed, ZLIB
    return raw, PLAIN


def unpack(stored: bytes, encoding: int) -> bytes:
    try:
        return zlib.decompress(stored) if encoding == ZLIB else bytes(stored)
    except zlib.error as error:
        raise CorruptStore(f"a stored message cannot be read ({error}); restore a backup") from error


def ingest_key(previous: bytes, canonical: bytes) -> bytes:
    """Names a message by all that was said up to it: two equal "yes" differ, the same history twice does not."""
    return hashlib.blake2b(previous + canonical, digest_size=_KEY_BYTES).digest()


def handoff_key(session_id: str, ordinal: int) -> bytes:
    """The key of a message that a compaction wrote: it belongs to no chain."""
    return hashlib.blake2b(f"handoff\0{session_id}\0{ordinal}".encode(), digest_size=_KEY_BYTES).digest()
