"""Bodies and streams nobody meant to send: no crash, no hang, and a rate limit is never taken for an overflow."""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from perdure.core.errors import ErrorVerdict, ProviderError
from perdure.core.messages import Message
from perdure.providers.errors.classify import classify_error
from perdure.providers.types import Reply, SseEvent
from support.error_samples import REFERENCE, Sample
from support.error_variants import RATE_LIMITS, VARIANTS
from support.wire_scripts import MODES, Answer, streamed, whole

# A slow pattern would show as one call of seconds; a busy machine shows as one of tenths.
HANG_S = 2.0
SAMPLE, WHOLE = 2_000, 100_000
ANSWER = Answer("Hello there", "hm", (("call_1", "f", '{"a":1}'), ("call_2", "g", "{}")))
JUNK: tuple[Any, ...] = (None, True, -1, 0, 1e308, "", "x", [], {}, [[]], {"a": {}}, "\ud800", "null", 10**40)


def text_of(body: object) -> str:
    if isinstance(body, str):
        return body
    return str(body) if body is None or isinstance(body, BaseException) else json.dumps(body)


def noise(dice: random.Random) -> str:
    return "".join(chr(dice.randint(1, 0x2FF)) for _ in range(dice.randint(1, 12)))


def wrapped(text: str) -> str:
    return json.dumps({"error": {"message": "Provider returned error", "metadata": {"raw": text}}})


# Each takes the text, a place in it and the dice.
ACCIDENTS: tuple[Callable[[str, int, random.Random], str], ...] = (
    lambda text, at, dice: text[:at],
    lambda text, at, dice: text[at:],
    lambda text, at, dice: text[:at] + text[at + dice.randint(1, 12) :],
    lambda text, at, dice: text[:at] + noise(dice) + text[at:],
    lambda text, at, dice: text[:at] + text[at : at + 9] * dice.randint(2, 30) + text[at + 9 :],
    lambda text, at, dice: text.swapcase(),
    lambda text, at, dice: wrapped(text),
    lambda text, at, dice: json.dumps(text),
    lambda text, at, dice: f"<html><body>{text}</body></html>",
    lambda text, at, dice: text.replace(" ", "  ").replace('"', "'"),
    lambda text, at, dice: " ".join(dice.sample(text.split(" "), text.count(" ") + 1)),
)


def mutated(text: str, dice: random.Random) -> str:
    """The text after a few accidents: cut, doubled, scrambled, wrapped, escaped."""
    for _ in range(dice.randint(1, 4)):
        text = dice.choice(ACCIDENTS)(text, dice.randrange(len(text) + 1), dice)[:20_000]
    return text


def shaken(value: Any, dice: random.Random) -> Any:
    """A decoded body with some of its values replaced by junk, some keys gone."""
    if dice.random() < 0.12:
        return dice.choice(JUNK)
    if isinstance(value, dict):
        return {k: shaken(v, dice) for k, v in value.items() if dice.random() > 0.06}
    return [shaken(v, dice) for v in value] if isinstance(value, list) else value


def timed(call: Callable[[], Any]) -> Any:
    started = time.perf_counter()
    result = call()
    assert time.perf_counter() - started < HANG_S
    return result


def fuzz_bodies(count: int, seed: int) -> None:
    dice = random.Random(seed)
    samples: tuple[Sample, ...] = (*REFERENCE, *VARIANTS)
    for _ in range(count):
        sample = dice.choice(samples)
        text = mutated(text_of(sample.body), dice)
        body: Any = text if dice.random() < 0.7 else text.encode("utf-8", "surrogatepass")
        if dice.random() < 0.2 and isinstance(sample.body, dict | list):
            body = shaken(sample.body, dice)
        status = dice.choice((sample.status, sample.status, None, 400, 429, 500, 200))
        tokens = dice.choice((None, 10, 10**6))
        headers = {"retry-after": text}
        verdict = timed(partial(classify_error, status, body, headers=headers, request_tokens=tokens))
        assert isinstance(verdict, ErrorVerdict)
        limits = (verdict.context_limit, verdict.output_limit)
        assert all(v is None or (isinstance(v, int) and v > 0) for v in limits), (body, verdict)
        assert verdict.retry_after_s is None or verdict.retry_after_s >= 0


