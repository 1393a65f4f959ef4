"""Telegram adapter: receive updates by long polling, deliver turns as messages that are edited while they stream."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from telegram import Bot, BotCommand, CallbackQuery, Message, Update
from telegram.error import Conflict, InvalidToken, RetryAfter, TelegramError
from telegram.request import HTTPXRequest

from perdure.commands.registry import all_commands
from perdure.config.settings import TelegramSettings
from perdure.core.errors import ConfigError, CorruptStore, NewerSchema, NotFound, PerdureError, StoreUnavailable
from perdure.core.visibility import User
from perdure.gateway.adapters.base import GatewayPort
from perdure.gateway.adapters.formatting import MAX_FILE_BYTES, with_file, with_image
from perdure.gateway.adapters.receipts import DeliveryReceipt, DeliveryState, purge_receipts
from perdure.gateway.adapters.streamed_reply import StreamedReply, parse_button
from perdure.gateway.adapters.telegram_client import Sleep, TelegramClient, flood_delay_s
from perdure.gateway.auth.principal import Principal
from perdure.gateway.errors import GatewayStopping
from perdure.gateway.events.types import ChatKey, ChatMessage, SequencedEvent
from perdure.gateway.executor import run_blocking
from perdure.store.inbox import InboxFull

_log = logging.getLogger(__name__)
_TELEGRAM = "https://api.telegram.org"
_POLL_S = 30
_MAX_RETRY_DELAY_S = 60.0
# Nothing can be stored now: leave the update with Telegram. Any other error concerns one update only.
_STORE_OUTAGES = (StoreUnavailable, NewerSchema, CorruptStore, GatewayStopping)
# Key of an update that is stored until it is processed.
_UPDATE = "update:"
_STRANGER_NOTICE_EVERY_S = 3_600.0
_MAX_STRANGERS = 1_000
_MAX_NOTICES = 100
# Delay after a polling conflict; longer than the other process's poll, so that it keeps polling.
_CONFLICT_DELAY_S = 45.0
_GREETING = "Send me a message to start. /help lists the commands; the whole conversation is stored."


class UpdatesRequest(HTTPXRequest):
    """Blanks updates that the library cannot parse: one of them would otherwise fail the whole batch, every time."""

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        response = HTTPXRequest.parse_json_payload(payload)
        updates = response.get("result") if isinstance(response, dict) else None
        if isinstance(updates, list):
            response["result"] = [u for u in map(_parseable_update, updates) if u is not None]
            if updates and not response["result"]:
                raise TelegramError("no update has an id")
        return response


class TelegramAdapter:
    """The Telegram adapter of one bot."""

    platform = "telegram"

    def __init__(
        self,
        token: str,
        settings: TelegramSettings,
        state: DeliveryState,
        *,
        conflict_delay_s: float = _CONFLICT_DELAY_S,
        sleep: Sleep = asyncio.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        base = (settings.base_url or _TELEGRAM).rstrip("/")
        # Separate connection pools: long polling must not block the connections that deliveries use.
        self._bot = Bot(
            token,
            base_url=f"{base}/bot",
            base_file_url=f"{base}/file/bot",
            request=HTTPXRequest(connection_pool_size=64),
            get_updates_request=UpdatesRequest(),
        )
        self._client = TelegramClient(self._bot, sleep=sleep, now=now)
        self._state = state
        self._bot_id = token.partition(":")[0]
        self._sleep = sleep
        self._now = now
        self._principals = dict(_principals(settings))
        # Open questions that the next text message answers, by chat id.
        self._pending_questions: dict[int, str] = {}
        self._conflict_delay_s = conflict_delay_s
        self._poller: asyncio.Task[None] | None = None
        # When each unknown chat was last notified.
        self._strangers: dict[int, float] = {}
        self._notices: set[asyncio.Task[None]] = set()
        # Updates that wait for a file, or for an update that does, by chat: a download holds up no other chat.
        self._backlogs: dict[int, deque[Update]] = {}
        self._downloads: set[asyncio.Task[None]] = set()

    async def start(self, hub: GatewayPort) -> None:
        """Start polling. Raises ConfigError if Telegram rejects the token."""
        try:
            await self._bot.initialize()
        except InvalidToken as error:
            raise ConfigError("Telegram rejected the bot token; get a new one from @BotFather") from error
        except TelegramError as error:  # temporarily offline: polling retries
            _log.warning("Telegram cannot be reached: %s", error)
        await run_blocking(purge_receipts, self._state)
        await self._restore_backlogs(hub)
        self._poller = asyncio.create_task(self._poll_updates(hub), name="telegram-updates")

    async def stop(self) -> None:
        if self._poller is not None:
            self._poller.cancel()
            with suppress(asyncio.CancelledError):
                await self._poller
            self._poller = None
        # What they have not finished is stored.
        await _cancel(self._downloads)

    async def close(self) -> None:
        await _cancel(self._notices)
        await self._bot.shutdown()

    async def deliver(self, chat: ChatKey, turn_id: str, events: AsyncIterator[SequencedEvent]) -> None:
        """Display a turn as it streams; a platform failure does not affect the turn."""
        receipt = await run_blocking(DeliveryReceipt.load, self._state, turn_id)
        reply = TelegramReply(
            self._client, int(chat.chat), receipt, pending_questions=self._pending_questions, now=self._now
        )
        await reply.deliver(events)

    # -- inbound -------------------------------------------------------------------------------------------------------

    async def _poll_updates(self, hub: GatewayPort) -> None:
        """Poll updates forever; requesting the next one acknowledges the previous."""
        next_id, delay_s, are_commands_registered = 0, 1.0, False
        while True:
            try:
                updates = await self._bot.get_updates(
                    offset=next_id, timeout=_POLL_S, allowed_updates=["message", "callback_query"]
                )
                if not are_commands_registered:
                    are_commands_registered = await self._register_commands()
                for update in updates:
                    await self._accept_update(update, hub)
                    next_id = update.update_id + 1
                delay_s = 1.0
            except Conflict:
                await asyncio.sleep(self._conflict_delay_s)
            except RetryAfter as error:
                await self._sleep(flood_delay_s(error))
            except Exception as error:  # the poller serves every user, so it survives any failure
                # Not acknowledged: the same updates are delivered again.
                _log.warning("polling for updates failed: %s", error)
                await self._sleep(delay_s)
                delay_s = min(delay_s * 2, _MAX_RETRY_DELAY_S)

    async def _accept_update(self, update: Update, hub: GatewayPort) -> None:
        """Process an update at once; queue it while its file is loading or an earlier one of its chat waits."""
        message = update.message
        if message is None or message.from_user is None or message.from_user.id not in self._principals:
            return await self._process_update(update, hub)
        has_file = bool(message.photo) or message.document is not None
        is_stop = (message.text or "").strip().lower().partition("@")[0] == "/stop"
        if is_stop or not (has_file or message.chat_id in self._backlogs):
            return await self._process_update(update, hub)
        await run_blocking(self._state.set, f"{_UPDATE}{update.update_id}", update.to_dict())
        self._add_to_backlog(message.chat_id, update, hub)

    def _add_to_backlog(self, chat_id: int, update: Update, hub: GatewayPort) -> None:
        if chat_id in self._backlogs:
            self._backlogs[chat_id].append(update)
            return
        self._backlogs[chat_id] = deque([update])
        task = asyncio.create_task(self._work_off(chat_id, hub), name=f"telegram-files {chat_id}")
        self._downloads.add(task)
        task.add_done_callback(self._downloads.discard)

    async def _work_off(self, chat_id: int, hub: GatewayPort) -> None:
        """Process the queued updates of one chat in order; while the store is unavailable, they wait."""
        backlog, delay_s = self._backlogs[chat_id], 1.0
        try:
            while backlog:
                try:
                    await self._process_update(backlog[0], hub)
                    await run_blocking(self._state.set, f"{_UPDATE}{backlog[0].update_id}", None)
                except _STORE_OUTAGES:
                    await self._sleep(delay_s)
                    delay_s = min(delay_s * 2, _MAX_RETRY_DELAY_S)
                else:
                    backlog.popleft()
        finally:
            del self._backlogs[chat_id]

    async def _restore_backlogs(self, hub: GatewayPort) -> None:
        """Process updates that an earlier process left; one that is processed twice has the same idempotency key."""
        stored = {k: v for k, v in (await run_blocking(self._state.items)).items() if k.startswith(_UPDATE)}
        for key in sorted(stored, key=lambda name: int(name.removeprefix(_UPDATE))):
            update = Update.de_json(stored[key], self._bot)
            if update is not None and update.message is not None:
                self._add_to_backlog(update.message.chat_id, update, hub)

    async def _process_update(self, update: Update, hub: GatewayPort) -> None:
        """Handle one update. Raises only while the store is unavailable; any other failure affects its sender alone."""
        try:
            await self._handle_update(update, hub)
        except _STORE_OUTAGES:
            raise
        except Exception as error:  # one update must not stop the bot for the others; never log its content
            _log.warning("update %d could not be processed: %s", update.update_id, type(error).__name__)
            message = update.message
            if message is not None and message.from_user is not None and message.from_user.id in self._principals:
                self._notify(message.chat_id, "Your message could not be processed; try to send it in another form.")

    async def _handle_update(self, update: Update, hub: GatewayPort) -> None:
        message, query = update.message, update.callback_query
        if query is not None:
            await self._handle_button(query, hub)
        elif message is not None and message.from_user is not None:
            principal = self._principals.get(message.from_user.id)
            if principal is None:
                self._reject_stranger(message)
            else:
                await self._submit(message, principal, hub)

    async def _submit(self, message: Message, principal: Principal, hub: GatewayPort) -> None:
        try:
            content = await self._content(message)
        except TelegramError as error:
            _log.warning("a file in chat %d could not be fetched: %s", message.chat_id, error)
            self._notify(message.chat_id, "The file could not be fetched from Telegram; send it again.")
            return
        if content is None:
            self._notify(message.chat_id, "I can read text, photos and text files only.")
            return
        if content == "/start":
            self._notify(message.chat_id, _GREETING)
            return
        question_id = self._pending_questions.get(message.chat_id)
        if question_id is not None and isinstance(content, str) and not content.startswith("/"):
            is_answer = await self._answer_in_words(question_id, content, principal, hub)
            self._pending_questions.pop(message.chat_id, None)
            if is_answer:
                return
        chat = ChatKey(self.platform, principal.user, str(message.chat_id))
        # Message ids are unique within a chat, and chat ids the same, for each bot.
        key = f"telegram:{self._bot_id}:{message.chat_id}:{message.message_id}"
        try:
            await hub.submit(ChatMessage(chat, content, key=key), principal)
        except _STORE_OUTAGES:
            raise
        except InboxFull as error:
            self._notify(message.chat_id, f"The queue is full: {error}.")
        except PerdureError as error:
            self._notify(message.chat_id, f"Your message could not be processed: {error}")

    async def _answer_in_words(self, question_id: str, text: str, principal: Principal, hub: GatewayPort) -> bool:
        """Answer a question; return False if it has been closed, so that the text is an ordinary message."""
        try:
            await hub.answer(question_id, text, principal)
        except NotFound:
            return False
        return True

    async def _handle_button(self, query: CallbackQuery, hub: GatewayPort) -> None:
        """Handle a pressed button: the answer to a question."""
        principal = self._principals.get(query.from_user.id)
        question_id, answer = _parse_answer(query)
        notice = None
        try:
            if principal is not None:
                await hub.answer(question_id, answer, principal)
        except NotFound:
            notice = "This question is closed."
        self._run_in_background(partial(query.answer, notice))

    async def _content(self, message: Message) -> str | Mapping[str, Any] | None:
        """Return the message content for the hub; None for unsupported types."""
        text = message.text or message.caption or ""
        if message.photo:
            data = await self._download(message.photo[-1].file_id)
            return with_image(text, data, "image/jpeg") if data is not None else None
        document = message.document
        if document is not None:
            data = await self._download(document.file_id) if (document.file_size or 0) <= MAX_FILE_BYTES else None
            if data is None:
                return None
            if (document.mime_type or "").startswith("image/"):
                return with_image(text, data, document.mime_type or "")
            return with_file(text, data, document.file_name or "file")
        return _without_bot_name(text, self._bot.username if self._is_bot_known else "") or None

    @property
    def _is_bot_known(self) -> bool:
        try:
            return bool(self._bot.username)
        except (RuntimeError, TelegramError):  # not initialized: Telegram was unreachable at startup
            return False

    async def _download(self, file_id: str) -> bytes | None:
        data = await self._client.download(file_id)
        return data if len(data) <= MAX_FILE_BYTES else None

    def _reject_stranger(self, message: Message) -> None:
        """Send an unknown user how to get access, at most once per chat and interval."""
        now = self._now()
        if len(self._strangers) >= _MAX_STRANGERS:
            recent = {c: at for c, at in self._strangers.items() if now - at < _STRANGER_NOTICE_EVERY_S}
            self._strangers = recent
        notified_at = self._strangers.get(message.chat_id, float("-inf"))
        if now - notified_at < _STRANGER_NOTICE_EVERY_S or len(self._strangers) >= _MAX_STRANGERS:
            return
        self._strangers[message.chat_id] = now
        user_id = message.from_user.id if message.from_user is not None else 0
        self._notify(
            message.chat_id,
            f"This bot answers allowed users only. Your user id is {user_id}: the owner can add it to "
            "gateway.telegram.allowed_users.",
        )

    def _notify(self, chat_id: int, text: str) -> None:
        """Send a notice without making the poller wait for it."""
        self._run_in_background(partial(self._client.send_text, chat_id, text))

    def _run_in_background(self, call: Callable[[], Awaitable[Any]]) -> None:
        if len(self._notices) >= _MAX_NOTICES:
            return
        task = asyncio.create_task(_ignore_errors(call), name="telegram-notice")
        self._notices.add(task)
        task.add_done_callback(self._notices.discard)

    async def _register_commands(self) -> bool:
        """Register the slash commands for the app's menu; return whether Telegram accepted them."""
        commands = [BotCommand(c.name, c.summary[:256]) for c in all_commands() if c.name != "quit"]
        try:
            await self._bot.set_my_commands(commands)
        except TelegramError as error:
            _log.warning("the commands could not be registered with Telegram: %s", error)
            return False
        return True


