"""`perdure gateway`, `perdure serve` and access tokens."""

from __future__ import annotations

import errno
import html
import os
import re
import socket
import webbrowser
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perdure.cli.lazy import PlainGroup
from perdure.cli.output import echo, echo_table
from perdure.cli.style import runnable
from perdure.config.keys import mask
from perdure.config.load import Loaded
from perdure.core.errors import ConfigError
from perdure.core.visibility import User, user_from_key

if TYPE_CHECKING:
    from perdure.gateway.auth.principal import Authenticator
    from perdure.gateway.auth.tokens import Token, TokenAuthenticator
    from perdure.gateway.observability.logging import LogWriter
    from perdure.store.store import SessionStore


_NEEDED = "the gateway needs packages that are not installed ({}): pip install 'perdure[gateway]'"


@contextmanager
def translate_import_errors() -> Iterator[None]:
    """Raise ConfigError that names the extra to install where a package of the gateway is missing."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(_NEEDED.format(error.name)) from error


@dataclass(frozen=True, slots=True)
class Start:
    """The inputs of `serve_until_stopped`: settings, store, authenticator and log writer."""

    loaded: Loaded
    store: SessionStore
    authenticator: Authenticator
    log_writer: LogWriter


def serve_until_stopped(start: Start, *, say: Callable[[str], Iterable[str]]) -> None:
    """Run the server; `say` returns the lines printed once the address is known."""
    from perdure.app.runtime import defer_model_choice
    from perdure.commands.format import count

    settings, choice = defer_model_choice(start.loaded.settings)
    # Before the framework is imported: an unavailable address is reported at once.
    claim_address(settings.gateway.host, settings.gateway.port)
    with translate_import_errors():
        from perdure.gateway.app import build_gateway_config, make_adapters
        from perdure.gateway.observability.logging import configure_logging
        from perdure.gateway.observability.telemetry import open_tracer_provider
        from perdure.gateway.server import run

    def ready(host: str, port: int) -> None:
        lines = list(say(address(host, port)))
        if choice is not None:
            lines.insert(-1, runnable(f"Model                   {choice}"))
        for line in lines:
            echo(line)

    def show_wait(running: int, timeout_s: float) -> None:
        echo(f"Stopping: {count(running, 'answer')} under way, up to {timeout_s:g} s more; Ctrl-C again stops at once.")

    configure_logging(start.log_writer)
    adapters = make_adapters(settings.gateway, start.store)
    with open_tracer_provider(settings.gateway.traces) as provider:
        run(
            build_gateway_config(
                settings,
                start.loaded.home,
                start.store,
                start.authenticator,
                log_writer=start.log_writer,
                adapters=adapters,
                tracer_provider=provider,
                on_ready=ready,
                on_drain=show_wait,
            )
        )


def claim_address(host: str, port: int) -> None:
    """Check that the address can be bound. Raises ConfigError."""
    where = address(host, port)
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        with socket.create_server((host, port), family=family):
            pass
    except socket.gaierror:
        raise ConfigError(f"there is no address {host!r} on this machine; set gateway.host") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(f"{where} is in use already; choose another with --port, or 0 for a free one") from None
        if error.errno == errno.EADDRNOTAVAIL:
            raise ConfigError(f"there is no address {host!r} on this machine; set gateway.host") from None
        raise ConfigError(f"cannot listen on {where}: {error.strerror}") from None


def address(host: str, port: int) -> str:
    """Return the address to open in a browser; a wildcard address becomes the machine's own name."""
    address = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{address}:{port}"


def place_of(loaded: Loaded) -> str:
    """Return the path or URL of the store, without its password."""
    store = loaded.settings.store
    return mask(store.url) if store.url else str(store.path or loaded.home / "perdure.db")


DEFAULT_PORT = 8421


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help=f"Port. Default: {DEFAULT_PORT}, or a free one.")
@click.option("--no-open", is_flag=True, help="Only print the address; open no browser.")
@click.pass_obj
def serve(flags: dict[str, object] | None, port: int | None, no_open: bool) -> None:
    """Open the web UI: your conversations in a browser.

    And go on with them there. For one person on one machine: it listens on loopback only, and each run has a token
    of its own, which is in the address it prints. Whoever has the address may do everything you may, so share it
    with nobody.

    \b
    Examples:
      perdure serve
      perdure serve --no-open --port 9000
    """
    from perdure.config.load import load
    from perdure.core.concurrency import SystemClock
    from perdure.store.store import open_user_store

    with translate_import_errors():
        from perdure.gateway.auth.tokens import ProcessTokenAuthenticator
        from perdure.gateway.observability.logging import LogWriter

    alone = {
        "gateway.host": "127.0.0.1",
        "gateway.port": _free(DEFAULT_PORT) if port is None else port,
        "gateway.public_url": None,
        "gateway.allowed_hosts": [],
        "gateway.trusted_proxies": [],
        "gateway.telegram.enabled": False,
        "gateway.discord.enabled": False,
    }
    loaded, authenticator = load(flags={**(flags or {}), **alone}), ProcessTokenAuthenticator()
    with open_user_store(loaded.settings, loaded.home) as store, _signpost(loaded.home) as signpost:

        def say(url: str) -> Iterator[str]:
            # In the fragment, which browsers keep to themselves: no server and no log ever sees it.
            link = f"{url}/#token={authenticator.token}"
            yield f"Open                    {link}"
            yield from _model_address(loaded)
            yield f"Conversations           {place_of(loaded)}"
            yield f"Stop with Ctrl-C; answers under way get {loaded.settings.gateway.drain_timeout_s:g} s to finish."
            if not no_open:
                signpost(link)

        log_writer = LogWriter("plain", SystemClock(), warnings_only=True)
        serve_until_stopped(Start(loaded, store, authenticator, log_writer), say=say)


