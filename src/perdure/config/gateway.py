"""The gateway's settings: where it listens, who is let in, how much anybody may ask of it."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated, Literal

from pydantic import Field, field_validator

from perdure.config.section import Positive, Section, Text

Seconds = Annotated[float, Field(gt=0)]


class TelegramSettings(Section):
    """The Telegram bot."""

    enabled: bool = Field(default=False, description="Answer on Telegram; needs the extra `telegram` and a bot token.")
    token_env: Text = Field(default="TELEGRAM_BOT_TOKEN", description="Variable that holds the bot's token.")
    token_command: Text | None = Field(
        default=None, description="Command that prints the bot's token, where the variable is not set."
    )
    allowed_users: tuple[Annotated[str, Field(pattern=r"^[0-9]+(=[^\s=]+)?$")], ...] = Field(
        default=(),
        description="Numeric ids of who may talk; 123=alice shares conversations and memory with the user alice.",
        json_schema_extra={"allowed": "a list; each item: a Telegram user's number, or number=user"},
    )
    scopes: tuple[Literal["chat", "read", "shell"], ...] = Field(
        default=("chat", "read"), description="What they may do; shell adds the terminal and file tools."
    )
    base_url: Annotated[str, Field(pattern=r"^https?://")] | None = Field(
        default=None,
        description="Bot API server to call instead of Telegram's own.",
        json_schema_extra={"allowed": "a URL, or null"},
    )


class GatewaySettings(Section):
    """`perdure gateway` and `perdure serve`."""

    host: Text = Field(
        default="127.0.0.1", description="Address to listen on; anything but this machine's own needs a token set."
    )
    port: Annotated[int, Field(ge=0, le=65_535)] = Field(
        default=8420, description="Port to listen on; 0 takes a free one."
    )
    public_url: Annotated[str, Field(pattern=r"^https?://[^/]+")] | None = Field(
        default=None,
        description="Where people reach it, behind a proxy or not; its host name is answered and its origin trusted.",
        json_schema_extra={"allowed": "a URL like https://agent.example.org, or null"},
    )
    allowed_hosts: tuple[Text, ...] = Field(
        default=(), description="Further host names it answers to; *.example.org means every name below example.org."
    )
    trusted_proxies: tuple[Text, ...] = Field(
        default=(), description="Addresses or networks of proxies whose X-Forwarded-For and -Proto are believed."
    )
    while_busy: Literal["queue", "interrupt"] = Field(
        default="queue",
        description="What a message does while its conversation is answering: wait, or stop that answer.",
    )
    max_queued: Positive = Field(
        default=20, description="Messages that may wait in one conversation; more are refused."
    )
    max_body_bytes: Annotated[int, Field(ge=1_024)] = Field(
        default=16_777_216, description="Most bytes of one request, images included."
    )
    body_timeout_s: Seconds = Field(default=30.0, description="Seconds a request's body may take to arrive.")
    max_header_bytes: Annotated[int, Field(ge=1_024)] = Field(
        default=65_536, description="Most bytes of a request's headers; more are refused (431)."
    )
    header_timeout_s: Seconds = Field(
        default=10.0, description="Seconds a connection may take to send a request's headers."
    )
    requests_per_minute: Positive | None = Field(
        default=600, description="Requests one user may make a minute in the long run; null sets no limit."
    )
    request_burst: Positive = Field(default=120, description="Requests one user may make at once before that counts.")
    question_timeout_s: Seconds = Field(
        default=300.0, description="Seconds to wait for a person's answer; an approval nobody gives is denied."
    )
    drain_timeout_s: Annotated[float, Field(ge=0)] = Field(
        default=30.0, description="Seconds running turns get to finish when the gateway is told to stop."
    )
    idle_close_s: Seconds = Field(
        default=300.0,
        description="Seconds after which an idle conversation's agent is let go; it comes back when asked.",
    )
    max_live_agents: Positive = Field(
        default=1_000, description="Agents kept ready at once; the longest idle ones are let go first."
    )
    log: Literal["json", "plain", "off"] = Field(
        default="json",
        description="One line on stderr for each request and turn: ids and figures, never what was said.",
    )
    traces: Literal["off", "console", "otlp"] = Field(
        default="off",
        description="Where OpenTelemetry spans go: console, or otlp as the OTEL_* variables say; needs `telemetry`.",
    )
    telegram: TelegramSettings = Field(default=TelegramSettings(), description="The Telegram bot.")

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for network in value:
            ip_network(network, strict=False)
        return value
