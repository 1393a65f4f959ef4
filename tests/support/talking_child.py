"""A process that talks for ever, to be killed: `talking_child.py HOME BASE_URL SESSION FIRST`."""

from __future__ import annotations

import sys
from pathlib import Path

from perdure.app import Agent


def look(n: int) -> str:
    """Looks something up."""
    return f"entry {n}: " + "data " * 200


def main(home: str, base_url: str, session_id: str, first: str) -> None:
    agent = Agent(
        model="m-1",
        provider="custom",
        base_url=base_url,
        api_key="k",
        settings={"model": {"context_length": 8_000, "max_tokens": 500}},
        home=Path(home),
        session_id=session_id or None,
        tools=[look],
    )
    n = int(first)
    while True:
        result = agent.run_conversation(f"question {n} " + "word " * 100)
        print(f"{n} {result.session_id} {result.outcome}", flush=True)
        n += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
