"""Visibility: whose data a conversation is, and whose data a caller may see, as types instead of strings.

Owner       the owner of the machine; the database stores an empty user key
User(key)   one user with a key of their own
Everyone    no restriction: an administrator, or direct access to the database file

Data belongs to an `AnyUser`. `gateway.auth.principal` decides which visibility a request gets; store queries apply it.
`stored_key` and `user_from_key` convert at the edges: database columns, memory files and plug-ins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of the machine, and the visibility of their conversations alone."""

    # The value of `user_key` that rows must have.
    stored_key: ClassVar[str] = ""

    def covers(self, other: Visibility) -> bool:
        """Whether everything visible with `other` is visible with this one, too."""
        return other == self


@dataclass(frozen=True, slots=True)
class User:
    """A user with a key of their own, and the visibility of their conversations alone."""

    key: str

    def __post_init__(self) -> None:
        # The databases store no NUL: such a key would become another user's, or the owner's.
        if not self.key or "\0" in self.key:
            raise ValueError("a user has a key, without NUL; the owner of the machine is Owner()")

    @property
    def stored_key(self) -> str:
        """The value of the `user_key` column in this user's rows."""
        return self.key

    def covers(self, other: Visibility) -> bool:
        """Whether everything visible with `other` is visible with this one, too."""
        return other == self


@dataclass(frozen=True, slots=True)
class Everyone:
    """The visibility of all conversations, of every user: for administrators and direct access to the database."""

    # Rows may have any `user_key`.
    stored_key: ClassVar[None] = None

    def covers(self, other: Visibility) -> bool:
        """Whether everything visible with `other` is visible with this one, too: always."""
        return True


AnyUser = Owner | User
Visibility = Owner | User | Everyone
OWNER = Owner()
EVERYONE = Everyone()


def user_from_key(user_key: str) -> AnyUser:
    """Return the user whose data is stored under a key; an empty one is the owner's."""
    # A damaged row is nobody's rather than unreadable.
    return User(user_key.replace("\0", "\ufffd")) if user_key else OWNER
