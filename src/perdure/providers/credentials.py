"""Keys that a command of the user's prints (`credentials.command`): fetched when missing, refreshed when refused."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from perdure.core.errors import ConfigError
from perdure.providers.types import Endpoint

# A command that asks a vault, or a person, may take a while; one that hangs must not hang the turn.
TIMEOUT_S = 30.0


class Credentials:
    """Runs the command, once for each time a key is wanted; callers that ask meanwhile share its answer."""

    def __init__(self, command: str | None, *, timeout_s: float = TIMEOUT_S) -> None:
        self._command = command
        self._timeout_s = timeout_s
        self._running: dict[str, asyncio.Task[str]] = {}

    async def fetch(self, provider: str) -> str | None:
        """A key for this provider; None where no command is set. Raises ConfigError where it fails."""
        if not self._command:
            return None
        task = self._running.get(provider)
        if task is None:
            task = asyncio.ensure_future(_printed(self._command, provider, timeout_s=self._timeout_s))
            self._running[provider] = task
            task.add_done_callback(lambda _: self._running.pop(provider, None))
        # Shielded: one caller's interrupt must not take the key from the others.
        return await asyncio.shield(task)

    async def refresh(self, refused: Endpoint) -> str | None:
        """Another key than the one refused; None where there is no other. Never raises: the refusal stands."""
        try:
            fresh = await self.fetch(refused.provider)
        except ConfigError:
            return None
        return fresh if fresh != refused.api_key else None


async def _printed(command: str, provider: str, *, timeout_s: float) -> str:
    """The last line a shell command prints; it finds the provider's name in `$1`."""
    process = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        command,
        "perdure",
        provider,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), timeout_s)
    except TimeoutError:
        raise ConfigError(f"credentials.command gave no key within {timeout_s:g} s: {command!r}") from None
    finally:
        if process.returncode is None:
            # The whole group: what the shell started would else hold the pipe, and us, until it ends.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    lines = out.decode("utf-8", "replace").strip().splitlines()
    if process.returncode != 0 or not lines or not lines[-1].strip():
        said = err.decode("utf-8", "replace").strip().splitlines()
        why = said[-1][:200] if said else "it printed nothing"
        raise ConfigError(f"credentials.command failed (exit {process.returncode}): {why}")
    return lines[-1].strip()
