"""Display a turn on a chat platform: a message edited while it streams, questions with buttons, long texts as files."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from typing import ClassVar, Protocol

from perdure.agent.callbacks import status_line
from perdure.core.events import CompactionFinished, Notice, TextDelta, ToolStarted, TurnFinished
from perdure.gateway.adapters.formatting import shorten, split_text, utf16_length
from perdure.gateway.adapters.receipts import DeliveryReceipt
from perdure.gateway.events.types import CommandAnswered, GatewayEvent, QuestionAsked, QuestionClosed, SequencedEvent

_log = logging.getLogger(__name__)
# Platforms rate limit more frequent edits.
_EDIT_EVERY_S = 1.5
_APPROVALS = {"once": "Once", "session": "This session", "always": "Always", "no": "No"}
_STOPPED = "(stopped)"
_NO_ANSWER = "The model gave no answer."
# An answer is retried this long.
DELIVERY_PATIENCE_S = 900.0

# The label of a button and the data that a press of it sends.
Button = tuple[str, str]


class ChatClient(Protocol):
    """The API of a chat platform, with retries. Methods raise one of `errors` once these are exhausted or futile."""

    errors: ClassVar[tuple[type[Exception], ...]]
    # The longest message in UTF-16 units.
    limit: ClassVar[int]
    # Whether a second message with the same nonce is not sent: the platform returns the first.
    has_nonces: ClassVar[bool]

    async def send(
        self,
        chat_id: int,
        text: str,
        *,
        nonce: str | None = None,
        buttons: Sequence[Button] = (),
        patience_s: float = DELIVERY_PATIENCE_S,
    ) -> int:
        """Send one message and return its id."""
        ...

    async def edit(self, chat_id: int, message_id: int, text: str, *, patience_s: float = DELIVERY_PATIENCE_S) -> int:
        """Replace the text of a message and remove its buttons; return the id of the message that has the text."""
        ...

    async def send_file(
        self, chat_id: int, name: str, text: str, caption: str, *, nonce: str | None = None
    ) -> None: ...

    async def send_typing(self, chat_id: int) -> None: ...

    def retry_delay_s(self, error: Exception) -> float:
        """Return how long the platform wants no requests after this error; 0 if it states no time."""
        ...


class StreamedReply(ABC):
    """Displays the events of one turn in one chat, each message once, also after a takeover (`DeliveryReceipt`)."""

    # A text of more messages is sent as its beginning and a file.
    max_pieces: ClassVar[int]
    typing_interval_s: ClassVar[float]

    def __init__(
        self,
        client: ChatClient,
        chat_id: int,
        receipt: DeliveryReceipt,
        *,
        pending_questions: dict[int, str],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._chat_id = chat_id
        self._receipt = receipt
        self._now = now
        self._text = ""
        # The current text of the message being edited.
        self._displayed = ""
        self._edited_at = float("-inf")
        self._typing_at = float("-inf")
        self._pending_questions = pending_questions

    @abstractmethod
    async def show_command(self, text: str) -> None:
        """Send the response of a slash command, which may have columns."""

    @abstractmethod
    def format_question(
        self, text: str, details: str, choices: Sequence[str], *, is_approval: bool
    ) -> tuple[str, list[str]]:
        """Return the message that asks a question and the labels of its buttons; `details` come below the question."""

    async def deliver(self, events: AsyncIterator[SequencedEvent]) -> None:
        """Display a turn as it streams; a platform failure does not affect the turn."""
        # The process before may have delivered it without a chance to note that.
        is_delivered = self._receipt.is_done
        # A turn that is released to another process has no last event: the message stays as it is, for that one.
        async for sequenced in events:
            try:
                if not is_delivered:
                    await self.show(sequenced.event)
            except self._client.errors as error:  # the events that follow, the answer among them, get their own attempt
                _log.warning("part of turn %s could not be delivered: %s", self._receipt.turn_id, type(error).__name__)

    async def show(self, event: GatewayEvent) -> None:
        match event:
            case TextDelta(text):
                self._text += text
                await self._update_preview()
            case ToolStarted():
                # Text before a tool call is a message of its own; the answer is the next one.
                await self._flush(self._text)
                await self._show_typing()
            case QuestionAsked():
                await self._flush(self._text)
                await self._show_question(event)
            case QuestionClosed(question_id, answer, is_stopped):
                await self._close_question(question_id, answer, is_stopped=is_stopped)
            case CommandAnswered(text=text):
                await self.show_command(text)
                await self._receipt.close()
            case CompactionFinished(outcome=outcome, message=message) if outcome in ("compacted", "digest") and message:
                await self._send_pieces(status_line(event) or message)
            case Notice(text=text, level="warning"):
                await self._send_pieces(text)
            case TurnFinished():
                await self._finish_turn(event)
            case _:
                await self._show_typing()

    async def _update_preview(self) -> None:
        """Update the message with the text so far, within the edit interval and the length limit."""
        text = self._text.strip()
        if not text or utf16_length(text) > self._client.limit or self._now() - self._edited_at < _EDIT_EVERY_S:
            return
        try:
            await self._display(text, patience_s=0.0)
        except self._client.errors as error:  # the complete text follows
            self._edited_at = self._now() + self._client.retry_delay_s(error)
            _log.info("a preview could not be displayed: %s", type(error).__name__)

    async def _display(self, text: str, *, patience_s: float = DELIVERY_PATIENCE_S) -> None:
        self._edited_at = self._now()
        client, receipt, chat_id = self._client, self._receipt, self._chat_id
        if receipt.message_id is None:
            # The process before may have sent it, with an earlier text.
            is_repeated = client.has_nonces and bool(receipt.nonce)
            nonce = await receipt.begin(text)
            await receipt.mark_sent(await client.send(chat_id, text, nonce=nonce, patience_s=patience_s))
            self._displayed = "" if is_repeated else text
        if receipt.message_id is not None and text != self._displayed:
            await receipt.begin(text)
            message_id = await client.edit(chat_id, receipt.message_id, text, patience_s=patience_s)
            if message_id != receipt.message_id:
                await receipt.mark_sent(message_id)
        self._displayed = text

    async def _flush(self, text: str) -> None:
        """Send the text before a tool call as a complete message, so that the answer starts a new one."""
        pieces = split_text(text.strip(), limit=self._client.limit)
        self._text = ""
        if not pieces:
            return
        try:
            await self._display(pieces[0])
            for piece in pieces[1:]:
                await self._client.send(self._chat_id, piece)
        finally:
            self._displayed = ""
            await self._receipt.complete()

    async def conclude(self, text: str) -> None:
        """Send the final text of the turn: in pieces, or its beginning with the whole as a file; each once."""
        whole, receipt = text.strip() or _NO_ANSWER, self._receipt
        pieces = split_text(whole, limit=self._client.limit)
        is_file = len(pieces) > self.max_pieces
        if receipt.pieces == 0:
            await self._display(pieces[0])
            await receipt.count_piece()
        for number in range(receipt.pieces, 2 if is_file else len(pieces)):
            nonce = f"{receipt.nonce}-{number}"
            if is_file:
                caption = f"The complete answer, {len(whole):,} characters."
                await self._client.send_file(self._chat_id, "answer.md", whole, caption, nonce=nonce)
            else:
                await self._client.send(self._chat_id, pieces[number], nonce=nonce)
            await receipt.count_piece()
        self._text = ""
        await receipt.close()

    async def _finish_turn(self, event: TurnFinished) -> None:
        for question_id in list(self._receipt.questions):
            await self._close_question(question_id, "", is_stopped=event.outcome == "interrupted")
        if event.outcome == "failed":
            await self._flush(self._text)
            await self.conclude(event.error or "The turn failed.")
        elif event.outcome == "interrupted":
            # A process that takes over has none of the text, which stays as it was displayed.
            text = self._text.strip() or self._receipt.text.removesuffix(_STOPPED)
            await self.conclude(f"{text.rstrip()}\n\n{_STOPPED}")
        else:
            # The final text is authoritative: the stream may have gaps.
            await self.conclude(event.final_response if event.final_response.strip() else self._text)

    async def _show_question(self, question: QuestionAsked) -> None:
        is_approval = question.kind == "approval"
        choices, numbers = list(question.choices), list(range(len(question.choices)))
        if is_approval:
            # The number in a button is that of the answer among all, whichever are offered.
            numbers = [n for n, answer in enumerate(_APPROVALS) if not choices or answer in choices]
            choices = [list(_APPROVALS.values())[n] for n in numbers]
        details = "".join(f"\n{detail}" for detail in (question.reason, question.covers) if detail)
        text, labels = self.format_question(question.text, details, choices, is_approval=is_approval)
        if not is_approval:
            self._pending_questions[self._chat_id] = question.question_id
        # The data of a button is limited to 64 bytes, so it has an index; the label or the text has the choice.
        prefix = "a" if is_approval else "c"
        buttons = [(label, f"{question.question_id}|{prefix}{n}") for n, label in zip(numbers, labels, strict=False)]
        pieces = split_text(text, limit=self._client.limit)
        if len(pieces) > self.max_pieces:
            caption = f"The complete question, {len(text):,} characters."
            await self._client.send_file(self._chat_id, "question.txt", text, caption)
            pieces = [shorten(text, self._client.limit)]
        for piece in pieces[:-1]:
            await self._client.send(self._chat_id, piece)
        message_id = await self._client.send(self._chat_id, pieces[-1], buttons=buttons)
        await self._receipt.open_question(question.question_id, message_id, pieces[-1])

    async def _close_question(self, question_id: str, answer: str, *, is_stopped: bool) -> None:
        """Replace a question's buttons by its answer."""
        if self._pending_questions.get(self._chat_id) == question_id:
            del self._pending_questions[self._chat_id]
        outcome = self._receipt.describe_answer(question_id, answer, is_stopped=is_stopped)
        message_id, text = await self._receipt.close_question(question_id)
        if message_id:
            outcome = shorten(outcome, self._client.limit // 2)
            question = shorten(text, self._client.limit - utf16_length(outcome) - 1)
            await self._client.edit(self._chat_id, message_id, f"{question}\n{outcome}")

    async def _send_pieces(self, text: str) -> None:
        for piece in split_text(text, limit=self._client.limit):
            await self._client.send(self._chat_id, piece)

    async def _show_typing(self) -> None:
        if self._now() - self._typing_at >= self.typing_interval_s:
            self._typing_at = self._now()
            await self._client.send_typing(self._chat_id)


def parse_button(data: str, find_choice: Callable[[int], str]) -> tuple[str, str]:
    """Return the question id and answer of a pressed button from its data alone, so that any process can handle it."""
    question_id, _, button = data.partition("|")
    index = int(button[1:]) if button[1:].isascii() and button[1:].isdecimal() else -1
    if button.startswith("a"):
        # Data that no button has is a refusal.
        return question_id, next((answer for i, answer in enumerate(_APPROVALS) if i == index), "no")
    return question_id, find_choice(index) if index >= 0 else ""
