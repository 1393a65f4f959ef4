// A question to the user: approval of a dangerous command, or a question of the model.

import { clear, h } from "./dom.js";
import { answerQuestion } from "./gateway.js";

const ANSWERS = { no: "Refuse", once: "Allow once", session: "Allow in this session", always: "Always allow" };
// What each answer does.
const EFFECTS = {
  no: "It does not run. The model reads your reason, if any, and goes on.",
  once: "It runs now. The next one asks again.",
  session: "It runs now; later ones of the kind named above run without asking until the program ends.",
  always: "The same in every conversation and for good, until you revoke it under Approvals.",
};
// Answers for one call; the others allow later calls too, and say what they cover.
const FOR_ONE_CALL = ["no", "once"];

// A refusal with the user's own words.
const REFUSED = "no, ";
const MAX_REASON_CHARS = 2_000;

export class Question {
  constructor(question) {
    this.id = question.question_id;
    this.isApproval = question.kind === "approval";
    this.problem = h("p", { role: "alert", class: "small" });
    this.answers = h("div", { class: "choices" }, this.isApproval ? this.approvals(question) : this.row(question.choices));
    this.own = this.isApproval ? null : this.ownWords();
    const name = this.isApproval ? "Approval needed" : "A question for you";
    const text = this.isApproval
      ? h("pre", { class: "plain", tabindex: "0", "aria-label": "What would run" }, dangerous(question))
      : h("p", { class: "plain" }, question.text);
    this.element = h(
      "section",
      { class: `question ${question.kind}`, "aria-label": name, tabindex: "-1" },
      h("h2", {}, this.isApproval ? "May this run?" : name),
      this.isApproval ? h("h3", {}, "What will run") : null,
      text,
      question.reason ? [h("h3", {}, "Why it asks"), h("p", {}, question.reason)] : null,
      [this.answers, this.own, this.problem],
    );
  }

  // Refusing and allowing once look alike; lasting answers follow the text that says what they allow.
  approvals({ choices, covers }) {
    const [one, lasting] = [true, false].map((isOne) =>
      Object.keys(ANSWERS).filter((choice) => choices.includes(choice) && FOR_ONE_CALL.includes(choice) === isOne),
    );
    return [
      this.row(one, "choice"),
      lasting.length ? h("p", { class: "covers small" }, withCode(named(covers))) : null,
      this.row(lasting, "small"),
    ];
  }

  row(choices, look = "") {
    const button = (choice) => {
      const attributes = { type: "button", class: look, onclick: () => this.answer(choice) };
      if (!this.isApproval) return h("button", attributes, choice);
      const effect = h("span", { class: "small muted", id: `${this.id}-${choice}` }, EFFECTS[choice]);
      const described = h("button", { ...attributes, "aria-describedby": effect.id }, this.named(choice));
      return h("div", { class: "answer" }, described, effect, choice === "no" ? this.refusal() : null);
    };
    return h("div", { class: "answers" }, choices.map(button));
  }

  // Words after a refusal go to the model; Enter in the field refuses with them.
  refusal() {
    const label = "No, because …";
    this.why = h("input", { "aria-label": label, placeholder: label, maxlength: MAX_REASON_CHARS });
    const submit = (event) => {
      event.preventDefault();
      this.answer("no");
    };
    return h("form", { onsubmit: submit }, this.why);
  }

  ownWords() {
    const field = h("input", { "aria-label": "Your answer", placeholder: "Your own words" });
    const submit = (event) => {
      event.preventDefault();
      if (field.value.trim()) this.answer(field.value.trim());
    };
    const button = h("button", { type: "submit", class: "primary" }, "Answer");
    return h("form", { class: "own-words", onsubmit: submit }, field, button);
  }

  async answer(choice) {
    const why = choice === "no" ? this.why?.value.trim() : "";
    const answer = why ? `${REFUSED}${why}` : choice;
    try {
      await answerQuestion(this.id, answer);
      this.close(answer);
    } catch (error) {
      this.problem.textContent = error.message;
    }
  }

  close(answer, isStopped = false) {
    const late = this.isApproval ? "Nobody answered in time: refused." : "Nobody answered in time.";
    const silence = isStopped ? "Closed: the turn was stopped." : late;
    this.element.classList.add("closed");
    clear(this.answers, h("p", {}, answer ? `Answered: ${this.named(answer)}` : silence));
    this.own?.remove();
  }

  named(answer) {
    if (!this.isApproval) return answer;
    return answer.startsWith(REFUSED) ? `${ANSWERS.no}: “${answer.slice(REFUSED.length)}”` : (ANSWERS[answer] ?? answer);
  }

  // The card as a whole, never a button: an Enter meant for something else must not allow a command.
  focus() {
    this.element.focus();
  }
}

// The answers in a text by the names of their buttons.
function named(text) {
  return text.replace(/“(always|session)”/g, (_, answer) => `“${ANSWERS[answer]}”`);
}

// A text with what stands in backticks as code.
function withCode(text) {
  return text.split("`").map((piece, at) => (at % 2 ? h("code", {}, piece) : piece));
}

// The whole text, with its dangerous parts marked.
function dangerous({ text, dangerous: pieces = [] }) {
  const marks = [];
  for (const piece of pieces) {
    for (let at = piece ? text.indexOf(piece) : -1; at >= 0; at = text.indexOf(piece, at + piece.length))
      marks.push([at, at + piece.length]);
  }
  marks.sort((a, b) => a[0] - b[0] || b[1] - a[1]);
  const parts = [];
  let done = 0;
  for (const [start, end] of marks) {
    if (start < done) continue;
    parts.push(text.slice(done, start), h("mark", {}, text.slice(start, end)));
    done = end;
  }
  return [...parts, text.slice(done)];
}
