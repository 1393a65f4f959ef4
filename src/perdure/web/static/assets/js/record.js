// The record of a handoff: the covered messages in order, each with a link to the message itself.

import { h } from "./dom.js";
import { plural } from "./format.js";
import { inline } from "./inline.js";
import { messageLink } from "./route.js";

const SPOKEN = /^(USER|ASSISTANT) \[(\d+)\]: ?(.*)$/;
const SHOWN_ENTRIES = 60;
// A section without content.
export const EMPTY = /^\s*(none\.?)?\s*$/i;
const SPEAKERS = { USER: "User", ASSISTANT: "Assistant" };

// Open, since it is most of what was kept; a long one begins with its newest entries.
export function recordElement(text, conversationId) {
  if (!text) return null;
  const all = entries(text);
  const preface = isEntry(all[0][0]) ? null : h("p", { class: "muted small" }, all.shift().join("\n"));
  const list = h("ol", {}, all.slice(-SHOWN_ENTRIES).map((entry) => recordItem(entry, conversationId)));
  const hidden = all.slice(0, -SHOWN_ENTRIES);
  const showAll = () => {
    list.prepend(...hidden.map((entry) => recordItem(entry, conversationId)));
    more.remove();
  };
  const label = `Show ${plural(hidden.length, "earlier entry", "earlier entries")}`;
  const more = hidden.length ? h("button", { type: "button", class: "small", onclick: showAll }, label) : null;
  return h(
    "details",
    { class: "card record", open: true },
    h("summary", {}, h("strong", {}, "Record"), ` · ${recordWords(all)}, in order`),
    preface,
    more,
    list,
  );
}

// What a handoff keeps, in one line: the answer to "what was kept?".
export function contents({ sections, facts, record, covers }) {
  const all = record ? entries(record).filter(([first]) => isEntry(first)) : [];
  const filled = sections.filter(({ text }) => !EMPTY.test(text)).length;
  return [
    all.length ? recordWords(all) : "",
    filled ? `${plural(filled, "section")} with ${plural(facts.length, "checked fact")}` : "",
    covers.length ? "every covered message word for word, by its address" : "",
  ].filter(Boolean);
}

function recordWords(all) {
  const spoken = all.map(([first]) => SPOKEN.exec(first)?.[1]);
  const tally = (author) => spoken.filter((one) => one === author).length;
  return [
    tally("USER") ? plural(tally("USER"), "message of the user", "messages of the user") : "",
    tally("ASSISTANT") ? plural(tally("ASSISTANT"), "answer") : "",
    tally(undefined) ? plural(tally(undefined), "tool call") : "",
  ]
    .filter(Boolean)
    .join(", ");
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
