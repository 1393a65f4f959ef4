"""Discord client: connection, sending and editing with retries, in pieces of the length Discord accepts."""

from __future__ import annotations

import asyncio
import io
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import ClassVar, TypeVar

import aiohttp
import discord
import yarl
from discord.gateway import DiscordWebSocket
from discord.http import Route

from perdure.gateway.adapters.formatting import split_text
from perdure.gateway.adapters.streamed_reply import DELIVERY_PATIENCE_S, Button

_log = logging.getLogger(__name__)
_MAX_RETRY_DELAY_S = 60.0
_NO_MENTIONS = discord.AllowedMentions.none()
DISCORD_ERRORS = (discord.DiscordException, aiohttp.ClientError, OSError, TimeoutError)
T = TypeVar("T")

Sleep = Callable[[float], Awaitable[None]]


class BotConnection(discord.Client):
    """The bot's connection; `on_online` is called before the first message of a new one."""

    def __init__(
        self,
        *,
        intents: discord.Intents,
        on_text: Callable[[discord.Message], None],
        on_button: Callable[[discord.Interaction], None],
        on_online: Callable[[], None],
    ) -> None:
        # A bot for texts needs none of the packages for voice, and no warnings about them.
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False
        super().__init__(intents=intents, allowed_mentions=_NO_MENTIONS, max_messages=None)
        self._on_text = on_text
        self._on_button = on_button
        self._on_online = on_online

    async def on_message(self, message: discord.Message) -> None:
        self._on_text(message)

    async def on_interaction(self, interaction: discord.Interaction) -> None:
        if interaction.type is discord.InteractionType.component:
            self._on_button(interaction)

    async def on_connect(self) -> None:
        self._on_online()

    async def use_server(self) -> None:
        """Connect to the gateway that the configured server names."""
        _, url, _ = await self.http.get_bot_gateway()
        # The library has no setting for it.
        DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(url)

    async def disconnect(self) -> None:
        """Stop receiving; messages can still be sent."""
        if self.ws is not None:
            with suppress(*DISCORD_ERRORS):
                await self.ws.close(code=1_000)


def make_intents(*, has_message_content: bool) -> discord.Intents:
    """Return the events that the bot asks for; texts in threads need a privilege that its owner must turn on."""
    intents = discord.Intents.none()
    intents.guilds = intents.guild_messages = intents.dm_messages = True
    intents.message_content = has_message_content
    return intents


def use_base_url(base_url: str) -> None:
    """Call another server than Discord's own, for the whole process: the library has no setting for it."""
    Route.BASE = f"{base_url.rstrip('/')}/api/v10"


class DiscordClient:
    """Sends messages with retries. Raises one of DISCORD_ERRORS once they are exhausted or cannot help."""

    errors: ClassVar[tuple[type[Exception], ...]] = DISCORD_ERRORS
    limit: ClassVar[int] = 2_000
    has_nonces: ClassVar[bool] = True

    def __init__(self, connection: Callable[[], discord.Client], *, sleep: Sleep, now: Callable[[], float]) -> None:
        self._connection = connection
        self._sleep = sleep
        self._now = now

    def channel(self, channel_id: int) -> discord.PartialMessageable:
        return self._connection().get_partial_messageable(channel_id)

    async def send_text(self, channel_id: int, text: str) -> None:
        """Send a text in as many messages as needed."""
        for piece in split_text(text, limit=self.limit):
            await self.send(channel_id, piece)

    async def send(
        self,
        chat_id: int,
        text: str,
        *,
        nonce: str | None = None,
        buttons: Sequence[Button] = (),
        patience_s: float = DELIVERY_PATIENCE_S,
    ) -> int:
        """Send one message and return its id. With the same nonce soon again, Discord returns the first message."""
        key = nonce or secrets.token_hex(12)  # one for all attempts: a response may be lost

        async def call() -> discord.Message:
            channel = self.channel(chat_id)
            if not buttons:
                return await channel.send(text, nonce=key)
            view = _make_view(buttons)
            try:
                return await channel.send(text, nonce=key, view=view)
            finally:
                view.stop()  # buttons are handled by their data, also after a restart

        return (await self._retry(call, patience_s)).id

    async def edit(self, chat_id: int, message_id: int, text: str, *, patience_s: float = DELIVERY_PATIENCE_S) -> int:
        """Replace the text of a message and remove its buttons; return the id of the message that has the text."""

        async def call() -> object:
            message = self.channel(chat_id).get_partial_message(message_id)
            return await message.edit(content=text, view=None)

        try:
            await self._retry(call, patience_s)
        except discord.NotFound:  # deleted meanwhile
            return await self.send(chat_id, text, patience_s=patience_s)
        return message_id

    async def send_file(self, chat_id: int, name: str, text: str, caption: str, *, nonce: str | None = None) -> None:
        key = nonce or secrets.token_hex(12)

        async def call() -> discord.Message:
            file = discord.File(io.BytesIO(text.encode()), filename=name)
            return await self.channel(chat_id).send(caption, file=file, nonce=key)

        await self._retry(call, DELIVERY_PATIENCE_S)

    async def send_typing(self, chat_id: int) -> None:
        with suppress(*DISCORD_ERRORS):  # cosmetic
            await self.channel(chat_id).typing()

    def retry_delay_s(self, error: Exception) -> float:
        # The library itself waits for rate limits.
        return 0.0

    async def _retry(self, call: Callable[[], Awaitable[T]], patience_s: float) -> T:
        """Call the API until it succeeds, fails permanently, or the next attempt would exceed the patience."""
        deadline, delay_s = self._now() + patience_s, 1.0
        while True:
            try:
                return await call()
            except DISCORD_ERRORS as error:
                if not _is_passing(error) or self._now() + delay_s > deadline:
                    raise
                _log.info("Discord did not answer (%s); trying again", type(error).__name__)
            await self._sleep(delay_s)
            delay_s = min(delay_s * 2, _MAX_RETRY_DELAY_S)


def _is_passing(error: BaseException) -> bool:
    """Whether another attempt may succeed: an outage, or a rate limit beyond the library's own patience."""
    if isinstance(error, discord.HTTPException):
        return error.status == 429 or error.status >= 500
    return isinstance(error, discord.RateLimited | aiohttp.ClientError | OSError | asyncio.TimeoutError)


def _make_view(buttons: Sequence[Button]) -> discord.ui.View:
    view = discord.ui.View(timeout=None)
    for label, data in buttons:
        view.add_item(discord.ui.Button(label=label, custom_id=data))
    return view
