// Whatever changes something: messages, slash commands, answers to questions, stopping. Reading is api.js.

import { ask, Refused } from "./api.js";
import { events } from "./sse.js";

const PLATFORM = "page";
const TRIES = 6;

// One chat per conversation, whichever tab it is open in: a stop pressed in one reaches the turn begun in another.
export function chatOf(conversationId) {
  return `page-${conversationId}`;
}

export function newChat() {
  return `page-${crypto.randomUUID()}`;
}

// Sends one message (a slash command is one too) and yields what comes of it. If the connection is lost on the way, the
// turn goes on without us: it is followed again from where we were.
export async function* say({ chat, conversationId, content, signal }) {
  const seen = { turn: null, number: -1, isOver: false };
  const body = {
    platform: PLATFORM,
    chat,
    conversation_id: conversationId ?? undefined,
    content,
    key: crypto.randomUUID(),
  };
  for (let tries = 0; !seen.isOver; tries += 1) {
    try {
      const answer = await (seen.turn ? follow(seen.turn, signal) : send(body, signal));
      for await (const event of events(answer)) {
        if (event.number <= seen.number) continue;
        Object.assign(seen, { turn: event.turn_id, number: event.number, isOver: isLast(event) });
        tries = 0;
        yield event;
      }
      if (seen.isOver) return;
    } catch (error) {
      // A refusal is an answer; only a lost connection is worth another try, and the key makes it the same message.
      if (signal?.aborted || error.status > 0 || tries >= TRIES) throw error;
    }
    if (tries >= TRIES)
      throw new Refused(0, "The connection was lost. The turn goes on; its answer will be in the story.");
    await new Promise((resolve) => setTimeout(resolve, 250 * 2 ** tries));
  }
}

function send(body, signal) {
  return ask("/api/messages", { method: "POST", headers: { Accept: "text/event-stream" }, body, signal });
}

function follow(turnId, signal) {
  return ask(`/api/messages/${encodeURIComponent(turnId)}/events`, {
    headers: { Accept: "text/event-stream" },
    signal,
  });
}

function isLast({ type }) {
  return type === "turn_finished" || type === "command_answered";
}

// Runs a slash command for a conversation; the answer's words, or an error that says them.
export async function command(conversationId, content, signal) {
  let said = "";
  for await (const event of say({ chat: chatOf(conversationId), conversationId, content, signal })) {
    if (event.type === "turn_finished" && event.error) throw new Refused(200, event.error);
    if (event.type !== "command_answered") continue;
    if (event.level === "error") throw new Refused(200, event.text);
    said = event.text;
  }
  return said;
}

export async function stop(chat) {
  await ask(`/api/chats/${encodeURIComponent(chat)}/stop?platform=${PLATFORM}`, { method: "POST" });
}

export async function answerQuestion(id, answer) {
  await ask(`/api/questions/${encodeURIComponent(id)}`, { method: "POST", body: { answer } });
}

export async function openQuestions(signal) {
  return (await ask("/api/questions", { signal })).json();
}

export async function allCommands(signal) {
  return (await ask("/api/commands", { signal })).json();
}
