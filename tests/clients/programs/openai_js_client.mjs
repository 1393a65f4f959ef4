// The official JavaScript SDK: tools by hand and by its runner, parsed formats, streams, responses.
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { text } from "node:stream/consumers";

const request = JSON.parse(await text(process.stdin));
const client = new OpenAI({ baseURL: process.env.PERDURE_URL, apiKey: process.env.PERDURE_KEY, maxRetries: 0 });
const Person = z.object({ name: z.string(), age: z.number().int() });
const out = {};

const runner = client.chat.completions.runTools({
  model: "perdure",
  messages: [{ role: "user", content: request.tool_plan }],
  tools: [{
    type: "function",
    function: { ...request.tool.function, parse: JSON.parse, function: () => "sun" },
  }],
});
out.tools = await runner.finalContent();

const streamed = client.chat.completions.stream({
  model: "perdure",
  messages: [{ role: "user", content: request.tool_plan }],
  tools: [request.tool],
  stream_options: { include_usage: true },
});
const final = await streamed.finalChatCompletion();
out.streamed = final.choices[0].message.tool_calls.map((c) => c.function.name);
out.usage = final.usage.total_tokens > 0;

const parsed = await client.chat.completions.parse({
  model: "perdure",
  messages: [{ role: "user", content: request.person_plan }],
  response_format: zodResponseFormat(Person, "person"),
});
out.person = parsed.choices[0].message.parsed;

const { name, description, parameters } = request.tool.function;
const first = await client.responses.create({
  model: "perdure", input: request.tool_plan, tools: [{ type: "function", name, description, parameters, strict: false }],
});
const call = first.output.find((item) => item.type === "function_call");
const second = await client.responses.create({
  model: "perdure", previous_response_id: first.id,
  input: [{ type: "function_call_output", call_id: call.call_id, output: "sun" }],
});
out.responses = second.output_text;
console.log(JSON.stringify(out));
