"""Text lines around a chat: opening lines, status line, and closing lines with how to resume."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from dataclasses import replace

from perdure.agent.context_usage import last_usage
from perdure.app.runtime import EMBEDDED_PROVIDER
from perdure.cli.chat.command_context import ChatCommandContext
from perdure.cli.style import break_command, program_name, runnable
from perdure.commands.context import billed_totals, unpriced_lines
from perdure.commands.format import bar, count, money, share, tokens, total_cost, usage_lines
from perdure.config.env import is_secret_name, own_variables
from perdure.config.keys import mask
from perdure.models.windows import DEFAULT_WINDOW
from perdure.providers.codec import caching_notice
from perdure.providers.local import FIT_FOR, is_packaged_model
from perdure.providers.registry import missing_key

_GAUGE_CELLS = 16
# The last call of the model itself is among these; the others are summaries and the like.
_RECENT_CALLS = 10


def opening_lines(surface: ChatCommandContext, *, has_menu: bool = False) -> Iterator[str]:
    """Return a line that names the model, and hints for the first message.

    With `has_menu`, the menu of models is open below where none is chosen.
    """
    endpoint = surface.agent.endpoint
    hint = "/help lists the commands, Alt-Enter makes a new line"
    if surface.needs_model:
        yield f"Perdure · no model is chosen yet · {hint}"
        yield from (f"warning: {w}" for w in surface.warnings)
        return
    if surface.unchosen_models:
        yield f"Perdure · no model is chosen yet · {hint}"
        how = "choose one below: arrow keys and Enter." if has_menu else "/model NAME chooses one."
        yield f"{endpoint.base_url} lists {choice_line(surface, how)}"
    else:
        yield f"Perdure · {endpoint.model} ({endpoint.server_name}) · {hint}"
    yield from route_lines(surface)


def choice_line(surface: ChatCommandContext, how: str = "/model chooses one.") -> str:
    """Return a line with models to choose from, for a config without a default."""
    models = surface.unchosen_models
    return f"{', '.join(models[:10])}{' …' if models[10:] else ''}; {how}"


def route_lines(surface: ChatCommandContext) -> Iterator[str]:
    """Yield lines on prompt caching, a missing key, and set-up warnings."""
    endpoint = surface.agent.endpoint
    if caching := caching_notice(endpoint.provider, endpoint.model, surface.settings.prompt_caching.cache_ttl):
        yield caching
    if endpoint.address_variable is not None:
        yield f"Requests go to {mask(endpoint.base_url)}, as the variable {endpoint.address_variable} says."
    yield from (f"warning: {w}" for w in surface.warnings)
    if (problem := missing_key(endpoint)) and not surface.settings.credentials.command:
        yield f"warning: {problem}"


def can_call_tools(surface: ChatCommandContext) -> bool:
    """Whether the model takes tools, so that the permission mode means anything."""
    return surface.agent.deps.models.takes_tools(surface.agent.endpoint)


def embedded_lines(surface: ChatCommandContext) -> Iterator[str]:
    """Yield lines on the embedded model, used without a key, and what to expect of it."""
    endpoint = surface.agent.endpoint
    if endpoint.provider == EMBEDDED_PROVIDER and is_packaged_model(endpoint.model):
        yield f"the embedded model answers, {FIT_FOR}"


def resumed_lines(surface: ChatCommandContext) -> Iterator[str]:
    """Yield the title of a resumed conversation, replayed below, and notices on why the chat begins with this one."""
    session_id = surface.session_id
    if session_id is None:
        yield from map(runnable, surface.resume_notes)
        return
    conversation = surface.store.conversations.get(session_id)
    entries = surface.store.history(conversation.tip_session_id).entries
    named = f" “{conversation.title}”" if conversation.title else ""
    yield f"Resumed {conversation.id}{named}, {count(len(entries), 'message')} in view."
    yield from surface.resume_notes
    yield ""


def window_note(surface: ChatCommandContext) -> str | None:
    """Report that the same model has another window than when a resumed conversation was left; None otherwise."""
    gauge, session_id = surface.agent.gauge, surface.session_id
    if session_id is None or not gauge.window or gauge.is_assumed:
        return None
    calls = surface.store.ledger.calls(session_id, limit=_RECENT_CALLS)
    last = next((call for call in reversed(calls) if call.task == "main"), None)
    if last is None or last.route.model != gauge.model or last.window_tokens in (None, gauge.window):
        return None
    was = last.window_tokens or 0
    if was == DEFAULT_WINDOW:  # calls do not record whether it was only assumed
        return None
    conversation_id = surface.store.conversations.get(session_id).id
    flags = [*_flags(surface, (*_RESTORED, "model.context_length")), f"--set model.context_length={was}"]
    command = (*_variables(), program_name(), *flags, f"chat --resume {conversation_id}")
    note = f"The window is {tokens(gauge.window)} tokens here; in this conversation it was {tokens(was)}."
    # In lines that a shell joins, for any width.
    return "\n".join([f"{note} To go on with that:", *break_command(command, _COMMAND_WIDTH)])


def closing_lines(surface: ChatCommandContext) -> Iterator[str]:
    """Yield the session id, how to resume, tokens by class, and cost."""
    session_id = surface.session_id
    if session_id is None:
        return
    conversation = surface.store.conversations.get(session_id)
    totals, scripted_usd = billed_totals(surface.store, session_id)
    named = f" “{conversation.title}”" if conversation.title else ""
    yield f"Conversation {conversation.id}{named}"
    yield from _resume_lines(surface, conversation.id)
    yield from usage_lines(totals.usage)
    if scripted_usd:  # by a script in a model's place
        yield f"{'would have cost':<18} {money(scripted_usd):>12}"
    if not surface.needs_model or not scripted_usd:
        yield f"{'would have cost' if surface.needs_model else 'cost':<18} {total_cost(totals):>12}"
    yield from map(runnable, unpriced_lines(surface.store, session_id, surface.settings))


# A command is broken by itself, where a shell joins the lines again, before the terminal wraps it.
_COMMAND_WIDTH = 54
# Stored with the conversation, or chosen anew.
_RESTORED = ("model.name", "model.provider", "permissions.mode", "tools.approval")


def _resume_lines(surface: ChatCommandContext, conversation_id: str) -> Iterator[str]:
    """Return the command that resumes the session, with the environment and the config of this run, in lines."""
    restored = _RESTORED if surface.has_configured_window else (*_RESTORED, "model.context_length")
    flags = _flags(surface, restored)
    resume = f"chat --resume {conversation_id}"
    # On a line of its own, which a narrow terminal does not break.
    yield "Go on with it:"
    yield from break_command((*_variables(), program_name(), *flags, resume), _COMMAND_WIDTH)


def _variables() -> list[str]:
    """Return the variables of this run as they stand before a command."""
    return [f"{name}={shlex.quote(value)}" for name, value in own_variables().items()]


def _flags(surface: ChatCommandContext, restored: Collection[str]) -> list[str]:
    """Return the settings of this run as command-line options, without secrets and what resuming restores."""
    return [
        f"--set {shlex.quote(f'{name}={value}')}"
        for name, value in surface.flags.items()
        if name not in restored and not is_secret_name(name)
    ]


def status_line(surface: ChatCommandContext) -> str:
    """Return the status line, most important first: model, context usage, mode, cost, cache hit rate, title."""
    gauge = surface.agent.gauge
    session_id = surface.session_id
    if not gauge.window and session_id is not None:  # resumed, not measured yet
        gauge = replace(last_usage(surface.store, session_id, gauge), model=gauge.model)
    has_model = not surface.unchosen_models and not surface.needs_model
    parts = [gauge.model if has_model else "no model chosen"]
    if gauge.window:
        drawn = bar(gauge.tokens, gauge.window, width=_GAUGE_CELLS, mark=gauge.threshold)
        parts.append(f"{drawn} {tokens(gauge.tokens)}/{'~' if gauge.is_assumed else ''}{tokens(gauge.window)}")
    parts.append(surface.permissions.mode if not has_model or can_call_tools(surface) else "no tools")
    if session_id is not None:
        totals, scripted_usd = billed_totals(surface.store, session_id)
        amount = money(scripted_usd) if surface.needs_model and scripted_usd else total_cost(totals)
        cost = f"{'would cost' if surface.needs_model else 'cost'} {amount}"
        parts += [cost, f"cache {share(totals.usage.cache_hit_rate)}"]
        if title := surface.store.conversations.get(session_id).title:
            parts.append(title)
    return " · ".join(parts)
