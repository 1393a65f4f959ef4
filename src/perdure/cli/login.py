"""`perdure login` and `logout`: store the API key of a provider, list the stored ones, remove one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from perdure.cli.output import echo, echo_table

if TYPE_CHECKING:
    from perdure.config.api_keys import StoredKeys
    from perdure.providers.model_probe import KeyCheck
    from perdure.providers.registry import ProviderSpec

EPILOG = """\b
Examples:
  perdure login anthropic                asks for the key and does not show it
  perdure login openai < key.txt         reads it from a file or a pipe
  perdure login http://10.0.0.5:8000/v1  for a server of your own, and sent to no other address
  perdure login custom                   the same, for the address in model.base_url
  perdure login --list                   which keys are there, and where; never the keys
  perdure login --remove openai          forgets it
  perdure login codex                    signs in with a ChatGPT account, in the browser
  perdure login codex --no-browser       the same from another machine's browser
  perdure login codex --device           shows a code to enter on another device

A key is checked first, by asking the service for its models, which costs nothing; one that is
refused is not stored. It goes into the system keyring where there is one (install the extra
`keyring`), else into a file in the home folder that only you can read. A variable of the
environment, such as ANTHROPIC_API_KEY, goes before a stored key.
"""
# Longer than any key; a file handed in by mistake is not stored.
_MAX_CHARS = 4_000
_QUOTATION_MARKS = "\"'`“”‘’«»"
_NO_KEYS = "No keys yet. `perdure login PROVIDER` stores one."


@click.command(epilog=EPILOG)
@click.argument("provider", required=False)
@click.argument("address", required=False)
@click.option("--list", "is_list", is_flag=True, help="Show which keys are there, and where.")
@click.option("--remove", "is_removal", is_flag=True, help="Remove the stored key of the provider.")
@click.option("--key", "is_key", is_flag=True, help="Store a key where the provider offers a sign-in (codex).")
@click.option("--no-check", is_flag=True, help="Store the key without asking the service about it.")
@click.option("--no-browser", is_flag=True, help="Sign in to codex in the browser of another machine.")
@click.option("--device", "is_device", is_flag=True, help="Sign in to codex with a code, on another device.")
@click.pass_obj
def login(
    flags: dict[str, str] | None,
    provider: str | None,
    address: str | None,
    is_list: bool,
    is_removal: bool,
    is_key: bool,
    no_check: bool,
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
        return
    if is_removal:
        options = flags or {}
        named = _find(provider, options, url=address) if address else _find_stored(provider, keys, options)
        _remove(keys, named)
        return
    target = _find(provider, flags or {}, url=address)
    if not is_key and not isinstance(target, ServerAddress) and target.name == "openai-codex":
        from perdure.cli.codex_login import login_codex

        login_codex(flags or {}, way="device" if is_device else "by_hand" if no_browser else "browser")
    else:
        _store(keys, target, flags or {}, no_check=no_check)


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

    keys = StoredKeys(home_dir())
    _remove(keys, _find_stored(provider, keys, flags or {}))


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The user's own server: its base URL, without a name and password, and the origin its key is stored for."""

    origin: str
    url: str


def _find(name: str | None, flags: Mapping[str, Any], *, url: str | None = None) -> ProviderSpec | ServerAddress:
    """Return the provider of that name, or the server at an address. Raises click.UsageError that lists the names."""
    from difflib import get_close_matches

    from perdure.providers.registry import PROVIDERS, find_provider

    names = [row.name for row in PROVIDERS if row.needs_key]
    if name is None and sys.stdin.isatty():
        echo(f"Providers that take a key: {', '.join(names)}; for a server of your own, its address.")
        name = click.prompt("Which one").strip()
    if name is None:
        raise click.UsageError(f"name a provider: {', '.join(names)}; or the address of a server of your own.")
    row = find_provider(name)
    if url is not None and (row is None or row.needs_key):
        raise click.UsageError(f"{name} takes no address; `perdure login {url}` is for a server of your own.")
    if row is None and _looks_like_address(name):
        return _at_address(name)
    if row is None:
        near = get_close_matches(name, names, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(names)}."
        raise click.UsageError(f"no provider is called {name!r}. {hint}")
    if url is not None:
        return _at_address(url)
    if row.name == "custom":
        return _at_configured_address(flags)
    if not row.needs_key:
        raise click.UsageError(f"{row.name} needs no key. Where a server asks for one, name its address instead.")
    return row


