"""All settings, by group; those about the context are in `sections`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from perdure.config.sections import (
    CompressionSettings,
    Dollars,
    Positive,
    Price,
    PromptCachingSettings,
    Seconds,
    Section,
    Text,
    ToolOutputSettings,
    check_networks,
)


class TelegramSettings(Section):
    """Settings of the Telegram bot."""

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


class DiscordSettings(Section):
    """Settings of the Discord bot."""

    enabled: bool = Field(default=False, description="Answer on Discord; needs the extra `discord` and a bot token.")
    token_env: Text = Field(default="DISCORD_BOT_TOKEN", description="Variable that holds the bot's token.")
    token_command: Text | None = Field(
        default=None, description="Command that prints the bot's token, where the variable is not set."
    )
    allowed_users: tuple[Annotated[str, Field(pattern=r"^[0-9]+(=[^\s=]+)?$")], ...] = Field(
        default=(),
        description="Numeric ids of who may talk; 123=alice shares conversations and memory with the user alice.",
        json_schema_extra={"allowed": "a list; each item: a Discord user's number, or number=user"},
    )
    scopes: tuple[Literal["chat", "read", "shell"], ...] = Field(
        default=("chat", "read"), description="What they may do; shell adds the terminal and file tools."
    )
    threads: bool = Field(default=True, description="Answer a mention in a channel in a thread of its own.")
    base_url: Annotated[str, Field(pattern=r"^https?://")] | None = Field(
        default=None,
        description="Server to call instead of Discord's own.",
        json_schema_extra={"allowed": "a URL, or null"},
    )


class GatewaySettings(Section):
    """Settings of `perdure gateway` and `perdure serve`."""

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
    run_schedules: bool = Field(
        default=True, description="Run the schedules of the store when they are due (`perdure schedule`)."
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
    discord: DiscordSettings = Field(default=DiscordSettings(), description="The Discord bot.")

    _check_proxies = field_validator("trusted_proxies")(check_networks)


ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class ModelSettings(Section):
    """The main model: provider, name, address and limits."""

    name: Text | None = Field(
        default=None, description="Model to talk to; null lets Perdure choose from what it finds."
    )
    provider: Text | None = Field(
        default=None, description="Provider by name; null chooses by base_url, then by keys found."
    )
    base_url: Text | None = Field(default=None, description="Endpoint to call instead of the provider's own.")
    context_length: Positive | None = Field(
        default=None, description="Context window in tokens; overrides every other source."
    )
    max_tokens: Positive | None = Field(
        default=None, description="Most tokens of one reply; null leaves it to the provider."
    )
    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(
        default=None, description="Sampling temperature; null leaves it to the provider."
    )
    reasoning_effort: ReasoningEffort | None = Field(
        default=None, description="How long a thinking model may think; null leaves it to the provider."
    )


WhileBusy = Literal["queue", "interrupt"]


class AgentSettings(Section):
    """Limits of a turn, and what happens to messages that come during one."""

    while_busy: WhileBusy = Field(
        default="queue",
        description="What a message does while its conversation is answering, on every surface: wait, or stop that.",
    )
    max_turns: Positive = Field(
        default=90, description="Model calls one turn may make before the agent stops and sums up."
    )
    loop_repeats: Annotated[int, Field(ge=0)] = Field(
        default=3,
        description="Rounds of the same tool calls and results, at least 5 calls in all, before you are told; 0 never.",
    )


class DelegationSettings(Section):
    """Child agents started by `delegate_task`."""

    max_iterations: Positive = Field(default=50, description="Model calls a child agent may make, counted for itself.")


class RouteSettings(Section):
    """A model endpoint, as a mapping or in short form: `provider` or `provider/model`."""

    model_config = ConfigDict(
        json_schema_extra={"allowed": "provider, provider/model, or a mapping with provider, model and base_url"}
    )

    provider: Text = Field(description="Provider by name, e.g. openrouter.")
    model: Text | None = Field(default=None, description="Model there; null uses model.name.")
    base_url: Text | None = Field(default=None, description="Endpoint to call instead of the provider's own.")

    @model_validator(mode="before")
    @classmethod
    def _from_short_form(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        provider, _, model = value.partition("/")
        return {"provider": provider, "model": model or None}


class AuxiliaryTaskSettings(Section):
    """The model and endpoints of one auxiliary task."""

    model: Text | None = Field(default=None, description="Model for this job; null lets Perdure choose.")
    provider: Text = Field(
        default="auto", description="auto chooses, main uses the main model's route, or a provider by name."
    )
    base_url: Text | None = Field(default=None, description="Endpoint to call instead of the provider's own.")
    fallback: tuple[RouteSettings, ...] = Field(
        default=(), description="Routes tried in order when the first one fails."
    )


class AuxiliaryCompressionSettings(AuxiliaryTaskSettings):
    """The model that writes summaries, and its window."""

    context_length: Positive | None = Field(
        default=None, description="Window of the summary model in tokens; never changes the threshold."
    )


class AuxiliarySettings(Section):
    """Models of the auxiliary tasks, each with a route of its own."""

    compression: AuxiliaryCompressionSettings = Field(
        default=AuxiliaryCompressionSettings(), description="The model that writes summaries."
    )
    vision: AuxiliaryTaskSettings = Field(
        default=AuxiliaryTaskSettings(), description="The model that describes images for a main model that takes none."
    )
    web_extract: AuxiliaryTaskSettings = Field(
        default=AuxiliaryTaskSettings(),
        description="The model that reduces a long web page to what was asked, with quotes.",
    )
    session_search: AuxiliaryTaskSettings = Field(
        default=AuxiliaryTaskSettings(),
        description="The model that reads the hits of a session search and answers with their addresses.",
    )


class CredentialsSettings(Section):
    """Where API keys come from besides the providers' environment variables."""

    command: Text | None = Field(
        default=None, description="Command that prints an API key; run when a key is missing or was refused."
    )
    codex_issuer: Annotated[str, Field(pattern=r"^(https://[^/]+|http://(127\.0\.0\.1|localhost)(:[0-9]+)?)$")] = Field(
        default="https://auth.openai.com",
        description="Server at which `perdure login codex` signs in.",
        json_schema_extra={"allowed": "an https URL without a path; http on loopback only"},
    )
    codex_client_id: Text = Field(
        default="app_EMoamEEZ73f0CkXaXp7hrann",
        description="OAuth client that `perdure login codex` signs in as: the public one of OpenAI's Codex.",
    )
    codex_device_path: Annotated[str, Field(pattern=r"^/[!-~]*$")] = Field(
        default="/oauth/device/code",
        description="Path at the sign-in server that issues the code of `perdure login codex --device` (RFC 8628).",
        json_schema_extra={"allowed": "a path that begins with /"},
    )


