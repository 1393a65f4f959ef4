// Where one writes: Enter sends, Shift+Enter breaks the line, / offers commands, Escape stops a running turn.

import { Completion } from "./completion.js";
import { h } from "./dom.js";

const MAX_HEIGHT_PX = 240;
const DRAFT = "perdure-draft:";

export class Composer {
  // What was written and not sent is kept for this tab, by conversation.
  constructor({ send, stop, signal, draft }) {
    this.sendText = send;
    this.draft = `${DRAFT}${draft}`;
    this.field = h("textarea", { id: "say", rows: 1, placeholder: "Message, or / for commands", autocomplete: "off" });
    this.sender = h("button", { type: "submit", class: "primary" }, "Send");
    this.stopper = h("button", { type: "button", class: "stop", hidden: true, onclick: stop }, "Stop");
    this.completion = new Completion(this.field, signal);
    this.element = h(
      "form",
      { class: "composer", "aria-label": "Write" },
      this.completion.element,
      h("label", { for: "say", class: "unseen" }, "Message"),
      this.field,
      this.stopper,
      this.sender,
    );
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.field.addEventListener("keydown", (event) => this.onKey(event, stop));
    this.field.addEventListener("input", () => {
      this.fit();
      this.keep();
    });
    this.field.value = sessionStorage.getItem(this.draft) ?? "";
    if (this.hasText) requestAnimationFrame(() => this.fit());
  }

  keep() {
    if (this.hasText) sessionStorage.setItem(this.draft, this.field.value);
    else sessionStorage.removeItem(this.draft);
  }

  onKey(event, stop) {
    if (event.isComposing || this.completion.takes(event)) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.send();
    } else if (event.key === "Escape" && !this.stopper.hidden) {
      stop();
    }
  }

  get hasText() {
    return this.field.value.trim() !== "";
  }

  send() {
    const text = this.field.value.trim();
    if (!text) return;
    this.field.value = "";
    this.keep();
    this.completion.close();
    this.fit();
    this.sendText(text);
  }

  setRunning(isRunning) {
    this.stopper.hidden = !isRunning;
    // One may write on while a turn runs: the message waits for its turn.
    this.sender.textContent = isRunning ? "Queue" : "Send";
  }

  fit() {
    this.field.style.height = "auto";
    this.field.style.height = `${Math.min(MAX_HEIGHT_PX, this.field.scrollHeight + 2)}px`;
  }

  focus() {
    this.field.focus();
  }
}