def _principals(settings: TelegramSettings) -> Mapping[int, Principal]:
    """Map Telegram user ids to principals; `123=alice` shares alice's conversations."""
    principals = {}
    for item in settings.allowed_users:
        number, _, user_key = item.partition("=")
        principals[int(number)] = Principal(User(user_key or f"telegram:{number}"), frozenset(settings.scopes))
    return principals


def _without_bot_name(text: str, username: str) -> str:
    """Remove the bot name from a group command: /help@perdure_bot."""
    first, space, rest = text.partition(" ")
    if username and first.startswith("/") and first.lower().endswith(f"@{username.lower()}"):
        first = first[: -len(username) - 1]
    return f"{first}{space}{rest}"


async def _cancel(tasks: set[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _ignore_errors(call: Callable[[], Awaitable[Any]]) -> None:
    try:
        await call()
    except Exception as error:  # nothing depends on a notice, and its text is not logged
        _log.info("a notice could not be sent: %s", type(error).__name__)


def _parseable_update(update: Any) -> dict[str, Any] | None:
    """Return the update, only its id if the library cannot parse it, or None without one."""
    update_id = update.get("update_id") if isinstance(update, dict) else None
    if not isinstance(update_id, int):
        return None
    try:
        Update.de_json(update, None)
    except Exception as error:  # the library raises whatever the malformed field leads to
        _log.warning("update %d could not be parsed: %s", update_id, type(error).__name__)
        return {"update_id": update_id}
    return dict(update)


class TelegramReply(StreamedReply):
    """Displays the events of one turn in one Telegram chat."""

    max_pieces = 4
    typing_interval_s = 4.0
    _client: TelegramClient

    async def show_command(self, text: str) -> None:
        # Columns of a command's answer line up in a fixed-width font only.
        await self._client.send_text(self._chat_id, text, has_columns="\n" in text)

    def format_question(
        self, text: str, details: str, choices: Sequence[str], *, is_approval: bool
    ) -> tuple[str, list[str]]:
        return (f"May I run this?\n{text}" if is_approval else text) + details, list(choices)


def _parse_answer(query: CallbackQuery) -> tuple[str, str]:
    """Return the question id and answer of a pressed button; the label of the button has the choice."""
    data = query.data or ""
    keyboard = query.message.reply_markup if isinstance(query.message, Message) else None
    buttons = [b for row in keyboard.inline_keyboard for b in row] if keyboard is not None else []
    return parse_button(data, lambda _: next((b.text for b in buttons if b.callback_data == data), ""))
