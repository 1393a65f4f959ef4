// The search field and the filters. They live in the address, so that going back brings them back.

import { read } from "./api.js";
import { h } from "./dom.js";

const NARROW_PX = 640;
const NAMES = ["q", "show", "source", "model", "since", "until"];

export function isFiltered(asked) {
  return NAMES.some((name) => name !== "show" && asked[name]);
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
        day("since", "From", asked.since),
        day("until", "To", asked.until),
      ),
    ),
  );
  wire(form, changed, signal);
  // Without them the list still works; why they are missing is told where the list itself is fetched.
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
  return h("div", {}, h("label", { for: select.id }, label), select);
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
