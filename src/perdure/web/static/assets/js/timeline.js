// A conversation's messages as one scroll, however long: the log is cut into blocks, and only blocks near the window
// are fetched and built. The others keep their height, so that the scroll bar is right. A tool's result belongs to the
// block of its call.

import { conversationPath, read } from "./api.js";
import { Block } from "./block.js";
import { h } from "./dom.js";

const BLOCK = 40;
const KEPT_PAGES = 24;
const SETTLE_MS = 40;
const MARGIN = "1200px 0px";

export class Timeline {
  // `actions(message)` returns the buttons of a message.
  constructor(conversationId, lastSeq, signal, actions) {
    this.actions = actions;
    this.id = conversationId;
    this.signal = signal;
    this.lastSeq = 0;
    this.blocks = [];
    this.pages = new Map();
    this.height = BLOCK * 90;
    this.element = h("div", { class: "timeline" });
    this.observer = new IntersectionObserver((seen) => this.onSeen(seen), { rootMargin: MARGIN });
    signal.addEventListener("abort", () => this.observer.disconnect());
    this.lengthen(lastSeq);
  }

  lengthen(lastSeq) {
    this.lastSeq = Math.max(this.lastSeq, lastSeq);
    while (this.blocks.length * BLOCK < this.lastSeq) {
      const lo = this.blocks.length * BLOCK + 1;
      const block = new Block(this.id, lo, lo + BLOCK - 1, this.actions);
      block.reserve(this.height);
      this.blocks.push(block);
      this.element.append(block.element);
      block.element.block = block;
    }
  }

  blockOf(seq) {
    return this.blocks[Math.min(this.blocks.length - 1, Math.max(0, Math.floor((seq - 1) / BLOCK)))];
  }

  // Shows the requested message (or the end) before observing blocks, so that the first paint is there.
  async begin(seq, event = null) {
    if (this.blocks.length === 0) return;
    await this.goTo(seq ?? this.lastSeq, { isQuiet: seq === null, event });
    for (const block of this.blocks) this.observer.observe(block.element);
  }

  // `event`: the number of an event right after the message, which is the target then.
  async goTo(seq, { isQuiet = false, event = null } = {}) {
    const block = this.blockOf(seq);
    if (!block) return;
    const at = this.blocks.indexOf(block);
    const near = this.blocks.slice(Math.max(0, at - 1), at + 2).filter((one) => !one.isShown);
    const pages = await Promise.all(near.map((one) => this.page(one)));
    if (this.signal.aborted) return;
    // Build and scroll in one step, so that nothing moves.
    for (const [i, one] of near.entries()) this.place(one, pages[i]);
    this.learnHeight(block);
    if (isQuiet) return this.toEnd();
    const target = document.getElementById(`e-${event}`) ?? document.getElementById(`m-${seq}`) ?? block.element;
    const card = target.matches("details") ? target : target.querySelector(".handoff-card details");
    if (card) card.open = true;
    target.scrollIntoView({ block: "center" });
    target.classList.add("is-target");
    target.focus({ preventScroll: true });
  }

  toEnd() {
    scrollTo(0, document.documentElement.scrollHeight);
  }

  isAtEnd() {
    return document.documentElement.scrollHeight - innerHeight - scrollY < 120;
  }

  // The height of the first block is the estimate for the others.
  learnHeight(block) {
    if (this.isMeasured || block.seen.size < BLOCK / 2) return;
    this.isMeasured = true;
    this.height = block.element.offsetHeight;
    for (const other of this.blocks) if (!other.isShown) other.reserve(this.height);
  }

  onSeen(entries) {
    for (const { target, isIntersecting } of entries) {
      const { block } = target;
      block.isNear = isIntersecting;
      if (!isIntersecting) block.hide();
      else if (this.pages.has(block.lo)) this.place(block, this.pages.get(block.lo));
      // Dragging the scroll bar passes many blocks: fetch only where it stops.
      else setTimeout(() => block.isNear && this.show(block).catch(() => {}), SETTLE_MS);
    }
  }

  // Concurrent calls share one request.
  show(block) {
    if (block.isShown || this.signal.aborted) return Promise.resolve();
    block.coming ??= this.bring(block).finally(() => (block.coming = null));
    return block.coming;
  }

  async bring(block) {
    const page = await this.page(block);
    if (!this.signal.aborted) this.place(block, page);
  }

  async page(block) {
    return this.pages.get(block.lo) ?? this.fetch(block, block.lo - 1);
  }

  // Browsers without scroll anchoring would jump when a block above the window takes its real height.
  place(block, page) {
    const mustHold = !CSS.supports("overflow-anchor", "auto") && block.element.getBoundingClientRect().top < 0;
    const before = block.element.offsetHeight;
    block.show(page);
    if (mustHold) scrollBy(0, block.element.offsetHeight - before);
  }

  // The API adds the results of the last call beyond the limit; those of a call before the block are shown there.
  async fetch(block, after) {
    const limit = Math.max(1, block.hi - after);
    const page = await read(`${conversationPath(this.id)}/timeline`, { after, limit }, this.signal);
    page.messages = page.messages.filter((message) => block.holds(message));
    if (after === block.lo - 1 && page.messages.length && block.hi < this.lastSeq) this.keep(block.lo, page);
    return page;
  }

  keep(lo, page) {
    this.pages.set(lo, page);
    if (this.pages.size > KEPT_PAGES) this.pages.delete(this.pages.keys().next().value);
  }

  // The last message once more: something may have happened right after it.
  newestKnown(block) {
    return Math.max(block.lo, block.last) - 1;
  }

  // Appends new messages; keeps the end in view only if it was.
  async grow(lastSeq) {
    const wasAtEnd = this.isAtEnd();
    const wasLast = this.blocks.at(-1);
    const known = this.blocks.length;
    this.lengthen(lastSeq);
    for (const block of this.blocks.slice(known)) {
      block.reserve(1);
      this.observer.observe(block.element);
    }
    // A new result may belong to a call in an earlier block.
    const stale = this.blocks.filter((block, i) => i >= known || block === wasLast || block.isWaiting);
    for (const block of stale) {
      this.pages.delete(block.lo);
      if (block.isShown) block.show(await this.fetch(block, this.newestKnown(block)));
      else if (wasAtEnd) await this.show(block);
    }
    if (wasAtEnd) this.toEnd();
  }
}
