// What was allowed with "Always allow", each with a button that takes it back; and signing out.

import { announce } from "./announce.js";
import { clear, h } from "./dom.js";
import { listApprovals, revokeApproval } from "./gateway.js";
import { endSession } from "./token.js";

export async function open({ place, signal }) {
  document.title = "Approvals · Perdure";
  const list = h("div", { class: "approvals" });
  clear(
    place,
    h("h1", {}, "Approvals"),
    h("p", { class: "muted" }, "Actions that run without asking, because you chose “Always allow”."),
    list,
    h("h2", {}, "This browser"),
    h("p", {}, h("button", { type: "button", onclick: signOut }, "Sign out")),
  );
  await show(list, signal);
}

async function show(list, signal) {
  const approvals = await listApprovals(signal);
  if (!approvals.length)
    return clear(list, h("p", { class: "empty" }, "None: every dangerous action is asked about."));
  const row = ({ kind, explanation }) => {
    const problem = h("span", { class: "small", role: "alert" });
    const revoke = async () => {
      try {
        await revokeApproval(kind);
        announce("Revoked.");
        await show(list, signal);
      } catch (error) {
        problem.textContent = error.message;
      }
    };
    return h(
      "li",
      { class: "granted" },
      h("div", {}, h("strong", {}, kind), h("p", { class: "muted small" }, explanation || "No description."), problem),
      h("button", { type: "button", "aria-label": `Revoke ${kind}`, onclick: revoke }, "Revoke"),
    );
  };
  clear(list, h("ul", { class: "rows" }, approvals.map(row)));
}

async function signOut() {
  await endSession();
  location.reload();
}
