"""The suite for adapter authors, run against Telegram's and Discord's, and against adapters that must fail it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure.config.settings import DiscordSettings, TelegramSettings
from perdure.core.errors import PerdureError
from perdure.core.events import TextDelta, TurnFinished
from perdure.core.visibility import User
from perdure.gateway.adapters import conformance
from perdure.gateway.adapters.base import GatewayPort
from perdure.gateway.auth.principal import Principal
from perdure.gateway.events.types import ChatKey, ChatMessage, SequencedEvent
from support.bot_api import TOKEN, BotApi, MemoryState, bot_api
from support.packages import package

telegram = package(
    "perdure.gateway.adapters.telegram", needs="telegram", reason="the extra `telegram` is not installed"
)
KNOWN, STRANGER = 7, 99


class TelegramPlatform:
    """Telegram, as the suite drives it."""

    def __init__(self, api: BotApi) -> None:
        self.api = api

    def write(self, text: str) -> None:
        self.api.say(text, user=KNOWN)

    def write_as_stranger(self, text: str) -> None:
        self.api.say(text, user=STRANGER)

    def repeat(self) -> None:
        self.api.repeat_last_update()

    def messages(self) -> list[str]:
        return [s.document[1].decode() if s.document else s.text for s in self.api.sent]

    def choose(self, label: str) -> None:
        self.api.press(next(s for s in reversed(self.api.sent) if s.keyboard), label, user=KNOWN)


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_telegram_does_what_every_platform_must(check: conformance.Check) -> None:
    with bot_api() as (api, url):
        adapter = telegram.TelegramAdapter(
            TOKEN, TelegramSettings(allowed_users=(str(KNOWN),), base_url=url), MemoryState()
        )
        asyncio.run(conformance.run(check, adapter, TelegramPlatform(api)))


class DiscordPlatform:
    """Discord, as the suite drives it."""

    def __init__(self, service: Any) -> None:
        self.service = service

    def write(self, text: str) -> None:
        self.service.say(text)

    def write_as_stranger(self, text: str) -> None:
        self.service.say(text, user=STRANGER)

    def repeat(self) -> None:
        self.service.repeat_last_event()

    def messages(self) -> list[str]:
        return [m.files[0][1].decode() if m.files else m.text for m in self.service.sent]

    def choose(self, label: str) -> None:
        self.service.press(next(m for m in reversed(self.service.sent) if m.buttons), label)


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_discord_does_what_every_platform_must(check: conformance.Check) -> None:
    discord = pytest.importorskip("perdure.gateway.adapters.discord", reason="the extra `discord` is not installed")
    from perdure.testing import discord_service

    with discord_service.DiscordService() as service:
        settings = DiscordSettings(allowed_users=(str(KNOWN),), base_url=service.url)
        adapter = discord.DiscordAdapter(discord_service.TOKEN, settings, MemoryState())
        asyncio.run(conformance.run(check, adapter, DiscordPlatform(service)))


class Room:
    """A platform in memory, for adapters of a few lines."""

    def __init__(self) -> None:
        self.inbox: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.said: list[str] = []

    def write(self, text: str) -> None:
        self.inbox.put_nowait(("known", text))

    def write_as_stranger(self, text: str) -> None:
        self.inbox.put_nowait(("stranger", text))

    def repeat(self) -> None: ...

    def messages(self) -> list[str]:
        return list(self.said)

    def choose(self, label: str) -> None: ...


class Careless:
    """Takes anybody, without keys, and shows the first thousand characters of what streams."""

    platform = "room"

    def __init__(self, room: Room) -> None:
        self.room = room

    async def start(self, hub: GatewayPort) -> None:
        self.task = asyncio.create_task(self._read(hub))

    async def stop(self) -> None:
        self.task.cancel()

    async def close(self) -> None: ...

    async def _read(self, hub: GatewayPort) -> None:
        while True:
            who, text = await self.room.inbox.get()
            try:
                await hub.submit(ChatMessage(ChatKey("room", User(who)), text), Principal(User(who), frozenset()))
            except PerdureError:
                continue

    async def deliver(self, chat: ChatKey, turn_id: str, events: AsyncIterator[SequencedEvent]) -> None:
        async for sequenced in events:
            if isinstance(sequenced.event, TextDelta):
                self.room.said.append(sequenced.event.text)
            elif isinstance(sequenced.event, TurnFinished):
                self.room.said.append(sequenced.event.final_response[:1_000])


@pytest.mark.parametrize(
    "check",
    [
        conformance.check_messages_come_in_order,
        conformance.check_strangers_are_rejected,
        conformance.check_a_long_answer_loses_nothing,
        conformance.check_failures_are_reported,
    ],
    ids=lambda check: check.__name__,
)
def test_a_careless_adapter_fails_the_suite(check: conformance.Check) -> None:
    async def tried() -> None:
        room = Room()
        await conformance.run(check, Careless(room), room)

    with pytest.raises(AssertionError):
        asyncio.run(tried())
