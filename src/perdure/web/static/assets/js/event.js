// Events between two messages: compactions, stored outputs, model changes, recoveries, stopped replies, failed turns.

import { h } from "./dom.js";
import { markdown } from "./markdown.js";
import { linkTo } from "./route.js";
import { count, dollars, size, timeOfDay } from "./format.js";

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
  turn_stopped: "■",
  model_refused: "⊘",
  tool_failed: "✕",
  tool_refused: "⊘",
};

// A reply that the user stopped has the sign of a stop; one that broke off on its own has not.
function signOf({ kind, payload }) {
  return kind.startsWith("partial") && payload.why === "interrupted" ? SIGNS.turn_stopped : (SIGNS[kind] ?? "·");
}

const REASONS = {
  preflight: (limit) => `the prompt reached ${limit}`,
  cold: () => "the provider no longer had the prompt in its cache, so that this was the cheapest moment",
  threshold: (limit) => `the prompt had reached ${limit} when the turn ended`,
  background: (limit) => `the prompt reached ${limit} (prepared in the background)`,
  overflow: () => "the provider reported that the prompt was too long for the model's window",
  hygiene: () => "the history was too long to begin with",
  user: () => "you asked for it (/compress)",
};

// Why a conversation was compacted.
export function reasonWords(reason, threshold = null) {
  const limit = threshold ? `the compaction threshold of ${count(threshold)} tokens` : "its compaction threshold";
  return REASONS[reason]?.(limit) ?? reason;
}

const ACTIONS = {
  compact: "the conversation was compacted and the call repeated",
  lower_output: "a shorter reply was requested",
  drop_images: "the oldest images were left out and the call repeated",
  reroute: "the call was repeated with another key or provider",
};

// Kinds of provider errors that do not read as plain words; `kind_label` in core/errors.py has the same.
const ERRORS = {
  output_cap: "output limit",
  auth: "refused key",
  quota: "exhausted quota",
  bad_request: "rejected request",
  transport: "connection failure",
  unknown: "unexpected error",
};

export function errorWords(kind) {
  return ERRORS[kind] ?? (kind ?? "an error").replaceAll("_", " ");
}

// Why a reply ends early.
export function cutOffWords(why) {
  return why === "transport" ? "connection lost" : errorWords(why);
}

// A failed call that was handled: the turn went on.
export function recovered(kind, action) {
  const error = errorWords(kind);
  return `Recovered from ${error}: ${ACTIONS[action] ?? action ?? "the call was repeated"}.`;
}

const SENTENCES = {
  compaction: compacted,
  turn_failed: (p) => `The turn failed: ${p.reason || "no reason was recorded"}`,
  turn_stopped: (p) => (p.has_text ? "The reply was stopped." : "The turn was stopped before a reply had begun."),
  model_refused: (p) =>
    p.refused_by === "filter"
      ? "A content filter of the provider cut the answer off."
      : `${p.model || "The model"} refused to answer.`,
  undo: () => "The compaction was undone: the messages are in the prompt again.",
  spill: (p) =>
    `A tool output${p.chars ? ` of ${size(p.chars)}` : ""} was stored outside the context${p.address ? `: ${p.address}` : "."}`,
  model_switch: (p) =>
    `The model changed${p.old ? ` from ${p.old}` : ""}${p.new ? ` to ${p.new}` : ""}${p.reason ? `: ${p.reason}` : "."}`,
  recovery: (p) => `${recovered(p.kind, p.action)}${p.message ? ` The provider reported: ${p.message}` : ""}`,
  partial_reply: (p) => (p.why === "interrupted" ? "The reply was stopped." : `The reply was cut off (${cutOffWords(p.why)}).`),
};

export function sentence(event) {
  const say = SENTENCES[event.kind] ?? SENTENCES[`${event.kind}_reply`];
  return say ? say(event.payload) : String(event.payload.text ?? event.kind.replaceAll("_", " "));
}

// Older events have only the engine's own figures.
function compacted(p) {
  if (p.outcome === "failed") return "A compaction failed; nothing changed.";
  if (p.outcome === "nothing_to_do") return "A compaction was requested; there was nothing to compact.";
  const why = p.reason ? `, because ${reasonWords(p.reason, p.threshold)}` : "";
  return `Compacted${sizes(p) && `: ${sizes(p)}`}${why}.`;
}

function sizes(p) {
  const [before, after] = [p.prompt_before ?? p.before, p.prompt_after ?? p.after];
  return before === undefined ? "" : `${count(before)} → ${count(after)} tokens`;
}

export function isCompacted({ kind, payload }) {
  return kind === "compaction" && (payload.outcome === "compacted" || payload.outcome === "digest");
}

// A compaction in its handoff's card: why, the sizes, the cost, and where to see more.
export function compactionFacts({ payload: p }, conversationId) {
  const rows = [
    ["Why", p.reason ? `${reasonWords(p.reason, p.threshold)}` : "not recorded"],
    ["Prompt", sizes(p) || "not recorded"],
    ["Cost", p.outcome === "digest" ? "none: written by code, without a model" : dollars(p.cost_usd)],
  ];
  return [
    h("dl", {}, rows.map(([name, words]) => [h("dt", {}, name), h("dd", {}, words)])),
    h("a", { href: linkTo(conversationId, "/context") }, "See it on the chart"),
  ];
}

export function eventElement(event, conversationId) {
  const chart = h("a", { href: linkTo(conversationId, "/context") }, "See it on the chart");
  return h(
    "div",
    { class: `event ${event.kind}`, role: "note", id: `e-${event.id}`, tabindex: "-1" },
    h("span", { class: "sign", "aria-hidden": "true" }, signOf(event)),
    h("div", { class: "words" }, sentence(event), event.kind === "compaction" ? [" ", chart] : partialText(event)),
    h("time", {}, timeOfDay(event.created_at)),
  );
}

// What had arrived of a reply that was stopped; it is not part of the history.
function partialText({ payload, kind }) {
  if (!kind.startsWith("partial") || !payload.text) return null;
  return h("div", { class: "prose partial-text" }, markdown(String(payload.text)));
}
