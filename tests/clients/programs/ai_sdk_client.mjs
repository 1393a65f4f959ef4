// The AI SDK of Vercel with both of its providers: tools in several steps, objects, streams with usage.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { text } from "node:stream/consumers";

const request = JSON.parse(await text(process.stdin));
const server = { baseURL: process.env.PERDURE_URL, apiKey: process.env.PERDURE_KEY };
const compatible = createOpenAICompatible({
  name: "perdure", includeUsage: true, supportsStructuredOutputs: true, ...server,
});
const tools = {
  get_weather: tool({ inputSchema: z.object({ city: z.string() }), execute: async () => "sun" }),
};
const Person = z.object({ name: z.string(), age: z.number().int() });

async function converse(model) {
  const out = {};
  const generated = await generateText({ model, tools, stopWhen: stepCountIs(4), prompt: request.tool_plan });
  out.tools = generated.text;
  out.steps = generated.steps.length;

  const stream = streamText({ model, tools, stopWhen: stepCountIs(4), prompt: request.tool_plan });
  let streamed = "";
  for await (const piece of stream.textStream) streamed += piece;
  out.streamed = streamed;
  out.usage = (await stream.totalUsage).totalTokens > 0;

  const object = await generateText({ model, output: Output.object({ schema: Person }), prompt: request.person_plan });
  out.person = object.output;
  return out;
}

console.log(JSON.stringify({
  compatible: await converse(compatible("perdure")),
  responses: await converse(createOpenAI(server)("perdure")),
}));
