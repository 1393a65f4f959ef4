"""Tools by need: where schemas are many, the model sees their names and two fixed tools, `find_tools` and `use_tool`.

The tools of a request are the beginning of its cached prefix, so what was found is never added to them: `find_tools`
returns schemas as its result, and `use_tool` calls a tool by its name. The runtime resolves such a call before anything
else sees it, so hooks, approval, limits and events apply to the tool that is called.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from perdure.core.errors import ToolError
from perdure.core.messages import USE_TOOL, ToolCall, canonical_json
from perdure.core.ports import RankTexts
from perdure.models.tokens import estimate_text
from perdure.tools.tool import Tool, ToolRegistry, describe_schema, tool_from_function

FIND_TOOLS = "find_tools"
TOOLSET = "tools by need"
# Sent whole, whatever the size: the tools that Perdure brings, and those of the context engine.
CORE_TOOLSETS = frozenset(
    {"terminal", "files", "web", "planning", "memory", "clarify", "delegation", "context_engine", TOOLSET}
)
_CATALOGUE_TOKENS = 1_500
_SUMMARY_CHARS = 70
_SCHEMA_CHARS = 4_000
_MAX_RESULTS = 20
_SEPARATOR = "__"

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

# What people call what tools call otherwise: words that may stand for each other.
_SYNONYM_GROUPS = """
accept decline invitation rsvp respond|access permission share|alert alarm warn notify alert-rule|
answer reply respond response|assign give hand owner assignee|attachment attach attached file|
automatically filter rule sort incoming|backlog team|balance money account fund|bill invoice charge|
block blocking depend link lock wait|branch line|bring invite add join|bug error|
cancel stop end terminate quit unsubscribe abort|change edit update modify adjust correct fix rewrite set replace|
chat slack channel dm conversation|ci workflow action check build pipeline job|click press button|
close resolve done fix finish complete transition|close resolve state shut|column field schema structure describe|
comment remark discussion note|commit change diff history|compare diff change|connect connection session lock block|
console javascript log error|copy clone fork duplicate|count number many|
create make add new open file start register set|customer client buyer|db database postgres sql table row data|
delete remove erase drop discard trash|draft unsent|drop upload put attach|dropdown select option choose pick|
duplicate link|error exception crash failure bug issue problem|everyone everybody all|file document|
filter rule automatic|find search look locate hunt grep|folder directory|form field sign-up|
free busy available availability|go navigate visit open browse|graph tree|host node machine server|
hour time worklog effort spend|index speed|insert update delete execute|invite add attendee|kill delete terminate|
latest recent newest last|list show all which overview what|log logs output|mail email e-mail inbox letter newsletter|
meeting appointment event calendar call invite standup|mention say message talk discuss|merge land squash|
mine my me assigned|modified change time info|move rename shift reschedule postpone|mute ignore silence snooze|
node cpu memory machine load usage|notification unread news|outage incident error|overdue due date|
page note document doc|pay payment checkout link|pdf export download convert save|
person people user member colleague employee team|person user account who|picture screenshot image photo|
pod container kubernetes k8s cluster|pr pull request|price cost charge|print pdf save|priority urgent|
product item sell|profile title phone contact|project initiative|propose pull|publish release|purchase buy pay order|
reach contact|react reaction emoji thumbs smiley like|read show open view see display get fetch content|
red fail failed failure broken green pass status|redo rerun|refund money back reimburse|
release version deploy deployment ship tag rollout|remind schedule|reopen state|repo repository|
rerun retry restart again|review approve accept sign-off lgtm|reviewer review comment feedback say|
rollback undo revert back|scale replica copy instance|schedule later tomorrow time|security vulnerability scan alert|
send post tell inform notify announce write message share ping let know shout|shell command exec run|
size large big space|slow performance plan explain cost|spreadsheet sheet cell excel csv|sprint iteration cycle|
ssh exec shell|stack trace traceback|star label tag archive read unread|status state transition progress|
subscribe subscription watch|subscription plan membership monthly subscribe|summary describe|sync update up-to-date|
tail last head first|tax price|tell show|thread replies|ticket issue bug story task defect|topic purpose|
tree structure hierarchy|type enter fill input|upload put attach share|vote reaction|
website page browser url web site address|when time date modified|where search find|who user member people|
why describe explain reason event|wiki confluence page doc documentation article|yaml manifest apply|
"""
SYNONYMS = tuple(tuple(group.split()) for line in _SYNONYM_GROUPS.split("\n") for group in line.split("|") if group)
# Notations that name a kind of thing without its word.
_NOTATIONS = (
    (re.compile(r"(?<!\w)#[A-Za-z]"), "channel message"),
    (re.compile(r"\b[A-Z]{2,10}-\d{1,6}\b"), "ticket issue"),
    (re.compile(r"\bhttps?://|\b[\w-]{1,60}\.(?:com|org|net|io|dev)\b"), "web browser page"),
    (re.compile(r"[\w.]{1,60}@[\w-]{1,60}\.\w"), "mail address"),
)


@dataclass(frozen=True, slots=True)
class DeferredSize:
    """What deferring saves: the tools that are not sent, their tokens, and those of the catalogue sent instead."""

    tools: int
    whole_tokens: int
    sent_tokens: int


@dataclass(frozen=True, slots=True)
class _Selection:
    """The tools of a registry, those of them that are not sent, and the two that are sent instead."""

    tools: tuple[Tool, ...]
    deferred: tuple[Tool, ...] = ()
    dispatchers: tuple[Tool, ...] = ()


class DeferredTools:
    """Decides which tools are sent whole: the same tools always give the same schemas."""

    def __init__(self, rank: RankTexts, *, threshold_tokens: int, pinned: Iterable[str] = ()) -> None:
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
        """Return what is saved; None where all tools are sent."""
        selection = self._select(registry)
        if not selection.deferred:
            return None
        tokens = [_tokens_of(tools) for tools in (selection.deferred, selection.dispatchers)]
        return DeferredSize(len(selection.deferred), *tokens)

    def _select(self, registry: ToolRegistry) -> _Selection:
        tools = tuple(t for t in registry if t.toolset != TOOLSET)
        known = self._selection
        if len(known.tools) == len(tools) and all(a is b for a, b in zip(known.tools, tools, strict=True)):
            return known
        self._selection = selection = self._select_anew(tools)
        return selection

    def _select_anew(self, tools: tuple[Tool, ...]) -> _Selection:
        """Defer nothing below the threshold, where it would save nothing, or where a tool has a dispatcher's name."""
        deferred = tuple(t for t in tools if t.toolset not in CORE_TOOLSETS and not self._pinned & {t.name, t.toolset})
        is_taken = any(t.name in (FIND_TOOLS, USE_TOOL) for t in tools)
        if is_taken or not deferred or _tokens_of(tools) <= self._threshold_tokens:
            return _Selection(tools)
        dispatchers = _dispatchers(self._rank, deferred)
        saves = _tokens_of(dispatchers) < _tokens_of(deferred)
        return _Selection(tools, deferred, dispatchers) if saves else _Selection(tools)

    def resolve(self, call: ToolCall, registry: ToolRegistry) -> ToolCall:
        """Return the call that `use_tool` makes; any other call, and one without a usable name, as it is."""
        if call.name != USE_TOOL or USE_TOOL not in registry or registry.find(USE_TOOL).toolset != TOOLSET:
            return call
        made = call.dispatched
        if made is call or made.name in registry:
            return made
        # A name of the catalogue without its group, where only one tool is meant.
        matches = [t.name for t in registry if t.name.partition(_SEPARATOR)[2] == made.name]
        return ToolCall(made.id, matches[0], made.arguments, made.extra) if len(matches) == 1 else made