class LimitsSettings(Section):
    """Cost limits in US dollars: a call that would pass one is not made."""

    max_cost_per_turn: Dollars | None = Field(default=None, description="Most US dollars one turn may cost.")
    max_cost_per_session: Dollars | None = Field(
        default=None, description="Most US dollars one conversation may cost, all of its compactions included."
    )
    max_cost_per_day: Dollars | None = Field(
        default=None, description="Most US dollars all conversations may cost in one day (UTC)."
    )


class TimeoutSettings(Section):
    """Timeouts of calls to a model, in seconds."""

    connect_s: Seconds = Field(default=10.0, description="For the connection.")
    first_token_s: Seconds = Field(default=300.0, description="For the first content of a stream, in silence.")
    queued_s: Seconds = Field(
        default=900.0, description="For the first content of a stream, while the service sends keep-alive signals."
    )
    idle_s: Seconds = Field(default=120.0, description="Between two chunks of a stream.")
    keep_alive_s: Seconds = Field(
        default=300.0, description="Between two pieces of content of a stream, while only keep-alive signals arrive."
    )
    reply_s: Seconds = Field(default=900.0, description="For the whole of a reply that is not streamed.")


class ContextSettings(Section):
    """The engine that decides what stays in the context."""

    engine: Text = Field(
        default="compressor",
        description="Context engine by name: compressor, windows or a plug-in; `perdure plugins list` shows all.",
    )
    lcm_tools: bool = Field(
        default=False,
        description="Offer lcm_grep, lcm_describe and lcm_expand with any engine; `windows` always offers them.",
    )
    max_images: Positive | None = Field(
        default=20,
        description="Most images in one request; older ones leave the view by their address. null: no limit.",
    )


