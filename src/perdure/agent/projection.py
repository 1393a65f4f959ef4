"""Project the view to request messages. Never stored; the same view yields the same bytes.

The log keeps the original messages; here they are made sendable (`core.rules`): equal neighbours merge into parts, a
call without a result gets a stub, recalled passages are attached to the message they belong to. Appending costs O(new):
a message that keeps the rules is added as it is, one that breaks them re-projects the current turn only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from perdure.core import rules
from perdure.core.messages import Entry, TextPart


class Projection:
    """The request messages of one session, kept in step with its history.

    Entries that need no mending are passed through as the same objects, so that what was computed of them (wire bytes,
    sizes) is never computed again.
    """

    def __init__(self, entries: Iterable[Entry] = (), *, sidecars: Mapping[int, str] | None = None) -> None:
        self._sidecars = dict(sidecars or {})
        # The history with sidecars beside their messages, and the same with every rule kept.
        self._view: list[Entry] = []
        self._sent: list[Entry] = []
        # Position of the last user message in each: everything before it is final.
        self._turn_view = 0
        self._turn_sent = 0
        self._check = rules.HistoryCheck()
        self._is_clean = True
        self.extend(entries)

    def attach(self, seq: int, passage: str) -> None:
        """A recalled passage goes with message `seq`, which has not been appended yet."""
        self._sidecars[seq] = passage

    def extend(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.append(entry)

    def append(self, entry: Entry) -> None:
        """Adds a message at the end of the history."""
        sent = self._with_sidecar(entry)
        starts_turn = sent.message.role == "user" and self._is_clean and self._check.is_settled
        if self._is_clean and self._check.push(sent.message):
            if starts_turn:
                self._turn_view, self._turn_sent = len(self._view), len(self._sent)
            self._sent.append(sent)
        else:
            self._is_clean = False
        self._view.append(sent)

    def replace(self, changed: Iterable[tuple[Entry, Entry]]) -> None:
        """Messages are sent in another form from now on: (old, new) each, usually among the newest."""
        new_by_old = {id(old.message): new for old, new in changed}
        count = _swap(self._view, new_by_old)
        if _swap(self._sent, new_by_old) < count:
            # One of them was mended together with its neighbours: everything is projected again.
            self._turn_view = self._turn_sent = 0
            self._is_clean = False

    def entries(self) -> Sequence[Entry]:
        """What is sent, every history rule kept. Call it only between a turn's steps, when all results are in."""
        if not self._is_clean or not self._check.is_settled:
            self._mend_turn()
        return self._sent

    def _mend_turn(self) -> None:
        """Re-projects what came since the last settled user message; what was sent before it stays as it was."""
        del self._sent[self._turn_sent :]
        self._sent += _repaired(self._view[self._turn_view :])
        self._check = rules.HistoryCheck()
        for entry in self._sent[self._turn_sent :]:
            self._check.push(entry.message)
        self._is_clean = True

    def _with_sidecar(self, entry: Entry) -> Entry:
        recalled = self._sidecars.get(entry.seq)
        if recalled is None:
            return entry
        message = entry.message
        return Entry(entry.seq, message.with_content((*message.parts, TextPart(recalled))), entry.created_at_ms)


def project(entries: Sequence[Entry], *, sidecars: Mapping[int, str] | None = None) -> list[Entry]:
    """The request messages of a whole view, in one go."""
    return list(Projection(entries, sidecars=sidecars).entries())


def _repaired(entries: Sequence[Entry]) -> list[Entry]:
    """The entries with every rule kept; untouched messages keep their entry, made ones take their neighbour's place."""
    messages = [e.message for e in entries]
    mended = rules.repair(messages)
    by_identity = {id(e.message): e for e in entries}
    out: list[Entry] = []
    seq = entries[0].seq if entries else 0
    for message in mended:
        original = by_identity.get(id(message))
        seq = original.seq if original is not None else seq
        out.append(original if original is not None else Entry(seq, message))
    return out


def _swap(entries: list[Entry], new_by_old: Mapping[int, Entry]) -> int:
    """Replaces entries in place, from the end, by the identity of their messages; how many were there."""
    count = 0
    for i in range(len(entries) - 1, -1, -1):
        if count == len(new_by_old):
            break
        new = new_by_old.get(id(entries[i].message))
        if new is not None:
            entries[i] = new
            count += 1
    return count
