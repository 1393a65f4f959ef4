"""Telegram adapter: receive updates by long polling, deliver turns as messages that are edited while they stream."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from telegram import (
    Bot,
    BotCommand,
    CallbackQuery,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    Message,
    Update,
)
from telegram.error import (
    Conflict,
    InvalidToken,
    RetryAfter,
    TelegramError,
)
from telegram.request import HTTPXRequest

from perdure.agent.callbacks import status_line
from perdure.commands.registry import all_commands
from perdure.config.settings import TelegramSettings
from perdure.core.errors import ConfigError, CorruptStore, NewerSchema, NotFound, PerdureError, StoreUnavailable
from perdure.core.events import CompactionFinished, Notice, TextDelta, ToolStarted, TurnFinished
from perdure.gateway.adapters.base import GatewayPort
from perdure.gateway.adapters.formatting import (
    MAX_FILE_BYTES,
    shorten,
    split_text,
    utf16_length,
    with_file,
    with_image,
)
from perdure.gateway.adapters.telegram_client import (
    DELIVERY_PATIENCE_S,
    LIMIT,
    Sleep,
    TelegramClient,
    retry_delay_s,
)
from perdure.gateway.auth.principal import Principal
from perdure.gateway.events.types import (
    ChatKey,
    ChatMessage,
    CommandAnswered,
    GatewayEvent,
    QuestionAsked,
    QuestionClosed,
    SequencedEvent,
)
from perdure.store.inbox import InboxFull

_log = logging.getLogger(__name__)
_TELEGRAM = "https://api.telegram.org"
# Send a longer answer as its first message and a file.
_MAX_PIECES = 4
_POLL_S = 30
# Telegram rate limits more frequent edits.
_EDIT_EVERY_S = 1.5
_TYPING_EVERY_S = 4.0
_MAX_RETRY_DELAY_S = 60.0
# Nothing can be stored now: leave the update with Telegram. Any other error concerns one update only.
_STORE_OUTAGES = (StoreUnavailable, NewerSchema, CorruptStore)
_STRANGER_NOTICE_EVERY_S = 3_600.0
_MAX_STRANGERS = 1_000
_MAX_NOTICES = 100
# Delay after a polling conflict; longer than the other process's poll, so that it keeps polling.
_CONFLICT_DELAY_S = 45.0
_APPROVALS = {"once": "Once", "session": "This session", "always": "Always", "no": "No"}
_GREETING = "Send me a message to start. /help lists the commands; the whole conversation is stored."
_NO_ANSWER = "The model gave no answer."


class UpdatesRequest(HTTPXRequest):
    """Empties updates that the library cannot parse: one of them would otherwise fail the whole batch, every time."""

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
    """The adapter of one bot."""

    platform = "telegram"

    def __init__(
        self,
        token: str,
        settings: TelegramSettings,
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

    async def start(self, hub: GatewayPort) -> None:
        """Start polling. Raises ConfigError if Telegram rejects the token."""
        try:
            await self._bot.initialize()
        except InvalidToken as error:
            raise ConfigError("Telegram rejected the bot token; get a new one from @BotFather") from error
        except TelegramError as error:  # temporarily offline: polling retries
            _log.warning("Telegram cannot be reached: %s", error)
        self._poller = asyncio.create_task(self._poll_updates(hub), name="telegram-updates")

    async def stop(self) -> None:
        if self._poller is not None:
            self._poller.cancel()
            with suppress(asyncio.CancelledError):
                await self._poller
            self._poller = None

    async def close(self) -> None:
        for task in self._notices:
            task.cancel()
        await asyncio.gather(*self._notices, return_exceptions=True)
        await self._bot.shutdown()

    async def deliver(self, chat: ChatKey, turn_id: str, events: AsyncIterator[SequencedEvent]) -> None:
        """Display a turn as it streams; a platform failure does not affect the turn."""
        reply = LiveReply(self._client, int(chat.chat), pending_questions=self._pending_questions, now=self._now)
        async for sequenced in events:
            try:
                await reply.show(sequenced.event)
            except TelegramError as error:  # the events that follow, the answer among them, get their own attempt
                _log.warning("part of turn %s could not be delivered to chat %s: %s", turn_id, chat.chat, error)
        try:
            await reply.finish()
        except TelegramError as error:
            _log.warning("turn %s could not be delivered to chat %s: %s", turn_id, chat.chat, error)

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
                    await self._process_update(update, hub)
                    next_id = update.update_id + 1
                delay_s = 1.0
            except Conflict:
                await asyncio.sleep(self._conflict_delay_s)
            except RetryAfter as error:
                await self._sleep(retry_delay_s(error))
            except Exception as error:  # the poller serves every user, so it survives any failure
                # Not acknowledged: the same updates are delivered again.
                _log.warning("polling for updates failed: %s", error)
                await self._sleep(delay_s)
                delay_s = min(delay_s * 2, _MAX_RETRY_DELAY_S)

    async def _process_update(self, update: Update, hub: GatewayPort) -> None:
        """Handle one update. Raises only if nothing can be stored now; any other failure is its sender's alone."""
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
        chat = ChatKey(self.platform, principal.user_key, str(message.chat_id))
        key = f"telegram:{message.chat_id}:{message.message_id}"
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
        question_id, answer = parse_answer(query)
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
        """Tell an unknown user how to get access, at most once per chat and interval."""
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


