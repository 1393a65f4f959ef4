"""Authenticate handoffs in lists of plain dicts.

Stored messages have a kind; a plain dict has none, and any web page, pasted file or model can produce a text that looks
like a handoff. So the second line of a handoff for plain dicts is a seal, an HMAC of the rest. A text without a valid
seal is untrusted background.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from functools import cache

from perdure.config.env import home_dir, installation_key
from perdure.context.handoff import END_MARKER
from perdure.core.errors import ConfigError
from perdure.core.messages import HANDOFF_FIRST_LINE

_MARK = "Seal: "
_HEX_CHARS = 24
# Length that a seal adds to a handoff.
SEAL_CHARS = len(_MARK) + _HEX_CHARS + 1
# Hex digits come to up to one token for each 1.5 of them.
SEAL_TOKENS = 20


def seal(text: str, key: bytes) -> str:
    """Insert the seal as the second line of a handoff."""
    first, _, rest = text.partition("\n")
    return f"{first}\n{_MARK}{_checksum(first, rest, key)}\n{rest}"


def is_sealed(text: str, key: bytes) -> bool:
    """Whether a text is a handoff with a valid seal for this key, ignoring line endings."""
    if not text.startswith(HANDOFF_FIRST_LINE):
        return False
    first, _, rest = text.replace("\r\n", "\n").partition("\n")
    line, _, rest = rest.partition("\n")
    checksum = line.strip().removeprefix(_MARK)
    return hmac.compare_digest(checksum.encode("utf-8", "replace"), _checksum(first, rest, key).encode())


def default_key() -> bytes:
    """The key of this installation; a per-process key where its folder is not writable."""
    try:
        return installation_key(home_dir())
    except ConfigError:
        return _process_key()


@cache
def _process_key() -> bytes:
    return secrets.token_bytes(32)


def _checksum(first: str, rest: str, key: bytes) -> str:
    body = rest.partition(f"\n{END_MARKER}")[0]
    lines = "\n".join(line.rstrip() for line in (first, *body.splitlines()))
    return hmac.new(key, lines.encode("utf-8", "replace"), hashlib.sha256).hexdigest()[:_HEX_CHARS]
