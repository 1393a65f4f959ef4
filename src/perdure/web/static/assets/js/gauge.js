// The context meter: what fills the window, part by part, with a tick where compaction begins.

import { clear, h } from "./dom.js";
import { count, partName, percent, short } from "./format.js";

export class Gauge {
  constructor(href = null) {
    this.words = h("span", { class: "gauge-words" });
    this.track = h("span", { class: "gauge-track", "aria-hidden": "true" });
    const tag = href ? "a" : "div";
    this.element = h(tag, { class: "gauge", href, hidden: true }, this.track, this.words);
  }

  show(gauge) {
    if (!gauge || !gauge.tokens) return;
    const { tokens, window, threshold, composition, model } = gauge;
    const whole = Math.max(window ?? 0, tokens, 1);
    this.element.hidden = false;
    this.element.classList.toggle("over", Boolean(window) && tokens > window);
    this.words.textContent = window
      ? `${short(tokens)} of ${short(window)} tokens · ${percent(tokens, window)}`
      : `${short(tokens)} tokens`;
    this.element.setAttribute("aria-label", `${this.words.textContent}. ${spoken(gauge)}`);
    this.element.title = `${spoken(gauge)}${model ? ` (${model})` : ""}`;
    clear(this.track, segments(composition ?? {}, tokens, whole), threshold ? tick(threshold / whole) : null);
  }
}

// The parts are estimates, scaled to the counted total.
function segments(composition, tokens, whole) {
  const sum = Object.values(composition).reduce((a, b) => a + b, 0);
  if (!sum) return [segment("tail", tokens / whole)];
  return Object.entries(composition).map(([part, n]) => segment(part, ((n / sum) * tokens) / whole));
}

function segment(part, share) {
  const piece = h("span", { class: "gauge-part", "data-part": part });
  piece.style.width = `${(100 * share).toFixed(2)}%`;
  return piece;
}

function tick(share) {
  const line = h("span", { class: "gauge-tick" });
  line.style.left = `${(100 * Math.min(1, share)).toFixed(2)}%`;
  return line;
}

function spoken({ tokens, window, threshold, composition }) {
  const parts = Object.entries(composition ?? {})
    .filter(([, n]) => n > 0)
    .sort((a, b) => b[1] - a[1]);
  const most = parts.length ? ` Most of it: ${partName(parts[0][0]).toLowerCase()}.` : "";
  const limit = threshold ? ` Compaction begins at ${count(threshold)}.` : "";
  const over = window && tokens > window ? " More than the window holds: the next call compacts first." : "";
  return `Context: ${count(tokens)}${window ? ` of ${count(window)}` : ""} tokens.${over}${limit}${most}`;
}
