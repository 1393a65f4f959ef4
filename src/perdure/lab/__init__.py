"""Replay and evaluation. `perdure.lab.simulator` is a deprecated alias of `perdure.testing.simulator`."""
