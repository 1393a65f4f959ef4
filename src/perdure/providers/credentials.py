"""API keys printed by the user's `credentials.command`: fetched when missing, refreshed when refused."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from perdure.core.errors import ConfigError
from perdure.providers.types import Endpoint

# A command may prompt a vault or the user; one that hangs must not block the turn.
TIMEOUT_S = 30.0


class Credentials:
    """Runs `credentials.command` to get API keys; concurrent requests for one provider share a run."""

    def __init__(self, command: str | None, *, timeout_s: float = TIMEOUT_S) -> None:
        self._command = command
        self._timeout_s = timeout_s
        self._running: dict[str, asyncio.Task[str]] = {}

    async def fetch(self, provider: str) -> str | None:
        """Return a key for the provider; None where no command is set. Raises ConfigError where it fails."""
        if not self._command:
            return None
        task = self._running.get(provider)
        if task is None:
            task = asyncio.ensure_future(_run_command(self._command, provider, timeout_s=self._timeout_s))
            self._running[provider] = task
            task.add_done_callback(lambda _: self._running.pop(provider, None))
        # Shielded: cancelling one caller must not cancel the others.
        return await asyncio.shield(task)

    async def refresh(self, endpoint: Endpoint) -> str | None:
        """Run the command again after a key was refused; return the new key, None if it is the same. Never raises."""
        try:
            fresh = await self.fetch(endpoint.provider)
        except ConfigError:
            return None
        return fresh if fresh != endpoint.api_key else None


async def _run_command(command: str, provider: str, *, timeout_s: float) -> str:
    """Return the last line a shell command prints; it gets the provider's name as `$1`."""
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
            # Kill the process group: a child of the shell would keep the pipe open.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    lines = out.decode("utf-8", "replace").strip().splitlines()
    if process.returncode != 0 or not lines or not lines[-1].strip():
        errors = err.decode("utf-8", "replace").strip().splitlines()
        why = errors[-1][:200] if errors else "it printed nothing"
        raise ConfigError(f"credentials.command failed (exit {process.returncode}): {why}")
    return lines[-1].strip()
