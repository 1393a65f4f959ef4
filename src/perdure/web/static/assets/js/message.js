// One message of the story: who spoke, what was said, what was thought, what was shown.

import { h, isSafeImage } from "./dom.js";
import { markdown } from "./markdown.js";
import { openedText } from "./opened.js";
import { linkTo, messageLink } from "./route.js";
import { count, moment, plural, size, timeOfDay } from "./words.js";

const SPEAKERS = {
  user: "You",
  assistant: "Assistant",
  tool: "Tool",
  handoff: "Handoff",
  note: "Note",
  system: "System",
};

export function messageElement(message, conversationId) {
  return h(
    "article",
    {
      class: `message ${message.kind}${isBare(message) ? " bare" : ""}`,
      id: `m-${message.seq}`,
      tabindex: "-1",
      "aria-label": `${speaker(message)}, message ${message.seq}`,
    },
    heading(message, conversationId),
    message.reasoning ? thinking(message.reasoning) : null,
    message.kind === "handoff" ? handoffCard(message, conversationId) : body(message, conversationId),
    message.images.map(picture),
  );
}

// A reply that only calls tools: its calls stand below it.
function isBare(message) {
  return !message.text && !message.reasoning && !message.images.length;
}

export function speaker(message) {
  return SPEAKERS[message.kind] ?? SPEAKERS[message.role] ?? message.role;
}

function heading(message, conversationId) {
  return h(
    "header",
    {},
    h("strong", {}, speaker(message)),
    h(
      "time",
      { datetime: new Date(message.created_at).toISOString(), title: moment(message.created_at) },
      timeOfDay(message.created_at),
    ),
    h("span", { title: "estimated tokens" }, `${count(message.tokens)} tok`),
    h(
      "a",
      {
        class: "permalink",
        href: messageLink(conversationId, message.seq),
        "aria-label": `Link to message ${message.seq}`,
      },
      `#${message.seq}`,
    ),
  );
}

function body(message, conversationId) {
  if (!message.text) return null;
  // Only what a model wrote is read as Markdown; what people and tools say is shown letter by letter.
  const isWritten = message.kind === "assistant" && !message.is_cut;
  const text = isWritten
    ? h("div", { class: "prose" }, markdown(message.text))
    : h("div", { class: "plain" }, message.text);
  if (!message.is_cut) return text;
  return h(
    "div",
    {},
    text,
    openedText({
      conversationId,
      address: `m:${message.seq}`,
      label: `Show all ${size(message.chars)}`,
      replaces: text,
    }),
  );
}

export function thinking(text) {
  return h(
    "details",
    { class: "thinking" },
    h("summary", {}, `Thinking · ${size(text.length)}`),
    h("div", { class: "plain" }, text),
  );
}

function handoffCard(message, conversationId) {
  const open = { class: "button", href: linkTo(conversationId, `/handoff/${message.seq}`) };
  const text = h("div", { class: "plain handoff-text", tabindex: "0" }, message.text);
  return h(
    "div",
    { class: "handoff-card" },
    h("p", {}, "From here on, this handoff stands for the messages before it. They are all still here, above."),
    h("p", {}, h("a", open, "Open the handoff and its sources")),
    h("details", {}, h("summary", {}, `Its text · ${plural(message.tokens, "token")}`), text),
  );
}

function picture(image) {
  if (isSafeImage(image.data_url))
    return h("img", { class: "shown", src: image.data_url, alt: "Picture sent with this message", loading: "lazy" });
  return h("p", { class: "muted small" }, `Picture kept elsewhere, not loaded: ${image.source}`);
}
