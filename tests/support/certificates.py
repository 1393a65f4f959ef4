"""Certificates made for one test run, by the openssl command."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate that vouches for itself: the server shows it, and whoever trusts it names its file."""

    file: Path
    key: Path

    def for_server(self) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(self.file, self.key)
        return made


def self_signed(folder: Path, names: str) -> Certificate:
    """For these names, such as `IP:127.0.0.1,DNS:localhost`. Skips the test where there is no openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl command on this machine to make a certificate with")
    made = Certificate(folder / "certificate.pem", folder / "key.pem")
    command = ["openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += ["-days", "2", "-subj", "/CN=perdure test", "-addext", f"subjectAltName={names}"]
    subprocess.run([*command, "-keyout", made.key, "-out", made.file], check=True, capture_output=True)
    return made
