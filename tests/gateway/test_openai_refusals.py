"""Turns without an answer, in the shapes of the official clients: refusals, and prompts beyond the window."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure.store.records import Span
from perdure.testing.simulator import Say, Simulator
from perdure.testing.simulator.script import ScriptRequest
from support.gateway_server import Running, running_gateway
from support.packages import package

openai = package("openai")

REFUSAL = "I cannot help with that."


def script(asked: ScriptRequest) -> Say:
    text = str(asked.body["messages"][-1]["content"])
    if "refuse silently" in text:
        return Say(finish="refusal")
    if "refuse" in text:
        return Say(refusal=REFUSAL)
    if "filter" in text:
        return Say("It begins with", finish="content_filter")
    return Say("Right away.")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("refusals")
    with (
        Simulator(script=script, window=64_000) as sim,
        running_gateway(folder, sim, users={"ann": ("chat", "read")}) as running,
    ):
        yield running


@pytest.fixture
def ann(gateway: Running) -> Iterator[openai.OpenAI]:
    http = httpx.Client(trust_env=False)
    with openai.OpenAI(
        base_url=f"{gateway.url}/v1", api_key=gateway.users["ann"], http_client=http, max_retries=0
    ) as made:
        yield made


def ask(api: openai.OpenAI, text: str, **options: Any) -> Any:
    return api.chat.completions.create(model="perdure", messages=[{"role": "user", "content": text}], **options)


def test_a_refusal_is_a_field_of_its_own(ann: openai.OpenAI) -> None:
    choice = ask(ann, "refuse this").choices[0]
    assert (choice.message.content, choice.message.refusal, choice.finish_reason) == (None, REFUSAL, "stop")
    plain = ask(ann, "something else").choices[0]
    assert (plain.message.content, plain.message.refusal) == ("Right away.", None)


def test_a_refusal_without_words_says_so(ann: openai.OpenAI) -> None:
    choice = ask(ann, "refuse silently").choices[0]
    assert (choice.message.content, choice.finish_reason) == (None, "stop")
    assert "refused" in choice.message.refusal


def test_a_refusal_streams_as_refusal_and_not_as_content(ann: openai.OpenAI) -> None:
    chunks = [c.choices[0] for c in ask(ann, "refuse this stream", stream=True) if c.choices]
    assert "".join(c.delta.refusal or "" for c in chunks) == REFUSAL
    assert "".join(c.delta.content or "" for c in chunks) == ""
    assert chunks[-1].finish_reason == "stop"


def test_a_filtered_answer_has_its_finish_reason(ann: openai.OpenAI) -> None:
    choice = ask(ann, "filter this").choices[0]
    assert (choice.message.content, choice.finish_reason) == ("It begins with", "content_filter")
    assert choice.message.refusal is None


def test_a_refusal_ends_a_request_for_structured_output(ann: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    assert ask(ann, "refuse this form", response_format=form).choices[0].message.refusal == REFUSAL


def test_the_conversation_goes_on_after_a_refusal(ann: openai.OpenAI) -> None:
    first = ask(ann, "refuse this once")
    history: Any = [
        {"role": "user", "content": "refuse this once"},
        first.choices[0].message.model_dump(),
        {"role": "user", "content": "well then"},
    ]
    second = ann.chat.completions.create(model="perdure", messages=history)
    assert second.model_extra is not None
    assert second.model_extra["perdure"] == first.model_extra["perdure"]


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_refusal_is_a_part_of_its_own_in_a_response(is_stream: bool, ann: openai.OpenAI) -> None:
    if is_stream:
        events = list(ann.responses.create(model="perdure", input="refuse this item", stream=True))
        names = [event.type for event in events]
        assert "response.refusal.delta" in names
        assert "response.refusal.done" in names
        assert "response.output_text.delta" not in names
        response = events[-1].response  # type: ignore[union-attr]  # the last event has it
    else:
        response = ann.responses.create(model="perdure", input="refuse this thing")
        assert ann.responses.retrieve(response.id).output == response.output
    (item,) = response.output
    assert [(part.type, part.refusal) for part in item.content] == [("refusal", REFUSAL)]  # type: ignore[union-attr]  # of a message
    assert response.status == "completed"


@pytest.mark.parametrize(("text", "refused_by"), [("refuse to store", "model"), ("filter the store", "filter")])
def test_a_refusal_is_stored_with_its_message_and_in_events(
    text: str, refused_by: str, gateway: Running, ann: openai.OpenAI
) -> None:
    done = ask(ann, text)
    assert done.model_extra is not None
    conversation_id = done.model_extra["perdure"]["conversation_id"]
    last = gateway.store.log.read(conversation_id, Span(1, 10))[-1].message
    assert last.refused_by == refused_by
    read = httpx.get(
        f"{gateway.url}/api/page/conversations/{conversation_id}/timeline",
        headers=gateway.headers("ann"),
        trust_env=False,
    )
    rows = read.json()
    assert rows["messages"][-1]["refused_by"] == refused_by
    assert [e["payload"]["refused_by"] for e in rows["events"] if e["kind"] == "model_refused"] == [refused_by]


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_prompt_beyond_the_window_is_the_clients_error(is_stream: bool, ann: openai.OpenAI) -> None:
    text = "word " * 100_000
    with pytest.raises(openai.APIError) as raised:
        list(ask(ann, text, stream=is_stream))  # a stream ends with the error
    assert (raised.value.code, raised.value.param) == ("context_length_exceeded", "messages")
    if is_stream:
        (*_, last) = ann.responses.create(model="perdure", input=text, stream=True)
        assert last.type == "response.failed"
        assert last.response.error is not None
        assert str(last.response.error.code) == "context_length_exceeded"
    else:
        assert isinstance(raised.value, openai.BadRequestError)
        with pytest.raises(openai.BadRequestError) as raised:
            ann.responses.create(model="perdure", input=text)
        assert (raised.value.code, raised.value.param) == ("context_length_exceeded", "input")
