"""Discord adapter: receive messages over the gateway connection, deliver turns as messages edited while they stream.

A chat is a direct conversation or a thread. A mention of the bot in a channel opens a thread on that message, and
everything in that thread is for the bot. Discord does not repeat events that a process missed: what was written while
none ran is read from the history of the known channels at the next start.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

import discord

from perdure.commands.registry import all_commands
from perdure.config.settings import DiscordSettings
from perdure.core.errors import ConfigError, CorruptStore, NewerSchema, NotFound, PerdureError, StoreUnavailable
from perdure.core.visibility import User
from perdure.gateway.adapters.base import GatewayPort
from perdure.gateway.adapters.discord_client import (
    DISCORD_ERRORS,
    BotConnection,
    DiscordClient,
    Sleep,
    make_intents,
    use_base_url,
)
from perdure.gateway.adapters.formatting import (
    MAX_FILE_BYTES,
    shorten,
    with_file,
    with_image,
)
from perdure.gateway.adapters.receipts import DeliveryReceipt, DeliveryState, purge_receipts
from perdure.gateway.adapters.streamed_reply import StreamedReply, parse_button
from perdure.gateway.auth.principal import Principal
from perdure.gateway.events.types import (
    ChatKey,
    ChatMessage,
    SequencedEvent,
)
from perdure.gateway.executor import run_blocking
from perdure.store.inbox import InboxFull

_log = logging.getLogger(__name__)
# Discord shows no more buttons, and cuts longer labels.
_MAX_BUTTONS, _MAX_LABEL_CHARS = 25, 80
_MAX_RETRY_DELAY_S = 60.0
_STORE_OUTAGES = (StoreUnavailable, NewerSchema, CorruptStore)
_STRANGER_NOTICE_EVERY_S = 3_600.0
_MAX_STRANGERS = 1_000
_MAX_NOTICES = 100
# Channels read at start for what was written meanwhile, and messages of each.
_MAX_CHANNELS, _MAX_MISSED = 50, 200
_MAX_BACKLOG = 1_000
_CHANNEL = "channel:"
_TITLE_CHARS = 80
_GREETING = "Send me a message to start. !help lists the commands; the whole conversation is stored."
_UNREADABLE = "I read nothing in this message. Write to me with a mention, or directly."
# How long the gateway's start waits for the connection; later it comes in the background.
_START_S = 10.0
_TEXT_TYPES = (discord.MessageType.default, discord.MessageType.reply)
_COMMANDS = frozenset(name for command in all_commands() for name in (command.name, *command.aliases))


class DiscordAdapter:
    """The Discord adapter of one bot."""

    platform = "discord"

    def __init__(
        self,
        token: str,
        settings: DiscordSettings,
        state: DeliveryState,
        *,
        sleep: Sleep = asyncio.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._token = token
        self._settings = settings
        self._state = state
        self._sleep = sleep
        self._now = now
        self._principals = dict(_principals(settings))
        self._connection: BotConnection | None = None
        self._client = DiscordClient(self._require_connection, sleep=sleep, now=now)
        self._hub: GatewayPort | None = None
        self._receiver: asyncio.Task[None] | None = None
        self._online = asyncio.Event()
        # The newest submitted message of each channel.
        self._cursors: dict[int, int] = {}
        # Messages that arrive while older ones are read from the history; None: they are queued at once.
        self._backlog: list[discord.Message] | None = None
        # Messages are handled in order within a channel, and a slow one holds up no other channel.
        self._queues: dict[int, asyncio.Queue[discord.Message]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._notices = 0
        # Open questions that the next text message answers, by channel id.
        self._pending_questions: dict[int, str] = {}
        # When each unknown user was last notified.
        self._strangers: dict[int, float] = {}
        if settings.base_url is not None:
            use_base_url(settings.base_url)

    async def start(self, hub: GatewayPort) -> None:
        """Log in and start receiving. Raises ConfigError if Discord rejects the token."""
        self._hub = hub
        self._connection = self._make_connection(has_message_content=True)
        try:
            await self._log_in()
            is_logged_in = True
        except discord.LoginFailure as error:
            raise ConfigError("Discord rejected the bot token; get a new one from the developer portal") from error
        except DISCORD_ERRORS as error:  # temporarily offline: the receiver retries
            _log.warning("Discord cannot be reached: %s", type(error).__name__)
            is_logged_in = False
        self._cursors = await run_blocking(self._load_state)
        self._receiver = asyncio.create_task(self._receive(is_logged_in), name="discord-events")
        if is_logged_in:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._online.wait(), _START_S)

    async def stop(self) -> None:
        self._hub = None
        if self._receiver is not None:
            self._receiver.cancel()
            with suppress(asyncio.CancelledError):
                await self._receiver
            self._receiver = None
        if self._connection is not None:
            await self._connection.disconnect()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()

    async def deliver(self, chat: ChatKey, turn_id: str, events: AsyncIterator[SequencedEvent]) -> None:
        """Display a turn as it streams; a platform failure does not affect the turn."""
        receipt = await run_blocking(DeliveryReceipt.load, self._state, turn_id)
        reply = DiscordReply(
            self._client, int(chat.chat), receipt, pending_questions=self._pending_questions, now=self._now
        )
        await reply.deliver(events)

    # -- the connection ------------------------------------------------------------------------------------------------

    def _make_connection(self, *, has_message_content: bool) -> BotConnection:
        return BotConnection(
            intents=make_intents(has_message_content=has_message_content),
            on_text=self._take,
            on_button=lambda interaction: self._run(self._handle_button(interaction)),
            on_online=self._begin_connection,
        )

    def _require_connection(self) -> BotConnection:
        assert self._connection is not None, "deliveries begin after start"
        return self._connection

    async def _log_in(self) -> None:
        connection = self._require_connection()
        await connection.login(self._token)
        if self._settings.base_url is not None:
            await connection.use_server()

    async def _receive(self, is_logged_in: bool) -> None:
        """Keep the connection open; the library itself reconnects and resumes after short losses."""
        delay_s = 1.0
        while True:
            try:
                if not is_logged_in:
                    await self._log_in()
                    is_logged_in = True
                await self._require_connection().connect(reconnect=True)
                delay_s = 1.0
            except discord.PrivilegedIntentsRequired:
                _log.error(
                    "the bot may not read messages in threads: turn on the Message Content Intent in the developer"
                    " portal; until then it sees direct messages and mentions only"
                )
                await self._replace_connection(has_message_content=False)
                is_logged_in = False
                continue
            except Exception as error:  # the receiver serves every user, so it survives any failure
                _log.warning("the connection to Discord was lost: %s", type(error).__name__)
            if self._require_connection().is_closed():
                await self._replace_connection(has_message_content=self._require_connection().intents.message_content)
                is_logged_in = False
            await self._sleep(delay_s)
            delay_s = min(delay_s * 2, _MAX_RETRY_DELAY_S)

    async def _replace_connection(self, *, has_message_content: bool) -> None:
        """Create a new connection, since the library cannot reopen a client that it has closed."""
        with suppress(*DISCORD_ERRORS):
            await self._require_connection().close()
        self._connection = self._make_connection(has_message_content=has_message_content)

    # -- inbound -------------------------------------------------------------------------------------------------------

    def _take(self, message: discord.Message) -> None:
        """Queue a message that just arrived, after those that are still being read from the history."""
        if self._backlog is None:
            self._enqueue(message)
        elif len(self._backlog) < _MAX_BACKLOG:
            self._backlog.append(message)

    def _enqueue(self, message: discord.Message) -> None:
        """Queue a message after the earlier ones of its channel; those of bots and of the system are ignored."""
        if self._hub is None or message.author.bot or message.type not in _TEXT_TYPES:
            return
        if not self._is_addressed(message):
            return
        if message.author.id not in self._principals:
            self._reject_stranger(message)
            return
        queue = self._queues.get(message.channel.id)
        if queue is None:
            queue = self._queues[message.channel.id] = asyncio.Queue()
            self._run(self._work_off(message.channel.id, queue))
        queue.put_nowait(message)

    def _is_addressed(self, message: discord.Message) -> bool:
        """Whether a message is for the bot: direct, in a thread of its own, or naming it."""
        channel, bot = message.channel, self._require_connection().user
        if message.guild is None and not isinstance(channel, discord.PartialMessageable):
            return True
        if bot is None:
            return False
        if isinstance(channel, discord.Thread) and channel.owner_id == bot.id:
            return True
        replied = message.reference.resolved if message.reference is not None else None
        return bot in message.mentions or (isinstance(replied, discord.Message) and replied.author.id == bot.id)

    async def _work_off(self, channel_id: int, queue: asyncio.Queue[discord.Message]) -> None:
        while not queue.empty():
            message = queue.get_nowait()
            try:
                await self._handle_message(message)
            except Exception as error:  # one message must not stop its channel; never log its content
                _log.warning("message %d could not be processed: %s", message.id, type(error).__name__)
                self._notify(channel_id, "Your message could not be processed; try to send it in another form.")
        # Without an await since the last look: nothing was added meanwhile.
        del self._queues[channel_id]

    async def _handle_message(self, message: discord.Message) -> None:
        principal, channel_id = self._principals[message.author.id], message.channel.id
        try:
            content = await self._content(message)
        except DISCORD_ERRORS:
            self._notify(channel_id, "The attachment could not be downloaded; send it again.")
            return
        if content is None and not message.attachments:
            self._notify(channel_id, _UNREADABLE if message.guild is not None else _GREETING)
            return
        if content is None:
            self._notify(
                channel_id, f"I can read text, images and text files of up to {MAX_FILE_BYTES // 1_000_000} MB."
            )
            return
        question_id = self._pending_questions.get(channel_id)
        if question_id is not None and isinstance(content, str) and not content.startswith("/"):
            self._pending_questions.pop(channel_id, None)
            if await self._answer_in_words(question_id, content, principal):
                await self._advance(channel_id, message.id)
                return
        chat_id = await self._chat_for(message)
        bot = self._require_connection().user
        key = f"discord:{bot.id if bot is not None else 0}:{channel_id}:{message.id}"
        chat = ChatKey(self.platform, principal.user, str(chat_id))
        await self._submit(ChatMessage(chat, content, key=key), principal, chat_id)
        await self._advance(channel_id, message.id)

    async def _submit(self, incoming: ChatMessage, principal: Principal, chat_id: int) -> None:
        """Submit a message to the hub; retry while the store is unavailable, since Discord does not send it again."""
        delay_s = 0.5
        while self._hub is not None:
            try:
                await self._hub.submit(incoming, principal)
                return
            except _STORE_OUTAGES as error:
                _log.warning("a message waits for the store: %s", type(error).__name__)
                await self._sleep(delay_s)
                delay_s = min(delay_s * 2, _MAX_RETRY_DELAY_S)
            except InboxFull as error:
                self._notify(chat_id, f"The queue is full: {error}.")
                return
            except PerdureError as error:
                self._notify(chat_id, f"Your message could not be processed: {error}")
                return
        raise asyncio.CancelledError

    async def _chat_for(self, message: discord.Message) -> int:
        """Return the channel to answer in; for a mention in a channel, a thread on that message."""
        is_channel = isinstance(message.channel, discord.TextChannel)
        if not is_channel or not self._settings.threads:
            return message.channel.id
        words = " ".join(_without_mention(message.content, self._require_connection().user).split())
        try:
            await message.create_thread(name=shorten(words, _TITLE_CHARS).split("\n")[0] or "Perdure")
        except discord.HTTPException as error:
            # A thread on a message has the id of the message; made before a restart, it is there already.
            if error.code != 160_004:
                _log.info("no thread could be made: %s", type(error).__name__)
                return message.channel.id
        return message.id

    async def _content(self, message: discord.Message) -> str | Mapping[str, Any] | None:
        """Return the message content for the hub; None for unsupported or too large attachments."""
        content: str | Mapping[str, Any] | None = _command_text(
            _without_mention(message.content, self._require_connection().user)
        )
        if sum(attachment.size for attachment in message.attachments) > MAX_FILE_BYTES:
            return None
        for attachment in message.attachments:
            data = await attachment.read()
            kind = (attachment.content_type or "").partition(";")[0]
            if len(data) > MAX_FILE_BYTES or content is None:
                return None
            content = _attach(content, data, attachment.filename, kind)
        return content or None

    async def _answer_in_words(self, question_id: str, text: str, principal: Principal) -> bool:
        """Answer a question; return False if it has been closed, so that the text is an ordinary message."""
        if self._hub is None:
            return False
        try:
            await self._hub.answer(question_id, text, principal)
        except NotFound:
            return False
        return True

    async def _handle_button(self, interaction: discord.Interaction) -> None:
        """Handle a pressed button: the answer to a question."""
        hub, principal = self._hub, self._principals.get(interaction.user.id)
        if hub is None:
            return
        notice = "" if principal is not None else "This question is for somebody else."
        question_id, answer = _parse_answer(interaction)
        try:
            if principal is not None:
                await hub.answer(question_id, answer, principal)
        except NotFound:
            notice = "This question is closed."
        except PerdureError as error:
            notice = str(error)
        with suppress(*DISCORD_ERRORS):  # another process of this bot may have acknowledged it
            if notice:
                await interaction.response.send_message(notice, ephemeral=True)
            else:
                await interaction.response.defer()

    # -- what was written while no process ran -------------------------------------------------------------------------

    async def _advance(self, channel_id: int, message_id: int) -> None:
        """Store the newest message of a channel that was submitted."""
        self._cursors[channel_id] = message_id
        try:
            await run_blocking(self._state.set, f"{_CHANNEL}{channel_id}", message_id)
        except PerdureError as error:  # it is submitted again at the next start, with the same key
            _log.warning("the position in a channel could not be stored: %s", type(error).__name__)

    def _load_state(self) -> dict[int, int]:
        """Return the stored positions by channel, and delete old receipts. Blocks."""
        purge_receipts(self._state)
        stored = {key.removeprefix(_CHANNEL): value for key, value in self._state.items().items() if _CHANNEL in key}
        return {int(channel): int(message) for channel, message in stored.items()}

    def _begin_connection(self) -> None:
        """Start to read messages that were missed while offline; new ones wait. Called on connect."""
        self._online.set()
        if self._cursors and self._backlog is None:
            self._backlog = []
            self._run(self._read_missed(dict(self._cursors)))

    async def _read_missed(self, cursors: Mapping[int, int]) -> None:
        """Queue what was written in known channels since the last message of each, then what arrived meanwhile."""
        seen_ids: set[int] = set()
        try:
            newest = sorted(cursors.items(), key=lambda item: item[1], reverse=True)
            for channel_id, message_id in newest[:_MAX_CHANNELS]:
                await self._read_channel(channel_id, message_id, seen_ids)
        finally:
            backlog, self._backlog = self._backlog or [], None
            for message in backlog:
                if message.id not in seen_ids:
                    self._enqueue(message)

    async def _read_channel(self, channel_id: int, message_id: int, seen_ids: set[int]) -> None:
        connection = self._require_connection()
        try:
            channel = connection.get_channel(channel_id) or await connection.fetch_channel(channel_id)
            if not isinstance(channel, discord.abc.Messageable):
                return
            after = discord.Object(message_id)
            async for message in channel.history(after=after, limit=_MAX_MISSED, oldest_first=True):
                seen_ids.add(message.id)
                self._enqueue(message)
        except (discord.NotFound, discord.Forbidden):  # deleted, or not for the bot any more
            self._cursors.pop(channel_id, None)
            await run_blocking(self._state.set, f"{_CHANNEL}{channel_id}", None)
        except DISCORD_ERRORS as error:
            _log.warning("the history of a channel could not be read: %s", type(error).__name__)

    # -- notices -------------------------------------------------------------------------------------------------------

    def _reject_stranger(self, message: discord.Message) -> None:
        """Send an unknown user how to get access, at most once per interval."""
        now, user_id = self._now(), message.author.id
        if len(self._strangers) >= _MAX_STRANGERS:
            self._strangers = {u: at for u, at in self._strangers.items() if now - at < _STRANGER_NOTICE_EVERY_S}
        notified_at = self._strangers.get(user_id, float("-inf"))
        if now - notified_at < _STRANGER_NOTICE_EVERY_S or len(self._strangers) >= _MAX_STRANGERS:
            return
        self._strangers[user_id] = now
        self._notify(
            message.channel.id,
            f"This bot answers allowed users only. Your user id is {user_id}: the owner can add it to "
            "gateway.discord.allowed_users.",
        )

    def _notify(self, channel_id: int, text: str) -> None:
        """Send a notice in the background, so that no message waits for it."""
        if self._notices < _MAX_NOTICES:
            self._run(self._send_notice(channel_id, text))

    async def _send_notice(self, channel_id: int, text: str) -> None:
        self._notices += 1
        try:
            await self._client.send_text(channel_id, text)
        except DISCORD_ERRORS as error:  # nothing depends on a notice
            _log.info("a notice could not be sent: %s", type(error).__name__)
        finally:
            self._notices -= 1

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="discord-work")
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("an event of Discord could not be handled: %s", type(error).__name__, exc_info=error)


def _principals(settings: DiscordSettings) -> Mapping[int, Principal]:
    """Map Discord user ids to principals; `123=alice` shares alice's conversations."""
    principals = {}
    for item in settings.allowed_users:
        number, _, user_key = item.partition("=")
        principals[int(number)] = Principal(User(user_key or f"discord:{number}"), frozenset(settings.scopes))
    return principals


