"""Whatever a service sends, in whatever pieces: a reply or a verdict, never anything else and never a hang."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.core.errors import ProviderError
from perdure.providers.http import HttpResponse
from perdure.providers.transport import Retries, Timeouts, Transport
from perdure.providers.types import ApiMode, Endpoint, Reply
from perdure.testing.simulator import Call, Say
from perdure.testing.simulator.rules import Issued, Rules
from perdure.testing.simulator.service import PROTOCOLS
from perdure.testing.simulator.turn import Scene, take_turn
from support.simulator import MODES, PATHS, request

SAY = Say(
    "Some text, 日本語 too.",
    thinking="Hm.",
    calls=(Call("read", {"path": "a"}, "call_1"), Call("read", "{", "c2")),
)
NOISE = (b"\n", b"\r", b"null", b'"', b"{", b"data: ", b"[DONE]", b"\xff", b"-1", b"1e999")
KEYS = (
    "choices",
    "message",
    "delta",
    "content",
    "output",
    "usage",
    "type",
    "error",
    "tool_calls",
    "text",
    "id",
    "name",
)


class Pieces:
    """A response made of given pieces; it may break off at their end."""

    def __init__(self, status: int, pieces: Sequence[bytes], *, breaks_off: bool) -> None:
        self.status_code = status
        self.headers: Mapping[str, str] = {}
        self._pieces = pieces
        self._breaks_off = breaks_off

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece
        if self._breaks_off:
            raise ConnectionResetError("reset by peer")


class ScriptedWire:
    """A wire without a network."""

    def __init__(self, response: Pieces) -> None:
        self._response = response

    @asynccontextmanager
    async def post(
        self, endpoint: Endpoint, path: str, *, headers: Mapping[str, str], body: bytes, connect_s: float
    ) -> AsyncIterator[HttpResponse]:
        yield self._response

    def failures(self) -> tuple[type[BaseException], ...]:
        return (OSError,)

    async def aclose(self) -> None:
        return None


def streamed(mode: ApiMode) -> bytes:
    turn = take_turn(SAY, number=1, model="m", created_s=0, max_output=1000, ending="length")
    scene = Scene({"model": "m", "stream_options": {"include_usage": True}}, Rules(), Issued())
    return b"".join(PROTOCOLS[PATHS[mode]].render_stream(turn, scene))


VALID = {mode: streamed(mode) for mode in MODES}


def outcome(mode: ApiMode, response: Pieces) -> Reply | ProviderError:
    way = Transport(client=ScriptedWire(response), retries=Retries(attempts=1), timeouts=Timeouts(first_token_s=20))
    place = Endpoint("custom", "http://h/v1", mode, "m")
    try:
        return asyncio.run(way.send(place, request("hi"), on_event=lambda event: None))
    except ProviderError as error:
        found = error
    assert "\n" not in str(found)
    assert str(found).startswith("h: ")
    return found


def mutated(text: bytes, dice: random.Random) -> bytes:
    """The text with a few bytes lost, doubled, swapped or replaced."""
    row = bytearray(text)
    for _ in range(dice.randint(1, 6)):
        at, size = dice.randrange(len(row) + 1), dice.randint(1, 30)
        change = dice.randrange(5)
        if change == 0:
            del row[at : at + size]
        elif change == 1:
            row[at:at] = row[at : at + size]
        elif change == 2:
            row[at : at + 1] = bytes([dice.randrange(256)])
        elif change == 3:
            row[at:at] = dice.choice(
                [b"\n", b"\r", b"null", b'"', b"{", b"data: ", b"[DONE]", b"\xff", b"-1", b"1e999"]
            )
        else:
            del row[at:]
        if not row:
            break
    return bytes(row)


def in_pieces(text: bytes, dice: random.Random) -> list[bytes]:
    pieces = []
    while text:
        size = dice.choice([1, 3, 17, 200, 5000])
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def fuzz(mode: ApiMode, count: int) -> int:
    """How many of the mutated streams still gave a reply."""
    dice = random.Random(f"{mode}-7")
    replies = 0
    for _ in range(count):
        status = dice.choice([200, 200, 200, 400, 500])
        pieces = in_pieces(mutated(VALID[mode], dice), dice)
        response = Pieces(status, pieces, breaks_off=dice.random() < 0.2)
        replies += isinstance(outcome(mode, response), Reply)
    return replies


@pytest.mark.spec("G1")
@pytest.mark.parametrize("mode", MODES)
def test_mutated_streams_give_a_reply_or_a_verdict(mode: ApiMode) -> None:
    assert 0 < fuzz(mode, 300) < 300


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
def test_many_mutated_streams_give_a_reply_or_a_verdict(mode: ApiMode) -> None:
    assert fuzz(mode, 35_000) > 0


@pytest.mark.parametrize("mode", MODES)
def test_however_it_is_cut_the_reply_is_the_same(mode: ApiMode) -> None:
    whole = outcome(mode, Pieces(200, [VALID[mode]], breaks_off=False))
    assert isinstance(whole, Reply)
    for size in (1, 2, 7, 100):
        pieces = [VALID[mode][i : i + size] for i in range(0, len(VALID[mode]), size)]
        assert outcome(mode, Pieces(200, pieces, breaks_off=False)) == whole
        # A line that goes dead after the last event has lost nothing.
        assert outcome(mode, Pieces(200, pieces, breaks_off=True)) == whole


@settings(max_examples=80)
@given(st.sampled_from(MODES), st.integers(200, 599), st.lists(st.binary(max_size=60), max_size=6), st.booleans())
def test_noise_is_a_verdict(mode: ApiMode, status: int, pieces: list[bytes], breaks_off: bool) -> None:
    assert isinstance(outcome(mode, Pieces(status, pieces, breaks_off=breaks_off)), ProviderError)


@settings(max_examples=80)
@given(
    st.sampled_from(MODES),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "choices",
                        "message",
                        "delta",
                        "content",
                        "output",
                        "usage",
                        "type",
                        "error",
                        "tool_calls",
                        "text",
                        "id",
                        "name",
                    ]
                ),
                inner,
                max_size=5,
            )
        ),
        max_leaves=12,
    ),
)
def test_any_json_is_a_reply_or_a_verdict(mode: ApiMode, value: object) -> None:

    outcome(
        mode,
        Pieces(200, [json.dumps({"choices": value, "output": value, "content": value}).encode()], breaks_off=False),
    )
