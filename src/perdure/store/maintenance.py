"""Delete conversations, scrub secrets, rebuild the search index."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count
from typing import Any

from perdure.core.errors import CorruptStore, NotFound
from perdure.core.messages import Message, canonical_json, clean
from perdure.store.changes import record_deletion
from perdure.store.context import StoreContext
from perdure.store.db.database import Row, Transaction, insert, text
from perdure.store.ids import decode, load_payload, pack, unpack
from perdure.store.integrity import copy_scrubbed, record_scrubbed
from perdure.store.leases import admit
from perdure.store.messages import PreparedMessage, scoped_text
from perdure.store.outputs import OutputStore, output_tokens
from perdure.store.queries import (
    CONVERSATION,
    conversation_id_of,
    conversation_of_row,
    get_conversation,
    lineage_of,
    read_checked,
    segments_of,
)
from perdure.store.records import Conversation, Damage, DeleteResult, Lease, Span
from perdure.store.search.index import IndexedText
from perdure.store.search.tokenizer import VERSION

_COPIED = "seq, session, role, kind, body, encoding, chars, key, chained, created_at"
_HANDED_ON = "seq, session, covers, replaced, model, focus, previous, cost_usd, usage, verified, created_at"
_BATCH = 500
# A few seconds' work: all of an ordinary index. A very large one is not rewritten for each conversation that goes.
_MERGED_PAGES = 20_000


class ConversationDeleter:
    """Takes a conversation and its delegated runs away; a branch keeps what it shared."""

    def __init__(self, context: StoreContext, outputs: OutputStore) -> None:
        self._context = context
        self._outputs = outputs

    def delete(self, any_id: str, *, lease: Lease | None = None) -> DeleteResult:
        """Messages, sessions, calls, events, outputs and index; ids ever shown then say when it was deleted."""

        def work(tx: Transaction) -> DeleteResult:
            root, _ = self._context.lock_conversation(tx, any_id)
            admit(tx, root.id, lease, now_ms=self._context.clock.now_ms())
            doomed = [root, *_delegates(tx, root)]
            messages = outputs = 0
            # Children first, so that nothing refers to what is gone.
            for conversation in reversed(doomed):
                self._hand_on(tx, conversation)
                outputs += self._forget_outputs(tx, conversation)
                messages += self._forget(tx, conversation)
            for index in ("message", "output"):
                self._context.index.settle(tx, index, most_pages=_MERGED_PAGES)
            record_deletion(tx)
            return DeleteResult(tuple(c.id for c in doomed), messages, outputs)

        deleted = self._context.database.erase(work)
        for conversation_id in deleted.conversation_ids:
            self._outputs.blobs.remove(conversation_id)
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
                tx.run_many(*self._context.index.addition("message", texts))
            tx.run(
                "UPDATE conversation SET parent = ?, fork_seq = ? WHERE id = ?",
                (conversation.parent_id, min(conversation.fork_seq, branch.fork_seq), branch.id),
            )

    def _forget(self, tx: Transaction, conversation: Conversation) -> int:
        owner, now = conversation.id, self._context.clock.now_ms()
        sessions = [r[0] for r in tx.rows("SELECT id FROM session WHERE conversation = ?", (owner,))]
        for ident in (owner, *sessions):
            insert(tx, "tombstone", {"id": ident, "conversation": owner, "deleted_at": now})
        for texts in _indexed_rows(tx, conversation, up_to=conversation.last_seq):
            self._context.index.remove(tx, "message", texts)
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
                text = "".join(self._outputs.blobs.chunks(place)) if is_indexed else ""
                tokens = output_tokens(text, conversation)
                self._context.index.remove(tx, "output", [(number, tokens)] if is_indexed else [])
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
                texts.append((number, scoped_text(PreparedMessage.of(decode(body, encoding, kind)), conversation)))
        yield texts


Redact = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class ScrubResult:
    """How many bodies and outputs held something to take out."""

    messages: int
    outputs: int


class Scrubber:
    """Redacts everything stored of one conversation: messages, prompts, titles, events, outputs and the index."""

    def __init__(self, context: StoreContext, outputs: OutputStore) -> None:
        self._context = context
        self._outputs = outputs

    def scrub(self, any_id: str, redact: Redact, *, lease: Lease | None = None) -> ScrubResult:
        """One transaction. Keys stay what they were, so that handing in the unredacted history again adds nothing."""

        def work(tx: Transaction) -> tuple[Conversation, int]:
            conversation, _ = self._context.lock_conversation(tx, any_id)
            admit(tx, conversation.id, lease, now_ms=self._context.clock.now_ms())
            tx.run("INSERT INTO permit (conversation, deed) VALUES (?, 'scrub')", (conversation.id,))
            changed = self._messages(tx, conversation, redact)
            _prompts_and_titles(tx, conversation, redact)
            tx.run("DELETE FROM permit WHERE conversation = ?", (conversation.id,))
            self._context.index.settle(tx, "message")
            return conversation, changed

        conversation, changed = self._context.database.erase(work)
        return ScrubResult(changed, self._scrub_outputs(conversation, redact))

    def _messages(self, tx: Transaction, conversation: Conversation, redact: Redact) -> int:
        changed = 0
        numbers = tx.rows("SELECT id, seq FROM message WHERE conversation = ?", (conversation.id,))
        for number, seq in numbers:
            rows = tx.rows("SELECT body, encoding, kind FROM message WHERE id = ?", (number,))
            try:
                before = PreparedMessage.of(decode(*rows[0]))
            except CorruptStore:  # what cannot be read cannot be redacted, and is left for a backup to mend
                continue
            after = PreparedMessage.of(redact_message(before.message, redact))
            if after.body.canonical == before.body.canonical:
                continue
            tx.run(
                "UPDATE message SET body = ?, encoding = ?, chars = ? WHERE id = ?",
                (after.body.stored, after.body.encoding, len(after.message.text), number),
            )
            record_scrubbed(tx, conversation.id, seq, after.body.canonical)
            self._context.index.remove(tx, "message", [(number, scoped_text(before, conversation))])
            tx.run_many(*self._context.index.addition("message", [(number, scoped_text(after, conversation))]))
            changed += 1
        return changed

    def _scrub_outputs(self, conversation: Conversation, redact: Redact) -> int:
        """Each output is written anew under its old id; the old text goes once the new one stands."""
        changed = 0
        for output in self._outputs.list(conversation.id):
            before = self._outputs.whole(output.id)
            after = redact(before)
            if after != before:
                self._outputs.replace(output.id, after)
                changed += 1
        return changed


def redact_message(message: Message, redact: Redact) -> Message:
    """The message with every text in it redacted; arguments that were valid JSON stay so."""
    raw = _walk(message.to_dict(), redact)
    for call, given in zip(raw.get("tool_calls") or (), message.tool_calls, strict=False):
        arguments = given.parsed_arguments()
        if arguments is not None and redact(given.arguments) != given.arguments:
            call["function"]["arguments"] = canonical_json(_walk(arguments, redact))
    return replace(Message.from_dict(raw), kind=message.kind)


def _prompts_and_titles(tx: Transaction, conversation: Conversation, redact: Redact) -> None:
    for ident, stored, encoding in tx.rows(
        "SELECT id, system_prompt, prompt_encoding FROM session WHERE conversation = ?", (conversation.id,)
    ):
        prompt = clean(redact(unpack(stored, encoding).decode())).encode()
        tx.run("UPDATE session SET system_prompt = ?, prompt_encoding = ? WHERE id = ?", (*pack(prompt), ident))
    tx.run(
        "UPDATE conversation SET title = ?, todo = ? WHERE id = ?",
        (text(redact(conversation.title)), text(redact(conversation.todo)), conversation.id),
    )
    for ident, payload in tx.rows("SELECT id, payload FROM event WHERE conversation = ?", (conversation.id,)):
        cleaned = json.dumps(_walk(load_payload(payload), redact), ensure_ascii=True)
        tx.run("UPDATE event SET payload = ? WHERE id = ?", (cleaned, ident))
    for number, content, result in tx.rows(
        "SELECT number, content, result FROM inbox WHERE conversation = ?", (conversation.id,)
    ):
        held = [json.dumps(_walk(json.loads(t), redact), ensure_ascii=True) if t else "" for t in (content, result)]
        tx.run("UPDATE inbox SET content = ?, result = ? WHERE number = ?", (*held, number))


def _walk(value: Any, redact: Redact) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {k: _walk(v, redact) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(v, redact) for v in value]
    return value


ProgressCallback = Callable[[str], None]

# A batch of outputs may be far more text than one of messages.
_OUTPUT_BATCH = 10
_TOLD_EVERY = 20
_OWNED = ", ".join(f"c.{name}" for name in CONVERSATION.split(", "))
_MESSAGES = (
    f"SELECT m.id, m.body, m.encoding, m.kind, {_OWNED} FROM message m JOIN conversation c ON c.id = m.conversation"
    " WHERE m.id > ? AND m.id <= ? ORDER BY m.id LIMIT ?"
)
_OUTPUTS = (
    f"SELECT o.number, o.place, {_OWNED} FROM output o JOIN conversation c ON c.id = o.conversation"
    " WHERE o.number > ? AND o.number <= ? AND o.is_indexed = 1 ORDER BY o.number LIMIT ?"
)


@dataclass(frozen=True, slots=True)
class _Progress:
    """How far the index has come; nothing is left to do where both ends are reached."""

    version: int = 1
    message: int = 0
    last_message: int = 0
    output: int = 0
    last_output: int = 0

    @property
    def is_done(self) -> bool:
        return self.message >= self.last_message and self.output >= self.last_output

    @property
    def share(self) -> float:
        return (self.message + self.output) / max(1, self.last_message + self.last_output)


def log_progress(line: str) -> None:
    """Where nobody listens, a warning: it shows on a terminal, for it may take minutes."""
    logging.getLogger(__name__).warning(line)


class Reindexer:
    """Brings the index up to the tokenizer that this Perdure has."""

    def __init__(self, context: StoreContext, outputs: OutputStore, *, version: int = VERSION) -> None:
        self._context = context
        self._outputs = outputs
        self._version = version

    def run(self, say: ProgressCallback = log_progress) -> bool:
        """Whether there was anything to do. Costs one small read where there was not."""
        known = self._context.database.read(lambda tx: self._known(tx, ""))
        if known.version == self._version and known.is_done:
            return False
        if known.version != self._version:
            known = self._context.database.write(self._begin)
        counts = "SELECT (SELECT COUNT(*) FROM message) + (SELECT COUNT(*) FROM output)"
        texts = self._context.database.read(lambda tx: tx.rows(counts))[0][0]
        say(f"search: the index is being built anew for {texts:,} texts; nothing is lost, and stopping does no harm")
        for step in count(1):
            known = self._context.database.write(self._batch)
            if known.is_done:
                break
            if step % _TOLD_EVERY == 0:
                say(f"search: {known.share:.0%} of the index is built")
        say("search: the index is built")
        return True

    def _begin(self, tx: Transaction) -> _Progress:
        known = self._known(tx, self._context.database.dialect.for_update)
        if known.version == self._version:
            return known
        for index in ("message", "output"):
            self._context.index.clear(tx, index)
        last_message = tx.rows("SELECT COALESCE(MAX(id), 0) FROM message")[0][0]
        last_output = tx.rows("SELECT COALESCE(MAX(number), 0) FROM output")[0][0]
        return _record(tx, _Progress(self._version, 0, last_message, 0, last_output))

    def _batch(self, tx: Transaction) -> _Progress:
        """The next few texts; another process that is at it too waits for this one's, and then takes those after."""
        known = self._known(tx, self._context.database.dialect.for_update)
        if known.message < known.last_message:
            rows = tx.rows(_MESSAGES, (known.message, known.last_message, _BATCH))
            texts = [t for r in rows for t in _words(r)]
            tx.run_many(*self._context.index.addition("message", texts))
            reached = rows[-1][0] if len(rows) == _BATCH else known.last_message
            return _record(tx, replace(known, message=reached))
        outputs = tx.rows(_OUTPUTS, (known.output, known.last_output, _OUTPUT_BATCH))
        read = [t for r in outputs for t in self._output(r[0], r[1], conversation_of_row(r[2:]))]
        tx.run_many(*self._context.index.addition("output", read))
        reached = outputs[-1][0] if len(outputs) == _OUTPUT_BATCH else known.last_output
        return _record(tx, replace(known, output=reached))

    def _output(self, number: int, place: str, conversation: Conversation) -> Sequence[tuple[int, IndexedText]]:
        # What is gone cannot be found, and must not keep the rest from being found.
        with suppress(NotFound):
            return [(number, output_tokens("".join(self._outputs.blobs.chunks(place)), conversation))]
        return []

    def _known(self, tx: Transaction, lock: str) -> _Progress:
        row = tx.row(f"SELECT value FROM state WHERE scope = 'index' AND key = 'progress'{lock}")
        return _Progress(**json.loads(row[0])) if row else _Progress()


