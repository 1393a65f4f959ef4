"""`perdure gateway token`: who may enter, and what they may do."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from perdure.cli.lazy import PlainGroup

if TYPE_CHECKING:
    from perdure.gateway.guards.tokens import Token

_UNITS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
SCOPES = ("chat", "read", "shell", "admin")


class Duration(click.ParamType[int]):
    """`30d`, `12h`, `5m` → milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"([1-9][0-9]{0,5})([mhd])", str(value))
        if found is None:
            self.fail(f"{value!r} should look like 30d, 12h or 5m", param, ctx)
        return int(found[1]) * _UNITS[found[2]]


@click.group(cls=PlainGroup)
def token() -> None:
    """Say who may enter, and what they may do.

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
@click.argument("user", default="", metavar="[USER]")
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
def add(flags: dict[str, Any] | None, user: str, scopes: tuple[Any, ...], expires_in_ms: int | None) -> None:
    """Make a token for USER and print it, once. Without USER it is your own.

    \b
    Examples:
      perdure gateway token add
      perdure gateway token add alice --expires 90d
      perdure gateway token add ops --scope admin
    """
    from perdure.cli.opened import opened
    from perdure.core.clock import SystemClock
    from perdure.gateway.guards.tokens import AccessTokens

    with opened(flags) as store:
        made = AccessTokens(store, SystemClock()).add(user, scopes, expires_in_ms=expires_in_ms)
    click.echo(made.text)
    until = f", until {_day(made.token.expires_at_ms)}" if made.token.expires_at_ms else ""
    whose = f"of {user}" if user else "your own"
    click.echo(f"This is the only time it is shown. It is {whose} ({', '.join(sorted(scopes))}{until}).", err=True)


@token.command("list")
@click.pass_obj
def list_(flags: dict[str, Any] | None) -> None:
    """List every token: whose it is, what it opens, when it was last used.

    \b
    Examples:
      perdure gateway token list
    """
    from perdure.cli.ink import safe
    from perdure.cli.opened import opened
    from perdure.core.clock import SystemClock
    from perdure.gateway.guards.tokens import AccessTokens

    clock = SystemClock()
    with opened(flags) as store:
        tokens = AccessTokens(store, clock).all()
    if not tokens:
        click.echo("No token was made yet; the gateway serves this machine alone. `perdure gateway token add USER`")
        return
    rows = [("ID", "USER", "SCOPES", "MADE", "LAST USED", "STATE"), *(_row(t, clock.now_ms()) for t in tokens)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        click.echo(safe("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()))


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
    from perdure.cli.opened import opened
    from perdure.core.clock import SystemClock
    from perdure.gateway.guards.tokens import AccessTokens

    clock = SystemClock()
    with opened(flags) as store:
        tokens = AccessTokens(store, clock)
        ended = tokens.revoke(id_or_user)
        left = [t for t in tokens.all() if t.standing(clock.now_ms()) == "valid"]
    for each in ended:
        click.echo(f"revoked {each.id}  {each.user_key or '(you)'}")
    if not left:
        click.echo("No valid token is left: nobody can enter until you add one.", err=True)


def _row(token: Token, now_ms: int) -> tuple[str, ...]:
    standing = token.standing(now_ms)
    if standing == "valid" and token.expires_at_ms is not None:
        standing_text = f"until {_day(token.expires_at_ms)}"
    else:
        standing_text = standing
    used = _day(token.last_used_at_ms) if token.last_used_at_ms else "never"
    scopes = ",".join(s for s in SCOPES if s in token.scopes)
    return (token.id, token.user_key or "(you)", scopes, _day(token.created_at_ms), used, standing_text)


def _day(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")
