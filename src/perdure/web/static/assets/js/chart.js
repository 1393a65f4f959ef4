// The chart of the context over time: layers per call, window and threshold, and a cursor for mouse and keyboard.

import { clear, h, svg } from "./dom.js";
import { markLane } from "./chart_marks.js";
import { places, scale, ticks } from "./scale.js";
import { areas, columns, layersOf, steps, totalOf } from "./stack.js";
import { count, partName, short, timeOfDay } from "./format.js";

const PAD = { left: 50, right: 10, top: 24, bottom: 26 };
// The font is 11 px high and about this wide per character.
const CHAR_PX = 6.6;
const LABEL_PX = 14;
const LIMITS = ["window", "threshold"];

export class Chart {
  constructor({ parts, calls, marks }, { onSelect, onOpen, onMark, signal }) {
    Object.assign(this, { parts, calls, marks, onSelect, onOpen, onMark });
    this.from = 0;
    this.to = calls.length;
    this.selected = calls.length - 1;
    this.drawing = svg("svg", { "aria-hidden": "true" });
    this.lane = h("div", { class: "lane" });
    this.plot = h(
      "div",
      {
        class: "plot",
        role: "slider",
        tabindex: "0",
        "aria-label": "Calls of this conversation",
        "aria-valuemin": 1,
        "aria-valuemax": calls.length,
        "aria-describedby": "chart-keys",
        onkeydown: (event) => this.onKey(event),
        onclick: (event) => this.onClick(event),
        onpointermove: (event) => this.onMove(event),
      },
      this.drawing,
    );
    this.element = h("div", { class: "chart" }, this.lane, this.plot);
    const watcher = new ResizeObserver(() => this.draw());
    watcher.observe(this.plot);
    signal.addEventListener("abort", () => watcher.disconnect());
  }

  show(from, to) {
    this.from = Math.max(0, from);
    this.to = Math.min(this.calls.length, to);
    this.draw();
    this.select(Math.min(Math.max(this.selected, this.from), this.to - 1));
  }

  draw() {
    const { width, height } = this.plot.getBoundingClientRect();
    if (width < PAD.left + PAD.right + 10 || height < 40) return;
    const made = columns(this.calls, this.from, this.to, width - PAD.left - PAD.right);
    const top = this.highest(made) * 1.08;
    this.x = scale(this.from, this.to, PAD.left, width - PAD.right);
    this.y = scale(0, top, height - PAD.bottom, PAD.top);
    this.size = { width, height };
    this.cursor = svg("rect", { class: "cursor", y: PAD.top, height: height - PAD.top - PAD.bottom });
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.obstacles = this.lines(made);
    // The two lines are labelled first: every figure is read against them.
    const limits = this.limits(made);
    const drops = this.drops();
    clear(this.drawing, this.axes(top), this.layers(made), limits, drops, this.cursor);
    clear(this.lane, markLane(this.marks, { from: this.from, to: this.to, x: this.x, onMark: this.onMark }));
    this.moveCursor();
  }

  highest(made) {
    const heights = made.map(({ call }) => Math.max(totalOf(call), call.window ?? 0, call.threshold ?? 0));
    return Math.max(1, ...heights, ...this.compactions().map((mark) => mark.before_tokens));
  }

  layers(made) {
    return areas(made, this.parts, this.x, this.y)
      .filter(({ path }) => path)
      .map(({ part, path }) => svg("path", { class: "area", "data-part": part, d: path }));
  }

  axes(top) {
    const { width, height } = this.size;
    const rows = ticks(top).map((n) =>
      svg(
        "g",
        {},
        svg("line", { class: "grid", x1: PAD.left, x2: width - PAD.right, y1: this.y(n), y2: this.y(n) }),
        svg("text", { class: "axis", x: PAD.left - 6, y: this.y(n) + 4, "text-anchor": "end" }, short(n)),
      ),
    );
    const across = places(this.from, this.to, Math.floor(width / 80)).map((i) =>
      svg(
        "text",
        { class: "axis", x: this.x(i + 0.5), y: height - 8, "text-anchor": "middle" },
        i === this.from ? `call ${i + 1}` : String(i + 1),
      ),
    );
    return [rows, across, svg("text", { class: "axis", x: 4, y: 12 }, "tokens")].flat();
  }

  limits(made) {
    return LIMITS.flatMap((name) => {
      const path = steps(made, (call) => call[name], this.x, this.y);
      const value = made[0].call[name] ?? made.find(({ call }) => call[name])?.call[name];
      if (!path) return [];
      const y = this.y(value) - 5;
      return [
        svg("path", { class: `limit ${name}`, d: path }),
        this.label([`${name} ${count(value)} tokens`, `${name} ${short(value)}`], { x: PAD.left + 6, y }, { isFixed: true }),
      ];
    });
  }

  // What no label may cover: the compaction arrows, and the lines of window and threshold.
  lines(made) {
    const arrows = this.compactions().map((mark) => {
      const top = this.y(mark.before_tokens) - 5;
      return { x: this.x(mark.at) - 5, width: 10, y: top, height: this.y(mark.after_tokens) - top };
    });
    const limits = LIMITS.flatMap((name) => {
      const heights = new Set(made.map(({ call }) => call[name]).filter(Boolean));
      return [...heights].map((value) => ({ x: PAD.left, width: this.size.width, y: this.y(value) - 1, height: 2 }));
    });
    return [...arrows, ...limits];
  }

