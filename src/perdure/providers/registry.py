"""The table of known providers: mode, base URL, key variables and quirks, one row each; and the module of each mode.

An unlisted provider is treated as `custom`: it needs a base URL and defaults to plain chat_completions. A mode module
defines `PATH`, `headers(endpoint)`, `build(request)`, `parse(body)` and `make_stream()`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, get_args
from urllib.parse import urlsplit, urlunsplit

from perdure.core.addresses import is_loopback_host
from perdure.core.errors import ConfigError
from perdure.providers.types import NO_QUIRKS, ApiMode, Endpoint, Quirks


@dataclass(frozen=True, slots=True)
class AddressVariable:
    """An environment variable from which the provider's own client takes its address."""

    name: str
    # What the client appends to the value; a value that ends in it already is left as it is.
    path: str = ""


@dataclass(frozen=True, slots=True)
class ProviderSpec:
    """Registry row of a provider. `api_mode` None is inferred from the base URL; `base_url` "" must be set."""

    name: str
    api_mode: ApiMode | None
    base_url: str
    # Environment variables for the API key, in order; empty: no key is needed.
    key_variables: tuple[str, ...] = ()
    quirks: Quirks = NO_QUIRKS
    # Default model of auxiliary tasks; "": the main model.
    small_model: str = ""
    # Default main model; "": `model.name` is required.
    default_model: str = ""
    # Environment variables for the address, in order; a configured address goes before them.
    address_variables: tuple[AddressVariable, ...] = ()

    @property
    def needs_key(self) -> bool:
        return bool(self.key_variables)


_OPENAI_ADDRESS = (AddressVariable("OPENAI_BASE_URL"), AddressVariable("OPENAI_API_BASE"))
_NEW_OPENAI = Quirks(max_tokens_key="max_completion_tokens")
_FORMATS = Quirks(answer_format="json_schema", takes_format_with_tools=True)
_OPENAI = replace(_FORMATS, takes_cache_key=True, takes_cache_breakpoints=True, cache_lifetime_s=600.0)
_THINKS = Quirks(reasoning_field="reasoning_content")
_LOCAL = Quirks(reasoning_field="reasoning_content", tool_images="inline", answer_format="json_schema")

