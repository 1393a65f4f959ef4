"""`perdure acp`: an agent for editors, over the Agent Client Protocol."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Mapping
from typing import Any

import click

from perdure.cli.output import echo
from perdure.core.errors import ConfigError


@click.command()
@click.pass_obj
def acp(flags: Mapping[str, Any]) -> None:
    """Serve an editor over the Agent Client Protocol.

    An editor starts this command and talks to it over standard input and output; it is not meant to be run by hand.
    Standard output carries the protocol alone, warnings go to standard error. Needs the extra `acp`.

    \b
    In the settings of an editor:
      {"command": "perdure", "args": ["acp"]}
      {"command": "perdure", "args": ["--set", "model.name=gpt-5-mini", "acp"]}

    \b
    Examples:
      perdure acp < requests.jsonl
    """
    try:
        from perdure.acp.server import serve
        from perdure.acp.stdio import claim_stdio
    except ModuleNotFoundError as error:
        if error.name != "acp":
            raise
        raise ConfigError("the extra `acp` is not installed; run: pip install 'perdure[acp]'") from None
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="perdure: %(message)s")
    if sys.stdin.isatty():
        echo("perdure: an editor starts this command; see docs/editors.md. Ctrl-D ends it.", err=True)
    with claim_stdio() as (source, sink):
        asyncio.run(serve(flags, source, sink))
