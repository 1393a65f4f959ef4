// Why the last session was compacted, in plain words: what filled the prompt, what it was held against, what came of it.

import { h } from "./dom.js";
import { linkTo } from "./route.js";
import { layersOf, totalOf } from "./stack.js";
import { count, partName, percent } from "./words.js";

export function whyPanel(chart, known) {
  const mark = lastCompaction(chart);
  if (!mark) return h("section", { class: "why card" }, h("h2", {}, "Not compacted so far"), h("p", {}, room(chart)));
  const handoff = known.handoffs.findLast((seq) => seq <= mark.seq + 1) ?? known.handoffs.at(-1);
  return h("section", { class: "why card" },
    h("h2", {}, "Why it was compacted last"),
    h("p", { class: "because" }, sentence(mark.text)),
    h("ul", {}, reasons(chart, mark).map((words) => h("li", {}, words))),
    handoff === undefined ? null : h("p", {}, h("a", { href: linkTo(known.id, `/handoff/${handoff}`) }, "What the handoff kept, and from where")));
}

export function lastCompaction({ marks }) {
  return marks.findLast((mark) => mark.kind === "compaction" && mark.text.startsWith("compacted"));
}

export function sentence(text) {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?)”]$/.test(text) ? "" : "."}`;
}

function reasons(chart, mark) {
  const before = chart.calls[mark.at - 1];
  const after = chart.calls[mark.at];
  return [before && largest(chart, before), before && growth(chart, mark), after && kept(chart, after)].filter(Boolean);
}

function largest({ parts }, call) {
  const [part, tokens] = byPart(parts, call).sort((a, b) => b[1] - a[1])[0];
  return `In the last call before it, most of the prompt was ${partName(part).toLowerCase()}: ${count(tokens)} of ${count(totalOf(call))} tokens (${percent(tokens, totalOf(call))}).`;
}

// From the first call after the compaction before this one to the last call before this one.
function growth({ parts, calls, marks }, mark) {
  const start = marks.findLast((m) => m.kind === "compaction" && m.at < mark.at)?.at ?? 0;
  const [first, last] = [calls[start], calls[mark.at - 1]];
  const grown = totalOf(last) - totalOf(first);
  if (mark.at - start < 2 || grown <= 0) return null;
  const was = new Map(byPart(parts, first));
  const [part, tokens] = byPart(parts, last).map(([p, n]) => [p, n - was.get(p)]).sort((a, b) => b[1] - a[1])[0];
  return `It had grown by ${count(grown)} tokens in ${mark.at - start} calls; the most came from ${partName(part).toLowerCase()} (+${count(tokens)}).`;
}

function kept({ parts }, call) {
  const handoff = new Map(byPart(parts, call)).get("handoff");
  return handoff ? `What left the prompt is now a handoff of ${count(handoff)} tokens. Nothing was deleted.` : null;
}

function room({ calls }) {
  const last = calls.at(-1);
  if (!last?.threshold) return "Compaction begins when the prompt reaches its threshold.";
  const left = last.threshold - totalOf(last);
  return left > 0
    ? `The last prompt had ${count(totalOf(last))} tokens. Compaction begins at ${count(last.threshold)}: there is room for ${count(left)} more.`
    : `The last prompt had ${count(totalOf(last))} tokens and has passed the threshold of ${count(last.threshold)}: the next call will be compacted first.`;
}

function byPart(parts, call) {
  return layersOf(call, parts).map((n, p) => [parts[p], Math.round(n)]);
}
