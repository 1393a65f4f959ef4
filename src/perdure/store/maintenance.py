"""Delete conversations, scrub secrets, rebuild the search index."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from perdure.core.errors import CorruptStore, NotFound, StoreError
from perdure.core.messages import Message, canonical_json
from perdure.store.changes import record_deletion
from perdure.store.conversations import store_prompt
from perdure.store.db.database import Row, Transaction, insert, text, to_int, to_text
from perdure.store.encoding import copy_scrubbed, decode, load_payload, record_scrubbed, unpack
from perdure.store.leases import check_lease
from perdure.store.messages import PreparedMessage, scoped_text
from perdure.store.outputs import OutputStore, output_tokens
from perdure.store.queries import CONVERSATION, StoreContext, conversation_of_row, get_conversation
from perdure.store.records import Conversation, DeleteResult, Lease
from perdure.store.search.index import IndexedText
from perdure.store.search.progress import IndexProgress, load_progress, store_progress
from perdure.store.search.tokenizer import VERSION
from perdure.store.search.vectors import record_removal

_MESSAGE_COLUMNS = "seq, session, role, kind, body, encoding, chars, key, chained, created_at, tool_state"
_HANDOFF_COLUMNS = "seq, session, covers, replaced, model, focus, previous, cost_usd, usage, verified, created_at"
_BATCH = 500
# A few seconds of work, enough for most indexes; a very large one is not rewritten for each deletion.
_MAX_MERGED_PAGES = 20_000


class ConversationDeleter:
    """Deletes a conversation and its delegated runs; branches keep the messages they share."""

    def __init__(self, context: StoreContext, outputs: OutputStore) -> None:
        self._context = context
        self._outputs = outputs

    def delete(self, any_id: str, *, lease: Lease | None = None) -> DeleteResult:
        """Delete messages, sessions, calls, events, outputs and index entries; tombstones keep the deletion date.

        Raises LeaseLost.
        """

        def work(tx: Transaction) -> DeleteResult:
            root, _ = self._context.lock_conversation(tx, any_id)
            check_lease(tx, root.id, lease, now_ms=self._context.clock.now_ms())
            targets = [root, *_delegates(tx, root)]
            messages = outputs = 0
            # Children first, because they reference their parents.
            for conversation in reversed(targets):
                self._detach_branches(tx, conversation)
                outputs += self._delete_outputs(tx, conversation)
                messages += self._delete_rows(tx, conversation)
            for index in ("message", "output"):
                self._context.index.purge_removed(tx, index, max_pages=_MAX_MERGED_PAGES)
            record_deletion(tx)
            # The vectors of deleted messages are deleted with them, and then forgotten.
            record_removal(tx)
            return DeleteResult(tuple(c.id for c in targets), messages, outputs)

        deleted = self._context.database.erase(work)
        for conversation_id in deleted.conversation_ids:
            self._outputs.blobs.remove(conversation_id)
        return deleted

    def _detach_branches(self, tx: Transaction, conversation: Conversation) -> None:
        """Copy shared messages into each branch of a conversation that is being deleted."""
        rows = tx.rows(
            f"SELECT {CONVERSATION} FROM conversation WHERE parent = ? AND kind = 'branch'", (conversation.id,)
        )
        for branch in map(conversation_of_row, rows):
            shared = (conversation.id, branch.fork_seq)
            tx.run(
                f"INSERT INTO message (conversation, {_MESSAGE_COLUMNS}) SELECT CAST(? AS TEXT), {_MESSAGE_COLUMNS}"
                " FROM message WHERE conversation = ? AND seq <= ?",
                (branch.id, *shared),
            )
            tx.run(
                f"INSERT INTO handoff (conversation, {_HANDOFF_COLUMNS}) SELECT CAST(? AS TEXT), {_HANDOFF_COLUMNS}"
                " FROM handoff WHERE conversation = ? AND seq <= ?",
                (branch.id, *shared),
            )
            copy_scrubbed(tx, conversation.id, branch.id)
            for texts in _indexed_rows(tx, branch, up_to=branch.fork_seq):
                tx.run_many(*self._context.index.insert_step("message", texts))
            tx.run(
                "UPDATE conversation SET parent = ?, fork_seq = ? WHERE id = ?",
                (conversation.parent_id, min(conversation.fork_seq, branch.fork_seq), branch.id),
            )

    def _delete_rows(self, tx: Transaction, conversation: Conversation) -> int:
        owner, now = conversation.id, self._context.clock.now_ms()
        sessions = [r[0] for r in tx.rows("SELECT id FROM session WHERE conversation = ?", (owner,))]
        for ident in (owner, *sessions):
            insert(tx, "tombstone", {"id": ident, "conversation": owner, "deleted_at": now})
        for texts in _indexed_rows(tx, conversation, up_to=conversation.last_seq):
            self._context.index.remove(tx, "message", texts)
        tx.run("INSERT INTO permit (conversation, deed) VALUES (?, 'delete')", (owner,))
        tx.run("DELETE FROM span WHERE session IN (SELECT id FROM session WHERE conversation = ?)", (owner,))
        deleted = tx.run("DELETE FROM message WHERE conversation = ?", (owner,))
        tables = ("handoff", "call", "event", "output", "lease", "inbox", "schedule_run", "fingerprint", "session")
        for table in tables:
            tx.run(f"DELETE FROM {table} WHERE conversation = ?", (owner,))
        tx.run("DELETE FROM state WHERE scope LIKE ?", (f"%:{owner}",))
        tx.run("DELETE FROM permit WHERE conversation = ?", (owner,))
        tx.run("UPDATE conversation SET parent = NULL WHERE parent = ?", (owner,))
        tx.run("DELETE FROM conversation WHERE id = ?", (owner,))
        return deleted

    def _delete_outputs(self, tx: Transaction, conversation: Conversation) -> int:
        rows = tx.rows("SELECT number, place, is_indexed FROM output WHERE conversation = ?", (conversation.id,))
        for number, path, is_indexed in rows:
            # Without the file its index entries cannot be removed; they match no row and never appear in results.
            with suppress(NotFound):
                text = "".join(self._outputs.blobs.chunks(path)) if is_indexed else ""
                tokens = output_tokens(text, conversation)
                self._context.index.remove(tx, "output", [(number, tokens)] if is_indexed else [])
        return len(rows)


def _delegates(tx: Transaction, conversation: Conversation) -> list[Conversation]:
    """Return the delegated runs of a conversation, recursively, parents first."""
    runs: dict[str, Conversation] = {}
    pending = [conversation.id]
    while pending:
        rows = tx.rows("SELECT id FROM conversation WHERE parent = ? AND kind = 'delegate'", (pending.pop(),))
        # A damaged row may name itself or one of its children as its parent.
        new = [get_conversation(tx, ident) for (ident,) in rows if ident != conversation.id and ident not in runs]
        runs.update((child.id, child) for child in new)
        pending += [child.id for child in new]
    return list(runs.values())


def _indexed_rows(
    tx: Transaction, conversation: Conversation, *, up_to: int
) -> Iterator[list[tuple[int, IndexedText]]]:
    """Yield the index entries of a conversation's own messages, in batches."""
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
            # Index entries of a damaged message cannot be computed; they match no row and never appear in results.
            with suppress(CorruptStore):
                texts.append((number, scoped_text(PreparedMessage.of(decode(body, encoding, kind)), conversation)))
        yield texts


