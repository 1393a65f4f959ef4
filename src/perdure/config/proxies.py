"""Whether the environment sends calls through a proxy."""

from __future__ import annotations

import os
from collections.abc import Mapping

_VARIABLES = ("http_proxy", "https_proxy", "all_proxy")


def has_proxy(environ: Mapping[str, str] | None = None) -> bool:
    """Whether any of the usual variables names one, in capitals or not."""
    environ = os.environ if environ is None else environ
    return any(environ.get(name, "").strip() or environ.get(name.upper(), "").strip() for name in _VARIABLES)
