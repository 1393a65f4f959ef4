"""Real recorded sessions, for measuring only: they lie beside the repository, never in it, and may be absent."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EVAL = Path(__file__).resolve().parents[2] / "shared" / "eval"


class Skip(Exception):
    """This benchmark cannot run here; the text says why in plain words."""


def sessions(name: str) -> Iterator[dict[str, Any]]:
    """The sessions of one file, e.g. `entire_cli`."""
    path = EVAL / "data" / f"{name}.jsonl.gz"
    if not path.is_file():
        raise Skip(f"recorded sessions are not here ({path.name})")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)
