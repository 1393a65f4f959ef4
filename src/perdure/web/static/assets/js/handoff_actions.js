// Actions on a handoff: undo it, or compact again with a topic in full detail.

import { h } from "./dom.js";
import { command } from "./gateway.js";
import { linkTo } from "./route.js";

export function handoffActions(known, handoff, signal) {
  const status = h("div", { class: "command-status", role: "status" });
  const run = async (form, words, text) => {
    const controls = [...form.querySelectorAll("button, input")];
    for (const control of controls) control.disabled = true;
    status.textContent = words;
    try {
      status.textContent = await command(known.id, text, signal);
      status.append(" ", h("a", { href: linkTo(known.id) }, "Go to the timeline"));
    } catch (error) {
      status.textContent = error.message;
      for (const control of controls) control.disabled = false;
    }
  };
  return h("div", { class: "actions card" }, undoForm(handoff, run), focusForm(handoff, run), status);
}

function undoForm(handoff, run) {
  if (!handoff.can_undo)
    return h(
      "p",
      { class: "muted small" },
      handoff.standing === "undone"
        ? "This compaction was taken back: the model reads the messages themselves again."
        : "Only the newest compaction can be taken back, while the conversation still stands on it.",
    );
  const dialog = h(
    "dialog",
    { "aria-label": "Take the compaction back" },
    h(
      "p",
      {},
      "The messages this handoff stands for come back into the prompt, and the handoff leaves it. Nothing is deleted; the next call may compact again if the prompt is too long.",
    ),
    h(
      "form",
      { method: "dialog", class: "row" },
      h("button", { value: "no" }, "Keep it"),
      h("button", { value: "yes", class: "primary" }, "Take it back"),
    ),
  );
  const form = h("form", {}, h("button", { type: "submit" }, "Undo this compaction"), dialog);
  form.addEventListener("submit", (event) => {
    if (event.target !== form) return;
    event.preventDefault();
    dialog.returnValue = "no";
    dialog.showModal();
  });
  dialog.addEventListener("close", () => {
    if (dialog.returnValue === "yes") run(form, "Taking it back…", "/undo compaction");
  });
  return form;
}

// A new compaction builds on this handoff; after an undo it would summarise the same messages again.
function focusForm(handoff, run) {
  const field = h("input", {
    id: "focus",
    value: handoff.focus,
    placeholder: "a topic, a file, a decision",
    maxlength: 500,
  });
  const submit = async (event) => {
    event.preventDefault();
    await run(form, "Compacting…", `/compress ${field.value.trim()}`.trim());
  };
  const form = h(
    "form",
    { class: "focus", onsubmit: submit },
    h("label", { for: "focus" }, "Compress again, with focus on"),
    field,
    h("button", { type: "submit" }, "Compress"),
  );
  return form;
}
