// The record of a handoff: the covered messages in order, each with a link to the message itself.

import { h } from "./dom.js";
import { plural } from "./format.js";
import { inline } from "./inline.js";
import { messageLink } from "./route.js";

const SPOKEN = /^(USER|ASSISTANT) \[(\d+)\]: ?(.*)$/;
const SPEAKERS = { USER: "User", ASSISTANT: "Assistant" };

export function recordElement(text, conversationId) {
  if (!text) return null;
  const all = entries(text);
  const preface = isEntry(all[0][0]) ? null : h("p", { class: "muted small" }, all.shift().join("\n"));
  const items = all.map((entry) => recordItem(entry, conversationId));
  return h(
    "details",
    { class: "card record" },
    h("summary", {}, h("strong", {}, "Record"), ` · ${plural(items.length, "entry", "entries")}, the covered messages in order`),
    preface,
    h("ol", {}, items),
  );
}

export function indexElement(text) {
  if (!text) return null;
  const summary = h("summary", {}, h("strong", {}, "Index"), " · exact values that nothing else in the prompt shows");
  return h("details", { class: "card record" }, summary, h("div", { class: "plain", dir: "auto" }, text));
}

// An entry begins with its author or with an arrow, for a tool call; indented lines belong to it.
function entries(text) {
  const all = [];
  for (const line of text.split("\n")) {
    if (!all.length || isEntry(line)) all.push([line]);
    else all.at(-1).push(line);
  }
  return all;
}

function isEntry(line) {
  return SPOKEN.test(line) || line.startsWith("→");
}

function recordItem([first, ...rest], conversationId) {
  const spoken = SPOKEN.exec(first);
  const more = rest.join("\n");
  if (!spoken) return h("li", { class: "call" }, h("div", { class: "plain" }, [first, more].filter(Boolean).join("\n")));
  const [, author, seq, text] = spoken;
  return h(
    "li",
    { class: author.toLowerCase() },
    h("a", { class: "address", href: messageLink(conversationId, seq) }, `${SPEAKERS[author]} #${seq}`),
    h("div", { class: "plain", dir: "auto" }, inline([text, more].filter(Boolean).join("\n"), { links: false })),
  );
}
