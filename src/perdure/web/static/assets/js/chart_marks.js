// Events between calls as symbols above the chart; overlapping symbols are merged into one with a count.

import { h } from "./dom.js";
import { SIGNS } from "./event.js";
import { FAILURE_NAMES, isFailure } from "./failures.js";
import { plural } from "./format.js";

export const KIND_NAMES = {
  compaction: "compaction",
  spill: "stored output",
  model_switch: "model switch",
  undo: "compaction undone",
  ...FAILURE_NAMES,
};
const NAMES_MANY = {
  model_switch: "model switches",
  undo: "compactions undone",
  model_refused: "refusals by the model",
};
// The smallest distance between two symbols of each row.
const APART_PX = [34, 52];

export function markLane(marks, { from, to, x, onMark }) {
  return clusters(
    marks.filter((mark) => mark.at >= from && mark.at <= to),
    x,
  ).map((group) => markButton(group, x, onMark));
}

// Compactions have a row of their own, since they are looked for most.
function clusters(marks, x) {
  const rows = [marks.filter((m) => m.kind === "compaction"), marks.filter((m) => m.kind !== "compaction")];
  return rows.flatMap((row, index) => {
    const groups = [];
    for (const mark of row) {
      const last = groups.at(-1);
      if (last && x(mark.at) - x(last.marks[0].at) < APART_PX[index]) last.marks.push(mark);
      else groups.push({ row: index, marks: [mark] });
    }
    return groups;
  });
}

function markButton({ row, marks }, x, onMark) {
  const [first] = marks;
  const kinds = [...new Set(marks.map((mark) => mark.kind))];
  const words =
    marks.length === 1
      ? `${KIND_NAMES[first.kind] ?? first.kind}: ${first.text}`
      : `${kinds.map((kind) => tally(marks, kind)).join(", ")}. ${marks.at(-1).text}`;
  // Failures first; further kinds are in the count, so that every symbol is about as wide.
  kinds.sort((a, b) => isFailure(b) - isFailure(a));
  const signs = [...new Set(kinds.map((kind) => SIGNS[kind] ?? "·"))].slice(0, 2).join("");
  const sign = marks.length > 1 ? `${signs}\u2009${marks.length}` : signs;
  const button = h(
    "button",
    {
      type: "button",
      class: `mark ${kinds.length === 1 ? first.kind : ""} ${kinds.some(isFailure) ? "failure" : ""}`,
      "aria-label": words,
      title: words,
      onclick: () => onMark(marks.at(-1)),
    },
    sign,
  );
  button.style.left = `${x(first.at)}px`;
  button.style.top = row === 0 ? "0" : "26px";
  return button;
}

function tally(marks, kind) {
  return plural(marks.filter((mark) => mark.kind === kind).length, KIND_NAMES[kind] ?? kind, NAMES_MANY[kind]);
}
