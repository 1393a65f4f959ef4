"""Where a chat's warnings go: into a file. On the screen they would stand in the middle of the prompt."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """Everything that is logged, by us or by a library, while the prompt stands there; the file is made when needed."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()
