// Inline Markdown: code, emphasis, strikethrough, links and images. Every pattern is bounded, so parsing stays linear.

import { h } from "./dom.js";

const PUNCTUATION = /\\([!-/:-@[-`{-~])/g;
// An address may contain brackets in pairs, as those of Wikipedia do.
const IN_URL = "(?:[^\\s<>\"'`()\\]]|\\([^\\s<>\"'`()\\]]{0,200}\\))";
const TARGET = "(?:[^\\s()]|\\([^\\s()]{0,200}\\)){1,2000}";
const TITLE = '(?: "[^"\\n]{0,300}")?';
const MAIL = "[\\w.+-]{1,64}@[\\w-]{1,63}(?:\\.[\\w-]{1,63}){1,6}";
const ENTITIES = {
  amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", copy: "©", reg: "®", trade: "™", deg: "°", times: "×",
  middot: "·", bull: "•", hellip: "…", ndash: "–", mdash: "—", larr: "←", rarr: "→", le: "≤", ge: "≥", ne: "≠", euro: "€",
};

// Tried at each position in this order; links lead to web and mail addresses only.
const PATTERNS = [
  [/(?<!`)(`{1,3})(?!`)(.{1,1000}?)(?<!`)\1(?!`)/gs, ([, , code]) => h("code", {}, code.replace(/^ (.+) $/, "$1"))],
  [PUNCTUATION, ([, character]) => character],
  [/(?: {2,}|\\)\n/g, () => h("br")],
  [new RegExp(`!\\[([^\\]\\n]{0,500})\\]\\((https?://${TARGET})${TITLE}\\)`, "gi"), ([, alt, url]) => image(url, alt)],
  [
    new RegExp(`\\[([^\\]\\n]{1,500})\\]\\(((?:https?://|mailto:)${TARGET})${TITLE}\\)`, "gi"),
    ([, text, url]) => link(url, text),
  ],
  [/<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/gi, ([, url]) => link(url, url.replace(/^mailto:/i, ""))],
  [new RegExp(`<(${MAIL})>`, "g"), ([, mail]) => link(`mailto:${mail}`, mail)],
  [new RegExp(`\\bhttps?://${IN_URL}{1,2000}(?<![.,;:!?])`, "gi"), ([url]) => link(url, url)],
  [new RegExp(`(?<![\\w.+@-])${MAIL}(?!\\w)`, "g"), ([mail]) => link(`mailto:${mail}`, mail)],
  [/&(?:([a-z]{2,6})|#(\d{1,7})|#x([\da-f]{1,6}));/gi, entity],
  [/\*\*\*(?=\S)([^*\n]{1,1000}?)(?<=\S)\*\*\*/g, ([, text], o) => h("strong", {}, h("em", {}, inline(text, o)))],
  [/\*\*(?=\S)((?:[^*\n]|\*(?!\*)|\*(?=\*\*(?!\*))){1,1000}?)(?<=\S)\*\*(?!\*)/g, ([, text], o) => h("strong", {}, inline(text, o))],
  [/(?<!\w)__(?=\S)([^_\n]{1,1000}?)(?<=\S)__(?!\w)/g, ([, text], o) => h("strong", {}, inline(text, o))],
  [/~~(?=\S)([^~\n]{1,1000}?)(?<=\S)~~/g, ([, text], o) => h("del", {}, inline(text, o))],
  [/(?<![\w*])\*(?=\S)([^*\n]{1,1000}?)(?<=\S)\*(?![\w*])/g, ([, text], o) => h("em", {}, inline(text, o))],
  [/(?<!\w)_(?=\S)([^_\n]{1,1000}?)(?<=\S)_(?!\w)/g, ([, text], o) => h("em", {}, inline(text, o))],
];

// With `links: false` addresses stay text, for places where the text is inside a control.
export function inline(text, options = { links: true }) {
  const pieces = [];
  const matches = PATTERNS.map(([pattern, build]) => ({ pattern, build, match: matchFrom(pattern, text, 0) }));
  for (let at = 0; at < text.length;) {
    const next = earliest(matches, text, at);
    if (!next) {
      pieces.push(text.slice(at));
      break;
    }
    const { match, build } = next;
    if (match.index > at) pieces.push(text.slice(at, match.index));
    const built = build(match, options);
    pieces.push(built.localName === "a" && !options.links ? match[0] : built);
    at = match.index + match[0].length;
  }
  return pieces;
}

function matchFrom(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.exec(text);
}

function earliest(matches, text, at) {
  let first = null;
  for (const one of matches) {
    if (one.match && one.match.index < at) one.match = matchFrom(one.pattern, text, at);
    if (one.match && (first === null || one.match.index < first.match.index)) first = one;
  }
  return first;
}

// A character by its name or number; text like any other, and an unknown one stays as it is.
function entity([written, name, decimal, hex]) {
  if (name) return Object.hasOwn(ENTITIES, name) ? ENTITIES[name] : written;
  const code = decimal ? Number(decimal) : Number.parseInt(hex, 16);
  return code > 31 && code <= 0x10ffff ? String.fromCodePoint(code) : written;
}

function link(url, text) {
  return h("a", { href: url, rel: "noopener noreferrer nofollow", target: "_blank" }, text);
}

// An image by address is a link: nothing is fetched from another machine before a click, and then in another tab.
function image(url, alt) {
  const host = URL.canParse(url) ? new URL(url).host : url;
  const label = `Image: ${alt || url.split("/").at(-1) || host}`;
  return h("a", { class: "image-link", href: url, rel: "noopener noreferrer nofollow", target: "_blank" }, `${label} (${host})`);
}
