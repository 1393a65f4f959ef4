"""Telegram as a platform: long polling in, messages that grow as the answer comes out.

An update is confirmed only once its message is stored, and each bears a key of its own, so that none is lost or taken
twice, whatever dies in between. Any number of processes may run this: Telegram lets one of them read at a time, the
others stand back and take over when it is gone.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

from telegram import Bot, BotCommand, CallbackQuery, Message, Update
from telegram.error import Conflict, InvalidToken, RetryAfter, TelegramError
from telegram.request import HTTPXRequest

from perdure.commands.all import all_commands
from perdure.config.gateway import TelegramSettings
from perdure.core.errors import ConfigError, NotFound, PerdureError, StoreError
from perdure.gateway.adapters.contract import GatewayPort
from perdure.gateway.adapters.telegram_reply import LiveReply, Post, answer_of
from perdure.gateway.guards.people import Principal
from perdure.gateway.telling.chats import ChatKey, ChatMessage, SequencedEvent

_LOG = logging.getLogger(__name__)
_TELEGRAM = "https://api.telegram.org"
_POLL_S = 30
# After another process was found reading; longer than it takes that one to ask again.
_STAND_BACK_S = 45.0
_LONGEST_PAUSE_S = 60.0
_MAX_FILE_BYTES = 10_000_000
_MAX_FILE_CHARS = 200_000
_GREETING = "Write to me as you would to a colleague. /help lists the commands; nothing you say is forgotten."


class TelegramAdapter:
    """One bot."""

    platform = "telegram"

    def __init__(self, token: str, settings: TelegramSettings, *, stand_back_s: float = _STAND_BACK_S) -> None:
        base = (settings.base_url or _TELEGRAM).rstrip("/")
        # Reading waits for half a minute at a time; it must not use up the connections that answers need.
        self._bot = Bot(
            token,
            base_url=f"{base}/bot",
            base_file_url=f"{base}/file/bot",
            request=HTTPXRequest(connection_pool_size=64),
            get_updates_request=HTTPXRequest(),
        )
        self._post = Post(self._bot)
        self._people = dict(_people(settings))
        # Questions of the model's that a person may answer in words, by chat.
        self._asked: dict[int, str] = {}
        self._stand_back_s = stand_back_s
        self._reading: asyncio.Task[None] | None = None

    async def start(self, hub: GatewayPort) -> None:
        """Begins to take messages. Raises ConfigError where Telegram does not know the token."""
        try:
            await self._bot.initialize()
        except InvalidToken as error:
            raise ConfigError("Telegram refuses the bot's token; ask @BotFather for it and set it anew") from error
        except TelegramError as error:  # offline now, perhaps not later: reading goes on trying
            _LOG.warning("Telegram cannot be reached: %s", error)
        self._reading = asyncio.create_task(self._read(hub), name="telegram-updates")

    async def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            with suppress(asyncio.CancelledError):
                await self._reading
            self._reading = None

    async def close(self) -> None:
        await self._bot.shutdown()

    async def deliver(self, chat: ChatKey, turn_id: str, events: AsyncIterator[SequencedEvent]) -> None:
        """Shows a turn as it comes; a platform that fails costs the showing, never the turn."""
        reply = LiveReply(self._post, int(chat.chat), asked=self._asked)
        try:
            async for numbered in events:
                await reply.show(numbered.event)
            await reply.finish()
        except TelegramError as error:
            _LOG.warning("turn %s could not be shown in chat %s: %s", turn_id, chat.chat, error)

    # -- what comes in -----------------------------------------------------------------------------------------------

    async def _read(self, hub: GatewayPort) -> None:
        """Reads updates for ever; each is confirmed by asking for the next."""
        next_id, pause_s, are_commands_told = 0, 1.0, False
        while True:
            try:
                updates = await self._bot.get_updates(
                    offset=next_id, timeout=_POLL_S, allowed_updates=["message", "callback_query"]
                )
                if not are_commands_told:
                    await self._tell_commands()
                    are_commands_told = True
                for update in updates:
                    await self._take(update, hub)
                    next_id = update.update_id + 1
                pause_s = 1.0
            except Conflict:
                await asyncio.sleep(self._stand_back_s)
            except RetryAfter as told:
                await asyncio.sleep(_seconds(told))
            except (TelegramError, StoreError) as error:
                # Nothing was confirmed: the same updates come again.
                _LOG.warning("updates wait: %s", error)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def _take(self, update: Update, hub: GatewayPort) -> None:
        message, pressed = update.message, update.callback_query
        if pressed is not None:
            await self._answer(pressed, hub)
        elif message is not None and message.from_user is not None:
            person = self._people.get(message.from_user.id)
            if person is None:
                await self._turn_away(message)
            else:
                await self._submit(message, person, hub)

    async def _submit(self, message: Message, person: Principal, hub: GatewayPort) -> None:
        content = await self._content(message)
        if content is None:
            await self._post.say(message.chat_id, "I can read text, photos and text files; this is none of them.")
            return
        if content == "/start":
            await self._post.say(message.chat_id, _GREETING)
            return
        if isinstance(content, str) and not content.startswith("/") and message.chat_id in self._asked:
            with suppress(NotFound):  # closed meanwhile: then it is an ordinary message
                await hub.answer(self._asked.pop(message.chat_id), content, person)
                return
        chat = ChatKey(self.platform, person.user_key, str(message.chat_id))
        key = f"telegram:{message.chat_id}:{message.message_id}"
        try:
            await hub.submit(ChatMessage(chat, content, key=key), person)
        except StoreError:
            raise
        except PerdureError as error:
            await self._post.say(message.chat_id, str(error))

    async def _answer(self, pressed: CallbackQuery, hub: GatewayPort) -> None:
        """A button was pressed: the answer to a question of a turn's."""
        person = self._people.get(pressed.from_user.id)
        question_id, answer = answer_of(pressed)
        told = None
        try:
            if person is not None:
                await hub.answer(question_id, answer, person)
        except NotFound:
            told = "This question is closed."
        with suppress(TelegramError):  # a button that was answered too late keeps its little clock; no more than that
            await pressed.answer(told)

    async def _content(self, message: Message) -> str | Mapping[str, Any] | None:
        """What was said, as the hub takes it; None for what cannot be read."""
        text = message.text or message.caption or ""
        if message.photo:
            data = await self._download(message.photo[-1].file_id)
            return _with_image(text, data, "image/jpeg") if data is not None else None
        file = message.document
        if file is not None:
            data = await self._download(file.file_id) if (file.file_size or 0) <= _MAX_FILE_BYTES else None
            if data is None:
                return None
            if (file.mime_type or "").startswith("image/"):
                return _with_image(text, data, file.mime_type or "")
            return _with_file(text, data, file.file_name or "file")
        return _without_bot_name(text, self._bot.username if self._bot_is_known else "") or None

    @property
    def _bot_is_known(self) -> bool:
        try:
            return bool(self._bot.username)
        except (RuntimeError, TelegramError):  # not asked yet: Telegram could not be reached at the start
            return False

    async def _download(self, file_id: str) -> bytes | None:
        file = await self._bot.get_file(file_id)
        data = bytes(await file.download_as_bytearray())
        return data if len(data) <= _MAX_FILE_BYTES else None

    async def _turn_away(self, message: Message) -> None:
        who = message.from_user.id if message.from_user is not None else 0
        await self._post.say(
            message.chat_id,
            f"This bot answers people it knows. Your number is {who}: its owner can add it to "
            "gateway.telegram.allowed_users.",
        )

    async def _tell_commands(self) -> None:
        """The list behind the slash in the app."""
        known = [BotCommand(c.name, c.summary[:256]) for c in all_commands() if c.name != "quit"]
        await self._bot.set_my_commands(known)


