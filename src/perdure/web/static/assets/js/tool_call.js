// A tool call, folded to name, target, outcome, duration and size.

import { clear, h } from "./dom.js";
import { lazyText } from "./lazy_text.js";
import { messageLink } from "./route.js";
import { seconds, size, visible } from "./format.js";

// Outcomes other than success.
const STATES = { failed: "failed", refused: "refused", interrupted: "stopped" };

export class ToolCallCard {
  constructor(call, conversationId) {
    this.call = call;
    this.conversationId = conversationId;
    this.time = h("span", { class: "time" });
    this.state = h("span", { class: "state" }, call.is_for_client ? "waits for the client" : "running");
    this.size = h("span", { class: "size" });
    this.isComplete = false;
    this.result = h("div", { class: "result" });
    this.element = h(
      "details",
      { class: "tool-call", tabindex: "-1" },
      h(
        "summary",
        {},
        h("strong", {}, visible(call.name || "tool")),
        h("span", { class: "target" }, visible(call.target)),
        this.state,
        this.time,
        this.size,
      ),
      this.arguments(),
      this.result,
    );
  }

  arguments() {
    const { arguments: given } = this.call;
    const text = typeof given === "string" ? given : JSON.stringify(given, null, 2);
    return text && text !== "{}"
      ? h("pre", { class: "arguments", tabindex: "0", "aria-label": "Arguments" }, visible(text))
      : null;
  }

  // A stored result, which may be truncated or stored elsewhere.
  complete(message) {
    this.element.id = `m-${message.seq}`;
    this.time.textContent = seconds(message.seconds);
    this.size.textContent = size(message.output_chars ?? message.chars);
    this.end(message.state, message.exit_code);
    const text = h("pre", { class: "plain", tabindex: "0", "aria-label": "Result" }, message.text);
    clear(this.result, text, this.whole(message, text), this.permalink(message));
  }

  end(state, exitCode) {
    this.isComplete = true;
    const code = exitCode ? `exit ${exitCode}` : "";
    this.state.textContent = state === "failed" && code ? code : (STATES[state] ?? "");
    for (const name of Object.keys(STATES)) this.element.classList.toggle(name, name === state);
  }

  // The turn was stopped while the call ran; its result is unknown.
  stop() {
    if (!this.isComplete) this.end("interrupted");
  }

  whole(message, text) {
    const { conversationId } = this;
    if (message.output_id) {
      this.element.classList.add("spilled");
      return lazyText({
        conversationId,
        address: `output:${message.output_id}`,
        label: `Open the whole output · ${size(message.output_chars)}`,
      });
    }
    if (!message.is_cut) return null;
    return lazyText({
      conversationId,
      address: `m:${message.seq}`,
      label: `Show all ${size(message.chars)}`,
      replaces: text,
    });
  }

  permalink(message) {
    return h(
      "a",
      {
        class: "permalink",
        href: messageLink(this.conversationId, message.seq),
        "aria-label": `Link to message ${message.seq}`,
      },
      `#${message.seq}`,
    );
  }

  // A streamed result, before it is loaded from the log.
  finish({ text, chars, took_s, state, exitCode }) {
    this.time.textContent = state === "refused" ? "" : seconds(took_s);
    this.size.textContent = size(chars ?? text.length);
    this.end(state, exitCode);
    clear(this.result, h("pre", { class: "plain", tabindex: "0", "aria-label": "Result" }, text.slice(0, 20_000)));
  }
}
