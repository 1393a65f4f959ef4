"""The workspace folder: path resolution and atomic file replacement."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from perdure.core import files
from perdure.core.errors import ToolError


def replace_file(target: Path, content: bytes, *, mode: int | None = None, is_durable: bool = False) -> None:
    """Replace a file atomically; an existing one keeps its mode, a new one gets `mode`. Raises ToolError."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        files.replace_file(target, content, mode=files.mode_of(target, default=mode), is_durable=is_durable)
    except OSError as error:
        raise ToolError(f"{target} cannot be written: {error.strerror}") from None


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
