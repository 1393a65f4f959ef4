"""Property tests run on fixed seeds and without a stopwatch; HYPOTHESIS_PROFILE=soak digs deeper."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from hypothesis import HealthCheck, settings

from support.scheduling import pytest_addoption as pytest_addoption
from support.scheduling import pytest_collection as pytest_collection
from support.scheduling import pytest_collection_modifyitems as pytest_collection_modifyitems
from support.scheduling import pytest_configure as pytest_configure
from support.scheduling import pytest_make_collect_report as pytest_make_collect_report
from support.scheduling import pytest_runtest_setup as pytest_runtest_setup

_SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile(
    "suite", deadline=None, derandomize=True, max_examples=60, suppress_health_check=_SLOW_IS_FINE
)
settings.register_profile("soak", deadline=None, max_examples=2_000, suppress_health_check=_SLOW_IS_FINE)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

# Thousands of small durable transactions: on a memory disk, where there is one, they do not wait for a real one.
_MEMORY_DISK = Path("/dev/shm")
if _MEMORY_DISK.is_dir() and os.access(_MEMORY_DISK, os.W_OK):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY_DISK))

# Nothing here talks to the outside, and reading the authorities that a machine trusts takes an HTTP client 20 ms: with
# 800 clients, a thirtieth of the suite. Nobody has the key of this one.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "support" / "data" / "authority.pem")
os.environ.pop("SSL_CERT_DIR", None)

# A shell that starts the suite in the background has Ctrl-C ignored, and so would every program a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
