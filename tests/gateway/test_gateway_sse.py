"""Text goes to the connection within the call that brings it; where the connection makes it wait, order is kept."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.core.concurrency import SystemClock
from perdure.core.events import TextDelta, TurnFinished
from perdure.core.visibility import EVERYONE, OWNER
from perdure.gateway.api.sse import EventStream
from perdure.gateway.events.broker import EventChannel, Sink
from perdure.gateway.events.subscribe import Batches
from perdure.gateway.events.types import SequencedEvent


class Connection:
    """An ASGI connection that notes what was sent, and can make its sender wait or fail."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.trouble: Exception | None = None

    async def send(self, message: Any) -> None:
        if not self.is_open.is_set():
            await self.is_open.wait()
        if self.trouble is not None:
            raise self.trouble
        if message["type"] == "http.response.body":
            self.sent.append(message["body"].decode())

    async def receive(self) -> Any:
        await asyncio.Event().wait()

    @property
    def words(self) -> str:
        """The texts alone, in the order they went out."""
        split_text = "".join(self.sent).split('"text":"')[1:]
        return " ".join(p.partition('"')[0] for p in split_text)


class Scene:
    """A chat's stream, and one reader of it over a connection."""

    def __init__(self) -> None:
        self.chat = EventChannel(SystemClock())
        self.connection = Connection()

    def subscribe(self, sink: Sink) -> Batches:
        async def batches() -> Batches:
            reader = self.chat.subscribe(turn_id="t_1", sink=sink, visibility=EVERYONE)
            async for batch in reader.batches():
                yield batch
                if isinstance(batch[-1].event, TurnFinished):
                    return

        return batches()

    def say(self, text: str) -> None:
        self.chat.publish("t_1", TextDelta(text), required_visibility=OWNER)

    def end(self) -> None:
        self.chat.publish("t_1", TurnFinished("completed", "whole"), required_visibility=OWNER)

    async def begin(self) -> asyncio.Task[None]:
        answering = asyncio.create_task(
            EventStream(self.subscribe)({"type": "http"}, self.connection.receive, self.connection.send)
        )
        await asyncio.sleep(0.01)
        return answering


def test_a_delta_is_written_synchronously() -> None:
    async def run() -> None:
        scene = Scene()
        answering = await scene.begin()
        scene.say("one")
        assert scene.connection.words == "one"
        scene.say("two")
        assert scene.connection.words == "one two"
        scene.end()
        await answering
        assert scene.connection.sent[-1] == ""

    asyncio.run(run())


def test_a_blocked_connection_gets_everything_in_order() -> None:
    async def run() -> None:
        scene = Scene()
        answering = await scene.begin()
        scene.say("one")
        scene.connection.is_open.clear()
        for word in ("two", "three", "four"):
            scene.say(word)
        await asyncio.sleep(0.01)
        assert scene.connection.words == "one"

        scene.connection.is_open.set()
        await asyncio.sleep(0.01)
        assert scene.connection.words == "one two threefour"
        scene.say("five")
        scene.end()
        await answering
        assert scene.connection.words == "one two threefour five"

    asyncio.run(run())


def test_text_written_before_anybody_reads_comes_first() -> None:
    async def run() -> None:
        scene = Scene()
        scene.say("early")
        answering = await scene.begin()
        scene.say("late")
        scene.end()
        await answering
        assert scene.connection.words == "early late"

    asyncio.run(run())


def test_a_connection_error_ends_the_stream_not_the_turn() -> None:
    async def run() -> None:
        scene = Scene()
        answering = await scene.begin()
        scene.connection.trouble = OSError("the token is no longer valid")
        scene.say("one")
        with pytest.raises(OSError, match="no longer valid"):
            await answering

    asyncio.run(run())


def test_what_a_full_connection_did_not_take_fails_with_it() -> None:
    async def run() -> None:
        scene = Scene()
        answering = await scene.begin()
        scene.connection.is_open.clear()
        scene.say("one")
        scene.connection.trouble = OSError("gone")
        scene.connection.is_open.set()
        await asyncio.sleep(0.01)
        scene.say("two")
        with pytest.raises(OSError, match="gone"):
            await answering

    asyncio.run(run())


def test_a_sink_receives_only_text_deltas() -> None:
    async def run() -> None:
        seen: list[SequencedEvent] = []
        chat = EventChannel(SystemClock())
        reader = chat.subscribe(turn_id="t_1", sink=lambda n: seen.append(n) is None, visibility=EVERYONE)
        reading = asyncio.create_task(anext(reader.batches()))
        await asyncio.sleep(0)
        chat.publish("t_1", TextDelta("one"), required_visibility=OWNER)
        chat.publish("t_1", TurnFinished("completed", "one"), required_visibility=OWNER)
        batch = await reading
        assert [n.event for n in seen] == [TextDelta("one")]
        assert [type(n.event) for n in batch] == [TurnFinished]

    asyncio.run(run())