def _dispatchers(rank: RankTexts, deferred: Sequence[Tool]) -> tuple[Tool, ...]:
    finder = ToolFinder(rank, deferred)
    about = f"{_ABOUT_FIND}\n{catalogue(deferred)}"
    find = tool_from_function(finder.find_tools, name=FIND_TOOLS, description=about, toolset=TOOLSET, is_read_only=True)
    use = Tool(USE_TOOL, _ABOUT_USE, _USE_SCHEMA, _refuse_dispatch, toolset=TOOLSET, is_internal=True)
    return find, use


class ToolFinder:
    """The `find_tools` tool: search the tools that are not sent."""

    def __init__(self, rank: RankTexts, deferred: Sequence[Tool]) -> None:
        self._rank = rank
        self._tools = {t.name: t for t in deferred}
        self._texts = tuple(_searched_text(t) for t in deferred)

    def find_tools(
        self,
        query: Annotated[str, "what you want to do, in plain words, or names from the list"],
        limit: Annotated[int, "most tools to show"] = 5,
    ) -> str:
        """Finds tools by what they do."""
        named = [self._tools[n] for n in dict.fromkeys(re.split(r"[\s,;]+", query)) if n in self._tools]
        if not named:
            named = self.rank(query)[: min(max(1, limit), _MAX_RESULTS)]
        if not named:
            raise ToolError(f"no tool matches {query[:200]!r}; use other words, or names from the list")
        return "\n\n".join(_describe(t, is_whole=len(named) == 1) for t in named)

    def rank(self, query: str) -> list[Tool]:
        """Return the tools that match, best first."""
        hints = " ".join(words for pattern, words in _NOTATIONS if pattern.search(query[:1_000]))
        tools = list(self._tools.values())
        return [tools[n] for n in self._rank(f"{query} {hints}", self._texts, synonyms=SYNONYMS)]


