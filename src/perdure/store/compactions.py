"""Compaction and undo: one transaction each that adds a child session; no message is copied or deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perdure.core.errors import NotFound, StoreError
from perdure.core.messages import Message, clean
from perdure.store.context import StoreContext
from perdure.store.conversations import insert_session
from perdure.store.db.database import Transaction, Value
from perdure.store.encoding import body_key
from perdure.store.leases import check_lease
from perdure.store.ledger import insert_event
from perdure.store.messages import PreparedMessage, insert_step, reserve_ids, scoped_text
from perdure.store.queries import (
    add_handoff,
    get_session,
    handoff_of_row,
    handoff_rows,
    lineage_of,
    read_handoffs,
    view_of,
)
from perdure.store.records import (
    BeganBy,
    Conversation,
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
    merge_spans,
    subtract_spans,
    truncate_view,
    undo_newest_compaction,
    validate_plan,
    view_contains,
)
from perdure.store.search.index import IndexedText


@dataclass(frozen=True, slots=True)
class _Tip:
    """The tip of a conversation, locked by this transaction."""

    conversation: Conversation
    session: Session
    view: View
    handoffs: dict[int, StoredHandoff]


class Compactions:
    """End the tip session and continue in a child session with another view of the same log."""

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
    ) -> Session:
        """Return the child session. `system_prompt` None reuses the parent's, byte for byte.

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
            child = self._child(tip, child_id, "compression", len(prepared), system_prompt, route)
            return self._continue(tx, tip, child, view)

        return self._context.database.write(work)

    def undo(self, any_id: str, *, lease: Lease | None = None) -> Session:
        """Return a child session whose view has the newest handoff replaced by the messages it covers.

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
    """Mark a message with the user's role as a handoff, because no user typed it."""
    return PreparedMessage.of(replace(message, kind="handoff") if message.is_real_user else message)
