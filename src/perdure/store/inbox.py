"""Durable queue of accepted messages with owner leases and idempotency keys.

A message is on disk before it is acknowledged. One process owns it and renews its lease; when the lease expires,
another process may claim it. Messages with the same queue key run oldest first; one that names its conversation joins
the queue in which another message of that conversation is pending, so that one conversation never waits in two queues.
The result is stored with the message, so that a request repeated with the same idempotency key returns it instead of
running again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from perdure.core.errors import NotFound, StoreError
from perdure.core.visibility import AnyUser, user_from_key
from perdure.store.db.database import (
    Row,
    Transaction,
    Value,
    insert_numbered,
    text,
    to_seq,
    to_text,
    to_time_ms,
)
from perdure.store.queries import StoreContext

MessageState = Literal["waiting", "running", "done"]
_COLUMNS = (
    "number, id, lane, platform, user_key, chat, scopes, key, content, conversation, begin_seq, state, result, owner,"
    " expires_at, wants_stop, done_at, options, named_conversation"
)
_CONVERSATION_PREFIX = "conversation:"


class InboxFull(StoreError):
    """Raised when too many messages are pending in a queue; retry after one is answered."""


class ConversationBusy(StoreError):
    """Raised when a message may only come next at a position, and the conversation is busy or has moved on.

    Continue in a branch, or retry later.
    """


@dataclass(frozen=True, slots=True)
class ConversationPosition:
    """A conversation and the seq of its last message at some time."""

    conversation_id: str
    seq: int


@dataclass(frozen=True, slots=True)
class InboundMessage:
    """A message to be queued; `key` is the sender's idempotency key."""

    id: str
    queue_key: str
    platform: str
    user: AnyUser
    chat: str
    # None: the turn continues with what `options` brings.
    content: str | Mapping[str, Any] | None
    scopes: tuple[str, ...] = ()
    key: str | None = None
    # What the sender asks of the turn, as JSON values.
    options: Mapping[str, Any] = field(default_factory=dict)
    # The conversation it is addressed to, if it names one.
    conversation_id: str | None = None


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A queued message with its owner, progress and result."""

    number: int
    inbound: InboundMessage
    state: MessageState
    owner: str
    expires_at_ms: int
    # The conversation that it names, or in which it was started.
    conversation_id: str | None = None
    # The conversation's last message before the turn; everything after it belongs to this turn.
    begin_seq: int | None = None
    result: Mapping[str, Any] | None = None
    wants_stop: bool = False
    done_at_ms: int | None = None

    @property
    def id(self) -> str:
        return self.inbound.id


@dataclass(frozen=True, slots=True)
class EnqueueResult:
    """The stored message; `is_first` is True if nothing is pending before it in its queue."""

    queued: QueuedMessage
    is_new: bool
    is_first: bool = False


class MessageInbox:
    """Enqueue, claim and complete messages; only the owner of a message can change it."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context

    def enqueue(
        self,
        inbound: InboundMessage,
        *,
        owner: str,
        ttl_ms: int,
        max_pending: int | None = None,
        only_at: ConversationPosition | None = None,
    ) -> EnqueueResult:
        """Store a message, or return the one stored under the same key. Raises InboxFull.

        The stored message has the queue key it was given, or that of the queue it joined. With `only_at`, raises
        ConversationBusy unless the message will be the next one after that position.
        """

        def work(tx: Transaction) -> EnqueueResult:
            # The lock comes first, so that a concurrent request with the same key is visible below.
            last_seq = self._context.lock_conversation(tx, only_at.conversation_id)[0].last_seq if only_at else 0
            existing = self._find_by_key(tx, inbound)
            if existing is not None:
                return EnqueueResult(existing, is_new=False)
            if only_at is not None and (
                last_seq != only_at.seq or self._is_pending(tx, inbound.queue_key, only_at.conversation_id)
            ):
                raise ConversationBusy("another message of this conversation is being answered; send it again later")
            addressed = _join_queue(tx, inbound)
            row = tx.row("SELECT COUNT(*) FROM inbox WHERE lane = ? AND state <> 'done'", (text(addressed.queue_key),))
            before = int(row[0]) if row is not None else 0
            if max_pending is not None and before > max_pending:
                raise InboxFull(f"{max_pending} messages are already pending here; send it again after a response")
            queued = _insert(tx, addressed, owner=owner, expires_at_ms=self._now + ttl_ms, now_ms=self._now)
            return EnqueueResult(queued, is_new=True, is_first=before == 0)

        try:
            return self._context.database.write(work)
        except (InboxFull, ConversationBusy):
            raise
        except StoreError:
            # A concurrent request with the same key was stored first.
            existing = self._context.database.read(lambda tx: self._find_by_key(tx, inbound))
            if existing is None:
                raise
            return EnqueueResult(existing, is_new=False)

    def get(self, message_id: str) -> QueuedMessage:
        """Return a message by its id. Raises NotFound."""
        row = self._context.database.row(f"SELECT {_COLUMNS} FROM inbox WHERE id = ?", (text(message_id),))
        if row is None:
            raise NotFound(f"no message {message_id!r}")
        return _queued_message(row)

    def first(self, queue_key: str) -> QueuedMessage | None:
        """Return the oldest pending message of a queue, regardless of its owner."""
        sql = f"SELECT {_COLUMNS} FROM inbox WHERE lane = ? AND state <> 'done' ORDER BY number LIMIT 1"
        row = self._context.database.row(sql, (text(queue_key),))
        return _queued_message(row) if row is not None else None

    def pending(self, conversation_id: str) -> list[QueuedMessage]:
        """Return the pending messages of a conversation and of chats that currently use it, oldest first."""
        sql = (
            f"SELECT {_COLUMNS} FROM inbox WHERE state <> 'done' AND (conversation = ? OR lane = ? OR lane IN"
            " (SELECT lane FROM inbox WHERE state = 'running' AND conversation = ?)) ORDER BY number"
        )
        ident = text(conversation_id)
        values = (ident, conversation_queue_key(ident), ident)
        return [_queued_message(r) for r in self._context.database.read(lambda tx: tx.rows(sql, values))]

    def claim(self, queued: QueuedMessage, *, owner: str, ttl_ms: int) -> QueuedMessage | None:
        """Take over a message whose lease expired; None if its owner or another process renewed the lease first."""

        def work(tx: Transaction) -> QueuedMessage | None:
            changed = tx.run(
                "UPDATE inbox SET owner = ?, expires_at = ? WHERE id = ? AND owner = ? AND expires_at = ?"
                " AND state <> 'done'",
                (text(owner), self._now + ttl_ms, queued.id, queued.owner, queued.expires_at_ms),
            )
            row = tx.row(f"SELECT {_COLUMNS} FROM inbox WHERE id = ?", (queued.id,)) if changed else None
            return _queued_message(row) if row is not None else None

        return self._context.database.write(work)

    def begin(
        self, queued: QueuedMessage, *, conversation_id: str, seq: int, content: str | Mapping[str, Any] | None = None
    ) -> bool:
        """Mark a message as running, before its turn starts; False when another process owns it by now.

        `content` replaces the stored content, for a command that expanded into a message.
        """
        payload = json.dumps(queued.inbound.content if content is None else content, ensure_ascii=True)
        changes = "state = 'running', conversation = ?, begin_seq = ?, content = ?"
        # The turn's first write to the log makes it durable; if that is lost, the message is a waiting one again.
        work = _update_owned(queued, changes, (text(conversation_id), seq, payload))
        return self._context.database.write_unsynced(work) > 0

    def finish(self, queued: QueuedMessage, result: Mapping[str, Any], *, conversation_id: str | None) -> bool:
        """Store the result and clear the content, which the log has by now; False when another process owns it."""
        outcome = json.dumps(result, ensure_ascii=True)
        work = _update_owned(
            queued,
            "state = 'done', content = '\"\"', options = '', result = ?, conversation = ?, wants_stop = 0, done_at = ?",
            (outcome, conversation_id and text(conversation_id), self._now),
        )
        return self._context.database.write(work) > 0

    def renew(self, owner: str, *, ttl_ms: int) -> list[str]:
        """Extend the leases of all messages of an owner; return the ids of those that were requested to stop."""

        def work(tx: Transaction) -> list[str]:
            values = (self._now + ttl_ms, text(owner))
            tx.run("UPDATE inbox SET expires_at = ? WHERE owner = ? AND state <> 'done'", values)
            rows = tx.rows(
                "SELECT id FROM inbox WHERE owner = ? AND state <> 'done' AND wants_stop = 1", (text(owner),)
            )
            return [r[0] for r in rows]

        return self._context.database.write_unsynced(work)

    def release_all(self, owner: str) -> int:
        """Give up all pending messages of an owner, so that other processes can claim them at once."""
        return self._context.database.write(
            lambda tx: tx.run(
                "UPDATE inbox SET expires_at = 0, state = CASE WHEN begin_seq IS NULL THEN 'waiting' ELSE state END"
                " WHERE owner = ? AND state <> 'done'",
                (text(owner),),
            )
        )

    def orphans(self, *, is_dead: Callable[[str], bool] = lambda owner: False) -> list[QueuedMessage]:
        """Return the messages without a result whose lease expired or whose owner is dead, oldest first."""

        def look(tx: Transaction) -> list[Row]:
            owners = [r[0] for r in tx.rows("SELECT DISTINCT owner FROM inbox WHERE state <> 'done'")]
            dead = [owner for owner in owners if is_dead(owner)]
            placeholders = ", ".join("?" * len(dead)) or "NULL"
            return tx.rows(
                f"SELECT {_COLUMNS} FROM inbox WHERE state <> 'done' AND (expires_at <= ? OR owner IN ({placeholders}))"
                " ORDER BY number",
                [self._now, *dead],
            )

        return [_queued_message(r) for r in self._context.database.read(look)]

    def stop_queue(self, queue_key: str) -> bool:
        """Request that the running message of a queue stops; return whether there was one."""
        return self._request_stop("lane = ?", (queue_key,))

    def stop_chat(self, platform: str, user: AnyUser, chat: str) -> bool:
        """Request that the running messages of a chat stop, in whichever conversation."""
        return self._request_stop("platform = ? AND user_key = ? AND chat = ?", (platform, user.stored_key, chat))

    def stop_message(self, message_id: str) -> bool:
        """Request that one message stops; return whether it was running."""
        return self._request_stop("id = ?", (message_id,))

    def completed_elsewhere(self, owner: str, *, since_ms: int) -> list[QueuedMessage]:
        """Return the messages that other processes completed since `since_ms`, oldest first."""
        sql = f"SELECT {_COLUMNS} FROM inbox WHERE done_at >= ? AND owner <> ? ORDER BY done_at, number"
        return [
            _queued_message(r) for r in self._context.database.read(lambda tx: tx.rows(sql, (since_ms, text(owner))))
        ]

    def count_pending(self) -> int:
        """Count the pending messages of all queues."""
        row = self._context.database.read(lambda tx: tx.row("SELECT COUNT(*) FROM inbox WHERE state <> 'done'"))
        return int(row[0]) if row is not None else 0

    def purge(self, *, before_ms: int) -> int:
        """Delete messages completed before `before_ms`; return how many."""
        return self._context.database.write(
            lambda tx: tx.run("DELETE FROM inbox WHERE state = 'done' AND done_at < ?", (before_ms,))
        )

    def _request_stop(self, where: str, values: tuple[str, ...]) -> bool:
        sql = f"UPDATE inbox SET wants_stop = 1 WHERE {where} AND state = 'running'"
        return self._context.database.write(lambda tx: tx.run(sql, tuple(text(v) for v in values))) > 0

    @property
    def _now(self) -> int:
        return self._context.clock.now_ms()

    @staticmethod
    def _is_pending(tx: Transaction, queue_key: str, conversation_id: str) -> bool:
        """Return whether a message is pending in the queue or the conversation."""
        ident = text(conversation_id)
        sql = "SELECT 1 FROM inbox WHERE state <> 'done' AND (lane IN (?, ?) OR conversation = ?) LIMIT 1"
        return tx.row(sql, (text(queue_key), conversation_queue_key(ident), ident)) is not None

    def _find_by_key(self, tx: Transaction, inbound: InboundMessage) -> QueuedMessage | None:
        if inbound.key is None:
            return None
        row = tx.row(
            f"SELECT {_COLUMNS} FROM inbox WHERE platform = ? AND user_key = ? AND key = ?",
            (text(inbound.platform), text(inbound.user.stored_key), text(inbound.key)),
        )
        return _queued_message(row) if row is not None else None


