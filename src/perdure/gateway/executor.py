"""The store is synchronous, and the loop waits for nobody: what reads or writes it runs in a thread of these.

Apart from the loop's own threads, where a command or a summary may take minutes: a message must never wait for those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# Few: what they do takes moments, and each more takes the interpreter from the loop that all streams run in.
_STORE_THREADS = 4


@cache
def _store_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=_STORE_THREADS, thread_name_prefix="perdure-gateway")


async def run_blocking(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `work` returns, without holding up the loop."""
    return await asyncio.get_running_loop().run_in_executor(_store_threads(), partial(work, *args, **kwargs))


async def run_shielded(work: Callable[[], T]) -> T:
    """The same for what an agent writes down: once begun it is finished, before anybody goes on."""
    future = asyncio.get_running_loop().run_in_executor(_store_threads(), work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        # Whoever cancels once more waits for it too: what comes next may need what it writes.
        while not future.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([future])
        if not future.cancelled():
            future.exception()
        raise
