"""Export of one conversation as JSONL of our own: everything that `importing` needs to make it again elsewhere.

{"perdure": "conversation", "version": 1, …}    the conversation; then, one line each:
{"session": …} {"message": …} {"handoff": …} {"call": …} {"event": …} {"output": …}
{"end": 123}                                    how many lines stand before it, so that a cut file is noticed
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from perdure.core.messages import canonical_json
from perdure.store.codec import decode_or_placeholder
from perdure.store.database import Database, Row, Transaction
from perdure.store.ledger import Ledger
from perdure.store.outputs import OutputStore
from perdure.store.records import Conversation, Session, Span
from perdure.store.rows import SESSION, Lineage, lineage_of, places, read_handoffs, session_of_row, spans_of

VERSION = 1
_BATCH = 500
_MESSAGE = "seq, session, kind, body, encoding, key, chained, created_at"


class Exporter:
    """Reads in batches, so that an export of any length needs little memory."""

    def __init__(self, database: Database, ledger: Ledger, outputs: OutputStore) -> None:
        self._database = database
        self._ledger = ledger
        self._outputs = outputs

    def lines(self, conversation: Conversation) -> Iterator[str]:
        """Lines without their newlines. A branch takes along what it shares with its parent."""
        count = 0
        for record in self._records(conversation):
            yield canonical_json(record)
            count += 1
        yield canonical_json({"end": count})

    def _records(self, conversation: Conversation) -> Iterator[dict[str, Any]]:
        alone = replace(conversation, fork_seq=0, parent_id=None)
        yield {"perdure": "conversation", "version": VERSION, "conversation": asdict(alone)}
        shape, lineage = self._database.read(lambda tx: (_shape(tx, conversation), lineage_of(tx, conversation)))
        yield from shape
        yield from self._messages(lineage, conversation.last_seq)
        # Calls and events are numbered by the store they lie in.
        yield from ({"call": asdict(replace(c, id=0))} for c in self._ledger.calls(conversation.id))
        yield from ({"event": asdict(replace(e, id=0))} for e in self._ledger.all_events(conversation.id))
        for output in self._outputs.list(conversation.id):
            text = self._outputs.whole(output.id)
            yield {"output": {"id": output.id, "tool_call_id": output.tool_call_id, "text": text}}

    def _messages(self, lineage: Lineage, last_seq: int) -> Iterator[dict[str, Any]]:
        for start in range(1, last_seq + 1, _BATCH):
            span = Span(start, min(last_seq, start + _BATCH - 1))
            for owner, lo, hi in places(lineage, span):
                yield from self._database.read(_batch(owner, lo, hi))


def _batch(owner: str, lo: int, hi: int) -> Any:
    sql = f"SELECT {_MESSAGE} FROM message WHERE conversation = ? AND seq BETWEEN ? AND ? ORDER BY seq"
    return lambda tx: [_message(row) for row in tx.rows(sql, (owner, lo, hi))]


def _message(row: Row) -> dict[str, Any]:
    seq, session, kind, body, encoding, key, chained, created_at = row
    return {
        "message": {
            "seq": seq,
            "session": session,
            "kind": kind,
            "body": decode_or_placeholder(body, encoding, kind, seq=seq).to_dict(),
            "key": bytes(key).hex(),
            "is_said": bool(chained),
            "created_at_ms": created_at,
        }
    }


def _shape(tx: Transaction, conversation: Conversation) -> list[dict[str, Any]]:
    """Sessions with their spans, and handoffs."""
    sql = f"SELECT {SESSION} FROM session WHERE conversation = ? ORDER BY first_seq, started_at, id"
    sessions = [session_of_row(r) for r in tx.rows(sql, (conversation.id,))]
    handoffs = read_handoffs(tx, lineage_of(tx, conversation))
    return [
        *({"session": _session(tx, s)} for s in sessions),
        *({"handoff": asdict(h)} for _, h in sorted(handoffs.items())),
    ]


def _session(tx: Transaction, session: Session) -> dict[str, Any]:
    return {**asdict(session), "spans": [(s.lo, s.hi) for s in spans_of(tx, session.id)]}
