// What went wrong in a conversation: names of the kinds, their counts in words, and a button that visits one by one.

import { conversationPath, read } from "./api.js";
import { h } from "./dom.js";
import { plural } from "./format.js";
import { messageLink, parseRoute } from "./route.js";

// Most serious first.
const COUNTS = {
  failed_turns: ["failed turn"],
  model_refusals: ["refusal by the model", "refusals by the model"],
  provider_errors: ["provider error"],
  stopped_turns: ["stopped turn"],
  failed_tool_calls: ["failed tool call"],
  refused_tool_calls: ["refused tool call"],
};

export const FAILURE_NAMES = {
  turn_failed: "failed turn",
  model_refused: "refusal by the model",
  recovery: "provider error",
  turn_stopped: "stopped turn",
  tool_failed: "failed tool call",
  tool_refused: "refused tool call",
};

export function failureWords(counts) {
  return Object.entries(COUNTS)
    .filter(([name]) => counts[name])
    .map(([name, words]) => plural(counts[name], ...words));
}

export function failureTotal(counts) {
  return Object.keys(COUNTS).reduce((sum, name) => sum + (counts[name] ?? 0), 0);
}

export function failureLink(id, failure, index) {
  const event = failure.event_id === null ? "" : `&event=${failure.event_id}`;
  return `${messageLink(id, failure.seq)}?failure=${index + 1}${event}`;
}

// Goes to the first failure, then to the next with every click.
export function failureButton(known) {
  const total = failureTotal(known.failures);
  if (!total) return null;
  const at = Number(parseRoute(location.hash).parameters.failure) || 0;
  const label = at ? `✕ failure ${at} of ${total} · next` : `✕ ${plural(total, "failure")}`;
  const open = async () => {
    const { failures } = await read(`${conversationPath(known.id)}/failures`);
    if (failures.length) location.hash = failureLink(known.id, failures[at % failures.length], at % failures.length);
  };
  const title = `${failureWords(known.failures).join(", ")}. Click to go to the ${at ? "next" : "first"}.`;
  return h("button", { type: "button", class: "failures small", title, onclick: () => open().catch(() => {}) }, label);
}
