"""How a turn looks on Telegram: a message edited while it streams, questions with buttons, very long texts as files."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from telegram import CallbackQuery, InlineKeyboardButton, InlineKeyboardMarkup, Message
from telegram.error import RetryAfter, TelegramError

from perdure.agent.callbacks import status_line
from perdure.core.events import CompactionFinished, Notice, TextDelta, ToolStarted, TurnFinished
from perdure.gateway.adapters.formatting import shorten, split_text, utf16_length
from perdure.gateway.adapters.receipts import DeliveryReceipt
from perdure.gateway.adapters.telegram_client import DELIVERY_PATIENCE_S, LIMIT, TelegramClient, retry_delay_s
from perdure.gateway.events.types import CommandAnswered, GatewayEvent, QuestionAsked, QuestionClosed

_log = logging.getLogger(__name__)
# Send a longer answer as its first message and a file.
_MAX_PIECES = 4
# Telegram rate limits more frequent edits.
_EDIT_EVERY_S = 1.5
_TYPING_EVERY_S = 4.0
_APPROVALS = {"once": "Once", "session": "This session", "always": "Always", "no": "No"}
_NO_ANSWER = "The model gave no answer."


class TelegramReply:
    """Displays the events of one turn in one chat."""

    def __init__(
        self,
        client: TelegramClient,
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
        self._edited_at = 0.0
        self._typing_at = float("-inf")
        self._pending_questions = pending_questions

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
            case QuestionClosed(question_id, answer):
                await self._close_question(question_id, answer)
            case CommandAnswered(text=text):
                await self._client.send_text(self._chat_id, text, has_columns="\n" in text)
                await self._receipt.close()
            case CompactionFinished(outcome=outcome, message=message) if outcome in ("compacted", "digest") and message:
                await self._client.send_text(self._chat_id, status_line(event) or message)
            case Notice(text=text, level="warning"):
                await self._client.send_text(self._chat_id, text)
            case TurnFinished():
                await self._finish_turn(event)
            case _:
                await self._show_typing()

    async def _update_preview(self) -> None:
        """Update the message with the text so far, within the edit interval and the length limit."""
        text = self._text.strip()
        if not text or utf16_length(text) > LIMIT or self._now() - self._edited_at < _EDIT_EVERY_S:
            return
        try:
            await self._display(text, patience_s=0.0)
        except RetryAfter as error:
            self._edited_at = self._now() + retry_delay_s(error)
        except TelegramError as error:  # the complete text follows
            _log.info("a preview could not be displayed: %s", error)

    async def _display(self, text: str, *, patience_s: float = DELIVERY_PATIENCE_S) -> None:
        self._edited_at = self._now()
        receipt, message_id = self._receipt, self._receipt.message_id
        if message_id is None:
            await receipt.begin()
            await receipt.sent(await self._client.send_text(self._chat_id, text, patience_s=patience_s))
        elif text != self._displayed:
            current_id = await self._client.edit(self._chat_id, message_id, text, patience_s=patience_s)
            if current_id != message_id:
                await receipt.sent(current_id)
        self._displayed = text

    async def _flush(self, text: str) -> None:
        """Complete the message with a text that comes before the answer."""
        pieces = split_text(text.strip(), limit=LIMIT)
        self._text = ""
        if not pieces:
            return
        try:
            await self._display(pieces[0])
            await self._client.send_pieces(self._chat_id, pieces[1:])
        finally:
            self._displayed = ""
            await self._receipt.complete()

    async def _conclude(self, text: str) -> None:
        """Send the last text of the turn, in pieces or as its beginning and a file, each once."""
        whole, receipt = text.strip() or _NO_ANSWER, self._receipt
        pieces = split_text(whole, limit=LIMIT)
        is_file = len(pieces) > _MAX_PIECES
        if receipt.pieces == 0:
            await self._display(pieces[0])
            await receipt.count_piece()
        for number in range(receipt.pieces, 2 if is_file else len(pieces)):
            if is_file:
                caption = f"The complete answer, {len(whole):,} characters."
                await self._client.send_file(self._chat_id, "answer.md", whole, caption)
            else:
                await self._client.send_pieces(self._chat_id, pieces[number : number + 1])
            await receipt.count_piece()
        self._text = ""
        await receipt.close()

    async def _finish_turn(self, event: TurnFinished) -> None:
        for question_id in list(self._receipt.questions):
            await self._close_question(question_id, "")
        if event.outcome == "failed":
            await self._flush(self._text)
            await self._conclude(event.error or "The turn failed.")
        elif event.outcome == "interrupted":
            await self._conclude(f"{self._text}\n\n(stopped)")
        else:
            # The final text is authoritative: the stream may have gaps.
            text = event.final_response if event.final_response.strip() else self._text
            await self._conclude(text if text.strip() else _NO_ANSWER)

    async def _show_question(self, question: QuestionAsked) -> None:
        is_approval = question.kind == "approval"
        labels = list(_APPROVALS.values()) if is_approval else list(question.choices)
        text = f"May I run this?\n{question.text}" if is_approval else question.text
        for detail in (question.reason, question.covers):
            text += f"\n{detail}" if detail else ""
        # Button data is limited to 64 bytes, so it has an index; the label has the text.
        prefix = "a" if is_approval else "c"
        rows = [
            [InlineKeyboardButton(label, callback_data=f"{question.question_id}|{prefix}{i}")]
            for i, label in enumerate(labels)
        ]
        keyboard = InlineKeyboardMarkup(rows) if rows else None
        if not is_approval:
            self._pending_questions[self._chat_id] = question.question_id
        pieces = split_text(text, limit=LIMIT)
        if len(pieces) > _MAX_PIECES:
            caption = f"The complete question, {len(text):,} characters."
            await self._client.send_file(self._chat_id, "question.txt", text, caption)
            pieces = [shorten(text, LIMIT)]
        message_id = await self._client.send_pieces(self._chat_id, pieces, keyboard)
        await self._receipt.open_question(question.question_id, message_id, pieces[-1])

    async def _close_question(self, question_id: str, answer: str) -> None:
        """Replace a question's buttons by its answer."""
        if self._pending_questions.get(self._chat_id) == question_id:
            del self._pending_questions[self._chat_id]
        outcome = self._receipt.describe_answer(question_id, answer)
        message_id, text = await self._receipt.close_question(question_id)
        if message_id:
            outcome = shorten(outcome, LIMIT // 2)
            question = shorten(text, LIMIT - utf16_length(outcome) - 1)
            await self._client.edit(self._chat_id, message_id, f"{question}\n{outcome}")

    async def _show_typing(self) -> None:
        if self._now() - self._typing_at >= _TYPING_EVERY_S:
            self._typing_at = self._now()
            await self._client.send_typing(self._chat_id)


def parse_answer(query: CallbackQuery) -> tuple[str, str]:
    """Return the question id and answer of a pressed button, from the message alone, so that any process can."""
    data = query.data or ""
    question_id, _, button = data.partition("|")
    if button.startswith("a"):
        # Data that no button has is a refusal.
        return question_id, next((a for i, a in enumerate(_APPROVALS) if button[1:] == str(i)), "no")
    keyboard = query.message.reply_markup if isinstance(query.message, Message) else None
    buttons = [b for row in keyboard.inline_keyboard for b in row] if keyboard is not None else []
    return question_id, next((b.text for b in buttons if b.callback_data == data), "")
