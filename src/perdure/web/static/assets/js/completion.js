// Completion of slash commands: arrow keys select, Tab or Enter accepts, Escape closes.

import { clear, h } from "./dom.js";
import { allCommands } from "./gateway.js";

export class Completion {
  constructor(field, signal) {
    this.field = field;
    this.signal = signal;
    this.chosen = 0;
    this.offered = [];
    this.element = h("ul", {
      id: "commands",
      class: "commands",
      role: "listbox",
      tabindex: "0",
      "aria-label": "Commands",
      hidden: true,
    });
    for (const [name, value] of Object.entries({
      "aria-autocomplete": "list",
      "aria-haspopup": "listbox",
      "aria-controls": "commands",
    }))
      field.setAttribute(name, value);
    field.addEventListener("input", () => this.offer());
    field.addEventListener("blur", () => setTimeout(() => this.close(), 150));
  }

  async offer() {
    const typed = /^\/(\w*)$/.exec(this.field.value);
    if (!typed) return this.close();
    this.all ??= allCommands(this.signal);
    const all = await this.all.catch(() => {
      this.all = undefined;
      return [];
    });
    // The input may have changed while the list was loading.
    const now = /^\/(\w*)$/.exec(this.field.value);
    if (!now) return this.close();
    this.offered = all.filter((command) => command.name.startsWith(now[1].toLowerCase()));
    this.chosen = 0;
    this.show();
  }

  show() {
    this.element.hidden = this.offered.length === 0;
    clear(
      this.element,
      this.offered.map((command, index) => this.option(command, index)),
    );
    this.mark();
  }

  option(command, index) {
    const take = (event) => {
      event.preventDefault();
      this.take(index);
    };
    return h(
      "li",
      { id: `command-${index}`, role: "option", onmousedown: take },
      h("code", {}, command.usage ?? `/${command.name}`),
      h("span", { class: "muted" }, command.summary ?? ""),
    );
  }

  mark() {
    for (const [index, option] of [...this.element.children].entries()) {
      option.setAttribute("aria-selected", String(index === this.chosen));
      if (index === this.chosen) option.scrollIntoView({ block: "nearest" });
    }
    if (this.element.hidden) this.field.removeAttribute("aria-activedescendant");
    else this.field.setAttribute("aria-activedescendant", `command-${this.chosen}`);
  }

  // Handles a key; returns whether it was for the list.
  takes(event) {
    if (this.element.hidden) return false;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) this.chosen = (this.chosen + step + this.offered.length) % this.offered.length;
    else if (event.key === "Escape") this.close();
    else if (event.key === "Tab" || (event.key === "Enter" && !this.isWhole())) this.take(this.chosen);
    else return false;
    event.preventDefault();
    this.mark();
    return true;
  }

  isWhole() {
    return this.offered.some((command) => `/${command.name}` === this.field.value);
  }

  take(index) {
    this.field.value = `/${this.offered[index].name} `;
    this.close();
    this.field.focus();
  }

  close() {
    this.element.hidden = true;
    this.field.removeAttribute("aria-activedescendant");
  }
}
