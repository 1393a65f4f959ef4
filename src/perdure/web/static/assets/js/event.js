// Something that happened between two messages: a compaction, an output kept apart, a change of model, a recovery.

import { h } from "./dom.js";
import { linkTo } from "./route.js";
import { count, size, timeOfDay } from "./format.js";

export const SIGNS = {
  compaction: "⇣",
  spill: "▤",
  model_switch: "⇄",
  recovery: "↻",
  notice: "·",
  partial: "…",
  partial_reply: "…",
  undo: "↶",
  turn_failed: "✕",
};

export const REASONS = {
  preflight: "the prompt reached its threshold",
  threshold: "the prompt had reached its threshold when the turn ended",
  background: "the prompt reached its threshold (it had been made ready in the background)",
  overflow: "the service said the prompt was too long",
  hygiene: "what came in was too long to begin with",
  user: "you asked for it",
};

const SENTENCES = {
  compaction: compacted,
  turn_failed: (p) => `The turn failed: ${p.reason || "no reason is known"}`,
  undo: () => "The compaction was taken back: what it had put away is in the prompt again.",
  spill: (p) =>
    `A tool output${p.chars ? ` of ${size(p.chars)}` : ""} was kept apart to save room${p.address ? `: ${p.address}` : "."}`,
  model_switch: (p) =>
    `The model changed${p.old ? ` from ${p.old}` : ""}${p.new ? ` to ${p.new}` : ""}${p.reason ? `: ${p.reason}` : "."}`,
  recovery: (p) =>
    `Recovered from an error (${p.kind ?? "unknown"}): ${p.action ?? "tried again"}${p.message ? `. The service said: ${p.message}` : ""}`,
  partial_reply: (p) =>
    `A reply was cut off${p.why ? ` (${p.why})` : ""}${p.text ? `. What had come: ${p.text}` : "."}`,
};

export function sentence(event) {
  const say = SENTENCES[event.kind] ?? SENTENCES[`${event.kind}_reply`];
  return say ? say(event.payload) : String(event.payload.text ?? event.kind.replaceAll("_", " "));
}

// The prompt's figures are the counter's, the same as on the chart; older events have only the engine's own.
function compacted(p) {
  if (p.outcome === "failed") return "A compaction was tried and failed; nothing changed.";
  if (p.outcome === "nothing_to_do") return "A compaction was asked for; there was nothing to compact.";
  const [before, after] = [p.prompt_before ?? p.before, p.prompt_after ?? p.after];
  const figures = before === undefined ? "" : `: ${count(before)} → ${count(after)} tokens`;
  const why = p.reason ? `, because ${REASONS[p.reason] ?? p.reason}` : "";
  return `Compacted${figures}${why}.`;
}

export function eventElement(event, conversationId) {
  const chart = h("a", { href: linkTo(conversationId, "/context") }, "See it on the chart");
  return h(
    "div",
    { class: `event ${event.kind}`, role: "note" },
    h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[event.kind] ?? "·"),
    h("span", { class: "words" }, sentence(event), event.kind === "compaction" ? [" ", chart] : null),
    h("time", {}, timeOfDay(event.created_at)),
  );
}
