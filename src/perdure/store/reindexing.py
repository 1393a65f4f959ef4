"""The text index made anew after the tokenizer changed: in small transactions, taken up again where they were cut off.

What is written meanwhile is indexed by whoever writes it. Several processes that start at once share the work.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import count

from perdure.core.errors import CorruptStore, NotFound
from perdure.store.backing import StoreContext
from perdure.store.codec import decode
from perdure.store.database import Row, Transaction
from perdure.store.drafts import PreparedMessage, scoped
from perdure.store.outputs import OutputStore, output_tokens
from perdure.store.records import Conversation
from perdure.store.rows import CONVERSATION, conversation_of_row
from perdure.store.text_index import IndexedText
from perdure.store.tokenizer import VERSION

Say = Callable[[str], None]

_BATCH = 500
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


def say_in_log(line: str) -> None:
    """Where nobody listens, a warning: it shows on a terminal, for it may take minutes."""
    logging.getLogger(__name__).warning(line)


class Reindexing:
    """Brings the index up to the tokenizer that this Perdure has."""

    def __init__(self, backing: StoreContext, outputs: OutputStore, *, version: int = VERSION) -> None:
        self._backing = backing
        self._outputs = outputs
        self._version = version

    def run(self, say: Say = say_in_log) -> bool:
        """Whether there was anything to do. Costs one small read where there was not."""
        known = self._backing.database.read(lambda tx: self._known(tx, ""))
        if known.version == self._version and known.is_done:
            return False
        if known.version != self._version:
            known = self._backing.database.write(self._begin)
        counts = "SELECT (SELECT COUNT(*) FROM message) + (SELECT COUNT(*) FROM output)"
        texts = self._backing.database.read(lambda tx: tx.rows(counts))[0][0]
        say(f"search: the index is being built anew for {texts:,} texts; nothing is lost, and stopping does no harm")
        for step in count(1):
            known = self._backing.database.write(self._batch)
            if known.is_done:
                break
            if step % _TOLD_EVERY == 0:
                say(f"search: {known.share:.0%} of the index is built")
        say("search: the index is built")
        return True

    def _begin(self, tx: Transaction) -> _Progress:
        known = self._known(tx, self._backing.database.dialect.for_update)
        if known.version == self._version:
            return known
        for index in ("message", "output"):
            self._backing.index.clear(tx, index)
        last_message = tx.rows("SELECT COALESCE(MAX(id), 0) FROM message")[0][0]
        last_output = tx.rows("SELECT COALESCE(MAX(number), 0) FROM output")[0][0]
        return _record(tx, _Progress(self._version, 0, last_message, 0, last_output))

    def _batch(self, tx: Transaction) -> _Progress:
        """The next few texts; another process that is at it too waits for this one's, and then takes those after."""
        known = self._known(tx, self._backing.database.dialect.for_update)
        if known.message < known.last_message:
            rows = tx.rows(_MESSAGES, (known.message, known.last_message, _BATCH))
            texts = [t for r in rows for t in _words(r)]
            tx.run_many(*self._backing.index.addition("message", texts))
            reached = rows[-1][0] if len(rows) == _BATCH else known.last_message
            return _record(tx, replace(known, message=reached))
        outputs = tx.rows(_OUTPUTS, (known.output, known.last_output, _OUTPUT_BATCH))
        read = [t for r in outputs for t in self._output(r[0], r[1], conversation_of_row(r[2:]))]
        tx.run_many(*self._backing.index.addition("output", read))
        reached = outputs[-1][0] if len(outputs) == _OUTPUT_BATCH else known.last_output
        return _record(tx, replace(known, output=reached))

    def _output(self, number: int, place: str, conversation: Conversation) -> Sequence[tuple[int, IndexedText]]:
        # What is gone cannot be found, and must not keep the rest from being found.
        with suppress(NotFound):
            return [(number, output_tokens("".join(self._outputs.shelf.chunks(place)), conversation))]
        return []

    def _known(self, tx: Transaction, lock: str) -> _Progress:
        row = tx.row(f"SELECT value FROM state WHERE scope = 'index' AND key = 'progress'{lock}")
        return _Progress(**json.loads(row[0])) if row else _Progress()


def _words(row: Row) -> Iterator[tuple[int, IndexedText]]:
    """What the index holds of a message; nothing where it is damaged, which must not keep the store from opening."""
    with suppress(CorruptStore):
        yield row[0], scoped(PreparedMessage.of(decode(*row[1:4])), conversation_of_row(row[4:]))


def _record(tx: Transaction, progress: _Progress) -> _Progress:
    tx.run(
        "INSERT INTO state (scope, key, value) VALUES ('index', 'progress', ?)"
        " ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value",
        (json.dumps(asdict(progress)),),
    )
    return progress
