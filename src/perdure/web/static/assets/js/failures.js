// What went wrong in a conversation, and what the user stopped: the kinds in words, and a button that visits one by one.

import { conversationPath, read } from "./api.js";
import { h } from "./dom.js";
import { count, plural } from "./format.js";
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

// What the user stopped or refused is listed with the failures, but not counted as one.
const OWN_KINDS = ["turn_stopped", "tool_refused"];
const OWN_COUNTS = ["stopped_turns", "refused_tool_calls"];

export function isFailure(kind) {
  return kind in FAILURE_NAMES && !OWN_KINDS.includes(kind);
}

// Each kind with its count in words, and whether it is a failure.
export function failureWords(counts) {
  return Object.entries(COUNTS)
    .filter(([name]) => counts[name])
    .map(([name, words]) => [plural(counts[name], ...words), !OWN_COUNTS.includes(name)]);
}

// The same for a column of a list, each kind with its class: a turn without an answer is marked. Refusals of the model
// and of the user are one figure.
export function briefFailures(counts) {
  const refused = counts.model_refusals + counts.refused_tool_calls;
  return [
    [counts.failed_turns, plural(counts.failed_turns, "failed turn"), "failed"],
    [refused, `${count(refused)} refused`, counts.model_refusals ? "failed" : ""],
    [counts.provider_errors, plural(counts.provider_errors, "provider error"), ""],
    [counts.failed_tool_calls, plural(counts.failed_tool_calls, "failed tool call"), ""],
    [counts.stopped_turns, `${count(counts.stopped_turns)} stopped`, ""],
  ]
    .filter(([n]) => n)
    .map(([, words, look]) => [words, look]);
}

function failureTotal(counts) {
  const names = Object.keys(COUNTS).filter((name) => !OWN_COUNTS.includes(name));
  return names.reduce((sum, name) => sum + (counts[name] ?? 0), 0);
}

export function failureLink(id, failure, index) {
  const event = failure.event_id === null ? "" : `&event=${failure.event_id}`;
  return `${messageLink(id, failure.seq)}?failure=${index + 1}${event}`;
}

// Goes to the first failure, stop or refused call, then to the next with every click.
export function failureButton(known) {
  const [stopped, refused] = OWN_COUNTS.map((name) => known.failures[name] ?? 0);
  const failed = failureTotal(known.failures);
  const totals = [
    [failed, "✕", "failure"],
    [stopped, "■", "stop"],
    [refused, "⊘", "refused call"],
  ].filter(([n]) => n);
  if (!totals.length) return null;
  const at = Number(parseRoute(location.hash).parameters.failure) || 0;
  const label = at
    ? `${totals[0][1]} ${at} of ${failed + stopped + refused} · next`
    : totals.map(([n, sign, words]) => `${sign} ${plural(n, words)}`).join(" · ");
  const open = async () => {
    const { failures } = await read(`${conversationPath(known.id)}/failures`);
    if (failures.length) location.hash = failureLink(known.id, failures[at % failures.length], at % failures.length);
  };
  const words = failureWords(known.failures).map(([text]) => text);
  const title = `${words.join(", ")}. Click to go to the ${at ? "next" : "first"}.`;
  const look = `failures small${failed ? "" : " own"}`;
  return h("button", { type: "button", class: look, title, onclick: () => open().catch(() => {}) }, label);
}
