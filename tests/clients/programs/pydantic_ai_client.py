"""pydantic-ai: tools, every kind of output type, streams."""

import asyncio
import json
import os
import sys

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


class Person(BaseModel):
    """A person."""

    name: str
    age: int


def get_weather(city: str) -> str:
    """The weather in a city."""
    return "sun"


async def converse(model, request):
    agent = Agent(model, tools=[get_weather])
    done = await agent.run(request["tool_plan"])
    continued = await Agent(model).run("and then?", message_history=done.all_messages())
    async with agent.run_stream(request["quiet_tool_plan"]) as running:
        streamed = await running.get_output()
    out = {"tools": done.output, "history": continued.output, "stream": streamed}
    for form, plan in ((ToolOutput, "person_result"), (NativeOutput, "person_plan"), (PromptedOutput, "person_plan")):
        person = (await Agent(model, output_type=form(Person)).run(request[plan])).output
        out[form.__name__] = person.model_dump()
    return out


async def main():
    request = json.load(sys.stdin)
    provider = OpenAIProvider(base_url=os.environ["PERDURE_URL"], api_key=os.environ["PERDURE_KEY"])
    chat = await converse(OpenAIChatModel("perdure", provider=provider), request)
    responses = await converse(OpenAIResponsesModel("perdure", provider=provider), request)
    print(json.dumps({"chat": chat, "responses": responses}))


asyncio.run(main())
