"""Create the adapters of the enabled platforms."""

from __future__ import annotations

import subprocess

from perdure.config.api_keys import api_key_for
from perdure.config.settings import DiscordSettings, GatewaySettings, TelegramSettings
from perdure.core.errors import ConfigError
from perdure.gateway.adapters.base import Adapter
from perdure.store.store import SessionStore

_TOKEN_COMMAND_TIMEOUT_S = 30


def make_adapters(settings: GatewaySettings, store: SessionStore) -> dict[str, Adapter]:
    """Return adapters by platform. Raises ConfigError if a package or token is missing."""
    adapters: dict[str, Adapter] = {}
    if settings.telegram.enabled:
        adapters["telegram"] = _telegram(settings.telegram, store)
    if settings.discord.enabled:
        adapters["discord"] = _discord(settings.discord, store)
    return adapters


def _telegram(settings: TelegramSettings, store: SessionStore) -> Adapter:
    try:
        from perdure.gateway.adapters.telegram import TelegramAdapter
    except ImportError as error:
        raise ConfigError(
            f"Telegram needs a package that is not installed ({error}): pip install 'perdure[telegram]'"
        ) from error
    # An empty allow list is valid: the bot then replies with the user id to add.
    return TelegramAdapter(_token("telegram", settings, "from @BotFather"), settings, store.state("telegram"))


def _discord(settings: DiscordSettings, store: SessionStore) -> Adapter:
    try:
        from perdure.gateway.adapters.discord import DiscordAdapter
    except ImportError as error:
        raise ConfigError(
            f"Discord needs a package that is not installed ({error}): pip install 'perdure[discord]'"
        ) from error
    token = _token("discord", settings, "from the developer portal")
    return DiscordAdapter(token, settings, store.state("discord"))


def _token(platform: str, settings: TelegramSettings | DiscordSettings, origin: str) -> str:
    if token := api_key_for(settings.token_env):
        return token
    if settings.token_command is None:
        raise ConfigError(
            f"the {platform.capitalize()} bot's token is not set: export {settings.token_env}=… ({origin})"
        )
    try:
        process = subprocess.run(
            ["/bin/sh", "-c", settings.token_command], capture_output=True, text=True, timeout=_TOKEN_COMMAND_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"gateway.{platform}.token_command printed nothing within {_TOKEN_COMMAND_TIMEOUT_S} s"
        ) from None
    lines = process.stdout.strip().splitlines()
    if process.returncode != 0 or not lines:
        raise ConfigError(
            f"gateway.{platform}.token_command failed (exit {process.returncode}); run it by hand to see why"
        )
    return lines[-1].strip()
