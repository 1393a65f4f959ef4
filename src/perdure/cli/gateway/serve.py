"""`perdure serve`: the page for one person on one machine."""

from __future__ import annotations

import html
import os
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

DEFAULT_PORT = 8421


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help=f"Port. Default: {DEFAULT_PORT}, or a free one.")
@click.option("--no-open", is_flag=True, help="Only print the address; open no browser.")
@click.pass_obj
def serve(flags: dict[str, object] | None, port: int | None, no_open: bool) -> None:
    """Look at your conversations in a browser.

    And go on with them there. For one person on one machine: it listens on loopback only, and each run has a token
    of its own, which is in the address it prints. Whoever has the address may do everything you may, so share it
    with nobody.

    \b
    Examples:
      perdure serve
      perdure serve --no-open --port 9000
    """
    from perdure.app import open_user_store
    from perdure.cli.gateway.starting import Start, place_of, serve_until_stopped
    from perdure.config.load import load
    from perdure.core.clock import SystemClock
    from perdure.gateway.guards.tokens import RunPeople
    from perdure.gateway.watchers.journal import Journal

    alone = {
        "gateway.host": "127.0.0.1",
        "gateway.port": _free(DEFAULT_PORT) if port is None else port,
        "gateway.public_url": None,
        "gateway.allowed_hosts": [],
        "gateway.trusted_proxies": [],
        "gateway.telegram.enabled": False,
    }
    loaded, people = load(flags={**(flags or {}), **alone}), RunPeople()
    with open_user_store(loaded.settings, loaded.home) as store, _signpost(loaded.home) as signpost:

        def say(url: str) -> Iterator[str]:
            # In the fragment, which browsers keep to themselves: no server and no log ever sees it.
            link = f"{url}/#token={people.token}"
            yield f"Open                    {link}"
            yield f"Conversations           {place_of(loaded)}"
            yield "Stop with Ctrl-C."
            if not no_open:
                signpost(link)

        journal = Journal("plain", SystemClock(), only_trouble=True)
        serve_until_stopped(Start(loaded, store, people, journal), say=say)


def _free(port: int) -> int:
    from perdure.cli.gateway.starting import claim_address
    from perdure.core.errors import ConfigError

    try:
        claim_address("127.0.0.1", port)
    except ConfigError:
        return 0
    return port


@contextmanager
def _signpost(home: Path) -> Iterator[Callable[[str], None]]:
    """Opens the browser by way of a file only its owner can read: a command line could be seen by everybody here."""
    place = home / f"open-{os.getpid()}.html"

    def point_to(link: str) -> None:
        target = html.escape(link, quote=True)
        text = f'<!doctype html><meta http-equiv="refresh" content="0;url={target}"><title>Perdure</title>'
        with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        webbrowser.open(place.as_uri())

    try:
        yield point_to
    finally:
        place.unlink(missing_ok=True)
