"""`perdure gateway`: many people, many conversations, one memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from perdure.cli.gateway.tokens import token
from perdure.cli.lazy import PlainGroup

if TYPE_CHECKING:
    from perdure.config.load import Loaded
    from perdure.gateway.guards.tokens import StoredPeople

EPILOG = """\b
Examples:
  perdure gateway token add alice --scope chat --scope read   let alice in
  perdure gateway                                             for this machine alone
  perdure gateway --host 0.0.0.0 --port 8420                  for others; needs a token
  curl -H "Authorization: Bearer $TOKEN" -d '{"content": "hello"}' \\
       -H "Content-Type: application/json" "http://127.0.0.1:8420/api/messages?wait=true"
  OPENAI_BASE_URL=http://127.0.0.1:8420/v1 OPENAI_API_KEY=$TOKEN your-openai-client

\b
Files:
  docs/gateway.md tells of nginx, several machines and Telegram.
"""


@click.group(cls=PlainGroup, invoke_without_command=True, epilog=EPILOG)
@click.option("--host", metavar="ADDRESS", help="Address to listen on. Default: gateway.host.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 takes a free one. Default: gateway.port.")
@click.pass_context
def gateway(ctx: click.Context, host: str | None, port: int | None) -> None:
    """Serve conversations to many people and programs.

    Over HTTP, WebSocket, OpenAI's API, the page and Telegram. Any number of gateways on any number of machines may
    share one PostgreSQL (store.url); one machine may use SQLite. Without a token it serves whoever sits at this
    machine, and nobody else.
    """
    if ctx.invoked_subcommand is not None:
        return
    flags = {**(ctx.obj or {})}
    flags |= {f"gateway.{k}": v for k, v in (("host", host), ("port", port)) if v is not None}
    _serve(flags)


gateway.add_command(token)


def _serve(flags: dict[str, object]) -> None:
    from perdure.app import open_user_store
    from perdure.cli.gateway.starting import Start, place_of, serve_until_stopped
    from perdure.config.load import load
    from perdure.core.clock import SystemClock
    from perdure.gateway.guards.reach import is_loopback, refuse_open_doors
    from perdure.gateway.guards.tokens import AccessTokens, StoredPeople
    from perdure.gateway.watchers.journal import Journal

    loaded, clock = load(flags=flags), SystemClock()
    settings = loaded.settings.gateway
    with open_user_store(loaded.settings, loaded.home) as store:
        people = StoredPeople(AccessTokens(store, clock), clock, is_open=is_loopback(settings.host))
        refuse_open_doors(settings, has_tokens=people.has_tokens)

        def say(url: str) -> Iterator[str]:
            everywhere = " and at every other address of this machine" if settings.host in ("0.0.0.0", "::") else ""
            yield f"Perdure gateway         {url}{everywhere}"
            if settings.public_url:
                yield f"Reached by others at    {settings.public_url}"
            yield f"OpenAI base URL         {(settings.public_url or url).rstrip('/')}/v1"
            yield f"Who may enter           {_who(people)}"
            yield f"Conversations           {place_of(loaded)}"
            yield from _telegram(loaded)
            yield f"Stop with Ctrl-C; answers under way get {settings.drain_timeout_s:g} s to finish."

        serve_until_stopped(Start(loaded, store, people, Journal(settings.log, clock)), say=say)


def _who(people: StoredPeople) -> str:
    if not people.has_tokens:
        return "anybody at this machine, without a shell: no token is set (perdure gateway token add)"
    users = people.users
    if not users:
        return "nobody: every token is revoked or has expired (perdure gateway token add)"
    return ", ".join(user or "you" for user in users[:10]) + (f" and {len(users) - 10} more" if len(users) > 10 else "")


def _telegram(loaded: Loaded) -> Iterator[str]:
    telegram = loaded.settings.gateway.telegram
    if telegram.enabled:
        yield f"Telegram                {len(telegram.allowed_users)} may talk to the bot"
