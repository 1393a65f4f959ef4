"""The suite for engine authors, run against the built-in engine, a minimal one, and ones that must fail it (M1, M5)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from perdure.context import conformance
from perdure.context.compressor import ContextCompressor
from perdure.context.engine import Compaction, ContextEngine, EngineServices, Keep, Reason
from perdure.context.notebook_engine import WindowEngine
from perdure.core.errors import ToolError
from perdure.core.messages import HANDOFF_FIRST_LINE, Entry, Message
from perdure.core.usage import CanonicalUsage


class KeepsTheLast(ContextEngine):
    """The smallest engine there is: three methods, a plain list as its answer."""

    name = "keeps-the-last"
    window = 100_000

    def update_model(
        self, *, context_length: int, model: str = "", provider: str = "", max_tokens: int | None = None
    ) -> None:
        self.window = context_length

    def update_from_response(self, usage: CanonicalUsage) -> None:
        self.last = usage.prompt_tokens

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return (prompt_tokens or 0) >= self.window // 2

    def compress(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> list[Message]:
        newest = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].message.is_real_user), None)
        if newest is None or all(e.message.kind == "handoff" for e in messages[:newest]):
            return [e.message for e in messages]
        note = Message("user", f"{HANDOFF_FIRST_LINE}\n{newest} messages were dropped.", kind="handoff")
        return [note, *(e.message for e in messages[newest:])]


class Forgetful(KeepsTheLast):
    """Drops the newest request."""

    def compress(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> list[Message]:
        return [e.message for e in messages[:-1]][-5:]


class Fragile(KeepsTheLast):
    """Raises when there is nothing to do."""

    def compress(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> list[Message]:
        return [messages[0].message, *super().compress(messages)]


class Eager(KeepsTheLast):
    """Always wants to compact."""

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return True


class Hasty(KeepsTheLast):
    """Has the summary written before anybody asked for it."""

    def on_session_start(self, session_id: str, **told: Any) -> None:
        self.services: EngineServices = told["services"]

    def has_content_to_compress(self, messages: Sequence[Entry]) -> bool:
        if self.services.summarize is not None:
            self.services.summarize("sum it up", max_tokens=10)
        return True


class Roomy(KeepsTheLast):
    """Needs more room than a small window has."""

    def compress(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> list[Message]:
        return super().compress(messages) if self.window > 10_000 else [e.message for e in messages]


class Awaited(KeepsTheLast):
    """The smallest engine as a coroutine function, with a tool that is one as well."""

    name = "awaited"

    async def compress(  # type: ignore[override]  # the base class allows both
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> list[Message]:
        await asyncio.sleep(0)
        return super().compress(messages)

    async def handle_tool_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        raise ToolError(f"no tool {name}")


@pytest.mark.spec("M1", "M5")
@pytest.mark.parametrize("check", conformance.CHECKS, ids=conformance.name_of)
@pytest.mark.parametrize("make", [ContextCompressor, WindowEngine, KeepsTheLast, Awaited])
def test_engine_conforms(make: type[ContextEngine], check: conformance.Check) -> None:
    check(make)


@pytest.mark.spec("M5")
@pytest.mark.parametrize(
    ("make", "fails"),
    [
        (Forgetful, "compacts"),
        (Fragile, "survives_odd_histories"),
        (Eager, "says_when"),
        (Hasty, "looks_before_it_asks"),
        (Roomy, "fits_small_windows"),
    ],
)
def test_the_suite_finds_what_is_wrong(make: type[ContextEngine], fails: str) -> None:
    assert fails in {name for name, wrong in conformance.run(make) if wrong}


@pytest.mark.spec("M1")
def test_only_three_methods_must_be_written() -> None:
    assert ContextEngine.__abstractmethods__ == {"update_from_response", "should_compress", "compress"}


@pytest.mark.spec("M5")
def test_the_suite_runs_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    # The smallest engine: what the built-in ones must do is tested above, check by check.
    assert conformance.main([f"{__name__}:KeepsTheLast"]) == 0
    assert conformance.main(["nonsense"]) == 2
    assert conformance.main(["no_such_package:Engine"]) == 2
    assert conformance.main(["perdure.context.engine:NoSuchEngine"]) == 2
    out = capsys.readouterr()
    assert "ok     compacts" in out.out
    assert "usage" in out.err
    assert "no_such_package:Engine cannot be found" in out.err


class Slides(KeepsTheLast):
    """Leaves old messages out, and adds nothing."""

    def compress(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> list[Message]:
        return [entry.message for entry in messages[-10:]]


class OnlyOnce(Slides):
    """Thinks that it is done once it has compacted."""

    has_compacted = False

    def compress(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> list[Message]:
        if self.has_compacted:
            return [entry.message for entry in messages]
        self.has_compacted = True
        return super().compress(messages)


class Boastful(KeepsTheLast):
    """Reports a compaction and keeps everything."""

    def compress(  # type: ignore[override]
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> Compaction:
        return Compaction("compacted", (Keep(0, len(messages)),))


class Impatient(KeepsTheLast):
    """Keeps the newest request, and nothing that was done about it."""

    def compress(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> list[Message]:
        return [e.message for e in messages if e.message.is_request][-1:]


@pytest.mark.spec("M5", "D8")
def test_an_engine_that_only_leaves_messages_out_passes() -> None:
    assert [(name, wrong) for name, wrong in conformance.run(Slides) if wrong] == []


@pytest.mark.spec("M5", "D8", "C4b")
@pytest.mark.parametrize(
    ("engine", "failed"),
    [(OnlyOnce, "compacts_again"), (Boastful, "compacts"), (Impatient, "keeps_unread_results")],
)
def test_an_engine_whose_compaction_has_no_lasting_effect_fails(engine: type[ContextEngine], failed: str) -> None:
    assert failed in [name for name, wrong in conformance.run(engine) if wrong]


class Repeats(KeepsTheLast):
    """Returns the last two messages twice."""

    def compress(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> list[Message]:
        return [entry.message for entry in (*messages[-2:], *messages[-4:])]


class PlansOnly(KeepsTheLast):
    """Answers with plans, an empty one for an empty history, and the entries themselves where it can."""

    def compress(  # type: ignore[override]
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> Compaction:
        count = len(messages)
        if count <= 10:
            return Compaction("nothing_to_do", (Keep(0, count),))
        return Compaction("compacted", (Keep(count - 10, count),))


class SlidesEntries(KeepsTheLast):
    def compress(  # type: ignore[override]
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> Sequence[Entry]:
        return messages[-10:]


@pytest.mark.spec("M5")
def test_an_engine_that_returns_messages_twice_fails() -> None:
    assert "compacts" in [name for name, wrong in conformance.run(Repeats) if "twice" in wrong]


@pytest.mark.spec("M5")
@pytest.mark.parametrize("engine", [PlansOnly, SlidesEntries])
def test_empty_steps_and_lists_of_entries_pass(engine: type[ContextEngine]) -> None:
    assert [(name, wrong) for name, wrong in conformance.run(engine) if wrong] == []
