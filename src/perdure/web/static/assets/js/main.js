// The shell: sign-in, routing, and the lifetime of views.

import { h, clear } from "./dom.js";
import { startLive } from "./live.js";
import { parseRoute } from "./route.js";
import { styled } from "./styles.js";
import { startTheme } from "./theme.js";
import { startSession, storeToken, takeToken } from "./token.js";

// Each view's module and its own stylesheets.
const VIEWS = {
  conversations: [() => import("./conversations.js"), []],
  conversation: [() => import("./conversation.js"), ["timeline", "chat"]],
  new: [() => import("./conversation.js"), ["timeline", "chat"]],
  context: [() => import("./context.js"), ["timeline", "chart"]],
  handoff: [() => import("./handoff.js"), ["timeline", "handoff"]],
  usage: [() => import("./usage.js"), ["chart", "usage"]],
  approvals: [() => import("./approvals.js"), []],
};
const STATES = { live: "", lost: "Not connected; trying again…", locked: "" };

const main = document.getElementById("main");
let current = { route: {}, controller: new AbortController(), view: null };

async function follow() {
  takeToken();
  startSession();
  const route = parseRoute(location.hash);
  for (const link of document.querySelectorAll("nav [data-view]")) {
    const isHere = link.dataset.view === route.name;
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  // A view may handle a new address itself, such as another message of its conversation.
  if (current.view?.follow?.(route)) return;
  current.controller.abort();
  const controller = new AbortController();
  current = { route, controller, view: null, isLater: current.route.name !== undefined };
  await open(route, controller.signal);
}

async function open(route, signal) {
  const place = h("div", { class: `view ${route.name}` });
  try {
    if (!(route.name in VIEWS)) throw new Error("There is nothing at this address.");
    const [load, sheets] = VIEWS[route.name];
    const [module] = await Promise.all([load(), styled(sheets)]);
    if (signal.aborted) return;
    clear(main, place);
    scrollTo(0, 0);
    const view = await module.open({ place, route, signal });
    if (!signal.aborted) current.view = view;
    // The focused element went with the previous view: focus the new one.
    if (document.activeElement === document.body && current.isLater) main.focus({ preventScroll: true });
  } catch (error) {
    if (!signal.aborted) clear(main, error.status === 401 ? doorway() : problem(error));
  }
}

function problem(error) {
  return h(
    "div",
    { class: "problem", role: "alert" },
    h("h1", {}, "This could not be shown"),
    h("p", {}, error.message),
    h("p", {}, h("a", { href: "#/" }, "Back to the conversations")),
  );
}

function doorway() {
  const field = h("input", { id: "token", type: "password", autocomplete: "off", required: true });
  const enter = (event) => {
    event.preventDefault();
    storeToken(field.value.trim());
    location.reload();
  };
  return h(
    "form",
    { class: "doorway", onsubmit: enter },
    h("h1", {}, "A token is needed"),
    h(
      "p",
      {},
      "Open the address that Perdure printed when it started, or paste its token here. This browser stays signed in until it is closed.",
    ),
    h("label", { for: "token" }, "Token"),
    field,
    h("button", { class: "primary", type: "submit" }, "Open"),
  );
}

takeToken();
startTheme(document.getElementById("theme"));
startLive((state) => {
  document.getElementById("link-state").textContent = STATES[state];
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", follow);
follow();
