"""The context engine's own tools among the agent's: offered, called and shown like any other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from perdure.context.engine import ContextEngine
from perdure.tools.registry import ToolRegistry
from perdure.tools.tool import Tool

TOOLSET = "context_engine"


def join_engine_tools(registry: ToolRegistry, engine: ContextEngine) -> list[str]:
    """Adds what the engine offers; a tool of the user's keeps its name. Returns why any was left out."""
    left_out = []
    for schema in engine.get_tool_schemas():
        function = schema.get("function", schema)
        name = str(function.get("name", ""))
        if name in registry and registry.find(name).toolset != TOOLSET:
            left_out.append(f"the context engine's tool {name!r} was left out: another tool has that name")
            continue
        try:
            registry.add(_tool(name, function, engine))
        except ValueError as error:  # a plug-in's slip must not end the conversation
            left_out.append(f"a tool of the context engine was left out: {error}")
    return left_out


def _tool(name: str, function: Mapping[str, Any], engine: ContextEngine) -> Tool:
    return Tool(
        name=name,
        description=str(function.get("description", "")),
        parameters=function.get("parameters") or {"type": "object", "properties": {}},
        handler=_handler(name, engine),
        toolset=TOOLSET,
        is_read_only=True,
    )


def _handler(name: str, engine: ContextEngine) -> Callable[..., str | Awaitable[str]]:
    def handle(**arguments: Any) -> str | Awaitable[str]:
        return engine.handle_tool_call(name, arguments)

    return handle
