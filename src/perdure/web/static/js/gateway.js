// Whatever changes something: messages, slash commands, answers to questions, stopping. Reading is api.js.

import { ask, Refused } from "./api.js";
import { events } from "./sse.js";

// One chat per conversation and tab-independent, so that a stop pressed anywhere on the page reaches the turn.
export function chatOf(conversationId) {
  return `page-${conversationId}`;
}

export function newChat() {
  return `page-${crypto.randomUUID()}`;
}

// Sends one message (a slash command is one too) and yields what comes of it, event by event.
export async function* say({ chat, conversationId, content, signal }) {
  const answer = await ask("/api/messages", {
    method: "POST",
    headers: { Accept: "text/event-stream" },
    body: { chat, conversation_id: conversationId ?? undefined, content, key: crypto.randomUUID() },
    signal,
  });
  yield* events(answer);
}

// Runs a slash command for a conversation; the answer's words, or an error that says them.
export async function command(conversationId, content, signal) {
  const said = [];
  for await (const event of say({ chat: chatOf(conversationId), conversationId, content, signal })) {
    if (event.type === "command_answered") {
      if (event.level === "error") throw new Refused(200, event.text);
      said.push(event.text);
    }
    if (event.type === "turn_finished" && event.error) throw new Refused(200, event.error);
  }
  return said.join("\n");
}

export async function stop(chat) {
  await ask(`/api/chats/${encodeURIComponent(chat)}/stop`, { method: "POST" });
}

export async function answerQuestion(id, answer) {
  await ask(`/api/questions/${encodeURIComponent(id)}`, { method: "POST", body: { answer } });
}

export async function openQuestions(signal) {
  const answer = await (await ask("/api/questions", { signal })).json();
  return answer.questions ?? answer;
}

export async function allCommands(signal) {
  const answer = await (await ask("/api/commands", { signal })).json();
  return answer.commands ?? answer;
}
