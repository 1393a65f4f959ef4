"""Bearer tokens: shown once when created, stored as a hash, valid in every process on the database.

A token is 256 random bits, so its SHA-256 cannot be reversed and needs no salt. A row is written when the token is
created and when it is revoked; the time of last use is stored separately, so that the two never race.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from perdure.core.errors import ConfigError, NotFound, StoreError
from perdure.core.ports import Clock, KeyValue
from perdure.core.visibility import AnyUser, Owner, User, user_from_key
from perdure.gateway.auth.principal import SCOPES, Principal, Scope

PREFIX = "pdr_"
# How long another process may use a cached token list.
MAX_AGE_S = 2.0
# Minimum interval between writes of the last use: the web UI sends many requests per second.
_USE_INTERVAL_MS = 60_000
_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
_ID_CHARS = 12


class KeyValueStore(KeyValue, Protocol):
    """One scope of the store's key-value state (port)."""

    def items(self) -> dict[str, Any]: ...


class StateStore(Protocol):
    """The methods of the store that tokens use (port)."""

    def state(self, scope: str) -> KeyValueStore: ...


@dataclass(frozen=True, slots=True)
class Token:
    """The stored data of a token, without its secret."""

    digest: str
    user: AnyUser
    scopes: frozenset[Scope]
    created_at_ms: int
    expires_at_ms: int | None = None
    revoked_at_ms: int | None = None
    last_used_at_ms: int | None = None

    @property
    def id(self) -> str:
        return self.digest[:_ID_CHARS]

    @property
    def principal(self) -> Principal:
        return Principal(self.user, self.scopes)

    def status(self, now_ms: int) -> Literal["valid", "expired", "revoked"]:
        if self.revoked_at_ms is not None:
            return "revoked"
        is_over = self.expires_at_ms is not None and self.expires_at_ms <= now_ms
        return "expired" if is_over else "valid"


@dataclass(frozen=True, slots=True)
class NewToken:
    """A new token with its secret, which is available only now."""

    text: str
    token: Token


class AccessTokens:
    """Creates, lists and revokes the access tokens of one database."""

    def __init__(self, store: StateStore, clock: Clock) -> None:
        self._rows = store.state("gateway:tokens")
        self._uses = store.state("gateway:token uses")
        self._clock = clock

    def add(self, user: AnyUser, scopes: Iterable[Scope], *, expires_in_ms: int | None = None) -> NewToken:
        """Create a token for a user. Raises ConfigError."""
        granted = frozenset(scopes)
        if isinstance(user, User) and not _USER.fullmatch(user.key):
            raise ConfigError(
                f"{user.key!r} is not a user name: letters, digits and . _ @ + - are allowed, 64 characters at most"
            )
        if not granted or not granted <= set(SCOPES):
            raise ConfigError(f"a token needs at least one scope of: {', '.join(SCOPES)}")
        now, text = self._clock.now_ms(), new_secret()
        token = Token(
            digest_of(text),
            user,
            granted,
            created_at_ms=now,
            expires_at_ms=None if expires_in_ms is None else now + expires_in_ms,
        )
        self._rows.set(token.digest, _row(token))
        return NewToken(text, token)

    def all(self) -> list[Token]:
        """Return every token ever created, oldest first."""
        uses = self._uses.items()
        tokens = [_token(digest, row, uses.get(digest)) for digest, row in self._rows.items().items()]
        return sorted(tokens, key=lambda t: (t.created_at_ms, t.digest))

    def revoke(self, id_or_user: str) -> list[Token]:
        """Revoke one token by its id, or all of a user. Raises NotFound if there is none."""
        now = self._clock.now_ms()
        valid = [t for t in self.all() if t.status(now) != "revoked"]
        by_id = [t for t in valid if len(id_or_user) >= _ID_CHARS and t.digest.startswith(id_or_user)]
        to_revoke = by_id or [t for t in valid if t.user.stored_key == id_or_user]
        if not to_revoke:
            raise NotFound(f"no valid token {id_or_user!r}; `perdure gateway token list` shows all tokens")
        for token in to_revoke:
            self._rows.set(token.digest, {**_row(token), "revoked_at": now})
        return to_revoke

    def record_use(self, token: Token) -> None:
        """Record the time of last use."""
        self._uses.set(token.digest, self._clock.now_ms())


