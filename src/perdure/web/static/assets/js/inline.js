// Code, strong, emphasis and links within a paragraph of Markdown. Each form is bounded, so no text can choke it.

import { h } from "./dom.js";

// Links open elsewhere, and only where a person would expect: the web or a mail.
const FORMS = [
  [/(?<!`)(`{1,3})(?!`)(.{1,1000}?)(?<!`)\1(?!`)/gs, ([, , code]) => h("code", {}, code.replace(/^ (.+) $/, "$1"))],
  [/\[([^\]\n]{1,500})\]\(((?:https?:\/\/|mailto:)[^\s)]{1,2000})\)/gi, ([, words, url]) => link(url, words)],
  [/\bhttps?:\/\/[^\s<>"'`)\]]{0,2000}[^\s<>"'`)\].,;:!?]/gi, ([url]) => link(url, url)],
  [/\*\*(?=\S)([^*\n]{1,2000}?)\*\*/g, ([, words]) => h("strong", {}, inline(words))],
  [/(?<![\w*])\*(?=\S)([^*\n]{1,2000}?)(?<=\S)\*(?![\w*])/g, ([, words]) => h("em", {}, inline(words))],
  [/(?<!\w)_(?=\S)([^_\n]{1,2000}?)(?<=\S)_(?!\w)/g, ([, words]) => h("em", {}, inline(words))],
];

export function inline(text) {
  const pieces = [];
  const next = FORMS.map(([form, make]) => ({ form, make, found: firstFrom(form, text, 0) }));
  for (let at = 0; at < text.length;) {
    const best = earliest(next, text, at);
    if (!best) {
      pieces.push(text.slice(at));
      break;
    }
    if (best.found.index > at) pieces.push(text.slice(at, best.found.index));
    pieces.push(best.make(best.found));
    at = best.found.index + best.found[0].length;
  }
  return pieces;
}

function firstFrom(form, text, at) {
  form.lastIndex = at;
  return form.exec(text);
}

function earliest(next, text, at) {
  let best = null;
  for (const one of next) {
    if (one.found && one.found.index < at) one.found = firstFrom(one.form, text, at);
    if (one.found && (best === null || one.found.index < best.found.index)) best = one;
  }
  return best;
}

function link(url, words) {
  return h("a", { href: url, rel: "noopener noreferrer nofollow", target: "_blank" }, words);
}
