"""`perdure doctor`: check configuration, keys, endpoints and the database."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import click

from perdure.app.build import trial_agent
from perdure.app.model_choices import unknown_model_notice
from perdure.app.runtime import UNSTARTED, Shared, key_problem, shared_loop
from perdure.cli.output import columns, echo_json
from perdure.cli.style import Style, column_count, runnable, wrap_words
from perdure.commands.context import price_command
from perdure.config.api_keys import StoredKeys, origin_of, overrides_stored_key
from perdure.config.env import make_home
from perdure.config.keys import mask
from perdure.config.load import Loaded, load
from perdure.core.addresses import is_local_url
from perdure.core.errors import ConfigError, ModelNotNamed, PerdureError, StoreUnavailable
from perdure.core.usage import CanonicalUsage
from perdure.models.catalog import is_subscription
from perdure.providers.codec import caching_notice
from perdure.providers.discovery import local_servers
from perdure.providers.local import INSTALL, find_weights, has_runtime, packaged_weights
from perdure.providers.model_probe import request_listing
from perdure.providers.registry import PROVIDERS, missing_key
from perdure.providers.types import Endpoint
from perdure.store.records import Damage
from perdure.store.store import SessionStore, open_user_store

_TIMEOUT_S = 5.0
# How long the database, and then the stored messages, are checked for damage.
_VERIFY_S = 5.0
# Source of the window size.
_WINDOW_SOURCES = {
    "config": "from your settings",
    "learned": "stated by the service in an error",
    "catalogue": "from the catalogue",
    "endpoint": "stated by the endpoint",
    "default": "assumed: nobody says how large it is",
}


@dataclass(frozen=True, slots=True)
class Check:
    """A check with its result; `advice` is the next step."""

    name: str
    state: Literal["ok", "note", "broken"]
    detail: str
    advice: str = ""


def checks(flags: Mapping[str, Any], *, is_offline: bool = False) -> Iterator[Check]:
    """Every finding as it is made; what rests on something broken is left out."""
    try:
        loaded = load(flags=flags)
    except PerdureError as error:
        yield Check("config", "broken", str(error), "mend it with `perdure config edit`")
        return
    yield Check("config", "ok", str(loaded.path) if loaded.path.exists() else "no config.yaml: the defaults apply")
    home = _home(loaded.home)
    yield home
    if home.state == "broken":
        return
    yield _keys(loaded.home)
    yield from _unused_servers(loaded)
    yield _embedded_model()
    try:
        store = open_user_store(loaded.settings, loaded.home)
    except PerdureError as error:
        # An unavailable store says itself what to do; the file is not to blame.
        advice = (
            "" if isinstance(error, StoreUnavailable) else "restore a backup, or move the file away and start afresh"
        )
        yield Check("database", "broken", str(error), advice)
        return
    with store:
        yield _database(store)
        yield _messages(store)
        yield from _model(loaded, store, is_offline=is_offline)
        yield from _names(loaded, store)
    if not is_offline:
        yield _servers(loaded.settings.model.base_url)


def _home(home: Path) -> Check:
    try:
        make_home(home)
        trial = home / ".doctor"
        trial.write_text("", encoding="utf-8")
        trial.unlink()
    except PerdureError as error:
        return Check("home", "broken", str(error), "set PERDURE_HOME to a folder you may write to")
    except OSError as error:
        return Check("home", "broken", f"{home} cannot be written to: {error.strerror}", "set PERDURE_HOME to another")
    if os.name == "posix" and home.stat().st_mode & 0o077:
        return Check("home", "note", f"{home} can be read by others", f"chmod 700 {home}")
    return Check("home", "ok", str(home))


def _keys(home: Path) -> Check:
    """Return which keys there are and where each is read from; the keys themselves stay unread."""
    try:
        sources = StoredKeys(home).sources()
    except ConfigError as error:
        return Check("keys", "broken", str(error), "`perdure login PROVIDER` replaces the file")
    variables = dict.fromkeys(v for s in PROVIDERS for v in s.key_variables if overrides_stored_key(v))
    key_sources = {**dict.fromkeys(variables, "environment"), **{name: where[0] for name, where in sources.items()}}
    if key_sources:
        return Check("keys", "ok", ", ".join(f"{name} ({where})" for name, where in key_sources.items()))
    remedy = "`perdure login PROVIDER`, or export ANTHROPIC_API_KEY=…, OPENAI_API_KEY=…, …"
    return Check("keys", "note", "none in the environment, none stored", remedy)


def _unused_servers(loaded: Loaded) -> Iterator[Check]:
    """Yield a note for each server that has a stored key and is in no setting, so that nothing calls it."""
    with suppress(ConfigError):  # reported with the keys
        used = {origin_of(url) for url in _base_urls(loaded.settings.model_dump())}
        for name in StoredKeys(loaded.home).locations():
            if "://" in name and name not in used:
                advice = f"choose one of its models with /model, or `perdure login --remove {name}`"
                yield Check("keys", "note", f"nothing uses the key for {name}", advice)


def _base_urls(section: Mapping[str, Any]) -> Iterator[str]:
    """Yield every `base_url` in a section of the settings and in those below it."""
    for name, value in section.items():
        if name == "base_url" and value:
            yield str(value)
        for inner in value if isinstance(value, list | tuple) else (value,):
            if isinstance(inner, Mapping):
                yield from _base_urls(inner)


def _embedded_model() -> Check:
    weights = packaged_weights()
    if weights is not None and has_runtime():
        return Check("embedded", "ok", f"{weights.name}, for trying things out without a key")
    return Check("embedded", "note", "not installed", INSTALL)


def _database(store: SessionStore) -> Check:
    try:
        newest = store.conversations.list(limit=1).conversations
        check = store.verifier.database(timeout_s=_VERIFY_S)
    except PerdureError as error:
        return Check("database", "broken", str(error), "restore a backup with store.path")
    if problems := check.problems:
        detail = f"{len(problems):,} damaged; the first: {problems[0]}"
        return Check("database", "broken", detail, "`perdure sessions verify` lists them; restore them from a backup")
    title = f"“{newest[0].title}”" if newest and newest[0].title else ""
    detail = f"newest conversation: {title or newest[0].id}" if newest else "no conversations yet"
    rest = "" if check.is_complete else "; `perdure sessions verify` checks all of it"
    return Check("database", "ok", f"opens and reads; {detail}{rest}")


def _messages(store: SessionStore) -> Check:
    """Whether stored messages are what was stored; of a very large store those last used."""
    deadline = time.monotonic() + _VERIFY_S
    count, is_cut_off = 0, False
    damage: list[Damage] = []
    try:
        for batch in store.verifier.everything():
            count += batch.messages
            damage += batch.damage
            if time.monotonic() > deadline:
                is_cut_off = True
                break
    except PerdureError as error:
        return Check("messages", "broken", str(error), "restore a backup with store.path")
    if damage:
        servers = f"{len(damage):,} damaged, of {count:,} checked; the first: {damage[0]}"
        return Check("messages", "broken", servers, "`perdure sessions verify` lists them; restore them from a backup")
    rest = "; `perdure sessions verify` checks the rest" if is_cut_off else ""
    return Check("messages", "ok", f"{count:,} checked, none damaged{rest}")


def _model(loaded: Loaded, store: SessionStore, *, is_offline: bool) -> Iterator[Check]:
    """Check the route, whether it answers, and its window."""
    try:
        shared = Shared(loaded.settings, home=loaded.home, store=store)
    except PerdureError as error:
        detail, advice = str(error), "`perdure config set model.provider NAME` and `model.name NAME`"
        if isinstance(error, ModelNotNamed):
            advice = f"`perdure config set model.name {error.models[0]}`"
            detail = f"{error.base_url} lists {len(error.models)} models and none is chosen: {', '.join(error.models)}"
        elif "perdure " in detail:  # it has the next step
            detail, _, advice = detail.rpartition(": ")
        yield Check("model", "broken", detail, advice)
        return
    endpoint = shared.route.main
    named = f"{endpoint.model} ({endpoint.provider}, {endpoint.api_mode})"
    if endpoint.address_variable is not None:
        named += f", at {mask(endpoint.base_url)} ({endpoint.address_variable})"
    if unknown := unknown_model_notice(loaded.settings, endpoint):
        yield Check("model", "note", f"{named}; {unknown}", "`perdure config set model.name NAME`")
    else:
        yield Check("model", "ok", named)
    if caching := caching_notice(endpoint.provider, endpoint.model, loaded.settings.prompt_caching.cache_ttl):
        yield Check("caching", "ok", caching)
    if endpoint.base_url == UNSTARTED:
        if packaged_weights() is None or not has_runtime():
            yield Check("endpoint", "broken", "no key is set, and there is no embedded model to fall back on", INSTALL)
        else:
            yield _weights(endpoint.model)
    elif (problem := missing_key(endpoint)) and not loaded.settings.credentials.command:
        yield Check("endpoint", "broken", problem.partition(":")[0], problem.partition(": ")[2])
    elif not is_offline:
        yield _answers(endpoint)
    yield from _price(shared, endpoint)
    window = shared_loop().run(shared.knowledge.window(endpoint))
    is_own = endpoint.base_url == UNSTARTED and loaded.settings.model.context_length is None
    source = "as it is started here" if is_own else _WINDOW_SOURCES[window.source]
    if window.source == "default":
        advice = f"`perdure config set model.context_length {window.tokens}`, with the figure of your model"
        yield Check("window", "note", f"{window.tokens:,} tokens ({source})", advice)
    else:
        yield Check("window", "ok", f"{window.tokens:,} tokens ({source})")


def _price(shared: Shared, endpoint: Endpoint) -> Iterator[Check]:
    is_priced = shared.knowledge.cost_usd(endpoint, CanonicalUsage(input_tokens=1, output_tokens=1)) is not None
    if not is_priced and not is_subscription(endpoint.provider):
        advice = f"`{price_command(endpoint.model)}`, in dollars for a million tokens"
        yield Check("price", "note", f"none known for {endpoint.model}: its cost is shown as unknown", advice)


def _names(loaded: Loaded, store: SessionStore) -> Iterator[Check]:
    """Check for names in the settings that no tool, plug-in, engine or provider has."""
    try:
        with trial_agent(loaded.settings, home=loaded.home, folder=Path.cwd(), store=store) as agent:
            warnings = list(agent.warnings)
    except PerdureError as error:
        yield Check("settings", "broken", str(error), "mend it with `perdure config edit`")
        return
    for warning in warnings:
        yield Check("settings", "note", warning, "mend it with `perdure config edit`")


def _weights(model: str) -> Check:
    try:
        find_weights(model)
    except ConfigError as error:
        what, _, advice = str(error).partition(": ")
        return Check("endpoint", "broken", what, f"{advice}; or set model.base_url, if a server of yours has it")
    return Check("endpoint", "ok", "the embedded model, started with the first message")


def _answers(endpoint: Endpoint) -> Check:
    """Request the list of models: it is free, and refused where the key is invalid."""
    try:
        listing = request_listing(endpoint, time_limit_s=_TIMEOUT_S)
    except ConfigError as error:
        return Check("endpoint", "broken", str(error))
    status, models = listing.status, listing.names
    if status is None:
        why = f"{endpoint.base_url} cannot be reached ({listing.problem})"
        return Check("endpoint", "broken", why, f"check {endpoint.address_name}, the server and your network")
    if status in (401, 403):
        what, _, advice = key_problem(endpoint, status).rpartition(": ")
        return Check("endpoint", "broken", what, advice)
    if status >= 500:
        return Check("endpoint", "note", f"{endpoint.base_url} answers with {status}", "it may be down; try later")
    if models and endpoint.model not in models and is_local_url(endpoint.base_url):
        near = f"it lists {', '.join(models[:5])}{' …' if models[5:] else ''}"
        return Check("endpoint", "note", f"{endpoint.base_url} answers, but does not list {endpoint.model}", near)
    return Check("endpoint", "ok", f"{endpoint.base_url} answers")


def _servers(address: str | None) -> Check:
    """List the model servers of this machine; `address` is the one that is configured."""
    servers = local_servers()
    if not servers:
        other = "other " if address is not None and is_local_url(address) else ""
        return Check("servers", "ok", f"no {other}model server on the usual ports of this machine")
    addresses = "; ".join(f"{s.name} at {s.base_url}" for s in servers)
    return Check("servers", "ok", addresses, "`perdure models --local` lists their models and how to use one")


_MARKS = {"ok": "ok", "note": "note", "broken": "BROKEN"}


# Where the details begin.
_DETAIL_COLUMN = 20
_NARROW_COLUMN = 4


def _rows(texts: Sequence[str], width: int | None) -> tuple[int, list[str]]:
    """Return where the details begin, and their rows, broken between words; unbroken unless the output is a terminal.

    They begin below the name in a narrow terminal, and where a path or an address would not fit beside it.
    """
    if width is None:
        return _DETAIL_COLUMN, list(texts)
    for column in (_DETAIL_COLUMN, _NARROW_COLUMN):
        rows = [row for text in texts for row in wrap_words(text, width - column)]
        if width >= 2 * _DETAIL_COLUMN + 10 and max(map(column_count, rows)) <= width - column:
            break
    return column, rows


@click.command()
@click.option("--offline", is_flag=True, help="Ask no server.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each check.")
@click.pass_obj
def doctor(flags: dict[str, str], offline: bool, as_json: bool) -> None:
    """Check keys, home, database, endpoint, window and embedded model.

    Says for each what was found and, where something is amiss, what to do. Keys are never printed. Nothing is sent to a
    model, so nothing is charged. Exit status 1 where something is broken.

    \b
    Examples:
      perdure doctor
      perdure doctor --offline
      perdure --set model.provider=anthropic doctor
      perdure doctor --json | jq 'select(.state != "ok")'
    """
    is_broken = False
    for check in checks(flags or {}, is_offline=offline):
        is_broken |= check.state == "broken"
        if as_json:
            echo_json(asdict(check))
        else:
            _show(check)
    if is_broken:
        raise SystemExit(1)


def _show(check: Check) -> None:
    from perdure.config.env import wants_color

    ink = Style(sys.stdout.isatty() and wants_color("auto"))
    paint = {"ok": ink.good, "note": ink.warn, "broken": ink.bad}
    texts = [check.detail, f"→ {runnable(check.advice)}"] if check.advice else [check.detail]
    column, rows = _rows(texts, columns())
    start = f"{paint[check.state](f'{_MARKS[check.state]:<6}')}  {check.name:<10}  "
    if column < _DETAIL_COLUMN:
        click.echo(start.rstrip())
        start = " " * column
    for row in rows:
        click.echo(f"{start}{row}")
        start = " " * column
