"""SequencedEvent events: what a late, a slow and a returning reader get, and how they look on the wire."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from perdure.core.events import CallStarted, Notice, ReasoningDelta, TextDelta, TurnFinished, TurnStarted
from perdure.core.visibility import EVERYONE, OWNER, User
from perdure.gateway.api.sse import format_event
from perdure.gateway.events.broker import (
    MAX_BUFFERED_EVENTS,
    MAX_FINISHED_EVENTS,
    EventBroker,
    EventChannel,
    Subscriber,
)
from perdure.gateway.events.serialize import encode_event, to_json
from perdure.gateway.events.subscribe import EventFeeds
from perdure.gateway.events.types import ChatKey, CommandAnswered, GatewayEvent, QuestionAsked, SequencedEvent
from perdure.gateway.workers.routing import chat_key
from perdure.store import open_store
from perdure.testing.simulator import Simulator
from support.gateway_process import obedient
from support.gateway_server import running_gateway
from support.store import FakeClock


def read(reader: Subscriber) -> list[SequencedEvent]:
    """Everything that waits, and then the end."""
    reader.close()

    async def drained() -> list[SequencedEvent]:
        return [n async for batch in reader.batches() for n in batch]

    return asyncio.run(drained())


def texts(found: list[SequencedEvent]) -> list[str]:
    return [n.event.text for n in found if isinstance(n.event, TextDelta)]


def test_numbers_only_grow_whatever_the_clock_does() -> None:
    clock = FakeClock()
    stream = EventChannel(clock)
    reader = stream.subscribe(visibility=EVERYONE)
    for step in (0, 5, -50, 0, 1):
        clock.pass_ms(step)
        stream.publish("t_1", Notice("tick"), required_visibility=OWNER)
    numbers = [n.number for n in read(reader)]
    assert numbers == sorted(set(numbers))


def test_a_slow_subscriber_gets_merged_deltas() -> None:
    stream = EventChannel(FakeClock())
    reader = stream.subscribe(visibility=EVERYONE)
    for event in (
        TextDelta("a"),
        TextDelta("b"),
        Notice("n"),
        TextDelta("c"),
        ReasoningDelta("r"),
        ReasoningDelta("s"),
    ):
        stream.publish("t_1", event, required_visibility=OWNER)
    stream.publish("t_2", TextDelta("other"), required_visibility=OWNER)
    found = read(reader)
    assert [n.event for n in found] == [
        TextDelta("ab"),
        Notice("n"),
        TextDelta("c"),
        ReasoningDelta("rs"),
        TextDelta("other"),
    ]
    again = stream.subscribe(after=found[0].number, visibility=EVERYONE)
    assert texts(read(again)) == ["c", "other"]


def test_resubscribing_to_a_turn_repeats_no_delta() -> None:
    stream = EventChannel(FakeClock())
    first = stream.subscribe(turn_id="t_1", visibility=EVERYONE)
    stream.publish("t_1", TextDelta("heard "), required_visibility=OWNER)
    heard = read(first)[-1].number
    stream.publish("t_1", TextDelta("missed"), required_visibility=OWNER)
    stream.publish("t_2", TextDelta("other"), required_visibility=OWNER)
    assert texts(read(stream.subscribe(turn_id="t_1", after=heard, visibility=EVERYONE))) == ["missed"]
    assert texts(read(stream.subscribe(turn_id="t_1", visibility=EVERYONE))) == ["heard missed"]


def test_a_finished_turn_buffers_its_final_event_without_deltas() -> None:
    stream = EventChannel(FakeClock())
    stream.publish("t_1", TurnStarted("t_1", "s_1"), required_visibility=OWNER)
    for _ in range(500):
        stream.publish("t_1", TextDelta("piece "), required_visibility=OWNER)
    assert len(texts(read(stream.subscribe(turn_id="t_1", visibility=EVERYONE)))) == 1
    stream.publish("t_1", TurnFinished("completed", "piece " * 500), required_visibility=OWNER)
    stream.publish("t_2", TextDelta("the next turn"), required_visibility=OWNER)
    late = read(stream.subscribe(after=0, visibility=EVERYONE))
    assert [type(n.event).__name__ for n in late] == ["TurnStarted", "TurnFinished", "TextDelta"]


def test_the_buffer_of_a_channel_is_bounded() -> None:
    stream = EventChannel(FakeClock())
    for number in range(200):
        stream.publish(f"t_{number}", CommandAnswered("done"), required_visibility=OWNER)
    assert len(read(stream.subscribe(after=0, visibility=EVERYONE))) <= MAX_FINISHED_EVENTS


def test_a_subscriber_that_never_reads_is_disconnected() -> None:
    stream = EventChannel(FakeClock())
    reader = stream.subscribe(visibility=EVERYONE)
    for number in range(MAX_BUFFERED_EVENTS + 10):
        stream.publish("t_1", Notice(str(number)), required_visibility=OWNER)
    assert reader.is_closed
    assert len(read(reader)) == MAX_BUFFERED_EVENTS


def test_a_subscriber_is_freed_at_once_without_the_garbage_collector() -> None:
    # Full collections are rare in a gateway: what has to wait for one is memory of every finished stream.
    stream = EventChannel(FakeClock())
    gc.collect()
    gc.disable()
    try:
        reader = stream.subscribe(visibility=EVERYONE)
        stream.publish("t_1", TextDelta("piece"), required_visibility=OWNER)
        stream.unsubscribe(reader)
        alive = weakref.ref(reader)
        del reader
        assert alive() is None
    finally:
        gc.enable()


@given(st.text(), st.integers(min_value=0, max_value=2**52))
def test_the_fast_path_for_deltas_formats_the_same_json(text: str, number: int) -> None:
    sequenced = SequencedEvent(number, "t_1", TextDelta(text))
    lines = format_event(sequenced).decode().split("\n")
    assert lines == [f"id: {number}", "event: text_delta", f"data: {to_json(encode_event(sequenced))}", "", ""]
    assert json.loads(lines[2].removeprefix("data: "))["text"] == text


def test_every_kind_of_event_is_one_line_of_json_with_its_type() -> None:
    events: list[GatewayEvent] = [
        CallStarted("m", 10, 100, 50),
        TurnFinished("failed", "", error="a\nb"),
        QuestionAsked("q_1", "approval", "rm -rf /", ("once", "no"), "it deletes"),
        CommandAnswered("two\nlines"),
    ]
    for event in events:
        body = format_event(SequencedEvent(7, "t_1", event)).decode()
        data = json.loads(body.split("data: ")[1])
        assert body.count("\n") == 4
        assert (data["number"], data["turn_id"]) == (7, "t_1")
    assert data["type"] == "command_answered"


def test_a_websocket_uses_the_same_json(tmp_path: Path) -> None:
    with (
        Simulator(script=obedient) as sim,
        running_gateway(tmp_path, sim, users={"ann": ("chat", "read")}) as gateway,
        connect(f"{gateway.url.replace('http', 'ws')}/api/ws", additional_headers=gateway.headers("ann")) as socket,
    ):
        socket.send(json.dumps({"type": "message", "content": "say hello", "id": 1}))
        heard = []
        while not heard or heard[-1]["type"] != "turn_finished":
            heard.append(json.loads(socket.recv(timeout=10)))
        ticket = next(h for h in heard if h["type"] == "ticket")
        assert ticket["id"] == 1
        assert heard[-1]["final_response"] == "hello"
        assert heard[-1]["turn_id"] == ticket["turn_id"]
        assert heard[-1]["chat"] == "main"
        for wrong in ("{", "[]", '{"type": "dance"}', '{"type": "message", "content": " ", "id": 2}'):
            socket.send(wrong)
            assert json.loads(socket.recv(timeout=10))["type"] == "error"
        socket.send(json.dumps({"type": "stop", "id": 3}))
        assert json.loads(socket.recv(timeout=10)) == {"type": "done", "id": 3, "was_running": False}


def test_a_websocket_sends_the_reason_before_it_closes(tmp_path: Path) -> None:
    with (
        Simulator(script=obedient) as sim,
        running_gateway(tmp_path, sim, users={"ann": ("chat", "read")}) as gateway,
        connect(f"{gateway.url.replace('http', 'ws')}/api/ws", additional_headers=gateway.headers("ann")) as socket,
    ):
        nested = "[" * 100_000
        for text in (nested, f'{{"type": "message", "content": {nested}', f'{{"a":{nested}{"]" * 100_000}}}'):
            socket.send(text)
            assert "nested too deeply" in json.loads(socket.recv(timeout=10))["error"]["message"]
        # It goes on being of use.
        socket.send(json.dumps({"type": "stop", "id": 3}))
        assert json.loads(socket.recv(timeout=10))["type"] == "done"
        socket.send(b'{"type": "stop"}')
        assert "binary" in json.loads(socket.recv(timeout=10))["error"]["message"]
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=10)
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1003, "binary frames are not supported")


def test_chat_keys_never_collide() -> None:

    keys = [
        ChatKey("http", User("a"), 'b", "c'),
        ChatKey("http", User('a", "b'), "c"),
        ChatKey("http", User("a\x1fb"), "c"),
    ]
    assert len({chat_key(k) for k in keys}) == len(keys)


def test_a_turn_that_outlives_its_idle_channel_publishes_to_the_next_one() -> None:
    async def run() -> list[SequencedEvent]:
        clock, chat = FakeClock(), ChatKey("http", User("ann"), "main")
        broker = EventBroker(clock)
        publish = broker.publisher(chat, "t_1", required_visibility=OWNER)
        publish(Notice("before"))
        clock.pass_ms(60_000)
        broker.drop_idle(idle_s=1.0, busy=())
        subscriber = broker.channel(chat).subscribe(turn_id="t_1", visibility=EVERYONE)
        publish(Notice("after"))
        subscriber.close()
        return [event async for batch in subscriber.batches() for event in batch]

    assert [n.event for n in asyncio.run(run())] == [Notice("after")]


def test_an_unread_feed_leaks_no_subscription_and_a_read_one_misses_nothing(tmp_path: Path) -> None:
    async def run() -> list[str]:
        broker, chat = EventBroker(FakeClock()), ChatKey("http", User("ann"), "main")
        with open_store(tmp_path / "perdure.db") as store:
            feeds = EventFeeds(broker, store, owner="me")
            broker.publish(chat, "t_0", Notice("before"), required_visibility=OWNER)
            feeds.chat(chat, visibility=EVERYONE)
            reading = feeds.chat(chat, visibility=EVERYONE)
            assert not broker.channel(chat).has_subscribers
            broker.publish(chat, "t_1", Notice("between"), required_visibility=OWNER)
            batch = await anext(reading)
            assert broker.channel(chat).has_subscribers
            await reading.aclose()
            assert not broker.channel(chat).has_subscribers
            return [n.event.text for n in batch if isinstance(n.event, Notice)]

    assert asyncio.run(run()) == ["between"]
