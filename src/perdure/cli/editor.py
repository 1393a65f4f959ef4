"""Opens a file in the user's editor."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from perdure.config.home import editor
from perdure.core.errors import ConfigError

# Tried in order where the user names none; each is what some system calls its simple editor.
_COMMON = ("sensible-editor", "nano", "vim", "vi", "notepad")


def edit_file(path: Path, environ: Mapping[str, str] | None = None) -> None:
    """Waits until the editor is closed. Raises ConfigError where there is none, or it failed."""
    command = editor(environ) or next(filter(shutil.which, _COMMON), None)
    if command is None:
        raise ConfigError(f"no editor found; set EDITOR to one, or open {path} yourself")
    try:
        status = subprocess.run([*shlex.split(command), str(path)], check=False).returncode
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot start the editor {command!r}: {error}; set EDITOR to another") from None
    if status:
        raise ConfigError(f"the editor {command!r} ended with status {status}; {path} is as it left it")
