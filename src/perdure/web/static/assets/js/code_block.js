// A code block: language, copy button, and syntax highlighting for known languages.

import { copyButton } from "./copy.js";
import { h } from "./dom.js";

// Longer code is not highlighted, since building the elements takes time.
const MAX_CHARS = 20_000;

const C_LIKE =
  "abstract as async await bool boolean break byte case catch char class const constexpr continue default defer delete do double else enum export extends extern false final finally float fn for from func function go goto if impl implements import in int interface let long loop match mod module mut namespace new nil null nullptr override package private protected pub public range return self short static struct super switch template this throw throws trait true try type typedef typeof undefined union unsigned use using var virtual void when where while yield";
const PYTHON =
  "False None True and as assert async await break class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return self try while with yield";
const SHELL =
  "case do done elif else esac exit export fi for function if in local return select set then trap until while cd echo sudo";
const SQL =
  "add all alter and as asc between by case column constraint create cross delete desc distinct drop else end exists explain foreign from full group having in index inner insert into is join key left like limit not null on or order outer primary references right select set table then union unique update using values view when where with";
const DATA = "true false null yes no on off";

const HASH = String.raw`#[^\n]*`;
const SLASHES = String.raw`\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`;
const STRINGS = String.raw`"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?`;
const DOCSTRINGS = String.raw`"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)`;
const NUMBERS = String.raw`\b(?:0[xX][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\b`;
const WORDS = String.raw`[A-Za-z_$][\w$]*`;

const LANGUAGES = new Map();
define("python py", { comment: HASH, string: `${DOCSTRINGS}|${STRINGS}`, keywords: PYTHON });
define("bash sh shell zsh console fish dockerfile makefile", { comment: HASH, string: STRINGS, keywords: SHELL });
define("sql postgres postgresql sqlite mysql", {
  comment: String.raw`--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`,
  string: STRINGS,
  keywords: SQL,
  ignoreCase: true,
});
define("json json5 jsonc yaml yml toml ini env", { comment: `${HASH}|\\/\\/[^\\n]*`, string: STRINGS, keywords: DATA });
define("js javascript jsx mjs ts typescript tsx c h cpp c++ cc cs csharp java kotlin kt go rust rs swift scala dart php zig", {
  comment: SLASHES,
  string: `${STRINGS}|\`(?:[^\`\\\\]|\\\\[\\s\\S])*\`?`,
  keywords: C_LIKE,
});
define("ruby rb perl r elixir", { comment: HASH, string: STRINGS, keywords: `${PYTHON} ${SHELL} end begin module require unless nil` });
define("html xml svg vue", { comment: String.raw`<!--[\s\S]*?(?:-->|$)`, string: STRINGS, keywords: "" });
define("css scss less", { comment: String.raw`\/\*[\s\S]*?(?:\*\/|$)`, string: STRINGS, keywords: "" });

function define(names, { comment, string, keywords, ignoreCase = false }) {
  const pattern = new RegExp(`(${comment})|(${string})|(${NUMBERS})|(${WORDS})`, "g");
  const known = new Set(keywords.split(" "));
  for (const name of names.split(" ")) LANGUAGES.set(name, { pattern, known, ignoreCase });
}

export function codeBlock(code, language) {
  const name = language.toLowerCase();
  const text = h("code", {}, coloured(code, name));
  const head = h("div", { class: "code-head" }, h("span", {}, name || "text"), copyButton(() => code, "Copy code"));
  return h("div", { class: "code", dir: "ltr" }, head, h("pre", { tabindex: "0", "aria-label": "Code" }, text));
}

function coloured(code, name) {
  if (code.length > MAX_CHARS) return code;
  if (name === "diff" || name === "patch") return code.split("\n").map(diffLine);
  const language = LANGUAGES.get(name);
  if (!language) return code;
  const pieces = [];
  let at = 0;
  for (const match of code.matchAll(language.pattern)) {
    const kind = kindOf(match, language);
    if (!kind) continue;
    pieces.push(code.slice(at, match.index), h("span", { class: kind }, match[0]));
    at = match.index + match[0].length;
  }
  return [...pieces, code.slice(at)];
}

function kindOf([, comment, string, number, word], { known, ignoreCase }) {
  if (comment) return "comment";
  if (string) return "string";
  if (number) return "number";
  return known.has(ignoreCase ? word.toLowerCase() : word) ? "keyword" : null;
}

function diffLine(line) {
  const kind = { "+": "added", "-": "removed", "@": "comment" }[line[0]];
  return [kind ? h("span", { class: kind }, line) : line, "\n"];
}
