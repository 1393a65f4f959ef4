"""Send 200 MB of output through the terminal into a real store; print memory and sizes as JSON."""

from __future__ import annotations

import asyncio
import hashlib
import json
import resource
import sys
from pathlib import Path

from perdure.config.settings import Settings
from perdure.core.concurrency import SystemClock
from perdure.core.messages import ToolCall, canonical_json
from perdure.core.visibility import OWNER
from perdure.store import open_store
from perdure.tools.runtime import ToolScope
from perdure.tools.toolbox import ToolSources, build_toolbox

LINE = "0123456789 the quick brown fox jumps over the lazy dog é\n"


def main(folder: Path, megabytes: int) -> None:
    """Run a small call first, so that imports and the database are not measured."""
    with open_store(folder / "perdure.db") as store:
        session = store.conversations.create()
        sources = ToolSources(
            Settings(),
            SystemClock(),
            user_home=folder,
            workspace=folder,
            environment={"PATH": "/usr/bin:/bin"},
            outputs=store.outputs,
            search=store.search_index,
        )
        toolbox = build_toolbox(sources)
        scope = ToolScope("t_1", session.conversation_id, OWNER)

        def run(name: str, **arguments: object) -> str:
            call = ToolCall("call_1", name, canonical_json(arguments))
            return asyncio.run(toolbox.runtime.batch([call], scope).run())[0].text

        run("terminal", command=f"yes '{LINE.strip()}' | head -c 1000000")
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        count = megabytes * 1_000_000 // len(LINE.encode())
        text = run("terminal", command=f"yes '{LINE.strip()}' | head -n {count}; echo ERROR at the very end; exit 7")
        after_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        stored = store.outputs.list(session.conversation_id)[-1]
        expected = hashlib.sha256()
        for _ in range(count):
            expected.update(LINE.encode())
        expected.update(b"ERROR at the very end\n")
        last = count + 1
        page = run("read_file", path=stored.address, offset=last, limit=5)
        toolbox.close()
        report = {
            "grown_kb": after_kb - before_kb,
            "context_chars": len(text),
            "text": text,
            "chars": stored.chars,
            "bytes": count * len(LINE.encode()),
            "is_whole": stored.sha256 == expected.hexdigest(),
            "last_line": page,
            "address": stored.address,
            "mode": oct(Path(stored.location).stat().st_mode & 0o777),
        }
        print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
