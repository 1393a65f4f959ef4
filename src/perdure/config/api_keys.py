"""API keys: from the environment, else as `perdure login` stored them.

Stored keys are in the system keyring where one is usable, else in a file that only its owner can read.

A small file in the home folder lists which keys are stored and where, so that a start without stored keys never waits
for a keyring. With a keyring the file holds names alone.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from perdure.config.env import home_dir, lock_home
from perdure.core.errors import ConfigError
from perdure.core.files import PRIVATE_MODE, replace_file

FILE = "perdure-keys.json"
SERVICE = "perdure"
# In place of a key, where `perdure login` stored a login: its tokens change, and are set for each call.
LOGIN_KEY = "perdure-login"
Location = Literal["keyring", "file"]


class Keyring(Protocol):
    """The part of a keyring backend that is used; each call may raise."""

    def get_password(self, service: str, username: str) -> str | None: ...

    def set_password(self, service: str, username: str, password: str) -> None: ...

    def delete_password(self, service: str, username: str) -> None: ...


def system_keyring() -> Keyring | None:
    """Return the keyring of the desktop or the system; None where the package is missing or no backend is usable."""
    try:
        backend: Any = import_module("keyring").get_keyring()
        # Backends that refuse everything or store nothing have a low priority; a plain file is not safer than ours.
        is_usable = float(backend.priority) >= 1 and "Plaintext" not in type(backend).__name__
    except Exception:  # not installed; or a backend failed, which may probe D-Bus, sockets and other programs
        return None
    return backend if is_usable else None


class StoredKeys:
    """API keys that `perdure login` stored, by the environment variable they replace or the address they are for."""

    def __init__(self, home: Path, *, open_keyring: Callable[[], Keyring | None] = system_keyring) -> None:
        self._home = home
        self._open_keyring = open_keyring

    @property
    def path(self) -> Path:
        return self._home / FILE

    def locations(self) -> dict[str, Location]:
        """Return the names of the stored keys and where each is. Raises ConfigError for a file that cannot be read."""
        return {name: "file" if "key" in entry else "keyring" for name, entry in self._read().items()}

    def sources(self) -> dict[str, list[str]]:
        """Describe where each stored key is found, in order of precedence: the environment, then keyring or file."""
        locations = {"keyring": "system keyring", "file": str(self.path)}
        return {
            name: [*(["environment"] if overrides_stored_key(name) else []), locations[location]]
            for name, location in self.locations().items()
        }

    def get(self, name: str) -> str | None:
        """Return the key, or None. Raises ConfigError where a keyring that has it cannot be opened."""
        entry = self._read().get(name)
        if entry is None:
            return None
        if "key" in entry:
            return str(entry["key"]) or None
        backend = self._open_keyring()
        if backend is None:
            raise ConfigError(f"{name} is in the system keyring, which cannot be used here; set the variable instead")
        with _explain_errors(name):
            return backend.get_password(SERVICE, name)

    def put(self, name: str, key: str) -> Location:
        """Store a key in the keyring, or in the private file without one; return which. Raises ConfigError."""
        backend = self._open_keyring()
        if backend is not None:
            try:
                backend.set_password(SERVICE, name, key)
            except Exception:  # locked, or refused by the user: the file is there for that
                backend = None
        with lock_home(self._home):
            entries: dict[str, dict[str, Any]] = {}
            with contextlib.suppress(ConfigError):  # a damaged file is replaced
                entries = self._read()
            self._write({**entries, name: {} if backend is not None else {"key": key}})
        return "keyring" if backend is not None else "file"

    def remove(self, name: str) -> bool:
        """Remove a key; False where none is stored. Raises ConfigError."""
        entry = self._read().get(name)
        if entry is None:
            return False
        backend = self._open_keyring() if "key" not in entry else None
        if backend is not None:
            with _explain_errors(name):
                if backend.get_password(SERVICE, name) is not None:
                    backend.delete_password(SERVICE, name)
        with lock_home(self._home):
            self._write({stored: entry for stored, entry in self._read().items() if stored != name})
        return True

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot read the stored keys in {self.path}: {error}; `perdure login` again") from None
        entries = data.items() if isinstance(data, dict) else ()
        return {str(name): entry for name, entry in entries if isinstance(entry, dict)}

    def _write(self, entries: dict[str, dict[str, Any]]) -> None:
        try:
            replace_file(self.path, json.dumps(entries, indent=2).encode(), mode=PRIVATE_MODE)
        except OSError as error:
            raise ConfigError(f"cannot write {self.path}: {error.strerror}; nothing was stored") from None


@contextlib.contextmanager
def _explain_errors(name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # backends raise what their own libraries raise
        raise ConfigError(f"the system keyring did not give {name}: {type(error).__name__}; set the variable") from None


def origin_of(base_url: str) -> str | None:
    """Return scheme, host and port of a URL, under which a key for that address alone is stored.

    None for an invalid URL.
    """
    try:
        parts = urlsplit(base_url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:  # an invalid port, an unclosed bracket
        return None
    if parts.scheme not in ("http", "https") or not host:
        return None
    host = f"[{host}]" if ":" in host else host
    is_default = port is None or port == {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{host}" if is_default else f"{parts.scheme}://{host}:{port}"


def stored_servers() -> list[str]:
    """Return the origins of the user's servers that have a stored key; reads no key."""
    try:
        return [name for name in StoredKeys(home_dir()).locations() if "://" in name]
    except ConfigError:  # reported where a key is needed
        return []


def overrides_stored_key(variable: str, environ: Mapping[str, str] | None = None) -> bool:
    """Whether the environment has a key in `variable`, which takes precedence over a stored one."""
    environ = os.environ if environ is None else environ
    return bool(environ.get(variable, "").strip())


def api_key_for(variable: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the key in the environment variable, else the one `perdure login` stored for it, else None.

    White space is stripped. For a stored login it is LOGIN_KEY. If the caller passes `environ`, stored keys are
    ignored.
    """
    if environ is not None:
        return environ.get(variable, "").strip() or None
    key = os.environ.get(variable, "").strip() or StoredKeys(home_dir()).get(variable)
    return LOGIN_KEY if key is not None and is_login(key) else key


def is_login(stored: str) -> bool:
    """Whether a stored value is a login (a JSON object) rather than an API key."""
    return stored.startswith("{")