  // A compaction: the prompt that would have been sent, and the arrow down to the one that was.
  drops() {
    let unnamed = 0;
    const arrows = this.compactions().flatMap((mark) => {
      const x = this.x(mark.at);
      const [from, to] = [this.y(mark.before_tokens), this.y(mark.after_tokens)];
      const text = `${short(mark.before_tokens)} → ${short(mark.after_tokens)}`;
      const width = text.length * CHAR_PX;
      const sides = [x + 10, x - 12 - width].filter((left) => left > PAD.left && left + width < this.size.width);
      const label = sides.reduce((made, left) => made ?? this.label([text], { x: left, y: from + 4 }), null);
      if (!label) unnamed += 1;
      return [
        svg("line", { class: "drop", x1: x, x2: x, y1: from, y2: to - 6 }),
        svg("circle", { class: "drop-end", cx: x, cy: from, r: 3.5 }),
        svg("path", { class: "drop-end", d: `M${x - 4.5} ${to - 8}h9l-4.5 8z` }),
        label,
      ];
    });
    return [...arrows, unnamed ? this.rest(unnamed) : null];
  }

  // How many arrows have no room for their figures; the list below has them.
  rest(unnamed) {
    const at = { x: this.size.width - PAD.right, y: 12, "text-anchor": "end" };
    return svg("text", { class: "axis rest", ...at }, `+${unnamed} in the list below`);
  }

  // The first of some texts, long to short, that covers no other label and no line where it is put or a little above or
  // below, next to what it names; omitted if all would. A fixed one stays where it is put.
  label(texts, { x, y }, { isFixed = false } = {}) {
    const steps = isFixed ? [0] : [0, -LABEL_PX, LABEL_PX];
    for (const text of texts) {
      const box = { x: x - 3, width: text.length * CHAR_PX + 6, height: LABEL_PX };
      const place = steps.map((step) => y + step).find((at) => this.isFree({ ...box, y: at - 11 }));
      if (place === undefined) continue;
      this.obstacles.push({ ...box, y: place - 11 });
      const plate = svg("rect", { class: "plate", ...box, y: place - 11, rx: 2 });
      return svg("g", {}, plate, svg("text", { class: "label", x, y: place }, text));
    }
    return null;
  }

  isFree(box) {
    const { height } = this.size;
    const isApart = (o) =>
      box.x + box.width < o.x || o.x + o.width < box.x || box.y + box.height < o.y || o.y + o.height < box.y;
    return box.y > PAD.top - 14 && box.y + box.height < height - PAD.bottom && this.obstacles.every(isApart);
  }

  compactions() {
    return this.marks.filter(
      (mark) =>
        mark.before_tokens !== null && mark.text.startsWith("compacted") && mark.at >= this.from && mark.at <= this.to,
    );
  }

  moveCursor() {
    if (!this.x) return;
    const left = this.x(this.selected);
    const width = Math.max(2, this.x(this.selected + 1) - left);
    this.cursor.setAttribute("x", left);
    this.cursor.setAttribute("width", width);
  }

  select(index) {
    if (index < 0 || index >= this.calls.length) return;
    this.selected = index;
    if (index < this.from || index >= this.to) this.show(0, this.calls.length);
    this.plot.setAttribute("aria-valuenow", index + 1);
    this.plot.setAttribute("aria-valuetext", this.spoken(index));
    this.moveCursor();
    this.onSelect(index);
  }

  spoken(index) {
    const call = this.calls[index];
    const layers = layersOf(call, this.parts)
      .map((n, p) => [n, this.parts[p]])
      .filter(([n]) => n >= 1)
      .sort((a, b) => b[0] - a[0]);
    const here = this.marks.filter((mark) => mark.at === index).map((mark) => `Before it, ${mark.text}.`);
    return [
      `Call ${index + 1} of ${this.calls.length}, ${timeOfDay(call.started_at)}: ${count(totalOf(call))} tokens.`,
      ...layers.map(([n, part]) => `${partName(part)} ${count(Math.round(n))}.`),
      ...here,
    ].join(" ");
  }

  indexAt(event) {
    const place = this.plot.getBoundingClientRect();
    const share = (event.clientX - place.left - PAD.left) / (place.width - PAD.left - PAD.right);
    return Math.min(this.to - 1, Math.max(this.from, Math.floor(this.from + share * (this.to - this.from))));
  }

  onMove(event) {
    const index = this.indexAt(event);
    if (index !== this.selected) this.select(index);
  }

  onClick(event) {
    this.select(this.indexAt(event));
    // A touch selects, as hovering does; the readout has the link.
    if (event.pointerType !== "touch") this.onOpen(this.selected);
  }

  onKey(event) {
    const stops = this.marks.map((mark) => Math.min(mark.at, this.calls.length - 1));
    const to = {
      ArrowRight: () => this.selected + 1,
      ArrowUp: () => this.selected + 1,
      ArrowLeft: () => this.selected - 1,
      ArrowDown: () => this.selected - 1,
      Home: () => this.from,
      End: () => this.to - 1,
      PageDown: () => stops.find((at) => at > this.selected) ?? this.to - 1,
      PageUp: () => stops.findLast((at) => at < this.selected) ?? this.from,
    }[event.key];
    if (event.key === "Enter") this.onOpen(this.selected);
    else if (to) this.select(Math.min(this.to - 1, Math.max(this.from, to())));
    else return;
    event.preventDefault();
  }
}
