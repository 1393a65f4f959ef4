// A conversation's title, editable in place.

import { announce } from "./announce.js";
import { clear, h } from "./dom.js";
import { command } from "./gateway.js";

export class Title {
  // With an address, the title is a link to it.
  constructor(conversation, { address = null, tag = "div" } = {}) {
    this.conversation = conversation;
    this.address = address;
    this.element = h(tag, { class: "title" });
    this.show();
  }

  get isEdited() {
    return this.element.querySelector("input") !== null;
  }

  show() {
    const name = this.conversation.title || "Untitled";
    const label = `Rename “${name}”`;
    const words = h(this.address ? "a" : "span", { href: this.address, class: "row-title" }, name);
    const rename = { type: "button", class: "quiet rename", "aria-label": label, onclick: () => this.edit() };
    clear(this.element, words, h("button", rename, "Rename"));
  }

  edit() {
    const field = h("input", { value: this.conversation.title, "aria-label": "New title", maxlength: 200 });
    const problem = h("span", { class: "small", role: "alert" });
    const form = h("form", { class: "renaming" });
    form.addEventListener("keydown", (event) => event.key === "Escape" && this.leave());
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.save(field.value.trim()).catch((error) => (problem.textContent = error.message));
    });
    form.append(field, h("button", { type: "submit", class: "primary" }, "Save"));
    form.append(h("button", { type: "button", onclick: () => this.leave() }, "Cancel"), problem);
    clear(this.element, form);
    field.select();
  }

  async save(title) {
    if (title && title !== this.conversation.title) {
      await command(this.conversation.id, `/title ${title}`);
      this.conversation.title = title;
      announce("Renamed.");
    }
    this.leave();
  }

  leave() {
    this.show();
    this.element.querySelector("button").focus();
  }
}
