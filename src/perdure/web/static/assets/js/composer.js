// The input: Enter sends, Shift+Enter inserts a line break, / lists commands, Escape stops a running turn.

import { attachmentsOf, moveAttachments } from "./attachments.js";
import { Completion } from "./completion.js";
import { h } from "./dom.js";

const MAX_HEIGHT_PX = 240;
const DRAFT = "perdure-draft:";

export class Composer {
  // A draft is stored for this tab, by conversation.
  constructor({ send, stop, signal, draft }) {
    this.sendText = send;
    this.draft = `${DRAFT}${draft}`;
    this.field = h("textarea", { id: "say", rows: 1, placeholder: "Message, or /command", dir: "auto" });
    this.attachments = attachmentsOf(this.draft);
    this.sender = h("button", { type: "submit", class: "primary" }, "Send");
    this.stopper = h("button", { type: "button", class: "stop", hidden: true, onclick: stop }, "Stop");
    this.completion = new Completion(this.field, signal);
    this.element = h(
      "form",
      { class: "composer", "aria-label": "Write" },
      this.completion.element,
      h("label", { for: "say", class: "unseen" }, "Message"),
      this.attachments.element,
      this.field,
      this.attachments.button,
      this.stopper,
      this.sender,
    );
    this.takeFiles();
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.field.addEventListener("keydown", (event) => this.onKey(event, stop));
    this.field.addEventListener("input", () => {
      this.fit();
      this.keep();
    });
    this.field.addEventListener("paste", (event) => this.notePaste(event.clipboardData?.getData("text")));
    this.field.value = sessionStorage.getItem(this.draft) ?? "";
    this.pasted = JSON.parse(sessionStorage.getItem(this.pastes) ?? "[]");
    if (this.hasText) requestAnimationFrame(() => this.fit());
  }

  // Files are also taken from the clipboard and by dropping them.
  takeFiles() {
    const take = (event, files) => {
      if (!files?.length) return;
      event.preventDefault();
      this.attachments.add(files);
    };
    this.field.addEventListener("paste", (event) => take(event, event.clipboardData?.files));
    this.element.addEventListener("dragover", (event) => event.preventDefault());
    this.element.addEventListener("drop", (event) => take(event, event.dataTransfer?.files));
  }

  // What was pasted is sent along, so that it never counts as an instruction of the user.
  notePaste(text) {
    // As the field normalises it.
    const piece = text?.replace(/\r\n?/g, "\n").trim();
    if (piece) this.pasted.push(piece);
  }

  get pastes() {
    return `${this.draft}:pasted`;
  }

  // The draft of a new chat becomes that of its conversation, which is shown after the first turn.
  moveDraft(name) {
    for (const key of [this.draft, this.pastes]) sessionStorage.removeItem(key);
    moveAttachments(this.draft, `${DRAFT}${name}`);
    this.draft = `${DRAFT}${name}`;
    this.keep();
  }

  keep() {
    if (!this.hasText) this.pasted = [];
    this.pasted = this.pasted.filter((piece) => this.field.value.includes(piece));
    if (this.hasText) {
      sessionStorage.setItem(this.draft, this.field.value);
      sessionStorage.setItem(this.pastes, JSON.stringify(this.pasted));
    } else {
      sessionStorage.removeItem(this.draft);
      sessionStorage.removeItem(this.pastes);
    }
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
    if (!text && this.attachments.isEmpty) return;
    const pasted = this.pasted;
    this.field.value = "";
    this.keep();
    this.completion.close();
    this.fit();
    const files = text.startsWith("/") ? [] : this.attachments.files;
    this.sendText(text, files.length ? this.attachments.take(text) : text, files, pasted);
  }

  setRunning(isRunning) {
    this.stopper.hidden = !isRunning;
    // A message sent during a turn is queued.
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
