// Tables of figures: the first cell of each row names it, the others are right-aligned.

import { h } from "./dom.js";

// A column is a name, or a name and a class.
export function table({ caption = null, columns, rows }) {
  const named = columns.map((column) => (Array.isArray(column) ? column : [column, ""]));
  const kinds = named.map(([, kind], i) => [i ? "figure" : "", kind].filter(Boolean).join(" "));
  const head = named.map(([name], i) => (name ? h("th", { scope: "col", class: kinds[i] }, name) : h("td")));
  const body = rows.map(([name, ...figures]) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, name),
      figures.map((figure, i) => h("td", { class: kinds[i + 1] }, figure)),
    ),
  );
  const built = h("table", {}, caption ? h("caption", {}, caption) : null, h("thead", {}, h("tr", {}, head)));
  built.append(h("tbody", {}, body));
  return built;
}

// A table that may be wider than the screen: it scrolls by itself, and the keyboard reaches it.
export function wideTable(label, content) {
  return h("div", { class: "scrolls", tabindex: "0", role: "group", "aria-label": label }, table(content));
}