def _update_owned(queued: QueuedMessage, changes: str, values: tuple[Value, ...]) -> Callable[[Transaction], int]:
    """Return the work that changes a message unless another process owns it by now; it returns the changed rows."""
    sql = f"UPDATE inbox SET {changes} WHERE id = ? AND owner = ? AND state <> 'done'"
    return lambda tx: tx.run(sql, (*values, queued.id, text(queued.owner)))


def conversation_queue_key(conversation_id: str) -> str:
    """Return the queue key for messages addressed to a conversation rather than to a chat."""
    return f"{_CONVERSATION_PREFIX}{conversation_id}"


def _named_conversation(stored: object, queue_key: str) -> str | None:
    """Return the conversation that a message is addressed to; older rows have it in their queue key only."""
    if stored is not None:
        return to_text(stored)
    return queue_key.removeprefix(_CONVERSATION_PREFIX) if queue_key.startswith(_CONVERSATION_PREFIX) else None


def insert_message(
    tx: Transaction, inbound: InboundMessage, *, owner: str, expires_at_ms: int, now_ms: int
) -> QueuedMessage:
    """Insert a message as part of a larger transaction. Raises StoreError for a key that is stored already."""
    return _insert(tx, _join_queue(tx, inbound), owner=owner, expires_at_ms=expires_at_ms, now_ms=now_ms)


