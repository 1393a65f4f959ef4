"""Files replaced whole: written beside the target and renamed, so that a crash leaves the old file or the new one."""

from __future__ import annotations

import os
import tempfile
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
