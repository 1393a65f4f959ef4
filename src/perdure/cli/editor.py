"""Open a file or a text in the user's editor."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from perdure.config.env import editor
from perdure.core.errors import ConfigError

# Tried in order where the user names none; each is what some system calls its simple editor.
_COMMON = ("sensible-editor", "nano", "vim", "vi", "notepad")


def edit_file(path: Path, environ: Mapping[str, str] | None = None) -> None:
    """Open a file in the user's editor and wait until it is closed. Raises ConfigError if that fails."""
    _run_editor(path, f"{path} is as it left it", f", or open {path} yourself", environ)


def edit_text(text: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Open a text in the user's editor and return what was saved; None if nothing was. Raises ConfigError."""
    try:
        number, name = tempfile.mkstemp(prefix="perdure-", suffix=".md")
    except OSError as error:
        raise ConfigError(f"cannot write a file for the editor: {error.strerror}; the text is as it was") from None
    path = Path(name)
    try:
        # A terminal of another encoding may have sent bytes that are not valid text.
        with os.fdopen(number, "w", encoding="utf-8", errors="replace", newline="") as file:
            file.write(text)
        # Some file systems record whole seconds: an older time makes every save visible.
        os.utime(path, (0, 0))
        _run_editor(path, "the text is as it was", "", environ)
        if path.stat().st_mtime == 0:
            return None
        # Editors of Windows may add a byte order mark, and end lines in their own way.
        return path.read_bytes().decode("utf-8-sig", "replace").replace("\r\n", "\n").removesuffix("\n")
    except OSError as error:
        raise ConfigError(f"what the editor left cannot be read: {error.strerror}; the text is as it was") from None
    finally:
        path.unlink(missing_ok=True)


def _run_editor(path: Path, after_failure: str, alternative: str, environ: Mapping[str, str] | None) -> None:
    command = editor(environ) or next(filter(shutil.which, _COMMON), None)
    if command is None:
        raise ConfigError(f"no editor found; set EDITOR to one{alternative}")
    try:
        status = subprocess.run([*shlex.split(command), str(path)], check=False).returncode
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot start the editor {command!r}: {error}; set EDITOR to another") from None
    if status:
        raise ConfigError(f"the editor {command!r} ended with status {status}; {after_failure}")
