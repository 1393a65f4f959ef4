"""Tools by need: a catalogue and a dispatcher instead of many schemas, and the inner tool's rules apply."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent
from perdure.agent.agent import ConversationAgent
from perdure.agent.runner import LoopThread
from perdure.config.settings import McpServerSettings, PermissionsSettings, Settings
from perdure.context.engine import EngineServices
from perdure.context.tool_calls.describe import describe_call
from perdure.core.concurrency import SystemClock
from perdure.core.events import Event, ToolFinished, ToolStarted
from perdure.core.messages import Message, ToolCall, canonical_json
from perdure.core.ports import ApprovalAnswer, ApprovalRequest
from perdure.models.tokens import estimate_text
from perdure.store.search.documents import score_documents
from perdure.testing.simulator import Call, Say, Simulator
from perdure.tools.deferred import CORE_TOOLSETS, DeferredTools
from perdure.tools.mcp import McpServers
from perdure.tools.runtime import ToolRuntime, ToolScope
from perdure.tools.tool import Tool, ToolRegistry, ToolReply
from perdure.tools.tool_search import ToolFinder, read_action
from perdure.tools.toolbox import ToolSources, build_toolbox
from support.agents import bench

DATA = Path(__file__).parents[1] / "support" / "data"
SERVER = str(Path(__file__).parents[1] / "support" / "mcp_catalogue_server.py")
LISTED = json.loads((DATA / "mcp_tools.json").read_text("utf-8"))
THRESHOLD = Settings().tools.defer_above_tokens


def _echo(name: str) -> Any:
    return lambda **arguments: f"{name} {json.dumps(arguments, sort_keys=True)}"


def _tools() -> list[Tool]:
    return [
        Tool(
            name := f"{t['server']}__{t['name']}",
            t["description"],
            t["input_schema"],
            _echo(name),
            toolset=f"mcp:{t['server']}",
            is_dangerous=t["destructive"],
        )
        for t in LISTED
    ]


def _deferred(pinned: Sequence[str] = (), threshold: int = THRESHOLD) -> DeferredTools:
    return DeferredTools(score_documents, threshold_tokens=threshold, pinned=pinned)


def _names(schemas: Sequence[Mapping[str, Any]]) -> list[str]:
    return [schema["function"]["name"] for schema in schemas]


def _runtime(*tools: Tool, **more: Any) -> ToolRuntime:
    runtime = ToolRuntime(ToolRegistry(tools or _tools()), clock=SystemClock(), deferred=_deferred(), **more)
    runtime.offer()
    return runtime


def _run(runtime: ToolRuntime, name: str, arguments: Any, heard: list[Event] | None = None) -> Message:
    call = ToolCall("call_1", name, canonical_json(arguments))
    emit = heard.append if heard is not None else lambda _: None
    return asyncio.run(runtime.batch([call], ToolScope(), emit).run())[0]


def _use(runtime: ToolRuntime, name: str, arguments: Any, heard: list[Event] | None = None) -> Message:
    return _run(runtime, "use_tool", {"name": name, "arguments": arguments}, heard)


@pytest.fixture(scope="module")
def office() -> Iterator[list[Tool]]:
    """The 178 tools from a real MCP server."""
    pytest.importorskip("mcp", reason="the mcp package is not installed")
    settings = McpServerSettings(name="office", command=sys.executable, args=("-P", SERVER))
    servers = McpServers([settings], {"PATH": "/usr/bin:/bin"})
    yield servers.start()
    servers.close()


@pytest.mark.spec("O6")
def test_178_tools_of_an_mcp_server_and_the_built_in_ones_take_at_most_3000_tokens(
    office: list[Tool], tmp_path: Path
) -> None:
    sources = ToolSources(
        settings=Settings(), clock=SystemClock(), user_home=tmp_path, workspace=tmp_path, rank=score_documents
    )
    toolbox = build_toolbox(sources, office)
    try:
        offered = toolbox.runtime.offer()
    finally:
        toolbox.close()
    assert len(office) == 178
    assert estimate_text(canonical_json(offered)) <= 3_000
    assert {"terminal", "read_file", "web_extract", "find_tools", "use_tool"} <= set(_names(offered))
    assert not any(name.startswith("office__") for name in _names(offered))
    catalogue = offered[_names(offered).index("find_tools")]["function"]["description"]
    assert all(f"{t['server']}_{t['name']}" in catalogue for t in LISTED)


@pytest.mark.spec("O6")
def test_a_deferred_tool_of_a_real_server_is_found_and_called(office: list[Tool]) -> None:
    runtime = _runtime(*office)
    shown = _run(runtime, "find_tools", {"query": "give the customer their money back"}).text
    assert "office__stripe_create_refund" in shown
    assert '"required":["payment_intent"]' in shown
    result = _use(runtime, "office__stripe_create_refund", {"payment_intent": "pi_7"})
    assert result.text == 'stripe_create_refund {"payment_intent": "pi_7"}'


@pytest.mark.spec("O6")
def test_below_the_threshold_or_switched_off_all_schemas_are_sent() -> None:
    few = _tools()[:5]
    assert _names(_deferred().offer(ToolRegistry(few))) == [t.name for t in few]
    settings = Settings.model_validate({"tools": {"defer_above_tokens": 0}})
    sources = ToolSources(settings=settings, clock=SystemClock(), user_home=Path("/tmp"), rank=score_documents)
    toolbox = build_toolbox(sources, _tools())
    try:
        assert set(_names(toolbox.runtime.offer())) >= {t.name for t in _tools()}
    finally:
        toolbox.close()


@pytest.mark.spec("O6")
def test_every_tool_that_perdure_brings_is_sent_whole(tmp_path: Path) -> None:
    settings = {"model": {"context_length": 20_000}, "context": {"lcm_tools": True}}
    with Simulator(script=lambda asked: "ok") as sim:
        with Agent(
            "m-1", "custom", base_url=sim.base_url, store=tmp_path / "p.db", home=tmp_path, settings=settings
        ) as agent:
            agent.chat("hello")
            toolsets = {tool.toolset for tool in agent.deps.tools.registry}
        assert len(sim.requests[0].body["tools"]) > 10
    assert toolsets <= CORE_TOOLSETS


def test_pinned_tools_are_sent_whole() -> None:
    names = _names(_deferred(["mcp:postgres", "slack__post_message"]).offer(ToolRegistry(_tools())))
    assert "slack__post_message" in names
    assert "postgres__query" in names
    assert "slack__list_channels" not in names


def test_a_tool_that_is_called_like_a_dispatcher_keeps_its_name() -> None:
    own = Tool("use_tool", "Mine.", {"type": "object", "properties": {}}, lambda **_: "mine")
    runtime = _runtime(*_tools(), own)
    assert len(runtime.offer()) == 179
    assert _run(runtime, "use_tool", {"name": "slack__list_channels", "arguments": {}}).text == "mine"


def test_a_large_set_is_listed_within_a_budget() -> None:
    many = [replace(t, name=f"s{n}_{t.name}"[:64]) for n in range(30) for t in _tools()]
    offered = _deferred().offer(ToolRegistry(many))
    assert len(many) == 5_340
    assert estimate_text(canonical_json(offered)) <= 3_000


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": "slack__add_reaction", "arguments": {"channel_id": "C1", "timestamp": "7", "reaction": "eyes"}},
        {"name": "slack__add_reaction", "channel_id": "C1", "timestamp": "7", "reaction": "eyes"},
        {"name": "slack__add_reaction", "arguments": '{"channel_id":"C1","timestamp":"7","reaction":"eyes"}'},
        {"name": "add_reaction", "arguments": {"channel_id": "C1", "timestamp": "7", "reaction": "eyes"}},
    ],
    ids=["as shown", "flat", "JSON text", "without the group"],
)
def test_arguments_are_accepted_in_the_forms_models_send(arguments: Any) -> None:
    result = _run(_runtime(), "use_tool", arguments)
    assert result.text == 'slack__add_reaction {"channel_id": "C1", "reaction": "eyes", "timestamp": "7"}'


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"arguments": {}}, "`name` is missing"),
        ({"name": "use_tool", "arguments": {}}, "use_tool takes"),
        ({"name": "slack__add_reactions", "arguments": {}}, "did you mean 'slack__add_reaction'"),
        ({"name": "slack__add_reaction", "arguments": {"channel_id": 7}}, "`channel_id` should be string"),
        ({"name": "slack__add_reaction", "arguments": "{"}, "not valid JSON"),
    ],
)
def test_a_wrong_dispatch_is_explained_to_the_model(arguments: Any, reason: str) -> None:
    assert reason in _run(_runtime(), "use_tool", arguments).text


class _Refuser:
    """Refuses everything and remembers what was asked."""

    def __init__(self) -> None:
        self.actions: list[str] = []

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.actions.append(request.action)
        return "no"


def test_approval_and_rules_apply_to_the_tool_behind_the_dispatcher(tmp_path: Path) -> None:
    approver = _Refuser()
    settings = Settings(permissions=PermissionsSettings(deny=("slack__post_message",)))
    sources = ToolSources(
        settings=settings, clock=SystemClock(), user_home=tmp_path, approver=approver, rank=score_documents
    )
    toolbox = build_toolbox(sources, _tools())
    try:
        toolbox.runtime.offer()
        refused = _use(toolbox.runtime, "jira__delete_issue", {"issue_key": "OPS-1"})
        denied = _use(toolbox.runtime, "slack__post_message", {"channel_id": "C1", "text": "hi"})
        free = _use(toolbox.runtime, "slack__list_channels", {})
    finally:
        toolbox.close()
    assert approver.actions == ["jira__delete_issue(issue_key='OPS-1')"]
    assert [m.tool_state for m in (refused, denied, free)] == ["refused", "refused", "completed"]
    assert "slack__post_message was not run" in denied.text


def test_hooks_limits_and_events_see_the_tool_behind_the_dispatcher() -> None:
    long = Tool("own__long", "Prints much.", {"type": "object"}, lambda **_: "x" * 5_000, max_result_chars=1_000)
    runtime, heard = _runtime(*_tools(), long), []  # type: ToolRuntime, list[Event]
    seen: list[str] = []
    runtime.hooks.pre_tool_call.append(lambda call, arguments: seen.append(f"{call.name} {dict(arguments)}"))
    runtime.hooks.post_tool_call.append(lambda call, reply: ToolReply(f"{call.name}: {reply.text}"))
    result = _use(runtime, "own__long", {}, heard)
    assert seen == ["own__long {}"]
    assert len(result.text) < 3_000
    assert result.tool_call_id == "call_1"
    assert [e.call.name for e in heard if isinstance(e, ToolStarted | ToolFinished)] == ["own__long"] * 2


@pytest.mark.spec("O6", "L4")
def test_the_tools_of_a_conversation_never_change_while_tools_are_found_and_used(tmp_path: Path) -> None:
    script = [
        Say(calls=(Call("find_tools", {"query": "merge a pull request"}),)),
        Say(calls=(Call("use_tool", {"name": "github__get_pull_request", "arguments": _pull(7)}),)),
        Say(calls=(Call("use_tool", {"name": "github__merge_pull_request", "arguments": _pull(7)}),)),
    ]
    with bench(tmp_path, *script, "Merged.", "Twice.") as b:
        deps = replace(b.deps, tools=ToolRuntime(ToolRegistry(_tools()), clock=b.deps.clock, deferred=_deferred()))
        agent = ConversationAgent(deps, LoopThread(), services=lambda live: EngineServices())
        agent.chat("merge 7")
        agent.chat("again")
        sent = [request.body["tools"] for request in b.sim.requests]
        assert len(sent) == 5
        assert all(tools == sent[0] for tools in sent)
        assert _names(sent[0]) == ["find_tools", "use_tool"]
        results = [m["content"] for m in b.sim.requests[-1].body["messages"] if m["role"] == "tool"]
        assert results[0].startswith("github__merge_pull_request: ")
        assert results[2].startswith("github__merge_pull_request {")
        assert b.sim.violations == []


def _pull(number: int) -> dict[str, Any]:
    return {"owner": "o", "repo": "r", "pull_number": number}


def test_a_dispatched_call_is_described_as_the_tool_it_calls() -> None:
    call = ToolCall("c", "use_tool", '{"name": "terminal", "arguments": {"command": "make test"}}')
    direct = ToolCall("c", "terminal", '{"command": "make test"}')
    assert describe_call(call, "ok") == describe_call(direct, "ok")


@pytest.mark.spec("O6")
def test_plain_requests_find_their_tool_among_the_first_five() -> None:
    finder = ToolFinder(score_documents, _tools())
    requests = json.loads((DATA / "tool_requests.json").read_text("utf-8"))
    positions = {request: _position(finder, request, wanted) for request, wanted in requests}
    missed = [request for request, position in positions.items() if position > 5]
    assert len(missed) <= 0.05 * len(requests), missed
    unlisted = [request for request, position in positions.items() if position > 20]
    assert len(unlisted) <= 0.01 * len(requests), unlisted


def _position(finder: ToolFinder, request: str, wanted: str | list[str]) -> int:
    names = {wanted} if isinstance(wanted, str) else set(wanted)
    return next((n for n, tool in enumerate(finder.rank(request), start=1) if tool.name in names), 999)


@pytest.mark.spec("O6")
def test_one_answer_describes_five_tools_and_names_fifteen_more() -> None:
    answer = ToolFinder(score_documents, _tools()).find_tools("tell bob@acme.com that I will be late")
    described, _, others = answer.partition("Less likely")
    assert described.count("\narguments: ") == 5
    assert len(others.strip().split("\n")) == 16
    assert estimate_text(others) < 800
    assert "\nslack__post_message(channel_id, text): " in others, "enough to call a simple tool at once"


@pytest.mark.spec("O6")
@pytest.mark.parametrize(
    ("request_text", "action"),
    [
        ("who's paying us for the premium plan?", "one"),
        ("I need the screenshot the customer put on SUP-1203", "one"),
        ("in config.yaml on my machine, swap port 8080 for 9090", "update"),
        ("'Delete me' is done, could you please close it", "update"),
        ("let everyone in #support know that the phones are down", "create"),
        ("kick the second paragraph out of the notes", "delete"),
        ("the article still says Skype, it should say Teams", "update"),
    ],
)
def test_what_a_request_wants_done_is_read_from_its_command(request_text: str, action: str) -> None:
    assert read_action(request_text) == action


@pytest.mark.spec("O6")
@pytest.mark.parametrize(
    ("request_text", "wanted"),
    [
        ("drop a line to bob@acme.com that I'll be late", "gmail__send_email"),
        ("did the landlord ever write back to me about the deposit?", "gmail__search_emails"),
        ("call report_final.docx report_v2.docx instead", "filesystem__move_file"),
        ("say no to the budget meeting, I can't make it", "gcalendar__respond_to_event"),
        ("bounce the web service so it picks up the new secrets", "kubernetes__rollout_restart"),
    ],
)
def test_everyday_wording_finds_the_tool(request_text: str, wanted: str) -> None:
    assert wanted in [tool.name for tool in ToolFinder(score_documents, _tools()).rank(request_text)[:5]]
