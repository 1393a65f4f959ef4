// A safe part of Markdown, turned into elements one by one. What is not known stays the text it was.

import { h } from "./dom.js";
import { inline } from "./inline.js";

const FENCE = /^\s{0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/;
const HEADING = /^(#{1,6})\s+(.*)$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const RULE = /^\s{0,3}([-*_])(\s*\1){2,}\s*$/;
const TABLE_RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

// What nests deeper than anybody writes is somebody's attempt to choke the page: it stays text.
const MAX_DEPTH = 6;
const MAX_TABLE_LINE = 2000;

export function markdown(text, depth = 0) {
  if (depth > MAX_DEPTH) return [h("p", {}, text)];
  const lines = text.split("\n");
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    const block = blockAt(lines, at, depth);
    if (block.element) blocks.push(block.element);
    at = block.next;
  }
  return blocks;
}

function blockAt(lines, at, depth) {
  const line = lines[at];
  if (!line.trim()) return { next: at + 1 };
  if (FENCE.test(line)) return fenced(lines, at);
  if (RULE.test(line)) return { element: h("hr"), next: at + 1 };
  const heading = HEADING.exec(line);
  // A message sits below the page's own headings, so its own begin at the fourth level.
  if (heading) return { element: h(`h${Math.min(6, heading[1].length + 3)}`, {}, inline(heading[2])), next: at + 1 };
  if (line.startsWith(">")) return quoted(lines, at, depth);
  if (ITEM.test(line)) return list(lines, at, depth);
  if (isTable(line, lines[at + 1] ?? "")) return table(lines, at);
  return paragraph(lines, at);
}

function isTable(line, next) {
  return line.includes("|") && next.includes("-") && next.length < MAX_TABLE_LINE && TABLE_RULE.test(next);
}

function fenced(lines, at) {
  const [, fence] = FENCE.exec(lines[at]);
  let end = at + 1;
  while (end < lines.length && !lines[end].trim().startsWith(fence)) end += 1;
  const code = lines.slice(at + 1, end).join("\n");
  return { element: h("pre", { tabindex: "0" }, h("code", {}, code)), next: end + 1 };
}

function quoted(lines, at, depth) {
  let end = at;
  while (end < lines.length && lines[end].startsWith(">")) end += 1;
  const inner = lines
    .slice(at, end)
    .map((line) => line.replace(/^> ?/, ""))
    .join("\n");
  return { element: h("blockquote", {}, markdown(inner, depth + 1)), next: end };
}

function list(lines, at, depth) {
  const [, indent, sign] = ITEM.exec(lines[at]);
  const isOrdered = /\d/.test(sign);
  const items = [];
  let end = at;
  for (; end < lines.length; end += 1) {
    const item = ITEM.exec(lines[end]);
    if (item && item[1].length <= indent.length && /\d/.test(item[2]) === isOrdered) items.push([item[3]]);
    else if (belongs(lines, end, indent.length))
      items.at(-1).push(lines[end].slice(indent.length).replace(/^ {1,4}/, ""));
    else break;
  }
  const first = isOrdered && Number.parseInt(sign, 10) !== 1 ? { start: Number.parseInt(sign, 10) } : {};
  return {
    element: h(
      isOrdered ? "ol" : "ul",
      first,
      items.map((item) => listItem(item, depth)),
    ),
    next: end,
  };
}

function belongs(lines, at, indent) {
  const line = lines[at];
  if (!line.trim()) return /^\s+\S/.test(lines[at + 1] ?? "") || ITEM.test(lines[at + 1] ?? "");
  return line.search(/\S/) > indent;
}

function listItem(lines, depth) {
  const rest = lines.slice(1).join("\n");
  return h("li", {}, inline(lines[0]), rest.trim() ? markdown(rest, depth + 1) : null);
}

function table(lines, at) {
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|")) end += 1;
  const head = cells(lines[at]).map((cell) => h("th", { scope: "col" }, inline(cell)));
  const rows = lines.slice(at + 2, end).map((line) =>
    h(
      "tr",
      {},
      cells(line).map((cell) => h("td", {}, inline(cell))),
    ),
  );
  const made = h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows));
  return {
    element: h("div", { class: "scrolls", tabindex: "0", role: "group", "aria-label": "Table" }, made),
    next: end,
  };
}

function cells(line) {
  return line
    .trim()
    .replace(/^\||\|$/g, "")
    .split("|")
    .map((cell) => cell.trim());
}

function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !begins(lines[end])) end += 1;
  return { element: h("p", {}, inline(lines.slice(at, end).join("\n"))), next: end };
}

function begins(line) {
  return FENCE.test(line) || HEADING.test(line) || ITEM.test(line) || line.startsWith(">");
}
