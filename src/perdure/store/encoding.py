"""Encode messages for storage: sortable ids, canonical JSON bodies, and the hash chain that detects damage.

Every message has a key derived from the one before it, so a changed or missing message shows; sessions have a checksum.
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
import json
import re
import secrets
import threading
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Literal, Protocol, cast, get_args

from perdure.core.datastructures import array_values
from perdure.core.errors import CorruptStore, InvalidMessage
from perdure.core.messages import Kind, Message, Role, ToolState, canonical_json, clean
from perdure.core.ports import Clock
from perdure.store.db.database import Transaction, to_bytes, to_text, to_time_ms
from perdure.store.records import Damage, Problem, Session, Span

Prefix = Literal["c_", "s_", "t_", "o_", "sch_"]

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
# Below this size, decompression takes longer than reading what compression saves: most of a history is smaller.
_COMPRESS_FROM_BYTES = 1_024
_KEY_BYTES = 16
BODY_KEY_BYTES = 20
RESTORE = "restore it from a backup (`perdure sessions verify` lists what is damaged)"
FIRST_KEY = b""
# Stored bodies contain no escaped surrogates, but a damaged escape sequence may be one.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# Without the checks of json.loads for encodings and white space, which no body of ours has.
_scan_json: Callable[[str, int], tuple[Any, int]] = cast(Any, json.JSONDecoder()).scan_once
KINDS = frozenset(get_args(Kind))
TOOL_STATES = get_args(ToolState)


@dataclass(frozen=True, slots=True)
class Body:
    """A message body as it is stored (possibly compressed), and its canonical JSON."""

    stored: bytes
    encoding: int
    canonical: bytes


# Stored as their text, which says all of them.
_TEXT_FORMS = (datetime.date, datetime.time, datetime.timedelta, decimal.Decimal, uuid.UUID, PurePath)


def require_json(raw: Mapping[str, Any]) -> None:
    """Raise InvalidMessage for a dict with a value whose `repr` would be stored, such as a set or an object."""
    try:
        json.dumps(raw, sort_keys=True, default=_with_json_form)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessage(f"a message has texts, numbers, lists and dicts alone, as JSON has: {error}") from None


def _with_json_form(value: object) -> object:
    plain = array_values(value)
    if plain is value and not isinstance(value, _TEXT_FORMS):
        raise TypeError(f"an object of type {type(value).__name__} has no form in JSON")
    return str(value) if plain is value else plain


def encode(message: Message) -> Body:
    canonical = clean(canonical_json(message.to_dict())).encode()
    return Body(*pack(canonical), canonical)


def decode(stored: object, encoding: object, kind: object, tool_state: object = None) -> Message:
    """Decode a message body. `kind` and `tool_state` have columns, because the provider format has no field for them.

    Raises CorruptStore for a damaged body.
    """
    return decode_canonical(unpack(stored, encoding), kind, tool_state)


def decode_canonical(
    canonical: bytes, kind: object, tool_state: object = None, *, is_verified: bool = False
) -> Message:
    """Decode canonical JSON. A body that is verified to be as it was stored is not searched for damage.

    Raises CorruptStore.
    """
    try:
        message = Message.from_clean_dict(_parse_body(canonical, is_verified=is_verified))
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, InvalidMessage) as error:
        raise CorruptStore(f"a stored message is damaged and cannot be read ({error}); {RESTORE}") from error
    if message.kind != kind and kind in KINDS:
        message = replace(message, kind=cast(Kind, kind))
    return message if tool_state is None else replace(message, tool_state=to_tool_state(tool_state))


def _parse_body(canonical: bytes, *, is_verified: bool) -> Any:
    """Parse canonical JSON into values without lone surrogates. Raises ValueError."""
    text = canonical.decode()
    try:
        raw, end = _scan_json(text, 0)
    except StopIteration:
        end = -1
    if end != len(text):
        raw = json.loads(text)
    # Looking for a plain string first is much faster than the expression.
    if not is_verified and b"\\u" in canonical and _SURROGATE.search(canonical):
        raw = json.loads(clean(canonical_json(raw)))
    return raw


def to_tool_state(value: object) -> ToolState | None:
    """Return the state of a call as stored; None where it was not recorded or is damaged."""
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


# The redaction marker; older versions scrubbed bodies without recording the new hash.
_REDACTED = b"[REDACTED]"
# Kinds that a message of any role may have: `user` is the default of messages built by a caller.
_COMMON_KINDS = ("user", "handoff", "note")


class ChainReader:
    """Decode the rows of one conversation's log in order and verify each against its key."""

    def __init__(self, tx: Transaction, conversation_id: str, *, previous: bytes | None, first_seq: int) -> None:
        self._tx = tx
        self._conversation_id = conversation_id
        self._next_seq = first_seq
        # None after a missing message, whose key is unknown.
        self._previous = previous
        # The previous key as computed from its body, in case the stored key is what is damaged.
        self._computed = previous or FIRST_KEY
        self.damage: list[Damage] = []

    def message(
        self,
        seq: int,
        created_at: object,
        body: object,
        encoding: object,
        kind: object,
        key: object,
        chained: object,
        tool_state: object,
    ) -> Message:
        """Return the message of a row, or a placeholder for a damaged one."""
        stored_key = to_bytes(key)
        if seq != self._next_seq:
            self._previous = None
        self._next_seq = seq + 1
        try:
            canonical = unpack(body, encoding)
            is_verifiable = self._previous is not None if chained else len(stored_key) == BODY_KEY_BYTES
            is_expected = self._is_expected(canonical, stored_key, is_chained=bool(chained))
            message = decode_canonical(canonical, kind, tool_state, is_verified=is_expected and is_verifiable)
        except CorruptStore:
            if chained:
                self._previous = self._computed = stored_key
            self._report(seq, "unreadable")
            return damaged_message(seq, kind)
        if not is_expected:
            digest = scrubbed_key(self._tx, self._conversation_id, seq)
            if body_key(canonical) != digest and (digest is not None or _REDACTED not in canonical):
                self._report(seq, "changed")
                return message
        if tool_state is not None and (message.role != "tool" or message.tool_state is None):
            self._report(seq, "inconsistent", f"has the tool state {to_text(tool_state)!r}, which it cannot have")
        elif detail := _column_problem(message, created_at, body, encoding, kind, key, chained):
            self._report(seq, "inconsistent", detail)
        return message

    def _is_expected(self, canonical: bytes, key: bytes, *, is_chained: bool) -> bool:
        if not is_chained:
            return len(key) != BODY_KEY_BYTES or body_key(canonical) == key
        if self._previous is None:
            self._previous = self._computed = key
            return True
        expected = ingest_key(self._previous, canonical)
        is_expected = expected == key or (
            self._computed != self._previous and ingest_key(self._computed, canonical) == key
        )
        self._previous, self._computed = key, expected
        return is_expected

    def _report(self, seq: int, problem: Problem, detail: str = "") -> None:
        self.damage.append(Damage(self._conversation_id, seq, problem, row=f"m:{seq}", detail=detail))


