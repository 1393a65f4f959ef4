"""The leases this process holds, kept alive together: one beat for all, instead of a thread for each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from perdure.core.errors import LeaseLost, StoreError
from perdure.gateway.threads import in_thread
from perdure.store.leases import DEFAULT_TTL_MS
from perdure.store.records import Lease
from perdure.store.store import SessionStore

_log = logging.getLogger(__name__)
BEAT_S = DEFAULT_TTL_MS / 3_000


class LeaseRenewer:
    """Renewed until they are released. One that was lost stays lost: the next write shows the old token, in vain."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._held: dict[str, tuple[Lease, asyncio.Lock]] = {}

    def add(self, lease: Lease) -> None:
        self._held[lease.conversation_id] = (lease, asyncio.Lock())

    async def release(self, lease: Lease, release: Callable[[], None]) -> None:
        """Gives it up by `release`, run in a thread; a beat under way is waited for, so as not to beat for it after."""
        _, lock = self._held.pop(lease.conversation_id, (lease, asyncio.Lock()))
        async with lock:
            await in_thread(release)

    def __len__(self) -> int:
        return len(self._held)

    async def beat(self) -> None:
        """Renews them all."""
        for lease, lock in list(self._held.values()):
            async with lock:
                known = self._held.get(lease.conversation_id)
                if known is None or known[0] is not lease:
                    continue
                await self._renew(lease)

    async def _renew(self, lease: Lease) -> None:
        try:
            await in_thread(self._store.leases.renew, lease)
        except LeaseLost:
            _log.warning("the lease of %s was lost", lease.conversation_id)
        except StoreError as error:  # the next beat tries again; a lease outlives two that fail
            _log.warning("a lease could not be renewed: %s", type(error).__name__)
