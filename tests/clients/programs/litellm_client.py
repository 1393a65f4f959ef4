"""litellm: completion, stream, tools, JSON schema."""

import json
import os
import sys

import litellm

COMMON = {"model": "openai/perdure", "api_base": os.environ["PERDURE_URL"], "api_key": os.environ["PERDURE_KEY"]}
request = json.load(sys.stdin)
out = {}

messages = [{"role": "user", "content": request["tool_plan"]}]
first = litellm.completion(messages=messages, tools=[request["tool"]], **COMMON).choices[0]
out["finish_reason"] = first.finish_reason
messages.append(first.message.model_dump(exclude_none=True))
for call in first.message.tool_calls:
    messages.append({"role": "tool", "tool_call_id": call.id, "content": "sun"})
out["tool_answer"] = litellm.completion(messages=messages, tools=[request["tool"]], **COMMON).choices[0].message.content

stream = litellm.completion(
    messages=[{"role": "user", "content": request["tool_plan"]}], tools=[request["tool"]], stream=True, **COMMON
)
chunks = list(stream)
built = litellm.stream_chunk_builder(chunks)
out["streamed_calls"] = [c.function.name for c in built.choices[0].message.tool_calls]

formatted = litellm.completion(
    messages=[{"role": "user", "content": request["person_plan"]}],
    response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": request["person"]}},
    **COMMON,
)
out["person"] = json.loads(formatted.choices[0].message.content)
print(json.dumps(out))
