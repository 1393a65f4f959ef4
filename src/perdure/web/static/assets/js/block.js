// A block of the timeline: some forty messages, built near the viewport and removed far from it.

import { ToolCallCard } from "./tool_call.js";
import { clear, h } from "./dom.js";
import { compactionFacts, eventElement, isCompacted } from "./event.js";
import { messageElement } from "./message.js";

export class Block {
  constructor(conversationId, lo, hi, actions) {
    this.actions = actions;
    this.conversationId = conversationId;
    this.lo = lo;
    this.hi = hi;
    this.element = h("div", { class: "block" });
    this.cards = new Map();
    this.seen = new Set();
    this.isShown = false;
    this.last = lo - 1;
  }

  // A result belongs to the block of its call.
  holds(message) {
    const place = message.call_seq ?? message.seq;
    return this.lo <= place && place <= this.hi;
  }

  // Whether a call has no result yet.
  get isWaiting() {
    return [...this.cards.values()].some((card) => !card.isComplete);
  }

  // Adds what is missing, the first time and on every update.
  show(page) {
    if (!this.isShown) this.element.style.height = "";
    this.isShown = true;
    // Events before the first message; elsewhere the previous block shows them.
    if (this.lo === 1) for (const event of page.events) if (event.after_seq < 1) this.happen(event);
    for (const message of page.messages) {
      if (!this.seen.has(message.seq)) this.add(message);
      for (const event of page.events) if (event.after_seq === message.seq) this.happen(event);
    }
  }

  add(message) {
    this.seen.add(message.seq);
    this.last = Math.max(this.last, message.seq);
    if (message.kind === "tool") this.addResult(message);
    else this.element.append(messageElement(message, this.conversationId, this.actions));
    for (const call of message.tool_calls) {
      const card = new ToolCallCard(call, this.conversationId);
      this.cards.set(call.id, card);
      this.element.append(card.element);
    }
  }

  addResult(message) {
    let card = this.cards.get(message.tool_call_id);
    if (!card || card.isComplete) {
      // Imported histories may have a result without a call.
      card = new ToolCallCard(
        { id: message.tool_call_id, name: message.tool_name ?? "tool", target: "", arguments: null },
        this.conversationId,
      );
      this.element.append(card.element);
    }
    card.complete(message);
  }

  happen(event) {
    const key = `${event.kind}/${event.after_seq}/${event.created_at}`;
    if (this.seen.has(key)) return;
    this.seen.add(key);
    const facts = isCompacted(event) ? this.element.querySelector(`#m-${event.after_seq} .compaction-facts`) : null;
    if (facts) clear(facts, compactionFacts(event, this.conversationId));
    else this.element.append(eventElement(event, this.conversationId));
  }

  // Removes the content but keeps the height.
  hide() {
    if (!this.isShown) return;
    this.reserve(this.element.offsetHeight);
    this.element.replaceChildren();
    this.cards.clear();
    this.seen.clear();
    this.isShown = false;
    this.last = this.lo - 1;
  }

  reserve(height) {
    this.element.style.height = `${Math.round(height)}px`;
  }
}
