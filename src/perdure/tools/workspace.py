"""The workspace folder: path resolution and atomic file replacement."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from perdure.core import files
from perdure.core.display import changed_lines, edit_lines
from perdure.core.errors import ToolError
from perdure.redaction import find_secrets
from perdure.tools.credential_paths import CREDENTIAL_PATTERN


def replace_file(target: Path, content: bytes, *, mode: int | None = None, is_durable: bool = False) -> None:
    """Replace a file atomically; an existing one keeps its mode, a new one gets `mode`. Raises ToolError."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        files.replace_file(target, content, mode=files.mode_of(target, default=mode), is_durable=is_durable)
    except OSError as error:
        raise ToolError(f"{target} cannot be written: {error.strerror}") from None


# Larger files are not compared with what replaces them.
MAX_COMPARED_BYTES = 500_000
_MARK = "[REDACTED]"


def write_diff(target: Path, content: str, *, is_secret: bool = False) -> tuple[str, ...]:
    """Return the diff that writing `content` to a file would make. Blocks: reads the current file.

    Secrets in the earlier lines are redacted. Where those cannot be shown (a binary, large or secret file), the first
    line in `@@` names what is lost.
    """
    is_secret = is_secret or bool(CREDENTIAL_PATTERN.search(target.as_posix()))
    try:
        if not target.is_file():
            return tuple(edit_lines("write_file", {"content": content}))
        size = target.stat().st_size
        raw = target.read_bytes() if size <= MAX_COMPARED_BYTES and not is_secret else b""
    except OSError as error:
        return _preview_replacement(f"a file that cannot be read ({error.strerror})", content)
    if is_secret:
        return _preview_replacement(f"a file that may hold credentials, {size:,} bytes", content)
    if size > MAX_COMPARED_BYTES or len(content) > MAX_COMPARED_BYTES:
        return _preview_replacement(f"a large file, {size:,} bytes", content)
    if b"\0" in raw:
        return _preview_replacement(f"a binary file, {size:,} bytes", content)
    return redacted_diff(raw.decode("utf-8", "replace"), content)


def redacted_diff(before: str, after: str) -> tuple[str, ...]:
    """Return the diff of two texts with the secrets of `before` redacted; added lines are the caller's own words."""
    masked = _masked_lines(before)
    lines = changed_lines(before, after)
    return tuple(line if line[:1] in ("+", "@") else line[:1] + masked.get(line[1:], line[1:]) for line in lines)


def _masked_lines(text: str) -> dict[str, str]:
    """Map every line that holds a secret, or a part of one that spans lines, to its redacted form."""
    pieces, at = [], 0
    for secret in find_secrets(text):
        marks = "\n".join([_MARK] * (1 + text.count("\n", secret.start, secret.end)))
        pieces += [text[at : secret.start], secret.visible_prefix and f"{secret.visible_prefix}…", marks]
        at = secret.end
    lines, redacted = text.split("\n"), ("".join(pieces) + text[at:]).split("\n")
    return {line: other for line, other in zip(lines, redacted, strict=True) if line != other}


def _preview_replacement(what: str, content: str) -> tuple[str, ...]:
    return (f"@@ replaces {what} @@", *edit_lines("write_file", {"content": content}))


MAX_PATH_CHARS = 4_096


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folder that file tools work in; resolves and displays paths relative to it."""

    root: Path

    def resolve(self, path: str) -> Path:
        """Return the absolute path with symbolic links resolved. Raises ToolError for an invalid path."""
        if not path.strip():
            raise ToolError("the path is empty")
        if "\0" in path or len(path) > MAX_PATH_CHARS:
            raise ToolError(f"not a path: {path[:60]!r} has a NUL or more than {MAX_PATH_CHARS:,} characters")
        try:
            return (self.root / Path(path).expanduser()).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise ToolError(f"not a path: {path[:200]!r} ({error})") from None

    def contains(self, path: Path) -> bool:
        """Whether a resolved path is inside the workspace."""
        return path.is_relative_to(self.root.resolve())

    def display_path(self, path: Path) -> str:
        """Return the path as the model sees it: relative to the root if it is inside."""
        return str(path.relative_to(self.root.resolve())) if self.contains(path) else str(path)

    def resolve_existing(self, path: str) -> Path:
        """Resolve a path that must exist. Raises ToolError with a suggestion."""
        resolved = self.resolve(path)
        try:
            if resolved.exists():
                return resolved
        except OSError as error:
            raise ToolError(f"{path[:200]}: {error.strerror}") from None
        raise ToolError(f"{path} does not exist{self._suggestion(resolved)}")

    def _suggestion(self, missing: Path) -> str:
        """Suggest existing names similar to the first missing component of the path."""
        while not missing.parent.is_dir() and missing.parent != missing.parent.parent:
            missing = missing.parent
        try:
            names = [p.name for p in missing.parent.iterdir()]
        except OSError:
            return ""
        matches = difflib.get_close_matches(missing.name, names, n=3, cutoff=0.6)
        if matches:
            return f"; did you mean {' or '.join(self.display_path(missing.parent / n) for n in matches)}?"
        return f" (there is no {missing.name} in {self.display_path(missing.parent)})"
