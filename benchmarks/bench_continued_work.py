"""An agent that knows only what is in its request finishes a long task across several compactions.

The worker below has no memory of its own. Before each step it reads the request as a model would: which modules the
user listed, which are done, which value it has read, what failed and why. What a compaction loses it has to do again,
and that is counted. `run(seed)` plays one task through the real agent and the simulator.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.table import Row
from perdure.app import Agent
from perdure.core.events import CompactionFinished
from perdure.testing.simulator import Call, Fail, Say, ScriptRequest, Simulator, strict
from perdure.testing.simulator.script import Step

TITLE = "Work that goes on across compactions (window 16K, no summary model)"
SEEDS = 6
WINDOW = 16_000
MODULES = 24
_NAMES = ("billing", "ledger", "mailer", "search", "upload", "webhook", "export", "audit")
_MOST_STEPS = 12 * MODULES


@dataclass
class Service:
    """The modules and what the tools did to them."""

    names: tuple[str, ...]
    # The module that the user wants left alone.
    untouched: str
    ports: dict[str, int]
    # Modules whose check demands a port one higher, and says so.
    shifted: frozenset[str]
    configured: dict[str, int] = field(default_factory=dict)
    uses: Counter[tuple[str, str]] = field(default_factory=Counter)

    @classmethod
    def seeded(cls, seed: int) -> Service:
        draw = random.Random(seed)
        names = [f"{draw.choice(_NAMES)}_{n:02}" for n in draw.sample(range(10, 99), MODULES + 1)]
        ports = dict(zip(names, draw.sample(range(2_000, 9_000), len(names)), strict=True))
        shifted = frozenset(draw.sample(names[1:], MODULES // 6))
        return cls(tuple(names[1:]), names[0], ports, shifted)

    def target(self, name: str) -> int:
        return self.ports[name] + (name in self.shifted)

    def read_module(self, name: str) -> str:
        """Show the source of a module."""
        self.uses["read", name] += 1
        draw = random.Random(name)
        lines = [f"    step_{i} = combine({draw.random():.6f}, 'stage {i} of {name}')" for i in range(70)]
        lines.insert(35, f"PORT = {self.ports[name]}")
        return f"# src/{name}.py\n" + "\n".join(lines)

    def set_port(self, name: str, port: int) -> str:
        """Write the port of a module to its configuration file."""
        self.uses["write", name] += 1
        self.configured[name] = port
        return f"config/{name}.toml written: port = {port}"

    def check(self, name: str) -> str:
        """Run the checks of a module."""
        self.uses["check", name] += 1
        if self.configured.get(name) == self.target(name):
            return f"{name}: 3 checks passed"
        return f"{name}: FAILED, port {self.configured.get(name)} is in use, {self.target(name)} is free"


@dataclass(frozen=True)
class Worker:
    """Decides on the next step from the text of the request alone."""

    service: Service

    def __call__(self, request: ScriptRequest) -> Step | str:
        messages = request.body.get("messages", [])
        if not request.body.get("tools"):
            return Fail(status=500, body={"error": {"message": "no summaries here"}})
        if request.number > _MOST_STEPS:
            return "I give up."
        view = visible_text(messages)
        listed = re.search(r"these modules, in this order: ([\w, ]+)", view)
        if listed is None:
            return "I no longer know which modules to move."
        spared = re.search(r"leave (\w+) alone", view)
        for name in listed[1].replace(" ", "").split(","):
            if spared is not None and name == spared[1]:
                continue
            step = self._next_step(name, view)
            if step is not None:
                return Say(f"Next: {step.name} {name}.", calls=(step,))
        return "All modules are moved."

    def _next_step(self, name: str, view: str) -> Call | None:
        lines = [line for line in view.splitlines() if name in line]
        if any("passed" in line for line in lines):
            return None
        port = _last_value(lines, r"(\d{4}) is free") or _last_value(_after(view, name), r"PORT = (\d{4})")
        if port is None:
            return Call("read_module", {"name": name})
        if not any(re.search(rf"\b{port}\b", line) and "written" in line for line in lines):
            return Call("set_port", {"name": name, "port": int(port)})
        return Call("check", {"name": name})


def visible_text(messages: Sequence[dict[str, Any]]) -> str:
    """What a model sees of a request: texts and the arguments of calls, in order."""
    parts: list[str] = []
    for message in messages:
        content = message.get("content")
        texts = [content] if isinstance(content, str) else [p.get("text", "") for p in content or ()]
        parts += [text for text in texts if text]
        parts += [_call_line(call["function"]) for call in message.get("tool_calls") or ()]
    return "\n".join(parts)


def _call_line(function: dict[str, str]) -> str:
    arguments = json.loads(function["arguments"])
    return f"called {function['name']} " + " ".join(str(value) for value in arguments.values())


def _after(view: str, name: str) -> list[str]:
    """The source of a module if it is in view, else the lines that name it."""
    start = view.rfind(f"# src/{name}.py")
    return [view[start : start + 8_000]] if start >= 0 else [line for line in view.splitlines() if name in line]


def _last_value(texts: Sequence[str], pattern: str) -> str | None:
    values = [value for text in texts for value in re.findall(pattern, text)]
    return values[-1] if values else None


@dataclass(frozen=True)
class WorkReport:
    """What came of one task."""

    compactions: int
    # Steps done again though they had succeeded, and modules that are not configured at the end.
    repeated: int
    lost: int
    # Calls on the module that the user wanted left alone.
    forbidden: int
    steps: int
    last_reply: str


def run(seed: int, *, window: int = WINDOW) -> WorkReport:
    """Play one task; the handoffs are written by code alone."""
    service = Service.seeded(seed)
    listed = ", ".join((*service.names[:5], service.untouched, *service.names[5:]))
    compactions: list[CompactionFinished] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Simulator(strict(), window=window, script=Worker(service)) as sim,
        Agent(
            model="worker",
            provider="custom",
            base_url=sim.base_url,
            api_key="none",
            store=f"{folder}/work.db",
            tools=[service.read_module, service.set_port, service.check],
            settings={
                "model": {"context_length": window},
                "compression": {"summarize": False},
                "agent": {"max_turns": 10 * _MOST_STEPS},
            },
            home=Path(folder),
        ) as agent,
    ):
        agent.events.listen(lambda e: compactions.append(e) if isinstance(e, CompactionFinished) else None)
        reply = agent.chat(
            "Move the ports into configuration files. Do these modules, in this order: "
            f"{listed}. For each one read it, set the port you find, and check it. If a check names a free port, use "
            f"that one. And leave {service.untouched} alone, I am working on it."
        )
        assert sim.violations == []
    needed = sum(1 + 2 * (1 + (name in service.shifted)) for name in service.names)
    lost = sum(service.configured.get(name) != service.target(name) for name in service.names)
    forbidden = sum(count for (_, name), count in service.uses.items() if name == service.untouched)
    return WorkReport(len(compactions), service.uses.total() - forbidden - needed, lost, forbidden, needed, str(reply))


def rows() -> Iterator[Row]:
    reports = [run(seed) for seed in range(SEEDS)]
    note = (
        f"{SEEDS} tasks, {min(r.compactions for r in reports)}-{max(r.compactions for r in reports)} compactions each"
    )
    needed = sum(r.steps for r in reports)
    yield Row("repeated steps", 100 * sum(r.repeated for r in reports) / needed, "% of needed", "<= 2", note)
    yield Row("modules not moved", sum(r.lost for r in reports), "", "<= 0")
    yield Row("calls on the module to leave alone", sum(r.forbidden for r in reports), "", "<= 0")
