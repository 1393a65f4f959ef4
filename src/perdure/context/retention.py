"""Choose what a compaction keeps: split a history into head, middle and tail. Pure functions of roles and token counts.

    lead   leading system messages          always kept, never counted
    head   the first messages               kept at the first compaction of a chain
    middle everything else                  replaced by the handoff
    pinned the newest request where it is older than the tail, and the last visible reply where it fits
    tail   the last messages within the tail budget

Precedence: a call and its results stay together > the newest user message > results the model has not read yet > the
tail budget > `protect_last_n`.

`shorten_head` shortens a long head when the compacted view is sent. That projection is never stored: the same view
gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from perdure.core import rules
from perdure.core.messages import Message, TextPart
from perdure.core.rules import leading_system
from perdure.models.tokens import estimate_message, estimate_text


@dataclass(frozen=True, slots=True)
class Limits:
    """Token budgets and message counts that decide what a compaction keeps."""

    tail_tokens: int
    head_tokens: int
    # Upper bound of the tail, so that the result stays below the threshold.
    room_tokens: int
    # Unread tool results up to this size stay whole, whatever the tail budget; None means `room_tokens`.
    unread_tokens: int | None = None
    protect_last_n: int = 20
    protect_first_n: int = 3
    tail_overrun: float = 1.5
    head_decays: bool = True
    # Whether to move a boundary by a few messages where the handoff would be merged with what follows it.
    keeps_handoff_apart: bool = False


@dataclass(frozen=True, slots=True)
class Boundaries:
    """The split of a history into kept and replaced messages, as indexes.

    `lead <= head_end <= … <= tail_start <= size`.
    """

    size: int
    lead: int
    head_end: int
    # Single messages kept between handoff and tail, in order.
    pinned: tuple[int, ...]
    tail_start: int
    # The newest handoff in the history.
    previous: int | None
    # Index of the tool-calling message whose results are unread; None where all are read, or they exceed their limit.
    unread: int | None = None

    @property
    def middle(self) -> tuple[int, ...]:
        """The indexes of the messages that the handoff replaces, older handoffs included."""
        stops = [i for i in self.pinned if self.head_end <= i < self.tail_start]
        starts = [self.head_end, *(i + 1 for i in stops)]
        return tuple(chain.from_iterable(map(range, starts, [*stops, self.tail_start])))

    @property
    def has_content(self) -> bool:
        """Whether there is anything to compact between head and tail besides a handoff and a head that may decay."""
        first = self.head_end if self.previous is None else max(self.head_end, self.previous + 1)
        return self.tail_start - first > sum(1 for i in self.pinned if i >= first)


def find_unread(messages: Sequence[Message]) -> int | None:
    """Return the index of the newest assistant message if it calls tools, so that its results are still unread."""
    for i in range(len(messages) - 1, -1, -1):
        if messages[i].role == "assistant":
            return i if messages[i].tool_calls else None
    return None


def unread_notices(messages: Sequence[Message], boundaries: Boundaries) -> tuple[str, ...]:
    """Return a notice where results that the model has not read are in the handoff alone, because they do not fit."""
    start = find_unread(messages)
    if start is None or start >= boundaries.tail_start or not any(m.role == "tool" for m in messages[start + 1 :]):
        return ()
    names = ", ".join(dict.fromkeys(call.name for call in messages[start].tool_calls))
    return (
        f"The results of the newest calls ({names}), which the model has not read, do not fit its window: the handoff"
        " has their outline alone. Shorten them, or take a model with a larger window.",
    )


def find_boundaries(messages: Sequence[Message], tokens: Sequence[int], limits: Limits) -> Boundaries:
    """Decide which messages a compaction keeps; `tokens` has the size of each message."""
    size, lead = len(messages), leading_system(messages)
    previous = next((i for i in range(size - 1, lead - 1, -1) if messages[i].kind == "handoff"), None)
    newest = next((i for i in range(size - 1, lead - 1, -1) if messages[i].is_request), None)
    fixed = sum(tokens[:lead]) + (tokens[newest] if newest is not None else 0)
    room = limits.room_tokens - fixed
    unread = _protected_unread(messages, tokens, limits, fixed, newest)

    def behind(head_end: int) -> Boundaries:
        floor = head_end if previous is None else max(head_end, previous + 1)
        tail_start = _tail_start(messages, tokens, floor, room=room, limits=limits)
        is_behind = unread is not None and unread >= floor
        if unread is not None and is_behind:
            tail_start = min(tail_start, unread)
        boundaries = Boundaries(size, lead, head_end, (), tail_start, previous, unread if is_behind else None)
        return _with_pinned(messages, tokens, boundaries, newest, limits)

    head_end = _head_end(messages, lead, (newest, previous, unread), limits=limits)
    boundaries = behind(head_end)
    if not boundaries.has_content and sum(tokens[lead:head_end]) > limits.head_tokens:
        # Few but huge: the only thing that can give way is a head larger than its share. What it gives up the tail may
        # have, unless nothing would be left between the two.
        fitting = _fitting_head(messages, tokens, lead, head_end, limits)
        again = behind(fitting)
        boundaries = again if again.has_content else replace(boundaries, head_end=fitting)
    if not boundaries.pinned and boundaries.tail_start == size:
        # Nothing would follow the handoff: it ends the history, and must not be merged with a head before it.
        boundaries = replace(boundaries, head_end=lead)
    return _set_handoff_apart(messages, tokens, boundaries, limits) if limits.keeps_handoff_apart else boundaries


# Of the tail's budget, what a message may take that is kept only so that nothing is merged.
_EXTRA_SHARE = 0.25


def _set_handoff_apart(
    messages: Sequence[Message], tokens: Sequence[int], boundaries: Boundaries, limits: Limits
) -> Boundaries:
    """Move a boundary by one message if both roles that the handoff may have clash with a neighbour.

    It is unchanged where that does not help. Calls and results, and the newest request, are never moved.
    """
    b = boundaries
    if not b.has_content or _is_apart(messages, b):
        return b
    candidates = []
    if b.head_end > b.lead and _stands_alone(messages[b.head_end]):
        spent = sum(tokens[b.lead : b.head_end + 1])
        candidates += [replace(b, head_end=b.head_end + 1)] if spent <= limits.head_tokens else []
    first, last = b.tail_start - 1, b.tail_start
    if not b.pinned and _stands_alone(messages[first]) and tokens[first] <= limits.tail_tokens * _EXTRA_SHARE:
        candidates.append(replace(b, tail_start=first))
    if not b.pinned and last + 1 < b.size and _stands_alone(messages[last]):
        is_newest = not any(m.is_request for m in messages[last + 1 :])
        candidates += [] if is_newest else [replace(b, tail_start=last + 1)]
    if b.head_end > b.lead + 1 and _stands_alone(messages[b.head_end - 1]):
        candidates.append(replace(b, head_end=b.head_end - 1))
    return next((c for c in candidates if c.has_content and _is_apart(messages, c)), b)


def _is_apart(messages: Sequence[Message], boundaries: Boundaries) -> bool:
    """Whether the handoff can have a role that differs from those of both its neighbours."""
    before = messages[boundaries.head_end - 1].role if boundaries.head_end > boundaries.lead else None
    following = next(iter(boundaries.pinned), boundaries.tail_start)
    after = messages[following].role if following < boundaries.size else None
    return after != "user" if before in (None, "assistant") else after != "assistant"


def _stands_alone(message: Message) -> bool:
    return message.role in ("user", "assistant") and message.kind != "handoff" and not message.tool_calls


def _protected_unread(
    messages: Sequence[Message], tokens: Sequence[int], limits: Limits, fixed_tokens: int, newest: int | None
) -> int | None:
    """Return the start of the unread tool results if they fit beside what must be kept anyway; else None."""
    start = find_unread(messages)
    if start is None:
        return None
    size = sum(tokens[start:])
    if newest is not None and newest > start:
        size -= tokens[newest]  # counted among the fixed ones already
    most = limits.room_tokens if limits.unread_tokens is None else limits.unread_tokens
    return start if size + fixed_tokens <= most else None


def _head_end(messages: Sequence[Message], lead: int, stops: Sequence[int | None], *, limits: Limits) -> int:
    _, previous, _ = stops
    if limits.head_tokens <= 0 or (previous is not None and limits.head_decays):
        return lead
    end = min(lead + limits.protect_first_n, len(messages))
    while end < len(messages) and end > lead and messages[end].role == "tool":
        end += 1
    # The newest request and unread results always follow the handoff.
    for stop in stops:
        if stop is not None:
            end = min(end, stop)
    while end > lead and messages[end - 1].role == "assistant" and messages[end - 1].tool_calls:
        end -= 1  # its results are not in the head, so it cannot be either
    return end


def _fitting_head(messages: Sequence[Message], tokens: Sequence[int], lead: int, end: int, limits: Limits) -> int:
    """Return the end of the longest run of whole turns at the front that fits the head's budget."""
    fit, spent = lead, 0
    for i in range(lead, end):
        spent += tokens[i]
        if spent > limits.head_tokens:
            break
        if i + 1 == end or messages[i + 1].role != "tool":
            fit = i + 1
    while fit > lead and messages[fit - 1].tool_calls:
        fit -= 1
    return fit


