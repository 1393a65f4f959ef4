"""Convert stored values to the types of their columns.

SQLite does not enforce column types, so a flipped bit on disk can turn a blob into text or a number into anything. Each
function returns a neutral value for a damaged one, so that the other rows stay readable; `Verifier` reports the row.
"""

from __future__ import annotations

# The beginning of year 9999: datetime can represent it in every time zone.
LAST_TIME_MS = 253_370_764_800_000
# Larger than any log; below the largest integer of a database, so that arithmetic on a seq cannot overflow.
LAST_SEQ = 2**53


def to_int(value: object, default: int = 0) -> int:
    return value if isinstance(value, int) else default


def to_optional_int(value: object) -> int | None:
    return value if isinstance(value, int) else None


def to_seq(value: object) -> int:
    """Return the position of a message; 0 for an impossible one."""
    return value if isinstance(value, int) and 0 <= value <= LAST_SEQ else 0


def to_time_ms(value: object) -> int:
    """Return a timestamp; 0 for an impossible one."""
    return value if isinstance(value, int) and 0 <= value <= LAST_TIME_MS else 0


def to_float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def to_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    return "" if value is None else str(value)


def to_optional_text(value: object) -> str | None:
    return None if value is None else to_text(value)


def to_bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return b"" if value is None else str(value).encode("utf-8", "replace")
