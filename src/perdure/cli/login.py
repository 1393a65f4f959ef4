"""`perdure login`: store the API key of a provider, list the stored ones, remove one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from perdure.config.api_keys import StoredKeys
    from perdure.providers.registry import ProviderSpec

EPILOG = """\b
Examples:
  perdure login anthropic               asks for the key and does not show it
  perdure login openai < key.txt        reads it from a file or a pipe
  perdure login --list                  which keys are there, and where; never the keys
  perdure login --remove openai         forgets it

\b
A key goes into the system keyring where there is one (install the extra `keyring`), else into a
file in the home folder that only you can read. A variable of the environment, such as
ANTHROPIC_API_KEY, goes before a stored key.
"""
# Longer than any key; a file handed in by mistake is not stored.
_MAX_CHARS = 4_000


@click.command(epilog=EPILOG)
@click.argument("provider", required=False)
@click.option("--list", "is_list", is_flag=True, help="Show which keys are there, and where.")
@click.option("--remove", "is_removal", is_flag=True, help="Remove the stored key of the provider.")
def login(provider: str | None, is_list: bool, is_removal: bool) -> None:
    """Store the API key of a PROVIDER."""
    from perdure.config.api_keys import StoredKeys
    from perdure.config.env import home_dir

    keys = StoredKeys(home_dir())
    if is_list:
        _show(keys)
    elif is_removal:
        _remove(keys, _find(provider))
    else:
        _store(keys, _find(provider))


def _find(name: str | None) -> ProviderSpec:
    """Return the provider of that name. Raises click.UsageError that lists those that take a key."""
    from difflib import get_close_matches

    from perdure.providers.registry import PROVIDERS, find_provider

    names = [row.name for row in PROVIDERS if row.needs_key]
    if name is None and sys.stdin.isatty():
        click.echo(f"Providers that take a key: {', '.join(names)}")
        name = click.prompt("Which one").strip()
    if name is None:
        raise click.UsageError(f"name a provider: {', '.join(names)}.")
    row = find_provider(name)
    if row is None:
        near = get_close_matches(name, names, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(names)}."
        raise click.UsageError(f"no provider is called {name!r}. {hint}")
    if not row.needs_key:
        raise click.UsageError(f"{row.name} needs no key.")
    return row


def _store(keys: StoredKeys, row: ProviderSpec) -> None:
    from perdure.cli.style import runnable
    from perdure.config.api_keys import overrides_stored_key

    variable = row.key_variables[0]
    key = _read_key(row.name)
    location = keys.put(variable, key)
    where = "the system keyring" if location == "keyring" else f"{keys.path}, which only you can read"
    click.echo(f"Stored the key of {row.name} in {where}.")
    if overrides_stored_key(variable):
        click.echo(f"{variable} is set in the environment and goes before it.")
    start = f"perdure chat -p {row.name}" if row.default_model else f"perdure chat -p {row.name} -m MODEL"
    keep = f"perdure config set model.provider {row.name}"
    click.echo(runnable(f"Use it with `{start}`, or from now on with `{keep}`."))


def _read_key(provider: str) -> str:
    """Return the key, typed without an echo or read from a pipe. Raises click.UsageError for what is no key."""
    if sys.stdin.isatty():
        text = click.prompt(f"Key for {provider} (not shown)", hide_input=True, default="", show_default=False)
    else:
        text = sys.stdin.read(_MAX_CHARS + 1)
    key = str(text).strip()
    if not key:
        raise click.UsageError("no key was given; nothing was stored.")
    if len(key) > _MAX_CHARS or len(key.split()) > 1 or not (key.isascii() and key.isprintable()):
        raise click.UsageError("that is no key: a key is one word of ordinary characters. Nothing was stored.")
    return key


def _show(keys: StoredKeys) -> None:
    from perdure.config.api_keys import overrides_stored_key
    from perdure.providers.registry import PROVIDERS

    locations = keys.locations()
    lines = []
    for row in PROVIDERS:
        for variable in row.key_variables:
            stored = {"keyring": "system keyring", "file": str(keys.path)}.get(locations.get(variable, ""), "")
            where = ["environment"] if overrides_stored_key(variable) else []
            where += [stored] if stored else []
            if where:
                lines.append(f"{row.name:<18} {variable:<24} {', then '.join(where)}")
    click.echo("\n".join(lines) if lines else "No keys yet. `perdure login PROVIDER` stores one.")


def _remove(keys: StoredKeys, row: ProviderSpec) -> None:
    removed = [variable for variable in row.key_variables if keys.remove(variable)]
    if not removed:
        raise click.UsageError(f"no key of {row.name} is stored; `perdure login --list` shows what is.")
    click.echo(f"Removed the key of {row.name}.")
