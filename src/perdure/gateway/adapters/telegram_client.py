"""Telegram client: send and edit messages with retries, in pieces of the length Telegram accepts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from telegram import Bot, InlineKeyboardMarkup, MessageEntity
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

LIMIT = 4_096
# An answer is retried this long; a download, which the next messages of its chat wait for, only briefly.
DELIVERY_PATIENCE_S = 900.0
_DOWNLOAD_PATIENCE_S = 60.0
# Retrying cannot help with these.
_PERMANENT_ERRORS = (BadRequest, ChatMigrated, EndPointNotFound, Forbidden, InvalidToken)
_MAX_RETRY_DELAY_S = 60.0

Sleep = Callable[[float], Awaitable[None]]


class TelegramClient:
    """Sends messages with retries. Raises TelegramError once they are exhausted or cannot help."""

    def __init__(self, bot: Bot, *, sleep: Sleep, now: Callable[[], float]) -> None:
        self._bot = bot
        self._sleep = sleep
        self._now = now

    async def send_text(
        self, chat_id: int, text: str, *, has_columns: bool = False, patience_s: float = DELIVERY_PATIENCE_S
    ) -> int:
        """Send a text in as many messages as needed and return the last id; `has_columns` uses a fixed-width font."""
        pieces = split_text(text, limit=LIMIT)
        return await self.send_pieces(chat_id, pieces, has_columns=has_columns, patience_s=patience_s)

    async def send_pieces(
        self,
        chat_id: int,
        pieces: Sequence[str],
        keyboard: InlineKeyboardMarkup | None = None,
        *,
        has_columns: bool = False,
        patience_s: float = DELIVERY_PATIENCE_S,
    ) -> int:
        """Send each piece as a message, the last one with the buttons, and return the last id."""
        message_id = 0
        for number, piece in enumerate(pieces, 1):
            fixed = [MessageEntity(MessageEntity.PRE, 0, utf16_length(piece))] if has_columns else None
            markup = keyboard if number == len(pieces) else None
            send = partial(self._bot.send_message, chat_id, piece, reply_markup=markup, entities=fixed)
            message_id = (await self._retry(send, patience_s)).message_id
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

    async def send_file(self, chat_id: int, name: str, text: str, caption: str) -> None:
        await self._retry(lambda: self._bot.send_document(chat_id, text.encode(), filename=name, caption=caption))

    async def send_typing(self, chat_id: int) -> None:
        with suppress(TelegramError):  # cosmetic
            await self._bot.send_chat_action(chat_id, ChatAction.TYPING)

    async def download(self, file_id: str) -> bytes:
        file = await self._retry(lambda: self._bot.get_file(file_id), _DOWNLOAD_PATIENCE_S)
        return bytes(await self._retry(file.download_as_bytearray, _DOWNLOAD_PATIENCE_S))

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
                    wait_s = max(retry_delay_s(error), 1.0)
                else:
                    wait_s, delay_s = delay_s, min(delay_s * 2, _MAX_RETRY_DELAY_S)
                if self._now() + wait_s > deadline:
                    raise
            await self._sleep(wait_s)


def retry_delay_s(error: RetryAfter) -> float:
    after = error.retry_after
    return float(after) if isinstance(after, int | float) else after.total_seconds()
