"""`perdure simulate`: a strict simulator of model services, for testing agents."""

from __future__ import annotations

from pathlib import Path

import click

from perdure.cli.output import echo


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=8089, show_default=True, help="0 takes a free one.")
@click.option("--window", type=click.IntRange(min=1), default=200_000, show_default=True, help="In tokens.")
@click.option("--max-output", type=click.IntRange(min=1), default=16_384, show_default=True, help="In tokens.")
@click.option(
    "--script", "script_file", type=click.Path(dir_okay=False, path_type=Path), help="A JSON list of steps to answer."
)
@click.option("--model", "models", multiple=True, help="A model it knows; may be repeated. Default: any.")
@click.option("--key", "api_key", help="The only key it takes. Default: any.")
@click.option("--strict", "is_strict", is_flag=True, help="Every switch at its strictest: roles must alternate, …")
def simulate(
    port: int,
    window: int,
    max_output: int,
    script_file: Path | None,
    models: tuple[str, ...],
    api_key: str | None,
    is_strict: bool,
) -> None:
    """Serve a simulated model service on this machine.

    It speaks Chat Completions, Responses and Anthropic Messages, refuses what the real services refuse, counts every
    token, keeps a prefix cache, and answers from a script. Stops with Ctrl-C.

    A script is a JSON list; each request takes its next step. A step is a text, or an object that calls tools, fails or
    drops the connection: docs/simulator.md lists the fields.

    \b
    Examples:
      perdure simulate --port 8089
      perdure simulate --port 8089 --window 8000 --script replies.json
      curl http://127.0.0.1:8089/simulator/report

    \b
    A script of two steps, one that calls a tool and one that speaks:
      [{"say": "Reading.", "calls": [
          {"name": "read_file", "arguments": {"path": "a.txt"}}]},
       "It is empty."]
    """
    from perdure.testing.simulator import Rules, Simulator, load_script, strict

    options = {"window": window, "max_output": max_output, "models": models, "api_key": api_key}
    rules = strict(**options) if is_strict else Rules(**options)  # type: ignore[arg-type]  # each value has its field's type
    steps = load_script(script_file) if script_file else ()
    simulator = Simulator(rules, script=steps, port=port)

    def say_where() -> None:
        echo(f"OpenAI-style base URL   {simulator.base_url}")
        echo(f"Anthropic base URL      {simulator.root_url}")
        echo(f"What happened so far    {simulator.root_url}/simulator/report")
        echo("Stop with Ctrl-C.")

    simulator.serve_forever(say_where)
