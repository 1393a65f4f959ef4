// The handoff's sections, with each fact in them a button that leads to where it was said.

import { h, marked } from "./dom.js";

export class Facts {
  constructor(handoff, onChosen) {
    this.onChosen = onChosen;
    this.buttons = new Map();
    this.element = h(
      "div",
      { class: "sections" },
      handoff.sections.map((section) => this.section(section, handoff.facts)),
    );
  }

  section(section, facts) {
    const placed = facts
      .filter((fact) => fact.section === section.title)
      .flatMap((fact) => fact.marks.map((mark) => ({ fact, mark })))
      .sort((a, b) => a.mark[0] - b.mark[0] || b.mark[1] - a.mark[1]);
    const text = marked(
      section.text,
      placed.map(({ mark }) => mark),
      (piece, index) => this.button(placed[index].fact, piece),
    );
    return h("section", {}, h("h3", {}, section.title), h("div", { class: "plain" }, text));
  }

  button(fact, words) {
    const told = fact.is_supported
      ? `said in ${fact.sources.length === 1 ? "one message" : `${fact.sources.length} messages`}`
      : "not found in any source";
    const button = h(
      "button",
      {
        type: "button",
        class: `fact ${fact.is_supported ? "" : "unsupported"}`,
        "aria-pressed": "false",
        title: told,
        onclick: () => {
          this.choose(fact);
          this.onChosen(fact);
        },
      },
      words,
      h("span", { class: "unseen" }, ` (${told})`),
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
