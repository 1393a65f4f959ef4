"""The embedded model, served once per test process; tests that need it skip with a plain word where it is absent."""

from __future__ import annotations

import pytest

from perdure.providers.local import has_runtime, packaged_weights

N_CTX = 2048

needs_local = pytest.mark.skipif(
    packaged_weights() is None or not has_runtime(),
    reason="the embedded model is not installed (perdure models install)",
)
