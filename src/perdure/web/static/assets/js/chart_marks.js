// Events between calls as symbols above the chart; overlapping symbols are merged into one with a count.

import { h } from "./dom.js";
import { SIGNS } from "./event.js";
import { plural } from "./format.js";

export const KIND_NAMES = {
  compaction: "compaction",
  spill: "stored output",
  model_switch: "model switch",
  recovery: "recovery",
  undo: "compaction undone",
};
const NAMES_MANY = {
  compaction: "compactions",
  spill: "stored outputs",
  model_switch: "model switches",
  recovery: "recoveries",
  undo: "compactions undone",
};
// The smallest distance between two symbols of each row.
const APART_PX = [26, 44];

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
  const sign = `${kinds.map((kind) => SIGNS[kind] ?? "·").join("")}${marks.length > 1 ? marks.length : ""}`;
  const button = h(
    "button",
    {
      type: "button",
      class: `mark ${kinds.length === 1 ? first.kind : ""}`,
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
  return plural(marks.filter((mark) => mark.kind === kind).length, KIND_NAMES[kind] ?? kind, NAMES_MANY[kind] ?? kind);
}
