"""`perdure login` and `logout`: store the API key of a provider, list the stored ones, remove one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from perdure.cli.output import echo

if TYPE_CHECKING:
    from perdure.config.api_keys import StoredKeys
    from perdure.providers.registry import ProviderSpec

EPILOG = """\b
Examples:
  perdure login anthropic               asks for the key and does not show it
  perdure login openai < key.txt        reads it from a file or a pipe
  perdure login custom                  for the address in model.base_url, and sent to no other
  perdure login http://10.0.0.5:8000/v1 for that address
  perdure login --list                  which keys are there, and where; never the keys
  perdure login --remove openai         forgets it
  perdure login codex                   signs in with a ChatGPT account, in the browser
  perdure login codex --no-browser      the same from another machine's browser
  perdure login codex --device          shows a code to enter on another device

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
@click.option("--key", "is_key", is_flag=True, help="Store a key where the provider offers a sign-in (codex).")
@click.option("--no-browser", is_flag=True, help="Sign in to codex in the browser of another machine.")
@click.option("--device", "is_device", is_flag=True, help="Sign in to codex with a code, on another device.")
@click.pass_obj
def login(
    flags: dict[str, str] | None,
    provider: str | None,
    is_list: bool,
    is_removal: bool,
    is_key: bool,
    no_browser: bool,
    is_device: bool,
) -> None:
    """Store the API key of a PROVIDER, or of a server; sign in to codex."""
    from perdure.config.api_keys import StoredKeys
    from perdure.config.env import home_dir

    keys = StoredKeys(home_dir())
    if is_key + no_browser + is_device > 1:
        raise click.UsageError("choose one of --key, --no-browser and --device.")
    if is_list:
        _show(keys)
    elif is_removal:
        _remove(keys, _find(provider, flags or {}))
    else:
        target = _find(provider, flags or {})
        if not is_key and not isinstance(target, str) and target.name == "openai-codex":
            from perdure.cli.codex_login import login_codex

            login_codex(flags or {}, way="device" if is_device else "by_hand" if no_browser else "browser")
        else:
            _store(keys, target, flags or {}, url=provider or "")


@click.command()
@click.argument("provider", required=False)
@click.pass_obj
def logout(flags: dict[str, str] | None, provider: str | None) -> None:
    """Remove the stored key or login of a PROVIDER, or of a server by its address.

    \b
    Examples:
      perdure logout codex
      perdure logout http://10.0.0.5:8000/v1
    """
    from perdure.config.api_keys import StoredKeys
    from perdure.config.env import home_dir

    _remove(StoredKeys(home_dir()), _find(provider, flags or {}))


def _find(name: str | None, flags: Mapping[str, Any]) -> ProviderSpec | str:
    """Return the provider of that name, or the origin of an address. Raises click.UsageError that lists the names."""
    from difflib import get_close_matches

    from perdure.providers.registry import PROVIDERS, find_provider

    names = [row.name for row in PROVIDERS if row.needs_key]
    if name is None and sys.stdin.isatty():
        echo(f"Providers that take a key: {', '.join(names)}")
        name = click.prompt("Which one").strip()
    if name is None:
        raise click.UsageError(f"name a provider: {', '.join(names)}.")
    if "://" in name:
        return _at_address(name)
    row = find_provider(name)
    if row is not None and row.name == "custom":
        return _at_configured_address(flags)
    if row is None:
        near = get_close_matches(name, names, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(names)}."
        raise click.UsageError(f"no provider is called {name!r}. {hint}")
    if not row.needs_key:
        raise click.UsageError(f"{row.name} needs no key. Where a server asks for one, name its address instead.")
    return row


def _at_address(url: str) -> ProviderSpec | str:
    from perdure.config.api_keys import origin_of
    from perdure.providers.registry import find_provider_by_url

    row, origin = find_provider_by_url(url), origin_of(url)
    if row is not None and row.needs_key:
        return row
    if origin is None:
        raise click.UsageError("that is no address; one looks like http://127.0.0.1:8000/v1.")
    return origin


def _at_configured_address(flags: Mapping[str, Any]) -> ProviderSpec | str:
    """Return the address in the settings, or the provider whose key is sent there. Raises click.UsageError."""
    from perdure.config.load import load
    from perdure.providers.registry import find_provider

    model = load(flags=flags).settings.model
    if not model.base_url:
        raise click.UsageError(
            "no address is set: name it here, or set it first with `perdure config set model.base_url URL`."
        )
    row = find_provider(model.provider)
    return row if row is not None and row.needs_key else _at_address(model.base_url)


