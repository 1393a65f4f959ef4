"""Questions to the person in mid-turn: approvals of dangerous commands, and what the `clarify` tool asks."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from perdure.core.ports import ApprovalAnswer

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
APPROVAL_HINT = "[y]es, once · for this [s]ession · [a]lways · [n]o"


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """Something a person must answer before the turn goes on; the next line typed is the answer."""

    text: str
    hint: str = ""
    choices: tuple[str, ...] = ()
    answer: concurrent.futures.Future[str] = field(default_factory=concurrent.futures.Future)

    def reply(self, text: str) -> None:
        if not self.answer.done():
            self.answer.set_result(text)


class Questions:
    """The Approver and the Asker of a terminal. `show` puts a question up, `withdraw` takes one down; both at once."""

    def __init__(self, show: Callable[[Question], None], withdraw: Callable[[Question], None]) -> None:
        self._show = show
        self._withdraw = withdraw

    async def approve(self, *, action: str, reason: str) -> ApprovalAnswer:
        """Anything but a clear yes is a no."""
        said = await self._put(Question(f"May this run?  {action}\n{reason}".rstrip(), APPROVAL_HINT))
        return _ANSWERS.get(said.strip().lower(), "no")

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        """The person's answer; the number of a choice stands for it."""
        listed = "".join(f"\n  {n}. {choice}" for n, choice in enumerate(choices, 1))
        hint = "a number, or your own words" if choices else ""
        said = (await self._put(Question(question + listed, hint, tuple(choices)))).strip()
        number = int(said) if said.isdecimal() else 0
        return choices[number - 1] if 0 < number <= len(choices) else said

    async def _put(self, question: Question) -> str:
        self._show(question)
        try:
            return await asyncio.wrap_future(question.answer)
        finally:  # answered, or the turn was stopped: either way it no longer waits
            self._withdraw(question)
