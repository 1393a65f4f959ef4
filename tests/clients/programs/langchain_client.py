"""langchain-openai: invoke, bind_tools, with_structured_output by every method, the Responses API."""

import json
import os
import sys

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

request = json.load(sys.stdin)
out = {}


@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return "sun"


class Person(BaseModel):
    """A person."""

    name: str
    age: int


def model(**options):
    return ChatOpenAI(model="perdure", base_url=os.environ["PERDURE_URL"], api_key=os.environ["PERDURE_KEY"], **options)


for name, chat in (("chat", model()), ("responses", model(use_responses_api=True))):
    messages = [HumanMessage(request["tool_plan"])]
    with_tools = chat.bind_tools([get_weather])
    answer = with_tools.invoke(messages)
    messages.append(answer)
    out[f"{name}_calls"] = [call["name"] for call in answer.tool_calls]
    messages += [ToolMessage(get_weather.invoke(c["args"]), tool_call_id=c["id"]) for c in answer.tool_calls]
    final = with_tools.invoke(messages)
    out[f"{name}_answer"] = final.text if isinstance(final.text, str) else final.text()
    gathered = None
    for chunk in with_tools.stream([HumanMessage(request["tool_plan"])]):
        gathered = chunk if gathered is None else gathered + chunk
    out[f"{name}_streamed"] = [call["args"] for call in gathered.tool_calls]

for method, plan in (("json_schema", "person_plan"), ("json_mode", "person_plan"), ("function_calling", "person_call")):
    structured = model().with_structured_output(Person, method=method)
    out[method] = structured.invoke(request[plan]).model_dump()
print(json.dumps(out))
