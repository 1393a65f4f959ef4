"""Whose conversations a caller may see, as a type: no string ever means "all users".

Owner       the owner of the machine; stored under an empty user key
User(key)   one user with a key of their own
Everyone    no restriction: an administrator, or direct access to the database file

`gateway.auth.principal` decides which of them a request gets; store queries apply it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Owner:
    """Visibility limited to the conversations of the machine's owner."""

    # The value of `user_key` that rows must have.
    stored_key: ClassVar[str] = ""

    def includes(self, user_key: str) -> bool:
        return user_key == ""

    def covers(self, other: Visibility) -> bool:
        """Whether this visibility includes all of `other`."""
        return other == self


@dataclass(frozen=True, slots=True)
class User:
    """Visibility limited to one user's conversations."""

    key: str

    def __post_init__(self) -> None:
        if not self.key:
            raise ValueError("a user has a key; the owner of the machine is Owner()")

    @property
    def stored_key(self) -> str:
        """The value of `user_key` that rows must have."""
        return self.key

    def includes(self, user_key: str) -> bool:
        return user_key == self.key

    def covers(self, other: Visibility) -> bool:
        """Whether this visibility includes all of `other`."""
        return other == self


@dataclass(frozen=True, slots=True)
class Everyone:
    """All conversations, of every user."""

    # Rows may have any `user_key`.
    stored_key: ClassVar[None] = None

    def includes(self, user_key: str) -> bool:
        return True

    def covers(self, other: Visibility) -> bool:
        """Whether this visibility includes all of `other`."""
        return True


Visibility = Owner | User | Everyone
EVERYONE = Everyone()


def only(user_key: str) -> Owner | User:
    """Return the visibility of one person, by the key their conversations are stored under."""
    return User(user_key) if user_key else Owner()
