"""Telegram client: send and edit messages with retries, in pieces of the length Telegram accepts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from telegram import Bot, InlineKeyboardButton, InlineKeyboardMarkup, MessageEntity
from telegram.constants import ChatAction
from telegram.error import (
    BadRequest,
    ChatMigrated,
    EndPointNotFound,
    Forbidden,
    InvalidToken,
    RetryAfter,
    TelegramError,
)

from perdure.gateway.adapters.formatting import split_text, utf16_length
from perdure.gateway.adapters.streamed_reply import DELIVERY_PATIENCE_S, Button

# The next messages of its chat wait for a download.
_DOWNLOAD_PATIENCE_S = 60.0
# Retrying cannot help with these.
_PERMANENT_ERRORS = (BadRequest, ChatMigrated, EndPointNotFound, Forbidden, InvalidToken)
_MAX_RETRY_DELAY_S = 60.0

Sleep = Callable[[float], Awaitable[None]]


class TelegramClient:
    """Sends messages with retries. Raises TelegramError once they are exhausted or cannot help."""

    errors: ClassVar[tuple[type[Exception], ...]] = (TelegramError,)
    limit: ClassVar[int] = 4_096
    has_nonces: ClassVar[bool] = False

    def __init__(self, bot: Bot, *, sleep: Sleep, now: Callable[[], float]) -> None:
        self._bot = bot
        self._sleep = sleep
        self._now = now

    async def send_text(
        self, chat_id: int, text: str, *, has_columns: bool = False, patience_s: float = DELIVERY_PATIENCE_S
    ) -> int:
        """Send a text in as many messages as needed and return the last id; `has_columns` uses a fixed-width font."""
        message_id = 0
        for piece in split_text(text, limit=self.limit):
            fixed = [MessageEntity(MessageEntity.PRE, 0, utf16_length(piece))] if has_columns else None
            send = partial(self._bot.send_message, chat_id, piece, entities=fixed)
            message_id = (await self._retry(send, patience_s)).message_id
        return message_id

    async def send(
        self,
        chat_id: int,
        text: str,
        *,
        nonce: str | None = None,
        buttons: Sequence[Button] = (),
        patience_s: float = DELIVERY_PATIENCE_S,
    ) -> int:
        """Send one message, with a row for each button, and return its id. Telegram has no use for the nonce."""
        rows = [[InlineKeyboardButton(label, callback_data=data)] for label, data in buttons]
        markup = InlineKeyboardMarkup(rows) if rows else None
        send = partial(self._bot.send_message, chat_id, text, reply_markup=markup)
        message_id: int = (await self._retry(send, patience_s)).message_id
        return message_id

    async def edit(self, chat_id: int, message_id: int, text: str, *, patience_s: float = DELIVERY_PATIENCE_S) -> int:
        """Replace the text of a message and remove its buttons; return the id of the message that has the text."""
        try:
            edit = partial(self._bot.edit_message_text, text, chat_id=chat_id, message_id=message_id)
            await self._retry(edit, patience_s)
        except BadRequest as error:
            if "not modified" not in str(error).lower():
                # Deleted meanwhile, or not editable any more.
                return await self.send_text(chat_id, text, patience_s=patience_s)
        return message_id

    async def send_file(self, chat_id: int, name: str, text: str, caption: str, *, nonce: str | None = None) -> None:
        await self._retry(lambda: self._bot.send_document(chat_id, text.encode(), filename=name, caption=caption))

    async def send_typing(self, chat_id: int) -> None:
        with suppress(TelegramError):  # cosmetic
            await self._bot.send_chat_action(chat_id, ChatAction.TYPING)

    async def download(self, file_id: str) -> bytes:
        file = await self._retry(lambda: self._bot.get_file(file_id), _DOWNLOAD_PATIENCE_S)
        return bytes(await self._retry(file.download_as_bytearray, _DOWNLOAD_PATIENCE_S))

    def retry_delay_s(self, error: Exception) -> float:
        return flood_delay_s(error) if isinstance(error, RetryAfter) else 0.0

    async def _retry(self, call: Callable[[], Awaitable[Any]], patience_s: float = DELIVERY_PATIENCE_S) -> Any:
        """Call the API until it succeeds, fails permanently, or the next attempt would exceed the patience."""
        deadline, delay_s = self._now() + patience_s, 1.0
        while True:
            try:
                return await call()
            except _PERMANENT_ERRORS:
                raise
            except TelegramError as error:
                if isinstance(error, RetryAfter):
                    wait_s = max(flood_delay_s(error), 1.0)
                else:
                    wait_s, delay_s = delay_s, min(delay_s * 2, _MAX_RETRY_DELAY_S)
                if self._now() + wait_s > deadline:
                    raise
            await self._sleep(wait_s)


def flood_delay_s(error: RetryAfter) -> float:
    after = error.retry_after
    return float(after) if isinstance(after, int | float) else after.total_seconds()
