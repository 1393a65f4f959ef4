// Usage and cost: by day, conversation, model, source and task, and what caching and compaction saved.

import { read } from "./api.js";
import { dayChart } from "./days.js";
import { clear, h } from "./dom.js";
import { cost, costNote, count, dollars, percent, plural, short, taskName } from "./format.js";
import { linkTo } from "./route.js";
import { wideTable } from "./table.js";

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
      costliest(usage),
      group("By model", usage.by_model),
      group("By source", usage.by_source),
      group("By task", usage.by_task, taskName),
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
    tile("Cost", priced(totals), callWords(totals)),
    tile(
      "Prompt",
      `${short(prompt(totals))} tokens`,
      `${percent(totals.cache_read_tokens, prompt(totals))} read from cache`,
    ),
    tile("Saved by the cache", cache === null ? "unknown" : dollars(cache), "compared with uncached input"),
    tile(
      "Saved by compaction",
      tokens === null ? "unknown" : `${short(tokens)} tokens`,
      `in later prompts${compactionWords(compaction)}`,
    ),
  );
}

// Reads of a cache are cheap: what a summary costs may be more than the reads it spares.
function compactionWords(saved) {
  if (saved === null) return "";
  return saved < 0 ? `; its summaries cost ${dollars(-saved)} more than that saved` : `, about ${dollars(saved)} less in sum`;
}

// A cost; one that leaves calls out says which.
function priced(totals) {
  return h("span", { title: costNote(totals) || null }, cost(totals));
}

function callWords({ calls, unpriced_calls: unpriced }) {
  return `${plural(calls, "call")}${unpriced ? `, ${count(unpriced)} not in the cost` : ""}`;
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
  const { unreported_calls: unreported, unreported_estimate_tokens: estimate } = totals;
  const note = costNote(totals);
  const size = unreported && estimate ? ` The prompts of those without token counts had about ${short(estimate)} tokens.` : "";
  return note ? h("p", { class: "muted small cost-note" }, h("strong", {}, "+"), ` ${note}${size}`) : null;
}

// The cost comes first, and on a phone the classes of tokens are left out.
const COLUMNS = [
  ["Cost, US$", ""],
  ["Tokens", ""],
  ["Calls", "detail"],
  ["Fresh input", "detail"],
  ["Cache read", "detail"],
  ["Cache write", "detail"],
  ["Output", "detail"],
];

function group(name, groups, label = (title) => title || "unknown") {
  const isPriced = groups.some(({ totals }) => totals.cost_usd);
  const figure = (totals) => (isPriced ? (totals.cost_usd ?? 0) : allTokens(totals));
  const most = Math.max(...groups.map(({ totals }) => figure(totals))) || 1;
  const rows = groups.map(({ group: title, totals }) => [
    [label(title), bar(figure(totals) / most)],
    priced(totals),
    short(allTokens(totals)),
    ...[totals.calls, ...CLASSES.map((field) => totals[field])].map(count),
  ]);
  return wideTable(name, { caption: name, columns: [["", ""], ...COLUMNS], rows });
}

function costliest(usage) {
  if (!usage.costliest.length) return null;
  const titles = new Map(usage.costliest.map(({ id, title }) => [id, title || "Untitled"]));
  const groups = usage.costliest.map(({ id, totals }) => ({ group: id, totals }));
  return group("Most expensive conversations", groups, (id) => h("a", { href: linkTo(id) }, titles.get(id)));
}

function bar(share) {
  const inner = h("span");
  inner.style.width = `${(100 * share).toFixed(1)}%`;
  return h("span", { class: "share", "aria-hidden": "true" }, inner);
}

function allTokens(totals) {
  return prompt(totals) + totals.output_tokens;
}

function prompt(totals) {
  return totals.input_tokens + totals.cache_read_tokens + totals.cache_write_tokens;
}
