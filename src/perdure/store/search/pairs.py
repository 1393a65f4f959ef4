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
    results = [m for m in best if m.row[5] == "tool"][:_MAX_JOINED]
    callers = [m for m in best if m.row[5] == "assistant"][:_MAX_JOINED]
    return {**dict(_of_results(tx, results)), **dict(_of_callers(tx, callers))}


def _of_results(tx: Transaction, results: Sequence[TextMatch]) -> Iterator[tuple[int, str]]:
    """Yield the ids of results with the calls in the assistant's message before them."""
    if not results:
        return
    caller = (
        "SELECT m.id FROM message m WHERE m.conversation = place.conversation AND m.seq < place.seq"
        f" AND m.seq >= place.seq - {_MAX_DISTANCE} AND m.kind = 'assistant' ORDER BY m.seq DESC LIMIT 1"
    )
    sql = (
        f"WITH place (id, conversation, seq) AS (VALUES {_places(results)}), caller (id, message) AS"
        f" (SELECT id, ({caller}) FROM place) SELECT caller.id, m.body, m.encoding, m.seq FROM caller"
        " JOIN message m ON m.id = caller.message"
    )
    stored = {ident: row for ident, *row in tx.rows(sql, _values(results))}
    for match in results:
        if match.row[0] in stored:
            body, encoding, seq = stored[match.row[0]]
            calls = decode_or_placeholder(body, encoding, "assistant", seq=seq).tool_calls
            yield from _joined(calls, match.row[0], match.row[-2], match.row[-1])


def _of_callers(tx: Transaction, callers: Sequence[TextMatch]) -> Iterator[tuple[int, str]]:
    """Yield the ids of the results after messages with calls, and the calls."""
    calls: dict[int, Sequence[ToolCall]] = {}
    for match in callers:
        message = decode_or_placeholder(match.row[-2], match.row[-1], "assistant", seq=match.row[4])
        if message.tool_calls:
            calls[match.row[0]] = message.tool_calls
    with_calls = [m for m in callers if m.row[0] in calls]
    if not with_calls:
        return
    sql = (
        f"WITH place (id, conversation, seq) AS (VALUES {_places(with_calls)}) SELECT place.id, m.id, m.body,"
        " m.encoding FROM place JOIN message m ON m.conversation = place.conversation AND m.seq > place.seq"
        f" AND m.seq <= place.seq + {_MAX_DISTANCE} WHERE m.kind = 'tool' AND NOT EXISTS (SELECT 1 FROM message n"
        " WHERE n.conversation = m.conversation AND n.seq > place.seq AND n.seq < m.seq AND n.kind = 'assistant')"
    )
    for caller, ident, body, encoding in tx.rows(sql, _values(with_calls)):
        yield from _joined(calls[caller], ident, body, encoding)


def _joined(calls: Sequence[ToolCall], ident: int, body: bytes, encoding: int) -> Iterator[tuple[int, str]]:
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


def _places(matches: Sequence[TextMatch]) -> str:
    """Return a parameter list."""
    return ", ".join("(CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT))" for _ in matches)


def _values(matches: Sequence[TextMatch]) -> list[Value]:
    """Return its argument values."""
    return [v for m in matches for v in (m.row[0], m.conversation_id, m.row[4])]
