// A handoff's sections as Markdown, with each fact a button that shows the messages it comes from.

import { h } from "./dom.js";
import { plural } from "./format.js";
import { markdown } from "./markdown.js";
import { EMPTY } from "./record.js";
import { messageLink } from "./route.js";

// Marks where a fact begins (one character per fact) and ends, while the text is turned into elements.
const FIRST = 0xf0000;
const END = "\ue001";
const MARKERS = /([\u{f0000}-\u{ffffd}\ue001])/u;
const ADDRESS = /(\bm:\d+(?:-\d+)?)/;

export class Facts {
  constructor(handoff, conversationId, onChosen) {
    this.conversationId = conversationId;
    this.onChosen = onChosen;
    this.buttons = new Map();
    this.element = h(
      "div",
      { class: "sections" },
      handoff.sections.filter(({ text }) => !EMPTY.test(text)).map((section) => this.section(section, handoff.facts)),
      emptyLine(handoff.sections),
    );
  }

  section(section, facts) {
    const places = facts
      .filter((fact) => fact.section === section.title)
      .flatMap((fact) => fact.marks.map((mark) => ({ fact, mark })))
      .sort((a, b) => a.mark[0] - b.mark[0] || b.mark[1] - a.mark[1]);
    const body = h("div", { class: "prose" }, markdown(withMarkers(section.text, places), { links: false, heading: 4 }));
    this.link(body, places);
    return h("section", { class: "card" }, h("h3", {}, section.title), body);
  }

  // Replaces the markers by buttons, and addresses of messages by links.
  link(body, places) {
    const walker = document.createTreeWalker(body, NodeFilter.SHOW_TEXT);
    const nodes = [];
    while (walker.nextNode()) nodes.push(walker.currentNode);
    let fact = null;
    for (const node of nodes) {
      const pieces = [];
      for (const piece of node.data.split(MARKERS)) {
        if (piece === END) fact = null;
        else if (MARKERS.test(piece)) fact = places[piece.codePointAt(0) - FIRST]?.fact ?? null;
        else if (piece) pieces.push(fact ? this.button(fact, piece) : piece.split(ADDRESS).map((p) => this.address(p)));
      }
      node.replaceWith(...pieces.flat());
    }
  }

  address(text) {
    const [, seq] = /^m:(\d+)/.exec(text) ?? [];
    return seq ? h("a", { class: "address", href: messageLink(this.conversationId, seq) }, text) : text;
  }

  button(fact, text) {
    const words = fact.is_supported ? `in ${plural(fact.sources.length, "message")}` : "in no source";
    const choose = (event) => {
      if (event.type === "keydown" && event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      this.choose(fact);
      this.onChosen(fact);
    };
    // A real button could not break across lines.
    const button = h(
      "span",
      {
        role: "button",
        tabindex: "0",
        class: `fact ${fact.is_supported ? "" : "unsupported"}`,
        "aria-pressed": "false",
        title: words,
        onclick: choose,
        onkeydown: choose,
      },
      text,
      h("span", { class: "unseen" }, ` (${words})`),
    );
    if (!this.buttons.has(fact)) this.buttons.set(fact, []);
    this.buttons.get(fact).push(button);
    return button;
  }

  choose(chosen) {
    for (const [fact, buttons] of this.buttons)
      for (const button of buttons) button.setAttribute("aria-pressed", String(fact === chosen));
    const [first] = this.buttons.get(chosen) ?? [];
    first?.scrollIntoView({ block: "nearest" });
  }
}

// Sections without content take one line together.
function emptyLine(sections) {
  const names = sections.filter(({ text }) => EMPTY.test(text)).map(({ title }) => title);
  return names.length ? h("p", { class: "muted small" }, `Nothing under: ${names.join(", ")}.`) : null;
}

// Offsets count code points; of marks that overlap, the first stays.
function withMarkers(text, places) {
  const points = Array.from(text.replace(MARKERS, "\ufffd"));
  let built = "";
  let at = 0;
  for (const [index, { mark: [start, end] }] of places.entries()) {
    if (start < at || end <= start || end > points.length) continue;
    built += points.slice(at, start).join("") + String.fromCodePoint(FIRST + index);
    built += points.slice(start, end).join("") + END;
    at = end;
  }
  return built + points.slice(at).join("");
}
