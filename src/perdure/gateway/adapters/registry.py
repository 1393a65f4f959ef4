"""Create the adapters of the enabled platforms."""

from __future__ import annotations

import subprocess

from perdure.config.api_keys import api_key_for
from perdure.config.settings import GatewaySettings, TelegramSettings
from perdure.core.errors import ConfigError
from perdure.gateway.adapters.base import Adapter

_TOKEN_COMMAND_TIMEOUT_S = 30


def make_adapters(settings: GatewaySettings) -> dict[str, Adapter]:
    """Return adapters by platform. Raises ConfigError if a package or token is missing."""
    return {"telegram": _telegram(settings.telegram)} if settings.telegram.enabled else {}


def _telegram(settings: TelegramSettings) -> Adapter:
    try:
        from perdure.gateway.adapters.telegram import TelegramAdapter
    except ImportError as error:
        raise ConfigError(
            f"Telegram needs a package that is not installed ({error}): pip install 'perdure[telegram]'"
        ) from error
    # An empty allow list is valid: the bot then replies with the user id to add.
    return TelegramAdapter(_token(settings), settings)


def _token(settings: TelegramSettings) -> str:
    if token := api_key_for(settings.token_env):
        return token
    if settings.token_command is None:
        raise ConfigError(f"the Telegram bot's token is not set: export {settings.token_env}=… (from @BotFather)")
    try:
        process = subprocess.run(
            ["/bin/sh", "-c", settings.token_command], capture_output=True, text=True, timeout=_TOKEN_COMMAND_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"gateway.telegram.token_command printed nothing within {_TOKEN_COMMAND_TIMEOUT_S} s"
        ) from None
    lines = process.stdout.strip().splitlines()
    if process.returncode != 0 or not lines:
        raise ConfigError(
            f"gateway.telegram.token_command failed (exit {process.returncode}); run it by hand to see why"
        )
    return lines[-1].strip()
