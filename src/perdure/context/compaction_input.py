"""A history prepared for compaction: parsed entries with token counts, and how to turn choices back into a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
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
    # What was left out while reading, for the user.
    notices: tuple[str, ...] = ()

    @classmethod
    def read(
        cls, items: Sequence[Item], model: str = "", *, key: Callable[[], bytes] = default_key
    ) -> CompactionHistory:
        """Read a history; tokens are counted for `model`, and `key` verifies the seals of handoffs in plain dicts.

        Raises InvalidMessage for a dict with an unknown role.
        """
        is_logged = set(map(type, items)) == {Entry}
        origins: list[int | None] | None = None
        notices: tuple[str, ...] = ()
        if is_logged:
            entries = cast("Sequence[Entry]", items)
        else:
            # Positions are negative: they are in no log, and cannot be opened.
            entries, origins, notices = _read_plain(items, key)
        messages = [e.message for e in entries]
        return cls(entries, messages, _sizes(entries, model), origins, is_logged, notices)

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


@lru_cache(maxsize=64)
def _tokens_key(model: str) -> str:
    # The same object each time, which a dictionary finds without a comparison.
    return f"tokens {model}"


def tokens_of(entry: Entry, model: str = "") -> int:
    """Estimated tokens of a message including its reasoning, cached per model."""
    key = _tokens_key(model)
    tokens: int | None = entry.get_memo(key)
    if tokens is None:
        tokens = estimate_figures(entry_figures(entry), model or None, sends_reasoning=True)
        entry.set_memo(key, tokens)
    return tokens


def _read_plain(
    items: Sequence[Item], key: Callable[[], bytes]
) -> tuple[list[Entry], list[int | None] | None, tuple[str, ...]]:
    """Read and number a history without a log, its calls and results in pairs.

    Returns its entries, where each was among the items, and notices of what was left out.
    """
    given = {id(i.message): i for i in items if isinstance(i, Entry)}
    read = [i.message if isinstance(i, Entry) else Message.from_dict(i) for i in items]
    # Neighbours of one role stay apart until the result is sent, so that a boundary may lie between them.
    messages = rules.repair_pairs(read)
    origins: list[int | None] | None = None
    notices: tuple[str, ...] = ()
    if messages is not read:
        notices = _report_left_out(read, messages)
        # Before tokens are counted, as the output will be repaired too.
        index = {id(m): n for n, m in enumerate(read)}
        origins = [index.get(id(m)) for m in messages]
    # Log entries have a kind; elsewhere a handoff has to be recognised.
    if any(map(looks_like_handoff, messages)):
        messages, origins = _split_handoffs(messages, origins, key())
    first = -len(messages)
    if given:
        entries = [given[id(m)].with_seq(n) if id(m) in given else Entry(n, m) for n, m in enumerate(messages, first)]
    else:
        entries = [Entry(n, m) for n, m in enumerate(messages, first)]
    _share_memos(entries)
    return entries, origins, notices


def _report_left_out(read: Sequence[Message], mended: Sequence[Message]) -> tuple[str, ...]:
    """Name the tool results that a repair left out since no call of theirs is in view, or it had a result already."""
    known = {id(m) for m in read}
    stubs = sum(m.content == rules.MISSING_RESULT and id(m) not in known for m in mended)
    count = sum(m.role == "tool" for m in read) - (sum(m.role == "tool" for m in mended) - stubs)
    if count <= 0:
        return ()
    answered = {m.tool_call_id for m in mended if m.role == "tool"}
    ids = list(dict.fromkeys(m.tool_call_id for m in read if m.role == "tool" and m.tool_call_id not in answered))
    named = f" ({', '.join(map(repr, ids[:3]))}{', …' if len(ids) > 3 else ''})" if ids else ""
    what = "1 tool result was" if count == 1 else f"{count:,} tool results were"
    return (f"{what} left out{named}: no call in the list asks for {'it' if count == 1 else 'them'}.",)


def _share_memos(entries: Iterable[Entry]) -> None:
    """Let words that were said before be analyzed once.

    Calls are not: what is computed of them depends on their results, and the other way round.
    """
    said: dict[tuple[str, object, str | None], Entry] = {}
    for entry in entries:
        m = entry.message
        if m.role == "tool" or m.tool_calls or m.kind not in ("user", "assistant") or type(m.content) is not str:
            continue
        if not (m.extra or m.reasoning_details):
            equal = said.setdefault((m.kind, m.content, m.reasoning), entry)
            if equal is not entry:
                entry.share_memo(equal)


def _sizes(entries: Sequence[Entry], model: str) -> list[int]:
    """Return the tokens of each message; equal ones, such as calls and results that come again, are counted once."""
    tokens_by_text = dict[tuple[object, ...], int]()
    key = _tokens_key(model)
    sizes: list[int | None] = Entry.get_memos(entries, key)
    for n, entry in enumerate(entries):
        if sizes[n] is not None:
            continue
        m = entry.message
        is_common = (m.role == "tool" or m.tool_calls) and type(m.content) is not tuple
        if is_common and not (m.extra or m.reasoning or m.reasoning_details):
            texts = (m.content, m.name, *[text for call in m.tool_calls for text in (call.name, call.arguments)])
            tokens = tokens_by_text.get(texts)
            if tokens is None:
                tokens = tokens_by_text[texts] = tokens_of(entry, model)
            else:
                entry.set_memo(key, tokens)
            sizes[n] = tokens
        else:
            sizes[n] = tokens_of(entry, model)
    return cast("list[int]", sizes)


def _accept_any(text: str) -> bool:
    return True


def _split_handoffs(
    messages: Sequence[Message], origins: Sequence[int | None] | None, key: bytes
) -> tuple[list[Message], list[int | None]]:
    """Recognise handoffs by their seal, and split those merged with the next message."""
    out: list[Message] = []
    positions: list[int | None] = []
    for i, m in enumerate(messages):
        # A message object of kind "handoff" is trusted; texts from dicts need a seal.
        pieces = split_merged(m, _accept_any if m.kind == "handoff" else partial(is_sealed, key=key))
        if len(pieces) == 1:
            out.append(m if pieces[0].kind == m.kind else pieces[0])
            positions.append(i if origins is None else origins[i])
        else:
            out += pieces
            positions += [None] * len(pieces)
    return out, positions
