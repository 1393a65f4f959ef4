"""Create, look up, branch, title and list conversations and their sessions; compact them and undo it.

A compaction and an undo are one transaction each that adds a child session; no message is copied or deleted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from perdure.core.errors import NotFound, StoreError
from perdure.core.messages import Message, clean
from perdure.core.visibility import EVERYONE, OWNER, AnyUser, Everyone, Visibility
from perdure.store.db.database import Row, Transaction, Value, insert, text, to_int, to_text
from perdure.store.encoding import FIRST_KEY, PLAIN, body_key, pack, record_checksum
from perdure.store.leases import check_lease
from perdure.store.ledger import insert_event
from perdure.store.messages import PreparedMessage, insert_step, reserve_ids, scoped_text
from perdure.store.queries import (
    CHECKED_CONVERSATION,
    CONVERSATION,
    MATCHES_ID,
    SESSION,
    StoreContext,
    add_handoff,
    add_spans,
    conversation_id_of,
    conversation_of_row,
    get_conversation,
    get_session,
    handoff_of_row,
    handoff_rows,
    is_consistent,
    key_at,
    lineage_of,
    read_handoffs,
    session_of_row,
    spans_of,
    view_of,
    visible_conversation_id_of,
)
from perdure.store.records import (
    BeganBy,
    Conversation,
    ConversationKind,
    ConversationPage,
    Lease,
    NewHandoff,
    Plan,
    RouteRecord,
    Session,
    Span,
    StoredEvent,
    StoredHandoff,
    View,
    covers_of,
    expand_handoffs,
    merge_spans,
    subtract_spans,
    truncate_view,
    undo_newest_compaction,
    validate_plan,
    view_contains,
)
from perdure.store.search.index import IndexedText

# End reasons of sessions that are continued by a child session.
CONTINUED = ("compression", "undo")


class Conversations:
    """Conversations, addressed by conversation id, session id or a unique prefix of either."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context

    def create(
        self,
        *,
        system_prompt: str = "",
        route: RouteRecord | None = None,
        source: str = "",
        user: AnyUser = OWNER,
        chat_key: str = "",
        title: str = "",
    ) -> Session:
        """Create a conversation and return its first session."""
        new = Conversation(
            self._context.ids.new("c_"), "main", self._context.ids.new("s_"), source=text(source),
            user=user, chat_key=text(chat_key), title=text(title),
        )  # fmt: skip
        return self._context.database.write(
            lambda tx: self._begin(tx, new, began_by="start", prompt=system_prompt, route=route or RouteRecord())
        )

    def delegate(self, parent_id: str, *, system_prompt: str = "", route: RouteRecord | None = None) -> Session:
        """Create a child conversation with its own log, for a delegated task."""

        def work(tx: Transaction) -> Session:
            # Locked, so that the parent cannot be deleted in the meantime.
            parent, _ = self._context.lock_conversation(tx, parent_id)
            new = self._child(parent, kind="delegate", fork_seq=0)
            origin_id = parent.tip_session_id
            return self._begin(
                tx, new, began_by="delegate", prompt=system_prompt, route=route or RouteRecord(), parent=origin_id
            )

        return self._context.database.write(work)

    def branch(
        self, any_id: str, *, at_seq: int | None = None, title: str = "", visibility: Visibility = EVERYONE
    ) -> Session:
        """Create a conversation that shares the log up to `at_seq`, by default its end; 0 shares no message.

        It has its parent's title, unless it shares nothing and its own first message gives it one. Raises NotFound
        as `get` does.
        """

        def work(tx: Transaction) -> Session:
            # Locked, so that nothing is appended in the meantime.
            parent, last_key = self._context.lock_conversation(tx, visible_conversation_id_of(tx, any_id, visibility))
            fork = parent.last_seq if at_seq is None else at_seq
            origin, view = self._view_at(tx, parent, fork)
            new = self._child(parent, kind="branch", fork_seq=fork, title=text(title) or (parent.title if fork else ""))
            key = last_key if fork == parent.last_seq else key_at(tx, lineage_of(tx, parent), fork)
            return self._begin(
                tx, new, began_by="branch", prompt=origin.system_prompt, route=origin.route, parent=origin.id,
                view=view, key=key,
            )  # fmt: skip

        return self._context.database.write(work)

    def get(self, any_id: str, *, visibility: Visibility = EVERYONE) -> Conversation:
        """Return the conversation of a session id, conversation id or unique prefix.

        Raises NotFound, also for conversations that `visibility` excludes.
        """

        def load(tx: Transaction) -> Conversation:
            return get_conversation(tx, visible_conversation_id_of(tx, any_id, visibility))

        if isinstance(visibility, Everyone):  # fast path: every turn looks a conversation up by its full id
            ident = text(any_id)
            row = self._context.database.row(
                f"SELECT {CHECKED_CONVERSATION} FROM conversation WHERE {MATCHES_ID}", (ident, ident)
            )
            if row is not None and is_consistent(row):
                return conversation_of_row(row[:-2])
        return self._context.database.read(load)

    def session(self, session_id: str) -> Session:
        return self._context.database.read(lambda tx: get_session(tx, session_id))

    def is_undone(self, session: Session) -> bool:
        """Whether the newest change of a session's view was an undone compaction; a branch inherits its origin's."""
        seen = {session.id}
        while session.began_by == "branch" and session.parent_id is not None and session.parent_id not in seen:
            seen.add(session.parent_id)
            try:
                session = self.session(session.parent_id)
            except NotFound:  # deleted with the conversation it belonged to
                return False
        return session.began_by == "undo"

    def sessions(self, any_id: str) -> list[Session]:
        """Return the sessions of a conversation, oldest first."""
        return [session_of_row(row) for row in self._context.database.read(_session_rows(any_id, SESSION))]

    def chain(self, any_id: str) -> list[Session]:
        """Return the sessions of a conversation, oldest first, without their system prompts, which may be long."""
        before, _, after = SESSION.partition("system_prompt, prompt_encoding, ")
        at = before.count(",")
        rows = self._context.database.read(_session_rows(any_id, before + after))
        return [session_of_row((*row[:at], b"", PLAIN, *row[at:])) for row in rows]

    def get_compression_tip(self, any_id: str, *, visibility: Visibility = EVERYONE) -> str:
        """Return the id of the newest session, the one a resume continues. Raises NotFound as `get` does."""
        return self.get(any_id, visibility=visibility).tip_session_id

    def list(
        self,
        *,
        visibility: Visibility = EVERYONE,
        source: str | None = None,
        chat_key: str | None = None,
        parent_id: str | None = None,
        kind: ConversationKind | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> ConversationPage:
        """Return a page of conversations, most recently used first.

        Delegated runs are only included when `kind` or `parent_id` selects them. Raises StoreError for a bad cursor.
        """
        where, values = _filters(
            user_key=visibility.stored_key, source=source, chat_key=chat_key, parent=parent_id, kind=kind, cursor=cursor
        )
        if kind is None and parent_id is None:
            where.append("COALESCE(kind, '') <> 'delegate'")
        sql = (
            f"SELECT {CONVERSATION} FROM conversation {'WHERE ' + ' AND '.join(where) if where else ''}"
            " ORDER BY updated_at DESC, id DESC LIMIT ?"
        )
        rows = self._context.database.read(lambda tx: tx.rows(sql, [*values, limit + 1]))
        page = tuple(conversation_of_row(r) for r in rows[:limit])
        more = len(rows) > limit
        return ConversationPage(page, list_cursor(rows[limit - 1]) if more and page else None)

    def set_title(self, any_id: str, title: str) -> None:
        """Set the title and record an event, so that other clients update."""

        def work(tx: Transaction) -> None:
            conversation, _ = self._context.lock_conversation(tx, any_id)
            tx.run("UPDATE conversation SET title = ? WHERE id = ?", (text(title), conversation.id))
            now = self._context.clock.now_ms()
            event = StoredEvent(conversation.tip_session_id, "title", {"title": text(title)}, now)
            insert_event(tx, conversation.id, event)

        self._context.database.write(work)

    def set_todo(self, any_id: str, todo: str) -> None:
        """Store the to-do list as serialized by its tool."""
        self._context.database.write(
            lambda tx: tx.run(
                "UPDATE conversation SET todo = ? WHERE id = ?", (text(todo), conversation_id_of(tx, any_id))
            )
        )

    def set_system_prompt(self, session_id: str, system_prompt: str, *, lease: Lease | None = None) -> None:
        """Set the prompt of a session that was created before its prompt was built. Raises LeaseLost."""

        def work(tx: Transaction) -> None:
            conversation, _ = self._context.lock_conversation(tx, get_session(tx, session_id).conversation_id)
            check_lease(tx, conversation.id, lease, now_ms=self._context.clock.now_ms())
            store_prompt(tx, session_id, system_prompt)

        self._context.database.write(work)

    def end(self, any_id: str, reason: str, *, lease: Lease | None = None) -> None:
        """Close the tip session, for example when the user leaves; the next append reopens it. Raises LeaseLost."""
        if reason in CONTINUED:
            raise StoreError(f"{reason!r} is reserved for sessions that a child session continues")

        def work(tx: Transaction) -> None:
            conversation, _ = self._context.lock_conversation(tx, any_id)
            now = self._context.clock.now_ms()
            check_lease(tx, conversation.id, lease, now_ms=now)
            tx.run(
                "UPDATE session SET ended_at = ?, end_reason = ? WHERE id = ?",
                (now, reason, conversation.tip_session_id),
            )

        self._context.database.write(work)

    def _child(self, parent: Conversation, *, kind: ConversationKind, fork_seq: int, title: str = "") -> Conversation:
        # Inherits user and chat, so that both can list and resume the child.
        return Conversation(
            self._context.ids.new("c_"), kind, self._context.ids.new("s_"), parent.id, parent.source, parent.user,
            parent.chat_key, title, fork_seq=fork_seq, last_seq=fork_seq,
        )  # fmt: skip

    def _begin(
        self,
        tx: Transaction,
        new: Conversation,
        *,
        began_by: BeganBy,
        prompt: str,
        route: RouteRecord,
        parent: str | None = None,
        view: View = (),
        key: bytes = FIRST_KEY,
    ) -> Session:
        now = self._context.clock.now_ms()
        insert_conversation(tx, replace(new, created_at_ms=now, updated_at_ms=now), key=key)
        first = new.last_seq + 1
        session = Session(new.tip_session_id, new.id, parent, began_by, route, clean(prompt), first, None, now)
        insert_session(tx, session, view)
        return session

    def _view_at(self, tx: Transaction, conversation: Conversation, seq: int) -> tuple[Session, View]:
        """Return the session in which the message after `seq` was sent, and its view up to `seq`."""
        tip = get_session(tx, conversation.tip_session_id)
        view = view_of(tx, tip, conversation.last_seq)
        if seq == conversation.last_seq:
            return tip, view
        if seq == 0:
            return session_of_row(_session_rows(conversation.id, SESSION)(tx)[0]), ()
        lineage = lineage_of(tx, conversation)
        key = next(((owner, seq) for owner, lo, hi in lineage if lo <= seq <= hi), None)
        if key is None or tx.row("SELECT 1 FROM message WHERE conversation = ? AND seq = ?", key) is None:
            raise NotFound(f"no message m:{seq} in {conversation.id} to branch from")
        # Not the session of `seq` itself: a compaction may have been undone between the two.
        owner = next(owner for owner, lo, hi in lineage if lo <= seq + 1 <= hi)
        if (session := _session_in_force(tx, owner, seq + 1)) is not None:
            return session, truncate_view(view_of(tx, session, conversation.last_seq), seq)
        # The session was deleted with the parent conversation: fall back to the tip's view with handoffs expanded.
        return tip, truncate_view(expand_handoffs(view, read_handoffs(tx, lineage)), seq)


def _session_in_force(tx: Transaction, conversation_id: str, seq: int) -> Session | None:
    """Return the session that message `seq` was appended to, or that a handoff with this `seq` replaced."""
    newest_first = "ORDER BY first_seq DESC, started_at DESC, id DESC LIMIT 1"
    row = tx.row(
        f"SELECT {SESSION} FROM session WHERE conversation = ? AND first_seq <= ? {newest_first}",
        (conversation_id, seq),
    )
    return session_of_row(row) if row is not None else None


def insert_conversation(tx: Transaction, new: Conversation, *, key: bytes) -> None:
    values: dict[str, Value] = {
        "id": new.id,
        "parent": new.parent_id,
        "kind": new.kind,
        "source": new.source,
        "user_key": text(new.user.stored_key),
        "chat_key": new.chat_key,
        "title": new.title,
        "todo": new.todo,
        "tip": new.tip_session_id,
        "fork_seq": new.fork_seq,
        "last_seq": new.last_seq,
        "last_key": key,
        "created_at": new.created_at_ms,
        "updated_at": new.updated_at_ms,
    }
    insert(tx, "conversation", values)


def insert_session(tx: Transaction, session: Session, view: View) -> None:
    prompt, encoding = pack(session.system_prompt.encode())
    values: dict[str, Value] = {
        "id": session.id,
        "conversation": session.conversation_id,
        "parent": session.parent_id,
        "began_by": session.began_by,
        "provider": session.route.provider,
        "model": session.route.model,
        "api_mode": session.route.api_mode,
        "system_prompt": prompt,
        "prompt_encoding": encoding,
        "first_seq": session.first_seq,
        "last_seq": session.last_seq,
        "started_at": session.started_at_ms,
        "ended_at": session.ended_at_ms,
        "end_reason": session.end_reason,
    }
    insert(tx, "session", values)
    add_spans(tx, session.id, view)
    record_checksum(tx, session, view)


def store_prompt(tx: Transaction, session_id: str, system_prompt: str) -> None:
    """Replace the system prompt of a session."""
    stored, encoding = pack(clean(system_prompt).encode())
    tx.run("UPDATE session SET system_prompt = ?, prompt_encoding = ? WHERE id = ?", (stored, encoding, session_id))
    record_checksum(tx, get_session(tx, session_id), spans_of(tx, session_id))


def _session_rows(any_id: str, columns: str) -> Callable[[Transaction], list[Row]]:
    """Build a query for the sessions of a conversation, oldest first."""
    sql = f"SELECT {columns} FROM session WHERE conversation = ? ORDER BY first_seq, started_at, id"
    return lambda tx: tx.rows(sql, (conversation_id_of(tx, any_id),))


def _filters(*, cursor: str | None, **columns: str | None) -> tuple[list[str], list[Value]]:
    where: list[str] = []
    values: list[Value] = []
    for column, value in columns.items():
        if value is not None:
            where.append(f"{column} = ?")
            values.append(text(value))
    if cursor is not None:
        where.append("(updated_at, id) < (?, ?)")
        values += parse_list_cursor(cursor)
    return where, values


_LIST_CURSOR = re.compile(r"([0-9]{1,19}):(.*)", re.DOTALL)
_LARGEST_INT = 2**63 - 1


def list_cursor(row: Row) -> str | None:
    """Return the cursor after a row of CONVERSATION; None where every further row is damaged.

    Damaged times sort before all others if they are not numbers, and after them if they are negative or NULL.
    """
    if row[-1] is None or (isinstance(row[-1], int) and row[-1] < 0):
        return None
    return f"{to_int(row[-1], _LARGEST_INT)}:{to_text(row[0])}"


def parse_list_cursor(cursor: str) -> list[Value]:
    """Return the time and id of a cursor. Raises StoreError for an invalid one."""
    match = _LIST_CURSOR.fullmatch(cursor)
    if match is None:
        raise StoreError(f"{cursor[:80]!r} is not a valid list cursor")
    return [min(int(match[1]), _LARGEST_INT), text(match[2])]


@dataclass(frozen=True, slots=True)
class _Tip:
    """The newest session of a conversation with its view, read and locked by this transaction."""

    conversation: Conversation
    session: Session
    view: View
    handoffs: dict[int, StoredHandoff]


class Compactions:
    """Compact and undo: end the newest session and continue in a child session with another view of the same log."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context

    def compact(
        self,
        any_id: str,
        plan: Plan,
        *,
        system_prompt: str | None = None,
        route: RouteRecord | None = None,
        up_to_seq: int | None = None,
        lease: Lease | None = None,
        began_by: BeganBy = "compression",
    ) -> Session:
        """Continue in a child session whose view is `plan`, and return it. `system_prompt` None reuses the parent's.

        `up_to_seq` is the last message the plan covers. Later messages are appended after it, so a plan can be prepared
        in the background while the conversation continues. Raises StoreError for a plan that does not fit the view.
        """
        prepared = [_prepare(p.message) for p in plan if isinstance(p, NewHandoff)]
        child_id = self._context.ids.new("s_")

        def work(tx: Transaction) -> Session:
            tip = self._open(tx, any_id, lease)
            planned = tip.view if up_to_seq is None else truncate_view(tip.view, up_to_seq)
            validate_plan(plan, planned)
            written = self._write_handoffs(tx, tip, plan, prepared, planned, child_id)
            view = merge_spans([*written, *subtract_spans(tip.view, planned)])
            child = self._child(tip, child_id, began_by, len(prepared), system_prompt, route)
            return self._continue(tx, tip, child, view)

        return self._context.database.write(work)

    def undo(self, any_id: str, *, lease: Lease | None = None) -> Session:
        """Continue in a child session in which the newest handoff is replaced by the messages it covers, and return it.

        Later messages are kept. Raises StoreError when the tip's view contains no handoff.
        """
        child_id = self._context.ids.new("s_")

        def work(tx: Transaction) -> Session:
            tip = self._open(tx, any_id, lease)
            view = self._view_before(tx, tip)
            child = self._child(tip, child_id, "undo", 0, None, None)
            # An undo adds no message, so the event is what reaches clients that follow the change feed.
            event = StoredEvent(child_id, "undo", {"parent": tip.session.id}, child.started_at_ms)
            insert_event(tx, tip.conversation.id, event)
            return self._continue(tx, tip, child, view)

        return self._context.database.write(work)

    def _view_before(self, tx: Transaction, tip: _Tip) -> View:
        """Return the view before the newest compaction, followed by later messages. Raises CorruptStore."""
        session = tip.session
        for row in handoff_rows(tx, lineage_of(tx, tip.conversation)):
            handoff_of_row(row)  # an unreadable one would leave messages out of the view
        has_handoff = any(
            h.session_id == session.id and view_contains(tip.view, seq) for seq, h in tip.handoffs.items()
        )
        if session.began_by != "compression" or has_handoff or session.parent_id is None:
            return undo_newest_compaction(tip.view, tip.handoffs)
        # The compaction only dropped messages and wrote no handoff that lists them.
        before = view_of(tx, get_session(tx, session.parent_id), session.first_seq - 1)
        return merge_spans([*before, *subtract_spans(tip.view, before)])

    def _open(self, tx: Transaction, any_id: str, lease: Lease | None) -> _Tip:
        conversation, _ = self._context.lock_conversation(tx, any_id)
        check_lease(tx, conversation.id, lease, now_ms=self._context.clock.now_ms())
        try:
            session = get_session(tx, conversation.tip_session_id)
        except NotFound:
            conversation = self._context.repair_tip(tx, conversation)
            session = get_session(tx, conversation.tip_session_id)
        view = view_of(tx, session, conversation.last_seq)
        return _Tip(conversation, session, view, read_handoffs(tx, lineage_of(tx, conversation)))

    def _write_handoffs(
        self, tx: Transaction, tip: _Tip, plan: Plan, prepared: list[PreparedMessage], planned: View, child_id: str
    ) -> list[Span]:
        """Append the plan's handoffs to the log and return the plan as spans."""
        if not prepared:  # the plan only drops messages
            return [item for item in plan if isinstance(item, Span)]
        now, conversation = self._context.clock.now_ms(), tip.conversation
        covers = covers_of(plan, planned)
        spans: list[Span] = []
        rows: list[Sequence[Value]] = []
        texts: list[tuple[int, IndexedText]] = []
        numbers = reserve_ids(tx, self._context.database.dialect, conversation, len(prepared)).numbers
        for item in plan:
            if isinstance(item, Span):
                spans.append(item)
                continue
            ordinal = len(texts)
            message, seq, covered = prepared[ordinal], conversation.last_seq + 1 + ordinal, covers[ordinal]
            if unknown := subtract_spans(covered, planned):
                raise StoreError(f"a handoff cannot cover {unknown[0].address}: it is not in the session's view")
            key = body_key(message.body.canonical)
            row = message.row(
                numbers[ordinal], conversation_id=conversation.id, seq=seq, session_id=child_id, key=key, now_ms=now,
                is_original=False,
            )  # fmt: skip
            rows.append(row)
            texts.append((numbers[ordinal], scoped_text(message, conversation)))
            previous = max((s for s in tip.handoffs if view_contains(covered, s)), default=None)
            add_handoff(
                tx,
                StoredHandoff(
                    conversation.id, seq, child_id, covered, planned, item.model, item.focus, previous, item.cost_usd,
                    item.usage, item.check, now,
                ),
            )  # fmt: skip
            spans.append(Span(seq, seq))
        tx.run_many(*insert_step(rows))
        tx.run_many(*self._context.index.insert_step("message", texts))
        return spans

    def _child(
        self, tip: _Tip, child_id: str, began_by: BeganBy, new_rows: int, prompt: str | None, route: RouteRecord | None
    ) -> Session:
        parent = tip.session
        return Session(
            child_id, tip.conversation.id, parent.id, began_by, route or parent.route,
            parent.system_prompt if prompt is None else clean(prompt), tip.conversation.last_seq + new_rows + 1, None,
            self._context.clock.now_ms(),
        )  # fmt: skip

    def _continue(self, tx: Transaction, tip: _Tip, child: Session, view: View) -> Session:
        """End the parent session, insert the child and move the tip to it."""
        tx.run(
            "UPDATE session SET ended_at = ?, end_reason = ?, last_seq = ? WHERE id = ?",
            (child.started_at_ms, child.began_by, tip.conversation.last_seq, tip.session.id),
        )
        insert_session(tx, child, view)
        tx.run(
            "UPDATE conversation SET tip = ?, last_seq = ?, updated_at = ? WHERE id = ?",
            (child.id, child.first_seq - 1, child.started_at_ms, tip.conversation.id),
        )
        return child


def _prepare(message: Message) -> PreparedMessage:
    """Encode a plan's message as a handoff, although it has the user's role: no user typed it."""
    return PreparedMessage.of(replace(message, kind="handoff") if message.is_real_user else message)
