// One line of the list: a conversation, or a place where the words searched for were found.

import { h, marked } from "./dom.js";
import { linkTo, messageLink } from "./route.js";
import { Title } from "./title.js";
import { dayName, moment, plural, timeOfDay } from "./format.js";

const KINDS = { branch: "branch", delegate: "delegated" };

// Under a heading that names the day, the time is enough.
export function conversationRow(row, { isUnderDay }) {
  const when = `${isUnderDay ? "" : `${dayName(row.updated_at)}, `}${timeOfDay(row.updated_at)}`;
  const address = row.hit_seq === null ? linkTo(row.id) : messageLink(row.id, row.hit_seq);
  return h(
    "li",
    { class: "row", "data-id": row.id },
    new Title(row, { address }).element,
    row.snippet ? h("p", { class: "snippet" }, marked(row.snippet, row.marks)) : null,
    h(
      "p",
      { class: "facts" },
      h("time", { datetime: new Date(row.updated_at).toISOString() }, when),
      h("span", {}, row.source || "unknown source"),
      row.model ? h("span", {}, row.model) : null,
      h("span", {}, plural(row.messages, "message")),
      KINDS[row.kind] ? h("span", { class: "tag" }, KINDS[row.kind]) : null,
    ),
  );
}

export function hitRow(hit) {
  const address = hit.seq === null ? linkTo(hit.conversation_id) : messageLink(hit.conversation_id, hit.seq);
  return h(
    "li",
    { class: "row" },
    h("a", { href: address, class: "row-title" }, hit.title || "Untitled"),
    h("p", { class: "snippet" }, marked(hit.snippet, hit.marks)),
    h(
      "p",
      { class: "facts" },
      h("time", {}, moment(hit.created_at)),
      h("span", {}, hit.role),
      hit.output_id ? h("span", { class: "tag" }, "inside a tool output kept apart") : null,
      hit.seq === null ? null : h("span", {}, `message ${hit.seq}`),
    ),
  );
}
