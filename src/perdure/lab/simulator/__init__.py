"""Deprecated alias of `perdure.testing.simulator`, with the names it had before."""

from perdure.testing.simulator import *  # noqa: F403  # an alias re-exports everything
from perdure.testing.simulator import RuleViolation as Violation
from perdure.testing.simulator import ScriptRequest as Asked
from perdure.testing.simulator import __all__ as _names

__all__ = [*_names, "Asked", "Violation"]
