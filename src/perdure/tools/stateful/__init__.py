"""Tools the agent answers from its own state: a plan, lasting memory, everything ever said, helpers."""
