"""Run shell commands with bubblewrap: the workspace is writable, home folders are hidden, and there is no network."""

from __future__ import annotations

import shutil
import subprocess
from functools import cached_property
from pathlib import Path

# Replaced by empty folders: other people's files, sockets of services, and what other programs left in them.
_HIDDEN = ("/home", "/root", "/Users", "/run", "/tmp", "/var/tmp", "/mnt", "/media")
_PROBE_TIMEOUT_S = 10.0
_INSTEAD = "Install it (apt install bubblewrap), or set tools.sandbox: off."


class Sandbox:
    """A bubblewrap sandbox around a workspace. Nothing outside it is written; hidden folders are empty inside."""

    def __init__(self, workspace: Path, home: Path, *, program: str | None = None) -> None:
        self._workspace = workspace.resolve()
        self._home = home.resolve()
        self._program = program or shutil.which("bwrap")

    @cached_property
    def problem(self) -> str | None:
        """Return why commands cannot run in the sandbox, None if they can. The first access starts a process."""
        if self._program is None:
            return f"the sandbox is not available: bubblewrap (bwrap) is not installed. {_INSTEAD}"
        if self._home.is_relative_to(self._workspace):
            return (
                "the sandbox cannot be used: the workspace contains the home folder, which the sandbox hides. "
                "Start in a project folder, or set tools.sandbox: off."
            )
        try:
            command = [*self.arguments(self._workspace, self._workspace), "true"]
            run = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"the sandbox is not available: bubblewrap could not be started ({error}). {_INSTEAD}"
        if run.returncode != 0:
            reason = " ".join(run.stderr.split())[:300] or f"exit {run.returncode}"
            return (
                f"the sandbox is not available: bubblewrap fails on this system ({reason}). "
                "It needs user namespaces, which some containers do not allow; set tools.sandbox: off there."
            )
        return None

    def arguments(self, folder: Path, scratch: Path) -> list[str]:
        """Return the command line in front of a shell that starts in `folder` and may write `scratch`."""
        hidden = [path for path in dict.fromkeys((*_HIDDEN, str(self._home))) if Path(path).is_dir()]
        return [
            self._program or "bwrap",
            *("--unshare-all", "--die-with-parent", "--cap-drop", "ALL"),
            *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
            *(part for path in hidden for part in ("--tmpfs", path)),
            *("--bind", str(self._workspace), str(self._workspace)),
            *("--bind", str(scratch), str(scratch)),
            *("--chdir", str(folder if self._is_visible(folder, hidden) else self._workspace)),
            "--",
        ]

    def _is_visible(self, folder: Path, hidden: list[str]) -> bool:
        if folder.is_relative_to(self._workspace):
            return folder.is_dir()
        return folder.is_dir() and not any(folder.is_relative_to(path) for path in hidden)
