"""How fast secrets are taken out, whether every format is caught, and what happens to texts that hold none."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from benchmarks.data import EVAL, Skip, sessions
from benchmarks.secret_places import placed
from benchmarks.secret_samples import keys
from benchmarks.table import Row
from perdure.redaction import find_secrets, redact

TITLE = "Redaction"
_SEEDS = 20


def rows() -> Iterator[Row]:
    yield from _formats()
    files = sorted(path.name.removesuffix(".jsonl.gz") for path in (EVAL / "data").glob("*.jsonl.gz"))
    if not files:
        raise Skip("recorded sessions are not here")
    texts = {name: [text for session in sessions(name) for text in _strings(session)] for name in files}
    outputs = [m["content"] for name in files for m in _messages(name) if m.get("role") == "tool"]
    outputs = [output for output in outputs if isinstance(output, str)]
    yield Row("tool output, a message at a time", _speed(outputs), "MB/s", ">= 20", f"{len(outputs):,} messages")
    yield Row("tool output, in one piece", _speed(["\n".join(outputs)]), "MB/s", ">= 20")
    changed = sum(len(find_secrets(text)) for name in files for text in texts[name])
    size = sum(len(text) for name in files for text in texts[name]) / 1e6
    # Every change was judged by hand, and a loose search for keys, logins and telling names found no secret in them
    # either: so any change that appears here is a mistake until somebody has looked at it.
    yield Row(
        "changes in recorded sessions that hold no secret", changed, "", "<= 0", f"{size:.1f} MB, {len(files)} files"
    )


def _formats() -> Iterator[Row]:
    found: dict[str, list[bool]] = {}
    for seed in range(_SEEDS):
        for sample in keys(seed):
            found.setdefault(sample.kind, []).append(sample.secret not in redact(f"key: {sample.text}\n"))
    yield Row("key formats of which every draw is caught", sum(all(hits) for hits in found.values()), "", ">= 60")
    missed = sum(not hit for hits in found.values() for hit in hits)
    drawn = sum(map(len, found.values()))
    yield Row("keys missed", missed, "", "<= 0", f"of {drawn:,} drawn, {len(found)} formats")
    samples = [sample for seed in range(_SEEDS) for sample in placed(seed)]
    missed = sum(sample.secret in redact(sample.text) for sample in samples)
    yield Row("secrets missed in settings, code, headers, URLs, key blocks", missed, "", "<= 0", f"of {len(samples):,}")


def _speed(texts: list[str]) -> float:
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        for text in texts:
            redact(text)
        best = min(best, time.process_time() - start)
    return sum(map(len, texts)) / best / 1e6


def _messages(name: str) -> Iterator[dict[str, Any]]:
    for session in sessions(name):
        yield from session.get("messages", ())


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
