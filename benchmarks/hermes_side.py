"""The same work through Hermes Agent: run by its interpreter, never imported here.

`python hermes_side.py MESSAGES.json WINDOW FOLDER`: prints processor milliseconds as JSON, best of three runs.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

RUNS = 3
SUMMARY = "## Goal\nBring every component up to date.\n## Completed Actions\n1. BUILT the components\n"


def best_ms(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(RUNS):
        gc.collect()
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best * 1_000


def main(path: str, window: int, folder: Path) -> dict[str, float]:
    import agent.context_compressor as compressor  # type: ignore[import-not-found]  # of the other environment
    from hermes_state import SessionDB  # type: ignore[import-not-found]  # of the other environment

    message = SimpleNamespace(content=SUMMARY, reasoning=None, reasoning_content=None)
    reply = SimpleNamespace(choices=[SimpleNamespace(message=message, finish_reason="stop")], usage=None)
    compressor.call_llm = lambda *args, **options: reply
    messages: list[dict[str, Any]] = json.loads(Path(path).read_text(encoding="utf-8"))

    def compress() -> None:
        engine = compressor.ContextCompressor(
            model="m", quiet_mode=True, config_context_length=window, base_url="http://127.0.0.1:1", api_key="x"
        )
        kept = engine.compress([dict(m) for m in messages])
        assert len(kept) < len(messages)

    figures = {"compress": best_ms(compress)}
    db = SessionDB(folder / "hermes.db")
    db.create_session("s1", "cli")
    started = time.process_time()
    for m in messages:
        content = m.get("content")
        text = content if content is None or isinstance(content, str) else json.dumps(content)
        db.append_message(
            "s1", m["role"], text, m.get("name"), tool_calls=m.get("tool_calls"), tool_call_id=m.get("tool_call_id")
        )
    figures["append"] = (time.process_time() - started) * 1_000
    figures["load"] = best_ms(lambda: db.get_messages_as_conversation("s1"))
    return figures


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))))
