"""An agent that knows only what its request shows goes through a long list across several compactions."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from perdure.app import Agent
from perdure.core.events import CompactionFinished
from perdure.testing.simulator import Call, Fail, Say, ScriptRequest, Simulator, strict
from perdure.testing.simulator.script import Step

WINDOW = 16_000
ITEMS = 24
MOST_REQUESTS = 6 * ITEMS


@dataclass
class Worksite:
    """The items of the list, what was done to them, and how often each step was taken."""

    ports: dict[str, int]
    configured: dict[str, int] = field(default_factory=dict)
    uses: Counter[tuple[str, str]] = field(default_factory=Counter)

    @classmethod
    def seeded(cls, seed: int) -> Worksite:
        draw = random.Random(seed)
        names = [f"{draw.choice(('billing', 'mailer', 'search'))}_{n}" for n in draw.sample(range(10, 99), ITEMS)]
        return cls(dict(zip(names, draw.sample(range(2_000, 9_000), ITEMS), strict=True)))

    def read(self, name: str) -> str:
        self.uses["read", name] += 1
        draw = random.Random(name)
        lines = [f"    step_{i} = combine({draw.random():.6f}, 'stage {i} of {name}')" for i in range(70)]
        return "\n".join((f"# src/{name}.py", *lines[:35], f"PORT = {self.ports[name]}", *lines[35:]))

    def write(self, name: str, port: int) -> None:
        self.uses["write", name] += 1
        self.configured[name] = port

    def check(self, name: str) -> bool:
        self.uses["check", name] += 1
        return self.configured.get(name) == self.ports[name]


@dataclass(frozen=True)
class Toolset:
    """The tools of a worksite, how each step is called, and what shows that a step succeeded."""

    tools: Sequence[Callable[..., str]]
    read: Callable[[str], Call]
    write: Callable[[str, int], Call]
    check: Callable[[str], Call]
    written: str
    valid: str


def plain_tools(site: Worksite) -> Toolset:
    def read_module(name: str) -> str:
        """Show a module."""
        return site.read(name)

    def set_port(name: str, port: int) -> str:
        """Write the port of a module."""
        site.write(name, port)
        return f"config/{name}.toml written: port = {port}"

    def check(name: str) -> str:
        """Check a module."""
        return f"{name}: 3 checks passed" if site.check(name) else f"{name}: FAILED"

    return Toolset(
        [read_module, set_port, check],
        lambda n: Call("read_module", {"name": n}),
        lambda n, port: Call("set_port", {"name": n, "port": port}),
        lambda n: Call("check", {"name": n}),
        "written",
        "checks passed",
    )


def json_tools(site: Worksite) -> Toolset:
    def fetch_service(service: str) -> str:
        """Show a service."""
        return site.read(service)

    def deploy(service: str, region: str, port: int) -> str:
        """Deploy a service."""
        site.write(service, port)
        return json.dumps({"status": "deployed", "service": service, "took_ms": len(service) * port % 977})

    def probe(service: str) -> str:
        """Probe a service."""
        is_healthy = site.check(service)
        return json.dumps({"service": service, "healthy": is_healthy, "latency_ms": site.ports[service] % 97})

    return Toolset(
        [fetch_service, deploy, probe],
        lambda n: Call("fetch_service", {"service": n}),
        lambda n, port: Call("deploy", {"service": n, "region": "eu-west", "port": port}),
        lambda n: Call("probe", {"service": n}),
        "deployed",
        "healthy: true",
    )


def shell_tools(site: Worksite) -> Toolset:
    def terminal(command: str) -> str:
        """Run a command."""
        if command.startswith("cat "):
            return site.read(command.rpartition("/")[2].removesuffix(".py"))
        name = command.rpartition("=")[2]
        return f"checking {name}\n{'all 12 rules hold' if site.check(name) else 'rule 3 is broken'}\n"

    def write_file(path: str, content: str) -> str:
        """Write a file."""
        site.write(path.removeprefix("config/").removesuffix(".toml"), int(content.rpartition(" ")[2]))
        return f"Wrote {path}"

    return Toolset(
        [terminal, write_file],
        lambda n: Call("terminal", {"command": f"cat src/{n}.py"}),
        lambda n, port: Call("write_file", {"path": f"config/{n}.toml", "content": f"port = {port}"}),
        lambda n: Call("terminal", {"command": f"make check MOD={n}"}),
        "config/",
        "rules hold",
    )


@dataclass(frozen=True)
class ForgetfulWorker:
    """Chooses the next step from the text of the request alone."""

    tools: Toolset

    def __call__(self, request: ScriptRequest) -> Step | str:
        if not request.body.get("tools"):
            return Fail(status=500, body={"error": {"message": "no summaries here"}})
        if request.number > MOST_REQUESTS:
            return "I give up."
        view = _visible_text(request.body["messages"])
        listed = re.search(r"in this order: ([\w, ]+)\.", view)
        if listed is None:
            return "I no longer know the list."
        for name in listed[1].split(", "):
            if (call := self._next_call(name, view)) is not None:
                return Say(f"Next: {call.name} {name}.", calls=(call,))
        return "All done."

    def _next_call(self, name: str, view: str) -> Call | None:
        lines = [line for line in view.splitlines() if name in line]
        if any(self.tools.valid in line.lower() for line in lines):
            return None
        if any(self.tools.written in line for line in lines):
            return self.tools.check(name)
        source = view.rfind(f"# src/{name}.py")
        port = re.search(r"PORT = (\d+)", view[source : source + 8_000]) if source >= 0 else None
        return self.tools.read(name) if port is None else self.tools.write(name, int(port[1]))


def _visible_text(messages: Sequence[dict[str, Any]]) -> str:
    """The texts of a request; a result stands in one line with the call that it answers."""
    targets: dict[str, str] = {}
    parts: list[str] = []
    for message in messages:
        content = message.get("content")
        texts = [content] if isinstance(content, str) else [p.get("text", "") for p in content or ()]
        text = "\n".join(filter(None, texts))
        if message["role"] == "tool":
            flat = text if "PORT" in text else " ".join(text.split()).replace('"', "")
            text = f"{targets.get(message['tool_call_id'], '')} → {flat}"
        for call in message.get("tool_calls") or ():
            targets[call["id"]] = " ".join(map(str, json.loads(call["function"]["arguments"]).values()))
        parts.append(text)
    return "\n".join(parts)


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("make_tools", [plain_tools, json_tools, shell_tools])
def test_a_long_list_is_worked_through_without_repeating_steps(
    tmp_path: Path, make_tools: Callable[[Worksite], Toolset], seed: int
) -> None:
    site = Worksite.seeded(seed)
    tools = make_tools(site)
    compactions: list[CompactionFinished] = []
    with (
        Simulator(strict(), window=WINDOW, script=ForgetfulWorker(tools)) as sim,
        Agent(
            model="worker",
            provider="custom",
            base_url=sim.base_url,
            api_key="none",
            store=str(tmp_path / "work.db"),
            tools=tools.tools,
            settings={
                "model": {"context_length": WINDOW},
                "compression": {"summarize": False},
                "agent": {"max_turns": 10 * MOST_REQUESTS},
            },
            home=tmp_path,
        ) as agent,
    ):
        agent.events.tap(lambda e: compactions.append(e) if isinstance(e, CompactionFinished) else None)
        reply = agent.chat(
            f"Move the ports into configuration. Do these, in this order: {', '.join(site.ports)}. For each one read "
            "it, set the port you find, and check it."
        )
    needed = 3 * ITEMS
    assert str(reply) == "All done."
    assert len(compactions) >= 3
    assert site.configured == site.ports, "nothing is lost"
    assert site.uses.total() - needed <= 0.02 * needed, "nothing is repeated"
