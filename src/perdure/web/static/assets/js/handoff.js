// A handoff: its sections and record on the left, their sources on the right, linked in both directions.

import { conversationPath, read } from "./api.js";
import { clear, h } from "./dom.js";
import { Facts } from "./facts.js";
import { handoffActions } from "./handoff_actions.js";
import { reasonWords } from "./event.js";
import { Head } from "./head.js";
import { lazyText } from "./lazy_text.js";
import { linkTo, messageLink, nameProperly } from "./route.js";
import { contents, indexElement, recordElement } from "./record.js";
import { Sources } from "./sources.js";
import { count, dollars, moment, plural } from "./format.js";

const HEADINGS = {
  current: "What the model reads now",
  replaced: "What the model read until the next compaction",
  undone: "What the model read until this compaction was undone",
};

export async function open({ place, route, signal }) {
  const known = await read(conversationPath(route.id), {}, signal);
  nameProperly(route, known.id);
  const seq = route.seq ?? known.handoffs.at(-1);
  if (seq === undefined)
    return void clear(
      place,
      new Head(known, "handoff").element,
      h("p", { class: "empty" }, "This conversation has not been compacted: there is no handoff."),
    );
  const handoff = await read(`${conversationPath(known.id)}/handoffs/${seq}`, {}, signal);
  const sources = new Sources(known.id, handoff.facts, known.handoffs, (fact) => facts.choose(fact));
  const facts = new Facts(handoff, known.id, (fact) => sources.show(fact));
  clear(
    place,
    new Head(known, "handoff").element,
    steps(known, seq),
    about(handoff),
    handoffActions(known, handoff, signal),
    h(
      "div",
      { class: "handoff-grid" },
      h(
        "section",
        { "aria-label": "The handoff" },
        h("h2", {}, HEADINGS[handoff.standing]),
        kept(handoff),
        legend(handoff),
        // Without a model, the record is most of it.
        handoff.is_digest ? [recordElement(handoff.record, known.id), facts.element] : facts.element,
        handoff.is_digest ? null : recordElement(handoff.record, known.id),
        indexElement(handoff.index),
      ),
      h("section", { "aria-label": "Its sources", class: "right" }, sources.element, left(known.id, handoff)),
    ),
  );
}

function steps(known, seq) {
  const at = known.handoffs.indexOf(seq);
  if (known.handoffs.length < 2) return null;
  const to = (index, words) =>
    known.handoffs[index] === undefined
      ? h("span", { class: "muted" }, words)
      : h("a", { href: linkTo(known.id, `/handoff/${known.handoffs[index]}`) }, words);
  return h(
    "nav",
    { class: "steps", "aria-label": "Handoffs" },
    to(at - 1, "← Earlier"),
    h("span", {}, `Handoff ${count(at + 1)} of ${count(known.handoffs.length)}`),
    to(at + 1, "Later →"),
  );
}

function about(handoff) {
  const { before_tokens: before, after_tokens: after } = handoff;
  const shrunk = before === null ? "" : `${count(before)} → ${count(after)} tokens`;
  const why = handoff.reason ? `because ${reasonWords(handoff.reason)}` : "";
  const author = handoff.is_digest ? "written by code, without a model" : `written by ${handoff.model}`;
  const cost = handoff.is_digest ? "" : handoff.cost_usd === null ? "" : `for ${dollars(handoff.cost_usd)}`;
  return h(
    "p",
    { class: "facts about" },
    [
      moment(handoff.created_at),
      [shrunk, why].filter(Boolean).join(", "),
      `${author} ${cost}`.trim(),
      `covers ${plural(handoff.message_count, "message")}`,
      handoff.focus ? `focus: ${handoff.focus}` : "",
    ]
      .filter(Boolean)
      .map((words) => h("span", {}, words)),
  );
}

function kept(handoff) {
  const words = contents(handoff);
  return words.length ? h("p", { class: "contents" }, h("strong", {}, "Kept: "), `${words.join("; ")}.`) : null;
}

function legend(handoff) {
  const unsupported = handoff.facts.filter((fact) => !fact.is_supported).length;
  const supported = handoff.facts.length - unsupported;
  if (!handoff.facts.length)
    return h("p", { class: "muted small" }, "It contains no paths, numbers or names that code can check.");
  return h(
    "div",
    { class: "small" },
    h(
      "p",
      {},
      h("span", { class: "fact sample" }, plural(supported, "fact")),
      " found in the covered messages. Select one to see its sources.",
    ),
    unsupported
      ? h(
          "p",
          {},
          h("span", { class: "fact unsupported sample" }, plural(unsupported, "fact")),
          " not found in any of them: check before you rely on it.",
        )
      : null,
    handoff.findings.length
      ? h(
          "details",
          {},
          h("summary", {}, `Findings of the check (${handoff.findings.length})`),
          h(
            "ul",
            {},
            handoff.findings.map((finding) => h("li", {}, finding)),
          ),
        )
      : null,
  );
}

// Messages that left the prompt have an address, which opens here and in the model's tools.
function left(conversationId, handoff) {
  const isUndone = handoff.standing === "undone";
  return h(
    "section",
    { class: "left-view" },
    h("h2", {}, isUndone ? "What had left the prompt" : "What left the prompt"),
    h(
      "p",
      { class: "muted small" },
      isUndone
        ? "The undo put these messages back into the prompt."
        : "The model no longer reads these messages; they are all stored. It can open them by their address, and so can you.",
    ),
    h(
      "ul",
      { class: "covers" },
      handoff.covers.map((cover) =>
        h(
          "li",
          {},
          h(
            "p",
            {},
            h(
              "strong",
              {},
              cover.lo === cover.hi
                ? `Message ${count(cover.lo)}`
                : `Messages ${count(cover.lo)} to ${count(cover.hi)}`,
            ),
            " ",
            h("code", {}, cover.address),
            " ",
            h("a", { href: messageLink(conversationId, cover.lo) }, "in the timeline"),
          ),
          lazyText({
            conversationId,
            address: cover.address,
            label: `Open ${plural(cover.messages, "message")} as text`,
          }),
        ),
      ),
    ),
  );
}
