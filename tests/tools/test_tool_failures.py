"""Exceptions of tools, hooks and callbacks become results or log lines; only a real interrupt ends the turn."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from perdure.agent.callbacks import CallbackApprover, CallbackAsker
from perdure.agent.runner import EventBus
from perdure.agent.turn import ConversationResult
from perdure.core.concurrency import SystemClock
from perdure.core.errors import ToolError
from perdure.core.events import Event, Notice
from perdure.core.messages import ToolCall, canonical_json
from perdure.core.ports import ApprovalRequest
from perdure.core.visibility import User
from perdure.testing.simulator import Call, Say
from perdure.tools import runtime as runtime_module
from perdure.tools.hooks import Hooks
from perdure.tools.runtime import INTERRUPTED, Batch, ToolRuntime, ToolScope
from perdure.tools.tool import Tool, ToolRegistry, ToolReply, tool_from_function
from perdure.tools.toolbox import load_plugins, tool_plugins
from support.agents import bench


class Panic(BaseException):
    """What an extension module raises when its native code panics."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise Panic("no text")


class UnprintablePanic(BaseException):
    def __str__(self) -> str:
        raise SystemExit(1)


def _parse() -> None:
    argparse.ArgumentParser().parse_args(["--nope"])


def _raise(error: BaseException) -> Callable[[], None]:
    def run() -> None:
        raise error

    return run


FAILURES = {
    "exit": (lambda: sys.exit(3), "SystemExit: 3"),
    "argparse": (_parse, "SystemExit: 2"),
    "ctrl-c": (_raise(KeyboardInterrupt()), "KeyboardInterrupt"),
    "cancelled": (_raise(asyncio.CancelledError()), "CancelledError"),
    "generator": (_raise(GeneratorExit()), "GeneratorExit"),
    "stop": (_raise(StopIteration()), "StopIteration"),
    "panic": (_raise(Panic("at the disco")), "Panic: at the disco"),
    "unprintable": (_raise(Unprintable()), "Unprintable: (its text cannot be read)"),
    "unprintable panic": (_raise(UnprintablePanic()), "UnprintablePanic: (its text cannot be read)"),
    "group": (_raise(BaseExceptionGroup("two", [SystemExit(1), KeyboardInterrupt()])), "BaseExceptionGroup: two"),
    "timeout": (_raise(TimeoutError("of its own")), "TimeoutError: of its own"),
}


def _tools(fail: Callable[[], None]) -> dict[str, Tool]:
    def in_thread() -> str:
        """Fails in its thread."""
        fail()
        return "never"

    async def in_loop() -> str:
        """Fails on the loop."""
        await asyncio.sleep(0)
        fail()
        return "never"

    def later() -> Any:
        """Hands back something to await."""
        return in_loop()

    async def in_child() -> str:
        """Fails in a task of its own."""

        async def child() -> None:
            fail()

        await asyncio.create_task(child())
        return "never"

    return {f.__name__: tool_from_function(f) for f in (in_thread, in_loop, later, in_child)}


def _in_thread(work: Callable[[], ConversationResult]) -> Future[ConversationResult]:
    """Run work beside the test: a turn that never ends fails the test, and does not hang it."""
    future: Future[ConversationResult] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def echo(text: str) -> str:
    """Says it again."""
    return text


def _call(name: str, call_id: str = "a", **arguments: Any) -> ToolCall:
    return ToolCall(call_id, name, canonical_json(arguments))


def _batch(tools: Any, calls: list[ToolCall], **options: Any) -> Batch:
    return ToolRuntime(ToolRegistry([*tools, echo]), clock=SystemClock(), **options).batch(
        calls, ToolScope("t", "c", User("u"))
    )


def _run(tools: Any, *calls: ToolCall, **options: Any) -> list[str]:
    return [m.text for m in asyncio.run(_batch(tools, list(calls), **options).run())]


@pytest.mark.spec("J6")
@pytest.mark.parametrize("how", ["in_thread", "in_loop", "later"])
@pytest.mark.parametrize("what", FAILURES)
def test_exception_of_a_tool_becomes_its_result_alone_and_in_parallel(how: str, what: str) -> None:
    fail, text = FAILURES[what]
    tool = _tools(fail)[how]
    (alone,) = _run([tool], _call(how))
    assert alone.startswith(f"Error: {how} failed: ")
    assert text in alone
    assert _run([tool], _call("echo", "e", text="x"), _call(how), _call("echo", "f", text="y")) == ["x", alone, "y"]


