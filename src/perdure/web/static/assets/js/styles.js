// Stylesheets of a view, loaded with it: the first paint waits only for what the frame and the list need.

import { h } from "./dom.js";

const coming = new Map();

export function styled(names) {
  return Promise.all(names.map((name) => coming.get(name) ?? load(name)));
}

function load(name) {
  const loaded = new Promise((resolve) => {
    const link = h("link", { rel: "stylesheet" });
    // A view without its colours is still a view: what fails to load is not waited for.
    link.addEventListener("load", resolve);
    link.addEventListener("error", resolve);
    link.href = `/assets/css/${name}.css`;
    document.head.append(link);
  });
  coming.set(name, loaded);
  return loaded;
}
