// A streaming turn: text, reasoning, tool calls, compactions and outcome.
// As a tail it shows only what the log does not have yet, of a turn that began before the view was opened.

import { clear, h } from "./dom.js";
import { ToolCallCard } from "./tool_call.js";
import { reasonWords, recovered, SIGNS } from "./event.js";
import { StreamedText } from "./streamed.js";
import { count } from "./format.js";

const STATUSES = {
  thinking: "Thinking…",
  calling: "Waiting for the model…",
  running_tools: "Running tools…",
  compacting: "Compacting…",
  idle: "",
};

export class LiveTurn {
  constructor(text, conversationId, { tail: isTail = false, id = null, files = [] } = {}) {
    Object.assign(this, { conversationId, isTail, id });
    this.onKept = async () => {};
    this.cards = new Map();
    this.movedTo = null;
    this.hasFailed = this.hasBegun = false;
    this.isOnlyAnswer = text.startsWith("/");
    this.status = h("p", { class: "status muted" }, text ? "Sent." : "Under way…");
    this.parts = h("div", { class: "parts" });
    this.question = text || files.length ? question(text, files) : null;
    // A question asked again runs in a branch.
    this.isRetry = text.startsWith("/retry");
    this.element = h("div", { class: "turn", role: "group", "aria-label": "Turn under way" }, this.question, this.parts, this.status);
  }

  // `position` counts the messages that wait, this one included; 0 where none is before it.
  queue(position) {
    this.element.classList.toggle("queued", position > 0 && !this.hasBegun);
    if (!this.hasBegun && this.question) this.status.textContent = position ? `Queued, number ${count(position)} in line.` : "Sent.";
  }

  hear(event) {
    this.hasBegun = true;
    this.element.classList.remove("queued");
    this[`on_${event.type}`]?.(event);
  }

  // A question is open: nothing runs until it is answered.
  wait() {
    this.status.textContent = "Waiting for your answer.";
    this.markCalls("waits for you");
  }

  goOn() {
    this.status.textContent = STATUSES.running_tools;
    this.markCalls("running");
  }

  // Of calls that run side by side it is not known which one asks.
  markCalls(state) {
    const open = [...this.cards.values()].filter((card) => !card.isComplete);
    if (open.length === 1) open[0].state.textContent = state;
  }

  end() {
    this.text = null;
    this.status.remove();
    if (this.isOnlyAnswer) this.element.classList.add("stays");
  }

  fail(message) {
    this.end();
    this.hasFailed = true;
    this.element.classList.add("stays");
    this.parts.append(h("p", { class: "problem", role: "alert" }, message));
  }

  on_turn_started({ session_id: session }) {
    this.isOnlyAnswer = false;
    if (this.isRetry) this.movedTo = session;
  }

  // What a tail has shown is in the log now, and moves to the timeline.
  async setAside() {
    if (!this.isTail || this.element.matches(".stays")) return;
    const shown = [this.question, ...this.parts.children].filter(Boolean);
    this.text = this.thought = null;
    await this.onKept().catch(() => {});
    for (const one of shown) one.remove();
  }

  on_status_changed({ status }) {
    // Sent before each call and before tools run, after the previous messages are stored.
    this.setAside();
    this.status.textContent = STATUSES[status] ?? status;
  }

  on_text_delta({ text }) {
    this.status.textContent = "";
    this.thought = null;
    if (!this.text) {
      this.text = new StreamedText();
      this.parts.append(
        h("article", { class: "message assistant" }, h("header", {}, h("strong", {}, "Assistant")), this.text.element),
      );
    }
    this.text.add(text);
  }

  on_reasoning_delta({ text }) {
    if (!this.thought) {
      this.thought = h("div", { class: "plain" });
      this.parts.append(h("details", { class: "thinking" }, h("summary", {}, "Thinking"), this.thought));
    }
    this.thought.append(text);
  }

  on_tool_started({ call }) {
    this.text = null;
    if (this.isTail) return;
    const card = new ToolCallCard(
      { id: call.id, name: call.name, target: target(call), arguments: pretty(call.arguments) },
      this.conversationId,
    );
    this.cards.set(call.id, card);
    this.parts.append(card.element);
  }

  on_tool_finished({ call, result, seconds, is_error: isError, state, exit_code: exitCode }) {
    const ended = state ?? (isError ? "failed" : "completed");
    const { text = "", chars } = result ?? {};
    this.cards.get(call.id)?.finish({ text, chars, took_s: seconds, state: ended, exitCode });
  }

  on_call_finished() {
    this.text = null;
    this.thought = null;
  }

  on_compaction_started({ reason, before_tokens: before }) {
    this.setAside();
    this.status.textContent = "Compacting…";
    this.happen("compaction", `Making room: ${count(before)} tokens, because ${reasonWords(reason)}.`);
  }

  on_compaction_finished({ outcome, before_tokens: before, after_tokens: after, message }) {
    const done = outcome === "compacted" || outcome === "digest";
    this.happen(
      "compaction",
      done
        ? `Compacted: ${count(before)} → ${count(after)} tokens. Nothing is lost.`
        : message || `Compaction: ${outcome.replaceAll("_", " ")}.`,
    );
  }

  on_model_switched({ old, new: now, reason }) {
    this.happen("model_switch", `The model changed from ${old} to ${now}: ${reason}`);
  }

  on_recovered({ verdict, action }) {
    this.happen("recovery", recovered(verdict?.kind, action));
  }

  on_output_spilled({ address, chars }) {
    this.happen("spill", `An output of ${count(chars)} characters was stored outside the context: ${address}`);
  }

  on_notice({ text }) {
    this.happen("notice", text);
  }

  on_command_answered({ text, level, conversation_id: id }) {
    this.movedTo = id ?? null;
    this.parts.append(h("div", { class: `answered ${level}`, role: "status" }, h("div", { class: "plain" }, text)));
  }

  on_turn_finished({ outcome, error, final_response: final }) {
    if (!this.isTail && !this.parts.querySelector(".assistant") && final) this.on_text_delta({ text: final });
    this.text = null;
    if (outcome === "failed") this.tellFailure(error ?? "The turn failed.");
    for (const card of this.cards.values()) card.stop();
    if (outcome === "interrupted") this.happen("turn_stopped", "Stopped. The reply so far is stored.");
    if (outcome === "budget") this.happen("notice", "The turn's budget is used up. Send “go on” to continue.");
    clear(this.status);
  }

  // The log has the reason too: the timeline shows it once the turn is over.
  tellFailure(error) {
    if (!this.conversationId) this.element.classList.add("stays", "failed");
    this.parts.append(h("p", { class: "problem", role: "alert" }, error));
  }

  happen(kind, text) {
    this.text = null;
    this.parts.append(
      h(
        "div",
        { class: `event ${kind}`, role: "note" },
        h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[kind]),
        h("span", {}, text),
      ),
    );
  }
}

function question(text, files) {
  return h(
    "article",
    { class: "message user" },
    h("header", {}, h("strong", {}, "You")),
    h("div", { class: "plain", dir: "auto" }, text),
    files.length ? h("p", { class: "muted small" }, `Attached: ${files.map(({ name }) => name).join(", ")}`) : null,
  );
}

function target(call) {
  const given = pretty(call.arguments);
  if (typeof given !== "object" || given === null) return "";
  const first = given.path ?? given.command ?? given.query ?? Object.values(given)[0] ?? "";
  return String(first).slice(0, 200);
}

function pretty(text) {
  try {
    return typeof text === "string" ? JSON.parse(text) : text;
  } catch {
    return text;
  }
}