def _tail_start(messages: Sequence[Message], tokens: Sequence[int], floor: int, *, room: int, limits: Limits) -> int:
    size = len(messages)
    # A request that fills the window by itself still leaves room for a little of the work on it.
    budget = min(limits.tail_tokens, max(room, limits.tail_tokens // 4))
    start, spent = size, 0
    while start > floor and spent + tokens[start - 1] <= budget:
        start -= 1
        spent += tokens[start]
    earliest = max(floor, size - limits.protect_last_n)
    # The overrun is for a budget that was chosen, never for a room that ends there.
    most = min(limits.tail_overrun * budget, max(room, budget))
    if start > earliest and (total := spent + sum(tokens[earliest:start])) <= most:
        start, spent = earliest, total
    if start == size > floor:
        start, spent = size - 1, tokens[size - 1]  # the newest step has not been read yet: it goes only if it must
    return _move_to_cut(messages, tokens, start, spent, floor=floor, room=max(room, budget))


def _move_to_cut(
    messages: Sequence[Message], tokens: Sequence[int], start: int, spent: int, *, floor: int, room: int
) -> int:
    """Move `start` so that no call loses its results: back to the call, or past a group that is too large."""
    size = len(messages)
    back = start
    while floor < back < size and messages[back].role == "tool":
        back -= 1
        spent += tokens[back]
    if back < size and messages[back].role == "tool":
        back = size  # results with no call in reach: only forward is left
    if spent <= room and back < size:
        return back
    while start < size and messages[start].role == "tool":
        start += 1
    if start == back and start < size:  # a single message, or a call whose results follow, beyond any room
        start += 1
        while start < size and messages[start].role == "tool":
            start += 1
    return start


def _with_pinned(
    messages: Sequence[Message], tokens: Sequence[int], boundaries: Boundaries, newest: int | None, limits: Limits
) -> Boundaries:
    """Pin the newest request, and the last visible reply where it fits, though they are older than the tail.

    A reply with work between it and the newest request is left to the record.
    """
    pinned = []
    spent = sum(tokens[boundaries.tail_start :])
    if newest is not None and newest >= boundaries.head_end:
        if newest < boundaries.tail_start:
            pinned.append(newest)
        else:
            spent -= tokens[newest]
        # The request is kept whatever its size, so it does not count against the budget of the reply.
        spent += min(tokens[newest], limits.tail_tokens // 2)
    lowest = boundaries.head_end if boundaries.previous is None else max(boundaries.head_end, boundaries.previous + 1)
    most = min(limits.tail_overrun * limits.tail_tokens, max(limits.room_tokens, limits.tail_tokens // 4))
    for i in range(boundaries.size - 1, lowest - 1, -1):
        m = messages[i]
        if m.role == "assistant" and m.kind == "assistant" and not m.tool_calls and m.text.strip():
            following = min((k for k in pinned if k > i), default=boundaries.tail_start)
            # Directly before another assistant message the two would be merged, and could not be separated again.
            is_alone = following == boundaries.size or messages[following].role != "assistant"
            # Right before a request it reads as what that answers.
            is_next = newest is None or newest < i or all(m.role == "user" for m in messages[i + 1 : newest])
            if i < boundaries.tail_start and is_alone and is_next and spent + tokens[i] <= most:
                pinned.append(i)
            break
    return replace(boundaries, pinned=tuple(sorted(pinned)))


_LEAST_SHOWN_TOKENS = 40
# Share of the head's budget that one tool result may take.
_RESULT_SHARE = 0.15


def shorten_head(messages: Sequence[Message], *, head_tokens: int, addresses: Sequence[str] = ()) -> list[Message]:
    """Shorten the messages before the handoff to `head_tokens`; a view without a handoff is unchanged."""
    end = next((i for i, m in enumerate(messages) if m.kind == "handoff"), 0)
    start = min(rules.leading_system(messages), end)
    # A long result is worth less than the words around it.
    most = max(int(head_tokens * _RESULT_SHARE), _LEAST_SHOWN_TOKENS)
    sizes = [estimate_message(m) for m in messages[start:end]]
    limits = [most if m.role == "tool" else size for m, size in zip(messages[start:end], sizes, strict=True)]
    if sum(map(min, sizes, limits)) > head_tokens:
        share = _fair_share(list(map(min, sizes, limits)), head_tokens)
        limits = [min(limit, share) for limit in limits]
    if all(size <= limit for size, limit in zip(sizes, limits, strict=True)):
        return list(messages)
    head = [
        m if size <= limit else _shorten(m, limit, addresses[i] if i < len(addresses) else "")
        for i, (m, size, limit) in enumerate(zip(messages[start:end], sizes, limits, strict=True), start)
    ]
    return [*messages[:start], *head, *messages[end:]]


def _fair_share(sizes: Sequence[int], budget: int) -> int:
    """Return the largest share per message at which all fit; what small messages leave goes to large ones."""
    remaining, share = budget, budget
    for n, size in enumerate(sorted(sizes)):
        share = remaining // (len(sizes) - n)
        if size > share:
            break
        remaining -= size
    return max(share, _LEAST_SHOWN_TOKENS)


def _shorten(message: Message, tokens: int, address: str) -> Message:
    """Shorten a message to about `tokens`, with the address of the rest.

    Of prose the best passages are kept, of other text both ends.
    """
    # Imported late: only a compacted conversation needs them, and they bring the whole fact scanner.
    from perdure.context.record.documents import excerpt
    from perdure.context.summary_input import short_arguments, without_images

    message = without_images(short_arguments(message))
    text = message.text
    marker = f"[… {{}} characters left out{f'; open {address} with session_search' if address else ''} …]"
    room = max(tokens - estimate_text(marker) - 16, _LEAST_SHOWN_TOKENS // 2)
    if estimate_text(text) <= room:
        return message
    keep = max(40, int(len(text) * room / max(1, estimate_text(text))))
    if message.role == "tool" and (best := excerpt(text, keep)):
        short = f"{best}\n{marker.format(f'excerpts; {len(text) - len(best):,}')}"
    else:
        short = f"{text[: keep * 2 // 3]}\n{marker.format(f'{len(text) - keep:,}')}\n{text[len(text) - keep // 3 :]}"
    content: str | tuple[TextPart, ...] = short if isinstance(message.content, str) else (TextPart(short),)
    return message.with_content(content)
