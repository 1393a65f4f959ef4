"""Tools by need: what 178 MCP tools cost in a request, and whether plain requests find theirs.

The requests are those the ranking was tuned on. To measure with others, write them to a file, a JSON list of pairs of a
request and the name of its tool (or a list of names that would do):

    python -m benchmarks.bench_deferred --requests FILE
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from benchmarks.data import Skip
from benchmarks.table import Row, render
from perdure.store.search.documents import score_documents
from perdure.tools.deferred import DeferredTools
from perdure.tools.tool import Tool, ToolRegistry
from perdure.tools.tool_search import ToolFinder

TITLE = "Tools by need"

_DATA = Path(__file__).parents[1] / "tests" / "support" / "data"
_REQUESTS = _DATA / "tool_requests.json"


def rows(requests: Path = _REQUESTS) -> Iterator[Row]:
    listed = _DATA / "mcp_tools.json"
    if not listed.is_file() or not requests.is_file():
        raise Skip(f"{listed} or {requests} is not here")
    tools = [
        Tool(
            f"{t['server']}__{t['name']}",
            t["description"],
            t["input_schema"],
            str,
            toolset=f"mcp:{t['server']}",
            is_read_only=t["read_only"],
        )
        for t in json.loads(listed.read_text("utf-8"))
    ]
    size = DeferredTools(score_documents, threshold_tokens=3_000).size(ToolRegistry(tools))
    assert size is not None
    yield Row(f"schemas of {size.tools} tools", size.whole_tokens, "tokens")
    yield Row("sent instead", size.sent_tokens, "tokens", "<= 3000")
    finder = ToolFinder(score_documents, tools)
    asked = json.loads(requests.read_text("utf-8"))
    positions = [_position(finder, request, wanted) for request, wanted in asked]
    for most, bar in ((1, None), (5, ">= 95"), (20, ">= 95")):
        share = 100 * sum(at <= most for at in positions) / len(positions)
        name = f"right tool among the first {most}" if most < 20 else "right tool in the answer of one call (20 tools)"
        yield Row(name, share, "%", bar, f"{len(asked)} requests")
    for (request, wanted), at in zip(asked, positions, strict=True):
        if at > 5:
            print(f"  missed: {request} ({wanted})")


def _position(finder: ToolFinder, request: str, wanted: str | list[str]) -> int:
    names = {wanted} if isinstance(wanted, str) else set(wanted)
    ranked = [tool.name for tool in finder.rank(request)]
    return next((at for at, name in enumerate(ranked, 1) if name in names), len(ranked) + 1_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=TITLE)
    parser.add_argument("--requests", type=Path, default=_REQUESTS)
    print(render(TITLE, rows(parser.parse_args().requests)))


if __name__ == "__main__":
    main()
