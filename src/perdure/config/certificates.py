"""Whose certificates the environment says to trust, with the variables OpenSSL and most programs know."""

from __future__ import annotations

import os
from collections.abc import Mapping

FILE, FOLDER = "SSL_CERT_FILE", "SSL_CERT_DIR"


def own_authorities(environ: Mapping[str, str] | None = None) -> tuple[str | None, str | None]:
    """The file and the folder of authorities to trust instead of the usual ones; None where none is named."""
    environ = os.environ if environ is None else environ
    return environ.get(FILE, "").strip() or None, environ.get(FOLDER, "").strip() or None
