"""`perdure completion`: print the script that lets a shell complete commands and options."""

from __future__ import annotations

import click

_WHERE = {
    "bash": "echo 'eval \"$(perdure completion bash)\"' >> ~/.bashrc",
    "zsh": "echo 'eval \"$(perdure completion zsh)\"' >> ~/.zshrc",
    "fish": "perdure completion fish > ~/.config/fish/completions/perdure.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(_WHERE)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a SHELL.

    \b
    Examples:
      eval "$(perdure completion bash)"                                        now
      echo 'eval "$(perdure completion bash)"' >> ~/.bashrc                    from now on
      perdure completion fish > ~/.config/fish/completions/perdure.fish
    """
    from click.shell_completion import get_completion_class

    root = ctx.find_root()
    kind = get_completion_class(shell)
    if kind is None:
        raise click.ClickException(f"no completion for {shell}")
    script = kind(root.command, {}, root.info_name or "perdure", "_PERDURE_COMPLETE").source()
    click.echo(f"# {_WHERE[shell]}\n{script}")
