// Files attached to a message: images are sent as images, text files as text. Nothing is stored before it is sent.

import { announce } from "./announce.js";
import { clear, h } from "./dom.js";
import { size } from "./format.js";

const IMAGE_TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const MAX_TEXT_BYTES = 400_000;
// All of them together, below the gateway's limit on a request.
const MAX_IMAGE_BYTES = 8_000_000;

// What is attached to each draft of this tab. It outlives the view, so that a file which is still being read is not lost
// when a new chat becomes a conversation.
const drafts = new Map();

export function attachmentsOf(draft) {
  if (!drafts.has(draft)) drafts.set(draft, new Attachments());
  return drafts.get(draft);
}

export function moveAttachments(draft, name) {
  const attachments = attachmentsOf(draft);
  drafts.delete(draft);
  drafts.set(name, attachments);
}

class Attachments {
  constructor() {
    this.files = [];
    this.input = h("input", { type: "file", multiple: true, hidden: true, "aria-label": "Files to attach" });
    this.input.addEventListener("change", async () => {
      await this.add(this.input.files);
      this.input.value = "";
    });
    this.button = h(
      "button",
      { type: "button", class: "attach", title: "Attach files", "aria-label": "Attach", onclick: () => this.input.click() },
      "Attach",
    );
    this.list = h("ul", { class: "attached", "aria-label": "Attached files" });
    this.problem = h("p", { class: "small", role: "alert" });
    this.element = h("div", { class: "attachments" }, this.input, this.list, this.problem);
  }

  async add(files) {
    this.problem.textContent = "";
    for (const file of files) {
      try {
        this.files.push(await this.read(file));
        announce(`${file.name} attached.`);
      } catch (error) {
        this.problem.textContent = error.message;
      }
    }
    this.show();
  }

  async read(file) {
    const name = file.name || "pasted image";
    if (IMAGE_TYPES.includes(file.type)) {
      const all = this.files.reduce((sum, { bytes }) => sum + bytes, file.size);
      if (all > MAX_IMAGE_BYTES) throw new Error(`${name}: images may have 8 MB in all.`);
      return { name, bytes: file.size, url: await dataUrl(file) };
    }
    if (file.size > MAX_TEXT_BYTES) throw new Error(`${name}: a text file may have 400 KB. Put it into the workspace instead.`);
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      if (!text.includes("\0")) return { name, bytes: 0, text };
    } catch {
      // Not UTF-8: refused below.
    }
    throw new Error(`${name} is neither text nor a PNG, JPEG, GIF or WebP image.`);
  }

  show() {
    clear(
      this.list,
      this.files.map((file) =>
        h(
          "li",
          {},
          file.url ? h("img", { src: file.url, alt: "", width: 24, height: 24 }) : null,
          `${file.name}${file.text === undefined ? "" : ` · ${size(file.text.length)}`}`,
          h("button", { type: "button", class: "quiet", "aria-label": `Remove ${file.name}`, onclick: () => this.remove(file) }, "×"),
        ),
      ),
    );
  }

  remove(file) {
    this.files = this.files.filter((other) => other !== file);
    this.show();
  }

  // The content of a message: its text, or parts where something is attached. Empties the list.
  take(text) {
    const files = this.files;
    this.files = [];
    this.show();
    if (!files.length) return text;
    const texts = files.filter((file) => file.text !== undefined).map((file) => `${file.name}:\n${fenced(file.text)}`);
    const images = files.filter((file) => file.url).map(({ url }) => ({ type: "image_url", image_url: { url } }));
    return [{ type: "text", text: [text, ...texts].filter(Boolean).join("\n\n") || "See the image." }, ...images];
  }

  get isEmpty() {
    return this.files.length === 0;
  }
}

// A fence longer than any in the file.
function fenced(text) {
  const longest = Math.max(2, ...[...text.matchAll(/`{3,}/g)].map(([run]) => run.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}\n${text}\n${fence}`;
}

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error(`${file.name} could not be read.`));
    reader.readAsDataURL(file);
  });
}
