"""The public agent, wired as people get it, against the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure import Agent
from perdure.core.events import Notice
from perdure.lab.simulator import Asked, Simulator

HEADINGS = ("Goal", "Completed Actions", "Critical Context")


def _agent(sim: Simulator, folder: Path, **settings: Any) -> Agent:
    return Agent(
        model="main-1",
        provider="openai",
        base_url=sim.base_url,
        api_key="k",
        store=folder / "perdure.db",
        home=folder,
        system_prompt="Be brief.",
        settings={"model": {"context_length": 64_000, "max_tokens": 500}, **settings},
    )


def _reply(asked: Asked) -> str:
    if asked.body["model"] == "main-1":
        return "Noted."
    return "\n\n".join(f"## {h}\nThe user counts words in round {asked.number}." for h in HEADINGS)


@pytest.mark.spec("D5", "J10")
def test_what_a_smaller_summary_model_reads_fits_its_window_and_is_pointed_out_once(tmp_path: Path) -> None:
    settings = {"auxiliary": {"compression": {"model": "gpt-4"}}}  # 8,192 tokens, by the catalogue
    with Simulator(window=64_000, script=_reply) as sim:
        agent = _agent(sim, tmp_path, **settings)
        told: list[str] = []
        stop = agent.events.listen(lambda e: told.append(e.text) if isinstance(e, Notice) else None)
        for i in range(14):
            agent.chat(f"round {i}: " + "count these words " * 400)
        report = agent.compress()
        stop()
        sizes = [sim.count(r.path, r.body) for r in sim.requests if r.body["model"] == "gpt-4"]
        assert report.outcome == "compacted"
        assert len(sizes) > 1
        assert max(sizes) <= 8_192
        assert [t for t in told if "summary model's window" in t] == [t for t in told if "8,192" in t]
        assert sum("summary model's window" in t for t in told) == 1
        assert agent.gauge.threshold == 32_000  # never the summary model's
