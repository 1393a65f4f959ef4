// A conversation's title, and the field it turns into when somebody wants another one.

import { announce } from "./announce.js";
import { clear, h } from "./dom.js";
import { command } from "./gateway.js";

export function titleEditor(conversation, address, heading = "div") {
  const place = h(heading, { class: "title" });
  const show = () => {
    const name = conversation.title || "Untitled";
    const words = address ? h("a", { href: address, class: "row-title" }, name) : h("span", { class: "row-title" }, name);
    clear(place, words, h("button", { type: "button", class: "quiet rename", "aria-label": `Rename “${name}”`, onclick: edit }, "Rename"));
  };
  const edit = () => {
    const field = h("input", { value: conversation.title, "aria-label": "New title", maxlength: 200 });
    const problem = h("span", { class: "small", role: "alert" });
    const leave = () => { show(); place.querySelector("button").focus(); };
    const save = async (event) => {
      event.preventDefault();
      const title = field.value.trim();
      if (!title || title === conversation.title) return leave();
      try {
        await command(conversation.id, `/title ${title}`);
        conversation.title = title;
        announce("Renamed.");
        leave();
      } catch (error) {
        problem.textContent = error.message;
      }
    };
    const onKey = (event) => { if (event.key === "Escape") leave(); };
    clear(place, h("form", { class: "renaming", onsubmit: save, onkeydown: onKey },
      field, h("button", { type: "submit", class: "primary" }, "Save"), h("button", { type: "button", onclick: leave }, "Cancel"), problem));
    field.select();
  };
  show();
  return place;
}
