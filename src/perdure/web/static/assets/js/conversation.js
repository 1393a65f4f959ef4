// One conversation: header, timeline and chat. #/new is the same without messages.

import { conversationPath, read } from "./api.js";
import { Chat } from "./chat.js";
import { clear, h } from "./dom.js";
import { Head } from "./head.js";
import { concerns, onChange } from "./live.js";
import { singleFlight } from "./single_flight.js";
import { messageActions, takeOutgoing } from "./message_actions.js";
import { linkTo, nameProperly } from "./route.js";
import { Timeline } from "./timeline.js";

export async function open({ place, route, signal }) {
  return route.name === "new" ? openNew(place, signal) : openKept(place, route, signal);
}

function openNew(place, signal) {
  document.title = "New chat · Perdure";
  const intro = h(
    "div",
    { class: "intro" },
    h("h1", {}, "New chat"),
    h(
      "p",
      { class: "muted" },
      "Type a message, or / for commands. When the context fills, the older part is compacted into a handoff; every message stays stored and searchable.",
    ),
  );
  const chat = new Chat({
    conversationId: null,
    signal,
    onBegun: (id) => history.replaceState(null, "", linkTo(id)),
    // A lost connection is shown here; a failed turn has its reason in the log.
    onDone: (id, turn) => turn.hasFailed || reopen(id, signal),
  });
  clear(place, intro, chat.turns, chat.element);
  chat.composer.focus();
  return null;
}

// An edited message is sent in its branch once the branch is open.
function sendOutgoing(chat, conversationId) {
  const text = takeOutgoing(conversationId);
  if (text) chat.send(text);
}

// The conversation to show next, read beforehand: its composer replaces the other one at once, so no key is lost.
let next = null;

// After the first turn the new conversation is shown like any other.
async function reopen(id, signal) {
  next = { id, known: await read(conversationPath(id), {}, signal).catch(() => null) };
  if (signal.aborted) return;
  next.isTyping = document.activeElement?.id === "say";
  if (location.hash === linkTo(id)) dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = linkTo(id);
}

async function openKept(place, route, signal) {
  const path = conversationPath(route.id);
  const prepared = next?.id === route.id ? next : null;
  next = null;
  const known = prepared?.known ?? (await read(path, {}, signal));
  nameProperly(route, known.id);
  const head = new Head(known, "timeline");
  const actions = messageActions(known.id, (text) => chat.send(text));
  const timeline = new Timeline(known.id, known.last_seq, signal, actions);
  const chat = new Chat({ conversationId: known.id, signal, onKept: () => refresh(), onDone: (id) => settle(id) });
  clear(place, head.element, h("h2", { class: "unseen" }, "Messages"), timeline.element, chat.turns, chat.element);
  if (prepared?.isTyping) chat.composer.focus();
  chat.gauge.show(known.gauge);
  const refresh = singleFlight(async () => {
    const now = await read(path, {}, signal);
    head.show(now);
    chat.gauge.show(now.gauge);
    await timeline.grow(now.last_seq);
  });
  const settle = async (id) => {
    if (id && id !== known.id) return reopen(id, signal);
    await refresh().catch(() => {});
    chat.letGo();
  };
  // While this page's own turn streams, the timeline is not reloaded.
  onChange((change) => {
    if (!concerns(change, known.id) || chat.isTelling) return;
    refresh().catch(() => {});
    if (!chat.isRunning) chat.takeUp();
  }, signal);
  const isThere = (seq) => seq !== null && seq >= 1 && seq <= timeline.lastSeq;
  await timeline.begin(isThere(route.seq) ? route.seq : null, route.parameters.event);
  if (route.asked !== null && !isThere(route.seq)) head.element.after(missing(route.asked, timeline.lastSeq));
  sendOutgoing(chat, known.id);
  chat.takeUp();
  return { follow: (next) => followWithin(next, head, timeline, isThere) };
}

function followWithin(next, head, timeline, isThere) {
  if (next.name !== "conversation" || next.id !== head.titled.id || !isThere(next.seq)) return false;
  document.querySelector(".missing")?.remove();
  head.show(head.titled);
  timeline.goTo(next.seq, { event: next.parameters.event }).catch(() => {});
  return true;
}

function missing(requested, lastSeq) {
  const newest = lastSeq ? ` The newest is #${lastSeq}, below.` : " It has no messages yet.";
  return h("p", { class: "missing", role: "status" }, `There is no message ${requested.slice(0, 40)} in this conversation.${newest}`);
}
