"""Where Perdure keeps a user's files, and the little it asks of the environment besides settings and API keys."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from perdure.core.errors import ConfigError

CONFIG_FILE = "config.yaml"
# What handoffs in plain message lists are sealed with.
KEY_FILE = "handoff.key"


def home_dir(environ: Mapping[str, str] | None = None) -> Path:
    """`$PERDURE_HOME`, else `~/.perdure`; absolute, and not made by asking."""
    environ = os.environ if environ is None else environ
    given = environ.get("PERDURE_HOME", "").strip()
    place = Path(given or "~/.perdure")
    # HOME from the mapping handed in, so that a test or a service never meets the real one.
    user = environ.get("HOME") or environ.get("USERPROFILE")
    if user and place.parts[0] == "~":
        return Path(user, *place.parts[1:]).absolute()
    try:
        return place.expanduser().absolute()
    except RuntimeError:
        raise ConfigError("no home folder can be found; set PERDURE_HOME to a folder Perdure may use") from None


def make_home(home: Path) -> Path:
    """The folder, made for its owner alone if it is not there yet."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot make the folder {home}: {error.strerror}; set PERDURE_HOME to a folder Perdure may write to"
        ) from None
    return home


def installation_key(home: Path) -> bytes:
    """A random key that only this installation has, made when it is first needed. Raises ConfigError."""
    path = home / KEY_FILE
    try:
        if not path.exists():
            make_home(home)
            # Complete before it bears its name: another process may be about to do the same.
            with tempfile.NamedTemporaryFile("w", dir=home, prefix=KEY_FILE, delete=False) as file:
                file.write(secrets.token_hex(32))
            try:
                os.link(file.name, path)
            except FileExistsError:
                pass
            finally:
                os.unlink(file.name)
        return bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot use the key file {path}: {error}; remove it, and a new one is made") from None


def editor(environ: Mapping[str, str] | None = None) -> str | None:
    """The user's editor as a command line, or None where none is named."""
    environ = os.environ if environ is None else environ
    return environ.get("VISUAL", "").strip() or environ.get("EDITOR", "").strip() or None


def shell_environment(environ: Mapping[str, str] | None = None, *, without: Iterable[str] = ()) -> dict[str, str]:
    """What commands the agent runs find in their environment: the user's own, less the variables named."""
    environ = os.environ if environ is None else environ
    hidden = set(without)
    return {k: v for k, v in environ.items() if k not in hidden}
