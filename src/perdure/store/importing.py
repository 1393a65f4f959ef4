"""Import of what `exporting` wrote: in one transaction, under its own ids or as a copy, never over another log."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from perdure.core.errors import StoreError
from perdure.core.messages import Message
from perdure.core.usage import CanonicalUsage
from perdure.store.backing import StoreContext
from perdure.store.codec import BODY_KEY_BYTES, FIRST_KEY, body_key, ingest_key
from perdure.store.conversations import insert_conversation, insert_session
from perdure.store.database import Transaction
from perdure.store.drafts import PreparedMessage, insertion, make_room, scoped
from perdure.store.exporting import VERSION
from perdure.store.integrity import record_scrubbed
from perdure.store.ledger import insert_call, insert_event
from perdure.store.outputs import OutputStore
from perdure.store.records import CallRecord, Conversation, RouteRecord, Session, Span, StoredEvent, StoredHandoff
from perdure.store.rows import add_handoff

Records = Mapping[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Importer:
    backing: StoreContext
    outputs: OutputStore

    def run(self, lines: Iterable[str]) -> Conversation:
        """The conversation under its own ids; importing it again adds nothing.

        Raises StoreError, with nothing changed, for a cut or foreign file, or where another log bears the same id.
        """
        return self._run(parsed(lines), {})

    def run_as_copy(self, lines: Iterable[str]) -> Conversation:
        """The same conversation once more, under new ids."""
        records = parsed(lines)
        new = {records["conversation"][0]["id"]: self.backing.ids.new("c_")}
        new |= {s["id"]: self.backing.ids.new("s_") for s in records["session"]}
        return self._run(records, new)

    def _run(self, records: Records, renamed: Mapping[str, str]) -> Conversation:
        try:
            conversation = _conversation(records, renamed)
            drafts = [(m, _draft(m)) for m in records["message"]]
            self.backing.database.write(lambda tx: self._write(tx, records, conversation, drafts, renamed))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(f"the file is no export of a conversation ({error!r}); nothing was imported") from error
        # After the rows, each on its own: importing once more brings what a crash in between left out.
        for output in records["output"]:
            self.outputs.restore(conversation, output["id"], output["tool_call_id"], output["text"])
        return conversation

    def _write(
        self,
        tx: Transaction,
        records: Records,
        conversation: Conversation,
        drafts: list[tuple[dict[str, Any], PreparedMessage]],
        renamed: Mapping[str, str],
    ) -> None:
        """Adds nothing where the same log is here already."""
        if tx.row("SELECT 1 FROM conversation WHERE id = ?", (conversation.id,)):
            _refuse_other(tx, conversation.id, drafts)
            return
        said = [m for m in records["message"] if m["is_said"]]
        insert_conversation(tx, conversation, key=bytes.fromhex(said[-1]["key"]) if said else FIRST_KEY)
        for raw in records["session"]:
            insert_session(tx, _session(raw, renamed), tuple(Span(*s) for s in raw["spans"]))
        rows, texts = [], []
        room = make_room(tx, self.backing.database.dialect, conversation, len(drafts))
        previous = FIRST_KEY
        for number, (m, draft) in zip(room.numbers, drafts, strict=True) if drafts else ():
            session, key = renamed.get(m["session"], m["session"]), bytes.fromhex(m["key"])
            if m["is_said"]:
                if ingest_key(previous, draft.body.canonical) != key:  # it was scrubbed where it comes from
                    record_scrubbed(tx, conversation.id, m["seq"], draft.body.canonical)
                previous = key
            elif len(key) == BODY_KEY_BYTES and body_key(draft.body.canonical) != key:
                record_scrubbed(tx, conversation.id, m["seq"], draft.body.canonical)
            row = draft.row(
                number, conversation_id=conversation.id, seq=m["seq"], session_id=session, key=key,
                now_ms=m["created_at_ms"], is_said=m["is_said"],
            )  # fmt: skip
            rows.append(row)
            texts.append((number, scoped(draft, conversation)))
        tx.run_many(*insertion(rows))
        tx.run_many(*self.backing.index.addition("message", texts))
        for raw in records["handoff"]:
            add_handoff(tx, _handoff(raw, conversation.id, renamed))
        for raw in records["call"]:
            insert_call(tx, conversation.id, _call(raw, renamed))
        for raw in records["event"]:
            session = renamed.get(raw["session_id"], raw["session_id"])
            insert_event(tx, conversation.id, StoredEvent(**{**raw, "session_id": session}))


def parsed(lines: Iterable[str]) -> Records:
    """The records of an export, by kind. Raises StoreError for anything else."""
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
            raise StoreError("this is no export of a Perdure conversation; nothing was imported")
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
        raise StoreError("the export is cut off: its last line is missing; nothing was imported")
    return records


def _refuse_other(tx: Transaction, conversation_id: str, drafts: list[tuple[dict[str, Any], PreparedMessage]]) -> None:
    known = {
        seq: bytes(key)
        for seq, key in tx.rows("SELECT seq, key FROM message WHERE conversation = ?", (conversation_id,))
    }
    if any(known.get(m["seq"]) != bytes.fromhex(m["key"]) for m, _ in drafts):
        raise StoreError(f"{conversation_id} is here already and differs; import it as a copy")


def _conversation(records: Records, renamed: Mapping[str, str]) -> Conversation:
    new = Conversation(**records["conversation"][0])
    tip = renamed.get(new.tip_session_id, new.tip_session_id)
    return replace(new, id=renamed.get(new.id, new.id), tip_session_id=tip)


def _draft(raw: Mapping[str, Any]) -> PreparedMessage:
    return PreparedMessage.of(replace(Message.from_dict(raw["body"]), kind=raw["kind"]))


def _session(raw: Mapping[str, Any], renamed: Mapping[str, str]) -> Session:
    fields = {k: v for k, v in raw.items() if k != "spans"}
    fields["route"] = RouteRecord(**fields["route"])
    for key in ("id", "conversation_id", "parent_id"):
        fields[key] = renamed.get(fields[key], fields[key])
    return Session(**fields)


def _handoff(raw: Mapping[str, Any], conversation_id: str, renamed: Mapping[str, str]) -> StoredHandoff:
    covers, replaced = (tuple(Span(**s) for s in raw[name]) for name in ("covers", "replaced"))
    session = renamed.get(raw["session_id"], raw["session_id"])
    known = {"conversation_id": conversation_id, "session_id": session, "covers": covers, "replaced": replaced}
    return StoredHandoff(**{**raw, **known, "usage": CanonicalUsage(**raw["usage"])})


def _call(raw: Mapping[str, Any], renamed: Mapping[str, str]) -> CallRecord:
    known = {"session_id": renamed.get(raw["session_id"], raw["session_id"]), "route": RouteRecord(**raw["route"])}
    return CallRecord(**{**raw, **known, "usage": CanonicalUsage(**raw["usage"])})
