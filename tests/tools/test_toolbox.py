"""The toolbox: default tools, settings that disable them, plug-ins and own tools."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.app.build import trial_agent
from perdure.config.settings import ContextSettings, Settings
from perdure.core.concurrency import SystemClock
from perdure.core.messages import ToolCall, canonical_json
from perdure.store import open_store
from perdure.tools.builtin.memory import FileMemory
from perdure.tools.output_limits import OutputLimits
from perdure.tools.runtime import ToolScope
from perdure.tools.toolbox import BUILT_IN_NAMES, Toolbox, ToolSources, build_toolbox

PLUGIN = '''
from perdure.tools.tool import tool

@tool(toolset="weather")
def forecast(city: str) -> str:
    """Looks up the forecast."""
    return f"fog in {city}"

def plugin(registry, hooks):
    registry.add(forecast)
    hooks.pre_tool_call.append(lambda call, arguments: "not on Sundays" if arguments.get("city") == "Cork" else None)
'''


class Quiet:
    """A person, a planner and a helper in one."""

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        return "yes"

    async def spawn(self, task: str, *, parent_id: str, context: str = "", max_iterations: int | None = None) -> str:
        return "done"

    def load(self, conversation_id: str) -> Sequence[Any]:
        return ()

    def save(self, conversation_id: str, items: Sequence[Any]) -> None:
        pass


def _sources(folder: Path, settings: dict[str, Any] | None = None, **more: Any) -> ToolSources:
    return ToolSources(
        Settings.model_validate(settings or {}), SystemClock(), user_home=folder, perdure_home=folder, **more
    )


def _run(box: Toolbox, name: str, scope: ToolScope | None = None, **arguments: Any) -> str:
    call = ToolCall("call_1", name, canonical_json(arguments))
    return asyncio.run(box.runtime.batch([call], scope or ToolScope(task_id="t")).run())[0].text


def _names(box: Toolbox) -> list[str]:
    return [t.name for t in box.runtime.registry]


@pytest.mark.spec("J7")
def test_all_configured_tools_are_registered(tmp_path: Path) -> None:
    quiet = Quiet()
    with open_store(tmp_path / "perdure.db") as store:
        box = build_toolbox(
            _sources(
                tmp_path, workspace=tmp_path, environment={"PATH": "/usr/bin:/bin"}, outputs=store.outputs,
                search=store.search_index,
                memory=FileMemory(tmp_path / "memory"), plans=quiet, asker=quiet, spawner=quiet,
            )
        )  # fmt: skip
        assert _names(box) == [
            "terminal", "process", "read_file", "write_file", "patch", "search_files", "web_extract", "todo", "memory",
            "session_search", "clarify", "delegate_task",
        ]  # fmt: skip
        assert box.warnings == []
        assert _run(box, "terminal", command="echo hi") == "[exit 0]\nhi"
        assert "was not run, no one is available" in _run(box, "terminal", command="git push --force")
        box.close()
        box.close()


@pytest.mark.spec("H2", "H3")
def test_file_page_fits_the_result_limit_of_the_window(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text("total = total + price * count\n" * 2_000)
    with open_store(tmp_path / "perdure.db") as store:
        box = build_toolbox(_sources(tmp_path, workspace=tmp_path, outputs=store.outputs))
        assert len(_run(box, "read_file", path="long.py")) > 10_000
        page = _run(box, "read_file", ToolScope("t_1", "c_1", limits=OutputLimits().scale(8_000)), path="long.py")
        assert 4_000 < len(page) < 5_000
        assert "continue with offset=" in page
        box.close()


def test_tools_without_a_dependency_are_not_registered(tmp_path: Path) -> None:
    assert _names(build_toolbox(_sources(tmp_path))) == ["web_extract"]
    with open_store(tmp_path / "perdure.db") as store:
        box = build_toolbox(_sources(tmp_path, outputs=store.outputs))
        assert _names(box) == ["web_extract", "read_file"]
        assert "only output:<id>" in _run(box, "read_file", path="/etc/passwd")


def test_settings_disable_toolsets_and_single_tools(tmp_path: Path) -> None:
    settings = {"tools": {"disabled": ["web", "process", "patch"]}}
    box = build_toolbox(_sources(tmp_path, settings, workspace=tmp_path))
    assert _names(box) == ["terminal", "read_file", "write_file", "search_files"]
    assert "is disabled" in _run(box, "web_extract", url="http://x")
    box.close()


def test_a_mistyped_name_in_the_settings_is_reported(tmp_path: Path) -> None:
    box = build_toolbox(_sources(tmp_path, {"tools": {"disabled": ["termnal"]}}, workspace=tmp_path))
    assert box.warnings[0] == (
        "tools.disabled: there is no tool or toolset 'termnal', so nothing was disabled; did you mean 'terminal'?"
    )
    box.close()


def test_a_tool_that_this_surface_lacks_may_be_disabled(tmp_path: Path) -> None:
    settings = {"tools": {"disabled": ["clarify", "terminal"]}, "permissions": {"deny": ["terminal"]}}
    assert build_toolbox(_sources(tmp_path, settings)).warnings == []


def test_every_built_in_tool_is_among_the_known_names(tmp_path: Path) -> None:
    settings = Settings(context=ContextSettings(lcm_tools=True))
    with trial_agent(settings, home=tmp_path, folder=tmp_path) as agent:
        assert agent.deps.tools.registry.names() == BUILT_IN_NAMES - {"clarify"}
        assert agent.warnings == []


def test_approval_can_be_disabled(tmp_path: Path) -> None:
    settings = {"tools": {"approval": "never"}}
    (tmp_path / "src").mkdir()
    box = build_toolbox(_sources(tmp_path, settings, workspace=tmp_path, environment={"PATH": "/usr/bin:/bin"}))
    assert _run(box, "terminal", command="rm -rf src") == "[exit 0]"
    box.close()


@pytest.mark.spec("J6")
def test_configured_plugin_adds_tools_and_hooks(tmp_path: Path) -> None:
    folder = tmp_path / "plugins" / "tools" / "weather"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(PLUGIN)
    assert "forecast" not in _names(build_toolbox(_sources(tmp_path)))
    box = build_toolbox(_sources(tmp_path, {"tools": {"plugins": ["weather"]}}))
    assert _run(box, "forecast", city="Kiel") == "fog in Kiel"
    assert "stopped by a hook: not on Sundays" in _run(box, "forecast", city="Cork")


def test_missing_or_broken_plugin_is_skipped_with_a_warning(tmp_path: Path) -> None:
    for name, text in {"half": "raise RuntimeError('no lamp')", "late": "def plugin(r, h): 1 / 0"}.items():
        folder = tmp_path / "plugins" / "tools" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(text)
    box = build_toolbox(_sources(tmp_path, {"tools": {"plugins": ["half", "late", "nowhere"]}}))
    assert _names(box) == ["web_extract"]
    assert "no lamp" in box.warnings[0]
    assert "ZeroDivisionError" in box.warnings[1]
    assert "'nowhere' not found; installed: half, late" in box.warnings[2]


def test_own_tools_override_defaults(tmp_path: Path) -> None:
    def web_extract(url: str) -> str:
        """Reads from a cache."""
        return f"cached {url}"

    box = build_toolbox(_sources(tmp_path), [web_extract])
    assert _run(box, "web_extract", url="http://x") == "cached http://x"


def test_output_limits_come_from_settings(tmp_path: Path) -> None:
    settings = {"tool_output": {"default_result_size": 50, "preview_size": 30}}
    with open_store(tmp_path / "perdure.db") as store:
        conversation = store.conversations.create().conversation_id
        box = build_toolbox(_sources(tmp_path, settings, outputs=store.outputs), [_long])
        batch = box.runtime.batch([ToolCall("call_1", "_long", "{}")], ToolScope(conversation_id=conversation))
        assert "<persisted-output>" in asyncio.run(batch.run())[0].text


def _long() -> str:
    """Says much."""
    return "a" * 100