class TokenAuthenticator:
    """Authenticates by the tokens of a database; before the first token is created, local requests are the owner's.

    The token list is cached for `MAX_AGE_S`. `authenticate` reads the database when the cache has expired: check
    `is_fresh` first where that must not block.
    """

    def __init__(self, tokens: AccessTokens, clock: Clock, *, is_open: bool) -> None:
        self._tokens = tokens
        self._clock = clock
        # Only set when the gateway is reachable from this machine alone.
        self._is_open = is_open
        self._lock = threading.Lock()
        self._by_digest: Mapping[str, Token] = {}
        self._read_at_s: float | None = None
        self._pending_uses: dict[str, int] = {}

    @property
    def is_fresh(self) -> bool:
        """Whether the next `authenticate` uses the cache."""
        return self._read_at_s is not None and self._clock.monotonic_s() - self._read_at_s < MAX_AGE_S

    @property
    def has_tokens(self) -> bool:
        """Whether a token was ever created; revoked ones count, or revoking the last would disable authentication."""
        return bool(self._current())

    @property
    def users(self) -> list[str]:
        """The users with a valid token, sorted."""
        now = self._clock.now_ms()
        return sorted({t.user.stored_key for t in self._current().values() if t.status(now) == "valid"})

    def authenticate(self, token: str | None) -> Principal | None:
        """Return the token's principal; None if it is unknown, revoked or expired."""
        tokens = self._current()
        if self._is_open and not tokens:
            # OpenAI clients have to send some key; while no token exists, any is accepted.
            return LOCAL_OWNER
        if token is None:
            return None
        digest = digest_of(token)
        match = tokens.get(digest)
        # A lookup by hash leaks nothing about the token; compare in constant time regardless.
        if match is None or not hmac.compare_digest(match.digest, digest):
            return None
        if match.status(self._clock.now_ms()) != "valid":
            return None
        self._record_use(match)
        return match.principal

    def _current(self) -> Mapping[str, Token]:
        with self._lock:
            if not self.is_fresh:
                began_s = self._clock.monotonic_s()
                self._by_digest = {t.digest: t for t in self._tokens.all()}
                self._flush_uses()
                self._read_at_s = began_s
            return self._by_digest

    def _record_use(self, token: Token) -> None:
        """Buffer the use; it is written with the next read of the database."""
        now = self._clock.now_ms()
        if now - (token.last_used_at_ms or 0) >= _USE_INTERVAL_MS:
            self._pending_uses[token.digest] = now

    def _flush_uses(self) -> None:
        uses, self._pending_uses = self._pending_uses, {}
        now = self._clock.now_ms()
        for digest in uses:
            token = self._by_digest.get(digest)
            if token is not None and now - (token.last_used_at_ms or 0) >= _USE_INTERVAL_MS:
                with suppress(StoreError):  # best effort: a failed write must not lock out a user
                    self._tokens.record_use(token)


_PROCESS_SECRET_BYTES = 16


class ProcessTokenAuthenticator:
    """Authenticator of `perdure serve`: one token, valid as long as this process."""

    is_fresh = True

    def __init__(self) -> None:
        # Shorter than a token that is stored: it ends with the process, and its address fits sixty columns.
        self.token = PREFIX + secrets.token_urlsafe(_PROCESS_SECRET_BYTES)
        self._digest = digest_of(self.token)

    def authenticate(self, token: str | None) -> Principal | None:
        if token is None or not hmac.compare_digest(digest_of(token), self._digest):
            return None
        return Principal(Owner(), frozenset(SCOPES))


# Local requests while no token exists. Without shell: any web page can try to reach loopback.
LOCAL_OWNER = Principal(Owner(), frozenset({"chat", "read", "admin"}))


def new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def digest_of(token: str) -> str:
    # A header may contain any character; encoding an invalid token must not raise.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _row(token: Token) -> dict[str, Any]:
    return {
        "user": token.user.stored_key,
        "scopes": sorted(token.scopes),
        "created_at": token.created_at_ms,
        "expires_at": token.expires_at_ms,
        "revoked_at": token.revoked_at_ms,
    }


def _token(digest: str, row: Mapping[str, Any], last_used: int | None) -> Token:
    return Token(
        digest,
        user=user_from_key(str(row["user"])),
        # Ignore the scopes of a newer version instead of rejecting the token.
        scopes=frozenset(s for s in SCOPES if s in row["scopes"]),
        created_at_ms=int(row["created_at"]),
        expires_at_ms=row.get("expires_at"),
        revoked_at_ms=row.get("revoked_at"),
        last_used_at_ms=last_used,
    )
