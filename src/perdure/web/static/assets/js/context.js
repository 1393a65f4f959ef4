// The context view: chart, figures of one call, reason of the last compaction, and the same data as tables.

import { conversationPath, read } from "./api.js";
import { Chart } from "./chart.js";
import { clear, h } from "./dom.js";
import { SIGNS } from "./event.js";
import { Head } from "./head.js";
import { concerns, onChange } from "./live.js";
import { KIND_NAMES } from "./chart_marks.js";
import { isFailure } from "./failures.js";
import { singleFlight } from "./single_flight.js";
import { Readout } from "./readout.js";
import { messageLink, nameProperly } from "./route.js";
import { layersOf, totalOf } from "./stack.js";
import { wideTable } from "./table.js";
import { lastCompaction, sentence, whyPanel, whySentence } from "./compaction_reason.js";
import { count, partName, plural, taskName } from "./format.js";

const TABLE_CALLS = 500;
const RANGES = [
  [0, "all calls"],
  [200, "the last 200 calls"],
  [50, "the last 50 calls"],
];

export async function open({ place, route, signal }) {
  const known = await read(conversationPath(route.id), {}, signal);
  nameProperly(route, known.id);
  const head = new Head(known, "context");
  const content = h("div", { class: "context-content" });
  clear(place, head.element, content);
  const draw = async () => {
    const data = await read(`${conversationPath(known.id)}/context`, {}, signal);
    if (data.calls.length !== content.calls) show(content, data, known, signal);
    content.calls = data.calls.length;
  };
  const refresh = singleFlight(async () => {
    const now = await read(conversationPath(known.id), {}, signal);
    head.show(now);
    Object.assign(known, now);
    await draw();
  });
  // Do not redraw while the keyboard focus is in the chart.
  onChange((change) => {
    if (concerns(change, known.id) && !content.contains(document.activeElement)) refresh().catch(() => {});
  }, signal);
  await draw();
}

function show(content, data, known, signal) {
  if (!data.calls.length) {
    const words = "No model call has been made in this conversation yet.";
    return clear(content, h("p", { class: "empty" }, words));
  }
  const last = data.calls.length - 1;
  const readout = new Readout(data, known.id);
  const chart = new Chart(data, {
    signal,
    onSelect: (index) => readout.show(index),
    onOpen: (index) => (location.hash = messageLink(known.id, data.calls[index].seq)),
    onMark: (mark) => {
      chart.select(Math.min(mark.at, last));
      chart.plot.focus();
    },
  });
  const caption = h("figcaption", {}, h("h2", {}, "Prompt size, call by call"), ranges(data, chart));
  chart.element.append(legend(data));
  const figure = h("figure", {}, caption, whySentence(data), chart.element, callNote(data), keys());
  const grid = h("div", { class: "context-grid" }, h("div", {}, figure, whyPanel(data, known)), readout.element);
  clear(content, grid, eventList(data, known), figures(data));
  // Most people come for the last compaction: it is selected first.
  chart.select(Math.min(lastCompaction(data)?.at ?? last, last));
}

function ranges(data, chart) {
  const fitting = RANGES.filter(([n]) => n < data.calls.length);
  if (fitting.length < 2) return null;
  const select = h(
    "select",
    {
      id: "range",
      onchange: () => {
        const n = Number(select.value);
        chart.show(n ? data.calls.length - n : 0, data.calls.length);
      },
    },
    fitting.map(([n, words]) => h("option", { value: String(n) }, words)),
  );
  return h("span", { class: "range" }, h("label", { for: "range" }, "Show "), select);
}

// The colours at the chart itself, from the top of the stack to the bottom, and the two lines.
function legend({ parts, calls }) {
  const used = parts.filter((part) => calls.some((call) => call.composition[part])).reverse();
  const line = (kind, words) => h("li", {}, h("span", { class: `line-sample ${kind}` }), words);
  return h(
    "ul",
    { class: "legend", "aria-label": "Legend" },
    used.map((part) => h("li", {}, h("span", { class: "swatch", "data-part": part }), partName(part))),
    line("", "Window"),
    line("dashed", "Compaction threshold"),
  );
}

