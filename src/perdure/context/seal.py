"""How a handoff in a list of plain dicts is known to be one of ours.

In a conversation of the store a message is a handoff because its record says so. A plain dict has no such record, and
anybody can write a text that looks like a handoff: a page, a pasted file, a model. So the second line of a handoff for
plain dicts is a seal, a keyed checksum of the rest. A text without a valid seal is background that nobody vouches for.
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
# What a seal adds to a handoff.
SEAL_CHARS = len(_MARK) + _HEX_CHARS + 1


def seal(text: str, key: bytes) -> str:
    """The handoff with its seal as the second line."""
    first, _, rest = text.partition("\n")
    return f"{first}\n{_MARK}{_checksum(first, rest, key)}\n{rest}"


def is_sealed(text: str, key: bytes) -> bool:
    """Whether a text is a handoff that was sealed with this key and not changed since, line ends aside."""
    if not text.startswith(HANDOFF_FIRST_LINE):
        return False
    first, _, rest = text.replace("\r\n", "\n").partition("\n")
    line, _, rest = rest.partition("\n")
    checksum = line.strip().removeprefix(_MARK)
    return hmac.compare_digest(checksum.encode("utf-8", "replace"), _checksum(first, rest, key).encode())


def default_key() -> bytes:
    """The key of this installation; where its folder cannot be written, one that lasts as long as the process."""
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