def _find_stored(name: str | None, keys: StoredKeys, flags: Mapping[str, Any]) -> ProviderSpec | ServerAddress:
    """Return whose key is to be removed; `custom` is the one server with a key. Raises click.UsageError."""
    from perdure.config.api_keys import origin_of
    from perdure.config.load import load
    from perdure.providers.registry import PROVIDERS, find_provider

    stored = keys.locations()
    servers = [variable for variable in stored if "://" in variable]
    labels = [row.name for row in PROVIDERS if any(variable in stored for variable in row.key_variables)] + servers
    if name is None and not labels:
        raise click.UsageError("no key is stored.")
    if name is None and sys.stdin.isatty():
        echo(f"Stored keys: {', '.join(labels)}.")
        name = click.prompt("Which one").strip()
    if name is None:
        raise click.UsageError(f"name one of the stored keys: {', '.join(labels)}.")
    row = find_provider(name)
    if row is None or row.name != "custom" or not servers:
        return _find(name, flags)
    if origin_of(load(flags=flags).settings.model.base_url or "") in servers:
        return _at_configured_address(flags)
    if len(servers) > 1:
        raise click.UsageError(f"name the address: {', '.join(servers)}.")
    return _at_address(servers[0])


def _looks_like_address(name: str) -> bool:
    return any(mark in name for mark in "/:.") or name == "localhost"


def _at_address(url: str) -> ProviderSpec | ServerAddress:
    from urllib.parse import urlsplit

    from perdure.config.api_keys import origin_of
    from perdure.core.addresses import is_local_url
    from perdure.providers.registry import find_provider_by_url

    row, origin = find_provider_by_url(url), origin_of(url)
    if row is not None and row.needs_key:
        return row
    if origin is None:
        if "://" not in url and is_local_url(f"http://{url}"):  # only here is plain http safe to assume
            return _at_address(f"http://{url}")
        hint = f"did you mean https://{url}?" if "://" not in url else "one looks like http://127.0.0.1:8000/v1."
        raise click.UsageError(f"{url!r} is no address; {hint}")
    return ServerAddress(origin, origin + urlsplit(url).path.rstrip("/"))


def _at_configured_address(flags: Mapping[str, Any]) -> ProviderSpec | ServerAddress:
    """Return the server in the settings, or the provider whose key is sent there. Raises click.UsageError."""
    from perdure.config.load import load
    from perdure.providers.registry import find_provider

    model = load(flags=flags).settings.model
    if model.base_url:
        row = find_provider(model.provider)
        return row if row is not None and row.needs_key else _at_address(model.base_url)
    if not sys.stdin.isatty():
        raise click.UsageError("name the server's address, as in `perdure login http://127.0.0.1:8000/v1`.")
    return _at_address(click.prompt("Address of the server, such as http://127.0.0.1:8000/v1").strip())


def _store(keys: StoredKeys, target: ProviderSpec | ServerAddress, flags: Mapping[str, Any], *, no_check: bool) -> None:
    """Ask for a key, check it and store it. Raises CommandFailure for one that the service refuses."""
    from perdure.cli.lazy import CommandFailure
    from perdure.cli.output import echo_hint
    from perdure.config.api_keys import SERVICE, overrides_stored_key

    is_server = isinstance(target, ServerAddress)
    label, variable = (target.origin, target.origin) if isinstance(target, ServerAddress) else _names_of(target)
    key = _read_key(label, is_optional=is_server)
    check = None
    if not no_check:
        target = _complete_address(target, key) if isinstance(target, ServerAddress) else target
        check = _check(target, key, flags)
    if check is not None and check.is_accepted is False:
        rest = " The one that is stored stays." if variable in keys.locations() else ""
        raise CommandFailure(
            f"this key is wrong: {check.detail}. It was not stored.{rest} With --no-check it is stored all the same."
            if key
            else f"{label} asks for a key, and none was given; nothing was stored. With it: `perdure login {label}`."
        )
    if key is None:
        echo(f"No key:  {label} is called without one.")
    else:
        location = keys.put(variable, key)
        note = "" if check is None else f" ({'' if check.is_accepted else 'not checked: '}{check.detail})"
        echo(f"Stored:  the key for {label}{note}")
        where = f"the system keyring (service {SERVICE!r}, name {variable!r})"
        echo(f"Where:   {where if location == 'keyring' else f'{keys.path} (as plain text, readable by you alone)'}")
        if is_server:
            echo("Sent:    to that address and to no other")
        echo_hint("Remove: ", f"perdure login --remove {label}")
    if isinstance(target, ServerAddress):
        _show_server_hints(target, flags, is_reached=check is None or check.is_reached)
        return
    if overrides_stored_key(variable):
        echo(f"Note:    {variable} is set in the environment and is used instead of it.")
    _show_provider_hints(target, flags)


