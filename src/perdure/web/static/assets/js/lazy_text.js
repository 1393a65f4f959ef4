// A long text at an address, loaded on demand, page by page.

import { conversationPath, read } from "./api.js";
import { clear, h } from "./dom.js";
import { count } from "./format.js";

const PAGE_CHARS = 20_000;

export function openText(conversationId, address, offset = 0, signal = undefined) {
  return read(`${conversationPath(conversationId)}/open`, { address, offset, limit: PAGE_CHARS }, signal);
}

// A button that is replaced by the text. With `replaces`, the truncated text is removed.
export function lazyText({ conversationId, address, label, replaces = null }) {
  const place = h("div", { class: "opened" });
  const opener = h("button", { type: "button", onclick: () => turn(0) }, label);
  const text = h("pre", { class: "plain opened-text", tabindex: "0" });
  const turn = async (offset) => {
    opener.disabled = true;
    try {
      const page = await openText(conversationId, address, offset);
      replaces?.remove();
      text.textContent = page.text;
      clear(place, text, pager(page, turn));
      text.focus({ preventScroll: true });
    } catch (error) {
      opener.disabled = false;
      clear(place, opener, h("p", { role: "alert" }, error.message));
    }
  };
  place.append(opener);
  return place;
}

function pager(page, turn) {
  const end = page.offset + Array.from(page.text).length;
  const back = h(
    "button",
    { type: "button", disabled: page.offset === 0, onclick: () => turn(Math.max(0, page.offset - PAGE_CHARS)) },
    "Earlier",
  );
  const on = h(
    "button",
    { type: "button", disabled: page.next_offset === null, onclick: () => turn(page.next_offset) },
    "Later",
  );
  const where = h(
    "span",
    { role: "status" },
    `Characters ${count(page.offset + 1)} to ${count(end)} of ${count(page.total_chars)} · ${page.address}`,
  );
  return h("div", { class: "pager" }, back, on, where);
}