def fuzz_rate_limits(count: int, seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(count):
        sample = dice.choice(RATE_LIMITS)
        body = mutated(text_of(sample.body), dice)
        # Groq says it with 413, which alone would mean too long: one word of the reason must be left.
        is_told = any(word in body for word in ("TPM", "rate_limit", "on_demand"))
        status = sample.status if is_told else 429
        verdict = timed(partial(classify_error, status, body, request_tokens=10**6))
        assert verdict.kind != "prompt_too_long", (body, verdict)


def fuzz_streams(count: int, seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(count):
        mode = dice.choice(sorted(MODES))
        events = streamed(mode, ANSWER, size=dice.randint(1, 9))
        for _ in range(dice.randint(1, 5)):
            at = dice.randrange(len(events))
            kind = dice.random()
            if kind < 0.35:
                events[at] = SseEvent(events[at].name, json.dumps(shaken(decoded(events[at].data), dice)))
            elif kind < 0.6:
                events[at] = SseEvent(dice.choice(("", "error", events[at].name)), mutated(events[at].data, dice))
            elif kind < 0.75:
                del events[at]
            elif kind < 0.9:
                events.insert(at, dice.choice(events))
            else:
                dice.shuffle(events)
            if not events:
                break
        check_reply(partial(read, mode, events))
        check_reply(partial(MODES[mode].parse, shaken(whole(mode, ANSWER), dice)))


def decoded(data: str) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data


def read(mode: str, events: list[SseEvent]) -> Reply:
    stream = MODES[mode].make_stream()
    for event in events:
        stream.feed(event)
    assert isinstance(stream.partial_text, str)
    return stream.finish()


def check_reply(call: Callable[[], Reply]) -> None:
    """Either a whole reply that can go into a history, or a verdict: nothing else ever comes out."""
    started = time.perf_counter()
    with contextlib.suppress(ProviderError):
        reply = call()
        again = Message.from_dict(json.loads(json.dumps(reply.message.to_dict())))
        assert again.to_dict() == reply.message.to_dict()
        assert all(c.id for c in reply.message.tool_calls)
        assert reply.usage.total_tokens >= 0
        json.dumps(reply.message.to_dict(), ensure_ascii=False).encode()
    assert time.perf_counter() - started < HANG_S


@pytest.mark.spec("G1")
def test_mutated_error_bodies_always_give_a_sane_verdict() -> None:
    fuzz_bodies(SAMPLE, seed=1)


@pytest.mark.spec("G1")
def test_mutated_rate_limit_texts_are_never_overflows() -> None:
    fuzz_rate_limits(SAMPLE, seed=2)


@pytest.mark.spec("J3")
def test_mutated_streams_and_bodies_give_a_reply_or_a_verdict() -> None:
    fuzz_streams(SAMPLE // 2, seed=3)


@pytest.mark.soak
@pytest.mark.spec("G1", "J3")
@pytest.mark.parametrize("seed", range(10, 14))
def test_the_same_at_length(seed: int) -> None:
    fuzz_bodies(WHOLE // 10, seed)
    fuzz_rate_limits(WHOLE // 20, seed)
    fuzz_streams(WHOLE // 10, seed)


@pytest.mark.parametrize(
    "text",
    [
        "a" * 100_000,
        "maximum context length is " * 5_000,
        "1 " * 50_000,
        "(" * 50_000,
        "prompt " * 20_000,
        "<" * 100_000,
        "<a " * 30_000,
        "exceeds " + "x " * 50_000 + "context window",
        '{"error":' * 20_000,
        "[" * 100_000,
        '"' * 50_000,
        "max_tokens " * 10_000 + "less",
        "try again " + "9" * 50_000,
        "1,000" * 20_000,
        "http://" * 20_000,
    ],
    ids=lambda t: t[:12],
)
def test_texts_made_to_stall_a_pattern_do_not(text: str) -> None:
    started = time.process_time()
    for status in (None, 400, 429):
        classify_error(status, text)
        classify_error(status, {"error": {"message": text}})
    assert time.process_time() - started < HANG_S
