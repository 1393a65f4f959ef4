"""Run blocking store calls in worker threads, off the event loop.

A pool of its own: in the loop's default executor a command or a summary may take minutes, and a message must not
queue behind those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import ParamSpec, TypeVar

from perdure.core import concurrency

P = ParamSpec("P")
T = TypeVar("T")

# Few threads: store calls are short, and every further thread competes with the event loop for the GIL.
_STORE_THREADS = 4


@cache
def _store_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=_STORE_THREADS, thread_name_prefix="perdure-gateway")


async def run_blocking(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work` in a worker thread and return its result."""
    return await asyncio.get_running_loop().run_in_executor(_store_threads(), partial(work, *args, **kwargs))


async def run_store_write(work: Callable[[], T]) -> T:
    """Run a store write that is always awaited to completion, even when the calling task is cancelled."""
    return await concurrency.run_shielded(work, _store_threads())
