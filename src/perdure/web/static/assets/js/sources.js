// The source messages of a handoff's facts, and for each message the facts it contains.

import { announce } from "./announce.js";
import { clear, h } from "./dom.js";
import { openText } from "./lazy_text.js";
import { messageLink } from "./route.js";
import { count, plural } from "./format.js";

const SHOWN = 5;
const AROUND_CHARS = 600;
const MAX_PAGES = 10;

export class Sources {
  constructor(conversationId, facts, handoffs, onFact) {
    this.id = conversationId;
    this.handoffs = new Set(handoffs);
    this.onFact = onFact;
    this.bySeq = new Map();
    for (const fact of facts)
      for (const seq of fact.sources) this.bySeq.set(seq, [...(this.bySeq.get(seq) ?? []), fact]);
    this.place = h("div", { class: "source-list" });
    this.element = h(
      "section",
      { class: "sources", "aria-live": "polite" },
      h("h2", {}, "Sources"),
      this.place,
    );
    this.showAll();
  }

  showAll() {
    if (!this.bySeq.size)
      return clear(this.place, h("p", { class: "muted" }, "No fact of this handoff was found in a message."));
    const most = [...this.bySeq]
      .sort((a, b) => this.handoffs.has(a[0]) - this.handoffs.has(b[0]) || b[1].length - a[1].length)
      .slice(0, SHOWN);
    clear(
      this.place,
      h("p", { class: "muted small" }, "Select a fact in the handoff. These messages contain the most of them:"),
      most.map(([seq]) => this.source(seq, null)),
    );
  }

  show(fact) {
    const back = h("button", { type: "button", class: "quiet", onclick: () => this.showAll() }, "Back to all sources");
    if (fact.sources.length) clear(this.place, this.found(fact), back);
    else clear(this.place, h("p", { class: "unsupported-words" }, doubt(fact)), back);
    announce(fact.sources.length ? `${plural(fact.sources.length, "source")} shown.` : "No source.");
  }

  found(fact) {
    const words = `${fact.text} is in ${plural(fact.sources.length, "message")}, newest first:`;
    const more = fact.sources.length - SHOWN;
    return [
      h("p", { class: fact.is_supported ? "" : "unsupported-words" }, fact.is_supported ? words : doubt(fact)),
      this.inOrder(fact.sources)
        .slice(0, SHOWN)
        .map((seq) => this.source(seq, fact)),
      more > 0 ? h("p", { class: "muted small" }, `and ${plural(more, "earlier message")}.`) : null,
    ];
  }

  // Messages come before an earlier handoff that only repeats them.
  inOrder(sources) {
    return [...sources].sort((a, b) => this.handoffs.has(a) - this.handoffs.has(b) || b - a);
  }

  source(seq, fact) {
    const text = h("div", { class: "plain excerpt", dir: "auto", tabindex: "0", role: "group", "aria-label": "Excerpt" }, "…");
    this.fill(text, seq, fact).catch((error) => (text.textContent = error.message));
    const name = `${this.handoffs.has(seq) ? "Earlier handoff, message" : "Message"} ${count(seq)}`;
    const heading = h("h3", {}, h("a", { href: messageLink(this.id, seq) }, name), h("code", {}, `m:${seq}`));
    return h("article", { class: "source", "data-seq": seq }, heading, text, this.backlinks(seq));
  }

  // The other direction: from a message to the facts of the handoff that it contains.
  backlinks(seq) {
    const facts = this.bySeq.get(seq) ?? [];
    const words = plural(facts.length, "fact of the handoff", "facts of the handoff");
    const follow = (fact) => () => {
      this.onFact(fact);
      this.show(fact);
    };
    const button = (fact) => h("button", { type: "button", class: "fact", onclick: follow(fact) }, fact.text);
    const items = facts.map((fact) => h("li", {}, button(fact)));
    return h("details", {}, h("summary", {}, words), h("ul", { class: "backlinks" }, items));
  }

  // The excerpt around the fact, with the fact marked; reads on through a long message until it is found.
  async fill(place, seq, fact) {
    let page = await openText(this.id, `m:${seq}`);
    let at = find(page.text, fact);
    for (let pages = 1; at < 0 && fact && page.next_offset !== null && pages < MAX_PAGES; pages += 1) {
      page = await openText(this.id, `m:${seq}`, page.next_offset);
      at = find(page.text, fact);
    }
    const start = Math.max(0, at - AROUND_CHARS / 2);
    const end = Math.max(at, 0) + AROUND_CHARS;
    const before = start > 0 || page.offset > 0 ? "… " : "";
    const after = end < page.text.length || page.next_offset !== null ? " …" : "";
    if (at < 0) return clear(place, page.text.slice(0, AROUND_CHARS), after);
    const length = fact.text.length;
    clear(
      place,
      before,
      page.text.slice(start, at),
      h("mark", {}, page.text.slice(at, at + length)),
      page.text.slice(at + length, end),
      after,
    );
  }
}

function find(text, fact) {
  if (!fact) return -1;
  const exact = text.indexOf(fact.text);
  return exact >= 0 ? exact : text.toLowerCase().indexOf(fact.text.toLowerCase());
}

function doubt({ text, sources }) {
  if (sources.length) return `“${text}” is in no message; only an earlier handoff contains it:`;
  return `“${text}” is in no message that this handoff covers. It may be wrong or reworded.`;
}
