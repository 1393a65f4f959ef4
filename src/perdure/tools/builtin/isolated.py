"""Scripts of ours that read foreign input in a process of their own.

Python's `re` and most parsers hold the interpreter lock while they work: in a thread, one hostile pattern or page stops
every other thread, and no timeout can fire. A process can be killed, and its memory is its own.
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

from perdure.core.errors import ToolError
from perdure.tools.tool import CancelToken


class IsolatedScript:
    """One run of a script that uses the standard library alone. Ends with its deadline, its cancellation or its block.

    The script reads one line of JSON from its standard input, then the body, and answers on its standard output.
    """

    def __init__(self, script: Path, *, deadline_s: float, cancel: CancelToken) -> None:
        self._script = script
        self._deadline_s = deadline_s
        self._cancel = cancel
        self.is_late = False

    def __enter__(self) -> IsolatedScript:
        if not sys.executable:
            raise ToolError("no Python interpreter to run the work in; it needs a process of its own")
        self._process = subprocess.Popen(
            # Isolated, and without site packages: quicker to start, and nothing of the environment gets in.
            [sys.executable, "-I", "-S", str(self._script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._forget = self._cancel.on_cancel(self._process.kill)
        self._timer = threading.Timer(self._deadline_s, self._expire)
        self._timer.daemon = True
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        self._forget()
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.wait()

    def lines(self, job: Mapping[str, Any]) -> Iterator[bytes]:
        """Hand in a job without a body; the answer line by line, up to where it was stopped."""
        self._send(job, b"")
        assert self._process.stdout is not None
        yield from self._process.stdout
        self._refuse_failure()

    def answer(self, job: Mapping[str, Any], body: bytes) -> bytes:
        """Hand in a job with its body; the whole answer."""
        self._send(job, body)
        assert self._process.stdout is not None
        said = self._process.stdout.read()
        self._refuse_failure()
        return said

    def _send(self, job: Mapping[str, Any], body: bytes) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        # A script that was killed, or has read enough, says so by its answer.
        with contextlib.suppress(OSError):
            stdin.write(json.dumps(job).encode() + b"\n")
            stdin.write(body)
        with contextlib.suppress(OSError):
            stdin.close()

    def _expire(self) -> None:
        self.is_late = True
        self._process.kill()

    def _refuse_failure(self) -> None:
        code = self._process.wait()
        if code and not self.is_late and not self._cancel.is_cancelled:
            raise ToolError(f"the process that did the work ended with {code}; it may have run out of memory")
