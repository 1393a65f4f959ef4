// Markdown as elements, built one by one from text. HTML stays text; anything unknown stays what it was.

import { codeBlock } from "./code_block.js";
import { h } from "./dom.js";
import { inline } from "./inline.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)(?:\s+#+)?\s*$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: +(.*)|)$/;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const TABLE_RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const TASK = /^\[([ xX])\]\s+/;

// Deeper nesting is not real text: it is not parsed, so that parsing stays linear.
const MAX_DEPTH = 8;
const MAX_TABLE_LINE = 2000;

// Headings continue at `heading` (level 3 below a view's own headings) and never skip a level.
export function markdown(text, { links = true, heading = 3 } = {}) {
  const context = { links, heading, level: heading - 1 };
  return blocks(text.replaceAll("\r\n", "\n").split("\n").map(untabbed), 0, context);
}

function untabbed(line) {
  return line.replace(/^[ \t]+/, (space) => space.replaceAll("\t", "    "));
}

function blocks(lines, depth, context) {
  if (depth > MAX_DEPTH) return [h("p", {}, lines.join("\n"))];
  const elements = [];
  for (let at = 0; at < lines.length;) {
    const block = blockAt(lines, at, depth, context);
    if (block.element) elements.push(block.element);
    at = block.next;
  }
  return elements;
}

function blockAt(lines, at, depth, context) {
  const line = lines[at];
  if (!line.trim()) return { next: at + 1 };
  if (FENCE.test(line)) return fenced(lines, at);
  if (RULE.test(line)) return { element: h("hr"), next: at + 1 };
  const heading = HEADING.exec(line);
  if (heading) return { element: headingElement(heading, context), next: at + 1 };
  if (isQuote(line)) return quoted(lines, at, depth, context);
  if (ITEM.test(line)) return list(lines, at, depth, context);
  if (isTable(line, lines[at + 1] ?? "")) return table(lines, at, context);
  return paragraph(lines, at, context);
}

function headingElement([, marks, text], context) {
  context.level = Math.min(6, context.heading + marks.length - 1, context.level + 1);
  return h(`h${context.level}`, { class: `size-${marks.length}` }, inline(text, context));
}

function isQuote(line) {
  return /^ {0,3}>/.test(line);
}

function isTable(line, next) {
  return line.includes("|") && next.includes("-") && next.length < MAX_TABLE_LINE && TABLE_RULE.test(next);
}

function fenced(lines, at) {
  const [, fence, language] = FENCE.exec(lines[at]);
  const indent = lines[at].search(/\S/);
  let end = at + 1;
  while (end < lines.length && !lines[end].trim().startsWith(fence)) end += 1;
  const code = lines.slice(at + 1, end).map((line) => dedent(line, indent));
  return { element: codeBlock(code.join("\n"), language), next: end + 1 };
}

function dedent(line, most) {
  const indent = line.search(/\S/);
  return line.slice(indent < 0 ? line.length : Math.min(indent, most));
}

function quoted(lines, at, depth, context) {
  let end = at;
  while (end < lines.length && isQuote(lines[end])) end += 1;
  const inner = lines.slice(at, end).map((line) => line.replace(/^ {0,3}> ?/, ""));
  return { element: h("blockquote", { dir: "auto" }, blocks(inner, depth + 1, context)), next: end };
}

// Lenient about indentation, as models are: two spaces more than its list nest a line.
function list(lines, at, depth, context) {
  const [, space, sign] = ITEM.exec(lines[at]);
  const indent = space.length;
  const isOrdered = /\d/.test(sign);
  const items = [];
  let end = at;
  for (let content = 0; end < lines.length; end += 1) {
    const item = ITEM.exec(lines[end]);
    if (item && item[1].length < indent + 2) {
      if (item[1].length < indent - 1 || /\d/.test(item[2]) !== isOrdered || RULE.test(lines[end])) break;
      content = item[1].length + item[2].length + 1;
      items.push([item[3] ?? ""]);
    } else if (belongs(lines, end, indent)) items.at(-1).push(dedent(lines[end], content));
    else break;
  }
  const first = Number.parseInt(sign, 10);
  const attributes = isOrdered && first !== 1 ? { start: first } : {};
  const children = items.map((item) => listItem(item, depth, context));
  return { element: h(isOrdered ? "ol" : "ul", attributes, children), next: end };
}

// Whether a line that begins no item continues the last one.
function belongs(lines, at, indent) {
  if (lines[at].trim()) return lines[at].search(/\S/) >= indent + 2;
  const next = lines[at + 1] ?? "";
  return next.search(/\S/) >= indent + 2 || (ITEM.test(next) && next.search(/\S/) >= indent - 1);
}

function listItem(lines, depth, context) {
  const task = TASK.exec(lines[0]);
  const first = task ? lines[0].slice(task[0].length) : lines[0];
  const isDone = task && task[1] !== " ";
  const box = task && h("span", { class: "task", role: "img", "aria-label": isDone ? "done" : "to do" }, isDone ? "☑" : "☐");
  const [lead, ...rest] = blocks([first, ...lines.slice(1)], depth + 1, context);
  // The text of an item is on the line of its marker.
  const text = lead?.localName === "p" ? [...lead.childNodes] : [lead];
  return h("li", { class: task ? "task-item" : null, dir: "auto" }, box, text, rest);
}

function table(lines, at, context) {
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|")) end += 1;
  const sides = cells(lines[at + 1]).map(side);
  const row = (line, tag, scope) =>
    h(
      "tr",
      {},
      cells(line).slice(0, sides.length).map((cell, i) => h(tag, { scope, class: sides[i], dir: "auto" }, inline(cell, context))),
    );
  const body = lines.slice(at + 2, end).map((line) => row(line, "td"));
  const built = h("table", {}, h("thead", {}, row(lines[at], "th", "col")), h("tbody", {}, body));
  return { element: h("div", { class: "scrolls", tabindex: "0", role: "group", "aria-label": "Table" }, built), next: end };
}

function side(rule) {
  const [left, right] = [rule.startsWith(":"), rule.endsWith(":")];
  return left && right ? "centre" : right ? "right" : null;
}

function cells(line) {
  return line
    .trim()
    .replace(/^\||(?<!\\)\|$/g, "")
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function paragraph(lines, at, context) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !begins(lines[end])) end += 1;
  const text = lines.slice(at, end).map((line) => line.trimStart()).join("\n");
  return { element: h("p", { dir: "auto" }, inline(text, context)), next: end };
}

function begins(line) {
  return FENCE.test(line) || HEADING.test(line) || ITEM.test(line) || isQuote(line);
}
