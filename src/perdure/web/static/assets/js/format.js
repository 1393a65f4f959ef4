// Numbers, amounts and times as text.

const counted = new Intl.NumberFormat("en-US");
const dayTime = new Intl.DateTimeFormat(undefined, {
  month: "short",
  day: "numeric",
  hour: "2-digit",
  minute: "2-digit",
});
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const dayOnly = new Intl.DateTimeFormat(undefined, { weekday: "short", month: "short", day: "numeric" });
const dayYear = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric" });
const DAY_MS = 86_400_000;

export const PART_NAMES = {
  system: "System prompt",
  tools: "Tool definitions",
  memory: "Memory",
  head: "First messages",
  handoff: "Handoff",
  tail: "Recent messages",
  outputs: "Tool outputs",
};

export function count(n) {
  return n === null || n === undefined ? "–" : counted.format(n);
}

export function short(n) {
  if (n === null || n === undefined) return "–";
  if (n < 1000) return String(Math.round(n));
  if (n < 999_500) return `${rounded(n / 1000, 1)}k`;
  return n < 999_500_000 ? `${rounded(n / 1_000_000, 2)}M` : `${rounded(n / 1_000_000_000, 2)}G`;
}

function rounded(n, digits) {
  return String(Number(n.toFixed(n >= 100 ? 0 : n >= 10 ? 1 : digits)));
}

export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

export function percent(part, whole) {
  return whole ? `${Math.round((100 * part) / whole)} %` : "–";
}

export function dollars(usd) {
  if (usd === null || usd === undefined) return "no price known";
  if (usd === 0) return "$0";
  const digits = Math.abs(usd) < 0.01 ? 4 : Math.abs(usd) < 1 ? 3 : 2;
  return `${usd < 0 ? "−" : ""}$${Math.abs(usd).toFixed(digits)}`;
}

// The cost of some calls: "+" where some have no price; never $0 where only the free ones have one.
export function cost({ calls, cost_usd: usd, unpriced_calls: unpriced = 0, unreported_calls: unreported = 0 }) {
  if (!calls) return "–";
  if (usd === null && unreported && unreported === unpriced) return "cost not reported";
  if (!unpriced) return dollars(usd);
  return usd ? `${dollars(usd)}+` : dollars(null);
}

// What a cost leaves out, each call once: a call without token counts has no cost, whatever its model's price.
export function costGaps({ unpriced_calls: unpriced = 0, unreported_calls: unreported = 0 }) {
  const priceless = unpriced - unreported;
  return [
    unreported ? `${plural(unreported, "call")} without token counts (stopped, or broken off by the provider)` : "",
    priceless > 0 ? `${plural(priceless, "call")} to models without a known price` : "",
  ].filter(Boolean);
}

// The explanation of the "+" after a cost, or of a cost that is unknown; "" where nothing is left out.
export function costNote(totals) {
  const gaps = costGaps(totals);
  return gaps.length ? `The cost leaves out ${gaps.join(" and ")}.` : "";
}

export function seconds(s) {
  if (s === null || s === undefined) return "";
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  return s < 60 ? `${s.toFixed(1)} s` : `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
}

export function size(chars) {
  if (chars === null || chars === undefined) return "";
  return chars < 1000 ? `${chars} chars` : `${short(chars)} chars`;
}

export function moment(ms) {
  return dayTime.format(ms);
}

export function timeOfDay(ms) {
  return clock.format(ms);
}

export function dayName(ms, now = Date.now()) {
  const days = Math.round((midnight(now) - midnight(ms)) / DAY_MS);
  if (days === 0) return "Today";
  if (days === 1) return "Yesterday";
  return days < 300 ? dayOnly.format(ms) : dayYear.format(ms);
}

function midnight(ms) {
  return new Date(ms).setHours(0, 0, 0, 0);
}

const TASK_NAMES = {
  main: "Conversation",
  compression: "Compaction summaries",
  vision: "Image descriptions",
  web_extract: "Web page extraction",
  session_search: "Search summaries",
  title: "Titles",
};

export function taskName(task) {
  return TASK_NAMES[task] ?? task;
}

export function partName(part) {
  return PART_NAMES[part] ?? part;
}

// Untrusted text: invisible and bidirectional control characters are spelled out as <U+202E>.
const INVISIBLE = /(?![\n\t ])[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Z}\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0]/gu;

export function visible(text) {
  const code = (c) => c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  return String(text ?? "").replace(INVISIBLE, (c) => `<U+${code(c)}>`);
}