Redact = Callable[[str], str]
# Key in a conversation's state: how often it was scrubbed.
SCRUB_COUNT = "scrub_count"


@dataclass(frozen=True, slots=True)
class ScrubResult:
    """The number of messages and outputs that a scrub changed."""

    messages: int
    outputs: int


class Scrubber:
    """Redacts secrets in everything stored of a conversation: messages, prompts, title, events, outputs and index."""

    def __init__(self, context: StoreContext, outputs: OutputStore) -> None:
        self._context = context
        self._outputs = outputs

    def scrub(self, any_id: str, redact: Redact, *, lease: Lease | None = None) -> ScrubResult:
        """Apply `redact` to all texts of a conversation, in one transaction. Raises LeaseLost.

        Message keys are kept, so that replaying the unredacted history adds nothing.
        """

        def work(tx: Transaction) -> tuple[Conversation, int]:
            conversation, _ = self._context.lock_conversation(tx, any_id)
            check_lease(tx, conversation.id, lease, now_ms=self._context.clock.now_ms())
            tx.run("INSERT INTO permit (conversation, deed) VALUES (?, 'scrub')", (conversation.id,))
            changed = self._redact_messages(tx, conversation, redact)
            _redact_metadata(tx, conversation, redact)
            _redact_state(tx, conversation, redact)
            tx.run("DELETE FROM permit WHERE conversation = ?", (conversation.id,))
            self._context.index.purge_removed(tx, "message")
            return conversation, changed

        conversation, changed = self._context.database.erase(work)
        return ScrubResult(changed, self._redact_outputs(conversation, redact))

    def _redact_messages(self, tx: Transaction, conversation: Conversation, redact: Redact) -> int:
        changed = 0
        numbers = tx.rows("SELECT id, seq FROM message WHERE conversation = ?", (conversation.id,))
        for number, seq in numbers:
            rows = tx.rows("SELECT body, encoding, kind FROM message WHERE id = ?", (number,))
            try:
                before = PreparedMessage.of(decode(*rows[0]))
            except CorruptStore:  # a damaged message cannot be redacted; restore it from a backup
                continue
            after = PreparedMessage.of(redact_message(before.message, redact))
            if after.body.canonical == before.body.canonical:
                continue
            tx.run(
                "UPDATE message SET body = ?, encoding = ?, chars = ? WHERE id = ?",
                (after.body.stored, after.body.encoding, len(after.message.text), number),
            )
            record_scrubbed(tx, conversation.id, seq, after.body.canonical)
            if tx.run("DELETE FROM message_vector WHERE id = ?", (number,)):
                record_removal(tx)
            self._context.index.remove(tx, "message", [(number, scoped_text(before, conversation))])
            tx.run_many(*self._context.index.insert_step("message", [(number, scoped_text(after, conversation))]))
            changed += 1
        return changed

    def _redact_outputs(self, conversation: Conversation, redact: Redact) -> int:
        """Rewrite each output under its id; the old text is removed after the new one is stored."""
        changed = 0
        for output in self._outputs.list(conversation.id):
            before = self._outputs.whole(output.id)
            after = redact(before)
            if after != before:
                self._outputs.replace(output.id, after)
                changed += 1
        return changed


