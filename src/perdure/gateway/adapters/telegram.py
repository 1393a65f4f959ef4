"""Telegram adapter: receive updates by long polling, deliver turns as messages that are edited while they stream."""

from __future__ import annotations

import asyncio
import base64
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
    MessageEntity,
    Update,
)
from telegram.constants import ChatAction
from telegram.error import BadRequest, Conflict, InvalidToken, NetworkError, RetryAfter, TelegramError
from telegram.request import HTTPXRequest

from perdure.agent.callbacks import status_line
from perdure.commands.registry import all_commands
from perdure.config.settings import TelegramSettings
from perdure.core.errors import ConfigError, NotFound, PerdureError, StoreError
from perdure.core.events import CompactionFinished, Notice, TextDelta, ToolStarted, TurnFinished
from perdure.gateway.adapters.base import GatewayPort
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

_log = logging.getLogger(__name__)
_TELEGRAM = "https://api.telegram.org"
LIMIT = 4_096
# Send a longer answer as its first message and a file.
_MAX_PIECES = 4
_MAX_FILE_BYTES = 10_000_000
_MAX_FILE_CHARS = 200_000
_POLL_S = 30
# Telegram rate limits more frequent edits.
_EDIT_EVERY_S = 1.5
_TYPING_EVERY_S = 4.0
_MAX_ATTEMPTS = 5
_MAX_RETRY_DELAY_S = 60.0
# Delay after a polling conflict; longer than the other process's poll, so that it keeps polling.
_CONFLICT_DELAY_S = 45.0
_FENCE = "```"
# Do not split at a boundary that would leave a piece emptier than this fraction.
_MIN_FILL = 0.5
_APPROVALS = {"once": "Once", "session": "This session", "always": "Always", "no": "No"}
_GREETING = "Send me a message to start. /help lists the commands; the whole conversation is stored."


