"""Deprecated alias of `perdure.agent.telemetry`."""

from perdure.agent.telemetry import TurnSpans as TurnSpans
