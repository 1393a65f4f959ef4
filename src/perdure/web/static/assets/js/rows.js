// One row of a list: a conversation with its figures, or a search hit.

import { h, marked } from "./dom.js";
import { briefFailures, failureWords } from "./failures.js";
import { cost, costNote, count, dayName, moment, percent, plural, short, timeOfDay } from "./format.js";
import { linkTo, messageLink } from "./route.js";
import { Title } from "./title.js";

const KINDS = { branch: "branch", delegate: "delegated" };

// Below a heading that names the day, the time is enough.
export function conversationRow(row, { isUnderDay }) {
  const when = `${isUnderDay ? "" : `${dayName(row.updated_at)}, `}${timeOfDay(row.updated_at)}`;
  const address = row.hit_seq === null ? linkTo(row.id) : messageLink(row.id, row.hit_seq);
  return h(
    "li",
    { class: "row", "data-id": row.id },
    h(
      "div",
      { class: "row-main" },
      new Title(row, { address }).element,
      row.snippet ? h("p", { class: "snippet", dir: "auto" }, marked(row.snippet, row.marks)) : null,
      h(
        "p",
        { class: "facts" },
        h("time", { datetime: new Date(row.updated_at).toISOString() }, when),
        h("span", {}, row.source || "unknown source"),
        modelName(row) ? h("span", {}, modelName(row)) : null,
        h("span", {}, plural(row.messages, "message")),
        KINDS[row.kind] ? h("span", { class: "tag" }, KINDS[row.kind]) : null,
      ),
    ),
    row.figures ? figures(row.figures) : null,
  );
}

// Each figure has its unit, so that it can be read without the column's heading; a figure of nothing is left out.
function figures(f) {
  return h(
    "p",
    { class: "figures" },
    costFigure(f),
    h("span", { title: `${count(f.tokens)} tokens in ${plural(f.calls, "call")}` }, f.calls ? `${short(f.tokens)} tokens` : ""),
    contextFill(f),
    h("span", {}, f.compactions ? plural(f.compactions, "compaction") : ""),
    failures(f),
  );
}

// As in the head of the conversation: the model that answered last, which a session may have begun without.
function modelName(row) {
  return row.figures?.model || row.model;
}

// An unknown figure is not highlighted.
function costFigure(f) {
  const isKnown = f.calls && f.cost_usd !== null && (f.cost_usd > 0 || !f.unpriced_calls);
  const words = isKnown ? cost(f) : f.calls ? "no price" : "";
  return h("span", { class: isKnown ? "cost" : "cost unknown", title: costNote(f) || null }, words);
}

// Every kind in words.
function failures(f) {
  const title = failureWords(f).map(([words]) => words).join(", ");
  const kinds = briefFailures(f);
  const piece = ([words, look], i) => [h("span", { class: look }, `${words}${i < kinds.length - 1 ? "," : ""}`), " "];
  return h("span", { class: "went-wrong", title: title || null }, kinds.map(piece));
}

function contextFill({ context_tokens: tokens, window }) {
  if (!tokens || !window) return h("span");
  const bar = h("span", { class: "fill", "aria-hidden": "true" }, h("span"));
  bar.firstChild.style.width = `${Math.min(100, (100 * tokens) / window).toFixed(1)}%`;
  const words = `Context: ${count(tokens)} of ${count(window)} tokens`;
  return h("span", { class: tokens > window ? "context over" : "context", title: words }, bar, `${percent(tokens, window)} of ${short(window)}`);
}

function answerLine(conversation, answer) {
  const link = h("a", { href: messageLink(conversation, answer.seq) }, answer.role === "tool" ? "result" : "answer");
  return h("p", { class: "snippet", dir: "auto" }, "→ ", link, ": ", marked(answer.snippet, answer.marks));
}

export function hitRow(hit) {
  const address = hit.seq === null ? linkTo(hit.conversation_id) : messageLink(hit.conversation_id, hit.seq);
  return h(
    "li",
    { class: "row" },
    h(
      "div",
      { class: "row-main" },
      h("a", { href: address, class: "row-title" }, hit.title || "Untitled"),
      h("p", { class: "snippet", dir: "auto" }, marked(hit.snippet, hit.marks)),
      hit.answer ? answerLine(hit.conversation_id, hit.answer) : null,
      h(
        "p",
        { class: "facts" },
        h("time", {}, moment(hit.created_at)),
        h("span", {}, hit.role),
        hit.output_id ? h("span", { class: "tag" }, "inside a stored tool output") : null,
        hit.seq === null ? null : h("span", {}, `message ${hit.seq}`),
      ),
    ),
  );
}
