"""The context meter: the next request's size against window and threshold, and what fills it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perdure.agent.deps import AgentDeps
from perdure.agent.prompt import assemble
from perdure.agent.prompt_composition import Composition
from perdure.agent.session import LiveSession
from perdure.models.budgets import ContextWindow, window_budgets
from perdure.models.counter import TokenCounter
from perdure.models.windows import Window
from perdure.providers.types import Endpoint
from perdure.tools.output_limits import OutputLimits

if TYPE_CHECKING:
    from perdure.config.settings import Settings


@dataclass(frozen=True, slots=True)
class ContextUsage:
    """A reading; `window` is None until it was asked for. The parts of the composition sum to `tokens`."""

    model: str
    tokens: int = 0
    window: int | None = None
    threshold: int | None = None
    composition: Mapping[str, int] = field(default_factory=dict)


def read(model: str, live: LiveSession) -> ContextUsage:
    """The reading of a conversation under way, by the same counter and window that the gate reads."""
    tokens, window = live.counter.estimate, live.window
    composition = live.composition.as_dict(tokens)
    if window is None:
        return ContextUsage(model, tokens, composition=composition)
    return ContextUsage(model, tokens, window.tokens, window.threshold_tokens, composition)


async def read_before_the_first_word(parts: AgentDeps, system_prompt: str | None) -> ContextUsage:
    """What a conversation that has not begun would send with its first message. Creates nothing."""
    endpoint = parts.routes.endpoint
    window = context_window(parts.settings, endpoint, await parts.models.window(endpoint))
    prompt = system_prompt
    if prompt is None:
        prompt = assemble(parts.prompt_sources(parts.memory.snapshot(parts.user_key)))
    tools = tuple(parts.tools.registry.schemas()) if parts.models.takes_tools(endpoint) else ()
    tokens = TokenCounter(endpoint.model, system=prompt, tools=tools, calibration=parts.calibration).estimate
    composition = Composition()
    composition.set_fixed(system=(prompt,), tools=tools)
    return ContextUsage(endpoint.model, tokens, window.tokens, window.threshold_tokens, composition.as_dict(tokens))


def context_window(settings: Settings, endpoint: Endpoint, window: Window) -> ContextWindow:
    """Every figure that follows from a window, under the user's settings and on this route."""
    model, provider, max_tokens = endpoint.model, endpoint.provider, settings.model.max_tokens
    budgets = window_budgets(window.tokens, settings.compression, provider=provider, model=model, max_tokens=max_tokens)
    return ContextWindow(model, provider, window.source, max_tokens, budgets)


def output_limits(settings: Settings, window: ContextWindow) -> OutputLimits:
    """Tool output limits for a window, scaled down on small ones."""
    limits = settings.tool_output
    return OutputLimits(limits.default_result_size, limits.turn_budget, limits.preview_size).scaled(
        window.tokens, result_ratio=limits.window_result_ratio, turn_ratio=limits.window_turn_ratio
    )
