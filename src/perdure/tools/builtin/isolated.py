"""Run scripts that parse untrusted input in a separate process.

Python's `re` and most parsers hold the interpreter lock while they run: in a thread, one hostile pattern or page blocks
every other thread, and no timeout fires. A process can be killed, and its memory can be limited.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from perdure.core.concurrency import CancelToken
from perdure.core.errors import ToolError


class IsolatedScript:
    """Context manager for one run of a standard-library script, killed on deadline, cancellation or exit.

    The script reads a JSON line and then the body from stdin, and writes its response to stdout.
    """

    def __init__(self, script: Path, *, deadline_s: float, cancel: CancelToken) -> None:
        self._script = script
        self._deadline_s = deadline_s
        self._cancel = cancel
        self.is_timed_out = False

    def __enter__(self) -> IsolatedScript:
        if not sys.executable:
            raise ToolError("there is no Python interpreter to start a separate process with")
        self._process = subprocess.Popen(
            # Isolated mode without site packages starts faster and ignores the environment.
            [sys.executable, "-I", "-S", str(self._script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._unregister = self._cancel.on_cancel(self._process.kill)
        self._timer = threading.Timer(self._deadline_s, self._expire)
        self._timer.daemon = True
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        self._unregister()
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.wait()

    def stream_lines(self, job: Mapping[str, Any]) -> Iterator[bytes]:
        """Send a job without a body and yield the response line by line, up to where it was stopped."""
        self._send(job, b"")
        assert self._process.stdout is not None
        yield from self._process.stdout
        self._raise_on_failure()

    def run(self, job: Mapping[str, Any], body: bytes) -> bytes:
        """Send a job with a body and return the whole response."""
        self._send(job, body)
        assert self._process.stdout is not None
        response = self._process.stdout.read()
        self._raise_on_failure()
        return response

    def _send(self, job: Mapping[str, Any], body: bytes) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        # A script that was killed, or stopped reading, is detected by its response.
        with contextlib.suppress(OSError):
            stdin.write(json.dumps(job).encode() + b"\n")
            stdin.write(body)
        with contextlib.suppress(OSError):
            stdin.close()

    def _expire(self) -> None:
        self.is_timed_out = True
        self._process.kill()

    def _raise_on_failure(self) -> None:
        code = self._process.wait()
        if code and not self.is_timed_out and not self._cancel.is_cancelled:
            raise ToolError(f"the process that did the work ended with {code}; it may have run out of memory")