def _store(keys: StoredKeys, target: ProviderSpec | str, flags: Mapping[str, Any], *, url: str) -> None:
    from perdure.cli.style import runnable
    from perdure.config.api_keys import SERVICE, overrides_stored_key

    label, variable = (target, target) if isinstance(target, str) else (target.name, target.key_variables[0])
    location = keys.put(variable, _read_key(label))
    if location == "keyring":
        where = f"the system keyring (service {SERVICE!r}, name {variable!r})"
    else:
        where = f"{keys.path} (as plain text, readable by you alone)"
    echo(f"Stored:  the key for {label}")
    echo(f"Where:   {where}")
    echo(runnable(f"Remove:  perdure login --remove {label}"))
    if isinstance(target, str):
        echo("It is sent to that address and to no other.")
        if "://" in url:
            echo(_address_hints(target, url))
        return
    row = target
    if overrides_stored_key(variable):
        echo(f"Note:    {variable} is set in the environment and is used instead of it.")
    start = f"perdure chat -p {row.name}" if row.default_model else f"perdure chat -p {row.name} -m MODEL"
    commands = [f"perdure config set model.provider {row.name}"]
    if (address := _other_address(row, flags)) is not None:
        echo(f"Note:    model.base_url is {address}; “Always” takes it out, so that the key is not sent there.")
        commands = ["perdure config unset model.base_url", "perdure config unset model.name", *commands]
    echo(runnable(f"Use it:  {start}\nAlways:  {' && '.join(commands)}"))


def _address_hints(origin: str, url: str) -> str:
    """Return the commands that use the server at `url`; a name and a password in it are left out."""
    from shlex import quote
    from urllib.parse import urlsplit

    from perdure.cli.style import program_name, runnable

    address = quote(origin + urlsplit(url).path.rstrip("/"))
    commands = [f"perdure config set model.base_url {address}", "perdure config set model.provider custom"]
    start = f"{program_name()} --set model.base_url={address} chat -p custom"
    return f"Use it:  {start}\nAlways:  {runnable(' && '.join(commands))}"


def _other_address(row: ProviderSpec, flags: Mapping[str, Any]) -> str | None:
    """Return the configured address where it is not one of that provider; None where there is none."""
    from perdure.config.load import load
    from perdure.core.errors import ConfigError
    from perdure.providers.registry import is_endpoint_of

    try:
        model = load(flags=flags).settings.model
    except ConfigError:  # other commands report it; the key is stored
        return None
    return model.base_url if model.base_url and not is_endpoint_of(model.base_url, model.provider, row.name) else None


def _read_key(provider: str) -> str:
    """Return the key, typed without an echo or read from a pipe. Raises InvalidFlag for what is no key."""
    from perdure.core.errors import InvalidFlag

    if sys.stdin.isatty():
        text = click.prompt(f"Key for {provider} (not shown)", hide_input=True, default="", show_default=False)
    else:
        text = sys.stdin.read(_MAX_CHARS + 1)
    key = str(text).strip()
    if not key:
        raise InvalidFlag("no key was given; nothing was stored.")
    if len(key) > _MAX_CHARS or len(key.split()) > 1 or not (key.isascii() and key.isprintable()):
        raise InvalidFlag("that is no key: a key is one word of ordinary characters. Nothing was stored.")
    return key


def _show(keys: StoredKeys) -> None:
    from perdure.cli.style import runnable
    from perdure.config.api_keys import overrides_stored_key
    from perdure.providers.codex_login import VARIABLE
    from perdure.providers.registry import PROVIDERS

    sources = keys.sources()
    lines = []
    for row in PROVIDERS:
        for variable in row.key_variables:
            where = sources.get(variable) or (["environment"] if overrides_stored_key(variable) else [])
            if where:
                note = _login_note(keys) if variable == VARIABLE else ""
                lines.append(f"{row.name:<18} {variable:<24} {', then '.join(where)}{note}")
    lines += [f"{'custom':<18} {name:<24} {', then '.join(sources[name])}" for name in sources if "://" in name]
    if lines:
        lines.append(runnable("Remove one with `perdure login --remove PROVIDER`."))
    echo("\n".join(lines) if lines else runnable("No keys yet. `perdure login PROVIDER` stores one."))


def _login_note(keys: StoredKeys) -> str:
    """Return what is wrong with the stored Codex login; "" where nothing is known to be."""
    from perdure.config.api_keys import is_login
    from perdure.core.errors import ConfigError
    from perdure.providers.codex_login import VARIABLE, CodexLogin

    try:
        stored = keys.get(VARIABLE)
        is_refused = stored is not None and is_login(stored) and CodexLogin.from_json(stored).is_refused
    except ConfigError as error:
        return f" ({error})"
    return " (refused by the server: sign in again with `perdure login codex`)" if is_refused else ""


def _remove(keys: StoredKeys, target: ProviderSpec | str) -> None:
    from perdure.config.api_keys import overrides_stored_key

    label, names = (target, (target,)) if isinstance(target, str) else (target.name, target.key_variables)
    removed = [name for name in names if keys.remove(name)]
    if not removed:
        raise click.UsageError(f"no key of {label} is stored; `perdure login --list` shows what is.")
    echo(f"Removed the key for {label}.")
    still = [name for name in names if overrides_stored_key(name)]
    if still:
        echo(f"{still[0]} is still set in the environment, and is used.")