def _people(settings: TelegramSettings) -> Mapping[int, Principal]:
    """Telegram's numbers → persons; `123=alice` shares what alice has elsewhere."""
    found = {}
    for item in settings.allowed_users:
        number, _, user = item.partition("=")
        found[int(number)] = Principal(user or f"telegram:{number}", frozenset(settings.scopes))
    return found


def _with_image(text: str, data: bytes, media_type: str) -> Mapping[str, Any]:
    url = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
    words = [{"type": "text", "text": text}] if text else []
    return {"role": "user", "content": [*words, {"type": "image_url", "image_url": {"url": url}}]}


def _with_file(text: str, data: bytes, name: str) -> str | None:
    """A text file's content behind what was said of it; None for what is no text."""
    try:
        content = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if "\0" in content:
        return None
    cut = (
        f"\n… (the first {_MAX_FILE_CHARS:,} of {len(content):,} characters)" if len(content) > _MAX_FILE_CHARS else ""
    )
    return f"{text}\n\n{name}:\n```\n{content[:_MAX_FILE_CHARS]}{cut}\n```".strip()


def _without_bot_name(text: str, username: str) -> str:
    """In groups a command names its bot: /help@perdure_bot."""
    first, space, rest = text.partition(" ")
    if username and first.startswith("/") and first.lower().endswith(f"@{username.lower()}"):
        first = first[: -len(username) - 1]
    return f"{first}{space}{rest}"


def _seconds(told: RetryAfter) -> float:
    after = told.retry_after
    return float(after) if isinstance(after, int | float) else after.total_seconds()
