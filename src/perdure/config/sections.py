"""Base class and value types of all settings sections, and the sections about the context."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, le=1, json_schema_extra={"allowed": "a share: a number above 0, at most 1"})]
Dollars = Annotated[float, Field(gt=0)]
Price = Annotated[float, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]
Text = Annotated[str, Field(min_length=1)]


def check_networks(value: tuple[str, ...]) -> tuple[str, ...]:
    """Validate the IP networks of a setting. Raises ValueError for an invalid one."""
    for network in value:
        ip_network(network, strict=False)
    return value


class Section(BaseModel):
    """Base class of settings sections: frozen, and rejects unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, str_strip_whitespace=True)

    @field_validator("*", mode="before")
    @classmethod
    def _keep_bool_apart(cls, value: Any, info: ValidationInfo) -> Any:
        # A stray `true` would quietly become the number 1.
        if isinstance(value, bool) and cls.model_fields[info.field_name or ""].annotation not in (bool, bool | None):
            raise ValueError("true and false are no numbers")
        return value


class CompressionSettings(Section):
    """Settings of compaction: when it starts, and how much of the history it keeps."""

    enabled: bool = Field(default=True, description="Compact automatically; `/compress` works either way.")
    summarize: bool = Field(
        default=True,
        description="Let a model write the prose of a handoff; off draws all of it from the log, without a call.",
    )
    threshold: Share = Field(default=0.50, description="Share of the main model's window at which compaction fires.")
    target_ratio: Annotated[float, Field(ge=0.10, le=0.80)] = Field(
        default=0.20, description="Share of the threshold that the kept tail may take."
    )
    protect_last_n: Positive = Field(default=20, description="Last messages to keep, where the tail budget allows it.")
    protect_first_n: Annotated[int, Field(ge=0)] = Field(
        default=3, description="First messages of the history to keep."
    )
    head_decay: bool = Field(
        default=True, description="Keep the first messages at the first compaction only; off keeps them each time."
    )
    codex_gpt55_autoraise: bool = Field(
        default=True, description="Raise the threshold for gpt-5.5 on openai-codex, whose window is smaller there."
    )
    codex_gpt55_threshold: Share = Field(
        default=0.85, description="What codex_gpt55_autoraise raises the threshold to."
    )
    tail_overrun: Annotated[float, Field(ge=1, le=10)] = Field(
        default=1.5, description="How many tail budgets protect_last_n may take before the budget wins."
    )
    head_ratio: Share = Field(default=0.05, description="Share of the window the kept first messages may take.")
    prune_chars: Annotated[int, Field(ge=0)] = Field(
        default=200, description="Tool results in the middle longer than this many characters become one line."
    )
    summary_ratio: Share = Field(default=0.20, description="Length of a summary as a share of what it stands for.")
    summary_min_tokens: Positive = Field(default=2_000, description="Least budget of a summary, in tokens.")
    summary_max_tokens: Positive = Field(
        default=12_000, description="Most tokens a summary may take, whatever the window."
    )
    summary_window_ratio: Share = Field(default=0.05, description="Share of the window a summary may take.")
    record_ratio: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.088,
        description="Share of the window for the record and index of a handoff; long sections leave less; 0: none.",
    )
    record_max_tokens: Annotated[int, Field(ge=0)] = Field(
        default=12_000, description="Most tokens of the record and index of a handoff."
    )
    focus_ratio: Annotated[float, Field(ge=0.5, le=0.9)] = Field(
        default=0.65, description="Share of a summary that the topic of `/compress TOPIC` takes."
    )
    small_window: Annotated[int, Field(ge=0)] = Field(
        default=16_000, description="Windows below this many tokens get the three rules for small windows."
    )
    small_window_threshold: Share = Field(default=0.75, description="Lowest threshold on a small window.")
    small_window_handoff_ratio: Share = Field(
        default=0.15, description="Share of a small window that a handoff may take."
    )
    max_ineffective: Positive = Field(
        default=2, description="Compactions in a row that save too little before automatic compaction pauses."
    )
    cost_rule: Literal["off", "advance", "delay", "both"] = Field(
        default="advance",
        description="Weigh cost, too: advance a compaction once the cached prefix has expired, delay one that would"
        " not pay.",
    )
    cost_floor: Share = Field(
        default=0.5, description="Share of the threshold from which cost_rule may advance a compaction."
    )
    cost_delay: Share = Field(
        default=0.5,
        description="Share of the room between threshold and window that cost_rule may let fill before a compaction.",
    )
    cost_min_calls: Annotated[int, Field(ge=0)] = Field(
        default=8, description="Calls after a compaction before cost_rule lets another one follow, while there is room."
    )
    cost_expected_calls: Positive | None = Field(
        default=None,
        description="Calls that a conversation is expected to make still; empty: as many as it has made so far.",
    )
    cost_while_idle: bool = Field(
        default=False, description="Let cost_rule compact at the end of a turn, for the pause that may follow it."
    )
    retry_cooldown_s: Annotated[float, Field(ge=0)] = Field(
        default=60.0, description="Seconds without a summary call after a passing failure; grows while it fails."
    )
    no_provider_cooldown_s: Annotated[float, Field(ge=0)] = Field(
        default=600.0, description="Seconds without a summary call when no provider could be reached at all."
    )


class ToolOutputSettings(Section):
    """Limits on how much of a tool's output enters the context; a longer one is stored whole."""

    default_result_size: Positive = Field(
        default=100_000, description="Most characters of one result, where its tool says nothing."
    )
    turn_budget: Positive = Field(
        default=200_000, description="Most characters of all results of one assistant message."
    )
    preview_size: Annotated[int, Field(ge=3)] = Field(
        default=1_500,
        description="Characters shown of an output kept on disk: two thirds its start, one third its end.",
    )
    window_result_ratio: Share = Field(default=0.15, description="Share of a small window that one result may take.")
    window_turn_ratio: Share = Field(
        default=0.30, description="Share of a small window that one message's results may take."
    )


class PromptCachingSettings(Section):
    """Prompt caching, on routes that take marks or keys for it."""

    cache_ttl: Literal["5m", "1h"] = Field(default="5m", description="How long the provider keeps a cached prefix.")
    conversation_key: bool = Field(
        default=True, description="Send OpenAI a key for each conversation, so that its requests reach the same cache."
    )