PROVIDERS: tuple[ProviderSpec, ...] = (
    ProviderSpec(
        "anthropic",
        "anthropic_messages",
        "https://api.anthropic.com",
        ("ANTHROPIC_API_KEY",),
        Quirks(supports_cache_control=True, call_ids="anthropic"),
        small_model="claude-haiku-5-5",
        default_model="claude-sonnet-5-5",
        address_variables=(AddressVariable("ANTHROPIC_BASE_URL"),),
    ),
    ProviderSpec(
        "openai",
        "chat_completions",
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY",),
        replace(_OPENAI, max_tokens_key="max_completion_tokens"),
        small_model="gpt-5.4-mini",
        default_model="gpt-5.5",
        address_variables=_OPENAI_ADDRESS,
    ),
    ProviderSpec(
        "openai-responses",
        "codex_responses",
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY",),
        replace(_OPENAI, call_ids="responses"),
        small_model="gpt-5.4-mini",
        default_model="gpt-5.5",
        address_variables=_OPENAI_ADDRESS,
    ),
    ProviderSpec(
        "openai-codex",
        "codex_responses",
        "https://chatgpt.com/backend-api/codex",
        ("OPENAI_CODEX_TOKEN",),
        # The ChatGPT backend rejects a limit and a temperature with "Unsupported parameter", and requests without the
        # other two with {"detail": "Stream must be set to true"} and {"detail": "Instructions are required"}.
        Quirks(
            call_ids="responses",
            max_tokens_key=None,
            takes_temperature=False,
            requires_instructions=True,
            takes_cache_key=True,
            cache_lifetime_s=600.0,
            extra={"stream": True},
        ),
        default_model="gpt-5.5",
    ),
    ProviderSpec(
        "azure",
        "chat_completions",
        "",
        ("AZURE_OPENAI_API_KEY",),
        replace(_FORMATS, max_tokens_key="max_completion_tokens", auth="api-key", cache_lifetime_s=600.0),
        address_variables=(AddressVariable("AZURE_OPENAI_ENDPOINT", "/openai/v1"),),
    ),
    ProviderSpec(
        "openrouter",
        "chat_completions",
        "https://openrouter.ai/api/v1",
        ("OPENROUTER_API_KEY",),
        Quirks(
            reasoning_field="reasoning",
            effort="reasoning",
            supports_cache_control=True,
            headers={"X-Title": "Perdure"},
            extra={"usage": {"include": True}},
        ),
        default_model="anthropic/claude-sonnet-5.5",
    ),
    ProviderSpec(
        "copilot",
        "chat_completions",
        "https://api.githubcopilot.com",
        ("COPILOT_API_TOKEN", "GITHUB_COPILOT_TOKEN"),
        Quirks(
            headers={"Copilot-Integration-Id": "vscode-chat", "Editor-Version": "perdure/1.0"},
            effort="none",
        ),
    ),
    ProviderSpec(
        "deepseek",
        "chat_completions",
        "https://api.deepseek.com/v1",
        ("DEEPSEEK_API_KEY",),
        # Its cache is on disk and lasts for hours.
        replace(_THINKS, answer_format="json_object", cache_lifetime_s=6 * 3_600.0),
        default_model="deepseek-chat",
    ),
    ProviderSpec(
        "groq",
        "chat_completions",
        "https://api.groq.com/openai/v1",
        ("GROQ_API_KEY",),
        # "json mode cannot be combined with tool/function calling"
        replace(_NEW_OPENAI, reasoning_field="reasoning", answer_format="json_object"),
        small_model="llama-3.1-8b-instant",
        default_model="llama-3.3-70b-versatile",
        address_variables=(AddressVariable("GROQ_BASE_URL", "/openai/v1"),),
    ),
    ProviderSpec(
        "together",
        "chat_completions",
        "https://api.together.xyz/v1",
        ("TOGETHER_API_KEY",),
        replace(_THINKS, reasoning_field="reasoning"),
        address_variables=(AddressVariable("TOGETHER_BASE_URL"),),
    ),
    ProviderSpec(
        "gemini",
        "chat_completions",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        # "Function calling with a response mime type: 'application/json' is unsupported"
        Quirks(answer_format="json_schema"),
        small_model="gemini-3.5-flash",
        default_model="gemini-3.1-pro-preview",
        address_variables=(AddressVariable("GOOGLE_GEMINI_BASE_URL", "/v1beta/openai"),),
    ),
    ProviderSpec(
        "mistral",
        "chat_completions",
        "https://api.mistral.ai/v1",
        ("MISTRAL_API_KEY",),
        # "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9."
        Quirks(
            call_ids="mistral",
            takes_stream_options=False,
            effort="none",
            answer_format="json_schema",
        ),
        small_model="mistral-small-latest",
        default_model="mistral-large-latest",
    ),
    ProviderSpec(
        "xai",
        "chat_completions",
        "https://api.x.ai/v1",
        ("XAI_API_KEY",),
        replace(_FORMATS, max_tokens_key="max_completion_tokens", reasoning_field="reasoning_content"),
    ),
    ProviderSpec(
        "fireworks", "chat_completions", "https://api.fireworks.ai/inference/v1", ("FIREWORKS_API_KEY",), _THINKS
    ),
    ProviderSpec(
        "cerebras",
        "chat_completions",
        "https://api.cerebras.ai/v1",
        ("CEREBRAS_API_KEY",),
        _NEW_OPENAI,
        address_variables=(AddressVariable("CEREBRAS_BASE_URL", "/v1"),),
    ),
    ProviderSpec("sambanova", "chat_completions", "https://api.sambanova.ai/v1", ("SAMBANOVA_API_KEY",)),
    ProviderSpec(
        "nvidia",
        "chat_completions",
        "https://integrate.api.nvidia.com/v1",
        ("NVIDIA_API_KEY",),
        _THINKS,
        address_variables=(AddressVariable("NVIDIA_BASE_URL"),),
    ),
    ProviderSpec("nous", "chat_completions", "https://inference-api.nousresearch.com/v1", ("NOUS_API_KEY",), _THINKS),
    ProviderSpec("huggingface", "chat_completions", "https://router.huggingface.co/v1", ("HF_TOKEN",)),
    ProviderSpec(
        "dashscope",
        "chat_completions",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        ("DASHSCOPE_API_KEY",),
        replace(_THINKS, effort="none"),
    ),
    ProviderSpec(
        "moonshot",
        "chat_completions",
        "https://api.moonshot.ai/v1",
        ("MOONSHOT_API_KEY", "KIMI_API_KEY"),
        replace(_THINKS, effort="thinking"),
        address_variables=(AddressVariable("KIMI_BASE_URL"),),
    ),
    ProviderSpec(
        "zai", "chat_completions", "https://api.z.ai/api/paas/v4", ("ZAI_API_KEY",), replace(_THINKS, effort="thinking")
    ),
    ProviderSpec(
        "minimax",
        "chat_completions",
        "https://api.minimax.io/v1",
        ("MINIMAX_API_KEY",),
        # Its models reason inside <think> tags and need them back in later turns.
        Quirks(reasoning_field="think_tags", effort="none"),
    ),
    ProviderSpec(
        "litellm",
        "chat_completions",
        "",
        ("LITELLM_API_KEY",),
        Quirks(supports_cache_control=True),
        address_variables=(AddressVariable("LITELLM_PROXY_API_BASE"),),
    ),
    ProviderSpec(
        "vllm", "chat_completions", "http://127.0.0.1:8000/v1", (), replace(_LOCAL, reasoning_field="reasoning")
    ),
    ProviderSpec("sglang", "chat_completions", "http://127.0.0.1:30000/v1", (), _LOCAL),
    ProviderSpec("llamacpp", "chat_completions", "http://127.0.0.1:8080/v1", (), _LOCAL),
    ProviderSpec(
        "ollama",
        "chat_completions",
        "http://127.0.0.1:11434/v1",
        (),
        replace(_LOCAL, reasoning_field="reasoning"),
        address_variables=(AddressVariable("OLLAMA_HOST", "/v1"),),
    ),
    ProviderSpec("lmstudio", "chat_completions", "http://127.0.0.1:1234/v1", (), _LOCAL),
    ProviderSpec("local", None, "", (), _LOCAL),
    ProviderSpec("custom", None, "", (), Quirks(reasoning_field="reasoning_content")),
)

