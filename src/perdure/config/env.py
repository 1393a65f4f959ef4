"""Values read from the process environment: home folder, credentials, TLS, proxies, terminal."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from perdure.core.errors import ConfigError

CONFIG_FILE = "config.yaml"
# What handoffs in plain message lists are sealed with.
KEY_FILE = "handoff.key"


def home_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Return `$PERDURE_HOME`, else `~/.perdure`, as an absolute path; the folder is not created."""
    environ = os.environ if environ is None else environ
    configured = environ.get("PERDURE_HOME", "").strip()
    path = Path(configured or "~/.perdure")
    # HOME from the mapping handed in, so that a test or a service never meets the real one.
    user = environ.get("HOME") or environ.get("USERPROFILE")
    if user and path.parts[0] == "~":
        return Path(user, *path.parts[1:]).absolute()
    try:
        return path.expanduser().absolute()
    except RuntimeError:
        raise ConfigError("no home folder can be found; set PERDURE_HOME to a folder Perdure may use") from None


def own_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the PERDURE_ variables that are set, without those that may hold a secret."""
    environ = os.environ if environ is None else environ
    return {k: v for k, v in environ.items() if k.startswith("PERDURE_") and v.strip() and not is_secret_name(k)}


def variable_with_value(names: Iterable[str], value: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the first of these variables that has exactly this value, or None."""
    environ = os.environ if environ is None else environ
    return next((name for name in names if environ.get(name) == value), None)


def is_secret_name(name: str) -> bool:
    """Whether a variable or a setting of that name may hold a secret."""
    return any(word in name.upper() for word in ("KEY", "TOKEN", "SECRET", "PASSWORD", "COMMAND"))


def make_home(home: Path) -> Path:
    """Return the home folder; created with owner-only permissions if it does not exist."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot make the folder {home}: {error.strerror}; set PERDURE_HOME to a folder Perdure may write to"
        ) from None
    return home


@contextlib.contextmanager
def lock_home(home: Path, file_name: str | None = None) -> Iterator[None]:
    """Hold the lock of the home folder, or of a lock file in it, so that one process writes at a time.

    Where files cannot be locked (Windows, some network drives), the last writer wins. Raises ConfigError.
    """
    folder = make_home(home)
    try:
        import fcntl
    except ImportError:
        yield
        return
    try:
        if file_name is None:
            handle = os.open(folder, os.O_RDONLY)
        else:
            handle = os.open(folder / file_name, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot open the folder {home}: {error.strerror}; check its permissions") from None
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def installation_key(home: Path) -> bytes:
    """Return the random secret of this installation, created on first use. Raises ConfigError."""
    path = home / KEY_FILE
    try:
        if not path.exists():
            import secrets  # slow to import, and rarely needed

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


def local_timezone(environ: Mapping[str, str] | None = None, *, link: Path = Path("/etc/localtime")) -> str:
    """Return the name of this machine's time zone, from TZ or the system's link; UTC where it has no usable name."""
    from zoneinfo import ZoneInfo  # slow to import, and few commands need it

    environ = os.environ if environ is None else environ
    name = environ.get("TZ", "").strip().lstrip(":") or str(link.resolve())
    name = name.rpartition("zoneinfo/")[2].removeprefix("posix/").removeprefix("right/")
    try:
        return ZoneInfo(name).key
    except (KeyError, ValueError, OSError):  # "CET-1CEST", a file without a name
        return "UTC"


def editor(environ: Mapping[str, str] | None = None) -> str | None:
    """Return the user's editor as a command line, or None where none is named."""
    environ = os.environ if environ is None else environ
    return environ.get("VISUAL", "").strip() or environ.get("EDITOR", "").strip() or None


def user_shell(command: str, environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the arguments that run a command in the user's own shell."""
    environ = os.environ if environ is None else environ
    if os.name == "nt":
        return [environ.get("COMSPEC", "cmd.exe"), "/c", command]
    return [environ.get("SHELL", "").strip() or "/bin/sh", "-c", command]


# One option of less for its short prompt; a colon and a full stop are special in it.
_LESS_PROMPT = r"-PsSpace turns a page, / searches, q closes; then type?e (end).\ "


def pager(environ: Mapping[str, str] | None = None) -> list[str] | None:
    """Return the user's pager as arguments, `less` by default; None where there is none."""
    environ = os.environ if environ is None else environ
    command = shlex.split(environ.get("PAGER", "").strip()) or ["less"]
    if shutil.which(command[0]) is None:
        return None
    if Path(command[0]).name != "less":
        return command
    # A prompt of the user's own, in PAGER or LESS, stays.
    has_prompt = any(option.startswith(("-P", "--prompt")) for option in (*command, *environ.get("LESS", "").split()))
    prompt = [] if has_prompt else [_LESS_PROMPT]
    # Without the alternate screen: what was read stays visible when the pager is closed.
    return [*command, *prompt, *(option for option in ("-X", "-R") if option not in command)]


def shell_environment(environ: Mapping[str, str] | None = None, *, without: Iterable[str] = ()) -> dict[str, str]:
    """Return the environment for commands that the agent runs: the user's, without the variables in `without`."""
    environ = os.environ if environ is None else environ
    hidden = set(without)
    return {k: v for k, v in environ.items() if k not in hidden}


FILE, FOLDER = "SSL_CERT_FILE", "SSL_CERT_DIR"


def own_authorities(environ: Mapping[str, str] | None = None) -> tuple[str | None, str | None]:
    """Return the CA file and CA folder that the environment configures, each None if it does not."""
    environ = os.environ if environ is None else environ
    return environ.get(FILE, "").strip() or None, environ.get(FOLDER, "").strip() or None


_VARIABLES = ("http_proxy", "https_proxy", "all_proxy")


def has_proxy(environ: Mapping[str, str] | None = None) -> bool:
    """Whether a proxy variable (HTTP_PROXY, https_proxy, …) is set."""
    environ = os.environ if environ is None else environ
    return any(environ.get(name, "").strip() or environ.get(name.upper(), "").strip() for name in _VARIABLES)


def is_dumb(environ: Mapping[str, str] | None = None) -> bool:
    """Whether the terminal can only print lines (TERM is dumb or unknown)."""
    environ = os.environ if environ is None else environ
    return environ.get("TERM", "").lower() in ("dumb", "unknown")


def find_rewrap_mode(environ: Mapping[str, str] | None = None) -> Literal["no", "text", "cleared"]:
    """Return whether the terminal re-wraps text when its width changes, and in tmux also cells cleared since."""
    environ = os.environ if environ is None else environ
    if environ.get("TMUX"):
        return "cleared"
    is_plain = environ.get("XTERM_VERSION") or environ.get("TERM", "").startswith(("linux", "rxvt", "screen"))
    return "no" if is_plain else "text"


def wants_color(choice: Literal["auto", "always", "never"], environ: Mapping[str, str] | None = None) -> bool:
    """Resolve `display.color`; "auto" follows NO_COLOR and dumb terminals."""
    environ = os.environ if environ is None else environ
    if choice != "auto":
        return choice == "always"
    return not environ.get("NO_COLOR") and not is_dumb(environ)
