"""The first run: what was found on this machine, what will be used, and how to change it."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.cli.chat.figures import route_lines
from perdure.cli.chat.surface import ChatCommandContext
from perdure.cli.servers import local_servers
from perdure.config.credentials import api_key_for
from perdure.providers.local import FIT_FOR, INSTALL, has_runtime, packaged_weights
from perdure.providers.services import SERVICES


def welcome_lines(surface: ChatCommandContext) -> Iterator[str]:
    """One screen, made without touching the network."""
    endpoint = surface.agent.endpoint
    named = keys_found()
    has_embedded = packaged_weights() is not None and has_runtime()
    yield (
        "Welcome to Perdure. It keeps a conversation going past the model's context window: it compacts, it keeps"
        " everything that was said, and it shows you how full the window is and what it cost."
    )
    yield ""
    yield f"  found      keys: {', '.join(named) if named else 'none in the environment'}"
    yield f"             embedded model: {'smollm2, ready (no key, no network)' if has_embedded else 'not installed'}"
    yield f"  using      {endpoint.model} ({endpoint.provider})"
    if endpoint.provider == "local":
        yield f"             {FIT_FOR}" if has_embedded else f"             it is not here yet: {INSTALL}"
    yield "  change it  set ANTHROPIC_API_KEY, OPENAI_API_KEY or OPENROUTER_API_KEY and start again, or:"
    yield "             perdure config set model.provider NAME"
    yield "             perdure config set model.name NAME"
    yield "  check it   perdure doctor"
    yield f"  kept in    {surface.home}"
    yield ""
    yield "/help lists the commands. Enter sends, Alt-Enter makes a new line, @path attaches a file, Ctrl-D leaves."
    yield from route_lines(surface)
    yield ""


def found_lines() -> Iterator[str]:
    """Model servers that answer on this machine, and how to use one."""
    for server in local_servers():
        models = ", ".join(server.models[:3]) + (" …" if len(server.models) > 3 else "")
        yield f"Found {server.name} at {server.base_url} ({models or 'no model loaded'}). To use it:"
        yield f"  perdure config set model.base_url {server.base_url}"
        yield f"  perdure config set model.name {server.models[0] if server.models else 'NAME'}"


def keys_found() -> list[str]:
    """The names of variables that hold a key; never the keys."""
    names = (v for s in SERVICES for v in s.key_variables if api_key_for(v))
    return list(dict.fromkeys(names))