def _without_mention(text: str, bot: discord.ClientUser | None) -> str:
    """Remove the bot's mention."""
    return re.sub(rf"<@!?{bot.id}>", "", text).strip() if bot is not None else text.strip()


def _command_text(text: str) -> str:
    """Return `!usage` as `/usage`: Discord's own apps keep messages that begin with a slash for themselves."""
    name = text[1:].split(maxsplit=1)[0].lower() if text.startswith("!") and len(text) > 1 else ""
    return f"/{text[1:]}" if name in _COMMANDS else text


def _attach(content: str | Mapping[str, Any], data: bytes, name: str, kind: str) -> str | Mapping[str, Any] | None:
    """Add an attachment to a message; None for a binary file."""
    parts = [] if isinstance(content, str) else list(content["content"])
    text = content if isinstance(content, str) else "".join(p["text"] for p in parts if p["type"] == "text")
    images = [part for part in parts if part["type"] != "text"]
    if kind.startswith("image/"):
        added = with_image(text, data, kind)
        return {
            **added,
            "content": [*(p for p in added["content"] if p["type"] == "text"), *images, added["content"][-1]],
        }
    with_text = with_file(text, data, name)
    if with_text is None or not images:
        return with_text
    return {"role": "user", "content": [{"type": "text", "text": with_text}, *images]}


