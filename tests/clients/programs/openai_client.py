"""The official Python SDK: its own parsing of tools and formats, streams, responses, and what is refused."""

import json
import os
import sys

import openai
from pydantic import BaseModel

request = json.load(sys.stdin)
out = {}
client = openai.OpenAI(base_url=os.environ["PERDURE_URL"], api_key=os.environ["PERDURE_KEY"], max_retries=0)


class Person(BaseModel):
    name: str
    age: int


class GetWeather(BaseModel):
    city: str


tool = openai.pydantic_function_tool(GetWeather, name="get_weather")
messages = [{"role": "user", "content": request["tool_plan"]}]
with client.chat.completions.stream(model="perdure", messages=messages, tools=[tool]) as stream:
    first = stream.until_done().get_final_completion().choices[0].message
messages.append(first.model_dump(exclude_none=True, exclude={"parsed"}))
messages += [{"role": "tool", "tool_call_id": call.id, "content": "sun"} for call in first.tool_calls]
out["arguments"] = [call.function.parsed_arguments.city for call in first.tool_calls]
out["tools"] = (
    client.chat.completions.create(model="perdure", messages=messages, tools=[tool]).choices[0].message.content
)
parsed = client.chat.completions.parse(
    model="perdure", messages=[{"role": "user", "content": request["person_plan"]}], response_format=Person
)
out["person"] = parsed.choices[0].message.parsed.model_dump()
out["response"] = client.responses.parse(
    model="perdure", input=request["person_plan"], text_format=Person
).output_parsed.model_dump()
try:
    client.embeddings.create(model="perdure", input="x")
except openai.NotFoundError as error:
    out["embeddings"] = error.code
print(json.dumps(out))
