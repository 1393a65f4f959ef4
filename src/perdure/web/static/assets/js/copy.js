// A button that copies a text to the clipboard.

import { announce } from "./announce.js";
import { h } from "./dom.js";

const SHOWN_MS = 1_500;

export function copyButton(textOf, label = "Copy") {
  const button = h("button", { type: "button", class: "action copy", "aria-label": label }, "Copy");
  button.addEventListener("click", async () => {
    const isCopied = await copyText(textOf());
    button.textContent = isCopied ? "Copied" : "Not copied";
    announce(isCopied ? "Copied." : "The browser does not allow copying here.");
    setTimeout(() => (button.textContent = "Copy"), SHOWN_MS);
  });
  return button;
}

// Browsers offer the clipboard to pages served by TLS or from this machine; elsewhere a selection is copied.
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = h("textarea", { class: "unseen", value: text, "aria-hidden": "true" });
    document.body.append(field);
    field.select();
    const isCopied = document.execCommand("copy");
    field.remove();
    return isCopied;
  }
}
