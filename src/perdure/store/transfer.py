"""Export and import conversations, as Perdure's JSONL or as OpenAI-style message lists."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from perdure.core.arguments import LABEL, MESSAGES, TEXT, check_arguments
from perdure.core.errors import CorruptStore, NotFound, StoreError
from perdure.core.messages import Message, canonical_json
from perdure.core.usage import CanonicalUsage
from perdure.core.visibility import OWNER, AnyUser, user_from_key
from perdure.store.conversations import Conversations, insert_conversation, insert_session
from perdure.store.db.database import Database, Row, Transaction, to_bytes, to_text, to_time_ms
from perdure.store.encoding import (
    BODY_KEY_BYTES,
    FIRST_KEY,
    body_key,
    decode_or_placeholder,
    ingest_key,
    record_scrubbed,
    to_tool_state,
)
from perdure.store.ledger import Ledger, insert_call, insert_event
from perdure.store.messages import AnyMessage, MessageLog, PreparedMessage, insert_step, reserve_ids, scoped_text
from perdure.store.outputs import OutputStore
from perdure.store.queries import (
    CONVERSATION_SCOPE,
    SESSION,
    Lineage,
    ScopedState,
    StoreContext,
    add_handoff,
    lineage_of,
    read_handoffs,
    session_of_row,
    spans_of,
)
from perdure.store.records import CallRecord, Conversation, RouteRecord, Session, Span, StoredEvent, StoredHandoff

VERSION = 1
# In the state of an imported conversation: its first message, where the system prompt is not all of it.
_SYSTEM_MESSAGE = "system_message"
_BATCH = 500
_MESSAGE = "seq, session, kind, body, encoding, key, chained, created_at, tool_state"


class Exporter:
    """Serialize a conversation to JSONL in batches, with constant memory."""

    def __init__(self, database: Database, ledger: Ledger, outputs: OutputStore) -> None:
        self._database = database
        self._ledger = ledger
        self._outputs = outputs

    def lines(self, conversation: Conversation) -> Iterator[str]:
        """Yield JSON lines without newlines; a branch includes the messages it shares with its parent."""
        count = 0
        for record in self._records(conversation):
            yield canonical_json(record)
            count += 1
        yield canonical_json({"end": count})

    def _records(self, conversation: Conversation) -> Iterator[dict[str, Any]]:
        detached = replace(conversation, fork_seq=0, parent_id=None)
        yield {"perdure": "conversation", "version": VERSION, "conversation": _export_conversation(detached)}
        structure, lineage = self._database.read(
            lambda tx: (_structure(tx, conversation), lineage_of(tx, conversation))
        )
        yield from structure
        yield from self._messages(lineage)
        # Ids of calls and events are specific to a database.
        yield from ({"call": asdict(replace(c, id=0))} for c in self._ledger.calls(conversation.id))
        yield from ({"event": asdict(replace(e, id=0))} for e in self._ledger.all_events(conversation.id))
        for output in self._outputs.list(conversation.id):
            try:
                text = self._outputs.whole(output.id)
            except (NotFound, CorruptStore) as error:  # the rest of the conversation is exported
                text = f"[{error}]"
            yield {"output": {"id": output.id, "tool_call_id": output.tool_call_id, "text": text}}

    def _messages(self, lineage: Lineage) -> Iterator[dict[str, Any]]:
        for owner, lo, hi in reversed(lineage):
            after = lo - 1
            # By the stored messages, not by their numbers: a damaged end of the log may be far beyond the last one.
            while batch := self._database.read(_batch(owner, after, hi)):
                yield from batch
                after = batch[-1]["message"]["seq"]


def _batch(owner: str, after: int, hi: int) -> Callable[[Transaction], list[dict[str, Any]]]:
    def load(tx: Transaction) -> list[dict[str, Any]]:
        sql = f"SELECT {_MESSAGE} FROM message WHERE conversation = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
        with suppress(CorruptStore):
            return [_message(row) for row in tx.rows(sql, (owner, after, hi, _BATCH))]
        seqs = tx.rows(
            "SELECT seq FROM message WHERE conversation = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
            (owner, after, hi, _BATCH),
        )
        return [_readable(tx, owner, seq) for (seq,) in seqs]

    return load


def _readable(tx: Transaction, owner: str, seq: int) -> dict[str, Any]:
    """Return a message of a damaged batch, or a placeholder for one that the database cannot read."""
    with suppress(CorruptStore):
        row = tx.row(f"SELECT {_MESSAGE} FROM message WHERE conversation = ? AND seq = ?", (owner, seq))
        if row is not None:
            return _message(row)
    return _message((seq, "", "user", b"", 0, b"", 1, 0, None))


def _message(row: Row) -> dict[str, Any]:
    seq, session, kind, body, encoding, key, chained, created_at, tool_state = row
    message = decode_or_placeholder(body, encoding, kind, seq=seq, tool_state=tool_state)
    # Only where it is known: the rest of an export stays as older versions wrote it.
    state = {} if message.tool_state is None else {"tool_state": message.tool_state}
    return {
        "message": {
            **state,
            "seq": seq,
            "session": to_text(session),
            "kind": message.kind,
            "body": message.to_dict(),
            "key": to_bytes(key).hex(),
            "is_said": bool(chained),
            "created_at_ms": to_time_ms(created_at),
        }
    }


def _structure(tx: Transaction, conversation: Conversation) -> list[dict[str, Any]]:
    """Return the records of sessions with their spans, and of handoffs."""
    sql = f"SELECT {SESSION} FROM session WHERE conversation = ? ORDER BY first_seq, started_at, id"
    sessions = [session_of_row(r) for r in tx.rows(sql, (conversation.id,))]
    handoffs = read_handoffs(tx, lineage_of(tx, conversation))
    return [
        *({"session": _session(tx, s)} for s in sessions),
        *({"handoff": asdict(h)} for _, h in sorted(handoffs.items())),
    ]


def _session(tx: Transaction, session: Session) -> dict[str, Any]:
    return {**asdict(session), "spans": [(s.lo, s.hi) for s in spans_of(tx, session.id)]}


Records = Mapping[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Importer:
    context: StoreContext
    outputs: OutputStore

    def run(self, lines: Iterable[str]) -> Conversation:
        """Import a conversation under its own ids; importing it again adds nothing.

        Raises StoreError, without changes, for a truncated or invalid file, or when the id exists with another log.
        """
        return self._run(parse_export(lines), {})

    def run_as_copy(self, lines: Iterable[str]) -> Conversation:
        """Import a copy of the conversation under new ids."""
        records = parse_export(lines)
        new = {records["conversation"][0]["id"]: self.context.ids.new("c_")}
        new |= {s["id"]: self.context.ids.new("s_") for s in records["session"]}
        return self._run(records, new)

    def _run(self, records: Records, renamed: Mapping[str, str]) -> Conversation:
        try:
            conversation = _parse_conversation(records, renamed)
            prepared = [(raw, _prepare(raw)) for raw in records["message"]]
            self.context.database.write(lambda tx: self._write(tx, records, conversation, prepared, renamed))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(
                f"the file is not an export of a conversation ({error!r}); nothing was imported"
            ) from error
        # After the rows and one by one: importing again completes what a crash interrupted.
        for output in records["output"]:
            self.outputs.restore(conversation, output["id"], output["tool_call_id"], output["text"])
        return conversation

    def _write(
        self,
        tx: Transaction,
        records: Records,
        conversation: Conversation,
        prepared: list[tuple[dict[str, Any], PreparedMessage]],
        renamed: Mapping[str, str],
    ) -> None:
        """Insert all rows, or nothing when the conversation is already stored."""
        if tx.row("SELECT 1 FROM conversation WHERE id = ?", (conversation.id,)):
            _check_same_log(tx, conversation.id, prepared)
            return
        originals = [raw for raw in records["message"] if raw["is_said"]]
        insert_conversation(tx, conversation, key=bytes.fromhex(originals[-1]["key"]) if originals else FIRST_KEY)
        for raw in records["session"]:
            insert_session(tx, _parse_session(raw, renamed), tuple(Span(*s) for s in raw["spans"]))
        rows, texts = [], []
        reserved = reserve_ids(tx, self.context.database.dialect, conversation, len(prepared))
        previous = FIRST_KEY
        for number, (raw, message) in zip(reserved.numbers, prepared, strict=True) if prepared else ():
            session, key = renamed.get(raw["session"], raw["session"]), bytes.fromhex(raw["key"])
            if raw["is_said"]:
                if ingest_key(previous, message.body.canonical) != key:  # it was scrubbed before the export
                    record_scrubbed(tx, conversation.id, raw["seq"], message.body.canonical)
                previous = key
            elif len(key) == BODY_KEY_BYTES and body_key(message.body.canonical) != key:
                record_scrubbed(tx, conversation.id, raw["seq"], message.body.canonical)
            row = message.row(
                number, conversation_id=conversation.id, seq=raw["seq"], session_id=session, key=key,
                now_ms=raw["created_at_ms"], is_original=raw["is_said"],
            )  # fmt: skip
            rows.append(row)
            texts.append((number, scoped_text(message, conversation)))
        tx.run_many(*insert_step(rows))
        tx.run_many(*self.context.index.insert_step("message", texts))
        for raw in records["handoff"]:
            add_handoff(tx, _parse_handoff(raw, conversation.id, renamed))
        for raw in records["call"]:
            insert_call(tx, conversation.id, _parse_call(raw, renamed))
        for raw in records["event"]:
            session = renamed.get(raw["session_id"], raw["session_id"])
            insert_event(tx, conversation.id, StoredEvent(**{**raw, "session_id": session}))


def parse_export(lines: Iterable[str]) -> Records:
    """Parse an export into records by kind. Raises StoreError for an invalid or truncated file."""
    records: dict[str, list[dict[str, Any]]] = defaultdict(list)
    count, end = 0, None
    for line in lines:
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise StoreError(f"line {count + 1} is not JSON ({error}); nothing was imported") from error
        if not isinstance(record, dict) or (count == 0 and record.get("perdure") != "conversation"):
            raise StoreError("this is not an export of a Perdure conversation; nothing was imported")
        if count == 0 and record.get("version") != VERSION:
            raise StoreError(f"the export has version {record.get('version')}; this Perdure reads {VERSION}")
        if "end" in record:
            end = record["end"]
            break
        for kind, value in record.items():
            if isinstance(value, dict):
                records[kind].append(value)
        count += 1
    if end != count:
        raise StoreError("the export is truncated: its last line is missing; nothing was imported")
    return records


def _check_same_log(
    tx: Transaction, conversation_id: str, prepared: list[tuple[dict[str, Any], PreparedMessage]]
) -> None:
    stored = {
        seq: bytes(key)
        for seq, key in tx.rows("SELECT seq, key FROM message WHERE conversation = ?", (conversation_id,))
    }
    if any(stored.get(raw["seq"]) != bytes.fromhex(raw["key"]) for raw, _ in prepared):
        raise StoreError(f"{conversation_id} already exists and differs; import it as a copy")


def _export_conversation(conversation: Conversation) -> dict[str, Any]:
    fields = asdict(conversation)
    del fields["user"]
    return {**fields, "user_key": conversation.user.stored_key}


def _parse_conversation(records: Records, renamed: Mapping[str, str]) -> Conversation:
    fields = dict(records["conversation"][0])
    user = user_from_key(fields.pop("user_key", ""))
    new = Conversation(**fields, user=user)
    tip = renamed.get(new.tip_session_id, new.tip_session_id)
    return replace(new, id=renamed.get(new.id, new.id), tip_session_id=tip)


def _prepare(raw: Mapping[str, Any]) -> PreparedMessage:
    message = Message.from_dict(raw["body"])
    state = to_tool_state(raw.get("tool_state")) if message.role == "tool" else None
    return PreparedMessage.of(replace(message, kind=raw["kind"], tool_state=state))


def _parse_session(raw: Mapping[str, Any], renamed: Mapping[str, str]) -> Session:
    fields = {k: v for k, v in raw.items() if k != "spans"}
    fields["route"] = RouteRecord(**fields["route"])
    for key in ("id", "conversation_id", "parent_id"):
        fields[key] = renamed.get(fields[key], fields[key])
    return Session(**fields)


def _parse_handoff(raw: Mapping[str, Any], conversation_id: str, renamed: Mapping[str, str]) -> StoredHandoff:
    covers, replaced = (tuple(Span(**s) for s in raw[name]) for name in ("covers", "replaced"))
    session = renamed.get(raw["session_id"], raw["session_id"])
    changes = {"conversation_id": conversation_id, "session_id": session, "covers": covers, "replaced": replaced}
    return StoredHandoff(**{**raw, **changes, "usage": CanonicalUsage(**raw["usage"])})


def _parse_call(raw: Mapping[str, Any], renamed: Mapping[str, str]) -> CallRecord:
    changes = {"session_id": renamed.get(raw["session_id"], raw["session_id"]), "route": RouteRecord(**raw["route"])}
    return CallRecord(**{**raw, **changes, "usage": CanonicalUsage(**raw["usage"])})


class Transfer:
    """Export and import of conversations."""

    def __init__(
        self,
        context: StoreContext,
        *,
        conversations: Conversations,
        log: MessageLog,
        ledger: Ledger,
        outputs: OutputStore,
    ) -> None:
        self._context = context
        self._conversations = conversations
        self._log = log
        self._exporter = Exporter(context.database, ledger, outputs)
        self._importer = Importer(context, outputs)

    def export_jsonl(self, any_id: str) -> Iterator[str]:
        """Yield everything stored of a conversation as JSON lines."""
        return self._exporter.lines(self._conversations.get(any_id))

    def import_jsonl(self, lines: Iterable[str]) -> Conversation:
        """Import the lines of `export_jsonl` under their own ids; importing again adds nothing. Raises StoreError."""
        return self._importer.run(lines)

    def import_copy(self, lines: Iterable[str]) -> Conversation:
        """Import the lines of `export_jsonl` as a copy under new ids. Raises StoreError."""
        return self._importer.run_as_copy(lines)

    def export_messages(self, any_id: str) -> list[dict[str, Any]]:
        """Return all original messages as an OpenAI-style list, starting with the system prompt."""
        conversation = self._conversations.get(any_id)
        try:
            prompt = self._conversations.session(conversation.tip_session_id).system_prompt
        except NotFound:  # its session row is damaged
            prompt = ""
        system = [self._system_message(conversation.id, prompt)] if prompt else []
        return system + [e.message.to_dict() for e in self._log.originals(conversation.id)]

    @check_arguments(messages=MESSAGES, source=LABEL, title=TEXT)
    def import_messages(
        self, messages: Sequence[AnyMessage], *, source: str = "import", user: AnyUser = OWNER, title: str = ""
    ) -> Session:
        """Create a conversation from an OpenAI-style list; a leading system message becomes the system prompt.

        Its other keys are stored beside it, for the export.
        """
        values = [Message.from_dict(m) for m in messages]
        has_prompt = bool(values) and values[0].role in ("system", "developer")
        prompt = values[0].text if has_prompt else ""
        session = self._conversations.create(system_prompt=prompt, source=source, user=user, title=title)
        self._log.append(session.id, values[1:] if has_prompt else values)
        if has_prompt and prompt and (raw := values[0].to_dict()) != {"role": "system", "content": prompt}:
            self._state(session.conversation_id).set(_SYSTEM_MESSAGE, json.loads(canonical_json(raw)))
        return session

    def _system_message(self, conversation_id: str, prompt: str) -> dict[str, Any]:
        """Return the system prompt as a message: the one that was imported, if it is still the same."""
        imported = self._state(conversation_id).get(_SYSTEM_MESSAGE)
        if isinstance(imported, dict) and Message.from_dict(imported).text == prompt:
            return imported
        return {"role": "system", "content": prompt}

    def _state(self, conversation_id: str) -> ScopedState:
        return ScopedState(self._context, f"{CONVERSATION_SCOPE}{conversation_id}")