def redact_message(message: Message, redact: Redact) -> Message:
    """Redact every text of a message; tool call arguments stay valid JSON."""
    raw = _redact_json(message.to_dict(), redact)
    for raw_call, call in zip(raw.get("tool_calls") or (), message.tool_calls, strict=False):
        arguments = call.parsed_arguments()
        if arguments is not None and redact(call.arguments) != call.arguments:
            raw_call["function"]["arguments"] = canonical_json(_redact_json(arguments, redact))
    return replace(Message.from_dict(raw), kind=message.kind)


def _redact_metadata(tx: Transaction, conversation: Conversation, redact: Redact) -> None:
    for ident, stored, encoding in tx.rows(
        "SELECT id, system_prompt, prompt_encoding FROM session WHERE conversation = ?", (conversation.id,)
    ):
        with suppress(CorruptStore):  # a damaged prompt cannot be redacted; restore it from a backup
            store_prompt(tx, ident, redact(unpack(stored, encoding).decode(errors="replace")))
    tx.run(
        "UPDATE conversation SET title = ?, todo = ? WHERE id = ?",
        (text(redact(conversation.title)), text(redact(conversation.todo)), conversation.id),
    )
    for ident, payload in tx.rows("SELECT id, payload FROM event WHERE conversation = ?", (conversation.id,)):
        cleaned = json.dumps(_redact_json(load_payload(payload), redact), ensure_ascii=True)
        tx.run("UPDATE event SET payload = ? WHERE id = ?", (cleaned, ident))
    for number, content, result in tx.rows(
        "SELECT number, content, result FROM inbox WHERE conversation = ?", (conversation.id,)
    ):
        redacted = [
            json.dumps(_redact_json(_json_or_text(t), redact), ensure_ascii=True) if t else ""
            for t in (content, result)
        ]
        tx.run("UPDATE inbox SET content = ?, result = ? WHERE number = ?", (*redacted, number))