def _join_queue(tx: Transaction, inbound: InboundMessage) -> InboundMessage:
    """Put a message into the queue where another message of its conversation is pending, so that it runs after that."""
    if inbound.conversation_id is None:
        return inbound
    sql = "SELECT lane FROM inbox WHERE conversation = ? AND state <> 'done' ORDER BY number DESC LIMIT 1"
    row = tx.row(sql, (text(inbound.conversation_id),))
    return replace(inbound, queue_key=to_text(row[0])) if row is not None else inbound


def _insert(tx: Transaction, inbound: InboundMessage, *, owner: str, expires_at_ms: int, now_ms: int) -> QueuedMessage:
    number = insert_numbered(tx, "inbox", _values(inbound, owner, expires_at_ms, now_ms), number="number")
    return QueuedMessage(number, inbound, "waiting", owner, expires_at_ms, inbound.conversation_id)


def _values(inbound: InboundMessage, owner: str, until_ms: int, now_ms: int) -> dict[str, Value]:
    return {
        "id": inbound.id,
        "lane": text(inbound.queue_key),
        "platform": text(inbound.platform),
        "user_key": text(inbound.user.stored_key),
        "chat": text(inbound.chat),
        "scopes": json.dumps(sorted(inbound.scopes)),
        # NULL is never equal to NULL, so messages without a key are never duplicates.
        "key": text(inbound.key or "") or None,
        "content": json.dumps(inbound.content, ensure_ascii=True),
        "conversation": inbound.conversation_id and text(inbound.conversation_id),
        "begin_seq": None,
        "state": "waiting",
        "result": "",
        "owner": text(owner),
        "expires_at": until_ms,
        "wants_stop": 0,
        "taken_at": now_ms,
        "done_at": None,
        "options": json.dumps(inbound.options, ensure_ascii=True) if inbound.options else "",
        "named_conversation": inbound.conversation_id and text(inbound.conversation_id),
    }


