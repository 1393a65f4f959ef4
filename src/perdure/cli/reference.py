"""Generate the reference sections of the docs from the code: `python -m perdure.cli.reference [--check] [FOLDER]`.

The table of settings, the arguments of the tools and the error samples of the simulator go between two marks of their
pages, the help of every command into cli.md. With `--check` nothing is written, and a page that is stale is named and
makes the exit status 1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class GeneratedBlock:
    """A part of a page that is written from code, between two marks."""

    page: str
    name: str
    # The file to change instead of the page.
    source: str
    make: Callable[[], str]

    @property
    def begin(self) -> str:
        return f"<!-- {self.name}: written by `python -m perdure.cli.reference`; change {self.source}, not this -->"

    @property
    def end(self) -> str:
        return f"<!-- end of {self.name} -->"

    def fill(self, text: str) -> str:
        """Return the page with the block as the code has it. Raises click.ClickException where its marks are lost."""
        if self.begin not in text or self.end not in text:
            raise click.ClickException(f"{self.page} has lost its marks; put back\n{self.begin}\n{self.end}")
        head, _, rest = text.partition(self.begin)
        return f"{head}{self.begin}\n\n{self.make()}\n{self.end}{rest.partition(self.end)[2]}"


# Help is wrapped for a terminal of this width, whatever terminal it is written in.
WIDTH = 100


def settings_tables() -> str:
    """Return one table for each section of the settings, in Markdown."""
    from perdure.config import keys

    parts = []
    for section, group in groupby(keys.all_keys().values(), key=lambda key: key.path[0]):
        parts.append(f"### {section}\n\n{keys.describe(section)}\n")
        parts.append("| key | default | allowed | what it does |\n|---|---|---|---|")
        parts += [
            f"| `{key.name}` | `{keys.format_value(key.default)}` | {_cell(key.allowed)} | {_cell(key.description)} |"
            for key in group
        ]
        parts.append("")
    return "\n".join(parts)


def commands_page() -> str:
    """Return the help of every command, as `--help` prints it."""
    from perdure.cli.main import cli

    lines = [
        "# The command line",
        "",
        "What `--help` prints, for every command. Written by `python -m perdure.cli.reference`.",
    ]
    root = cli.context_class(cli, info_name="perdure", terminal_width=WIDTH, **cli.context_settings)
    for ctx in _contexts(root):
        lines += ["", f"## {ctx.command_path}", "", "```text", *_help(ctx), "```"]
    return "\n".join(lines) + "\n"


def tool_arguments() -> str:
    """Return one table of the arguments of every built-in tool, in Markdown."""
    from perdure.agent.callbacks import CallbackAsker
    from perdure.app.build import trial_agent
    from perdure.config.settings import Settings

    settings = Settings()
    context = settings.context.model_copy(update={"lcm_tools": True})
    rows = ["| tool | argument | type | default | meaning |", "|---|---|---|---|---|"]
    with TemporaryDirectory() as folder:
        home = Path(folder)
        asker = CallbackAsker(lambda question, choices: "")
        trial = settings.model_copy(update={"context": context})
        with trial_agent(trial, home=home, folder=home, asker=asker) as agent:
            for tool in agent.deps.tools.registry:
                rows += _argument_rows(tool.name, tool.parameters)
    return "\n".join(rows) + "\n"


def _argument_rows(tool: str, schema: Mapping[str, Any]) -> Iterator[str]:
    required = schema.get("required") or ()
    for name, rule in schema.get("properties", {}).items():
        default = "required" if name in required else f"`{json.dumps(rule.get('default'), ensure_ascii=False)}`"
        label = _cell(_argument_type(rule, schema.get("$defs", {})))
        yield f"| `{tool}` | `{name}` | {label} | {default} | {_cell(_escape_description(rule))} |"


def _escape_description(rule: Mapping[str, Any]) -> str:
    """Return the description, with `<id>` as text: Markdown would take it for a tag."""
    return str(rule.get("description", "")).replace("<", "&lt;")


def _argument_type(rule: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    from perdure.tools.tool import describe_schema, type_label

    for option in (rule, *rule.get("anyOf", ())):
        items = option.get("items", {})
        if "$ref" in items:
            return f"list of objects ({describe_schema(definitions[items['$ref'].rpartition('/')[2]])})"
        if items:
            return f"list of {type_label(items)}s"
    return type_label(rule)


def error_samples() -> str:
    """Return the names of the simulator's error responses, in Markdown."""
    from perdure.testing.simulator import SAMPLES

    return (
        "\n".join(["| sample | status |", "|---|---|", *(f"| `{name}` | {SAMPLES[name][0]} |" for name in SAMPLES)])
        + "\n"
    )


BLOCKS = (
    GeneratedBlock("configuration.md", "settings", "settings.py", settings_tables),
    GeneratedBlock("tools.md", "arguments", "the tool", tool_arguments),
    GeneratedBlock("simulator.md", "samples", "script.py", error_samples),
)


def pages(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield each docs page that is generated from code, with the text it should have."""
    for block in BLOCKS:
        page = folder / block.page
        yield page, block.fill(page.read_text(encoding="utf-8"))
    yield folder / "cli.md", commands_page()


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; fail where a page is stale.")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), default="docs")
def main(check: bool, folder: Path) -> None:
    """Write the settings, tools, samples and commands into the pages of FOLDER."""
    stale = [
        (page, text) for page, text in pages(folder) if not page.exists() or page.read_text(encoding="utf-8") != text
    ]
    for page, text in stale:
        if not check:
            page.write_text(text, encoding="utf-8")
        click.echo(f"{page} {'is stale; run `python -m perdure.cli.reference`' if check else 'written'}")
    if check and stale:
        raise SystemExit(1)


def _contexts(ctx: click.Context) -> Iterator[click.Context]:
    yield ctx
    if isinstance(ctx.command, click.Group):
        for name in ctx.command.list_commands(ctx):
            command = ctx.command.get_command(ctx, name)
            if command is not None and not command.hidden:
                yield from _contexts(
                    command.context_class(command, info_name=name, parent=ctx, **command.context_settings)
                )


def _help(ctx: click.Context) -> list[str]:
    return [line.rstrip() for line in ctx.get_help().splitlines()]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    main()
