"""Changes the user's `config.yaml`: validated first, comments kept, written whole or not at all, mode 0600."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.config import document, keys, splice
from perdure.config.deprecated import rename_settings
from perdure.config.document import Document
from perdure.config.home import CONFIG_FILE, make_home
from perdure.config.load import check, filled, from_text, put
from perdure.config.problems import Problem, as_error
from perdure.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class EditResult:
    """The value that now stands in the file, and what else is wrong in it, as it was before."""

    value: Any
    others: tuple[Problem, ...]


def set_value(home: Path, name: str, text: str) -> EditResult:
    """Writes one setting, checked first. Wrong values elsewhere in the file are not held against it."""
    key = keys.find(name)
    name = key.name
    with _locked(make_home(home)):
        file = document.read(home / CONFIG_FILE)
        data = deepcopy(file.data)
        put(data, key.path, from_text(key, text))
        origins = {k: v for k, v in file.origins.items() if not _is_within(k, name)} | {name: "the command line"}
        settings, found = check(*rename_settings(data, origins))
        # A wrong value of its own, or something on its way that is no section.
        if in_the_way := [p for p in found if _is_within(p.name, name) or _is_within(name, p.name)]:
            raise as_error(in_the_way)
        value = keys.plain(keys.value_of(settings, name) if settings else _alone(key, text))
        put(data, key.path, value)
        _write(file, splice.with_value(file.text, key.path, value), data)
        return EditResult(value, found)


def unset_value(home: Path, name: str) -> bool:
    """Takes one setting out of the file, so that its default holds; False where it was not in it."""
    key = keys.find(name)
    file = document.read(home / CONFIG_FILE)
    # It may stand there by its old name.
    path = tuple(name.split(".")) if name in file.origins else key.path
    if ".".join(path) not in file.origins:
        return False
    with _locked(make_home(home)):
        file = document.read(home / CONFIG_FILE)
        text = splice.without(file.text, path)
        data = deepcopy(file.data)
        node = data
        for part in path[:-1]:
            node = node[part]
        del node[path[-1]]
        _write(file, text, data)
    return True


def template() -> str:
    """A first `config.yaml`: every key with its meaning, all of it commented out."""
    lines = ["# Perdure's settings. Take the '#' off a line to change it; `perdure config list` shows what holds."]
    open_sections: tuple[str, ...] = ()
    for key in keys.all_keys().values():
        parents = key.path[:-1]
        for depth, part in enumerate(parents):
            if open_sections[: depth + 1] != parents[: depth + 1]:
                lines += ([""] if depth == 0 else []) + [f"#{'  ' * depth}{part}:"]
        if not parents:
            lines.append("")
        open_sections = parents
        indent = "  " * len(parents)
        lines.append(f"#{indent}# {key.description} ({key.allowed})")
        lines.append(f"#{indent}{key.path[-1]}: {keys.shown(key.default)}")
    return "\n".join(lines) + "\n"


def write_private(path: Path, text: str) -> None:
    """Replaces a file in one step, readable by its owner alone; a link keeps pointing where it did."""
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        temporary.unlink(missing_ok=True)
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(text.encode())
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise ConfigError(f"cannot write {path}: {error.strerror}; nothing was changed") from None


def _is_within(name: str, whole: str) -> bool:
    return name == whole or name.startswith((f"{whole}.", f"{whole}["))


def _alone(key: keys.Key, text: str) -> Any:
    """The value as the settings take it, where the rest of the file is wrong and cannot be read along with it."""
    data: dict[str, Any] = {}
    put(data, key.path, from_text(key, text))
    settings, found = check(data, {})
    if settings is None:
        raise as_error(found)
    return keys.value_of(settings, key.name)


def _write(file: Document, text: str, meant: dict[str, Any]) -> None:
    """Only what reads back as meant is written: a user's file is never damaged by a corner of YAML."""
    try:
        is_as_meant = filled(document.parse(text, file.path).data) == filled(meant)
    except ConfigError:
        is_as_meant = False
    if not is_as_meant:
        raise ConfigError(f"{file.path} is written in a way that cannot be changed safely; use `perdure config edit`")
    write_private(file.path, text.replace("\n", "\r\n") if file.has_crlf else text)


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[None]:
    """One writer at a time, so that two `config set` at once both count."""
    try:
        import fcntl
    except ImportError:  # Windows has none; there the last writer wins
        yield
        return
    try:
        handle = os.open(home, os.O_RDONLY)
    except OSError as error:
        raise ConfigError(f"cannot open the folder {home}: {error.strerror}; check its permissions") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
