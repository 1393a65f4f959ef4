// Requests that change something: messages, slash commands, answers to questions, stopping. Reading is api.js.

import { ask, Refused } from "./api.js";
import { events } from "./sse.js";

const PLATFORM = "page";
const TRIES = 6;

// One chat per conversation in all tabs, so that a stop in one reaches the turn of another.
export function chatOf(conversationId) {
  return `page-${conversationId}`;
}

export function newChat() {
  return `page-${crypto.randomUUID()}`;
}

// Sends one message or slash command and yields its events. After a lost connection the stream is resumed.
export function say({ chat, conversationId, content, pasted, signal }) {
  const body = {
    platform: PLATFORM,
    chat,
    conversation_id: conversationId ?? undefined,
    content,
    pasted: pasted?.length ? pasted.slice(0, 200) : undefined,
    key: crypto.randomUUID(),
  };
  const seen = { turn: null, number: 0, isOver: false };
  return untilOver(seen, () => (seen.turn ? follow(seen, signal) : send(body, signal)), signal);
}

// Follows a message that was sent earlier or elsewhere, to its end.
export function hearOf(turnId, signal) {
  const seen = { turn: turnId, number: 0, isOver: false };
  return untilOver(seen, () => follow(seen, signal), signal);
}

async function* untilOver(seen, connect, signal) {
  for (let tries = 0; !seen.isOver; tries += 1) {
    try {
      for await (const event of events(await connect())) {
        if (event.number <= seen.number) continue;
        Object.assign(seen, { turn: event.turn_id, number: event.number, isOver: isLast(event) });
        tries = 0;
        yield event;
      }
      if (seen.isOver) return;
    } catch (error) {
      // Only a lost connection is retried; the idempotency key makes it the same message.
      if (signal?.aborted || error.status > 0 || tries >= TRIES) throw error;
    }
    if (tries >= TRIES)
      throw new Refused(0, "The connection was lost. The turn goes on; its answer will be in the timeline.");
    await new Promise((resolve) => setTimeout(resolve, 250 * 2 ** tries));
  }
}

function send(body, signal) {
  return ask("/api/messages", { method: "POST", headers: { Accept: "text/event-stream" }, body, signal });
}

function follow({ turn, number }, signal) {
  return ask(`/api/messages/${encodeURIComponent(turn)}/events`, {
    headers: { Accept: "text/event-stream", "Last-Event-ID": String(number) },
    signal,
  });
}

function isLast({ type }) {
  return type === "turn_finished" || type === "command_answered";
}

// Runs a slash command for a conversation and returns its answer. Throws its error.
export async function command(conversationId, content, signal) {
  return (await commandAnswer(conversationId, content, signal)).text;
}

// Branches off before a message; returns the branch's id.
export async function branchBefore(conversationId, seq) {
  return (await commandAnswer(conversationId, `/branch m:${seq}`)).conversation_id;
}

async function commandAnswer(conversationId, content, signal) {
  let answer = { text: "" };
  for await (const event of say({ chat: chatOf(conversationId), conversationId, content, signal })) {
    if (event.type === "turn_finished" && event.error) throw new Refused(200, event.error);
    if (event.type !== "command_answered") continue;
    if (event.level === "error") throw new Refused(200, event.text);
    answer = event;
  }
  return answer;
}

export async function stop(chat) {
  await ask(`/api/chats/${encodeURIComponent(chat)}/stop?platform=${PLATFORM}`, { method: "POST" });
}

export async function stopTurn(turnId) {
  await ask(`/api/messages/${encodeURIComponent(turnId)}/stop`, { method: "POST" });
}

// Running and queued messages of a conversation, oldest first.
export async function unanswered(conversationId, signal) {
  return (await ask(`/api/conversations/${encodeURIComponent(conversationId)}/messages`, { signal })).json();
}

export async function answerQuestion(id, answer) {
  await ask(`/api/questions/${encodeURIComponent(id)}`, { method: "POST", body: { answer } });
}

export async function openQuestions(signal) {
  return (await ask("/api/questions", { signal })).json();
}

export async function listApprovals(signal) {
  return (await ask("/api/approvals", { signal })).json();
}

export async function revokeApproval(kind) {
  await ask(`/api/approvals/${encodeURIComponent(kind)}`, { method: "DELETE" });
}

export async function allCommands(signal) {
  return (await ask("/api/commands", { signal })).json();
}
