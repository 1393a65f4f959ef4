// Edit a question or regenerate an answer. Both continue in a branch, so that the conversation stays as it was.

import { announce } from "./announce.js";
import { h } from "./dom.js";
import { branchBefore } from "./gateway.js";
import { linkTo } from "./route.js";

// Messages to send once their conversation is open, by its id.
const outbox = new Map();

export function takeOutgoing(conversationId) {
  const text = outbox.get(conversationId);
  outbox.delete(conversationId);
  return text;
}

// `send` sends a message or a command in the open conversation.
export function messageActions(conversationId, send) {
  return (message) => {
    const isPlain = message.text && !message.is_cut && !message.images.length;
    if (message.kind === "user" && isPlain) return editButton(message, conversationId);
    if (message.kind === "assistant" && message.text && !message.tool_calls.length)
      return actionButton("Regenerate", `Regenerate message ${message.seq}`, () => send(`/retry m:${message.seq}`));
    return null;
  };
}

function actionButton(text, label, onclick) {
  return h("button", { type: "button", class: "action", "aria-label": label, onclick }, text);
}

function editButton(message, conversationId) {
  const edit = () => {
    const article = button.closest(".message");
    const body = article.querySelector(".plain");
    const form = editForm(message, conversationId, () => {
      form.replaceWith(body);
      button.focus();
    });
    body.replaceWith(form);
    form.elements.text.focus();
  };
  const button = actionButton("Edit", `Edit message ${message.seq}`, edit);
  return button;
}

function editForm(message, conversationId, leave) {
  const field = h("textarea", { name: "text", rows: 4, dir: "auto", value: message.text, "aria-label": "Edited message" });
  const problem = h("p", { class: "small", role: "alert" });
  const submit = async (event) => {
    event.preventDefault();
    const text = field.value.trim();
    if (!text) return;
    try {
      const branch = await branchBefore(conversationId, message.seq);
      outbox.set(branch, text);
      location.hash = linkTo(branch);
      announce("Sent in a branch.");
    } catch (error) {
      problem.textContent = error.message;
    }
  };
  const form = h(
    "form",
    { class: "editing", onsubmit: submit },
    field,
    h(
      "div",
      { class: "answers" },
      h("button", { type: "submit", class: "primary" }, "Send in a branch"),
      h("button", { type: "button", onclick: leave }, "Cancel"),
    ),
    problem,
  );
  form.addEventListener("keydown", (event) => event.key === "Escape" && leave());
  return form;
}
