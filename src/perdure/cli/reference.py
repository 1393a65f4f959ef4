"""Writes what the code knows about itself into the docs: `python -m perdure.cli.reference [--check] [FOLDER]`.

The table of settings goes into configuration.md between two marks, the help of every command into cli.md. With
`--check` nothing is written, and a page that is stale is named and makes the exit status 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import click

BEGIN = "<!-- settings: written by `python -m perdure.cli.reference`; change settings.py, not this -->"
END = "<!-- end of settings -->"
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


def pages(folder: Path) -> Iterator[tuple[Path, str]]:
    """Each page of the docs that is written from code, and the text it should have."""
    page = folder / "configuration.md"
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise click.ClickException(f"{page} has lost its marks; put back\n{BEGIN}\n{END}")
    head, _, rest = text.partition(BEGIN)
    yield page, f"{head}{BEGIN}\n\n{settings_tables()}\n{END}{rest.partition(END)[2]}"
    yield folder / "cli.md", commands_page()


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; fail where a page is stale.")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), default="docs")
def main(check: bool, folder: Path) -> None:
    """Write the settings and the commands into the pages of FOLDER."""
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
