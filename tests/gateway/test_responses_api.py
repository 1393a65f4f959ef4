"""The Responses API of the gateway, as the real `openai` package uses it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from perdure.testing.simulator import Simulator
from support.gateway_process import GatewayProcess, gateway_process
from support.packages import package
from support.planned_model import WEATHER, plan, planned

openai = package("openai")

TOOL = {"type": "function", **WEATHER["function"]}
ROME, OSLO = ["get_weather", {"city": "Rome"}], ["get_weather", {"city": "Oslo"}]


@pytest.fixture(scope="module")
def sim() -> Iterator[Simulator]:
    with Simulator(script=planned) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, sim: Simulator) -> Iterator[GatewayProcess]:
    users = {"alice": ("chat", "read"), "bob": ("chat",)}
    settings = {"gateway.requests_per_minute": "null"}
    with gateway_process(tmp_path_factory.mktemp("responses"), sim, users=users, settings=settings) as running:
        yield running


def client(gateway: GatewayProcess, user: str) -> openai.OpenAI:
    http = httpx.Client(trust_env=False)
    return openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.tokens[user], http_client=http, max_retries=0)


@pytest.fixture
def alice(gateway: GatewayProcess) -> Iterator[openai.OpenAI]:
    with client(gateway, "alice") as made:
        yield made


def create(api: openai.OpenAI, items: Any, **options: Any) -> Any:
    return api.responses.create(model="perdure", input=items, **options)


def sent(sim: Simulator) -> list[str]:
    """Role and text of what the model was last sent, without the system prompt."""
    messages = [m for m in sim.requests[-1].body["messages"] if m["role"] != "system"]
    return [f"{m['role']}: {m['content'] or ''}" for m in messages]


def test_a_response_has_every_field_the_client_knows(alice: openai.OpenAI) -> None:
    done = create(alice, "hello", instructions="Be brief.", metadata={"a": "b"})
    assert (done.object, done.status, done.output_text, done.error) == ("response", "completed", "heard: hello", None)
    assert done.id.startswith("resp_")
    assert (done.instructions, done.metadata, done.previous_response_id) == ("Be brief.", {"a": "b"}, None)
    assert done.usage.total_tokens == done.usage.input_tokens + done.usage.output_tokens > 0
    assert [item.type for item in done.output] == ["message"]


def test_instructions_join_the_agents_prompt(alice: openai.OpenAI, sim: Simulator) -> None:
    create(alice, [{"role": "developer", "content": "Speak of ships."}, {"role": "user", "content": "hi"}],
           instructions="You are a pirate.")  # fmt: skip
    prompt = str(sim.requests[-1].body["messages"][0]["content"])
    assert "You are a pirate." in prompt
    assert "Speak of ships." in prompt


def test_a_stream_has_the_official_events_in_order(alice: openai.OpenAI) -> None:
    text = plan({"think": "hm", "say": "one two three", "calls": [ROME]})
    with create(alice, text, tools=[TOOL], stream=True) as stream:
        events = list(stream)
    names = [event.type for event in events]
    assert [n for i, n in enumerate(names) if i == 0 or names[i - 1] != n] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == "one two three"
    final = events[-1].response
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    assert [e.item.id for e in events if e.type == "response.output_item.done"] == [i.id for i in final.output]
    assert json.loads(final.output[2].arguments) == {"city": "Rome"}


def test_the_clients_own_accumulator_reads_the_stream(alice: openai.OpenAI) -> None:
    with alice.responses.stream(model="perdure", input=plan("one two three")) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == "one two three"


def test_a_response_is_continued_by_its_id(alice: openai.OpenAI, sim: Simulator) -> None:
    first = create(alice, "hello")
    second = create(alice, "and then", previous_response_id=first.id)
    assert sent(sim) == ["user: hello", "assistant: heard: hello", "user: and then"]
    assert second.previous_response_id == first.id
    assert second.perdure["conversation_id"] == first.perdure["conversation_id"]
    branch = create(alice, "or else", previous_response_id=first.id)
    assert sent(sim) == ["user: hello", "assistant: heard: hello", "user: or else"]
    assert branch.perdure["conversation_id"] != first.perdure["conversation_id"]


def test_function_calls_are_answered_by_their_id(alice: openai.OpenAI, sim: Simulator) -> None:
    first = create(alice, plan({"say": "A moment.", "calls": [ROME, OSLO]}, "Sun and snow."), tools=[TOOL])
    calls = [item for item in first.output if item.type == "function_call"]
    assert [json.loads(c.arguments)["city"] for c in calls] == ["Rome", "Oslo"]
    outputs = [
        {"type": "function_call_output", "call_id": call.call_id, "output": text}
        for call, text in zip(calls, ("sun", "snow"), strict=True)
    ]
    with pytest.raises(openai.BadRequestError, match="these tool calls have no result"):
        create(alice, outputs[:1], previous_response_id=first.id, tools=[TOOL])
    with pytest.raises(openai.BadRequestError, match="these tool calls have no result"):
        create(alice, "never mind", previous_response_id=first.id, tools=[TOOL])
    second = create(alice, outputs, previous_response_id=first.id, tools=[TOOL])
    assert second.output_text == "Sun and snow."
    assert sent(sim)[1:] == ["assistant: A moment.", "tool: sun", "tool: snow"]


def test_the_whole_input_sent_each_time_goes_on_in_one_conversation(alice: openai.OpenAI, sim: Simulator) -> None:
    items: list[Any] = [{"role": "user", "content": plan({"think": "hm", "say": "Well.", "calls": [ROME]}, "Sunny.")}]
    conversations = set()
    for addition in ("sun", "and now?"):
        with alice.responses.stream(model="perdure", input=items, tools=[TOOL], store=False) as stream:
            done = stream.until_done().get_final_response()
        conversations.add(done.perdure["conversation_id"])
        items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in done.output]
        call = next((item for item in done.output if item.type == "function_call"), None)
        result = {"type": "function_call_output", "call_id": call and call.call_id, "output": addition}
        items.append(result if call is not None else {"role": "user", "content": addition})
    last = create(alice, items, store=False)
    assert conversations == {last.perdure["conversation_id"]}
    assert [line.partition(":")[0] for line in sent(sim)] == ["user", "assistant", "tool", "assistant", "user"]


def test_referenced_items_stand_for_the_response_they_are_of(alice: openai.OpenAI, sim: Simulator) -> None:
    """As the AI SDK sends them: texts by reference, calls as they are."""
    items: list[Any] = [{"role": "user", "content": plan({"say": "Hm.", "calls": [ROME]}, {"calls": [OSLO]}, "Well.")}]
    conversations = set()
    for text in ("sun", "snow"):
        done = create(alice, items, tools=[TOOL])
        conversations.add(done.perdure["conversation_id"])
        items += [{"type": "item_reference", "id": item.id} for item in done.output if item.type == "message"]
        call = done.output[-1]
        items += [
            {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments},
            {"type": "function_call_output", "call_id": call.call_id, "output": text},
        ]
    done = create(alice, items, tools=[TOOL])
    assert done.output_text == "Well."
    assert conversations == {done.perdure["conversation_id"]}
    assert sent(sim)[1:] == ["assistant: Hm.", "tool: sun", "assistant: ", "tool: snow"]
    with pytest.raises(openai.BadRequestError, match="no response"):
        create(alice, [{"type": "item_reference", "id": "msg_t_0_0"}, {"role": "user", "content": "hi"}])


def test_a_response_that_is_not_stored_cannot_be_continued(alice: openai.OpenAI) -> None:
    done = create(alice, "hello", store=False)
    assert done.store is False
    with pytest.raises(openai.BadRequestError, match="it was not stored") as refused:
        create(alice, "more", previous_response_id=done.id)
    assert (refused.value.code, refused.value.param) == ("previous_response_not_found", "previous_response_id")
    with pytest.raises(openai.NotFoundError):
        alice.responses.retrieve(done.id)


def test_a_stored_response_is_returned_to_its_user_alone(alice: openai.OpenAI, gateway: GatewayProcess) -> None:
    done = create(alice, "remember me")
    again = alice.responses.retrieve(done.id)
    assert (again.id, again.output_text, again.usage) == (done.id, done.output_text, done.usage)
    with client(gateway, "bob") as bob:
        with pytest.raises(openai.NotFoundError):
            bob.responses.retrieve(done.id)
        with pytest.raises(openai.BadRequestError):
            create(bob, "and mine?", previous_response_id=done.id)


def test_a_format_is_checked_and_repaired(alice: openai.OpenAI, sim: Simulator) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    text = {"format": {"type": "json_schema", "name": "number", "schema": schema, "strict": True}}
    before = len(sim.requests)
    done = create(alice, plan({"say": '{"n": "x"}', "repaired": {"say": '{"n": 7}'}}), text=text)
    assert json.loads(done.output_text) == {"n": 7}
    assert len(sim.requests) == before + 2
    assert done.text.format.name == "number"


def test_an_answer_that_is_cut_is_incomplete(alice: openai.OpenAI) -> None:
    done = create(alice, plan("one two three four five six seven"), max_output_tokens=3)
    assert (done.status, done.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert done.output[-1].status == "incomplete"
    again = alice.responses.retrieve(done.id)
    assert (again.status, again.output[-1].status) == ("incomplete", "incomplete")
    with create(alice, plan("one two three four five six seven"), max_output_tokens=3, stream=True) as stream:
        events = list(stream)
    [item] = [e.item for e in events if e.type == "response.output_item.done"]
    assert (events[-1].type, item.status) == ("response.incomplete", "incomplete")


def test_errors_about_calls_name_the_fields_of_this_api(alice: openai.OpenAI) -> None:
    done = create(alice, "hello")
    output = {"type": "function_call_output", "call_id": "call_other", "output": "x"}
    with pytest.raises(openai.BadRequestError, match=r"with the call_id 'call_other' waits") as refused:
        create(alice, [output], previous_response_id=done.id)
    assert refused.value.param == "input"
    with pytest.raises(
        openai.BadRequestError, match=r"input\[0\]: call_id 'call_other' answers no tool call before it"
    ):
        create(alice, [output])
    with pytest.raises(openai.BadRequestError, match=r"names its call in call_id") as refused:
        create(alice, [{**output, "call_id": ""}])
    assert refused.value.param == "input[0].call_id"


def test_a_failed_turn_is_a_failed_response(alice: openai.OpenAI) -> None:
    text = {"format": {"type": "json_object"}}
    with pytest.raises(openai.APIStatusError, match="rejected twice"):
        create(alice, plan("no"), text=text)
    with create(alice, plan("no"), text=text, stream=True) as stream:
        last = list(stream)[-1]
    assert last.type == "response.failed"
    assert "rejected twice" in last.response.error.message


def test_tools_of_other_kinds_are_left_out_and_listed(alice: openai.OpenAI, sim: Simulator) -> None:
    raw = alice.responses.with_raw_response.create(
        model="perdure", input="hello", tools=[{"type": "web_search"}, TOOL], reasoning={"effort": "low"}
    )  # type: ignore[call-overload]  # plain dicts
    assert raw.headers["x-perdure-ignored"] == "reasoning, tools[0] ('web_search')"
    assert "get_weather" in [t["function"]["name"] for t in sim.requests[-1].body["tools"]]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input": []}, "input"),
        ({"input": 7}, "input"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]"),
        ({"input": [{"type": "computer_call"}]}, "input[0]"),
        ({"input": [{"type": "function_call_output", "call_id": "x", "output": "y"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}, "input[0].content[0]"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"previous_response_id": 3}, "previous_response_id"),
        ({"instructions": ["x"]}, "instructions"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"store": "no"}, "store"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(change: dict[str, Any], param: str, alice: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        alice.post("/responses", body={"model": "perdure", "input": "hi", **change}, cast_to=object)
    assert refused.value.param == param
