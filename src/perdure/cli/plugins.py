"""`perdure plugins`: list the context engines and where each comes from; choose one."""

from __future__ import annotations

import sys

import click

from perdure.cli.lazy import PlainGroup
from perdure.cli.output import echo, echo_table


@click.group(cls=PlainGroup, invoke_without_command=True)
@click.pass_context
def plugins(ctx: click.Context) -> None:
    """List context engines and choose one.

    The context engine decides what stays in the model's context. Called bare in a terminal, this asks which one to
    use; elsewhere it lists them.

    \b
    Examples:
      perdure plugins
      perdure plugins list
      perdure plugins use compressor
    """
    if ctx.invoked_subcommand is not None:
        return
    ctx.invoke(list_)
    if sys.stdin.isatty() and sys.stdout.isatty():
        _pick(ctx)


@plugins.command("list")
@click.pass_obj
def list_(flags: dict[str, str]) -> None:
    """Show every context engine; the active one is marked *.

    \b
    Examples:
      perdure plugins list
    """
    from perdure.config.load import load
    from perdure.context.registry import BUILT_IN, engines

    loaded = load(flags=flags)
    registry, active = engines(loaded.home), loaded.settings.context.engine
    available = registry.discover()
    echo_table(
        [
            (
                f"{'*' if f.name == active and not f.ignored else ' '} {f.name}",
                f"{f.origin:<8}",
                f"{f.location}{f'  (ignored: {f.ignored})' if f.ignored else ''}",
            )
            for f in available
        ]
    )
    if active not in registry.names():
        echo(f"perdure: context.engine is {active!r}, which is not there; {BUILT_IN!r} is used instead", err=True)


@plugins.command()
@click.argument("name")
def use(name: str) -> None:
    """Make NAME the context engine.

    It is written to config.yaml; a name that is unknown or whose code is broken is refused.

    \b
    Examples:
      perdure plugins use compressor
    """
    _use(name)


def _use(name: str) -> None:
    from perdure.cli.config import write_setting
    from perdure.config.env import home_dir
    from perdure.context.registry import engines

    engines(home_dir()).load(name)  # its code runs once here, so that what cannot work is never written down
    write_setting("context.engine", name)


def _pick(ctx: click.Context) -> None:
    from perdure.config.load import load
    from perdure.context.registry import BUILT_IN, engines

    loaded = load(flags=ctx.obj)
    names = engines(loaded.home).names()
    active = loaded.settings.context.engine
    chosen = click.prompt(
        "Use which engine",
        type=click.Choice(names),
        default=active if active in names else BUILT_IN,
    )
    if chosen != active:
        _use(chosen)
