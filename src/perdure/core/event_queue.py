"""The queue between a turn and one reader of its events, and the merging of text deltas.

Text arrives in many small deltas. While they wait for a slow reader, consecutive ones are merged, so that the reader
catches up with few long ones and the queue stays short.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from perdure.core.events import ReasoningDelta, TextDelta

T = TypeVar("T")
# Items with the same key may be merged; None: never.
MergeKey = Callable[[Any], Hashable | None]


def delta_kind(event: object) -> type | None:
    """Return the class of a text or reasoning delta; None for every other event."""
    kind = type(event)
    return kind if kind is TextDelta or kind is ReasoningDelta else None


def join_deltas(deltas: Sequence[Any]) -> Any:
    """Join the texts of deltas of one kind."""
    return type(deltas[0])("".join([delta.text for delta in deltas]))


def coalesce(events: Iterable[T]) -> list[T]:
    """Merge consecutive deltas of one kind in a list of events."""
    queue = EventQueue[T]()
    for event in events:
        queue.put(event)
    return queue.take()


class EventQueue(Generic[T]):
    """A FIFO queue with any number of writers, on any threads, and one reader.

    `on_ready` is called after each change, on the writer's thread; a reader sets it to be woken.
    """

    def __init__(
        self,
        *,
        max_items: int | None = None,
        merge_above: int = 0,
        merge_key: MergeKey = delta_kind,
        join: Callable[[list[T]], T] = join_deltas,
    ) -> None:
        self._max_items = max_items
        # So many items wait one by one before deltas are merged, for readers to whom single deltas matter.
        self._merge_above = merge_above
        self._merge_key = merge_key
        self._join = join
        # Each run has the deltas to merge, or one item of another kind. Merging when read keeps it linear in the text.
        self._runs: collections.deque[tuple[Hashable | None, list[T]]] = collections.deque()
        self._lock = threading.Lock()
        self.is_closed = False
        self.on_ready: Callable[[], None] = _ignore

    def __len__(self) -> int:
        """Return the number of queued items; merged deltas count as one."""
        return len(self._runs)

    @property
    def has_only_deltas(self) -> bool:
        with self._lock:
            return all(key is not None for key, _ in self._runs)

    def put(self, item: T, *, force: bool = False) -> bool:
        """Add an item. Returns False if the queue is full, unless `force`; a closed queue discards the item."""
        key = self._merge_key(item)
        with self._lock:
            if self.is_closed:
                return True
            runs = self._runs
            if key is not None and len(runs) > self._merge_above and runs[-1][0] == key:
                runs[-1][1].append(item)
            elif self._max_items is not None and len(runs) >= self._max_items and not force:
                return False
            else:
                runs.append((key, [item]))
        self.on_ready()
        return True

    def pop(self) -> T:
        """Remove and return the oldest item; a text delta is merged with the deltas after it.

        Raises IndexError if empty.
        """
        with self._lock:
            _, run = self._runs.popleft()
        return run[0] if len(run) == 1 else self._join(run)

    def take(self) -> list[T]:
        """Remove and return all items."""
        with self._lock:
            runs, self._runs = self._runs, collections.deque()
        return [run[0] if len(run) == 1 else self._join(run) for _, run in runs]

    def drop_deltas(self) -> None:
        """Discard queued text deltas, which is safe once a later event has the whole text."""
        with self._lock:
            self._runs = collections.deque(run for run in self._runs if run[0] is None)

    def close(self) -> None:
        """Accept no more items; those in the queue can still be read."""
        with self._lock:
            self.is_closed = True
        self.on_ready()


def _ignore() -> None:
    """Default wake-up callback: no consumer waits for the queue yet."""
