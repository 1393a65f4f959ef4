"""Who speaks: a person known by a token, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from perdure.core.visibility import Everyone, Visibility, only

# chat: talk and use commands · read: look at one's own conversations · shell: terminal and file tools ·
# admin: everybody's conversations, metrics and tokens.
Scope = Literal["chat", "read", "shell", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)


@dataclass(frozen=True, slots=True)
class Principal:
    """One user. `user_key` is what conversations, memory and outputs are kept under; "" is the owner of the machine."""

    user_key: str
    scopes: frozenset[Scope]

    def has_scope(self, scope: Scope) -> bool:
        return scope in self.scopes

    @property
    def visibility(self) -> Visibility:
        """Whose conversations every route, command and listing may show this person."""
        return Everyone() if self.has_scope("admin") else only(self.user_key)


class Authenticator(Protocol):
    """Tokens → persons."""

    def authenticate(self, token: str | None) -> Principal | None:
        """Who a bearer token stands for; None: whoever needs none (on loopback, while no token is set)."""
        ...
