"""Packages that take a second to import, loaded by the worker whose tests use them and not by each that collects.

openai = package("openai")
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest


class _Package:
    """Stands for a module; the first use of one of its names imports it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        # What looks through a module for tests asks for such names.
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)


def package(name: str, *, needs: str = "", reason: str = "") -> Any:
    """Return the module `name`. Where it, or what it needs, is not installed, the test module that asks is skipped."""
    required = needs or name.partition(".")[0]
    if find_spec(required) is None:
        pytest.skip(reason or f"the {required} package is not installed", allow_module_level=True)
    return _Package(name)
