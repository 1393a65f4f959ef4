"""A process that compacts one session by code and prints the result; sets of strings differ in order by hash seed."""

from __future__ import annotations

import sys

from perdure.config.sections import CompressionSettings
from perdure.context.compressor import ContextCompressor
from perdure.context.engine import EngineServices
from perdure.core.messages import Entry
from support.compaction import HeldClock, Shelf, logged
from support.long_histories import Raw, one_request, step


def listing_session() -> list[Raw]:
    """A session whose results and calls have many names of equal weight and length."""
    messages = one_request(steps=20, chars=600)
    for n in range(100, 160):
        names = " ".join(f"load_part_{n}_{letter}" for letter in "abcdefgh")
        messages += step(n, chars=400, text=f"Reading the parts of {n}.", command=f"grep -n '{names}' src/part_{n}.py")
        messages[-1]["content"] += "".join(f"\n{n}: {name} = build_{name}()" for name in names.split())
    return messages


def compacted() -> str:
    """The session after a compaction at a fixed time: a handoff has the minute it was written in."""
    engine = ContextCompressor(context_length=32_000, handoff_key=b"k" * 32)
    services = EngineServices(state=Shelf(), clock=HeldClock(), settings=CompressionSettings())
    engine.on_session_start("s_1", services=services)
    entries = logged(listing_session())
    done = engine.compress(entries)
    return "\n".join(str((e.message if isinstance(e, Entry) else e).content) for e in done.apply(entries))


if __name__ == "__main__":
    sys.stdout.write(compacted())
