"""The tool runtime: concurrency, call order, hooks, timeouts, cancellation."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from perdure.core.concurrency import SystemClock
from perdure.core.errors import ToolError
from perdure.core.events import Event, OutputSpilled, ToolFinished, ToolOutput, ToolStarted
from perdure.core.messages import ToolCall, canonical_json
from perdure.core.visibility import User
from perdure.tools.hooks import Hooks
from perdure.tools.runtime import INTERRUPTED, ToolRuntime, ToolScope
from perdure.tools.tool import OutputPreview, Tool, ToolContext, ToolRegistry, ToolReply, tool, tool_from_function
from support.outputs import MemoryOutputs

SCOPE = ToolScope(task_id="t_1", conversation_id="c_1", user=User("u"))


def _call(name: str, call_id: str = "call_1", **arguments: Any) -> ToolCall:
    return ToolCall(call_id, name, canonical_json(arguments))


def _runtime(*tools: Any, **options: Any) -> ToolRuntime:
    return ToolRuntime(ToolRegistry(tools), clock=SystemClock(), **options)


def _run(runtime: ToolRuntime, *calls: ToolCall, events: list[Event] | None = None) -> list[str]:
    batch = runtime.batch(calls, SCOPE, events.append if events is not None else lambda _: None)
    return [m.text for m in asyncio.run(batch.run())]


def echo(text: str) -> str:
    """Says it again."""
    return text


@pytest.mark.spec("J5")
def test_results_keep_call_order_whatever_finishes_first() -> None:
    def slow(n: int) -> str:
        """Slower the earlier it was asked for."""
        time.sleep((100 - n) / 2_000)
        if n % 10 == 3:
            raise RuntimeError(f"broken {n}")
        return str(n)

    texts = _run(_runtime(slow), *(_call("slow", f"call_{n}", n=n) for n in range(100)))
    assert len(texts) == 100
    for n, text in enumerate(texts):
        assert text == (f"Error: slow failed: RuntimeError: broken {n}" if n % 10 == 3 else str(n))


@pytest.mark.spec("J5")
def test_sync_and_async_calls_run_concurrently() -> None:
    together = threading.Barrier(2, timeout=5)

    def meet() -> str:
        """Waits for the other."""
        together.wait()
        return "met"

    async def later() -> str:
        """Gives way."""
        await asyncio.sleep(0)
        return "async"

    assert _run(_runtime(meet, later), _call("meet", "a"), _call("later", "b"), _call("meet", "c")) == [
        "met",
        "async",
        "met",
    ]


@pytest.mark.spec("J5")
def test_interactive_tool_forces_sequential_calls() -> None:
    running: list[str] = []

    def ask(q: str) -> str:
        """Asks."""
        running.append(q)
        assert len(running) == 1
        time.sleep(0.01)
        running.remove(q)
        return q

    built = tool_from_function(ask, is_interactive=True)
    assert _run(_runtime(built), *(_call("ask", c, q=c) for c in "abc")) == ["a", "b", "c"]


@pytest.mark.spec("J6")
@pytest.mark.parametrize(
    ("call", "says"),
    [
        (ToolCall("c", "ecko", "{}"), "there is no tool 'ecko'; did you mean 'echo'?"),
        (ToolCall("c", "echo", '{"text": "a'), "not valid JSON"),
        (ToolCall("c", "echo", "[1]"), "must be a JSON object, not list"),
        (ToolCall("c", "echo", "{}"), "`text` is missing"),
    ],
)
def test_call_that_cannot_run_becomes_an_error_result(call: ToolCall, says: str) -> None:
    events: list[Event] = []
    (text,) = _run(_runtime(echo), call, events=events)
    assert text.startswith("Error: ")
    assert says in text
    assert [type(e) for e in events] == [ToolStarted, ToolFinished]
    assert isinstance(events[-1], ToolFinished)
    assert events[-1].is_error
    assert events[-1].is_registered == (call.name == "echo")


@pytest.mark.parametrize(
    ("value", "text"),
    [(b"caf\xc3\xa9\xff", "café�"), (None, "(done, no output)"), ({"a": [1]}, '{"a": [1]}'), ("\ud800x", "�x")],
)
def test_return_values_become_text(value: object, text: str) -> None:
    built = Tool("t", "", {"type": "object"}, handler=lambda: value)
    assert _run(_runtime(built), _call("t")) == [text]


def test_hung_call_is_stopped_without_affecting_others() -> None:
    stopped = threading.Event()

    @tool(timeout_s=0.1)
    def hang(context: ToolContext) -> str:
        """Never comes back by itself."""
        context.cancel.on_cancel(stopped.set)
        context.cancel.wait(30)
        return "late"

    started = time.monotonic()
    texts = _run(_runtime(hang, echo), _call("hang", "a"), _call("echo", "b", text="fine"))
    assert texts == ["Error: hang was stopped: it took longer than 0.1 s", "fine"]
    assert time.monotonic() - started < 5
    assert stopped.wait(1)


@pytest.mark.spec("J4")
def test_cancelled_calls_have_an_unknown_outcome() -> None:
    has_started, stopped = threading.Event(), threading.Event()

    @tool()
    def hang(context: ToolContext) -> str:
        """Waits for its end."""
        context.cancel.on_cancel(stopped.set)
        has_started.set()
        context.cancel.wait(30)
        return "late"

    async def story() -> list[str]:
        batch = _runtime(hang, echo).batch([_call("echo", "a", text="done"), _call("hang", "b")], SCOPE)
        task = asyncio.create_task(batch.run())
        await asyncio.to_thread(has_started.wait, 5)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return [m.text for m in batch.results()]

    assert asyncio.run(story()) == ["done", INTERRUPTED]
    assert stopped.wait(1)


@pytest.mark.spec("J6")
def test_hooks_can_refuse_a_call_or_replace_its_result() -> None:
    observed: list[str] = []

    def before(call: ToolCall, arguments: Mapping[str, Any]) -> str | None:
        observed.append(f"before {call.name} {arguments['text']}")
        return "not today" if arguments["text"] == "secret" else None

    def broken(call: ToolCall, arguments: Mapping[str, Any]) -> str | None:
        raise RuntimeError("hook bug")

    def after(call: ToolCall, reply: ToolReply) -> ToolReply | None:
        return ToolReply(reply.text.upper()) if not reply.is_error else None

    runtime = _runtime(echo, hooks=Hooks([broken, before], [after]))
    assert _run(runtime, _call("echo", text="hi")) == ["HI"]
    assert _run(runtime, _call("echo", text="secret")) == ["Error: echo was stopped by a hook: not today"]
    assert observed == ["before echo hi", "before echo secret"]


class _Refuses:
    async def check(self, tool: Tool, arguments: Mapping[str, Any], scope: ToolScope) -> None:
        raise ToolError(f"the user said no to {tool.name} (task {scope.task_id})")


@pytest.mark.spec("J6")
def test_refused_call_does_not_run() -> None:
    ran: list[str] = []

    def touch() -> None:
        """Leaves a trace."""
        ran.append("ran")

    assert _run(_runtime(touch, guard=_Refuses()), _call("touch")) == ["Error: the user said no to touch (task t_1)"]
    assert ran == []


@pytest.mark.spec("J6")
def test_each_result_carries_how_its_call_ended() -> None:
    def fail() -> None:
        """Fails."""
        raise ToolError("no")

    calls = [_call("echo", text="hi"), _call("fail"), _call("unknown")]
    results = asyncio.run(_runtime(echo, fail).batch(calls, SCOPE, lambda _: None).run())
    assert [m.tool_state for m in results] == ["completed", "failed", "failed"]
    (refused,) = asyncio.run(_runtime(echo, guard=_Refuses()).batch(calls[:1], SCOPE, lambda _: None).run())
    assert refused.tool_state == "refused"
    assert "tool_state" not in refused.to_dict()
    (unfinished,) = _runtime(echo).batch(calls[:1], SCOPE, lambda _: None).results()
    assert unfinished.tool_state == "interrupted"


@pytest.mark.spec("J4")
def test_what_an_interrupted_call_had_printed_is_its_result_and_passes_the_hooks() -> None:
    async def interrupt() -> str:
        shown = asyncio.Event()

        async def build(context: ToolContext) -> str:
            """Prints, and does not end."""
            context.show_output(OutputPreview("first token=s3cret\n", "last\n", 40))
            shown.set()
            await asyncio.sleep(60)
            return "never"

        def redact(call: ToolCall, reply: ToolReply) -> ToolReply:
            return ToolReply(reply.text.replace("s3cret", "***"))

        batch = _runtime(build, hooks=Hooks(post_tool_call=[redact])).batch([_call("build")], SCOPE, lambda _: None)
        running = asyncio.create_task(batch.run())
        await shown.wait()
        running.cancel()
        await asyncio.wait({running})
        (result,) = batch.results()
        assert result.tool_state == "interrupted"
        return result.text

    expected = f"{INTERRUPTED}\nIt had printed by then:\nfirst token=***\n[…]\nlast"
    assert asyncio.run(interrupt()) == expected


@pytest.mark.spec("H1")
def test_result_over_its_limit_is_stored_and_announced() -> None:
    outputs = MemoryOutputs()
    events: list[Event] = []
    (text,) = _run(_runtime(echo, outputs=outputs), _call("echo", text="x" * 150_000 + "THE END"), events=events)
    assert text.startswith("<persisted-output>")
    assert text.rstrip().endswith("THE END\n</persisted-output>")
    assert [(e.address, e.chars) for e in events if isinstance(e, OutputSpilled)] == [("output:o1", 150_007)]


def test_handler_receives_the_context_and_a_sink() -> None:
    outputs = MemoryOutputs()

    @tool()
    def big(context: ToolContext) -> ToolReply:
        """Stores its own output."""
        assert context.open_sink is not None
        sink = context.open_sink()
        for _ in range(3):
            sink.write("piece ")
        return ToolReply(f"kept for {context.conversation_id} {context.task_id} {context.call_id}", stored=sink.close())

    assert _run(_runtime(big, outputs=outputs), _call("big", "call_9")) == ["kept for c_1 t_1 call_9"]
    assert outputs.read("o1", conversation_id="c_1").text == "piece piece piece "


@pytest.mark.spec("J5")
def test_calls_that_write_the_same_file_run_in_call_order() -> None:
    order: list[str] = []

    def save(path: str, text: str) -> str:
        """Writes a file; the first takes longest."""
        time.sleep(0.05 if text == "1" else 0)
        order.append(f"{path} {text}")
        return "saved"

    saving = tool_from_function(save, written_path_parameter="path")
    calls = [("a.txt", "1"), ("./a.txt", "2"), ("b.txt", "3"), ("a.txt", "4")]
    _run(_runtime(saving), *(_call("save", f"call_{text}", path=path, text=text) for path, text in calls))
    assert [item for item in order if "a.txt" in item] == ["a.txt 1", "./a.txt 2", "a.txt 4"]
    assert order[0] == "b.txt 3"


@pytest.mark.spec("J5")
def test_calls_of_a_tool_that_keeps_state_run_in_call_order() -> None:
    order: list[int] = []
    second_started = threading.Event()

    def note(number: int) -> str:
        """Notes a number; the first call would wait for the second one if both ran at once."""
        if number == 2:
            second_started.set()
        elif number == 1:
            second_started.wait(0.2)
        order.append(number)
        return "noted"

    _run(_runtime(tool_from_function(note, is_ordered=True)), *(_call("note", f"c{n}", number=n) for n in (1, 2, 3)))
    assert order == [1, 2, 3]


def test_the_output_of_a_running_tool_is_an_event_and_none_follows_its_result() -> None:
    late: list[ToolContext] = []

    def build(context: ToolContext) -> str:
        """Prints while it runs."""
        context.show_output(OutputPreview("one\n", "", 1))
        late.append(context)
        return "done"

    events: list[Event] = []
    runtime = _runtime(build)

    async def run() -> None:
        await runtime.batch([_call("build")], SCOPE, events.append).run()
        late[0].show_output(OutputPreview("too late\n", "", 1))
        await asyncio.sleep(0)

    asyncio.run(run())
    kinds = [type(e) for e in events]
    assert kinds == [ToolStarted, ToolOutput, ToolFinished]
    assert isinstance(events[1], ToolOutput)
    assert events[1].first == "one\n"
