// The figures of one call: the parts of its prompt, counted tokens and cost.

import { clear, h } from "./dom.js";
import { errorWords } from "./event.js";
import { messageLink } from "./route.js";
import { layersOf, totalOf } from "./stack.js";
import { sentence } from "./compaction_reason.js";
import { count, dollars, moment, partName, percent } from "./format.js";

export class Readout {
  constructor(chart, conversationId) {
    this.chart = chart;
    this.id = conversationId;
    this.element = h("section", { class: "readout card", "aria-label": "Figures of the chosen call" });
  }

  show(index) {
    const { calls, parts, marks } = this.chart;
    const call = calls[index];
    const total = totalOf(call);
    const before = marks.filter((mark) => mark.at === index);
    const after = marks.filter((mark) => mark.at === calls.length && index === calls.length - 1);
    clear(
      this.element,
      h("h2", {}, `Call ${count(index + 1)} of ${count(calls.length)}`),
      h(
        "p",
        { class: "muted small" },
        `${moment(call.started_at)} · ${call.model}${call.verdict && call.verdict !== "ok" ? ` · ${errorWords(call.verdict)}` : ""}`,
      ),
      before.map((mark) => h("p", { class: `before ${mark.kind}` }, "Before it: ", sentence(mark.text))),
      after.map((mark) => h("p", { class: `before ${mark.kind}` }, "After it: ", sentence(mark.text))),
      table(parts, layersOf(call, parts), total),
      h(
        "dl",
        {},
        details(call, total).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
      ),
      h("p", {}, h("a", { class: "button", href: messageLink(this.id, call.seq) }, "Go to this turn")),
    );
  }
}

// Top to bottom, as in the chart.
function table(parts, layers, total) {
  const rows = parts.map((part, p) => [part, Math.round(layers[p])]).reverse();
  return h(
    "table",
    { class: "parts" },
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        h("th", { scope: "col" }, "Part"),
        h("th", { scope: "col", class: "figure" }, "Tokens"),
        h("th", { scope: "col", class: "figure" }, "Share"),
      ),
    ),
    h(
      "tbody",
      {},
      rows.map(([part, n]) =>
        h(
          "tr",
          { class: n ? "" : "none" },
          h("th", { scope: "row" }, h("span", { class: "swatch", "data-part": part }), partName(part)),
          h("td", { class: "figure" }, count(n)),
          h("td", { class: "figure" }, percent(n, total)),
        ),
      ),
    ),
    h(
      "tfoot",
      {},
      h("tr", {}, h("th", { scope: "row" }, "Prompt"), h("td", { class: "figure" }, count(total)), h("td", {})),
    ),
  );
}

function details(call, total) {
  return [
    ["Threshold", call.threshold ? `${count(call.threshold)} tokens (${percent(total, call.threshold)} reached)` : "unknown"],
    ["Window", call.window ? `${count(call.window)} tokens (${percent(total, call.window)} used)` : "unknown"],
    [
      "Counted by",
      call.prompt_tokens === null ? "estimate: the provider reported none" : "the provider; parts are estimates",
    ],
    ["From cache", `${count(call.cache_read_tokens)} tokens read, ${count(call.cache_write_tokens)} written`],
    ["Reply", `${count(call.output_tokens)} tokens`],
    ["Cost", dollars(call.cost_usd)],
  ];
}
