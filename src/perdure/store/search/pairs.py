"""Tool calls and their results: a result is ranked together with its call, which names the host, file or command.

The two are joined when a search ranks its matches, not in the index: so a call that is redacted or deleted leaves
nothing in the index entries of its results, and an append of a result need not look for its call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure.core.messages import ToolCall
from perdure.store.db.database import Transaction, Value
from perdure.store.encoding import decode_or_placeholder
from perdure.store.search.matches import TextMatch
from perdure.store.search.tokenizer import strings_of

# The best calls and the best results that are joined, and how far apart they may be.
_MAX_JOINED = 20
_MAX_DISTANCE = 16
# Of a call its name and the beginning of each argument.
_ARGUMENT_CHARS = 160
_CALL_CHARS = 320


def call_texts(tx: Transaction, matches: Sequence[TextMatch]) -> dict[int, str]:
    """Return the short form of the call of each result, by the result's id.

    For the results among the best matches, and for the results of calls among them.
    """
    messages = [m for m in matches if m.is_message and not m.relevance.is_echo]
    best = sorted(messages, key=lambda m: (-round(m.relevance.score, 6), -m.row[0]))
    results = {m.row[0]: m for m in [m for m in best if m.row[5] == "tool"][:_MAX_JOINED]}
    callers = [m for m in best if m.row[5] == "assistant"][:_MAX_JOINED]
    calls = {m.row[0]: requested for m in callers if (requested := _calls(m.row[-2], m.row[-1], seq=m.row[4]))}
    pairs = [*results.values(), *(m for m in callers if m.row[0] in calls)]
    texts: dict[int, str] = {}
    rows = tx.rows(_statement(len(pairs)), _values(pairs)) if pairs else ()
    for message_id, ident, body, encoding, seq in rows:
        if message_id in calls:
            texts.update(_pair_texts(calls[message_id], ident, body, encoding))
        else:
            result = results[message_id].row
            texts.update(_pair_texts(_calls(body, encoding, seq=seq), message_id, result[-2], result[-1]))
    return texts


def _calls(body: bytes, encoding: int, *, seq: int) -> Sequence[ToolCall]:
    return decode_or_placeholder(body, encoding, "assistant", seq=seq).tool_calls


def _statement(count: int) -> str:
    """Return the statement that reads, for `count` messages, the message of the call or those of the results.

    One statement for both. Every read is bounded by constants on both sides, so that the database reads a few rows per
    message by the index, however long the conversation is and whatever the planner knows about the table.
    """
    caller = (
        "SELECT m.seq FROM message m WHERE m.conversation = place.conversation AND m.seq < place.seq"
        f" AND m.seq >= place.seq - {_MAX_DISTANCE} AND m.kind = 'assistant' ORDER BY m.seq DESC LIMIT 1"
    )
    following = (
        "SELECT m.seq FROM message m WHERE m.conversation = place.conversation AND m.seq > place.seq"
        f" AND m.seq <= place.seq + {_MAX_DISTANCE} AND m.kind = 'assistant' ORDER BY m.seq LIMIT 1"
    )
    rows = ", ".join(["(CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS TEXT))"] * count)
    return (
        f"WITH place (id, conversation, seq, kind) AS (VALUES {rows}), range (id, conversation, kind, lo, hi) AS ("
        f" SELECT id, conversation, 'assistant', ({caller}), ({caller}) FROM place WHERE kind = 'tool' UNION ALL"
        f" SELECT id, conversation, 'tool', seq + 1, COALESCE(({following}), seq + {_MAX_DISTANCE + 1}) - 1"
        " FROM place WHERE kind = 'assistant')"
        " SELECT range.id, m.id, m.body, m.encoding, m.seq FROM range JOIN message m"
        " ON m.conversation = range.conversation AND m.seq BETWEEN range.lo AND range.hi WHERE m.kind = range.kind"
    )


def _pair_texts(calls: Sequence[ToolCall], ident: int, body: bytes, encoding: int) -> Iterator[tuple[int, str]]:
    """Yield a result's id with the short form of the call it answers."""
    if len(calls) > 1:
        result_of = decode_or_placeholder(body, encoding, "tool", seq=0).tool_call_id
        calls = [c for c in calls if result_of in c.ids]
    if calls:
        yield ident, short_call(calls[0])


def short_call(call: ToolCall) -> str:
    """Return a call's name and the beginning of each argument, on one line."""
    arguments = call.parsed_arguments()
    values = strings_of(list(arguments.values())) if arguments is not None else [call.arguments]
    return " ".join([call.name, *(" ".join(v[:_ARGUMENT_CHARS].split()) for v in values)])[:_CALL_CHARS]


def _values(matches: Sequence[TextMatch]) -> list[Value]:
    return [v for m in matches for v in (m.row[0], m.conversation_id, m.row[4], m.row[5])]
