// Changes made elsewhere (a terminal, a messenger, another tab), streamed.
// One connection per visible tab: browsers allow only a handful per server, so a hidden tab closes its own.

import { ask } from "./api.js";
import { events } from "./sse.js";

const listeners = new Set();
let cursor = "";
let controller = null;
let onState = () => {};

export function startLive(showState) {
  onState = showState;
  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : start()));
  if (!document.hidden) start();
}

// `listener(change)` is called for each change until the signal aborts.
export function onChange(listener, signal) {
  listeners.add(listener);
  signal.addEventListener("abort", () => listeners.delete(listener));
}

export function concerns(change, conversationId) {
  return change.event === "reload" || change.conversation_id === conversationId;
}

function stop() {
  controller?.abort();
  controller = null;
}

async function start() {
  if (controller) return;
  const mine = (controller = new AbortController());
  let wait_ms = 500;
  while (!mine.signal.aborted) {
    try {
      const answer = await ask(`/api/page/live?cursor=${encodeURIComponent(cursor)}`, {
        headers: { Accept: "text/event-stream" },
        signal: mine.signal,
      });
      onState("live");
      wait_ms = 500;
      for await (const change of events(answer)) hear(change);
    } catch (error) {
      if (mine.signal.aborted) return;
      if (error.status === 401) return onState("locked");
    }
    if (mine.signal.aborted) return;
    onState("lost");
    await new Promise((resolve) => setTimeout(resolve, wait_ms));
    wait_ms = Math.min(wait_ms * 2, 10_000);
  }
}

function hear(change) {
  cursor = change.cursor ?? cursor;
  // "reload": something was deleted, or too many changes were missed; every listener reloads.
  if (change.conversation_id || change.event === "reload") for (const listener of listeners) listener(change);
}
