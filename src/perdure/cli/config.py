"""`perdure config`: get, set, unset, list, edit."""

from __future__ import annotations

from pathlib import Path

import click

from perdure.cli.editor import edit_file
from perdure.cli.lazy import PlainGroup
from perdure.cli.output import echo, echo_table
from perdure.core.errors import ConfigError, PerdureError

# What these commands need takes 0.2 s to import, so each imports it when it runs: `config --help` stays quick.


@click.group(cls=PlainGroup)
def config() -> None:
    """Show and change settings.

    A setting comes from, in order: its default, config.yaml, the environment (PERDURE_COMPRESSION__THRESHOLD sets
    compression.threshold), and --set on the command line. The last one given holds.

    \b
    Examples:
      perdure config list compression
      perdure config get compression.threshold
      perdure config set compression.threshold 0.6
      perdure config set fallback_providers openrouter/z-ai/glm-4.6,groq
      perdure config unset compression.threshold
    """


@config.command("list")
@click.argument("section", required=False)
@click.option("--changed", is_flag=True, help="Only what differs from its default.")
@click.pass_obj
def list_(flags: dict[str, str], section: str | None, changed: bool) -> None:
    """Show settings, their values and where they come from.

    \b
    Examples:
      perdure config list
      perdure config list --changed
      perdure config list auxiliary.compression
    """
    from perdure.config import keys
    from perdure.config.load import load

    loaded = load(flags=flags, folder=Path.cwd())
    if section is not None and section not in keys.sections():
        keys.find(section)
    rows = []
    for name, key in keys.all_keys().items():
        origin = loaded.origins.get(name, "")
        inside = section is None or name == section or name.startswith(f"{section}.")
        if inside and (origin or not changed):
            rows.append((name, keys.format_value(keys.value_of(loaded.settings, name)), origin, key.description))
    if rows:
        echo_table(
            [(name, f"{value:<12}  {f'from {origin}' if origin else text}") for name, value, origin, text in rows]
        )
    else:
        echo("everything is at its default")


@config.command()
@click.argument("key", required=False)
@click.pass_obj
def get(flags: dict[str, str], key: str | None) -> None:
    """Print the value of KEY that holds now.

    For a section, print all of its keys; without a KEY, all there are.

    \b
    Examples:
      perdure config get model.name
      perdure config get compression
    """
    from perdure.config import keys
    from perdure.config.load import load

    settings = load(flags=flags, folder=Path.cwd()).settings
    if key is None or key in keys.sections():
        for name in keys.all_keys():
            if key is None or name.startswith(f"{key}."):
                click.echo(f"{name} = {keys.format_value(keys.value_of(settings, name))}")
        return
    value = keys.plain(keys.value_of(settings, keys.find(key).name))
    # Asked for by name, a value is printed as it is, so that scripts can use it.
    click.echo(value if isinstance(value, str) else keys.format_value(value))


# A negative number is a value here, not an option.
@config.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("key")
@click.argument("value")
def set_(key: str, value: str) -> None:
    """Write VALUE for KEY to config.yaml.

    It is checked first, and the file keeps its comments. Lists are written with commas, or as YAML in brackets. The
    word null clears a setting that may be empty.

    \b
    Examples:
      perdure config set model.name claude-sonnet-4-5
      perdure config set compression.codex_gpt55_autoraise false
      perdure config set auxiliary.compression.fallback 'openai/gpt-5-mini, groq'
    """
    write_setting(key, value)


def write_setting(key: str, value: str) -> None:
    """Write one setting; report the effective value and what overrides it."""
    from perdure.config import edit, keys
    from perdure.config.env import home_dir

    key = keys.find(key).name
    if key.endswith(".provider"):
        _check_provider(key, value)
    elif key.endswith(("fallback", "fallback_providers")):
        _check_fallbacks(key, value)
    try:
        written = edit.set_value(home_dir(), key, value)
    except ConfigError as error:
        raise ConfigError(f"{error}{_as_share(key, value)}") from None
    echo(f"{key} = {keys.format_value(written.value)}")
    for problem in written.others:
        echo(f"perdure: still wrong: {problem.text}", err=True)
    report_overriding_variable(key)
    section = key.rpartition(".")[0]
    if key.endswith((".provider", ".base_url")) and f"{section}.provider" in keys.all_keys():
        _report_other_address(section)
    if key in ("model.name", "model.provider"):
        _report_unknown_model()
    if section in ("tools", "permissions") or key == "context.engine":
        _report_unknown_names()


def report_overriding_variable(key: str) -> None:
    """Report the environment variable that wins over the file, if it is set."""
    from perdure.config import keys
    from perdure.config.load import overriding_variable

    if variable := overriding_variable(keys.find(key)):
        echo(f"perdure: the variable {variable} is set and wins over the file", err=True)


def _as_share(key: str, value: str) -> str:
    """Explain a threshold that was meant in tokens, with the share that it is of the present window; "" for others."""
    digits = value.replace(",", "").replace("_", "")
    if key != "compression.threshold" or not digits.isdecimal() or int(digits) <= 1:
        return ""
    if (window := _present_window()) is None:
        return ". Of a window of 200,000 tokens, 0.25 is 50,000"
    if int(digits) > window:
        return f". The window has {window:,} tokens; 0.25 of it is {window // 4:,}"
    share = max(0.001, round(int(digits) / window, 3))
    whole = f"{int(digits):,} tokens are {share:g} of the window, which has {window:,}"
    return f". {whole}: `perdure config set {key} {share:g}`"