class TelegramAdapter:
    """The adapter of one bot."""

    platform = "telegram"

    def __init__(self, token: str, settings: TelegramSettings, *, conflict_delay_s: float = _CONFLICT_DELAY_S) -> None:
        base = (settings.base_url or _TELEGRAM).rstrip("/")
        # Separate connection pools: long polling must not block the connections that deliveries use.
        self._bot = Bot(
            token,
            base_url=f"{base}/bot",
            base_file_url=f"{base}/file/bot",
            request=HTTPXRequest(connection_pool_size=64),
            get_updates_request=HTTPXRequest(),
        )
        self._client = TelegramClient(self._bot)
        self._principals = dict(_principals(settings))
        # Open questions that the next text message answers, by chat id.
        self._pending_questions: dict[int, str] = {}
        self._conflict_delay_s = conflict_delay_s
        self._poller: asyncio.Task[None] | None = None

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
        await self._bot.shutdown()

    async def deliver(self, chat: ChatKey, turn_id: str, events: AsyncIterator[SequencedEvent]) -> None:
        """Display a turn as it streams; a platform failure does not affect the turn."""
        reply = LiveReply(self._client, int(chat.chat), pending_questions=self._pending_questions)
        try:
            async for sequenced in events:
                await reply.show(sequenced.event)
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
                    await self._register_commands()
                    are_commands_registered = True
                for update in updates:
                    await self._handle_update(update, hub)
                    next_id = update.update_id + 1
                delay_s = 1.0
            except Conflict:
                await asyncio.sleep(self._conflict_delay_s)
            except RetryAfter as error:
                await asyncio.sleep(_retry_delay_s(error))
            except (TelegramError, StoreError) as error:
                # Not acknowledged: the same updates are delivered again.
                _log.warning("polling for updates failed: %s", error)
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, _MAX_RETRY_DELAY_S)

    async def _handle_update(self, update: Update, hub: GatewayPort) -> None:
        message, query = update.message, update.callback_query
        if query is not None:
            await self._handle_button(query, hub)
        elif message is not None and message.from_user is not None:
            principal = self._principals.get(message.from_user.id)
            if principal is None:
                await self._reject_stranger(message)
            else:
                await self._submit(message, principal, hub)

    async def _submit(self, message: Message, principal: Principal, hub: GatewayPort) -> None:
        content = await self._content(message)
        if content is None:
            await self._client.send_text(message.chat_id, "I can read text, photos and text files only.")
            return
        if content == "/start":
            await self._client.send_text(message.chat_id, _GREETING)
            return
        if isinstance(content, str) and not content.startswith("/") and message.chat_id in self._pending_questions:
            with suppress(NotFound):  # closed meanwhile: an ordinary message then
                await hub.answer(self._pending_questions.pop(message.chat_id), content, principal)
                return
        chat = ChatKey(self.platform, principal.user_key, str(message.chat_id))
        key = f"telegram:{message.chat_id}:{message.message_id}"
        try:
            await hub.submit(ChatMessage(chat, content, key=key), principal)
        except StoreError:
            raise
        except PerdureError as error:
            await self._client.send_text(message.chat_id, str(error))

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
        with suppress(TelegramError):  # only the button's spinner remains if this fails
            await query.answer(notice)

    async def _content(self, message: Message) -> str | Mapping[str, Any] | None:
        """Return the message content for the hub; None for unsupported types."""
        text = message.text or message.caption or ""
        if message.photo:
            data = await self._download(message.photo[-1].file_id)
            return _with_image(text, data, "image/jpeg") if data is not None else None
        document = message.document
        if document is not None:
            data = await self._download(document.file_id) if (document.file_size or 0) <= _MAX_FILE_BYTES else None
            if data is None:
                return None
            if (document.mime_type or "").startswith("image/"):
                return _with_image(text, data, document.mime_type or "")
            return _with_file(text, data, document.file_name or "file")
        return _without_bot_name(text, self._bot.username if self._is_bot_known else "") or None

    @property
    def _is_bot_known(self) -> bool:
        try:
            return bool(self._bot.username)
        except (RuntimeError, TelegramError):  # not initialized: Telegram was unreachable at startup
            return False

    async def _download(self, file_id: str) -> bytes | None:
        file = await self._bot.get_file(file_id)
        data = bytes(await file.download_as_bytearray())
        return data if len(data) <= _MAX_FILE_BYTES else None

    async def _reject_stranger(self, message: Message) -> None:
        user_id = message.from_user.id if message.from_user is not None else 0
        await self._client.send_text(
            message.chat_id,
            f"This bot answers allowed users only. Your user id is {user_id}: the owner can add it to "
            "gateway.telegram.allowed_users.",
        )

    async def _register_commands(self) -> None:
        """Register the slash commands for the app's menu."""
        commands = [BotCommand(c.name, c.summary[:256]) for c in all_commands() if c.name != "quit"]
        await self._bot.set_my_commands(commands)


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
        await self._display(text)

    async def _display(self, text: str) -> None:
        self._edited_at = self._now()
        if self._message_id is None:
            self._message_id = await self._client.send_text(self._chat_id, text)
        elif text != self._displayed:
            await self._client.edit(self._chat_id, self._message_id, text)
        self._displayed = text

    async def _flush(self, text: str) -> None:
        """Complete the message; the rest follows in further messages or as a file."""
        whole = text.strip()
        parts = split_text(whole, limit=LIMIT)
        if parts:
            await self._display(parts[0])
            if len(parts) > _MAX_PIECES:
                caption = f"The complete answer, {len(whole):,} characters."
                await self._client.send_file(self._chat_id, "answer.md", whole, caption)
            else:
                for part in parts[1:]:
                    await self._client.send_text(self._chat_id, part)
        self._text, self._displayed, self._message_id = "", "", None

    async def _finish_turn(self, event: TurnFinished) -> None:
        if event.outcome == "failed":
            await self._flush(self._text)
            await self._client.send_text(self._chat_id, event.error or "The turn failed.")
        elif event.outcome == "interrupted":
            await self._flush(f"{self._text}\n\n(stopped)")
        else:
            # The final text is authoritative: the stream may have gaps.
            await self._flush(event.final_response or self._text)

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
        self._questions[question.question_id] = (await self._client.send_text(self._chat_id, text, keyboard), text)

    async def _close_question(self, question_id: str, answer: str) -> None:
        """Replace a question's buttons by its answer."""
        if self._pending_questions.get(self._chat_id) == question_id:
            del self._pending_questions[self._chat_id]
        message_id, text = self._questions.pop(question_id, (0, ""))
        if message_id:
            outcome = f"→ {answer}" if answer else "→ no answer in time"
            await self._client.edit(self._chat_id, message_id, f"{text}\n{outcome}")

    async def _show_typing(self) -> None:
        if self._now() - self._typing_at >= _TYPING_EVERY_S:
            self._typing_at = self._now()
            await self._client.send_typing(self._chat_id)


