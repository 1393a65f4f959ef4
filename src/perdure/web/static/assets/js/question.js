// The turn waits for a person: a dangerous command to allow or refuse, or something the model wants to know.

import { clear, h } from "./dom.js";
import { answerQuestion } from "./gateway.js";

const ANSWERS = { once: "Allow once", session: "Allow in this session", always: "Always allow", no: "Refuse" };

export function questionCard(question) {
  const isApproval = question.kind === "approval";
  const problem = h("p", { role: "alert", class: "small" });
  const send = async (answer) => {
    try {
      await answerQuestion(question.question_id, answer);
    } catch (error) {
      problem.textContent = error.message;
    }
  };
  const answers = h("div", { class: "answers" }, question.choices.map((choice) => h("button", { type: "button", class: choice === "once" ? "primary" : "", onclick: () => send(choice) }, isApproval ? ANSWERS[choice] ?? choice : choice)));
  const own = isApproval ? null : ownWords(send);
  const element = h("section", { class: `question ${question.kind}`, "aria-label": isApproval ? "Approval needed" : "A question for you" },
    h("h3", {}, isApproval ? "May this run?" : "A question for you"),
    isApproval ? h("pre", { class: "plain", tabindex: "0" }, question.text) : h("p", { class: "plain" }, question.text),
    question.reason ? h("p", { class: "muted" }, question.reason) : null,
    answers, own, problem);
  return {
    element,
    focus: () => element.querySelector("button, input")?.focus(),
    close: (answer) => {
      element.classList.add("closed");
      clear(answers, h("p", {}, answer ? `Answered: ${isApproval ? ANSWERS[answer] ?? answer : answer}` : isApproval ? "Nobody answered in time: refused." : "Nobody answered in time."));
      own?.remove();
    },
  };
}

function ownWords(send) {
  const field = h("input", { "aria-label": "Your answer", placeholder: "Your own words" });
  const submit = (event) => {
    event.preventDefault();
    if (field.value.trim()) send(field.value.trim());
  };
  return h("form", { class: "own-words", onsubmit: submit }, field, h("button", { type: "submit", class: "primary" }, "Answer"));
}