_ALIASES = {
    "claude": "anthropic",
    "codex": "openai-codex",
    "github-copilot": "copilot",
    "google": "gemini",
    "grok": "xai",
    "x-ai": "xai",
    "together-ai": "together",
    "togetherai": "together",
    "fireworks-ai": "fireworks",
    "kimi": "moonshot",
    "qwen": "dashscope",
    "alibaba": "dashscope",
    "zhipu": "zai",
    "glm": "zai",
    "nim": "nvidia",
    "hf": "huggingface",
    "nousresearch": "nous",
    "llama.cpp": "llamacpp",
    "llama-cpp": "llamacpp",
    "lm-studio": "lmstudio",
    "azure-openai": "azure",
}


@dataclass(frozen=True, slots=True)
class ModelRow:
    """Quirks of a model that override its provider's; `sample` is the error message that shows the need."""

    pattern: re.Pattern[str]
    sample: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    modes: tuple[ApiMode, ...] = ("chat_completions", "codex_responses")


MODEL_ROWS: tuple[ModelRow, ...] = (
    ModelRow(
        re.compile(r"(?:^|/)(?:o\d|gpt-[5-9])"),
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        {"max_tokens_key": "max_completion_tokens", "takes_temperature": False},
        ("chat_completions",),
    ),
    ModelRow(
        re.compile(r"(?:^|/)(?:o\d|gpt-[5-9])"),
        "Unsupported parameter: 'temperature' is not supported with this model.",
        {"takes_temperature": False},
        ("codex_responses",),
    ),
    ModelRow(
        re.compile(r"(?:^|/)(?:gpt-4|gpt-3|chatgpt-4o)"),
        "Encrypted content is not supported with this model.",
        {"takes_encrypted_reasoning": False},
        ("codex_responses",),
    ),
)


def find_provider(name: str | None) -> ProviderSpec | None:
    """Return a provider by name or alias; None if it is not listed."""
    normalized = (name or "").strip().lower().replace("_", "-")
    normalized = _ALIASES.get(normalized, normalized)
    return next((s for s in PROVIDERS if s.name == normalized), None)


def provider_name(name: str) -> str:
    """Return the canonical name of a provider for any alias; an unknown name is returned unchanged."""
    return row.name if (row := find_provider(name)) is not None else name


