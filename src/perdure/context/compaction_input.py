"""A history prepared for compaction: parsed entries with token counts, and how to turn choices back into a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from perdure.context.engine import Insert, Step, append_keep
from perdure.context.handoff import (
    SEAL_TOKENS,
    compaction_note,
    default_key,
    is_sealed,
    looks_like_handoff,
    needs_note,
    split_merged,
)
from perdure.core import rules
from perdure.core.messages import Entry, Message
from perdure.models.tokens import entry_figures, estimate_figures, estimate_text

Item = Entry | Message | Mapping[str, Any] | str


@dataclass(frozen=True, slots=True)
class CompactionHistory:
    """Parallel lists; `origins[i]` is the input index of entry i, or None where it is only a piece of that input."""

    entries: Sequence[Entry]
    messages: list[Message]
    tokens: list[int]
    # None where every entry is the input of the same index.
    origins: list[int | None] | None
    # Whether the entries are in a log, so that their positions can be opened.
    is_logged: bool
    # Whether any message may be more than one text: only such a one can hold an image.
    has_parts: bool

    @classmethod
    def read(
        cls, items: Sequence[Item], model: str = "", *, key: Callable[[], bytes] = default_key
    ) -> CompactionHistory:
        """Read a history; tokens are counted for `model`, and `key` verifies the seals of handoffs in plain dicts.

        Raises InvalidMessage for a dict with an unknown role.
        """
        is_logged = set(map(type, items)) == {Entry}
        entries = cast("Sequence[Entry]", items)
        if not is_logged:
            entries = [i if isinstance(i, Entry) else Entry(n, Message.from_dict(i)) for n, i in enumerate(items)]
        messages = [e.message for e in entries]
        origins: list[int | None] | None = None
        if not is_logged and not rules.is_valid(messages):
            entries, origins = _repair(entries)
            messages = [e.message for e in entries]
        # Log entries have a kind; elsewhere a handoff has to be recognised.
        if not is_logged and any(map(looks_like_handoff, messages)):
            entries, origins = _split(entries, origins, key())
            messages = [e.message for e in entries]
        if not is_logged:
            # Negative: they are in no log, and cannot be opened.
            entries = _renumber(entries, -len(entries))
        has_parts = any(m.kind == "handoff" or type(m.content) is tuple for m in messages)
        return cls(entries, messages, _sizes(entries, model), origins, is_logged, has_parts)

    @property
    def note_tokens(self) -> int:
        """Tokens of the note that a compaction adds to the system message of a plain list."""
        lead = rules.leading_system(self.messages)
        if self.is_logged or not lead or not needs_note(self.messages[lead - 1]):
            return 0
        return estimate_text(compaction_note())

    @property
    def seal_tokens(self) -> int:
        """Tokens of the seal that authenticates a handoff in a plain list."""
        return 0 if self.is_logged else SEAL_TOKENS

    def plan(self, head: range, handoff: Message, after: Iterable[int]) -> tuple[Step, ...]:
        """Build the steps: head, handoff, and what follows it."""
        steps: list[Step] = []
        self._keep(steps, range(head.start, head.stop))
        steps.append(Insert(handoff))
        self._keep(steps, after)
        return tuple(steps)

    def _keep(self, steps: list[Step], indexes: Iterable[int]) -> None:
        for i in indexes:
            position = i if self.origins is None else self.origins[i]
            if position is None:
                steps.append(Insert(self.messages[i]))
            else:
                append_keep(steps, position)


def tokens_of(entry: Entry, model: str = "") -> int:
    """Estimated tokens of a message including its reasoning, cached per model."""
    key = ("tokens", model)
    tokens: int | None = entry.memoized(key)
    if tokens is None:
        tokens = estimate_figures(entry_figures(entry), model or None, sends_reasoning=True)
        entry.set_memo(key, tokens)
    return tokens


def _renumber(entries: Sequence[Entry], first: int) -> list[Entry]:
    """Number the entries from `first` on; words that were said before are analyzed once.

    Calls are not: what is computed of them depends on their results, and the other way round.
    """
    said: dict[tuple[str, object, str | None], Entry] = {}
    out: list[Entry] = []
    for seq, entry in enumerate(entries, first):
        m = entry.message
        is_said = m.kind in ("user", "assistant") and type(m.content) is str and not m.tool_calls
        if is_said and not (m.extra or m.reasoning_details):
            out.append(entry.renumbered(seq, said.setdefault((m.kind, m.content, m.reasoning), entry)))
        else:
            out.append(entry.renumbered(seq))
    return out


def _sizes(entries: Sequence[Entry], model: str) -> list[int]:
    """Return the tokens of each message; equal results, such as of files that were read again, are counted once."""
    key, known = ("tokens", model), dict[tuple[object, str | None], int]()
    sizes: list[int] = []
    cached: list[int | None] = Entry.memoized_by(entries, key)
    for entry, size in zip(entries, cached, strict=True):
        if size is not None:
            sizes.append(size)
            continue
        m = entry.message
        if m.role == "tool" and type(m.content) is str and not (m.extra or m.reasoning):
            known_size = known.get((m.content, m.name))
            if known_size is None:
                known_size = known[m.content, m.name] = tokens_of(entry, model)
            else:
                entry.set_memo(key, known_size)
            sizes.append(known_size)
        else:
            sizes.append(tokens_of(entry, model))
    return sizes


def _repair(entries: Sequence[Entry]) -> tuple[list[Entry], list[int | None]]:
    """Repair a history without a log before counting tokens, as the output will be repaired too."""
    index = {id(e.message): i for i, e in enumerate(entries)}
    repaired = rules.repair([e.message for e in entries])
    origins = [index.get(id(m)) for m in repaired]
    return [
        Entry(n, m) if at is None else entries[at] for n, (m, at) in enumerate(zip(repaired, origins, strict=True))
    ], origins


def _accept_any(text: str) -> bool:
    return True


def _split(
    entries: Sequence[Entry], origins: Sequence[int | None] | None, key: bytes
) -> tuple[list[Entry], list[int | None]]:
    """Recognise handoffs by their seal, and split those merged with the next message."""
    out: list[Entry] = []
    positions: list[int | None] = []
    for i, e in enumerate(entries):
        # A message object of kind "handoff" is trusted; texts from dicts need a seal.
        pieces = split_merged(e.message, _accept_any if e.message.kind == "handoff" else partial(is_sealed, key=key))
        if len(pieces) == 1:
            out.append(e if pieces[0].kind == e.message.kind else Entry(e.seq, pieces[0], e.created_at_ms))
            positions.append(i if origins is None else origins[i])
        else:
            out += [Entry(e.seq, piece, e.created_at_ms) for piece in pieces]
            positions += [None] * len(pieces)
    return out, positions
