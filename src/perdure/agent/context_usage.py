"""Context usage: the next request's size against window and threshold, and what fills it, part by part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perdure.agent.deps import AgentDeps
from perdure.agent.prompt import assemble, memory_part
from perdure.context.compaction_input import tokens_of
from perdure.core.messages import Entry, Message, canonical_json
from perdure.models.tokens import TokenCounter, estimate_message, estimate_text
from perdure.models.windows import ContextWindow, Window, window_budgets
from perdure.providers.types import Endpoint
from perdure.tools.output_limits import OutputLimits

if TYPE_CHECKING:
    from perdure.config.settings import Settings
    from perdure.store.records import CallRecord
    from perdure.store.store import SessionStore


PARTS = ("system", "tools", "memory", "head", "handoff", "tail", "outputs")
# Parts of the prompt other than messages.
_FIXED_PARTS = PARTS[:3]


class Composition:
    """Estimated tokens of the next request by part (system, tools, memory, head, handoff, tail, outputs).

    The part "memory" is the memory in the system prompt and the passages recalled for messages.
    """

    def __init__(self, entries: Sequence[Entry] = (), recalled: Iterable[str] = ()) -> None:
        self._parts = dict.fromkeys(PARTS, 0)
        self._recalled = 0
        last_handoff = max((i for i, e in enumerate(entries) if e.message.kind == "handoff"), default=-1)
        for i, entry in enumerate(entries):
            self._add(entry, is_head=i < last_handoff)
        for passage in recalled:
            self.recall(passage)

    def extend(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._add(entry, is_head=False)

    def replace(self, changed: Iterable[tuple[Entry, Entry]]) -> None:
        """Recount messages after the last handoff that are sent in another form from now on: (old, new) pairs."""
        for old, new in changed:
            self._add(new, is_head=False)
            self._add(old, is_head=False, sign=-1)

    def recall(self, passage: str) -> None:
        """Count a recalled passage that is attached to a message."""
        tokens = estimate_text(passage)
        self._recalled += tokens
        self._parts["memory"] += tokens

    def set_fixed(self, *, system: Sequence[str], tools: Sequence[Mapping[str, Any]]) -> None:
        remembered = sum(estimate_text(memory_part(block)) for block in system)
        self._parts["memory"] = remembered + self._recalled
        self._parts["system"] = max(0, sum(map(estimate_text, system)) - remembered)
        self._parts["tools"] = estimate_text(canonical_json(list(tools))) if tools else 0

    def as_dict(self, total: int | None = None) -> dict[str, int]:
        """Return the tokens of each part; with `total`, scaled so that they add up to it."""
        return dict(self._parts) if total is None else _scale_parts(self._parts, total)

    def _add(self, entry: Entry, *, is_head: bool, sign: int = 1) -> None:
        kind = entry.message.kind
        part = "handoff" if kind == "handoff" else "head" if is_head else "outputs" if kind == "tool" else "tail"
        self._parts[part] += sign * tokens_of(entry)


def _scale_parts(parts: Mapping[str, int], total: int) -> dict[str, int]:
    """Return parts that sum to a total; empty parts stay as they are."""
    whole = sum(parts.values())
    if not whole:
        return dict(parts)
    # Rounded at the running sum: the parts then add up exactly, and none is off by more than one.
    shared, cumulative, assigned = {}, 0, 0
    for name, tokens in parts.items():
        cumulative += tokens
        shared[name] = round(total * cumulative / whole) - assigned
        assigned += shared[name]
    return shared


@dataclass(frozen=True, slots=True)
class ContextUsage:
    """The size of the next request against the model's window and the compaction threshold, and what it is made of.

    `window` is None until it was resolved. The parts of the composition sum to `tokens`.
    """

    model: str
    tokens: int = 0
    window: int | None = None
    threshold: int | None = None
    composition: Mapping[str, int] = field(default_factory=dict)
    # Neither the endpoint, the catalogue nor a setting has the window: a default is used.
    is_assumed: bool = False


def last_usage(store: SessionStore, session_id: str, measured: ContextUsage) -> ContextUsage:
    """Return context usage as the last call and the compactions since left it; `measured` where there was no call.

    After a compaction or an undo the messages have the shares of `measured`.
    """
    stored = store.ledger.context_usage(session_id)
    if stored is None:
        return measured
    composition = _scale_parts(stored.composition, stored.tokens)
    if stored.is_changed:
        fixed = {part: stored.composition.get(part, 0) for part in _FIXED_PARTS}
        said = {part: n for part, n in measured.composition.items() if part not in _FIXED_PARTS}
        composition = fixed | _scale_parts(said, max(0, stored.tokens - sum(fixed.values())))
    return ContextUsage(stored.model, stored.tokens, stored.window, stored.threshold, composition)


# The last call of the model itself is among these; the others are summaries and the like.
_RECENT_CALLS = 10
# Of the whole prompt: by so much its fixed parts may differ from those of the last call.
_SAME_SHARE = 0.01
_SAME_TOKENS = 16


def last_reported_call(store: SessionStore, session_id: str, endpoint: Endpoint) -> CallRecord | None:
    """Return the newest call of a session whose prompt was reported, if the same model answered it."""
    calls = store.ledger.calls(session_id, limit=_RECENT_CALLS)
    last = next((c for c in reversed(calls) if c.task == "main" and c.usage.reported and c.usage.prompt_tokens), None)
    if last is None or last.session_id != session_id:
        return None
    route = (last.route.provider, last.route.model, last.route.api_mode)
    return last if route == (endpoint.provider, endpoint.model, endpoint.api_mode) else None


def is_same_prompt(call: CallRecord, composition: Composition) -> bool:
    """Whether system prompt, tools and memory are as large as in a call; other tools may be on since."""
    estimate = call.estimate_tokens
    if not estimate or not call.composition:
        return False
    now = composition.as_dict(estimate)
    difference = sum(abs(now[part] - call.composition.get(part, 0)) for part in _FIXED_PARTS)
    return difference <= max(_SAME_TOKENS, _SAME_SHARE * estimate)


# An estimate that is off by less than this may still fit.
_SURELY_TOO_LARGE = 1.2


def describe_oversize(message: Message, usage: ContextUsage, deps: AgentDeps) -> str | None:
    """Return why a message cannot be sent: it alone exceeds what the window has room for. None if it may fit.

    A window that is only assumed proves nothing.
    """
    if usage.window is None or usage.is_assumed:
        return None
    calibration = deps.calibration
    ratio = calibration.ratio if calibration is not None else 1.0
    tokens = round(ratio * estimate_message(message, usage.model))
    window = context_window(deps.settings, deps.routes.endpoint, Window(usage.window, "learned"))
    room = window.budgets.largest_prompt_tokens - sum(usage.composition.get(part, 0) for part in _FIXED_PARTS)
    if tokens <= _SURELY_TOO_LARGE * room:
        return None
    return (
        f"This message alone has about {tokens:,} tokens, and the window of {usage.model} has room for"
        f" {max(0, room):,}. It was not sent. Put the text into a file and name its path, without @: the model reads it"
        " in parts. Or choose a model with a larger window with /model."
    )


def describe_fixed_oversize(composition: Composition, window: int | None) -> str:
    """Return what to do where the system prompt, or it and the tools, exceed the window; "" where they do not."""
    parts = composition.as_dict()
    prompt, larger = parts["system"] + parts["memory"], "or choose a model with a larger window with /model."
    if window is None or prompt + parts["tools"] <= window:
        return ""
    if prompt > window:
        return f"The system prompt alone does not fit the model's window: shorten it, {larger}"
    return f"System prompt and tools alone do not fit the model's window: shorten it, offer fewer tools, {larger}"


async def usage_before_first_message(deps: AgentDeps, system_prompt: str | None) -> ContextUsage:
    """Return the context usage of a conversation's first request (system prompt and tools), without creating it."""
    endpoint = deps.routes.endpoint
    window = context_window(deps.settings, endpoint, await deps.models.window(endpoint))
    prompt = system_prompt
    if prompt is None:
        prompt = assemble(deps.prompt_sources(deps.memory.snapshot(deps.user.stored_key)))
    tools = tuple(deps.tools.offer()) if deps.models.takes_tools(endpoint) else ()
    tokens = TokenCounter(endpoint.model, system=prompt, tools=tools, calibration=deps.calibration).estimate
    composition = Composition()
    composition.set_fixed(system=(prompt,), tools=tools)
    return ContextUsage(
        endpoint.model,
        tokens,
        window.tokens,
        window.threshold_tokens,
        composition.as_dict(tokens),
        is_assumed=window.source == "default",
    )


def context_window(settings: Settings, endpoint: Endpoint, window: Window) -> ContextWindow:
    """Derive threshold, budgets and output allowance from a window, by the user's settings and the endpoint."""
    model, provider, max_tokens = endpoint.model, endpoint.provider, settings.model.max_tokens
    budgets = window_budgets(window.tokens, settings.compression, provider=provider, model=model, max_tokens=max_tokens)
    return ContextWindow(model, provider, window.source, max_tokens, budgets)


def output_limits(settings: Settings, window: ContextWindow) -> OutputLimits:
    """Return the size limits of tool outputs for a window, scaled down on small ones."""
    limits = settings.tool_output
    return OutputLimits(limits.default_result_size, limits.turn_budget, limits.preview_size).scale(
        window.tokens, result_ratio=limits.window_result_ratio, turn_ratio=limits.window_turn_ratio
    )
