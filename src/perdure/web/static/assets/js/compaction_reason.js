// The reason for the last compaction: what filled the prompt, the threshold, and the result.

import { h } from "./dom.js";
import { linkTo } from "./route.js";
import { layersOf, totalOf } from "./stack.js";
import { count, partName, percent } from "./format.js";

// One sentence above the chart.
export function whySentence(chart) {
  const mark = lastCompaction(chart);
  const words = mark ? sentence(mark.text) : `Not compacted so far. ${room(chart)}`;
  const undone = mark && isUndone(chart, mark) ? " It was taken back." : "";
  return h("p", { class: "because" }, mark ? h("span", {}, "Last time: ") : null, words, undone);
}

export function whyPanel(chart, known) {
  const mark = lastCompaction(chart);
  if (!mark) return null;
  const handoff = known.handoffs.findLast((seq) => seq <= mark.seq + 1) ?? known.handoffs.at(-1);
  const words = "What the handoff kept, and from where";
  return h(
    "section",
    { class: "why card" },
    h("h2", {}, "Why it was compacted last"),
    h(
      "ul",
      {},
      reasons(chart, mark).map((reason) => h("li", {}, reason)),
    ),
    handoff === undefined ? null : h("p", {}, h("a", { href: linkTo(known.id, `/handoff/${handoff}`) }, words)),
  );
}

export function lastCompaction({ marks }) {
  return marks.findLast((mark) => mark.kind === "compaction" && mark.text.startsWith("compacted"));
}

function isUndone({ marks }, mark) {
  return marks.slice(marks.indexOf(mark)).some((later) => later.kind === "undo");
}

// A name at the beginning, as of a tool or a model, stays as it is.
export function sentence(text) {
  const isWord = /^[a-z]+[ :,]/.test(text);
  return `${isWord ? text.charAt(0).toUpperCase() : text.charAt(0)}${text.slice(1)}${/[.!?…]$/.test(text) ? "" : "."}`;
}

function reasons(chart, mark) {
  const before = chart.calls[mark.at - 1];
  const after = chart.calls[mark.at];
  const undone = isUndone(chart, mark);
  return [
    overflow(mark, after ?? before),
    before && largest(chart, mark, before),
    before && growth(chart, mark),
    undone ? "It was taken back afterwards: what it had put away is in the prompt again." : after && kept(chart, after),
  ].filter(Boolean);
}

function overflow(mark, call) {
  if (!mark.before_tokens || !call?.threshold || mark.before_tokens < call.threshold) return null;
  const share = call.window
    ? `, which is ${percent(call.threshold, call.window)} of the model's window of ${count(call.window)}`
    : "";
  return `The next prompt would have held ${count(mark.before_tokens)} tokens. Compaction begins at ${count(call.threshold)}${share}.`;
}

function largest({ parts }, mark, call) {
  const [part, tokens] = byPart(parts, call).sort((a, b) => b[1] - a[1])[0];
  const added = mark.before_tokens - totalOf(call);
  const since = mark.before_tokens && added > 0 ? ` Since then ${count(added)} more had come in.` : "";
  return `The call before it carried ${count(totalOf(call))} tokens, most of them ${partName(part).toLowerCase()} (${count(tokens)}, ${percent(tokens, totalOf(call))}).${since}`;
}

// Growth since the previous compaction.
function growth({ parts, calls, marks }, mark) {
  const start = marks.findLast((m) => m.kind === "compaction" && m.at < mark.at)?.at ?? 0;
  const [first, last] = [calls[start], calls[mark.at - 1]];
  const grown = totalOf(last) - totalOf(first);
  if (mark.at - start < 2 || grown <= 0) return null;
  const was = new Map(byPart(parts, first));
  const [part, tokens] = byPart(parts, last)
    .map(([p, n]) => [p, n - was.get(p)])
    .sort((a, b) => b[1] - a[1])[0];
  return `Over ${mark.at - start} calls the prompt had grown by ${count(grown)} tokens; the most came from ${partName(part).toLowerCase()} (+${count(tokens)}).`;
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