class TelegramClient:
    """Sends messages with retries. Raises TelegramError once they are exhausted."""

    def __init__(self, bot: Bot) -> None:
        self._bot = bot

    async def send_text(
        self, chat_id: int, text: str, keyboard: InlineKeyboardMarkup | None = None, *, has_columns: bool = False
    ) -> int:
        """Send a text in as many messages as needed and return the last id; `has_columns` uses a fixed-width font."""
        message_id = 0
        for piece in split_text(text, limit=LIMIT):
            fixed = [MessageEntity(MessageEntity.PRE, 0, utf16_length(piece))] if has_columns else None
            sent = await _with_retries(
                partial(self._bot.send_message, chat_id, piece, reply_markup=keyboard, entities=fixed)
            )
            message_id = sent.message_id
        return message_id

    async def edit(self, chat_id: int, message_id: int, text: str) -> None:
        """Replace the text of a message and remove its buttons."""
        try:
            await _with_retries(lambda: self._bot.edit_message_text(text, chat_id=chat_id, message_id=message_id))
        except BadRequest as error:
            if "not modified" not in str(error).lower():
                raise

    async def send_file(self, chat_id: int, name: str, text: str, caption: str) -> None:
        await _with_retries(lambda: self._bot.send_document(chat_id, text.encode(), filename=name, caption=caption))

    async def send_typing(self, chat_id: int) -> None:
        await _with_retries(lambda: self._bot.send_chat_action(chat_id, ChatAction.TYPING))


def parse_answer(query: CallbackQuery) -> tuple[str, str]:
    """Return the question id and answer of a pressed button, from the message alone, so that any process can."""
    data = query.data or ""
    question_id, _, button = data.partition("|")
    if button.startswith("a"):
        return question_id, list(_APPROVALS)[int(button[1:])] if button[1:].isdecimal() else "no"
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


def _with_image(text: str, data: bytes, media_type: str) -> Mapping[str, Any]:
    url = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
    text_parts = [{"type": "text", "text": text}] if text else []
    return {"role": "user", "content": [*text_parts, {"type": "image_url", "image_url": {"url": url}}]}


def _with_file(text: str, data: bytes, name: str) -> str | None:
    """Append the content of a text file to the caption; None for a binary file."""
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
    """Remove the bot name from a group command: /help@perdure_bot."""
    first, space, rest = text.partition(" ")
    if username and first.startswith("/") and first.lower().endswith(f"@{username.lower()}"):
        first = first[: -len(username) - 1]
    return f"{first}{space}{rest}"


async def _with_retries(call: Callable[[], Awaitable[Any]]) -> Any:
    """Call the API, retrying after rate limits and network errors."""
    for attempt in range(_MAX_ATTEMPTS):
        try:
            return await call()
        except RetryAfter as error:
            await asyncio.sleep(_retry_delay_s(error))
        except BadRequest:
            raise
        except NetworkError:
            if attempt == _MAX_ATTEMPTS - 1:
                raise
            await asyncio.sleep(2.0**attempt)
    return await call()


def _retry_delay_s(error: RetryAfter) -> float:
    after = error.retry_after
    return float(after) if isinstance(after, int | float) else after.total_seconds()


def split_text(text: str, *, limit: int) -> list[str]:
    """Split a text into pieces of at most `limit` UTF-16 units, closing and reopening code blocks."""
    result, rest, fence = [], text, ""
    while rest.strip():
        opening = f"{fence}\n" if fence else ""
        room = limit - utf16_length(opening) - len(_FENCE) - 1
        head = rest if utf16_length(opening) + utf16_length(rest) <= limit else _head(rest, room)
        rest = rest[len(head) :].lstrip("\n") if head != rest else ""
        fence = _open_fence(opening + head)
        piece = (opening + head).rstrip()
        if fence and rest:
            piece += f"\n{_FENCE}"
        if piece.strip():
            result.append(piece)
    return result


def utf16_length(text: str) -> int:
    """Return the length in UTF-16 code units, as Telegram counts; an emoji has two."""
    return len(text) + sum(c > "\uffff" for c in text)


def _head(text: str, room: int) -> str:
    """Return the longest prefix that fits, cut at the best boundary."""
    most = _fitting(text, room)
    for mark in ("\n\n", "\n", "。", ". ", " "):
        at = text.rfind(mark, int(most * _MIN_FILL), most)
        if at > 0:
            return text[: at + len(mark)]
    return text[:most]


def _fitting(text: str, room: int) -> int:
    """Return how many characters fit into `room` UTF-16 units."""
    window = text[: max(room, 1)]
    while utf16_length(window) > room and len(window) > 1:
        window = window[: len(window) - max(1, (utf16_length(window) - room) // 2)]
    return len(window)


def _open_fence(text: str) -> str:
    """Return the opening line of an unclosed code block; "" if there is none."""
    fence = ""
    for line in text.splitlines():
        if line.lstrip().startswith(_FENCE):
            fence = "" if fence else line.strip()
    # A longer line is prose that happens to start with a fence, not a language name.
    return fence if len(fence) <= 40 else _FENCE if fence else ""