def address_of(row: ProviderSpec, lookup: Callable[[str], str | None]) -> tuple[str, str | None]:
    """Return a provider's address where none is configured, and the environment variable it is from.

    None is the provider's own address. Raises ConfigError for a variable that holds no address.
    """
    for variable in row.address_variables:
        if value := lookup(variable.name):
            return _complete_address(value.strip(), variable, row), variable.name
    return row.base_url, None


def _complete_address(value: str, variable: AddressVariable, row: ProviderSpec) -> str:
    """Return the value of an address variable as the provider's own client reads it."""
    try:
        # A server's own variable may be a bare host, to which its usual port belongs: OLLAMA_HOST=0.0.0.0
        own = urlsplit(row.base_url) if not row.needs_key else None
        is_bare = own is not None and "://" not in value
        parts = urlsplit(f"http://{value}" if is_bare else value)
        if is_bare and own is not None and parts.port is None:
            parts = parts._replace(netloc=f"{parts.netloc}:{own.port}")
        host, port = parts.hostname, parts.port
        if own is not None and host in ("0.0.0.0", "::"):  # what a server listens on, not where it is called
            parts = parts._replace(netloc=f"{own.hostname}:{port}" if port else str(own.hostname))
    except ValueError:  # an invalid port, an unclosed bracket
        host, parts = None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError(
            f"the variable {variable.name} is no address: it should look like http://127.0.0.1:8000/v1; or unset it"
        )
    url = urlunsplit(parts).rstrip("/")
    return url if url.endswith(variable.path) else url + variable.path


def is_endpoint_of(base_url: str, configured: str | None, provider: str) -> bool:
    """Whether a configured base URL belongs to a provider, so that its key may be sent there.

    It does if the settings name that provider with it, or if its host is the provider's. An unknown host belongs to no
    provider that has a key of its own, and no address to the embedded model.
    """
    row = find_provider(provider)
    if configured is not None:
        return find_provider(configured) is row if row is not None else configured == provider
    if row is not None and row.name == "local":
        return False
    owner = find_provider_by_url(base_url)
    return owner is row if owner is not None else row is None or not row.needs_key


def find_provider_by_url(base_url: str) -> ProviderSpec | None:
    """Return the provider that owns the host of a URL; None for loopback, where any server may listen."""
    host = _host(base_url)
    if host.endswith((".openai.azure.com", ".services.ai.azure.com")):
        return find_provider("azure")
    return _providers_by_host().get(host)


@cache
def _providers_by_host() -> Mapping[str, ProviderSpec]:
    """Return the providers with a host of their own; of several with the same one the first."""
    hosts = [(_host(row.base_url), row) for row in reversed(PROVIDERS) if row.base_url]
    return {host: row for host, row in hosts if host and not is_loopback_host(host)}


# Which providers serve a family of models, by the beginning of its name, the maker first. `True`: no other serves
# it, so that a missing key is an error rather than a reason to ask another provider.
_FAMILIES: tuple[tuple[re.Pattern[str], tuple[str, ...], bool], ...] = (
    (re.compile(r"claude"), ("anthropic", "copilot"), True),
    (re.compile(r"gpt-[345]|chatgpt|o[1-9](?:-|$)"), ("openai", "openai-codex", "copilot"), True),
    (re.compile(r"gemini-"), ("gemini", "copilot"), True),
    (re.compile(r"grok-"), ("xai",), True),
    (re.compile(r"deepseek"), ("deepseek",), False),
    (re.compile(r"(?:mi|magi|mini|code|dev)stral|pixtral"), ("mistral",), False),
    (re.compile(r"kimi|moonshot"), ("moonshot",), False),
    (re.compile(r"glm-"), ("zai",), False),
    (re.compile(r"minimax"), ("minimax",), False),
)


def providers_of_model(model: str) -> tuple[tuple[ProviderSpec, ...], bool]:
    """Return the providers that serve a model by its name, the maker first, and whether no others do."""
    for pattern, names, is_exclusive in _FAMILIES:
        if pattern.match(model.lower()):
            return tuple(row for name in names if (row := find_provider(name)) is not None), is_exclusive
    return (), False


