// The chat: sending messages, streaming turns, questions, and stopping.

import { announce } from "./announce.js";
import { Composer } from "./composer.js";
import { h } from "./dom.js";
import { Gauge } from "./gauge.js";
import { chatOf, hearOf, newChat, openQuestions, say, stop, stopTurn, unanswered } from "./gateway.js";
import { Question } from "./question.js";
import { linkTo } from "./route.js";
import { LiveTurn } from "./live_turn.js";

const SPOKEN_CHARS = 400;

export class Chat {
  constructor({ conversationId, signal, onBegun = () => {}, onKept = async () => {}, onDone = () => {} }) {
    Object.assign(this, { conversationId, signal, onBegun, onKept, onDone });
    this.chat = conversationId ? chatOf(conversationId) : newChat();
    this.running = new Set();
    this.questions = new Map();
    this.turns = h("div", { class: "turns", role: "log", "aria-live": "off", "aria-label": "Turn under way" });
    const draft = conversationId ?? "new";
    this.composer = new Composer({ send: (...message) => this.send(...message), stop: () => this.stop(), signal, draft });
    this.gauge = new Gauge(conversationId ? linkTo(conversationId, "/context") : null);
    this.element = h("div", { class: "desk" }, this.gauge.element, this.composer.element);
  }

  get isRunning() {
    return this.running.size > 0;
  }

  // Whether a stream shows the turn, so that the log need not be read meanwhile.
  get isTelling() {
    return [...this.running].some((turn) => !turn.isTail);
  }

  // `content` is the text, or its parts where files are attached.
  async send(text, content = text, files = [], pasted = []) {
    // Commands that a view answers better than text.
    const id = this.conversationId;
    const views = id ? { "/context": linkTo(id, "/context"), "/handoff": linkTo(id, "/handoff") } : {};
    const elsewhere = { "/new": "#/new", "/quit": "#/", ...views }[text];
    if (elsewhere) return void (location.hash = elsewhere);
    const turn = new LiveTurn(text, this.conversationId, { tail: this.isRunning && !this.isTelling, files });
    this.add(turn);
    this.follow(true);
    const { chat, conversationId, signal } = this;
    await this.hearOut(turn, say({ chat, conversationId, content, pasted, signal }));
  }

  // Continues turns that began earlier or elsewhere, one after the other, as they run.
  async takeUp() {
    const found = await unanswered(this.conversationId, this.signal).catch(() => []);
    if (!found.length || this.isRunning || this.signal.aborted) return;
    const wasAtEnd = this.isAtEnd();
    const turns = found.map(({ turn_id: id, state, text }) => {
      const turn = new LiveTurn(state === "queued" ? text : "", this.conversationId, { tail: true, id });
      this.add(turn);
      return turn;
    });
    this.follow(wasAtEnd);
    // Only a running turn can have open questions.
    this.findQuestions(turns.map((turn) => turn.id));
    for (const turn of turns) await this.hearOut(turn, hearOf(turn.id, this.signal));
  }

  add(turn) {
    if (turn.isTail) turn.onKept = () => this.onKept();
    this.turns.append(turn.element);
    this.running.add(turn);
    this.composer.setRunning(true);
    this.numberQueue();
  }

  // Turns of a conversation run one after the other, in the order in which they were sent.
  numberQueue() {
    for (const [position, turn] of [...this.running].entries()) turn.queue(position);
  }

  async hearOut(turn, events) {
    try {
      for await (const event of events) this.hear(event, turn);
      turn.end();
    } catch (error) {
      if (this.signal.aborted) return;
      turn.fail(error.message);
    }
    this.running.delete(turn);
    this.numberQueue();
    this.composer.setRunning(this.isRunning);
    const place = turn.movedTo ?? this.conversationId;
    if (this.isRunning) turn.setAside();
    else if (place) await this.onDone(place, turn);
  }

  hear(event, turn) {
    const wasAtEnd = this.isAtEnd();
    if (event.type === "turn_started" && !this.conversationId) this.begin(event.conversation_id || event.session_id);
    if (event.type === "gauge_moved") this.gauge.show(event);
    else if (event.type === "question_asked") {
      this.ask(event, turn.element);
      turn.wait();
    } else if (event.type === "question_closed") {
      this.close(event);
      if (!this.questions.size) turn.goOn();
    }
    else turn.hear(event);
    if (event.type === "turn_finished") announce(ending(event));
    this.follow(wasAtEnd);
  }

  begin(conversationId) {
    this.conversationId = conversationId;
    this.onBegun(conversationId);
    this.composer.moveDraft(conversationId);
  }

  ask(question, place) {
    if (this.questions.has(question.question_id)) return;
    const card = new Question(question);
    this.questions.set(question.question_id, card);
    place.append(card.element);
    // Do not take the focus from somebody who is typing.
    if (!this.composer.hasText) card.focus();
    announce(`${question.kind === "approval" ? "Approval needed" : "A question"}: ${question.text}`);
  }

  close({ question_id: id, answer, is_stopped: isStopped }) {
    this.questions.get(id)?.close(answer, isStopped);
    this.questions.delete(id);
  }

  // Questions of turns that began in another tab or before a restart.
  async findQuestions(turnIds) {
    const all = await openQuestions(this.signal).catch(() => []);
    for (const question of all)
      if (question.chat === this.chat || turnIds.includes(question.turn_id)) this.ask(question, this.turns);
  }

  // A turn that began elsewhere has a chat of its own and is stopped by its id.
  async stop() {
    const [first] = this.running;
    await (first?.id ? stopTurn(first.id) : stop(this.chat)).catch((error) => announce(error.message));
  }

  // Removes what the timeline shows now. What the log does not have stays until the next turn ends: a command's answer,
  // a failure, an open question.
  letGo() {
    let kept = [];
    for (const one of [...this.turns.children]) {
      if (one.matches(".failed")) one.querySelector(".user")?.remove();
      kept = one.matches(".stays, .question:not(.closed)") ? [...kept, one] : [];
    }
    this.turns.replaceChildren(...kept);
  }

  isAtEnd() {
    return document.documentElement.scrollHeight - innerHeight - scrollY < 160;
  }

  follow(wasAtEnd) {
    if (wasAtEnd) requestAnimationFrame(() => scrollTo(0, document.documentElement.scrollHeight));
  }
}

// The announcement at the end of a turn: its outcome and the start of the answer.
function ending({ outcome, final_response: answer }) {
  const how = outcome === "completed" ? "Answered" : `The turn ended: ${outcome}`;
  return `${how}. ${(answer ?? "").slice(0, SPOKEN_CHARS)}`;
}