def _redact_state(tx: Transaction, conversation: Conversation, redact: Redact) -> None:
    """Redact the conversation's key-value state, and count the scrub, so that other processes reload its messages."""
    own, engine = f"conversation:{conversation.id}", f"engine:{conversation.id}"
    count = 0
    for scope, key, value in tx.rows("SELECT scope, key, value FROM state WHERE scope IN (?, ?)", (own, engine)):
        stored = _json_or_text(value)
        if to_text(key) == SCRUB_COUNT and isinstance(stored, int):
            count = stored
        cleaned = json.dumps(_redact_json(stored, redact), ensure_ascii=True, sort_keys=True)
        tx.run("UPDATE state SET value = ? WHERE scope = ? AND key = ?", (cleaned, scope, key))
    tx.run(
        "INSERT INTO state (scope, key, value) VALUES (?, ?, ?)"
        " ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value",
        (own, SCRUB_COUNT, json.dumps(count + 1)),
    )


def _json_or_text(stored: object) -> Any:
    """Parse stored JSON; a damaged one is its text, so that its secrets are redacted, too."""
    try:
        return json.loads(to_text(stored))
    except (ValueError, RecursionError):
        return to_text(stored)


def _redact_json(value: Any, redact: Redact) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {k: _redact_json(v, redact) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_redact_json(v, redact) for v in value]
    return value


ProgressCallback = Callable[[str], None]

# Outputs are far larger than messages.
_OUTPUT_BATCH = 10
_REPORT_EVERY = 20
_CONVERSATION_COLUMNS = ", ".join(f"c.{name}" for name in CONVERSATION.split(", "))
_MESSAGES = (
    f"SELECT m.id, m.body, m.encoding, m.kind, {_CONVERSATION_COLUMNS} FROM message m"
    " JOIN conversation c ON c.id = m.conversation WHERE m.id > ? AND m.id <= ? ORDER BY m.id LIMIT ?"
)
_OUTPUTS = (
    f"SELECT o.number, o.place, {_CONVERSATION_COLUMNS} FROM output o JOIN conversation c ON c.id = o.conversation"
    " WHERE o.number > ? AND o.number <= ? AND o.is_indexed = 1 ORDER BY o.number LIMIT ?"
)


# So few are indexed within a moment: the first search after an upgrade then misses nothing.
_MAX_TEXTS_INLINE = 1_000


def log_progress(line: str) -> None:
    """Log progress as a warning, so that it is visible by default: a rebuild may take minutes."""
    logging.getLogger(__name__).warning(line)


