"""One turn as a Telegram chat sees it: a message that grows, questions with buttons, the whole answer at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from telegram import Bot, CallbackQuery, InlineKeyboardButton, InlineKeyboardMarkup, Message, MessageEntity
from telegram.constants import ChatAction
from telegram.error import BadRequest, NetworkError, RetryAfter

from perdure.core.events import CompactionFinished, Notice, TextDelta, ToolStarted, TurnFinished
from perdure.gateway.adapters.pieces import pieces, units
from perdure.gateway.telling.chats import CommandAnswered, GatewayEvent, QuestionAsked, QuestionClosed

LIMIT = 4_096
# An answer of more messages than this comes as its beginning and a file.
_MAX_PIECES = 4
# Telegram slows down those who edit more often.
_EDIT_EVERY_S = 1.5
_TYPING_EVERY_S = 4.0
_TRIES = 5
_APPROVALS = {"once": "Once", "session": "This session", "always": "Always", "no": "No"}


class Post:
    """Sends, and waits when Telegram asks for it. Raises TelegramError once that is of no use."""

    def __init__(self, bot: Bot) -> None:
        self._bot = bot

    async def say(
        self, chat_id: int, text: str, keyboard: InlineKeyboardMarkup | None = None, *, has_columns: bool = False
    ) -> int:
        """Sends one text, in as many messages as it needs; the id of the last. Columns stand in a fixed width."""
        message_id = 0
        for piece in pieces(text, limit=LIMIT):
            fixed = [MessageEntity(MessageEntity.PRE, 0, units(piece))] if has_columns else None
            sent = await _patiently(
                partial(self._bot.send_message, chat_id, piece, reply_markup=keyboard, entities=fixed)
            )
            message_id = sent.message_id
        return message_id

    async def edit(self, chat_id: int, message_id: int, text: str) -> None:
        """Another text in place of what it says; its buttons go."""
        try:
            await _patiently(lambda: self._bot.edit_message_text(text, chat_id=chat_id, message_id=message_id))
        except BadRequest as error:
            if "not modified" not in str(error).lower():
                raise

    async def file(self, chat_id: int, name: str, text: str, caption: str) -> None:
        await _patiently(lambda: self._bot.send_document(chat_id, text.encode(), filename=name, caption=caption))

    async def typing(self, chat_id: int) -> None:
        await _patiently(lambda: self._bot.send_chat_action(chat_id, ChatAction.TYPING))


class LiveReply:
    """The events of one turn, shown in one chat."""

    def __init__(
        self, post: Post, chat_id: int, *, asked: dict[int, str], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._post = post
        self._chat_id = chat_id
        self._now = now
        self._said = ""
        # The message that grows, and how it reads now.
        self._message_id: int | None = None
        self._shown = ""
        self._edited_at = 0.0
        self._typing_at = float("-inf")
        self._questions: dict[str, tuple[int, str]] = {}
        self._asked = asked

    async def show(self, event: GatewayEvent) -> None:
        match event:
            case TextDelta(text):
                self._said += text
                await self._grow()
            case ToolStarted():
                # What was said before a tool stands by itself; the answer comes after.
                await self._settle(self._said)
                await self._type()
            case QuestionAsked():
                await self._settle(self._said)
                await self._ask(event)
            case QuestionClosed(question_id, answer):
                await self._close(question_id, answer)
            case CommandAnswered(text=text):
                await self._post.say(self._chat_id, text, has_columns="\n" in text)
            case CompactionFinished(outcome=outcome, message=message) if outcome in ("compacted", "digest") and message:
                await self._post.say(self._chat_id, message)
            case Notice(text=text, level="warning"):
                await self._post.say(self._chat_id, text)
            case TurnFinished():
                await self._end(event)
            case _:
                await self._type()

    async def finish(self) -> None:
        """No more comes: what was said is there."""
        await self._settle(self._said)

    async def _grow(self) -> None:
        """Shows what has come so far, as often as Telegram likes, as long as it fits one message."""
        text = self._said.strip()
        if not text or units(text) > LIMIT or self._now() - self._edited_at < _EDIT_EVERY_S:
            return
        await self._put(text)

    async def _put(self, text: str) -> None:
        self._edited_at = self._now()
        if self._message_id is None:
            self._message_id = await self._post.say(self._chat_id, text)
        elif text != self._shown:
            await self._post.edit(self._chat_id, self._message_id, text)
        self._shown = text

    async def _settle(self, text: str) -> None:
        """The message that grew gets its last words; what does not fit follows in more, or as a file."""
        whole = text.strip()
        parts = pieces(whole, limit=LIMIT)
        if parts:
            await self._put(parts[0])
            if len(parts) > _MAX_PIECES:
                caption = f"The whole answer, {len(whole):,} characters."
                await self._post.file(self._chat_id, "answer.md", whole, caption)
            else:
                for part in parts[1:]:
                    await self._post.say(self._chat_id, part)
        self._said, self._shown, self._message_id = "", "", None

    async def _end(self, event: TurnFinished) -> None:
        if event.outcome == "failed":
            await self._settle(self._said)
            await self._post.say(self._chat_id, event.error or "The turn failed.")
        elif event.outcome == "interrupted":
            await self._settle(f"{self._said}\n\n(stopped)")
        else:
            # The final text is the truth; what was streamed of it may lack pieces.
            await self._settle(event.final_response or self._said)

    async def _ask(self, question: QuestionAsked) -> None:
        is_approval = question.kind == "approval"
        labels = list(_APPROVALS.values()) if is_approval else list(question.choices)
        text = f"May I run this?\n{question.text}" if is_approval else question.text
        for more in (question.reason, question.covers):
            text += f"\n{more}" if more else ""
        # 64 bytes is all a button may carry: which one it is; its label says the rest.
        sign = "a" if is_approval else "c"
        rows = [
            [InlineKeyboardButton(label, callback_data=f"{question.question_id}|{sign}{i}")]
            for i, label in enumerate(labels)
        ]
        keyboard = InlineKeyboardMarkup(rows) if rows else None
        if not is_approval:
            self._asked[self._chat_id] = question.question_id
        self._questions[question.question_id] = (await self._post.say(self._chat_id, text, keyboard), text)

    async def _close(self, question_id: str, answer: str) -> None:
        """The buttons go, the answer stays."""
        if self._asked.get(self._chat_id) == question_id:
            del self._asked[self._chat_id]
        message_id, text = self._questions.pop(question_id, (0, ""))
        if message_id:
            told = f"→ {answer}" if answer else "→ nobody answered in time"
            await self._post.edit(self._chat_id, message_id, f"{text}\n{told}")

    async def _type(self) -> None:
        if self._now() - self._typing_at >= _TYPING_EVERY_S:
            self._typing_at = self._now()
            await self._post.typing(self._chat_id)


def answer_of(pressed: CallbackQuery) -> tuple[str, str]:
    """The question a pressed button belongs to, and what it says; read from the message alone, in any process."""
    data = pressed.data or ""
    question_id, _, which = data.partition("|")
    if which.startswith("a"):
        return question_id, list(_APPROVALS)[int(which[1:])] if which[1:].isdecimal() else "no"
    shown = pressed.message.reply_markup if isinstance(pressed.message, Message) else None
    buttons = [b for row in shown.inline_keyboard for b in row] if shown is not None else []
    return question_id, next((b.text for b in buttons if b.callback_data == data), "")


async def _patiently(call: Callable[[], Awaitable[Any]]) -> Any:
    """One call, made again when Telegram says to wait or the line drops."""
    for attempt in range(_TRIES):
        try:
            return await call()
        except RetryAfter as told:
            after = told.retry_after
            await asyncio.sleep(float(after) if isinstance(after, int | float) else after.total_seconds())
        except BadRequest:
            raise
        except NetworkError:
            if attempt == _TRIES - 1:
                raise
            await asyncio.sleep(2.0**attempt)
    return await call()