_DAMAGED = "[This message is damaged in the database and cannot be read.]"


def _queued_message(row: Row) -> QueuedMessage:
    (
        number, ident, queue_key, platform, user_key, chat, scopes, key, content, conversation, begin_seq, state,
        result, owner, expires_at, wants_stop, done_at, options, named,
    ) = row  # fmt: skip
    # A damaged row must not hold up its queue: its sender gets a failed turn, without any rights.
    allowed = _stored_json(scopes, list, [])
    inbound = InboundMessage(
        to_text(ident), to_text(queue_key), to_text(platform), user_from_key(to_text(user_key)), to_text(chat),
        _stored_json(content, str | dict | None, _DAMAGED), tuple(map(str, allowed)),
        None if key is None else to_text(key), _stored_json(options, dict, {}) if options else {},
        _named_conversation(named, to_text(queue_key)),
    )  # fmt: skip
    outcome = _stored_json(result, dict, {}) if result else None
    return QueuedMessage(
        number, inbound, cast(MessageState, to_text(state)), to_text(owner), to_time_ms(expires_at),
        None if conversation is None else to_text(conversation), None if begin_seq is None else to_seq(begin_seq),
        outcome, bool(wants_stop), None if done_at is None else to_time_ms(done_at),
    )  # fmt: skip


def _stored_json(stored: object, kind: Any, default: Any) -> Any:
    try:
        value = json.loads(to_text(stored))
    except (ValueError, RecursionError):
        return default
    return value if isinstance(value, kind) else default
