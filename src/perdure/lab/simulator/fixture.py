"""Deprecated alias of `perdure.testing.simulator.fixture`."""

from perdure.testing.simulator.fixture import *  # noqa: F403  # an alias re-exports everything
from perdure.testing.simulator.fixture import simulator as simulator