class StoreSettings(Section):
    """Where conversations are stored: a file or a PostgreSQL URL."""

    path: Text | None = Field(default=None, description="SQLite file; null means perdure.db in the home folder.")
    url: Annotated[str, Field(pattern=r"^postgres(ql)?://")] | None = Field(
        default=None,
        description="PostgreSQL database, for several machines; wins over store.path.",
        json_schema_extra={"allowed": "a URL like postgresql://user@host/database, or null"},
    )


class MemorySettings(Section):
    """The two files of lasting facts that the `memory` tool keeps."""

    memory_max_chars: Positive = Field(default=4_000, description="Most characters of MEMORY.md.")
    user_max_chars: Positive = Field(default=2_000, description="Most characters of USER.md.")


class RecallSettings(Section):
    """Passages of earlier conversations that are attached to a new message as background."""

    enabled: bool = Field(
        default=False, description="Attach passages that match a new message, from all conversations."
    )
    max_passages: Positive = Field(default=4, description="Most passages for one message.")
    max_tokens: Positive = Field(default=800, description="Most tokens of the passages for one message.")
    timeout_s: Seconds = Field(
        default=5.0, description="Seconds that a search, or a provider of your own, may take; then the turn goes on."
    )


PermissionMode = Literal["plan", "ask", "edits", "all"]


class PermissionsSettings(Section):
    """What the model may do without asking. Rules name a tool, or a tool and a pattern: `terminal(git push *)`."""

    mode: PermissionMode = Field(
        default="edits",
        description="plan: read only; ask: ask before every change; edits: ask before dangerous ones; all: never ask.",
    )
    allow: tuple[Text, ...] = Field(default=(), description="Calls that run without asking, e.g. terminal(make test).")
    ask: tuple[Text, ...] = Field(default=(), description="Calls that are asked about every time.")
    deny: tuple[Text, ...] = Field(default=(), description="Calls that never run, e.g. write_file(migrations/*).")


class ToolsSettings(Section):
    """Which tools the model is offered, and what they may do."""

    disabled: tuple[Text, ...] = Field(
        default=(), description="Toolsets or single tools that are not offered, e.g. web or delegate_task."
    )
    plugins: tuple[Text, ...] = Field(
        default=(), description="Plug-ins that bring tools, by name; one that is not named here is never loaded."
    )
    defer_above_tokens: Annotated[int, Field(ge=0)] = Field(
        default=3_000,
        description="Tokens of tool schemas above which all but the built-in tools are found by need; 0 sends all.",
    )
    pinned: tuple[Text, ...] = Field(
        default=(), description="Toolsets or single tools that are always sent whole, e.g. mcp:github or deploy."
    )
    timeout_s: Annotated[float, Field(gt=0)] = Field(
        default=600.0, description="Seconds one tool call may take, where its tool says nothing."
    )
    approval: Literal["ask", "never"] = Field(
        default="ask", description="Ask before dangerous commands and writes outside the workspace; never asks nobody."
    )
    sandbox: Literal["off", "bubblewrap"] = Field(
        default="off",
        description="Run commands in a sandbox: only the workspace is writable, home is hidden, the network is off.",
    )
    private_networks: tuple[Text, ...] = Field(
        default=(), description="Networks web_extract may fetch from although they are not public, e.g. 127.0.0.1."
    )

    _check_private = field_validator("private_networks")(check_networks)


class McpServerSettings(Section):
    """One MCP server: a program to start, or an address to call."""

    model_config = ConfigDict(
        json_schema_extra={"allowed": "a mapping with name and command (with args, env, cwd) or url (with headers)"}
    )

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,30}$")] = Field(
        description="What its tools are called by: name__tool."
    )
    command: Text | None = Field(default=None, description="Program to start; it talks over its input and output.")
    args: tuple[str, ...] = Field(default=(), description="Its arguments.")
    env: dict[str, str] = Field(default={}, description="Variables for it; ${NAME} takes one of yours.")
    cwd: Text | None = Field(default=None, description="Folder it starts in.")
    url: Annotated[str, Field(pattern=r"^https?://")] | None = Field(
        default=None, description="Address of a server that is called over HTTP instead."
    )
    headers: dict[str, str] = Field(default={}, description="Headers for it; ${NAME} takes a variable of yours.")
    timeout_s: Annotated[float, Field(gt=0)] = Field(default=60.0, description="Seconds one call may take.")
    disabled: tuple[Text, ...] = Field(default=(), description="Its tools that are not offered, by their own names.")
    per_conversation: bool = Field(
        default=False, description="Start it anew for each conversation: for a server with a state, such as a browser."
    )

    @model_validator(mode="after")
    def _has_one_way_in(self) -> McpServerSettings:
        if (self.command is None) == (self.url is None):
            raise ValueError("either command or url is needed, and not both")
        return self


