"""A process that runs the schedules of a store until it is killed: `scheduling_child.py HOME DATABASE BASE_URL`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from perdure.agent.runner import RunningLoop
from perdure.app.runtime import Shared
from perdure.config.load import validate_settings
from perdure.gateway.executor import run_store_write
from perdure.gateway.workers.agent_pool import WiredAgentFactory
from perdure.gateway.workers.hub import Hub
from perdure.store.store import open_store


async def main(home: Path, database: str, base_url: str) -> None:
    model = {"name": "m-1", "provider": "custom", "base_url": base_url, "context_length": 32_000}
    settings = validate_settings({"model": model})
    with open_store(database) as store:
        shared = Shared(settings, home=home, store=store, loop_thread=RunningLoop(), run_blocking=run_store_write)
        hub = Hub(WiredAgentFactory(shared), store, settings=settings.gateway, clock=shared.clock, ids=shared.ids)
        await hub.start()
        print("up", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