def _present_window() -> int | None:
    """Return the window of the configured model, which may query its endpoint; None where there is none."""
    from perdure.app.runtime import Shared, shared_loop
    from perdure.config.load import load
    from perdure.store.store import open_user_store

    try:
        loaded = load()
        with open_user_store(loaded.settings, loaded.home) as store:
            shared = Shared(loaded.settings, home=loaded.home, store=store)
            return shared_loop().run(shared.knowledge.window(shared.route.main)).tokens
    except PerdureError:  # what is wrong with the model is not what was asked
        return None


def _report_unknown_model() -> None:
    """Report that nothing here knows the configured model: a typing error shows at the first message otherwise."""
    from perdure.app.model_choices import unknown_model_notice, unlisted_notice
    from perdure.app.runtime import UNSTARTED, route_of
    from perdure.config.load import load

    try:
        settings = load().settings
        if not settings.model.name:
            return
        endpoint = route_of(settings).main
    except ConfigError:  # reported by the first message, with what to do
        return
    notice = unknown_model_notice(settings, endpoint)
    if notice is None and endpoint.base_url != UNSTARTED:
        notice = unlisted_notice(endpoint)
    if notice is not None:
        echo(f"perdure: {notice}. It is stored all the same.", err=True)


def _report_unknown_names() -> None:
    """Print what a chat would warn about: names that no tool, plug-in or engine has."""
    from perdure.app.build import trial_agent
    from perdure.config.load import load

    try:
        loaded = load()
        with trial_agent(loaded.settings, home=loaded.home, folder=loaded.home) as agent:
            warnings = list(agent.warnings)
    except ConfigError as error:
        warnings = [str(error)]
    for warning in warnings:
        echo(f"perdure: warning: {warning}", err=True)


def _report_other_address(section: str) -> None:
    """Report that the key of a provider will be sent to an address that is not its own."""
    from perdure.cli.style import runnable
    from perdure.config import keys
    from perdure.config.load import load
    from perdure.providers.registry import find_provider, is_endpoint_of

    try:
        settings = load().settings
    except ConfigError:  # reported when the value was written
        return
    base_url, provider = (keys.value_of(settings, f"{section}.{name}") for name in ("base_url", "provider"))
    row = find_provider(provider)
    if not base_url or row is None or is_endpoint_of(base_url, None, row.name):
        return
    own = f"calls {row.name} at its own address" if row.base_url else f"leaves {row.name} without an address"
    text = (
        f"perdure: {section}.base_url is {base_url}: {row.name} is called there, and its key is sent there."
        f" If that is not what you want: `perdure config unset {section}.base_url` {own},"
        f" `perdure config unset {section}.provider` calls {base_url} without that key."
    )
    echo(runnable(text), err=True)


def _check_fallbacks(key: str, value: str) -> None:
    """Reject a list with a provider that no call could be sent to. Raises ConfigError."""
    from pydantic import ValidationError

    from perdure.config import keys
    from perdure.config.load import from_text
    from perdure.config.settings import RouteSettings
    from perdure.providers.registry import find_provider
    from perdure.providers.routes import describe_unknown_provider

    try:
        items = from_text(keys.find(key), value)
        routes = [RouteSettings.model_validate(item) for item in items] if isinstance(items, list) else []
    except (ConfigError, ValidationError):  # reported when the value is written
        return
    for route in routes:
        if not route.base_url and find_provider(route.provider) is None:
            raise ConfigError(f"{key}: {describe_unknown_provider(route.provider)}")


def _check_provider(key: str, value: str) -> None:
    """Reject a provider that is unknown and has no address; warn of a mistyped one. Raises ConfigError."""
    from difflib import get_close_matches

    from perdure.config import keys
    from perdure.config.load import load
    from perdure.providers.registry import PROVIDERS, find_provider
    from perdure.providers.routes import describe_unknown_provider

    name = value.strip()
    if name in ("null", "~", "auto", "main") or find_provider(name) is not None:
        return
    base_url = f"{key.rpartition('.')[0]}.base_url"
    try:
        has_address = keys.value_of(load().settings, base_url) is not None
    except ConfigError:  # another problem in the file, reported when the value is written
        return
    if not has_address:
        raise ConfigError(f"{describe_unknown_provider(name)}. For one of your own set {base_url} first")
    if close := get_close_matches(name, [row.name for row in PROVIDERS], n=1, cutoff=0.8):
        echo(f"perdure: {name!r} is not a known provider; did you mean {close[0]!r}?", err=True)


@config.command()
@click.argument("key")
def unset(key: str) -> None:
    """Take KEY out of config.yaml; its default holds again.

    \b
    Examples:
      perdure config unset compression.threshold
    """
    from perdure.config import edit, keys
    from perdure.config.env import home_dir

    was_set = edit.unset_value(home_dir(), key)
    default = keys.format_value(keys.find(key).default)
    echo(f"{key} = {default}, the default" if was_set else f"{key} was not in config.yaml; its default is {default}")


@config.command()
def path() -> None:
    """Print where config.yaml is, or would be.

    \b
    Examples:
      cat "$(perdure config path)"
    """
    from perdure.config.env import CONFIG_FILE, home_dir

    click.echo(str(home_dir() / CONFIG_FILE))


@config.command("edit")
def edit_() -> None:
    """Open config.yaml in your editor, then check it.

    The editor is $VISUAL or $EDITOR. A new file starts with every setting in it, commented out.

    \b
    Examples:
      EDITOR=nano perdure config edit
    """
    from perdure.config import edit
    from perdure.config.env import CONFIG_FILE, home_dir, make_home
    from perdure.config.load import check_file

    path = make_home(home_dir()) / CONFIG_FILE
    if not path.exists():
        edit.write_private(path, edit.template())
    edit_file(path)
    path.chmod(0o600)  # an editor may have written a new file in its place
    check_file(path)
    echo(f"{path} is fine")
