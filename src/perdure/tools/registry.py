"""Registry of tools by name, with toolsets that can be enabled and disabled."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from perdure.core.errors import ConfigError, ToolError
from perdure.tools.tool import Tool, tool_from_function


class ToolRegistry:
    """Tools by name. Registering a name again replaces the tool, so a user's own version wins."""

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._off: set[str] = set()
        for t in tools:
            self.add(t)

    def add(self, tool: Tool | Callable[..., Any]) -> Tool:
        """Register a tool, or a typed function as a tool."""
        registered = tool if isinstance(tool, Tool) else tool_from_function(tool)
        self._tools[registered.name] = registered
        return registered

    def switch_off(self, toolset: str) -> str | None:
        """Hide a toolset, or a single tool by name, from the model; return a warning if there is none of that name."""
        self._off.add(toolset)
        names = {t.name for t in self._tools.values()} | {t.toolset for t in self._tools.values()}
        if toolset in names:
            return None
        matches = difflib.get_close_matches(toolset, sorted(names), n=1)
        hint = f"did you mean {matches[0]!r}?" if matches else f"there are: {', '.join(sorted(names))}"
        return f"tools.disabled: there is no tool or toolset {toolset!r}, so nothing was disabled; {hint}"

    def keep_only(self, names: Iterable[str]) -> None:
        """Remove every tool but these, by name or toolset. Raises ConfigError for a name that nothing bears."""
        wanted = set(names)
        there = {n for t in self._tools.values() for n in (t.name, t.toolset)}
        for name in sorted(wanted - there):
            matches = difflib.get_close_matches(name, sorted(there), n=1)
            hint = f"did you mean {matches[0]!r}?" if matches else f"there are: {', '.join(sorted(there))}"
            raise ConfigError(f"there is no tool or toolset {name!r}; {hint}")
        self._tools = {n: t for n, t in self._tools.items() if wanted & {t.name, t.toolset}}

    def switch_on(self, toolset: str) -> None:
        self._off.discard(toolset)

    def without(self, *names: str) -> ToolRegistry:
        """Return a copy of the registry without these tools."""
        copy = ToolRegistry(t for t in self._tools.values() if t.name not in names)
        copy._off = set(self._off)
        return copy

    def find(self, name: str) -> Tool:
        """Return the tool of that name. Raises ToolError with a suggestion."""
        registered = self._tools.get(name)
        if registered is not None and self._is_on(registered):
            return registered
        if registered is not None:
            raise ToolError(f"tool {name!r} is disabled here; available: {self._available()}")
        matches = difflib.get_close_matches(name, [t.name for t in self], n=1, cutoff=0.5)
        hint = f"; did you mean {matches[0]!r}?" if matches else f"; available: {self._available()}"
        raise ToolError(f"there is no tool {name!r}{hint}")

    def schemas(self) -> list[dict[str, Any]]:
        """Return the schemas for the model in registration order: a stable order keeps the prompt cache valid."""
        return [t.schema for t in self]

    def toolsets(self) -> dict[str, bool]:
        """Return every toolset and whether it is enabled."""
        return {t.toolset: t.toolset not in self._off for t in self._tools.values()}

    def __iter__(self) -> Iterator[Tool]:
        return (t for t in self._tools.values() if self._is_on(t))

    def __contains__(self, name: object) -> bool:
        return any(t.name == name for t in self)

    def _is_on(self, tool: Tool) -> bool:
        return tool.toolset not in self._off and tool.name not in self._off

    def _available(self) -> str:
        return ", ".join(t.name for t in self) or "none"
