// The search field and filters. They are part of the address, so that going back restores them.

import { read } from "./api.js";
import { h } from "./dom.js";

const NARROW_PX = 640;
const NAMES = ["q", "show", "source", "model", "since", "until", "only", "sort"];
const ORDERS = {
  "": "last used",
  cost: "cost",
  tokens: "tokens",
  context: "context fill",
  compactions: "compactions",
  failures: "failures",
  messages: "messages",
};
const COLUMNS = ["", "cost", "tokens", "context", "compactions", "failures"];

export function isFiltered(asked) {
  return NAMES.some((name) => name !== "show" && name !== "sort" && asked[name]);
}

// A sort is the name of a figure, with `.asc` for the lowest first.
export function orderName(sort) {
  if (sort === "updated.asc") return "Oldest first";
  const [by, direction] = sort.split(".");
  return `By ${ORDERS[by] ?? by}, ${direction === "asc" ? "lowest" : "highest"} first`;
}

// Headings of the figures on a wide screen: a click sorts by one, a second click turns the order round.
export function columnHeads(form) {
  const buttons = COLUMNS.map((name) => h("button", { type: "button", class: "quiet", "data-sort": name }));
  const show = () => {
    const [name, direction] = form.elements.sort.value.split(".");
    const by = name === "updated" ? "" : name;
    // A search is ranked.
    const isSearch = form.elements.q.value.trim() !== "";
    for (const button of buttons) {
      button.disabled = isSearch;
      const isChosen = !isSearch && button.dataset.sort === by;
      const label = ORDERS[button.dataset.sort];
      const arrow = isChosen ? (direction === "asc" ? " ▴" : " ▾") : "";
      button.textContent = `${label[0].toUpperCase()}${label.slice(1)}${arrow}`;
      button.setAttribute("aria-pressed", String(isChosen));
    }
  };
  const sort = ({ currentTarget: button }) => {
    const { sort: select } = form.elements;
    const name = button.dataset.sort;
    select.value = select.value === name ? `${name || "updated"}.asc` : name;
    select.dispatchEvent(new Event("change", { bubbles: true }));
  };
  for (const button of buttons) button.addEventListener("click", sort);
  form.addEventListener("change", show);
  form.addEventListener("input", show);
  show();
  return h("div", { class: "columns", role: "group", "aria-label": "Sort by" }, buttons);
}

function orderChoices() {
  return Object.entries(ORDERS).flatMap(([name, label]) =>
    name ? [[name, `most ${label}`], [`${name}.asc`, `least ${label}`]] : [[name, label], ["updated.asc", "oldest"]],
  );
}

export function filterForm(asked, changed, signal) {
  const search = h("input", {
    type: "search",
    name: "q",
    id: "q",
    value: asked.q ?? "",
    placeholder: "Search every conversation",
    autocomplete: "off",
  });
  const form = h(
    "form",
    { class: "filters", role: "search", "aria-label": "Conversations" },
    h("div", { class: "wide" }, h("label", { for: "q", class: "unseen" }, "Search every conversation"), search),
    h(
      "details",
      { open: innerWidth > NARROW_PX || NAMES.slice(1).some((name) => asked[name]) },
      h("summary", {}, "Filters"),
      h(
        "div",
        { class: "choices" },
        choice("show", "Show", asked.show, [
          ["", "conversations"],
          ["hits", "every hit"],
        ]),
        choice("source", "Source", asked.source, [["", "any source"]]),
        choice("model", "Model", asked.model, [["", "any model"]]),
        choice("only", "Only", asked.only, [
          ["", "all"],
          ["compacted", "compacted"],
          ["failures", "with any failure"],
          ["failed", "a turn without an answer"],
          ["errors", "a provider error"],
          ["refused", "a refusal"],
          ["stopped", "a stopped turn"],
          ["tools", "a failed tool call"],
        ]),
        day("since", "From", asked.since),
        day("until", "To", asked.until),
        choice("sort", "Sort", asked.sort, orderChoices()),
      ),
    ),
  );
  wire(form, changed, signal);
  // The list works without them, and reports its own errors.
  offer(form, asked, signal).catch(() => {});
  return form;
}

function choice(name, label, chosen, options) {
  const select = h(
    "select",
    { name, id: `filter-${name}` },
    options.map(([value, word]) => h("option", { value }, word)),
  );
  select.value = chosen ?? "";
  return h("div", { class: select.id }, h("label", { for: select.id }, label), select);
}

function day(name, label, value) {
  const field = h("input", { type: "date", name, id: `filter-${name}`, value: value ?? "" });
  return h("div", {}, h("label", { for: field.id }, label), field);
}

async function offer(form, asked, signal) {
  const { sources, models } = await read("/filters", {}, signal);
  for (const [name, values] of [
    ["source", sources],
    ["model", models],
  ]) {
    const select = form.elements[name];
    select.append(...values.map((value) => h("option", { value }, value)));
    select.value = asked[name] ?? "";
  }
}

function wire(form, changed, signal) {
  let timer = null;
  const tell = () => {
    clearTimeout(timer);
    if (signal.aborted) return;
    const asked = Object.fromEntries(
      NAMES.map((name) => [name, form.elements[name].value]).filter(([, value]) => value),
    );
    const query = new URLSearchParams(asked);
    history.replaceState(null, "", query.size ? `#/?${query}` : "#/");
    changed(asked).catch(() => {});
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    tell();
  });
  form.addEventListener("change", tell);
  form.elements.q.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(tell, 180);
  });
}
