"""What the environment says about the terminal: the few variables every program honours."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal


def is_dumb(environ: Mapping[str, str] | None = None) -> bool:
    """Whether the terminal can do no more than print lines."""
    environ = os.environ if environ is None else environ
    return environ.get("TERM", "").lower() in ("dumb", "unknown")


def wants_color(choice: Literal["auto", "always", "never"], environ: Mapping[str, str] | None = None) -> bool:
    """`display.color` as it applies here: auto follows NO_COLOR (set to anything but nothing) and dumb terminals."""
    environ = os.environ if environ is None else environ
    if choice != "auto":
        return choice == "always"
    return not environ.get("NO_COLOR") and not is_dumb(environ)