def _model_address(loaded: Loaded) -> Iterator[str]:
    """Yield where requests go, if the environment says so: no setting shows it."""
    from perdure.config.api_keys import api_key_for
    from perdure.config.keys import mask
    from perdure.providers.routes import address_from_environment

    if (target := address_from_environment(loaded.settings, lookup=api_key_for)) is not None:
        yield f"Requests go to          {mask(target[0])} ({target[1]})"


def _free(port: int) -> int:
    from perdure.core.errors import ConfigError

    try:
        claim_address("127.0.0.1", port)
    except ConfigError:
        return 0
    return port


@contextmanager
def _signpost(home: Path) -> Iterator[Callable[[str], None]]:
    """Yield a function that opens the browser through a private file: command lines are visible to other users."""
    path = home / f"open-{os.getpid()}.html"

    def point_to(link: str) -> None:
        target = html.escape(link, quote=True)
        text = f'<!doctype html><meta http-equiv="refresh" content="0;url={target}"><title>Perdure</title>'
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        webbrowser.open(path.as_uri())

    try:
        yield point_to
    finally:
        path.unlink(missing_ok=True)


_UNITS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
SCOPES = ("chat", "read", "shell", "admin")


class Duration(click.ParamType[int]):
    """`30d`, `12h`, `5m` → milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"([1-9][0-9]{0,5})([mhd])", str(value))
        if match is None:
            self.fail(f"{value!r} should look like 30d, 12h or 5m", param, ctx)
        return int(match[1]) * _UNITS[match[2]]


@click.group(cls=PlainGroup)
def token() -> None:
    """Manage access tokens and their scopes.

    A token is shown once, when it is made; only a hash of it is kept. Scopes: chat (talk, use commands), read (look at
    one's own conversations), shell (terminal and file tools: whoever has it can read everybody's data), admin
    (everybody's conversations, and the metrics).

    \b
    Examples:
      perdure gateway token add                       for yourself: your own conversations
      perdure gateway token add alice --expires 90d
      perdure gateway token add ops --scope admin
      perdure gateway token list
      perdure gateway token revoke alice
    """


@token.command()
@click.argument("user", default=None, required=False, metavar="[USER]")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(SCOPES),
    default=("chat", "read"),
    show_default=True,
    help="What the token opens; may be repeated.",
)
@click.option(
    "--expires", "expires_in_ms", type=Duration(), metavar="30d", help="After this it is void. Default: never."
)
@click.pass_obj
def add(flags: dict[str, Any] | None, user: str | None, scopes: tuple[Any, ...], expires_in_ms: int | None) -> None:
    """Make a token for USER and print it, once. Without USER it is your own.

    \b
    Examples:
      perdure gateway token add
      perdure gateway token add alice --expires 90d
      perdure gateway token add ops --scope admin
    """
    from perdure.cli.usage import open_cli_store
    from perdure.core.concurrency import SystemClock
    from perdure.gateway.auth.tokens import AccessTokens

    if user is not None and not user.strip():
        # An unset shell variable must not make a token of the machine's owner.
        raise click.UsageError("USER is empty; leave it out for a token of your own.")
    with open_cli_store(flags) as store:
        created = AccessTokens(store, SystemClock()).add(user_from_key(user or ""), scopes, expires_in_ms=expires_in_ms)
    click.echo(created.text)
    until = f", until {_day(created.token.expires_at_ms)}" if created.token.expires_at_ms else ""
    whose = f"of {user}" if user else "your own"
    echo(f"This is the only time it is shown. It is {whose} ({', '.join(sorted(scopes))}{until}).", err=True)


@token.command("list")
@click.pass_obj
def list_(flags: dict[str, Any] | None) -> None:
    """List every token: whose it is, what it opens, when it was last used.

    \b
    Examples:
      perdure gateway token list
    """
    from perdure.cli.usage import open_cli_store
    from perdure.core.concurrency import SystemClock
    from perdure.gateway.auth.tokens import AccessTokens

    clock = SystemClock()
    with open_cli_store(flags) as store:
        tokens = AccessTokens(store, clock).all()
    if not tokens:
        text = "No token was made yet; the gateway serves this machine alone. `perdure gateway token add USER`"
        echo(runnable(text))
        return
    rows = [("ID", "USER", "SCOPES", "MADE", "LAST USED", "STATE"), *(_row(t, clock.now_ms()) for t in tokens)]
    echo_table(rows)


@token.command()
@click.argument("id_or_user")
@click.pass_obj
def revoke(flags: dict[str, Any] | None, id_or_user: str) -> None:
    """End a token by its id, or every token of a user. Every gateway on the database knows within seconds.

    \b
    Examples:
      perdure gateway token revoke 3f0c9a1b2d4e
      perdure gateway token revoke alice
    """
    from perdure.cli.usage import open_cli_store
    from perdure.core.concurrency import SystemClock
    from perdure.gateway.auth.tokens import AccessTokens

    clock = SystemClock()
    with open_cli_store(flags) as store:
        tokens = AccessTokens(store, clock)
        ended = tokens.revoke(id_or_user)
        valid = [t for t in tokens.all() if t.status(clock.now_ms()) == "valid"]
    for each in ended:
        echo(f"revoked {each.id}  {_user_name(each)}")
    if not valid:
        echo("No valid token is left: nobody can enter until you add one.", err=True)


def _row(token: Token, now_ms: int) -> tuple[str, ...]:
    status = token.status(now_ms)
    if status == "valid" and token.expires_at_ms is not None:
        standing_text = f"until {_day(token.expires_at_ms)}"
    else:
        standing_text = status
    used = _day(token.last_used_at_ms) if token.last_used_at_ms else "never"
    scopes = ",".join(s for s in SCOPES if s in token.scopes)
    return (token.id, _user_name(token), scopes, _day(token.created_at_ms), used, standing_text)


def _user_name(token: Token) -> str:
    return token.user.key if isinstance(token.user, User) else "(you)"


def _day(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")


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
  docs/gateway.md describes nginx, several machines and Telegram; docs/discord.md Discord.
"""


@click.group(cls=PlainGroup, invoke_without_command=True, epilog=EPILOG)
@click.option("--host", metavar="ADDRESS", help="Address to listen on. Default: gateway.host.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 takes a free one. Default: gateway.port.")
@click.pass_context
def gateway(ctx: click.Context, host: str | None, port: int | None) -> None:
    """Serve conversations to many users and programs.

    Over HTTP, WebSocket, OpenAI's API, the web UI, Telegram and Discord. Any number of gateways on any number of
    machines may share one PostgreSQL (store.url); one machine may use SQLite. Without a token it serves users of
    this machine only.
    """
    if ctx.invoked_subcommand is not None:
        return
    flags = {**(ctx.obj or {})}
    flags |= {f"gateway.{k}": v for k, v in (("host", host), ("port", port)) if v is not None}
    _serve(flags)


gateway.add_command(token)


def _serve(flags: dict[str, object]) -> None:
    from perdure.config.load import load
    from perdure.core.addresses import is_loopback_host
    from perdure.core.concurrency import SystemClock
    from perdure.store.store import open_user_store

    with translate_import_errors():
        from perdure.gateway.auth.tokens import AccessTokens, TokenAuthenticator
        from perdure.gateway.observability.logging import LogWriter
        from perdure.gateway.server import check_bind_address

    loaded, clock = load(flags=flags), SystemClock()
    settings = loaded.settings.gateway
    with open_user_store(loaded.settings, loaded.home) as store:
        authenticator = TokenAuthenticator(AccessTokens(store, clock), clock, is_open=is_loopback_host(settings.host))
        check_bind_address(settings, has_tokens=authenticator.has_tokens)

        def say(url: str) -> Iterator[str]:
            everywhere = " and at every other address of this machine" if settings.host in ("0.0.0.0", "::") else ""
            yield f"Perdure gateway         {url}{everywhere}"
            if settings.public_url:
                yield f"Reached by others at    {settings.public_url}"
            yield f"OpenAI base URL         {(settings.public_url or url).rstrip('/')}/v1"
            yield f"Who may enter           {runnable(_who(authenticator))}"
            yield from _model_address(loaded)
            yield f"Conversations           {place_of(loaded)}"
            yield from _bots(loaded)
            yield f"Stop with Ctrl-C; answers under way get {settings.drain_timeout_s:g} s to finish."

        serve_until_stopped(Start(loaded, store, authenticator, LogWriter(settings.log, clock)), say=say)


def _who(authenticator: TokenAuthenticator) -> str:
    if not authenticator.has_tokens:
        return "anybody at this machine, without a shell: no token is set (perdure gateway token add)"
    users = authenticator.users
    if not users:
        return "nobody: every token is revoked or has expired (perdure gateway token add)"
    return ", ".join(user or "you" for user in users[:10]) + (f" and {len(users) - 10} more" if len(users) > 10 else "")


def _bots(loaded: Loaded) -> Iterator[str]:
    gateway = loaded.settings.gateway
    for name, bot in (("Telegram", gateway.telegram), ("Discord", gateway.discord)):
        if bot.enabled:
            yield f"{name:<24}{len(bot.allowed_users)} may talk to the bot"
