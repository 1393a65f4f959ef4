"""Ask the user during a turn: approvals of dangerous commands, and questions of the `clarify` tool."""

from __future__ import annotations

import asyncio
import concurrent.futures
import re
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
_NO_BEFORE = re.compile(r"no?\s*[,;:.]\s*(?=\S)", re.IGNORECASE)
# What the keys of answers that outlast the question allow.
_LASTING = {"session": "for this session", "always": "always, until it is revoked"}
_REFUSE_HINT = "[n]o or Enter, or say why not"
APPROVAL_HINT = f"[y]es, once · [s]ession or [a]lways, and Enter · {_REFUSE_HINT}"
# For approvals where every answer covers this one call only.
ONCE_HINT = f"[y]es, once · {_REFUSE_HINT}"


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

    @property
    def keys(self) -> str:
        """The keys that answer."""
        return "" if not self.is_approval else "ysan" if self.is_lasting else "yn"

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
        is_answered = self.answer.done() and not self.answer.cancelled()
        return _ANSWERS.get(self.answer.result().lower()) if is_answered else None


def typing_notice(text: str, word: str) -> str:
    """Return what Enter does with a line typed at an approval that begins an answer word, or none; "" for no line."""
    if word in _LASTING:
        return f"Enter allows it {_LASTING[word]}; go on typing to refuse with these words instead."
    if not text or word:
        return ""
    return "Enter refuses with these words, which the model reads; without them one key answers."


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
        answer = (await self._put(question)).strip()
        if answer.lower() in _NO:
            return "no"
        return _ANSWERS.get(answer.lower()) or Refusal(
            _NO_BEFORE.sub("", answer, count=1) if _NO_BEFORE.match(answer) else answer
        )

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
