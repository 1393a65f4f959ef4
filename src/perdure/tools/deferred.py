"""Deferred tools: where there are many, the model gets their names, and `find_tools` and `use_tool` to call them.

The tools of a request are the beginning of its cached prefix, so what was found is never added to them: `find_tools`
returns schemas as its result, and `use_tool` calls a tool by its name. The runtime resolves such a call before anything
else sees it, so hooks, approval, limits and events apply to the tool that is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.core.errors import ToolError
from perdure.core.messages import USE_TOOL, ToolCall, canonical_json
from perdure.core.ports import ScoreTexts
from perdure.models.tokens import estimate_text
from perdure.tools.tool import FIND_TOOLS, Tool, ToolRegistry, tool_from_function
from perdure.tools.tool_search import SEPARATOR, ToolFinder, first_words, split_name

TOOLSET = "tools by need"
# Never deferred: the built-in tools, and those of the context engine.
CORE_TOOLSETS = frozenset(
    {
        "terminal",
        "files",
        "web",
        "planning",
        "memory",
        "clarify",
        "delegation",
        "context",
        "log",
        "context_engine",
        TOOLSET,
    }
)
_CATALOGUE_TOKENS = 1_500

_ABOUT_FIND = (
    "Finds tools by what they do, and shows their arguments. Besides the tools whose schemas you have, these can be"
    " called with use_tool, once you know their arguments:"
)
_ABOUT_USE = "Calls a tool that find_tools lists."
_USE_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "the tool's full name"},
        "arguments": {"type": "object", "description": "its arguments, as find_tools shows them"},
    },
    "required": ["name", "arguments"],
}


@dataclass(frozen=True, slots=True)
class DeferredSize:
    """The number of deferred tools, the tokens of their schemas, and of the two dispatchers sent instead."""

    tools: int
    whole_tokens: int
    sent_tokens: int


@dataclass(frozen=True, slots=True)
class _Selection:
    """The tools of a registry, which of them are deferred, and the two dispatchers sent instead."""

    tools: tuple[Tool, ...]
    deferred: tuple[Tool, ...] = ()
    dispatchers: tuple[Tool, ...] = ()


class DeferredTools:
    """Decides which tool schemas are sent and which are deferred; the same tools always give the same schemas."""

    def __init__(self, rank: ScoreTexts, *, threshold_tokens: int, pinned: Iterable[str] = ()) -> None:
        self._rank = rank
        self._threshold_tokens = threshold_tokens
        self._pinned = frozenset(pinned)
        # The newest one: counting the tokens of many schemas takes a while.
        self._selection = _Selection(())

    def offer(self, registry: ToolRegistry) -> list[dict[str, Any]]:
        """Return the schemas to send; where tools are deferred, `find_tools` and `use_tool` join the registry."""
        selection = self._select(registry)
        hidden = {t.name for t in selection.deferred}
        for dispatcher in selection.dispatchers:
            registry.add(dispatcher)
        return [t.schema for t in (*selection.tools, *selection.dispatchers) if t.name not in hidden]

    def size(self, registry: ToolRegistry) -> DeferredSize | None:
        """Return the tokens saved by deferring; None if all tools are sent."""
        selection = self._select(registry)
        if not selection.deferred:
            return None
        tokens = [_tokens_of(tools) for tools in (selection.deferred, selection.dispatchers)]
        return DeferredSize(len(selection.deferred), *tokens)

    def _select(self, registry: ToolRegistry) -> _Selection:
        tools = tuple(t for t in registry if t.toolset != TOOLSET)
        current = self._selection
        if len(current.tools) == len(tools) and all(a is b for a, b in zip(current.tools, tools, strict=True)):
            return current
        self._selection = selection = self._select_anew(tools)
        return selection

    def _select_anew(self, tools: tuple[Tool, ...]) -> _Selection:
        """Choose the tools to defer: none below the threshold, without a saving, or if a name clashes."""
        deferred = tuple(t for t in tools if t.toolset not in CORE_TOOLSETS and not self._pinned & {t.name, t.toolset})
        is_taken = any(t.name in (FIND_TOOLS, USE_TOOL) for t in tools)
        if is_taken or not deferred or _tokens_of(tools) <= self._threshold_tokens:
            return _Selection(tools)
        dispatchers = _dispatchers(self._rank, deferred)
        saves = _tokens_of(dispatchers) < _tokens_of(deferred)
        return _Selection(tools, deferred, dispatchers) if saves else _Selection(tools)

    def resolve(self, call: ToolCall, registry: ToolRegistry) -> ToolCall:
        """Return the call that a `use_tool` call wraps; any other call, or one without a usable name, unchanged."""
        if call.name != USE_TOOL or USE_TOOL not in registry or registry.find(USE_TOOL).toolset != TOOLSET:
            return call
        target = call.dispatched
        if target is call or target.name in registry:
            return target
        # A name of the catalogue without its group, where only one tool is meant.
        matches = [t.name for t in registry if t.name.partition(SEPARATOR)[2] == target.name]
        return ToolCall(target.id, matches[0], target.arguments, target.extra) if len(matches) == 1 else target


def _dispatchers(rank: ScoreTexts, deferred: Sequence[Tool]) -> tuple[Tool, ...]:
    finder = ToolFinder(rank, deferred)
    about = f"{_ABOUT_FIND}\n{catalogue(deferred)}"
    find = tool_from_function(finder.find_tools, name=FIND_TOOLS, description=about, toolset=TOOLSET, is_read_only=True)
    use = Tool(USE_TOOL, _ABOUT_USE, _USE_SCHEMA, _refuse_dispatch, toolset=TOOLSET, is_internal=True)
    return find, use


def catalogue(tools: Sequence[Tool]) -> str:
    """List the tools by group: with a few words each, or the names alone, or as many names as there is room for."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for tool in tools:
        group, name = split_name(tool)
        groups.setdefault(group, []).append((name, first_words(tool.description)))
    detailed = "\n".join(_detailed_lines(groups))
    if estimate_text(detailed) <= _CATALOGUE_TOKENS:
        return detailed
    most = max(len(members) for members in groups.values())
    while most > 1:
        text = "\n".join(_name_line(group, [n for n, _ in members], most) for group, members in groups.items())
        if estimate_text(text) <= _CATALOGUE_TOKENS:
            return text
        most = most * 3 // 4
    return "\n".join(f"{group}: {len(members)} tools" for group, members in groups.items())[: 4 * _CATALOGUE_TOKENS]


def _detailed_lines(groups: dict[str, list[tuple[str, str]]]) -> Iterable[str]:
    for group, members in groups.items():
        prefix = group if group.endswith(SEPARATOR) else ""
        yield from (f"{prefix}{name}: {about}" for name, about in members)


def _name_line(group: str, names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{group}… {' '.join(names[:most])}{more}"


def _tokens_of(tools: Iterable[Tool]) -> int:
    return sum(estimate_text(canonical_json(t.schema)) for t in tools)


def _refuse_dispatch(**arguments: Any) -> str:
    raise ToolError('use_tool takes {"name": …, "arguments": {…}} with a name that find_tools shows')
