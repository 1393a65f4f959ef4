// The record of a handoff: the covered messages in order, each with a link to the message itself.

import { h } from "./dom.js";
import { plural } from "./format.js";
import { messageLink } from "./route.js";

const SPOKEN = /^(USER|ASSISTANT) \[(\d+)\]: ?(.*)$/;
const SPEAKERS = { USER: "User", ASSISTANT: "Assistant" };

export function recordElement(text, conversationId) {
  if (!text) return null;
  const items = entries(text).map((entry) => recordItem(entry, conversationId));
  return h(
    "details",
    { class: "card record" },
    h("summary", {}, h("strong", {}, "Record"), ` · ${plural(items.length, "entry", "entries")}, the covered messages in order`),
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
    if (!all.length || SPOKEN.test(line) || line.startsWith("→")) all.push([line]);
    else all.at(-1).push(line);
  }
  return all;
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
    h("div", { class: "plain", dir: "auto" }, [text, more].filter(Boolean).join("\n")),
  );
}
