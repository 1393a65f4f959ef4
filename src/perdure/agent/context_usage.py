"""The context meter: the next request's size against window and threshold, and what fills it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perdure.agent.composition import Composition
from perdure.agent.deps import AgentDeps
from perdure.agent.prompt import assemble
from perdure.agent.session import LiveSession
from perdure.models.budgets import WindowBudgets, window_budgets
from perdure.models.counter import TokenCounter
from perdure.providers.types import Endpoint

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


def read(model: str, live: LiveSession, budgets: WindowBudgets | None) -> ContextUsage:
    """The reading of a conversation under way, by the same counter that the gate reads."""
    tokens = live.counter.estimate
    composition = live.composition.as_dict(tokens)
    if budgets is None:
        return ContextUsage(model, tokens, composition=composition)
    return ContextUsage(model, tokens, budgets.window, budgets.threshold_tokens, composition)


async def read_before_the_first_word(parts: AgentDeps, system_prompt: str | None) -> ContextUsage:
    """What a conversation that has not begun would send with its first message. Creates nothing."""
    endpoint = parts.routes.endpoint
    window = await parts.models.window_of(endpoint)
    prompt = system_prompt
    if prompt is None:
        prompt = assemble(parts.prompt_sources(parts.memory.snapshot(parts.user_key)))
    tools = tuple(parts.tools.registry.schemas()) if parts.models.takes_tools(endpoint) else ()
    tokens = TokenCounter(endpoint.model, system=prompt, tools=tools, calibration=parts.calibration).estimate
    composition = Composition()
    composition.set_fixed(system=(prompt,), tools=tools)
    threshold = budgets_for(parts.settings, endpoint, window).threshold_tokens
    return ContextUsage(endpoint.model, tokens, window, threshold, composition.as_dict(tokens))


def budgets_for(settings: Settings, endpoint: Endpoint, window: int) -> WindowBudgets:
    """Every figure that follows from a window, under the user's settings and on this route."""
    return window_budgets(
        window,
        settings.compression,
        provider=endpoint.provider,
        model=endpoint.model,
        max_tokens=settings.model.max_tokens,
    )