def _names_of(row: ProviderSpec) -> tuple[str, str]:
    return row.name, row.key_variables[0]


def _complete_address(target: ServerAddress, key: str | None) -> ServerAddress:
    """Add /v1 to an address where the server's API is there and not at the address itself."""
    from perdure.core.errors import ConfigError
    from perdure.providers.model_probe import request_listing, with_api_path
    from perdure.providers.routes import endpoint_for

    try:
        endpoint = endpoint_for("custom", model="?", base_url=target.url, lookup=lambda name: None, api_key=key)
        url = with_api_path(endpoint).base_url
        if url == target.origin and request_listing(endpoint).status is None:
            echo(f"Server:  {url} does not answer now; its API is assumed at {url}/v1, as that of most is")
            return ServerAddress(target.origin, f"{url}/v1")
    except ConfigError:  # the check reports it
        return target
    if url.rstrip("/") != target.url:
        echo(f"Server:  {url}, where its API is")
        return ServerAddress(target.origin, url)
    return target


def _check(target: ProviderSpec | ServerAddress, key: str | None, flags: Mapping[str, Any]) -> KeyCheck:
    """Ask the service about a key. Never raises: what cannot be asked is not checked."""
    from perdure.config.api_keys import api_key_for
    from perdure.config.load import load
    from perdure.core.errors import ConfigError
    from perdure.providers.model_probe import KeyCheck, check_key
    from perdure.providers.registry import is_endpoint_of
    from perdure.providers.routes import endpoint_for

    try:
        url: str | None
        if isinstance(target, ServerAddress):
            provider, url = "custom", target.url
        else:
            model = load(flags=flags).settings.model
            is_own = model.base_url and is_endpoint_of(model.base_url, model.provider, target.name)
            provider, url = target.name, model.base_url if is_own else None
        # Where the provider's address is from the environment, the key is sent there, and so it is checked there.
        lookup = api_key_for if key is not None else lambda name: None
        endpoint = endpoint_for(provider, model="?", base_url=url, lookup=lookup, api_key=key)
        return check_key(endpoint)
    except ConfigError as error:
        return KeyCheck(None, str(error))


def _show_provider_hints(row: ProviderSpec, flags: Mapping[str, Any]) -> None:
    """Print how to use the provider: a bare call where that uses it by now, else what makes it do so."""
    from perdure.cli.output import echo_hint

    if _is_used(row, flags):
        echo_hint("Use it: ", "perdure chat")
        return
    echo_hint("Use it: ", f"perdure chat -p {row.name}{'' if row.default_model else ' -m MODEL'}")
    commands = [f"perdure config set model.provider {row.name}"]
    if (address := _other_address(row, flags)) is not None:
        echo(f"Note:    model.base_url is {address}; the commands below take it out, to send no key there.")
        commands = ["perdure config unset model.base_url", "perdure config unset model.name", *commands]
    echo_hint("From now on, without -p:", *commands)


def _is_used(row: ProviderSpec, flags: Mapping[str, Any]) -> bool:
    """Whether a call without options uses the provider, by the settings and the keys there are."""
    from perdure.config.api_keys import api_key_for
    from perdure.config.load import load
    from perdure.core.errors import ConfigError
    from perdure.providers.registry import find_provider
    from perdure.providers.routes import chosen_provider

    try:
        settings = load(flags=flags).settings
    except ConfigError:  # other commands report it; the key is stored
        return False
    name = settings.model.provider or chosen_provider(settings, lookup=api_key_for)
    row_in_use = find_provider(name) if name else None
    has_model = bool(settings.model.name or row.default_model)
    return row_in_use is not None and row_in_use.name == row.name and has_model and _other_address(row, flags) is None


