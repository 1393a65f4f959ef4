"""docs/tools.md matches the code: its example runs, and its tables are complete."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.agent.session import LiveContexts
from perdure.config.keys import all_keys
from perdure.config.settings import Settings
from perdure.core.concurrency import SystemClock
from perdure.store import open_store
from perdure.tools.builtin.memory import FileMemory
from perdure.tools.shell_safety.types import KINDS
from perdure.tools.tool import Tool, ToolRegistry
from perdure.tools.toolbox import ToolSources, build_toolbox

PAGE = (Path(__file__).parents[2] / "docs" / "tools.md").read_text(encoding="utf-8")


class StubServices:
    """Stub of every service that the tools depend on."""

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        return ""

    async def spawn(self, task: str, *, parent_id: str, context: str = "", max_iterations: int | None = None) -> str:
        return ""

    def load(self, conversation_id: str) -> Sequence[Any]:
        return ()

    def save(self, conversation_id: str, items: Sequence[Any]) -> None:
        pass


def test_example_tool_works() -> None:
    code = re.search(r"```python\n(.*?)```", PAGE, re.S)
    assert code is not None
    assert len(code.group(1).splitlines()) <= 10
    names: dict[str, Any] = {}
    exec(code.group(1).partition("agent =")[0], names)  # the page's own code
    registered = ToolRegistry([names["tide"]]).find("tide")
    assert registered.description == "Looks up when the tide turns."
    assert registered.parameters["properties"]["harbour"] == {"description": "a harbour, e.g. Brest", "type": "string"}
    assert registered.handler("Brest") == "high water at Brest in 4 hours"


def test_every_built_in_tool_is_listed_with_its_toolset(tmp_path: Path) -> None:
    services = StubServices()
    with open_store(tmp_path / "perdure.db") as store:
        sources = ToolSources(
            Settings(),
            SystemClock(),
            user_home=tmp_path,
            workspace=tmp_path,
            outputs=store.outputs,
            search=store.search_index,
            log=store.addresses,
            context=LiveContexts(),
            memory=FileMemory(tmp_path),
            plans=services,
            asker=services,
            spawner=services,
        )
        box = build_toolbox(sources)
        offered = {(t.name, t.toolset) for t in box.runtime.registry}
        box.close()
    assert set(re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE, re.M)) == offered


def test_every_kind_of_danger_is_listed_with_its_reason() -> None:
    for name, kind in KINDS.items():
        assert f"| {'`' + name + '`' if kind.is_lasting else '*`' + name + '`*'} | {kind.why} |" in PAGE


@pytest.mark.parametrize(
    "claim", re.findall(r"^\| `(\w+)`(?:, `\w+`)? \| .*\|$", PAGE.split("## What is built in")[0], re.M)
)
def test_every_listed_option_is_a_field_of_tool(claim: str) -> None:
    assert claim in Tool.__dataclass_fields__


def test_every_listed_setting_exists() -> None:
    named = set(re.findall(r"`((?:tools|tool_output)\.\w+)", PAGE)) | {"mcp_servers"}
    assert len(named) >= 6
    assert named <= set(all_keys())