class DisplaySettings(Section):
    """What the terminal displays."""

    reasoning: bool = Field(default=False, description="Show what a thinking model thinks.")
    streaming: bool = Field(default=True, description="Show a reply as it is written.")
    tool_lines: Annotated[int, Field(ge=0, le=1_000)] = Field(
        default=6, description="Lines of a tool's output to show, and half of those of a diff; 0 shows none."
    )
    color: Literal["auto", "always", "never"] = Field(
        default="auto", description="Colours: auto follows the terminal and NO_COLOR."
    )


class ModelOverride(Section):
    """What you know better than the catalogue about one model."""

    model: Text = Field(description="Model the entry is about.")
    provider: Text | None = Field(default=None, description="Provider it is about; null means on every provider.")
    context_length: Positive | None = Field(default=None, description="Its window in tokens.")
    input_price_per_mtok: Price | None = Field(
        default=None, description="US dollars for a million fresh prompt tokens."
    )
    output_price_per_mtok: Price | None = Field(default=None, description="US dollars for a million output tokens.")
    cache_read_price_per_mtok: Price | None = Field(
        default=None, description="US dollars for a million prompt tokens read from the cache."
    )
    cache_write_price_per_mtok: Price | None = Field(
        default=None, description="US dollars for a million prompt tokens written to the cache."
    )
    takes_images: bool | None = Field(
        default=None, description="Whether it takes images; false has them described by auxiliary.vision."
    )


class Settings(Section):
    """All settings, as one frozen value."""

    model: ModelSettings = Field(default=ModelSettings(), description="The model that answers.")
    compression: CompressionSettings = Field(default=CompressionSettings(), description="Handing over a long history.")
    tool_output: ToolOutputSettings = Field(default=ToolOutputSettings(), description="Budgets of tool output.")
    prompt_caching: PromptCachingSettings = Field(default=PromptCachingSettings(), description="Cache marks.")
    agent: AgentSettings = Field(
        default=AgentSettings(), description="Limits of a turn, and messages that come during one."
    )
    delegation: DelegationSettings = Field(default=DelegationSettings(), description="Child agents.")
    auxiliary: AuxiliarySettings = Field(default=AuxiliarySettings(), description="Routes of side jobs.")
    fallback_providers: tuple[RouteSettings, ...] = Field(
        default=(), description="Routes tried in order when the main one is rate-limited, down or refuses the key."
    )
    credentials: CredentialsSettings = Field(default=CredentialsSettings(), description="Where API keys come from.")
    limits: LimitsSettings = Field(default=LimitsSettings(), description="Cost limits.")
    timeouts: TimeoutSettings = Field(default=TimeoutSettings(), description="How long a model call is waited for.")
    context: ContextSettings = Field(default=ContextSettings(), description="The context engine.")
    store: StoreSettings = Field(default=StoreSettings(), description="Where conversations are kept.")
    memory: MemorySettings = Field(default=MemorySettings(), description="Lasting facts.")
    recall: RecallSettings = Field(default=RecallSettings(), description="Recalled context.")
    tools: ToolsSettings = Field(default=ToolsSettings(), description="What the model can do.")
    permissions: PermissionsSettings = Field(
        default=PermissionsSettings(),
        description="What the model may do without asking, and what it may not do at all.",
    )
    mcp_servers: tuple[McpServerSettings, ...] = Field(
        default=(), description="MCP servers whose tools are offered too; needs the extra `mcp`."
    )
    gateway: GatewaySettings = Field(default=GatewaySettings(), description="The gateway, and `perdure serve`.")
    display: DisplaySettings = Field(default=DisplaySettings(), description="What the terminal shows.")
    model_overrides: tuple[ModelOverride, ...] = Field(
        default=(),
        description="What you know better about models than the catalogue; `perdure models price` adds prices.",
    )