def _show_server_hints(target: ServerAddress, flags: Mapping[str, Any], *, is_reached: bool) -> None:
    """Offer to use the server from now on where no other model is configured; else print the commands that do."""
    from shlex import quote

    from perdure.cli.output import echo_hint
    from perdure.cli.style import program_call
    from perdure.config.api_keys import origin_of
    from perdure.config.edit import set_value
    from perdure.config.env import home_dir
    from perdure.config.load import load
    from perdure.core.errors import ConfigError

    try:
        model = load(flags=flags).settings.model
    except ConfigError:  # other commands report it; the key is stored
        return
    if model.base_url == target.url:
        echo_hint("Use it: ", "perdure chat")
        return
    address = quote(target.url)
    # Another address of the same server was a mistake, or has been one since the server moved its API.
    is_open = model.provider in (None, "custom") and origin_of(model.base_url or target.url) == target.origin
    if is_open and (model.name is None or model.base_url is not None) and _is_wanted(target, is_reached=is_reached):
        set_value(home_dir(), "model.base_url", target.url)
        echo("Set:     model.base_url, so that a plain start uses this server from now on")
        echo_hint("Use it: ", "perdure chat")
        echo_hint("Undo:   ", "perdure config unset model.base_url")
        return
    other = "custom" if model.provider not in (None, "custom") else ""
    echo_hint("Use it: ", f"{program_call()} --set model.base_url={address}{' chat -p custom' if other else ''}")
    commands = [f"perdure config set model.base_url {address}"]
    commands += ["perdure config set model.provider custom"] if other else []
    echo_hint("From now on, without --set:", *commands)


def _is_wanted(target: ServerAddress, *, is_reached: bool) -> bool:
    """Ask whether to use the server from now on; without a terminal, return False."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    if not is_reached:
        echo("Is the address right? No server answers there, and a plain start would have no model until one does.")
    return click.confirm(f"Use {target.url} from now on?", default=is_reached)


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


def _read_key(label: str, *, is_optional: bool) -> str | None:
    """Return the key, typed without an echo or read from a pipe. Raises InvalidFlag for anything but a key.

    Where it is optional, an empty line at the prompt means no key.
    """
    from perdure.core.errors import InvalidFlag

    if sys.stdin.isatty():
        how = "not shown; Enter for none" if is_optional else "not shown"
        text = click.prompt(f"Key for {label} ({how})", hide_input=True, default="", show_default=False)
    else:
        text = sys.stdin.read(_MAX_CHARS + 1)
    key = _unquote(str(text).strip())
    if not key and is_optional and sys.stdin.isatty():
        return None
    if not key:
        raise InvalidFlag("no key was given; nothing was stored.")
    if len(key) > _MAX_CHARS or len(key.split()) > 1 or not (key.isascii() and key.isprintable()):
        raise InvalidFlag("that is no key: a key is one word of ordinary characters. Nothing was stored.")
    return key


def _unquote(text: str) -> str:
    """Return a key without the quotation marks of the file it was copied from, also where only one was copied."""
    return text.removesuffix(",").strip(_QUOTATION_MARKS).strip()


def _show(keys: StoredKeys) -> None:
    from perdure.cli.style import runnable
    from perdure.config.api_keys import overrides_stored_key
    from perdure.providers.codex_login import VARIABLE
    from perdure.providers.registry import PROVIDERS

    sources = keys.sources()
    rows = []
    for row in PROVIDERS:
        for variable in row.key_variables:
            where = sources.get(variable) or (["environment"] if overrides_stored_key(variable) else [])
            if where:
                note = _login_note(keys) if variable == VARIABLE else ""
                rows.append((row.name, variable, f"{', then '.join(where)}{note}"))
    rows += [("custom", name, ", then ".join(sources[name])) for name in sources if "://" in name]
    if rows:
        echo_table(rows)
    name = "ADDRESS" if rows and all(row[0] == "custom" for row in rows) else "PROVIDER"
    echo(runnable(f"Remove one with `perdure login --remove {name}`." if rows else _NO_KEYS))


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


def _remove(keys: StoredKeys, target: ProviderSpec | ServerAddress) -> None:
    from perdure.config.api_keys import overrides_stored_key

    if isinstance(target, ServerAddress):
        label, names = target.origin, [target.origin]
    else:
        label, names = target.name, list(target.key_variables)
    removed = [name for name in names if keys.remove(name)]
    if not removed:
        raise click.UsageError(f"no key of {label} is stored; `perdure login --list` shows what is.")
    echo(f"Removed the key for {label}.")
    still = [name for name in names if overrides_stored_key(name)]
    if still:
        echo(f"{still[0]} is still set in the environment, and is used.")
