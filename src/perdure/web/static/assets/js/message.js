// One message of the timeline: author, text, reasoning, images, and what can be done with it.

import { cutOffWords } from "./event.js";
import { copyButton } from "./copy.js";
import { h, isSafeImage } from "./dom.js";
import { markdown } from "./markdown.js";
import { lazyText } from "./lazy_text.js";
import { linkTo, messageLink } from "./route.js";
import { moment, plural, size, timeOfDay } from "./format.js";

const SPEAKERS = {
  user: "You",
  assistant: "Assistant",
  tool: "Tool",
  handoff: "Handoff",
  note: "Note",
  system: "System",
};

// `actions(message)` returns further buttons of a message, such as Edit.
export function messageElement(message, conversationId, actions = () => null) {
  return h(
    "article",
    {
      class: `message ${message.kind}${isBare(message) ? " bare" : ""}`,
      id: `m-${message.seq}`,
      tabindex: "-1",
      "aria-label": `${speaker(message)}, message ${message.seq}`,
    },
    heading(message, conversationId, actions(message)),
    message.reasoning ? thinking(message.reasoning) : null,
    message.kind === "handoff" ? handoffCard(message, conversationId) : body(message, conversationId),
    message.cut_off ? h("p", { class: "muted small cut-off" }, cutOff(message.cut_off)) : null,
    message.images.map(picture),
  );
}

function cutOff(why) {
  return why === "interrupted" ? "Stopped here." : `Cut off here (${cutOffWords(why)}).`;
}

// A reply that only calls tools; the calls are shown below it.
function isBare(message) {
  return !message.text && !message.reasoning && !message.images.length;
}

export function speaker(message) {
  return SPEAKERS[message.kind] ?? SPEAKERS[message.role] ?? message.role;
}

function heading(message, conversationId, actions) {
  return h(
    "header",
    {},
    h("strong", {}, speaker(message)),
    h(
      "time",
      { datetime: new Date(message.created_at).toISOString(), title: moment(message.created_at) },
      timeOfDay(message.created_at),
    ),
    h("span", { class: "tokens", title: "estimated" }, plural(message.tokens, "token")),
    h("span", { class: "tools" }, actions, message.text && !message.is_cut ? copyButton(() => message.text, "Copy message") : null),
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
  // Only a model's text is Markdown; text of people and tools is shown verbatim.
  const text = message.kind === "assistant"
    ? h("div", { class: "prose" }, markdown(message.text))
    : h("div", { class: "plain", dir: "auto" }, message.text);
  if (!message.is_cut) return text;
  return h(
    "div",
    {},
    text,
    lazyText({
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
    h("div", { class: "plain", dir: "auto" }, text),
  );
}

function handoffCard(message, conversationId) {
  const open = { class: "button", href: linkTo(conversationId, `/handoff/${message.seq}`) };
  // The facts of the compaction arrive with its event.
  const facts = h("div", { class: "compaction-facts" });
  const text = h(
    "div",
    { class: "prose handoff-text", tabindex: "0", role: "group", "aria-label": "Text of the handoff" },
    markdown(message.text, { links: false }),
  );
  return h(
    "div",
    { class: "handoff-card" },
    h("p", {}, "Compacted here: this handoff took the place of the messages above in the prompt. They all stay stored."),
    facts,
    h("p", {}, h("a", open, "What was kept: the handoff and its sources")),
    h("details", {}, h("summary", {}, `Its text · ${plural(message.tokens, "token")}`), text),
  );
}

function picture(image) {
  if (isSafeImage(image.data_url))
    return h("img", { class: "shown", src: image.data_url, alt: "Image sent with this message", loading: "lazy" });
  return h("p", { class: "muted small" }, `Image not loaded: ${image.source}`);
}