class LiveReply:
    """Displays the events of one turn in one chat."""

    def __init__(
        self,
        client: TelegramClient,
        chat_id: int,
        *,
        pending_questions: dict[int, str],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._chat_id = chat_id
        self._now = now
        self._text = ""
        # The message being edited, and its current text.
        self._message_id: int | None = None
        self._displayed = ""
        self._edited_at = 0.0
        self._typing_at = float("-inf")
        self._questions: dict[str, tuple[int, str]] = {}
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
            case CompactionFinished(outcome=outcome, message=message) if outcome in ("compacted", "digest") and message:
                await self._client.send_text(self._chat_id, status_line(event) or message)
            case Notice(text=text, level="warning"):
                await self._client.send_text(self._chat_id, text)
            case TurnFinished():
                await self._finish_turn(event)
            case _:
                await self._show_typing()

    async def finish(self) -> None:
        """Send the remaining text."""
        await self._flush(self._text)

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
        if self._message_id is None:
            self._message_id = await self._client.send_text(self._chat_id, text, patience_s=patience_s)
        elif text != self._displayed:
            self._message_id = await self._client.edit(self._chat_id, self._message_id, text, patience_s=patience_s)
        self._displayed = text

    async def _flush(self, text: str) -> None:
        """Complete the message; the rest follows in further messages or as a file."""
        whole = text.strip()
        parts = split_text(whole, limit=LIMIT)
        try:
            if parts:
                await self._display(parts[0])
            if len(parts) > _MAX_PIECES:
                caption = f"The complete answer, {len(whole):,} characters."
                await self._client.send_file(self._chat_id, "answer.md", whole, caption)
            else:
                await self._client.send_pieces(self._chat_id, parts[1:])
        finally:
            self._text, self._displayed, self._message_id = "", "", None

    async def _finish_turn(self, event: TurnFinished) -> None:
        if event.outcome == "failed":
            await self._flush(self._text)
            await self._client.send_text(self._chat_id, event.error or "The turn failed.")
        elif event.outcome == "interrupted":
            await self._flush(f"{self._text}\n\n(stopped)")
        else:
            # The final text is authoritative: the stream may have gaps.
            text = event.final_response if event.final_response.strip() else self._text
            await self._flush(text if text.strip() else _NO_ANSWER)

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
        self._questions[question.question_id] = (message_id, pieces[-1])

    async def _close_question(self, question_id: str, answer: str) -> None:
        """Replace a question's buttons by its answer."""
        if self._pending_questions.get(self._chat_id) == question_id:
            del self._pending_questions[self._chat_id]
        message_id, text = self._questions.pop(question_id, (0, ""))
        if message_id:
            outcome = shorten(f"→ {answer}" if answer else "→ no answer in time", LIMIT // 2)
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


def _principals(settings: TelegramSettings) -> Mapping[int, Principal]:
    """Map Telegram user ids to principals; `123=alice` shares alice's conversations."""
    principals = {}
    for item in settings.allowed_users:
        number, _, user = item.partition("=")
        principals[int(number)] = Principal(user or f"telegram:{number}", frozenset(settings.scopes))
    return principals


def _without_bot_name(text: str, username: str) -> str:
    """Remove the bot name from a group command: /help@perdure_bot."""
    first, space, rest = text.partition(" ")
    if username and first.startswith("/") and first.lower().endswith(f"@{username.lower()}"):
        first = first[: -len(username) - 1]
    return f"{first}{space}{rest}"


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
