"""Tools, formats and limits that a client of the OpenAI-compatible API brings with its request."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from perdure.testing.simulator import Simulator
from support.gateway_process import GatewayProcess, gateway_process
from support.packages import package
from support.planned_model import GATES, WEATHER, plan, planned

openai = package("openai")

Messages = list[dict[str, Any]]
ROME, OSLO = ["get_weather", {"city": "Rome"}], ["get_weather", {"city": "Oslo"}]
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
PERSON_FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}


@pytest.fixture(scope="module")
def sim() -> Iterator[Simulator]:
    with Simulator(script=planned) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, sim: Simulator) -> Iterator[GatewayProcess]:
    users = {"alice": ("chat", "read"), "sheila": ("chat", "read", "shell")}
    settings = {"gateway.requests_per_minute": "null"}
    with gateway_process(tmp_path_factory.mktemp("tools"), sim, users=users, settings=settings) as running:
        yield running


def client(gateway: GatewayProcess, user: str) -> openai.OpenAI:
    http = httpx.Client(trust_env=False)
    return openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.tokens[user], http_client=http, max_retries=0)


@pytest.fixture
def alice(gateway: GatewayProcess) -> Iterator[openai.OpenAI]:
    with client(gateway, "alice") as made:
        yield made


@pytest.fixture
def sheila(gateway: GatewayProcess) -> Iterator[openai.OpenAI]:
    with client(gateway, "sheila") as made:
        yield made


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def result(call: Any, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call.id, "content": text}


def ask(api: openai.OpenAI, messages: Messages, **options: Any) -> Any:
    return api.chat.completions.create(model="perdure", messages=messages, **options)  # type: ignore[call-overload]  # plain dicts


def read_stream(api: openai.OpenAI, messages: Messages, **options: Any) -> tuple[dict[str, Any], str]:
    """The message a client puts together from the chunks, and why it ended."""
    text, reason = "", ""
    calls: dict[int, dict[str, Any]] = {}
    with ask(api, messages, stream=True, **options) as stream:
        for chunk in stream:
            for choice in chunk.choices:
                text += choice.delta.content or ""
                reason = choice.finish_reason or reason
                for piece in choice.delta.tool_calls or ():
                    call = calls.setdefault(piece.index, {"id": "", "name": "", "arguments": ""})
                    call["id"] += piece.id or ""
                    call["name"] += piece.function.name or ""
                    call["arguments"] += piece.function.arguments or ""
    made = [
        {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
        for c in calls.values()
    ]
    return {"role": "assistant", "content": text, **({"tool_calls": made} if made else {})}, reason


def sent(sim: Simulator) -> Messages:
    """What the model was last sent, without the system prompt."""
    return [m for m in sim.requests[-1].body["messages"] if m["role"] != "system"]


def outline(messages: Messages) -> list[str]:
    return [m["role"] if m["role"] != "tool" else f"tool {m['content']}" for m in messages]


# -- tools -----------------------------------------------------------------------------------------------------------


def test_a_call_of_a_client_tool_is_returned_and_its_result_taken(alice: openai.OpenAI, sim: Simulator) -> None:
    messages = [user(plan({"say": "Let me ask.", "calls": [ROME]}, "It is sunny."))]
    first = ask(alice, messages, tools=[WEATHER])
    choice = first.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me ask."
    [call] = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Rome"})
    offered = [t["function"]["name"] for t in sim.requests[-1].body["tools"]]
    assert offered[-1] == "get_weather"
    assert len(offered) > 1

    messages += [choice.message.model_dump(exclude_none=True), result(call, "sunny, 24 degrees")]
    second = ask(alice, messages, tools=[WEATHER])
    assert (second.choices[0].finish_reason, second.choices[0].message.content) == ("stop", "It is sunny.")
    assert second.perdure["conversation_id"] == first.perdure["conversation_id"]
    assert outline(sent(sim)) == ["user", "assistant", "tool sunny, 24 degrees"]

    messages += [{"role": "assistant", "content": "It is sunny."}, user("thanks")]
    third = ask(alice, messages, tools=[WEATHER])
    assert third.perdure["conversation_id"] == first.perdure["conversation_id"]
    assert outline(sent(sim)) == ["user", "assistant", "tool sunny, 24 degrees", "assistant", "user"]


def test_calls_are_streamed_and_the_conversation_goes_on(alice: openai.OpenAI, sim: Simulator) -> None:
    messages = [user(plan({"say": "A moment.", "calls": [ROME, OSLO]}, "Sun and snow."))]
    answer, reason = read_stream(alice, messages, tools=[WEATHER])
    assert (reason, answer["content"]) == ("tool_calls", "A moment.")
    cities = [json.loads(c["function"]["arguments"])["city"] for c in answer["tool_calls"]]
    assert cities == ["Rome", "Oslo"]
    results = [
        {"role": "tool", "tool_call_id": c["id"], "content": city}
        for c, city in zip(answer["tool_calls"], ("sun", "snow"), strict=True)
    ]
    # In whichever order a client sends them, they are stored in the order of the calls.
    answer, reason = read_stream(alice, [*messages, answer, *reversed(results)], tools=[WEATHER])
    assert (reason, answer["content"]) == ("stop", "Sun and snow.")
    assert outline(sent(sim)) == ["user", "assistant", "tool sun", "tool snow"]


def test_mixed_calls_keep_their_order(sheila: openai.OpenAI, sim: Simulator) -> None:
    first, last = ["terminal", {"command": "echo first"}], ["terminal", {"command": "echo last"}]
    messages = [user(plan({"calls": [first, ROME, last, OSLO]}, "All done."))]
    before = len(sim.requests)
    answer = ask(sheila, messages, tools=[WEATHER]).choices[0]
    calls = answer.message.tool_calls
    assert [c.function.name for c in calls] == ["get_weather", "get_weather"]
    assert len(sim.requests) == before + 1
    messages += [answer.message.model_dump(exclude_none=True), result(calls[0], "sun"), result(calls[1], "snow")]
    assert ask(sheila, messages, tools=[WEATHER]).choices[0].message.content == "All done."
    ours, sun, others, snow = sent(sim)[-4:]
    assert ("first" in ours["content"], sun["content"], "last" in others["content"], snow["content"]) == (
        True,
        "sun",
        True,
        "snow",
    )
    ids = [c["id"] for c in sent(sim)[1]["tool_calls"]]
    assert ids == [m["tool_call_id"] for m in sent(sim)[-4:]]


def test_tools_of_ours_run_before_the_client_is_asked(sheila: openai.OpenAI, sim: Simulator) -> None:
    ours = ["terminal", {"command": "echo inside"}]
    messages = [user(plan({"say": "First I look.", "calls": [ours]}, {"say": "Now you.", "calls": [ROME]}, "Good."))]
    answer, reason = read_stream(sheila, messages, tools=[WEATHER])
    assert (reason, answer["content"]) == ("tool_calls", "First I look.\n\nNow you.")
    call_id = answer["tool_calls"][0]["id"]
    messages += [answer, {"role": "tool", "tool_call_id": call_id, "content": "sun"}]
    assert read_stream(sheila, messages, tools=[WEATHER])[0]["content"] == "Good."
    roles = [m["role"] for m in sent(sim)]
    assert roles == ["user", "assistant", "tool", "assistant", "tool"]


def test_a_client_tool_replaces_ours_of_the_same_name(sheila: openai.OpenAI, sim: Simulator) -> None:
    own = {"type": "function", "function": {"name": "terminal", "parameters": {"type": "object"}}}
    messages = [user(plan({"calls": [["terminal", {"command": "touch here"}]]}, "Done."))]
    answer = ask(sheila, messages, tools=[own]).choices[0]
    assert answer.finish_reason == "tool_calls"
    offered = [t["function"]["name"] for t in sim.requests[-1].body["tools"]]
    assert offered.count("terminal") == 1


def test_a_call_that_the_client_leaves_unanswered_is_never_run_here(
    sheila: openai.OpenAI, sim: Simulator, gateway: GatewayProcess
) -> None:
    own = {"type": "function", "function": {"name": "terminal", "parameters": {"type": "object"}}}
    named: dict[str, Any] = {"extra_headers": {"X-Perdure-Conversation": "unanswered"}}
    asked = [user(plan({"calls": [["terminal", {"command": "touch never-run"}]]}, "Done."))]
    ask(sheila, asked, tools=[own], **named)
    assert ask(sheila, [user("something else")], **named).choices[0].message.content == "heard: something else"
    assert not (gateway.home / "never-run").exists()
    assert outline(sent(sim))[2] == "tool [The client that was to run this call sent no result.]"


def test_the_timeline_tells_whose_a_call_is(sheila: openai.OpenAI, gateway: GatewayProcess) -> None:
    asked = [user(plan({"calls": [["terminal", {"command": "echo ours"}], ROME]}, "x"))]
    conversation = ask(sheila, asked, tools=[WEATHER]).perdure["conversation_id"]
    page = f"{gateway.url}/api/page/conversations/{conversation}/timeline"
    messages = httpx.get(page, headers=gateway.headers("sheila"), trust_env=False).json()["messages"]
    assert [(c["name"], c["is_for_client"]) for c in messages[1]["tool_calls"]] == [
        ("terminal", False),
        ("get_weather", True),
    ]
    assert [m["role"] for m in messages] == ["user", "assistant", "tool"]


@pytest.mark.parametrize("choice", ["none", "auto"])
def test_tool_choice_none_offers_no_client_tool(choice: str, alice: openai.OpenAI, sim: Simulator) -> None:
    ask(alice, [user("hello")], tools=[WEATHER], tool_choice=choice)
    offered = [t["function"]["name"] for t in sim.requests[-1].body["tools"]]
    assert ("get_weather" in offered) == (choice == "auto")
    assert "tool_choice" not in sim.requests[-1].body


@pytest.mark.parametrize(
    ("choice", "wire"),
    [
        ("required", "required"),
        (
            {"type": "function", "function": {"name": "get_weather"}},
            {"type": "function", "function": {"name": "get_weather"}},
        ),
    ],
)
def test_a_required_call_is_required_of_the_model(choice: Any, wire: Any, alice: openai.OpenAI, sim: Simulator) -> None:
    asked = [user(plan({"calls": [ROME]}))]
    answer = ask(alice, asked, tools=[WEATHER], tool_choice=choice, parallel_tool_calls=False)
    assert answer.choices[0].finish_reason == "tool_calls"
    assert sim.requests[-1].body["tool_choice"] == wire
    assert sim.requests[-1].body["parallel_tool_calls"] is False


def test_a_model_that_skips_a_required_call_is_asked_once_more(alice: openai.OpenAI, sim: Simulator) -> None:
    before = len(sim.requests)
    repaired = ask(
        alice,
        [user(plan({"say": "I would rather not.", "repaired": {"calls": [ROME]}}))],
        tools=[WEATHER],
        tool_choice="required",
    )
    assert repaired.choices[0].message.tool_calls[0].function.name == "get_weather"
    assert len(sim.requests) == before + 2
    with pytest.raises(openai.APIStatusError, match="called no tool, and must call one of get_weather"):
        ask(alice, [user(plan({"say": "No."}))], tools=[WEATHER], tool_choice="required")
    assert len(sim.requests) == before + 4


def test_allowed_tools_are_the_only_ones_offered(alice: openai.OpenAI, sim: Simulator) -> None:
    other = {"type": "function", "function": {"name": "get_time"}}
    allowed = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "get_time"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    ask(alice, [user("hello")], tools=[WEATHER, other], tool_choice=choice)
    offered = [t["function"]["name"] for t in sim.requests[-1].body["tools"]]
    assert "get_time" in offered
    assert "get_weather" not in offered


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ([{"role": "tool", "tool_call_id": "call_other", "content": "x"}], "'call_other' answers no tool call"),
        ([user("never mind")], "these tool calls have no result: "),
        ([], "the last message must have the role user or tool|these tool calls have no result"),
    ],
)
def test_results_that_match_no_call_are_refused(after: Messages, message: str, alice: openai.OpenAI) -> None:
    messages = [user(plan({"calls": [ROME]}, "x"))]
    answer = ask(alice, messages, tools=[WEATHER]).choices[0].message.model_dump(exclude_none=True)
    with pytest.raises(openai.BadRequestError, match=message):
        ask(alice, [*messages, answer, *after], tools=[WEATHER])


def test_in_a_named_conversation_the_result_alone_is_enough(alice: openai.OpenAI, sim: Simulator) -> None:
    named: dict[str, Any] = {"extra_headers": {"X-Perdure-Conversation": "weather"}, "tools": [WEATHER]}
    call = ask(alice, [user(plan({"calls": [ROME]}, "Sunny."))], **named).choices[0].message.tool_calls[0]
    with pytest.raises(openai.BadRequestError, match="no tool call with the tool_call_id 'call_other' waits"):
        ask(alice, [{"role": "tool", "tool_call_id": "call_other", "content": "x"}], **named)
    assert ask(alice, [result(call, "sun")], **named).choices[0].message.content == "Sunny."
    with pytest.raises(openai.BadRequestError, match="waits for a result"):
        ask(alice, [result(call, "sun")], **named)


def test_the_same_result_sent_again_is_answered_in_a_branch(alice: openai.OpenAI, sim: Simulator) -> None:
    messages = [user(plan({"calls": [ROME]}, "Sunny."))]
    answer = ask(alice, messages, tools=[WEATHER])
    call = answer.choices[0].message.tool_calls[0]
    messages += [answer.choices[0].message.model_dump(exclude_none=True), result(call, "sun")]
    first, again = (ask(alice, messages, tools=[WEATHER]) for _ in range(2))
    assert first.choices[0].message.content == again.choices[0].message.content == "Sunny."
    assert again.perdure["conversation_id"] != first.perdure["conversation_id"]
    assert outline(sent(sim)) == ["user", "assistant", "tool sun"]


@pytest.mark.parametrize("name", [None, "weather-at-once"])
def test_the_same_result_sent_twice_at_once_is_taken_once(
    name: str | None, alice: openai.OpenAI, sim: Simulator
) -> None:
    name = f"{name}-{uuid.uuid4().hex}" if name else None
    options: dict[str, Any] = {"extra_headers": {"X-Perdure-Conversation": name} if name else {}, "tools": [WEATHER]}
    # In a named conversation the answer comes only when all others were refused: whatever comes later is a repetition.
    held: dict[str, Any] = {"gate": name} if name else {}
    GATES.update({name: threading.Event()} if name else {})
    messages = [user(plan({"calls": [ROME]}, {"say": "Sunny. " * 20, **held}))]
    answer = ask(alice, messages, **options).choices[0].message
    messages += [answer.model_dump(exclude_none=True), result(answer.tool_calls[0], "sun")]
    before = len(sim.requests)
    refused: list[int] = []

    def send(_: int) -> str:
        try:
            reply = ask(alice, messages, **options)
        except openai.APIStatusError as error:
            refused.append(error.status_code)
            if name and len(refused) == 3:
                GATES[name].set()
            return str(error.status_code)
        return str(reply.choices[0].message.content).strip()

    with ThreadPoolExecutor(4) as threads:
        replies = list(threads.map(send, range(4)))
    prompts = [outline([m for m in r.body["messages"] if m["role"] != "system"]) for r in sim.requests[before:]]
    answered = [text for text in replies if text.startswith("Sunny.")]
    assert prompts == [["user", "assistant", "tool sun"]] * len(answered)
    # Without a name, each of the others is answered in a branch.
    assert len(answered) == (1 if name else 4)
    assert refused == ([409] * 3 if name else [])


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_repeated_request_gets_the_same_calls(is_stream: bool, alice: openai.OpenAI, sim: Simulator) -> None:
    headers = {"Idempotency-Key": f"calls-{is_stream}"}
    messages = [user(plan({"calls": [ROME]}, "x"))]
    before = len(sim.requests)
    first = ask(alice, messages, tools=[WEATHER], extra_headers=headers).choices[0].message
    if is_stream:
        again = read_stream(alice, messages, tools=[WEATHER], extra_headers=headers)[0]["tool_calls"][0]["id"]
    else:
        again = ask(alice, messages, tools=[WEATHER], extra_headers=headers).choices[0].message.tool_calls[0].id
    assert first.tool_calls[0].id == again
    assert len(sim.requests) == before + 1
    with pytest.raises(openai.ConflictError):
        ask(alice, messages, extra_headers=headers)


def test_calls_without_bound_are_refused(alice: openai.OpenAI) -> None:
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": ""}} for n in range(600)]
    results = [{"role": "tool", "tool_call_id": c["id"], "content": ""} for c in calls]
    with pytest.raises(openai.BadRequestError, match="more than 512 calls"):
        ask(alice, [user("x"), {"role": "assistant", "content": "", "tool_calls": calls}, *results])


def test_an_unknown_history_with_calls_is_imported(alice: openai.OpenAI, sim: Simulator) -> None:
    call = {"id": "call_abc", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}
    messages = [
        user("How is it in Rome?"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_abc", "content": [{"type": "text", "text": "sun"}]},
        {"role": "assistant", "content": "Sunny."},
        user("And in Oslo?"),
        {"role": "assistant", "content": "", "tool_calls": [{**call, "id": "call_def"}]},
        {"role": "tool", "tool_call_id": "call_def", "content": "snow"},
    ]
    ask(alice, messages, tools=[WEATHER])
    assert outline(sent(sim)) == ["user", "assistant", "tool sun", "assistant", "user", "assistant", "tool snow"]


def test_rewritten_arguments_still_match_the_conversation(alice: openai.OpenAI) -> None:
    messages = [user(plan({"calls": [["get_weather", {"city": "Rome", "at": "noon"}]]}, "Sunny."))]
    answer = ask(alice, messages, tools=[WEATHER])
    call = answer.choices[0].message.tool_calls[0]
    rewritten = {"name": "get_weather", "arguments": '{"at":"noon","city":"Rome"}'}
    calls = [{"id": call.id, "type": "function", "function": rewritten}]
    messages += [{"role": "assistant", "content": None, "tool_calls": calls}, result(call, "sun")]
    assert ask(alice, messages).perdure["conversation_id"] == answer.perdure["conversation_id"]


def test_a_dropped_text_beside_calls_still_matches_the_conversation(alice: openai.OpenAI, sim: Simulator) -> None:
    messages = [user(plan({"say": "Let me ask.", "calls": [ROME]}, "Sunny."))]
    answer = ask(alice, messages, tools=[WEATHER])
    call = answer.choices[0].message.tool_calls[0]
    calls = [call.model_dump(exclude_none=True)]
    messages += [{"role": "assistant", "content": None, "tool_calls": calls}, result(call, "sun")]
    assert ask(alice, messages).perdure["conversation_id"] == answer.perdure["conversation_id"]
    assert sent(sim)[1]["content"] == "Let me ask."


def test_another_process_takes_the_result(tmp_path: Any) -> None:
    settings = {"gateway.requests_per_minute": "null"}
    users: dict[str, Any] = {"alice": ("chat",)}
    with (
        Simulator(script=planned) as sim,
        gateway_process(tmp_path, sim, users=users, settings=settings) as one,
        gateway_process(tmp_path, sim, users={}, settings=settings) as two,
        client(one, "alice") as first,
        client(GatewayProcess(two.url, two.process, one.tokens, two.home), "alice") as second,
    ):
        messages = [user(plan({"calls": [ROME]}, {"calls": [OSLO]}, "Sun and snow."))]
        conversations = set()
        for api, weather in ((first, "sun"), (second, "snow"), (first, "")):
            answer = ask(api, messages, tools=[WEATHER])
            conversations.add(answer.perdure["conversation_id"])
            message = answer.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            messages += [result(call, weather) for call in message.tool_calls or ()]
        assert messages[-1]["content"] == "Sun and snow."
        assert len(conversations) == 1
        assert outline(sent(sim)) == ["user", "assistant", "tool sun", "assistant", "tool snow"]


# -- format ----------------------------------------------------------------------------------------------------------


def test_an_answer_in_a_format_is_told_checked_and_freed_of_fences(alice: openai.OpenAI, sim: Simulator) -> None:
    before = len(sim.requests)
    said = '```json\n{"name": "Ada", "age": 36}\n```'
    answer = ask(alice, [user(plan(said))], response_format=PERSON_FORMAT).choices[0]
    assert json.loads(answer.message.content) == {"name": "Ada", "age": 36}
    assert len(sim.requests) == before + 1
    assert '"required": ["name", "age"]' in str(sim.requests[-1].body["messages"][0]["content"])


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_answer_that_does_not_fit_is_repaired_once(
    is_stream: bool, alice: openai.OpenAI, sim: Simulator, gateway: GatewayProcess
) -> None:
    before = len(sim.requests)
    messages = [user(plan({"say": '{"name": "Ada"}', "repaired": {"say": '{"name": "Ada", "age": 36}'}}))]
    if is_stream:
        text = read_stream(alice, messages, response_format=PERSON_FORMAT)[0]["content"]
    else:
        text = ask(alice, messages, response_format=PERSON_FORMAT).choices[0].message.content
    assert json.loads(text) == {"name": "Ada", "age": 36}
    assert len(sim.requests) == before + 2
    assert "answer: 'age' is a required property" in str(sim.requests[-1].body["messages"][0]["content"])


def test_an_answer_that_cannot_be_repaired_is_an_error(alice: openai.OpenAI) -> None:
    with pytest.raises(openai.APIStatusError, match=r"rejected twice: answer: 'age' is a required property"):
        ask(alice, [user(plan('{"name": "Ada"}'))], response_format=PERSON_FORMAT)
    with pytest.raises(openai.APIStatusError, match="it is not valid JSON"):
        ask(alice, [user(plan("Once upon a time"))], response_format={"type": "json_object"})


def test_a_format_holds_for_one_request_only(alice: openai.OpenAI, sim: Simulator) -> None:
    messages = [user(plan('{"a": 1}'))]
    told = ask(alice, messages, response_format={"type": "json_object"}).choices[0].message.content
    messages += [{"role": "assistant", "content": told}, user("and now in prose")]
    assert ask(alice, messages).choices[0].message.content == "heard: and now in prose"
    assert "JSON only" not in str(sim.requests[-1].body["messages"][0])


# -- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_an_answer_ends_at_the_clients_limit(name: str, alice: openai.OpenAI, sim: Simulator) -> None:
    answer = ask(alice, [user(plan("one two three four five six seven"))], **{name: 3}).choices[0]
    assert answer.finish_reason == "length"
    assert 0 < len(answer.message.content) < 15
    assert sim.requests[-1].body["max_completion_tokens"] == 3


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_answer_ends_before_a_stop_sequence(is_stream: bool, alice: openai.OpenAI) -> None:
    messages = [user(plan("alpha beta STOPPED gamma"))]
    options: dict[str, Any] = {"stop": ["STOP", "gamma"]}
    if is_stream:
        answer, reason = read_stream(alice, messages, **options)
        assert (answer["content"], reason) == ("alpha beta ", "stop")
    else:
        answer = ask(alice, messages, **options).choices[0].message.model_dump(exclude_none=True)
        assert answer["content"] == "alpha beta "
    again = ask(alice, [*messages, answer, user("go on")])
    assert again.choices[0].message.content == "heard: go on"


def test_what_may_start_a_stop_sequence_is_sent_in_the_end(alice: openai.OpenAI) -> None:
    assert read_stream(alice, [user(plan("alpha STO"))], stop="STOP")[0]["content"] == "alpha STO"


def test_format_and_temperature_go_to_a_provider_that_takes_them(tmp_path: Any) -> None:
    settings = {"model.provider": "openai", "model.name": "gpt-4o", "gateway.requests_per_minute": "null"}
    with (
        Simulator(script=planned) as sim,
        gateway_process(tmp_path, sim, users={"alice": ("chat",)}, settings=settings) as gateway,
        client(gateway, "alice") as api,
    ):
        said = '{"name": "Ada", "age": 36}'
        ask(api, [user(plan(said))], response_format=PERSON_FORMAT, temperature=0.3)
        schema = {"name": "person", "schema": PERSON, "strict": True}
        assert sim.requests[-1].body["response_format"] == {"type": "json_schema", "json_schema": schema}
        assert sim.requests[-1].body["temperature"] == 0.3
        ask(api, [user("hi")])
        assert not {"temperature", "response_format"} & set(sim.requests[-1].body)


# -- accounting and compaction ---------------------------------------------------------------------------------------


def test_client_tools_count_in_the_window_and_cost_is_recorded(alice: openai.OpenAI, gateway: GatewayProcess) -> None:
    long_tool = {
        "type": "function",
        "function": {"name": "long_tool", "description": "word " * 4_000, "parameters": {"type": "object"}},
    }
    plain, with_tool = (ask(alice, [user("hello")], tools=tools) for tools in ([WEATHER], [WEATHER, long_tool]))
    headers = gateway.headers("alice")
    figures = []
    for answer in (plain, with_tool):
        page = f"{gateway.url}/api/page/conversations/{answer.perdure['conversation_id']}/context"
        calls = httpx.get(page, headers=headers, trust_env=False).json()["calls"]
        figures.append(calls[-1])
    assert figures[1]["estimate_tokens"] - figures[0]["estimate_tokens"] > 3_000
    assert figures[1]["composition"]["tools"] - figures[0]["composition"]["tools"] > 3_000


@pytest.mark.spec("D3")
def test_compaction_keeps_calls_and_results_of_the_client_whole(tmp_path: Any) -> None:
    settings = {"gateway.requests_per_minute": "null", "model.context_length": "16000"}
    with (
        Simulator(script=planned) as sim,
        gateway_process(tmp_path, sim, users={"alice": ("chat",)}, settings=settings) as gateway,
        client(gateway, "alice") as api,
    ):
        messages: Messages = []
        conversations = set()
        for n in range(12):
            messages.append(user(plan({"say": f"Step {n}.", "calls": [ROME]}, f"Step {n} is done.")))
            answer = ask(api, messages, tools=[WEATHER])
            call = answer.choices[0].message.tool_calls[0]
            messages += [answer.choices[0].message.model_dump(exclude_none=True), result(call, f"{n} sunny " * 900)]
            answer = ask(api, messages, tools=[WEATHER])
            messages.append({"role": "assistant", "content": answer.choices[0].message.content})
            conversations.add(answer.perdure["conversation_id"])
            assert answer.choices[0].message.content == f"Step {n} is done."
        assert len(conversations) == 1
        # The simulator refuses a call without a result, and a result without its call.
        turns = [line for line in gateway.log_writer if line["event"] == "turn"]
        assert sum(line["compactions"] for line in turns) > 0
        assert {line["outcome"] for line in turns} == {"completed"}


@pytest.mark.parametrize(
    ("change", "param", "words"),
    [
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "objec"}}}]},
            "tools[0].function.parameters",
            "tools[0].function.parameters.type",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "a", "schema": {"properties": {"a": {"$ref": "http://127.0.0.1:9/a"}}}},
                }
            },
            "response_format.json_schema.schema",
            "response_format.json_schema.schema.properties.a.$ref",
        ),
    ],
)
def test_a_broken_schema_is_an_error_with_its_place(
    change: dict[str, Any], param: str, words: str, alice: openai.OpenAI
) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        ask(alice, [user("hello")], **change)
    body: Any = raised.value.body
    assert (body["code"], body["param"]) == ("invalid_schema", param)
    assert words in body["message"]


def test_two_calls_with_one_id_are_an_error(alice: openai.OpenAI) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    messages = [
        user("hello"),
        {"role": "assistant", "content": None, "tool_calls": [call, call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sun"},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ]
    with pytest.raises(openai.BadRequestError, match=r"messages\[1\]: two tool calls have the id 'call_1'"):
        ask(alice, messages, tools=[WEATHER])


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_stop_sequence_before_a_call_ends_the_reply_without_it(
    alice: openai.OpenAI, sim: Simulator, is_streamed: bool
) -> None:
    """The conversation goes on without the call: the client never saw it."""
    messages: list[Any] = [{"role": "user", "content": plan({"say": "one END two", "calls": [ROME]})}]
    if is_streamed:
        with alice.chat.completions.create(
            model="perdure", messages=messages, tools=[WEATHER], stop="END", stream=True
        ) as stream:  # type: ignore[call-overload]  # plain dicts
            choices = [c.choices[0] for c in stream if c.choices]
        text, calls = "".join(c.delta.content or "" for c in choices), [c for c in choices if c.delta.tool_calls]
        reason = choices[-1].finish_reason
    else:
        [choice] = ask(alice, messages, tools=[WEATHER], stop="END").choices
        text, calls, reason = choice.message.content, choice.message.tool_calls or [], choice.finish_reason
    assert (text, calls, reason) == ("one ", [], "stop")
    messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "and now?"}]
    assert ask(alice, messages, tools=[WEATHER]).choices[0].message.content == "heard: and now?"
    assert [m["role"] for m in sent(sim)] == ["user", "assistant", "user"]


@pytest.mark.parametrize("arguments", ['{"city": ', '{"city": 5}', '["Rome"] ', "Rome", ' {"city":"Rome"}\n'])
def test_the_client_gets_the_arguments_as_the_model_wrote_them(alice: openai.OpenAI, arguments: str) -> None:
    text = plan({"calls": [["get_weather", arguments]]})
    [call] = ask(alice, [user(text)], tools=[WEATHER]).choices[0].message.tool_calls
    assert call.function.arguments == arguments
    tool = {"type": "function", **WEATHER["function"]}  # type: ignore[dict-item]  # a dict
    items: Any = alice.responses.create(model="perdure", input=text, tools=[tool]).output  # type: ignore[list-item,call-overload]  # plain dicts
    assert items[-1].arguments == arguments
