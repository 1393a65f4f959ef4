// Figures in rows: the first cell of each row names it, the others are right-aligned.

import { h } from "./dom.js";

export function table({ caption = null, columns, rows }) {
  const head = columns.map((name, i) => (name ? h("th", { scope: "col", class: i ? "figure" : "" }, name) : h("td")));
  const body = rows.map(([name, ...figures]) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, name),
      figures.map((figure) => h("td", { class: "figure" }, figure)),
    ),
  );
  const made = h("table", {}, caption ? h("caption", {}, caption) : null, h("thead", {}, h("tr", {}, head)));
  made.append(h("tbody", {}, body));
  return made;
}

// The same where it may be wider than the screen: it scrolls by itself, and the keyboard reaches it.
export function wideTable(label, given) {
  return h("div", { class: "scrolls", tabindex: "0", role: "group", "aria-label": label }, table(given));
}
