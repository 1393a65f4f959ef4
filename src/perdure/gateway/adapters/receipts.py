"""Store how far the delivery of a turn to a chat platform is, so that another process can continue it."""

from __future__ import annotations

import logging
import secrets
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

from perdure.core.errors import PerdureError
from perdure.gateway.executor import run_blocking

_log = logging.getLogger(__name__)
_TURN = "turn:"
# Receipts are of use until the gateway has noted the delivery, too.
_RECEIPT_MS = 86_400_000


class DeliveryState(Protocol):
    """Key-value store for delivery receipts (port); it survives restarts. Methods block."""

    def get(self, key: str) -> Any: ...

    def set(self, key: str, value: Any) -> None:
        """Store a value; durable on return. None deletes it."""
        ...

    def items(self) -> dict[str, Any]: ...


@dataclass
class DeliveryReceipt:
    """Progress of a turn's delivery, stored before and after each message, so that another process can resume it.

    A nonce stored before sending keeps a message from being sent twice, on platforms that accept one.
    """

    state: DeliveryState
    turn_id: str
    nonce: str = ""
    # The message that is being written.
    message_id: int | None = None
    # How many pieces of the final answer are complete.
    pieces: int = 0
    is_done: bool = False
    # The messages that ask an open question, with their texts, and those asked by a process that died.
    questions: dict[str, tuple[int, str]] = field(default_factory=dict)
    withdrawn: frozenset[str] = frozenset()
    # The newest text of the message that is being written.
    text: str = ""

    @classmethod
    def load(cls, state: DeliveryState, turn_id: str) -> DeliveryReceipt:
        """Return the receipt that a dead process left for a turn, or an empty one. Blocks."""
        match state.get(f"{_TURN}{turn_id}"):
            case {"nonce": str(nonce), "message": int() | None as message_id, "pieces": int(pieces)} as stored:
                stored_questions: Any = stored.get("questions") or {}
                questions = {str(k): (int(message[0]), str(message[1])) for k, message in stored_questions.items()}
                text = str(stored.get("text") or "")
                return cls(state, turn_id, nonce, message_id, pieces, False, questions, frozenset(questions), text)
            case {"done_at": _}:
                return cls(state, turn_id, is_done=True)
            case _:
                return cls(state, turn_id)

    async def begin(self, text: str) -> str:
        """Store the nonce and the text of a message that is about to be sent or edited; return the nonce."""
        if not self.nonce or text != self.text:
            self.nonce, self.text = self.nonce or secrets.token_hex(10), text
            await self._save()
        return self.nonce

    async def mark_sent(self, message_id: int) -> None:
        self.message_id = message_id
        await self._save()

    async def count_piece(self) -> None:
        self.pieces += 1
        await self._save()

    async def complete(self) -> None:
        """Record that the current message has its final text; the next text starts a new message."""
        if self.nonce:
            self.nonce, self.message_id, self.pieces, self.text = "", None, 0, ""
            await self._save()

    async def open_question(self, question_id: str, message_id: int, text: str) -> None:
        self.questions[question_id] = (message_id, text)
        await self._save()

    async def close_question(self, question_id: str) -> tuple[int, str]:
        """Forget an open question; return the id and text of the message that asked it, (0, "") if there is none."""
        message = self.questions.pop(question_id, (0, ""))
        if message[0]:
            await self._save()
        return message

    def describe_answer(self, question_id: str, answer: str, *, is_stopped: bool = False) -> str:
        """Return the line that replaces the buttons of a question: the answer, or why there is none."""
        if answer:
            return f"→ {answer}"
        if is_stopped:
            return "→ closed: the turn was stopped, by a new message or by /stop"
        is_withdrawn = question_id in self.withdrawn
        return "→ withdrawn: the gateway was restarted" if is_withdrawn else "→ no answer in time"

    async def close(self) -> None:
        """Record that the turn is delivered, so that no process sends any of it again."""
        self.is_done = True
        await self._write({"done_at": time.time_ns() // 1_000_000})

    async def _save(self) -> None:
        value: dict[str, Any] = {
            "nonce": self.nonce,
            "message": self.message_id,
            "pieces": self.pieces,
            "text": self.text,
        }
        if self.questions:
            value["questions"] = self.questions
        await self._write(value if self.nonce or self.questions else None)

    async def _write(self, value: dict[str, Any] | None) -> None:
        try:
            await run_blocking(self.state.set, f"{_TURN}{self.turn_id}", value)
        except PerdureError as error:  # the answer matters more than what a restart would make of it
            _log.warning("the state of a delivery could not be stored: %s", type(error).__name__)


def purge_receipts(state: DeliveryState) -> None:
    """Delete the receipts of turns that were delivered long ago. Blocks."""
    before_ms = time.time_ns() // 1_000_000 - _RECEIPT_MS
    for key, value in state.items().items():
        if key.startswith(_TURN) and isinstance(value, dict) and value.get("done_at", before_ms) < before_ms:
            state.set(key, None)