class Reindexer:
    """Rebuild the search index after the tokenizer changed; resumable and safe to run concurrently."""

    def __init__(self, context: StoreContext, outputs: OutputStore, *, version: int = VERSION) -> None:
        self._context = context
        self._outputs = outputs
        self._version = version

    @property
    def is_needed(self) -> bool:
        """Whether the index is incomplete or of another tokenizer; one small read."""
        progress = self._context.database.read(load_progress)
        return progress.version != self._version or not progress.is_done

    def run(
        self, on_progress: ProgressCallback = log_progress, *, is_stopping: Callable[[], bool] = lambda: False
    ) -> bool:
        """Rebuild the index if needed and return whether it was; between batches `is_stopping` may end it early."""
        progress = self._context.database.read(lambda tx: load_progress(tx, ""))
        if progress.version == self._version and progress.is_done:
            return False
        if progress.version != self._version:
            progress = self._context.database.write(self._begin)
        texts = self.count_texts()
        on_progress(
            f"search: rebuilding the index for {texts:,} texts; interrupting it is safe, it resumes on the next start"
        )
        for step in count(1):
            progress = self._context.database.write(self._batch)
            if progress.is_done:
                break
            if is_stopping():
                return True
            if step % _REPORT_EVERY == 0:
                on_progress(f"search: {progress.share:.0%} of the index is rebuilt")
        on_progress("search: the index is rebuilt")
        return True

    def count_texts(self) -> int:
        """Return how many messages and outputs there are."""
        counts = "SELECT (SELECT COUNT(*) FROM message) + (SELECT COUNT(*) FROM output)"
        return to_int(self._context.database.read(lambda tx: tx.rows(counts))[0][0])

    def _begin(self, tx: Transaction) -> IndexProgress:
        progress = load_progress(tx, self._context.database.dialect.for_update)
        if progress.version == self._version:
            return progress
        for index in ("message", "output"):
            self._context.index.clear(tx, index)
        last_message = tx.rows("SELECT COALESCE(MAX(id), 0) FROM message")[0][0]
        last_output = tx.rows("SELECT COALESCE(MAX(number), 0) FROM output")[0][0]
        return store_progress(tx, IndexProgress(self._version, 0, last_message, 0, last_output))

    def _batch(self, tx: Transaction) -> IndexProgress:
        """Index the next batch; the row lock makes concurrent processes take turns."""
        progress = load_progress(tx, self._context.database.dialect.for_update)
        if progress.message < progress.last_message:
            rows = tx.rows(_MESSAGES, (progress.message, progress.last_message, _BATCH))
            texts = [t for r in rows for t in _message_entry(r)]
            tx.run_many(*self._context.index.insert_step("message", texts))
            reached = rows[-1][0] if len(rows) == _BATCH else progress.last_message
            return store_progress(tx, replace(progress, message=reached))
        outputs = tx.rows(_OUTPUTS, (progress.output, progress.last_output, _OUTPUT_BATCH))
        read = [t for r in outputs for t in self._output_entry(r[0], r[1], conversation_of_row(r[2:]))]
        tx.run_many(*self._context.index.insert_step("output", read))
        reached = outputs[-1][0] if len(outputs) == _OUTPUT_BATCH else progress.last_output
        return store_progress(tx, replace(progress, output=reached))

    def _output_entry(self, number: int, path: str, conversation: Conversation) -> Sequence[tuple[int, IndexedText]]:
        # A missing file must not keep the other outputs from being indexed.
        with suppress(NotFound):
            return [(number, output_tokens("".join(self._outputs.blobs.chunks(path)), conversation))]
        return []


class IndexRebuild:
    """Runs a Reindexer, in a thread unless there is little to index.

    Its progress is stored, so that the next process continues where it stopped.
    """

    def __init__(self, reindexer: Reindexer) -> None:
        self._reindexer = reindexer
        self._thread: threading.Thread | None = None
        self._is_closing = threading.Event()

    def start(self, on_progress: ProgressCallback) -> None:
        """Start if the index needs it; one small read if not."""
        if not self._reindexer.is_needed:
            return
        if self._reindexer.count_texts() <= _MAX_TEXTS_INLINE:
            self._run(on_progress)
            return
        self._thread = threading.Thread(target=self._run, args=(on_progress,), name="store-reindex", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Return when the index is complete."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def close(self) -> None:
        """Stop after the current batch."""
        self._is_closing.set()
        self.wait()

    def _run(self, on_progress: ProgressCallback) -> None:
        # The store may be closed, or its disk full: the next start continues.
        with suppress(StoreError):
            self._reindexer.run(on_progress, is_stopping=self._is_closing.is_set)


def _message_entry(row: Row) -> Iterator[tuple[int, IndexedText]]:
    """Yield the index entry of a message; none for a damaged one, which must not keep the store from opening."""
    with suppress(CorruptStore):
        yield row[0], scoped_text(PreparedMessage.of(decode(*row[1:4])), conversation_of_row(row[4:]))
