"""Principals: who sends a request, what it may do (scopes), and whose conversations it may see (visibility)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from perdure.core.visibility import AnyUser, Everyone, Visibility

# chat: send messages and use commands · read: read one's own conversations · shell: terminal and file tools · admin:
# all users' conversations, metrics and tokens.
Scope = Literal["chat", "read", "shell", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated user of a request, with the scopes of their token."""

    # Whose conversations, memory and outputs it uses.
    user: AnyUser
    scopes: frozenset[Scope]

    def has_scope(self, scope: Scope) -> bool:
        return scope in self.scopes

    @property
    def visibility(self) -> Visibility:
        """The conversations this principal may see: those of every user with scope `admin`, else its own user's."""
        return Everyone() if self.has_scope("admin") else self.user


class Authenticator(Protocol):
    """Maps bearer tokens to principals."""

    def authenticate(self, token: str | None) -> Principal | None:
        """Return the token's principal; for None, the principal of requests without a token, if allowed."""
        ...
