// The header of a conversation in each of its views: title, figures, gauge, and tabs that stay in view.

import { clear, h, update } from "./dom.js";
import { failureButton, failureWords } from "./failures.js";
import { Gauge } from "./gauge.js";
import { linkTo, messageLink } from "./route.js";
import { Title } from "./title.js";
import { cost, costNote, count, moment, percent, plural } from "./format.js";

export class Head {
  constructor(known, view) {
    this.view = view;
    this.gauge = new Gauge(linkTo(known.id, "/context"));
    this.facts = h("p", { class: "facts" });
    this.tabs = h("nav", { class: "tabs", "aria-label": "This conversation" });
    this.titled = known;
    this.title = new Title(known, { tag: "h1" });
    this.element = h(
      "section",
      { class: "head", "aria-label": "About this conversation" },
      h("div", { class: "head-row" }, this.title.element, view === "timeline" ? null : this.gauge.element),
      this.facts,
      this.tabs,
    );
    this.brief = h("span", { class: "brief" });
    // Once the title has scrolled away, the tabs show it.
    const watcher = new IntersectionObserver(([{ isIntersecting }]) =>
      this.tabs.classList.toggle("is-stuck", !isIntersecting),
    );
    watcher.observe(this.element.querySelector(".head-row"));
    this.show(known);
  }

  show(known) {
    document.title = `${known.title || "Untitled"} · Perdure`;
    if (known.title !== this.titled.title && !this.title.isEdited) {
      const fresh = new Title(known, { tag: "h1" });
      this.title.element.replaceWith(fresh.element);
      this.title = fresh;
    }
    this.titled = known;
    this.gauge.show(known.gauge);
    update(
      this.facts,
      facts(known).map((words) => h("span", {}, words)),
      compactions(known),
      failureWords(known.failures).map(([words, isFailure]) => h("span", { class: isFailure ? "failed" : "" }, words)),
      parent(known),
    );
    clear(this.brief, h("strong", {}, known.title || "Untitled"), briefly(known));
    update(this.tabs, tabs(known, this.view), failureButton(known), children(known), this.brief);
  }
}

function facts(known) {
  const { totals } = known;
  const input = totals.input_tokens + totals.cache_read_tokens + totals.cache_write_tokens;
  return [
    known.source || "unknown source",
    known.gauge?.model ?? known.sessions.at(-1)?.model ?? "",
    `since ${moment(known.created_at)}`,
    plural(known.last_seq, "message"),
    plural(known.sessions.length, "session"),
    plural(totals.calls, "call"),
    totals.calls ? `${percent(totals.cache_read_tokens, input)} read from cache` : "",
    totals.calls ? costFact(totals) : "",
  ].filter(Boolean);
}

function costFact(totals) {
  const { calls, unpriced_calls: left } = totals;
  const words = left && left < calls ? ` without ${count(left)} of ${count(calls)} calls` : "";
  return h("span", { class: "cost", title: costNote(totals) || null }, `${cost(totals)}${words}`);
}

// Leads to the newest one in the timeline, which says why.
function compactions({ id, totals, handoffs }) {
  const words = plural(totals.compactions, "compaction");
  const newest = handoffs.at(-1);
  return newest === undefined ? h("span", {}, words) : h("a", { href: messageLink(id, newest) }, words);
}

function briefly({ totals, gauge }) {
  return [
    totals.calls ? h("span", { title: costNote(totals) || null }, cost(totals)) : null,
    gauge?.window ? h("span", { class: "fill-words" }, `${percent(gauge.tokens, gauge.window)} of the context`) : null,
  ];
}

function parent(known) {
  return known.parent_id
    ? h(
        "a",
        { href: linkTo(known.parent_id) },
        known.kind === "delegate" ? "delegated from another" : "branched from another",
      )
    : null;
}

function tabs(known, view) {
  const newest = known.handoffs.at(-1);
  const all = [
    ["timeline", "Timeline", linkTo(known.id)],
    ["context", "Context", linkTo(known.id, "/context")],
  ];
  if (newest !== undefined) {
    const many = known.handoffs.length > 1 ? ` (${count(known.handoffs.length)})` : "";
    all.push(["handoff", `Handoff${many}`, linkTo(known.id, `/handoff/${newest}`)]);
  }
  return all.map(([name, words, href]) => h("a", { href, "aria-current": name === view ? "page" : null }, words));
}

function children(known) {
  if (!known.children.length) return null;
  return h(
    "details",
    { class: "children" },
    h("summary", {}, plural(known.children.length, "branch or delegated run", "branches and delegated runs")),
    h(
      "ul",
      {},
      known.children.map((child) =>
        h("li", {}, h("a", { href: linkTo(child.id) }, child.title || "Untitled"), ` · ${child.kind}`),
      ),
    ),
  );
}
