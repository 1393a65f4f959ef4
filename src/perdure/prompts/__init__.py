"""Every word a model reads, in files of its own; a file of the same name under `$PERDURE_HOME/prompts` overrides it."""

from __future__ import annotations

from pathlib import Path

_SHIPPED = Path(__file__).parent


def load(name: str, overrides: Path | None = None) -> str:
    """The text of prompt `name` (without `.md`), the user's own version first."""
    for folder in (overrides, _SHIPPED):
        if folder is not None and (path := folder / f"{name}.md").is_file():
            return path.read_text(encoding="utf-8")
    raise FileNotFoundError(f"no prompt named {name!r} in {_SHIPPED}")
