"""API keys in the environment. They are read here alone, and never written anywhere."""

from __future__ import annotations

import os
from collections.abc import Mapping


def api_key_for(variable: str, environ: Mapping[str, str] | None = None) -> str | None:
    """The key in `variable`, or None where it is unset or blank; a pasted key's stray white space is dropped."""
    environ = os.environ if environ is None else environ
    return environ.get(variable, "").strip() or None