def _words(row: Row) -> Iterator[tuple[int, IndexedText]]:
    """What the index holds of a message; nothing where it is damaged, which must not keep the store from opening."""
    with suppress(CorruptStore):
        yield row[0], scoped_text(PreparedMessage.of(decode(*row[1:4])), conversation_of_row(row[4:]))


def _record(tx: Transaction, progress: _Progress) -> _Progress:
    tx.run(
        "INSERT INTO state (scope, key, value) VALUES ('index', 'progress', ?)"
        " ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value",
        (json.dumps(asdict(progress)),),
    )
    return progress


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    """Some messages of one conversation, and what is wrong with them."""

    conversation_id: str
    messages: int
    damage: tuple[Damage, ...]


class Verifier:
    """Says which stored messages are damaged. Reads only."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context

    def conversation(self, any_id: str) -> list[Damage]:
        """Everything of one conversation, with what a branch shares."""
        ident = self._context.database.read(lambda tx: conversation_id_of(tx, any_id))
        return [damage for batch in self._batches(ident, is_whole=True) for damage in batch.damage]

    def everything(self) -> Iterator[CheckedBatch]:
        """Every conversation, last used first; stop whenever it has taken long enough."""
        sql = "SELECT id FROM conversation ORDER BY updated_at DESC, id DESC"
        for (ident,) in self._context.database.read(lambda tx: tx.rows(sql)):
            try:
                yield from self._batches(ident, is_whole=False)
            except NotFound:  # deleted meanwhile
                continue

    def _batches(self, conversation_id: str, *, is_whole: bool) -> Iterator[CheckedBatch]:
        found = self._context.database.read(lambda tx: get_conversation(tx, conversation_id))
        first = 1 if is_whole else found.fork_seq + 1
        for lo in range(first, found.last_seq + 1, _BATCH):
            span = Span(lo, min(found.last_seq, lo + _BATCH - 1))
            yield self._context.database.read(partial(_check, conversation_id=conversation_id, span=span))


def _check(tx: Transaction, *, conversation_id: str, span: Span) -> CheckedBatch:
    lineage = lineage_of(tx, get_conversation(tx, conversation_id))
    entries, damage = read_checked(tx, lineage, [span])
    known = {e.seq for e in entries}
    missing = [
        Damage(owner, seq, "missing")
        for owner, lo, hi in segments_of(lineage, span)
        for seq in range(lo, hi + 1)
        if seq not in known
    ]
    return CheckedBatch(conversation_id, len(entries), (*damage, *missing))