class DiscordReply(StreamedReply):
    """Displays the events of one turn in one Discord channel or thread."""

    max_pieces = 10
    typing_interval_s = 8.0

    async def show_command(self, text: str) -> None:
        await self.conclude(f"```\n{text}\n```" if "\n" in text and "```" not in text else text)

    def format_question(
        self, text: str, details: str, choices: Sequence[str], *, is_approval: bool
    ) -> tuple[str, list[str]]:
        if is_approval:
            fenced = text.replace("```", "`\u200b``")
            return f"May I run this?\n```\n{fenced}\n```{details}", list(choices)
        # Labels are short; the choices are spelled out in the text, one to a line, as the answer is read from there.
        lines = [" ".join(choice.split()) for choice in choices[:_MAX_BUTTONS]]
        listed = "".join(f"\n{number}. {choice}" for number, choice in enumerate(lines, 1))
        labels = [c if len(c) <= _MAX_LABEL_CHARS else f"{c[: _MAX_LABEL_CHARS - 1]}…" for c in lines]
        return text + details + listed, labels


def _parse_answer(interaction: discord.Interaction) -> tuple[str, str]:
    """Return the question id and answer of a pressed button; the last lines of the message have the choices."""
    data: Any = interaction.data or {}
    text = interaction.message.content if interaction.message is not None else ""

    def find_choice(index: int) -> str:
        lines = [line for line in text.splitlines() if line.startswith(f"{index + 1}. ")]
        return lines[-1].partition(". ")[2] if lines else ""

    return parse_button(str(data.get("custom_id", "")), find_choice)
