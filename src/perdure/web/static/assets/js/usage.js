// What it cost: by day, model, source and task; what came fresh, what from the cache, and what was saved.

import { read } from "./api.js";
import { dayChart } from "./days.js";
import { clear, h } from "./dom.js";
import { wideTable } from "./table.js";
import { count, dollars, percent, plural, short } from "./format.js";

const CLASSES = ["input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens"];
const RANGES = [
  [7, "7 days"],
  [30, "30 days"],
  [90, "90 days"],
  [365, "a year"],
];

export async function open({ place, route, signal }) {
  document.title = "Usage · Perdure";
  const content = h("div");
  const show = async (days) => clear(content, ...view(await read("/usage", { days }, signal), signal));
  const days = RANGES.some(([n]) => String(n) === route.parameters.days) ? Number(route.parameters.days) : 30;
  clear(place, h("div", { class: "usage-head" }, h("h1", {}, "Usage and cost"), rangeButtons(days, show)), content);
  await show(days);
}

function rangeButtons(chosen, show) {
  const pick = (event) => {
    for (const button of group.children) button.setAttribute("aria-pressed", String(button === event.target));
    history.replaceState(null, "", `#/usage?days=${event.target.value}`);
    show(event.target.value).catch(() => {});
  };
  const group = h(
    "div",
    { class: "ranges", role: "group", "aria-label": "How far back" },
    RANGES.map(([n, words]) =>
      h("button", { type: "button", value: String(n), "aria-pressed": String(n === chosen), onclick: pick }, words),
    ),
  );
  return group;
}

function view(usage, signal) {
  if (!usage.totals.calls) return [h("p", { class: "empty" }, "No calls in this time.")];
  return [
    tiles(usage),
    dayChart(usage.by_day, usage.days, signal),
    notes(usage),
    h(
      "div",
      { class: "usage-tables" },
      group("By model", usage.by_model),
      group("By source", usage.by_source),
      group("By task", usage.by_task),
    ),
    h("details", {}, h("summary", {}, "By day, as a table"), group("By day", usage.by_day)),
  ];
}

function tiles({
  totals,
  saved_by_cache_usd: cache,
  saved_by_compaction_tokens: tokens,
  saved_by_compaction_usd: compaction,
}) {
  return h(
    "dl",
    { class: "tiles" },
    tile("Cost", dollars(totals.cost_usd), plural(totals.calls, "call")),
    tile(
      "Prompt tokens",
      short(prompt(totals)),
      `${percent(totals.cache_read_tokens, prompt(totals))} read from cache`,
    ),
    tile("Saved by the cache", cache === null ? "unknown" : dollars(cache), "against reading everything fresh"),
    tile(
      "Saved by compaction",
      tokens === null ? "unknown" : `${short(tokens)} tokens`,
      compaction === null
        ? "that later prompts did not carry"
        : `about ${dollars(compaction)}; later prompts did not carry them`,
    ),
  );
}

function tile(name, value, words) {
  return h(
    "div",
    { class: "card" },
    h("dt", {}, name),
    h("dd", { class: "big" }, value),
    h("dd", { class: "muted small" }, words),
  );
}

function notes({ totals }) {
  const said = [
    totals.unpriced_calls
      ? `${plural(totals.unpriced_calls, "call")} went to models no price is known for; the cost leaves them out.`
      : "",
    totals.unreported_calls ? `${plural(totals.unreported_calls, "call")} came back without figures.` : "",
  ].filter(Boolean);
  return said.length ? h("p", { class: "muted small" }, said.join(" ")) : null;
}

function group(name, groups) {
  const most = Math.max(...groups.map(({ totals }) => prompt(totals) + totals.output_tokens), 1);
  const columns = ["", "Calls", "Fresh", "Cache read", "Cache write", "Output", "Cost"];
  const rows = groups.map(({ group: title, totals }) => [
    [title || "unknown", bar((prompt(totals) + totals.output_tokens) / most)],
    count(totals.calls),
    ...CLASSES.map((field) => count(totals[field])),
    totals.cost_usd === null ? "–" : dollars(totals.cost_usd),
  ]);
  return wideTable(name, { caption: name, columns, rows });
}

function bar(share) {
  const inner = h("span");
  inner.style.width = `${(100 * share).toFixed(1)}%`;
  return h("span", { class: "share", "aria-hidden": "true" }, inner);
}

function prompt(totals) {
  return totals.input_tokens + totals.cache_read_tokens + totals.cache_write_tokens;
}