@pytest.mark.spec("J6")
@pytest.mark.parametrize("what", ["exit", "ctrl-c", "cancelled", "panic"])
def test_exit_in_a_background_task_of_a_tool_affects_no_other_turn(tmp_path: Path, what: str) -> None:
    fail, text = FAILURES[what]
    script = [Say(calls=(Call("in_child", {}), Call("echo", {"text": "x"}))), "Done."]
    with bench(tmp_path, *script, tools=[_tools(fail)["in_child"], echo]) as b:
        other = b.loop_thread.submit(asyncio.sleep(0.3, "undisturbed"))
        result = _in_thread(lambda: b.agent.run_conversation("go")).result(10)
        assert result.outcome == "completed"
        first, second = (m["content"] for m in result.messages if m["role"] == "tool")
        assert text in first
        assert second == "x"
        assert other.result(5) == "undisturbed"


def test_unserializable_result_is_an_error() -> None:
    class Odd:
        def __str__(self) -> str:
            raise SystemExit(1)

    created = Tool("odd", "", {"type": "object"}, handler=lambda: {"a": Odd()})
    assert _run([created], _call("odd")) == ["Error: odd failed: SystemExit: 1"]


def test_tool_that_cancels_the_current_task_cancels_only_its_call() -> None:
    async def cancels() -> str:
        """Cancels whatever it runs in."""
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(5)
        return "never"

    results = "Error: cancels failed: CancelledError"
    assert _run([cancels], _call("cancels")) == [results]
    assert _run([cancels], _call("cancels"), _call("echo", "e", text="x")) == [results, "x"]


@pytest.mark.spec("J4")
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("answer", ["returns", "raises", "exits"])
def test_suppressed_cancellation_does_not_suppress_the_interrupt(answer: str, count: int) -> None:
    async def stubborn() -> str:
        """Does not want to be stopped."""
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            if answer == "raises":
                raise ValueError("not now") from None
            if answer == "exits":
                raise SystemExit(1) from None
        return "late"

    async def story() -> list[str]:
        batch = _batch([stubborn], [_call("stubborn", f"c{n}") for n in range(count)])
        task = asyncio.create_task(batch.run())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return [m.text for m in batch.results()]

    assert asyncio.run(story()) == [INTERRUPTED] * count


def test_interrupt_stops_a_tool_in_its_thread(tmp_path: Path) -> None:
    started, go_on = threading.Event(), threading.Event()

    def wait() -> str:
        """Waits for a long time."""
        started.set()
        go_on.wait(60)
        return "late"

    with bench(tmp_path, Say(calls=(Call("wait", {}),)), tools=[wait]) as b:
        turn = _in_thread(lambda: b.agent.run_conversation("go"))
        assert started.wait(30)
        assert b.agent.interrupt()
        assert turn.result(30).outcome == "interrupted"
        go_on.set()


@pytest.mark.spec("J6")
@pytest.mark.parametrize("what", ["exit", "ctrl-c", "cancelled", "panic"])
def test_hooks_that_raise_are_skipped(what: str) -> None:
    fail, _ = FAILURES[what]

    def before(call: ToolCall, arguments: Mapping[str, Any]) -> str | None:
        fail()
        return None

    def after(call: ToolCall, reply: ToolReply) -> ToolReply | None:
        fail()
        return None

    def wrong(call: ToolCall, reply: ToolReply) -> Any:
        return "not a reply"

    hooks = Hooks([before], [after, wrong])
    assert _run([], _call("echo", text="x"), hooks=hooks) == ["x"]
    assert _run([], _call("echo", text="x"), _call("echo", "b", text="y"), hooks=hooks) == ["x", "y"]


class HostileText(str):
    """Text whose every method is the tool's own code."""

    __slots__ = ()

    def __str__(self) -> str:
        raise SystemExit(4)

    def isascii(self) -> bool:
        raise SystemExit(5)

    def __len__(self) -> int:
        raise SystemExit(6)


RESULTS = {
    "bytes": (b"raw \xff bytes", "raw \ufffd bytes"),
    "nothing": (None, "(done, no output)"),
    "a number": (5, "5"),
    "a list": (["a", 1], '["a", 1]'),
    "a hostile text": (HostileText("words"), "words"),
}


