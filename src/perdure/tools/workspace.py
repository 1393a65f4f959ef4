"""The workspace folder: path resolution and atomic file replacement."""

from __future__ import annotations

import difflib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from perdure.core.errors import ToolError


def replace_file(target: Path, content: bytes, *, mode: int | None = None, is_durable: bool = False) -> None:
    """Gives a file new content. Its mode stays; a new one gets `mode`, or what the umask leaves. Raises ToolError.

    `is_durable`: on disk when this returns, whatever happens to the machine.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        kept = target.stat().st_mode & 0o7777 if target.exists() else mode
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:40]}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                if is_durable:
                    file.flush()
                    os.fsync(file.fileno())
            os.chmod(name, kept if kept is not None else 0o666 & ~_umask())
            os.replace(name, target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ToolError(f"{target} cannot be written: {error.strerror}") from None


def _umask() -> int:
    """The process's umask. Reading it means setting it; /proc tells without that, for threads share it."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    except (OSError, ValueError):
        pass
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


MAX_PATH_CHARS = 4_096


@dataclass(frozen=True, slots=True)
class Workspace:
    root: Path

    def resolve(self, path: str) -> Path:
        """The absolute path meant, links followed. Raises ToolError for what can be no path."""
        if not path.strip():
            raise ToolError("the path is empty")
        if "\0" in path or len(path) > MAX_PATH_CHARS:
            raise ToolError(f"not a path: {path[:60]!r} has a NUL or more than {MAX_PATH_CHARS:,} characters")
        try:
            return (self.root / Path(path).expanduser()).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise ToolError(f"not a path: {path[:200]!r} ({error})") from None

    def contains(self, path: Path) -> bool:
        """Whether a resolved path lies in the workspace."""
        return path.is_relative_to(self.root.resolve())

    def shown(self, path: Path) -> str:
        """The path as the model knows it: relative where it lies inside."""
        return str(path.relative_to(self.root.resolve())) if self.contains(path) else str(path)

    def existing(self, path: str) -> Path:
        """The path of something that is there. Raises ToolError with what was probably meant."""
        found = self.resolve(path)
        try:
            if found.exists():
                return found
        except OSError as error:
            raise ToolError(f"{path[:200]}: {error.strerror}") from None
        raise ToolError(f"{path} does not exist{self._near(found)}")

    def _near(self, missing: Path) -> str:
        """What was probably meant: the first part of the path that is not there, compared with what is."""
        while not missing.parent.is_dir() and missing.parent != missing.parent.parent:
            missing = missing.parent
        try:
            names = [p.name for p in missing.parent.iterdir()]
        except OSError:
            return ""
        near = difflib.get_close_matches(missing.name, names, n=3, cutoff=0.6)
        if near:
            return f"; did you mean {' or '.join(self.shown(missing.parent / n) for n in near)}?"
        return f" (there is no {missing.name} in {self.shown(missing.parent)})"