// Why the conversation has more calls than the chart.
function callNote({ calls, auxiliary_calls: others }) {
  const all = Object.values(others).reduce((sum, n) => sum + n, 0);
  if (!all) return null;
  const tasks = Object.entries(others).map(([task, n]) => `${taskName(task).toLowerCase()}: ${count(n)}`);
  const words = `${plural(calls.length, "call")} of the conversation. Not on the chart: ${plural(all, "further call")} with a prompt of its own (${tasks.join(", ")}).`;
  return h("p", { class: "small muted" }, all === 1 ? words : words.replace("a prompt of its own", "prompts of their own"));
}

function keys() {
  const row = (sign, words) => h("span", {}, h("b", { "aria-hidden": "true" }, SIGNS[sign]), ` ${words}`);
  return h(
    "p",
    { class: "small muted keys" },
    row("compaction", "compaction"),
    row("spill", "stored output"),
    row("model_switch", "model switch"),
    row("recovery", "provider error"),
    row("turn_failed", "failure"),
    row("turn_stopped", "stop"),
    row("model_refused", "refusal"),
    h(
      "span",
      { id: "chart-keys" },
      "Arrow keys move from call to call, Page Up and Page Down from mark to mark, Enter goes to the turn.",
    ),
  );
}

function eventList(data, known) {
  if (!data.marks.length) return null;
  const list = h("ol", { class: "events" });
  const show = (kind) => {
    const isShown = (mark) => !kind || mark.kind === kind || (kind === "failures" && isFailure(mark.kind));
    clear(list, data.marks.filter(isShown).map((mark) => eventRow(mark, data, known)));
  };
  show("");
  const heading = h("div", { class: "events-head" }, h("h2", {}, "Events, in order"), eventFilter(data.marks, show));
  return h("section", {}, heading, list);
}

function eventFilter(marks, show) {
  const tally = (isCounted) => marks.filter(isCounted).length;
  const failures = tally((mark) => isFailure(mark.kind));
  const kinds = [...new Set(marks.map((mark) => mark.kind))].sort();
  const option = (value, words, n) => h("option", { value }, `${words} (${count(n)})`);
  const select = h(
    "select",
    { id: "event-kind", onchange: () => show(select.value) },
    option("", "all", marks.length),
    failures ? option("failures", "failures of any kind", failures) : null,
    kinds.map((kind) => option(kind, KIND_NAMES[kind] ?? kind, tally((mark) => mark.kind === kind))),
  );
  return h("span", {}, h("label", { for: "event-kind" }, "Show "), select);
}

function eventRow(mark, data, known) {
  const event = mark.event_id === null ? "" : `?event=${mark.event_id}`;
  const place = mark.at < data.calls.length ? `before call ${count(mark.at + 1)}` : "after the last call";
  return h(
    "li",
    { class: `${mark.kind} ${isFailure(mark.kind) ? "failure" : ""}` },
    h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[mark.kind] ?? "·"),
    h(
      "span",
      {},
      h("span", { class: "unseen" }, `${KIND_NAMES[mark.kind] ?? mark.kind}: `),
      sentence(mark.text),
      " ",
      h("a", { href: `${messageLink(known.id, mark.seq)}${event}` }, place),
    ),
  );
}

function figures({ calls, parts }) {
  const shown = calls.slice(-TABLE_CALLS);
  const first = calls.length - shown.length;
  const words = first ? `The last ${count(shown.length)} calls as a table` : "All calls as a table";
  const details = h("details", {}, h("summary", {}, words));
  const row = (call, i) => {
    const layers = layersOf(call, parts).map(Math.round);
    return [first + i + 1, ...layers, totalOf(call), call.threshold, call.window].map(count);
  };
  const columns = ["Call", ...parts.map(partName), "Prompt", "Threshold", "Window"];
  const fill = () => details.append(wideTable("Calls", { columns, rows: shown.map(row) }));
  details.addEventListener("toggle", fill, { once: true });
  return details;
}
