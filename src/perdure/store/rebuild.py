"""Rebuild the search index in the background after an upgrade; search works meanwhile with what is indexed."""

from __future__ import annotations

import threading
from contextlib import suppress

from perdure.core.errors import StoreError
from perdure.store.maintenance import ProgressCallback, Reindexer


class IndexRebuild:
    """Runs a Reindexer in a thread. Its progress is stored, so that the next process continues where it stopped."""

    def __init__(self, reindexer: Reindexer) -> None:
        self._reindexer = reindexer
        self._thread: threading.Thread | None = None
        self._is_closing = threading.Event()

    def start(self, on_progress: ProgressCallback) -> None:
        """Start if the index needs it; one small read if not."""
        if not self._reindexer.is_needed:
            return
        self._thread = threading.Thread(target=self._run, args=(on_progress,), name="store-reindex", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Return when the index is complete."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def close(self) -> None:
        """Stop after the current batch."""
        self._is_closing.set()
        self.wait()

    def _run(self, on_progress: ProgressCallback) -> None:
        # The store may be closed, or its disk full: the next start continues.
        with suppress(StoreError):
            self._reindexer.run(on_progress, is_stopping=self._is_closing.is_set)
