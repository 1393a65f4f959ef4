// Stylesheets loaded with their view, so that the first paint needs only those of the shell and the list.

import { h } from "./dom.js";

const coming = new Map();

export function styled(names) {
  return Promise.all(names.map((name) => coming.get(name) ?? load(name)));
}

function load(name) {
  const loaded = new Promise((resolve) => {
    const link = h("link", { rel: "stylesheet" });
    // Do not wait for a stylesheet that fails to load.
    link.addEventListener("load", resolve);
    link.addEventListener("error", resolve);
    // Beside this module, whose address has the version.
    link.href = new URL(`../css/${name}.css`, import.meta.url).pathname;
    document.head.append(link);
  });
  coming.set(name, loaded);
  return loaded;
}