@pytest.mark.parametrize("what", RESULTS)
def test_a_reply_whose_text_is_no_text_is_converted(what: str) -> None:
    value, text = RESULTS[what]

    def wrapped() -> Any:
        """Returns a reply."""
        return ToolReply(value)

    def bare() -> Any:
        """Returns the value."""
        return value

    assert _run([wrapped, bare], _call("wrapped", "a"), _call("bare", "b")) == [text, text]
    hooks = Hooks(post_tool_call=[lambda call, reply: ToolReply(value)])
    assert _run([], _call("echo", text="hi"), hooks=hooks) == [text]


class ExitingHook:
    """A hook whose description ends the process."""

    def __call__(self, *arguments: object) -> None:
        raise ValueError("no")

    def __repr__(self) -> str:
        raise SystemExit(7)


def test_a_hook_that_fails_and_cannot_be_described_is_skipped() -> None:
    hooks = Hooks(pre_tool_call=[ExitingHook()], post_tool_call=[ExitingHook()])
    assert _run([], _call("echo", text="hi"), hooks=hooks) == ["hi"]


@pytest.mark.parametrize("error", [GeneratorExit, StopIteration, StopAsyncIteration, KeyboardInterrupt])
@pytest.mark.parametrize("is_async", [False, True])
def test_an_approval_callback_that_raises_anything_counts_as_no(error: type[BaseException], is_async: bool) -> None:
    def plain(action: str, reason: str) -> Any:
        raise error

    async def later(action: str, reason: str) -> Any:
        await asyncio.sleep(0)
        raise error

    async def ask() -> str:
        async with asyncio.timeout(5):
            return await CallbackApprover(later if is_async else plain).approve(ApprovalRequest("rm", "it deletes"))

    assert asyncio.run(ask()) == "no"


@pytest.mark.parametrize("what", ["exit", "ctrl-c", "cancelled", "panic", "unprintable"])
def test_callbacks_that_raise_count_as_no_answer(what: str) -> None:
    fail, _ = FAILURES[what]

    def callback(*_: Any) -> Any:
        fail()

    assert asyncio.run(CallbackApprover(callback).approve(ApprovalRequest("rm", "it deletes"))) == "no"
    with pytest.raises(ToolError, match="could not be put"):
        asyncio.run(CallbackAsker(callback).ask("which?"))


@pytest.mark.parametrize("what", ["exit", "ctrl-c", "cancelled", "panic"])
def test_listener_that_exits_still_receives_the_next_event(what: str) -> None:
    fail, _ = FAILURES[what]
    received: list[Event] = []

    def listen(event: Event) -> None:
        received.append(event)
        fail()

    bus = EventBus()
    finish = bus.listen(listen)
    bus.emit(Notice("one"))
    bus.emit(Notice("two"))
    finish()
    assert received == [Notice("one"), Notice("two")]


@pytest.mark.parametrize("what", ["exit", "ctrl-c", "cancelled", "panic"])
def test_exit_in_recall_does_not_end_the_turn(tmp_path: Path, what: str) -> None:
    fail, text = FAILURES[what]

    def recall(_: str) -> str:
        fail()
        return ""

    with bench(tmp_path, "Hello.", recall=recall) as b:
        received: list[Event] = []
        stop = b.agent.events.listen(received.append)
        assert _in_thread(lambda: b.agent.run_conversation("hi")).result(10).outcome == "completed"
        stop()
        assert [e.text for e in received if isinstance(e, Notice)] == [f"Nothing was recalled: {text}"]


def test_plugin_that_exits_on_start_is_skipped(tmp_path: Path) -> None:
    folder = tmp_path / "plugins" / "tools" / "quits"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("import sys\ndef plugin(registry, hooks):\n    sys.exit(4)\n")
    (warning,) = load_plugins(["quits"], ToolRegistry(), Hooks(), available=tool_plugins(tmp_path))
    assert warning == "tool plug-in 'quits' failed to start: SystemExit: 4"


def test_runtime_timeout_is_distinguished_from_the_tools_own() -> None:
    async def slow() -> str:
        """Takes its time and answers all the same."""
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            return "late"
        return "in time"

    started = time.monotonic()
    created = tool_from_function(slow, timeout_s=0.05)
    assert _run([created], _call("slow")) == ["Error: slow was stopped: it took longer than 0.05 s"]
    assert time.monotonic() - started < 2


def test_a_handler_that_ignores_cancellation_is_abandoned() -> None:
    async def call() -> float:
        is_abandoned = asyncio.Event()

        async def stubborn() -> None:
            while not is_abandoned.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await is_abandoned.wait()

        began = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await runtime_module._in_task(stubborn())
        is_abandoned.set()
        return time.monotonic() - began

    assert asyncio.run(call()) < 5
