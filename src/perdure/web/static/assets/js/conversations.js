// The list of conversations, with search and filters.

import { announce } from "./announce.js";
import { read } from "./api.js";
import { clear, h } from "./dom.js";
import { columnHeads, filterForm, isFiltered, orderName } from "./filters.js";
import { onChange } from "./live.js";
import { conversationRow, hitRow } from "./rows.js";
import { dayName, plural } from "./format.js";

const PAGE = 50;

export async function open({ place, route, signal }) {
  document.title = "Conversations · Perdure";
  const list = new List(signal);
  const form = filterForm(route.parameters, (asked) => list.show(asked), signal);
  clear(place, h("h1", { class: "unseen" }, "Conversations"), form, columnHeads(form), list.element);
  onChange(() => list.refreshSoon(), signal);
  await list.show(route.parameters);
}

class List {
  constructor(signal) {
    this.signal = signal;
    this.asked = {};
    this.cursor = null;
    this.days = new Map();
    this.turn = 0;
    this.results = h("div", { class: "results" });
    this.more = h("button", { type: "button", hidden: true, onclick: () => this.addPage() }, "Show more");
    const plus = "A cost with “+” leaves some calls out: those without token counts (stopped, or broken off by the provider) and those to models without a known price.";
    this.hint = h("p", { class: "muted small cost-hint", hidden: true }, plus);
    this.element = h("section", { "aria-label": "Conversations found" }, this.hint, this.results, this.more);
    // The next page loads near the end; the button is for keyboards.
    const watcher = new IntersectionObserver((seen) => seen.some((s) => s.isIntersecting) && this.addPage(), {
      rootMargin: "600px",
    });
    watcher.observe(this.more);
    signal.addEventListener("abort", () => watcher.disconnect());
  }

  async show(asked) {
    this.asked = asked;
    const turn = ++this.turn;
    const isEveryHit = asked.q && asked.show === "hits";
    const page = await (isEveryHit ? this.hits() : this.page(null));
    if (turn !== this.turn) return;
    this.days.clear();
    this.hint.hidden = true;
    clear(this.results);
    if (isEveryHit) this.showHits(page.hits);
    else this.add(page);
    this.sayHowMany(isEveryHit ? page.hits.length : page.conversations.length, page.note);
  }

  page(cursor, limit = PAGE) {
    const { q, source, model, since, until, only } = this.asked;
    const [sort, direction] = (this.asked.sort ?? "").split(".");
    const narrowed = { q, source, model, ...span(since, until), only, sort, direction };
    return read("/conversations", { ...narrowed, cursor, limit }, this.signal);
  }

  hits() {
    const { q, source, since, until } = this.asked;
    return read("/search", { q, source, ...span(since, until), limit: 100 }, this.signal);
  }

  async addPage() {
    if (this.more.hidden || this.isAdding) return;
    this.isAdding = true;
    const turn = this.turn;
    try {
      const page = await this.page(this.cursor);
      if (turn === this.turn) this.add(page);
    } finally {
      this.isAdding = false;
    }
  }

  add({ conversations, next_cursor }) {
    const isUnderDay = !this.asked.q && !this.asked.sort;
    for (const row of conversations) this.groupOf(row).append(conversationRow(row, { isUnderDay }));
    this.hint.hidden &&= !conversations.some(({ figures }) => figures?.unpriced_calls && figures.cost_usd);
    this.cursor = next_cursor;
    this.more.hidden = next_cursor === null;
  }

  // Only the list by time is grouped by day; matches in a title alone come before the ranked ones.
  groupOf(row) {
    const name = this.groupName(row);
    if (!this.days.has(name)) {
      const rows = h("ul", { class: "rows" });
      const section = h("section", { class: "day" }, h("h2", {}, name), rows);
      if (this.asked.q && !row.snippet) this.results.prepend(section);
      else this.results.append(section);
      this.days.set(name, rows);
    }
    return this.days.get(name);
  }

  groupName(row) {
    if (this.asked.q) return row.snippet ? "Best first" : "Only the title matches";
    return this.asked.sort ? orderName(this.asked.sort) : dayName(row.updated_at);
  }

  showHits(hits) {
    this.more.hidden = true;
    this.results.append(h("ul", { class: "rows" }, hits.map(hitRow)));
  }

  sayHowMany(found, note) {
    if (found === 0) clear(this.results, emptyWords(this.asked, note));
    else if (note) this.results.prepend(h("p", { class: "search-note" }, note));
    if (found && isFiltered(this.asked)) announce(`${plural(found, "result")}${this.more.hidden ? "" : " and more"}`);
  }

  // Reload the first page after a change, unless a title is being edited or the list is scrolled.
  refreshSoon() {
    if (this.asked.q || this.timer) return;
    this.timer = setTimeout(async () => {
      this.timer = null;
      const isBusy = this.element.contains(document.activeElement) && document.activeElement.matches("input");
      if (!this.signal.aborted && !isBusy && scrollY < 200) await this.refresh();
    }, 250);
  }

  async refresh() {
    const focused = document.activeElement?.closest?.("[data-id]")?.dataset.id;
    await this.show(this.asked).catch(() => {});
    if (focused) this.results.querySelector(`[data-id="${CSS.escape(focused)}"] a`)?.focus();
  }
}

function span(since, until) {
  const from = since ? new Date(`${since}T00:00`).getTime() : "";
  const to = until ? new Date(`${until}T00:00`).getTime() + 86_400_000 : "";
  return { since: from, until: to };
}

function emptyWords(asked, note) {
  const advice = note ? `Nothing fits. ${note}` : "Nothing fits. Try fewer words, or clear the filters.";
  if (isFiltered(asked)) return h("p", { class: "empty" }, advice);
  return h(
    "p",
    { class: "empty" },
    "No conversations yet. ",
    h("a", { href: "#/new" }, "Start one here"),
    ", or with ",
    h("code", {}, "perdure chat"),
    ".",
  );
}