def missing_key(endpoint: Endpoint) -> str | None:
    """Return a message that names the missing API key; None where the key is present or not needed."""
    row = find_provider(endpoint.provider)
    if endpoint.api_key or row is None or not row.needs_key:
        return None
    return (
        f"no key for {row.name!r}: run `perdure login {row.name}`, set {row.key_variables[0]}, "
        "or set `credentials.command` to a command that prints it"
    )


def login_target(provider: str, base_url: str) -> str:
    """Return the argument for `perdure login`: the provider, or the address if the key is stored for the address."""
    row = find_provider(provider)
    return row.name if row is not None and row.needs_key else base_url


def is_own_host(endpoint: Endpoint) -> bool:
    """Whether requests go to the provider's own service rather than to a proxy or simulator."""
    row = find_provider(endpoint.provider)
    return row is not None and bool(row.base_url) and _host(row.base_url) == _host(endpoint.base_url)


def quirks_of(provider: str, *, model: str, base_url: str = "", api_mode: ApiMode = "chat_completions") -> Quirks:
    """Return the quirks of a provider and model; an unlisted provider is looked up by its host."""
    row = find_provider(provider)
    if row is None or row.api_mode is None:
        row = (find_provider_by_url(base_url) if base_url else None) or row
    quirks = row.quirks if row is not None else NO_QUIRKS
    if quirks.max_tokens_key is not None:
        for model_row in MODEL_ROWS:
            if api_mode in model_row.modes and model_row.pattern.search(model.lower()) and _is_strict(row):
                quirks = replace(quirks, **model_row.changes)
    return quirks


def _is_strict(row: ProviderSpec | None) -> bool:
    """Whether the service may validate parameters as OpenAI does; routers accept the old names."""
    return row is not None and row.name in ("openai", "openai-responses", "azure", "copilot", "custom")


def _host(base_url: str) -> str:
    try:
        return (urlsplit(base_url if "//" in base_url else f"//{base_url}").hostname or "").lower()
    except ValueError:
        return ""


_MODULES: dict[ApiMode, str] = {
    "chat_completions": "perdure.providers.chat_completions",
    "codex_responses": "perdure.providers.responses",
    "anthropic_messages": "perdure.providers.anthropic_messages",
}
_ANTHROPIC_HOSTS = ("anthropic.com", "claude.com")


def mode_module(api_mode: ApiMode) -> ModuleType:
    """Return the module that implements this mode."""
    return import_module(_MODULES[validate_mode(api_mode)])


def default_max_tokens(endpoint: Endpoint) -> int | None:
    """Return the max_tokens of a request that sets none; None where the protocol does not require it."""
    if endpoint.api_mode != "anthropic_messages":
        return None
    default: int = mode_module(endpoint.api_mode).output_default(endpoint.model)
    return default


def resolve_mode(api_mode: str | None = None, provider: str | None = None, base_url: str | None = None) -> ApiMode:
    """Resolve the mode: explicit argument, the provider's row, the host of the base URL, then chat_completions."""
    if api_mode:
        return validate_mode(api_mode)
    row = find_provider(provider) if provider else None
    if row is not None and row.api_mode is not None:
        return row.api_mode
    return infer_mode(base_url or "") or "chat_completions"


def validate_mode(api_mode: str) -> ApiMode:
    if api_mode not in _MODULES:
        raise ConfigError(f"unknown api_mode {api_mode!r}; allowed: {', '.join(get_args(ApiMode))}")
    return api_mode


def infer_mode(base_url: str) -> ApiMode | None:
    """Infer the mode from a URL: an Anthropic host, or a path that ends in `/anthropic`."""
    try:
        parts = urlsplit(base_url if "//" in base_url else f"//{base_url}")
        host, path = (parts.hostname or "").lower(), parts.path.rstrip("/").lower()
    except ValueError:  # e.g. an unclosed bracket of an IPv6 address
        return None
    if any(host == h or host.endswith(f".{h}") for h in _ANTHROPIC_HOSTS):
        return "anthropic_messages"
    if path.removesuffix("/v1").endswith("/anthropic"):
        return "anthropic_messages"
    return None


def split_model_address(name: str) -> dict[str, str | None]:
    """Split `http://host/v1/model` into `base_url` and the `name` of the model there."""
    match = re.fullmatch(r"(https?://[^/]+(?:/v1(?=/|$))?)/?(.*)", name, re.IGNORECASE)
    base_url, model = match.groups() if match is not None else (name, "")
    return {"base_url": base_url, "name": model or None}
