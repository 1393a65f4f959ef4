// Cost or tokens by day, one column a day; tokens are stacked by class.

import { clear, h, svg } from "./dom.js";
import { cost, count, short } from "./format.js";
import { places, scale, ticks } from "./scale.js";

const TOKENS = [
  ["read", "Cache read", "cache_read_tokens"],
  ["write", "Cache write", "cache_write_tokens"],
  ["fresh", "Fresh input", "input_tokens"],
  ["output", "Output", "output_tokens"],
];
// What a column shows: its layers, and how its axis reads.
const MODES = {
  cost: { title: "Cost by day", unit: "US dollars", layers: [["cost", "Cost", "cost_usd"]], figure: axisDollars },
  tokens: { title: "Tokens by day", unit: "tokens", layers: TOKENS, figure: short },
};
const NOTHING = { cache_read_tokens: 0, cache_write_tokens: 0, input_tokens: 0, output_tokens: 0, cost_usd: 0 };
const PAD = { left: 56, right: 10, top: 22, bottom: 24 };

export function dayChart(groups, howMany, signal) {
  const days = everyDay(groups, howMany);
  const drawing = svg("svg", { "aria-hidden": "true" });
  const figures = h("p", { class: "small", role: "status" }, "Move over a day, or use the arrow keys, for its figures.");
  const plot = h(
    "div",
    {
      class: "day-plot",
      role: "slider",
      tabindex: "0",
      "aria-label": "Days",
      "aria-valuemin": 1,
      "aria-valuemax": days.length,
      "aria-valuenow": days.length,
      "aria-valuetext": spoken(days.at(-1)),
    },
    drawing,
  );
  const isPriced = days.some(({ totals }) => totals.cost_usd);
  const chart = { days, drawing, plot, figures, selected: null, mode: MODES[isPriced ? "cost" : "tokens"] };
  plot.addEventListener("pointermove", (event) => choose(chart, indexAt(chart, event)));
  plot.addEventListener("keydown", (event) => onKey(chart, event));
  const watcher = new ResizeObserver(() => draw(chart));
  watcher.observe(plot);
  signal.addEventListener("abort", () => watcher.disconnect());
  return h("figure", { class: "card days" }, caption(chart), plot, figures);
}

function caption(chart) {
  const title = h("h2");
  const legend = h("ul", { class: "legend" });
  const show = () => {
    title.textContent = chart.mode.title;
    const items = chart.mode.layers.map(([kind, words]) =>
      h("li", {}, h("span", { class: "swatch", "data-use": kind }), words),
    );
    clear(legend, chart.mode.layers.length > 1 ? items : []);
    for (const button of buttons) button.setAttribute("aria-pressed", String(MODES[button.value] === chart.mode));
  };
  const pick = (event) => {
    chart.mode = MODES[event.currentTarget.value];
    show();
    draw(chart);
  };
  const buttons = ["cost", "tokens"].map((name) =>
    h("button", { type: "button", value: name, onclick: pick }, name === "cost" ? "Cost" : "Tokens"),
  );
  show();
  return h(
    "figcaption",
    {},
    title,
    legend,
    h("div", { class: "ranges", role: "group", "aria-label": "What the chart shows" }, buttons),
  );
}

// Days without a call have columns too: the axis is time.
function everyDay(groups, howMany) {
  const known = new Map(groups.map(({ group, totals }) => [group, totals]));
  const today = Date.now();
  const days = Array.from({ length: howMany }, (_, i) =>
    new Date(today - (howMany - 1 - i) * 86_400_000).toISOString().slice(0, 10),
  );
  const all = [...new Set([...days, ...known.keys()])].sort();
  return all.map((group) => ({ group, totals: known.get(group) ?? NOTHING }));
}

function draw(chart) {
  const { width, height } = chart.plot.getBoundingClientRect();
  if (width < 100) return;
  const { days } = chart;
  const { layers, figure, unit } = chart.mode;
  const top = (Math.max(...days.map(({ totals }) => sum(totals, layers))) || 1) * 1.05;
  chart.x = scale(0, days.length, PAD.left, width - PAD.right);
  const y = scale(0, top, height - PAD.bottom, PAD.top);
  chart.drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const rows = ticks(top, 4).map((n) => [
    svg("line", { class: "grid", x1: PAD.left, x2: width - PAD.right, y1: y(n), y2: y(n) }),
    svg("text", { class: "axis", x: PAD.left - 6, y: y(n) + 4, "text-anchor": "end" }, figure(n)),
  ]);
  rows.push(svg("text", { class: "axis", x: 4, y: 12 }, unit));
  const names = places(0, days.length, Math.floor(width / 90)).map((i) =>
    svg("text", { class: "axis", x: chart.x(i + 0.5), y: height - 7, "text-anchor": "middle" }, days[i].group.slice(5)),
  );
  const room = chart.x(1) - chart.x(0);
  const columns = days.map((day, i) => column(day.totals, layers, { left: chart.x(i), room, y }));
  chart.cursor = svg("rect", { class: "cursor", y: PAD.top, height: height - PAD.top - PAD.bottom });
  clear(chart.drawing, rows.flat(), columns.flat(), names, chart.cursor);
  moveCursor(chart);
}

// Narrow columns are centred in their day.
function column(totals, layers, { left, room, y }) {
  const width = Math.min(48, room);
  let floor = 0;
  return layers.map(([kind, , field]) => {
    const [low, high] = [floor, floor + (totals[field] ?? 0)];
    floor = high;
    return svg("rect", {
      class: "use",
      "data-use": kind,
      x: left + (room - width) / 2 + 1,
      width: Math.max(1, width - (width > 6 ? 2 : 0)),
      y: y(high),
      height: Math.max(0, y(low) - y(high)),
    });
  });
}

function choose(chart, index) {
  chart.selected = Math.min(chart.days.length - 1, Math.max(0, index));
  const words = spoken(chart.days[chart.selected]);
  chart.plot.setAttribute("aria-valuenow", chart.selected + 1);
  chart.plot.setAttribute("aria-valuetext", words);
  chart.figures.textContent = words;
  moveCursor(chart);
}

function moveCursor(chart) {
  if (!chart.x || chart.selected === null) return;
  chart.cursor.setAttribute("x", chart.x(chart.selected));
  chart.cursor.setAttribute("width", chart.x(1) - chart.x(0));
}

function onKey(chart, event) {
  const at = chart.selected ?? chart.days.length;
  const to = {
    ArrowRight: at + 1,
    ArrowLeft: at - 1,
    ArrowUp: at + 1,
    ArrowDown: at - 1,
    Home: 0,
    End: chart.days.length - 1,
  }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  choose(chart, to);
}

function indexAt(chart, event) {
  const place = chart.plot.getBoundingClientRect();
  return Math.floor(
    ((event.clientX - place.left - PAD.left) / (place.width - PAD.left - PAD.right)) * chart.days.length,
  );
}

function spoken(day) {
  if (!day) return "";
  const parts = TOKENS.map(([, words, field]) => `${words.toLowerCase()} ${count(day.totals[field])}`);
  return `${day.group}: ${cost(day.totals)}; ${parts.join(", ")} tokens.`;
}

function sum(totals, layers) {
  return layers.reduce((all, [, , field]) => all + (totals[field] ?? 0), 0);
}

function axisDollars(n) {
  return n === 0 ? "$0" : `$${Number(n.toPrecision(2))}`;
}
