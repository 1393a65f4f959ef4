// Streaming text: complete paragraphs are built once, only the last one is rebuilt.

import { h } from "./dom.js";
import { markdown } from "./markdown.js";

export class StreamedText {
  constructor() {
    this.done = h("div");
    this.growing = h("div");
    this.element = h("div", { class: "prose" }, this.done, this.growing);
    this.rest = "";
    this.isAsked = false;
  }

  add(text) {
    this.rest += text;
    if (this.isAsked) return;
    this.isAsked = true;
    requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.isAsked = false;
    const cut = lastBreak(this.rest);
    if (cut > 0) {
      this.done.append(...markdown(this.rest.slice(0, cut)));
      this.rest = this.rest.slice(cut);
    }
    this.growing.replaceChildren(...markdown(this.rest));
  }
}

// The end of the last blank line that is not inside a code fence or a list.
function lastBreak(text) {
  let cut = 0;
  let at = 0;
  let isCode = false;
  for (const line of text.split("\n").slice(0, -1)) {
    at += line.length + 1;
    if (/^\s{0,3}(```|~~~)/.test(line)) isCode = !isCode;
    if (!isCode && !line.trim() && !/^(\s|[-*+]|\d+[.)])/.test(text.slice(at, at + 4))) cut = at;
  }
  return cut;
}
