"""Which tools there are: by name, in toolsets that can be switched on and off."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from perdure.core.errors import ToolError
from perdure.tools.tool import Tool, tool_from_function


class ToolRegistry:
    """Tools by name. Registering a name again replaces it, so that a user's own version wins."""

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._off: set[str] = set()
        for t in tools:
            self.add(t)

    def add(self, tool: Tool | Callable[..., Any]) -> Tool:
        """Adds a tool, or a plain typed function as one."""
        made = tool if isinstance(tool, Tool) else tool_from_function(tool)
        self._tools[made.name] = made
        return made

    def switch_off(self, toolset: str) -> None:
        """Hides a toolset, or a single tool by its name, from the model."""
        self._off.add(toolset)

    def switch_on(self, toolset: str) -> None:
        self._off.discard(toolset)

    def without(self, *names: str) -> ToolRegistry:
        """A registry of its own with the same tools but these, on and off as here."""
        made = ToolRegistry(t for t in self._tools.values() if t.name not in names)
        made._off = set(self._off)
        return made

    def find(self, name: str) -> Tool:
        """The tool of that name. Raises ToolError with what was probably meant."""
        found = self._tools.get(name)
        if found is not None and self._is_on(found):
            return found
        if found is not None:
            raise ToolError(f"tool {name!r} is switched off here; available: {self._listed()}")
        near = difflib.get_close_matches(name, [t.name for t in self], n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else f"; available: {self._listed()}"
        raise ToolError(f"there is no tool {name!r}{hint}")

    def schemas(self) -> list[dict[str, Any]]:
        """What the model is offered, in the order of registration: stable, so that the cached prefix is."""
        return [t.schema for t in self]

    def toolsets(self) -> dict[str, bool]:
        """Every toolset and whether it is on."""
        return {t.toolset: t.toolset not in self._off for t in self._tools.values()}

    def __iter__(self) -> Iterator[Tool]:
        return (t for t in self._tools.values() if self._is_on(t))

    def __contains__(self, name: object) -> bool:
        return any(t.name == name for t in self)

    def _is_on(self, tool: Tool) -> bool:
        return tool.toolset not in self._off and tool.name not in self._off

    def _listed(self) -> str:
        return ", ".join(t.name for t in self) or "none"