def catalogue(tools: Sequence[Tool]) -> str:
    """List the tools by group: with a few words each, or the names alone, or as many names as there is room for."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for tool in tools:
        group, name = _split_name(tool)
        groups.setdefault(group, []).append((name, _first_words(tool.description)))
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
        prefix = group if group.endswith(_SEPARATOR) else ""
        yield from (f"{prefix}{name}: {about}" for name, about in members)


def _name_line(group: str, names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{group}… {' '.join(names[:most])}{more}"


def _split_name(tool: Tool) -> tuple[str, str]:
    """Return the group and the rest of the name: `github__` and `create_issue`; the toolset for other names."""
    prefix, separator, name = tool.name.partition(_SEPARATOR)
    return (f"{prefix}{separator}", name) if separator and name else (f"{tool.toolset}: ", tool.name)


def _first_words(description: str) -> str:
    line = " ".join(description[: 4 * _SUMMARY_CHARS].split())
    sentence = line.split(". ")[0].rstrip(".")
    return sentence if len(sentence) <= _SUMMARY_CHARS else f"{sentence[:_SUMMARY_CHARS].rsplit(' ', 1)[0]} …"


def _searched_text(tool: Tool) -> tuple[str, str]:
    properties = tool.parameters.get("properties")
    parameters = " ".join(properties) if isinstance(properties, dict) else ""
    return tool.name, f"{tool.description[:1_000]} {parameters}"


def _describe(tool: Tool, *, is_whole: bool) -> str:
    schema = canonical_json(dict(tool.parameters))
    if len(schema) > _SCHEMA_CHARS and not is_whole:
        schema = f"{describe_schema(tool.parameters)} (find_tools with this name alone shows the whole schema)"
    return f"{tool.name}: {tool.description}\narguments: {schema}"


def _tokens_of(tools: Iterable[Tool]) -> int:
    return sum(estimate_text(canonical_json(t.schema)) for t in tools)


def _refuse_dispatch(**arguments: Any) -> str:
    raise ToolError('use_tool takes {"name": …, "arguments": {…}} with a name that find_tools shows')
