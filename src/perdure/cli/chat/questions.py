"""Ask the user during a turn: approvals of dangerous commands, and questions of the `clarify` tool."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from perdure.cli.style import runnable
from perdure.core.ports import ApprovalAnswer, ApprovalRequest, Refusal

_ANSWERS: dict[str, ApprovalAnswer] = {
    "y": "once",
    "yes": "once",
    "o": "once",
    "once": "once",
    "s": "session",
    "session": "session",
    "a": "always",
    "always": "always",
}
_NO = frozenset({"", "n", "no"})
_SCOPES = {"once": "once", "session": "for this session", "always": "always, until it is revoked"}
_REFUSE_HINT = "[n]o, or say why not, and Enter"
APPROVAL_HINT = f"[y]es, once · [s]ession or [a]lways, and Enter · {_REFUSE_HINT}"
# For approvals where every answer covers this one call only.
ONCE_HINT = f"[y]es, once · {_REFUSE_HINT}"

# Shown from the first moment of a `y` that answers by itself.
SETTLING_NOTICE = "Allowing it once; keep typing to say no instead. Backspace waits, Esc refuses, Enter allows it now."


@dataclass(frozen=True, slots=True, eq=False)
class PendingQuestion:
    """A question that must be answered before the turn continues; the next typed line is the answer."""

    text: str
    hint: str = ""
    # What must stay in view however long the text is: why it is asked, and what an answer covers.
    notes: tuple[str, ...] = ()
    # What stays on the screen once "always" was answered.
    standing: str = ""
    # Pieces of the text to point out.
    marked: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    # Whether a single key answers.
    is_approval: bool = False
    # Whether an approval may be given for more than this call.
    is_lasting: bool = True
    # Whether all but the first line of the text is a diff.
    has_diff: bool = False
    # The tool call that waits for it; "" where it is not about one.
    call_id: str = ""
    answer: concurrent.futures.Future[str] = field(default_factory=concurrent.futures.Future)

    def reply(self, text: str) -> None:
        if not self.answer.done():
            self.answer.set_result(text)

    @property
    def lasting_text(self) -> str:
        """The text that stays on the screen once it is answered; the diff of an approved edit comes with its result."""
        return self.text.partition("\n")[0] if self.has_diff and self._grant is not None else self.text

    @property
    def lasting_note(self) -> str:
        """What "always" has stored; "" after any other answer."""
        return self.standing if self._grant == "always" else ""

    @property
    def _grant(self) -> ApprovalAnswer | None:
        if not self.answer.done() or self.answer.cancelled():
            return None
        answer = read_approval(self, self.answer.result())
        return None if isinstance(answer, Refusal) or answer == "no" else answer


def read_approval(question: PendingQuestion, text: str) -> ApprovalAnswer | Refusal:
    """Return what a line answers at an approval; anything but a clear answer refuses, with exactly these words."""
    words = text.strip()
    if words.lower() in _NO:
        return "no"
    answer = _ANSWERS.get(words.lower())
    return answer if answer == "once" or (answer and question.is_lasting) else Refusal(words)


def refusal_words(question: PendingQuestion, text: str) -> str:
    """Return the refusal that Escape gives: the words typed so far, or "no" where they would not refuse."""
    answer = read_approval(question, text)
    return answer.words if isinstance(answer, Refusal) and not text.startswith("/") else "no"


def typing_notice(question: PendingQuestion, text: str) -> str:
    """Return what Enter does with the line typed at an approval; "" for an empty line."""
    answer = read_approval(question, text)
    if not text.strip():
        return ""
    if isinstance(answer, Refusal):
        return "Enter refuses with these words, which the model reads; so does Esc."
    if answer == "no":
        return "Enter refuses; go on typing to say why, which the model reads."
    return f"Enter allows it {_SCOPES[answer]}; go on typing to refuse with these words instead."


class TerminalQuestions:
    """Asks for approvals and answers in the terminal (the Approver and Asker ports), through `show` and `withdraw`."""

    def __init__(self, show: Callable[[PendingQuestion], None], withdraw: Callable[[PendingQuestion], None]) -> None:
        self._show = show
        self._withdraw = withdraw

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | Refusal:
        """Ask for approval; anything but a clear yes is a no, and other words go to the model with it."""
        folder = f"In the folder {request.folder}." if request.folder else ""
        notes = tuple(note for note in (request.reason, folder, runnable(request.covers)) if note)
        text = f"May this run?  {request.action}"
        question = PendingQuestion(
            text,
            APPROVAL_HINT if request.is_lasting else ONCE_HINT,
            notes=notes,
            standing=runnable(request.standing),
            marked=request.dangerous,
            is_approval=True,
            is_lasting=request.is_lasting,
            has_diff=request.has_diff,
            call_id=request.call_id,
        )
        return read_approval(question, await self._put(question))

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        """Return the user's answer; the number of a choice selects it."""
        listed = "".join(f"\n  {n}. {choice}" for n, choice in enumerate(choices, 1))
        hint = "a number, or your own words" if choices else ""
        reply = (await self._put(PendingQuestion(question + listed, hint, choices=tuple(choices)))).strip()
        number = int(reply) if reply.isdecimal() else 0
        return choices[number - 1] if 0 < number <= len(choices) else reply

    async def _put(self, question: PendingQuestion) -> str:
        self._show(question)
        try:
            return await asyncio.wrap_future(question.answer)
        finally:  # answered, or the turn was stopped: either way it no longer waits
            self._withdraw(question)
