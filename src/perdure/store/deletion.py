"""Deleting a whole conversation, the one way rows ever go: asked for, with a tombstone, in one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from perdure.core.errors import CorruptStore, NotFound
from perdure.store.backing import StoreContext
from perdure.store.changes import record_deletion
from perdure.store.codec import decode
from perdure.store.database import Transaction, insert
from perdure.store.drafts import PreparedMessage, scoped
from perdure.store.integrity import copy_scrubbed
from perdure.store.leases import admit
from perdure.store.outputs import OutputStore, output_tokens
from perdure.store.records import Conversation, Deleted, Lease
from perdure.store.rows import CONVERSATION, conversation_of_row, get_conversation
from perdure.store.text_index import IndexedText

_COPIED = "seq, session, role, kind, body, encoding, chars, key, chained, created_at"
_HANDED_ON = "seq, session, covers, replaced, model, focus, previous, cost_usd, usage, verified, created_at"
_BATCH = 500
# A few seconds' work: all of an ordinary index. A very large one is not rewritten for each conversation that goes.
_MERGED_PAGES = 20_000


class Deletions:
    """Takes a conversation and its delegated runs away; a branch keeps what it shared."""

    def __init__(self, backing: StoreContext, outputs: OutputStore) -> None:
        self._backing = backing
        self._outputs = outputs

    def delete(self, any_id: str, *, lease: Lease | None = None) -> Deleted:
        """Messages, sessions, calls, events, outputs and index; ids ever shown then say when it was deleted."""

        def work(tx: Transaction) -> Deleted:
            root, _ = self._backing.hold(tx, any_id)
            admit(tx, root.id, lease, now_ms=self._backing.clock.now_ms())
            doomed = [root, *_delegates(tx, root)]
            messages = outputs = 0
            # Children first, so that nothing refers to what is gone.
            for conversation in reversed(doomed):
                self._hand_on(tx, conversation)
                outputs += self._forget_outputs(tx, conversation)
                messages += self._forget(tx, conversation)
            for index in ("message", "output"):
                self._backing.index.settle(tx, index, most_pages=_MERGED_PAGES)
            record_deletion(tx)
            return Deleted(tuple(c.id for c in doomed), messages, outputs)

        deleted = self._backing.database.erase(work)
        for conversation_id in deleted.conversation_ids:
            self._outputs.shelf.remove(conversation_id)
        return deleted

    def _hand_on(self, tx: Transaction, conversation: Conversation) -> None:
        """Gives each branch its own copy of what it shared with the conversation that goes."""
        rows = tx.rows(
            f"SELECT {CONVERSATION} FROM conversation WHERE parent = ? AND kind = 'branch'", (conversation.id,)
        )
        for branch in map(conversation_of_row, rows):
            shared = (conversation.id, branch.fork_seq)
            tx.run(
                f"INSERT INTO message (conversation, {_COPIED}) SELECT CAST(? AS TEXT), {_COPIED} FROM message"
                " WHERE conversation = ? AND seq <= ?",
                (branch.id, *shared),
            )
            tx.run(
                f"INSERT INTO handoff (conversation, {_HANDED_ON}) SELECT CAST(? AS TEXT), {_HANDED_ON} FROM handoff"
                " WHERE conversation = ? AND seq <= ?",
                (branch.id, *shared),
            )
            copy_scrubbed(tx, conversation.id, branch.id)
            for texts in _indexed_rows(tx, branch, up_to=branch.fork_seq):
                tx.run_many(*self._backing.index.addition("message", texts))
            tx.run(
                "UPDATE conversation SET parent = ?, fork_seq = ? WHERE id = ?",
                (conversation.parent_id, min(conversation.fork_seq, branch.fork_seq), branch.id),
            )

    def _forget(self, tx: Transaction, conversation: Conversation) -> int:
        owner, now = conversation.id, self._backing.clock.now_ms()
        sessions = [r[0] for r in tx.rows("SELECT id FROM session WHERE conversation = ?", (owner,))]
        for ident in (owner, *sessions):
            insert(tx, "tombstone", {"id": ident, "conversation": owner, "deleted_at": now})
        for texts in _indexed_rows(tx, conversation, up_to=conversation.last_seq):
            self._backing.index.remove(tx, "message", texts)
        tx.run("INSERT INTO permit (conversation, deed) VALUES (?, 'delete')", (owner,))
        tx.run("DELETE FROM span WHERE session IN (SELECT id FROM session WHERE conversation = ?)", (owner,))
        gone = tx.run("DELETE FROM message WHERE conversation = ?", (owner,))
        for table in ("handoff", "call", "event", "output", "lease", "inbox", "fingerprint", "session"):
            tx.run(f"DELETE FROM {table} WHERE conversation = ?", (owner,))
        tx.run("DELETE FROM state WHERE scope LIKE ?", (f"%:{owner}",))
        tx.run("DELETE FROM permit WHERE conversation = ?", (owner,))
        tx.run("UPDATE conversation SET parent = NULL WHERE parent = ?", (owner,))
        tx.run("DELETE FROM conversation WHERE id = ?", (owner,))
        return gone

    def _forget_outputs(self, tx: Transaction, conversation: Conversation) -> int:
        rows = tx.rows("SELECT number, place, is_indexed FROM output WHERE conversation = ?", (conversation.id,))
        for number, place, is_indexed in rows:
            # Where the file is gone already, its words lead to no row and are never shown.
            with suppress(NotFound):
                text = "".join(self._outputs.shelf.chunks(place)) if is_indexed else ""
                tokens = output_tokens(text, conversation)
                self._backing.index.remove(tx, "output", [(number, tokens)] if is_indexed else [])
        return len(rows)


def _delegates(tx: Transaction, conversation: Conversation) -> Iterator[Conversation]:
    """Runs it delegated, and theirs: they are part of it, though they have logs of their own."""
    rows = tx.rows("SELECT id FROM conversation WHERE parent = ? AND kind = 'delegate'", (conversation.id,))
    for (ident,) in rows:
        child = get_conversation(tx, ident)
        yield child
        yield from _delegates(tx, child)


def _indexed_rows(
    tx: Transaction, conversation: Conversation, *, up_to: int
) -> Iterator[list[tuple[int, IndexedText]]]:
    """What the index holds, or should hold, of a conversation's own rows, in batches."""
    after = 0
    while True:
        rows = tx.rows(
            "SELECT id, seq, body, encoding, kind FROM message WHERE conversation = ? AND seq > ? AND seq <= ?"
            " ORDER BY seq LIMIT ?",
            (conversation.id, after, up_to, _BATCH),
        )
        if not rows:
            return
        after = rows[-1][1]
        texts = []
        for number, _, body, encoding, kind in rows:
            # What cannot be read has no words to take out; those in the index lead to no row, and are never shown.
            with suppress(CorruptStore):
                texts.append((number, scoped(PreparedMessage.of(decode(body, encoding, kind)), conversation)))
        yield texts