def _column_problem(
    message: Message, created_at: object, body: object, encoding: object, kind: object, key: object, chained: object
) -> str:
    """Describe a column that cannot have been stored with this body; empty if there is none."""
    if kind not in _COMMON_KINDS and kind != ("system" if message.role == "developer" else message.role):
        return f"has the kind {to_text(kind)!r}, which a message with the role {message.role} cannot have"
    # Without loops over all columns: this is asked about every message of a history.
    if not (_is_binary(body) and _is_binary(key)):
        name, value = ("key", key) if _is_binary(body) else ("body", body)
        return f"has a {name} of the wrong type ({type(value).__name__})"
    if not (_is_flag(encoding) and _is_flag(chained)):
        name, value = ("chained", chained) if _is_flag(encoding) else ("encoding", encoding)
        return f"has the {name} {value!r} instead of 0 or 1"
    if not isinstance(created_at, int) or to_time_ms(created_at) != created_at:
        return f"has an impossible time ({created_at!r})"
    return ""


def _is_binary(value: object) -> bool:
    return type(value) is bytes or not (isinstance(value, str | int | float) or value is None)


def _is_flag(value: object) -> bool:
    return isinstance(value, int) and value in (0, 1)


def record_scrubbed(tx: Transaction, conversation_id: str, seq: int, canonical: bytes) -> None:
    """Record the hash of a redacted body, which no longer matches its key in the hash chain."""
    tx.run(
        "INSERT INTO state (scope, key, value) VALUES (?, ?, ?)"
        " ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value",
        (_scope(conversation_id), str(seq), json.dumps(body_key(canonical).hex())),
    )


def scrubbed_key(tx: Transaction, conversation_id: str, seq: int) -> bytes | None:
    row = tx.row("SELECT value FROM state WHERE scope = ? AND key = ?", (_scope(conversation_id), str(seq)))
    try:
        return bytes.fromhex(json.loads(row[0])) if row is not None else None
    except (ValueError, TypeError):
        return None


def copy_scrubbed(tx: Transaction, conversation_id: str, branch_id: str) -> None:
    """Copy the recorded hashes of redacted messages to a branch that gets its own copy of them."""
    tx.run(
        "INSERT INTO state (scope, key, value) SELECT CAST(? AS TEXT), key, value FROM state WHERE scope = ?"
        " ON CONFLICT (scope, key) DO NOTHING",
        (_scope(branch_id), _scope(conversation_id)),
    )


def record_checksum(tx: Transaction, session: Session, spans: Sequence[Span]) -> None:
    """Record the checksum of a session; to be repeated whenever its prompt changes."""
    tx.run(
        "INSERT INTO state (scope, key, value) VALUES (?, ?, ?)"
        " ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value",
        (_checksum_scope(session.conversation_id), session.id, json.dumps(_checksum(session, spans))),
    )


def has_valid_checksum(tx: Transaction, session: Session, spans: Sequence[Span]) -> bool:
    """Whether a session's row and spans match its checksum; True for old sessions, which have none."""
    scope = _checksum_scope(session.conversation_id)
    row = tx.row("SELECT value FROM state WHERE scope = ? AND key = ?", (scope, session.id))
    return row is None or to_text(row[0]) == json.dumps(_checksum(session, spans))


def _checksum(session: Session, spans: Sequence[Span]) -> str:
    route = session.route
    # Without the columns that change when a session ends.
    fields = (
        session.id, session.conversation_id, session.parent_id, session.began_by, route.provider, route.model,
        route.api_mode, session.system_prompt, session.first_seq, session.started_at_ms, [(s.lo, s.hi) for s in spans],
    )  # fmt: skip
    return body_key(canonical_json(fields).encode("utf-8", "replace")).hex()


def _checksum_scope(conversation_id: str) -> str:
    return f"checksum:{conversation_id}"


def _scope(conversation_id: str) -> str:
    # Deleting a conversation removes all scopes that end in its id.
    return f"scrubbed:{conversation_id}"
