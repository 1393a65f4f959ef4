// The turn waits for a person: a dangerous command to allow or refuse, or something the model wants to know.

import { clear, h } from "./dom.js";
import { answerQuestion } from "./gateway.js";

const ANSWERS = { once: "Allow once", session: "Allow in this session", always: "Always allow", no: "Refuse" };

export class Question {
  constructor(question) {
    this.id = question.question_id;
    this.isApproval = question.kind === "approval";
    this.problem = h("p", { role: "alert", class: "small" });
    this.answers = h(
      "div",
      { class: "answers" },
      question.choices.map((choice) => this.choice(choice)),
    );
    this.own = this.isApproval ? null : this.ownWords();
    const name = this.isApproval ? "Approval needed" : "A question for you";
    const text = h(this.isApproval ? "pre" : "p", { class: "plain", tabindex: this.isApproval ? "0" : null });
    text.append(question.text);
    this.element = h(
      "section",
      { class: `question ${question.kind}`, "aria-label": name, tabindex: "-1" },
      h("h3", {}, this.isApproval ? "May this run?" : name),
      text,
      question.reason ? h("p", { class: "muted" }, question.reason) : null,
      [this.answers, this.own, this.problem],
    );
  }

  choice(choice) {
    const look = { type: "button", class: choice === "once" ? "primary" : "", onclick: () => this.answer(choice) };
    return h("button", look, this.named(choice));
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

  async answer(answer) {
    try {
      await answerQuestion(this.id, answer);
      this.close(answer);
    } catch (error) {
      this.problem.textContent = error.message;
    }
  }

  close(answer) {
    const silence = this.isApproval ? "Nobody answered in time: refused." : "Nobody answered in time.";
    this.element.classList.add("closed");
    clear(this.answers, h("p", {}, answer ? `Answered: ${this.named(answer)}` : silence));
    this.own?.remove();
  }

  named(answer) {
    return this.isApproval ? (ANSWERS[answer] ?? answer) : answer;
  }

  // The card as a whole, never a button: an Enter meant for something else must not allow a command.
  focus() {
    this.element.focus();
  }
}
