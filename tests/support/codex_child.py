"""A process that signs in to Codex or calls the model: `codex_child.py sign-in|call|leave HOME ROOT_URL`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from perdure.cli.codex_login import sign_in
from perdure.config.api_keys import LOGIN_KEY
from perdure.core.concurrency import DaemonThreads, SystemClock
from perdure.core.messages import Entry, Message
from perdure.providers.codex_login import CodexLogins, CodexSend
from perdure.providers.transport import Transport
from perdure.providers.types import Endpoint, ModelRequest, Reply


def logins_at(home: Path) -> CodexLogins:
    return CodexLogins(home, clock=SystemClock(), open_keyring=lambda: None)


async def call(home: Path, root_url: str) -> Reply:
    """Call the model once with the stored login."""
    transport = Transport()
    try:
        endpoint = Endpoint("openai-codex", f"{root_url}/v1", "codex_responses", "gpt-5.5", LOGIN_KEY)
        request = ModelRequest(model="gpt-5.5", entries=(Entry(1, Message("user", "hi")),), max_tokens=100)
        return await CodexSend(transport.send, logins_at(home))(endpoint, request)
    finally:
        await transport.aclose()


async def leave(home: Path, root_url: str) -> None:
    """Call the model, and end while that is under way, once the file `leave` is there."""
    asyncio.get_running_loop().set_default_executor(DaemonThreads())
    calling = asyncio.create_task(call(home, root_url))
    while not (home / "leave").exists():
        await asyncio.sleep(0.01)
    calling.cancel()
    await asyncio.wait([calling])


def main(action: str, home: Path, root_url: str) -> None:
    print("up", flush=True)
    if action == "call":
        asyncio.run(call(home, root_url))
    elif action == "leave":
        asyncio.run(leave(home, root_url))
    else:
        login = sign_in(
            root_url,
            "client-1",
            open_browser=lambda url: print(url, flush=True),
            now_ms=SystemClock().now_ms,
            ports=(0,),
        )
        logins_at(home).save(login)
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
