"""`perdure doctor`: what works, what does not, and what to do about it."""

from __future__ import annotations

import sys

import click

_MARKS = {"ok": "ok", "note": "note", "broken": "BROKEN"}


@click.command()
@click.option("--offline", is_flag=True, help="Ask no server.")
@click.pass_obj
def doctor(flags: dict[str, str], offline: bool) -> None:
    """Check keys, home, database, endpoint, window and embedded model.

    Says for each what was found and, where something is amiss, what to do. Keys are never printed. Nothing is sent to a
    model, so nothing is charged. Exit status 1 where something is broken.

    \b
    Examples:
      perdure doctor
      perdure doctor --offline
      perdure --set model.provider=anthropic doctor
    """
    from perdure.cli.checks import checks
    from perdure.cli.ink import Style
    from perdure.config.terminal import wants_color

    ink = Style(sys.stdout.isatty() and wants_color("auto"))
    paint = {"ok": ink.good, "note": ink.warn, "broken": ink.bad}
    is_broken = False
    for check in checks(flags or {}, is_offline=offline):
        is_broken |= check.state == "broken"
        click.echo(f"{paint[check.state](f'{_MARKS[check.state]:<6}')}  {check.name:<10}  {check.found}")
        if check.advice:
            click.echo(f"{'':<20}→ {check.advice}")
    if is_broken:
        raise SystemExit(1)
