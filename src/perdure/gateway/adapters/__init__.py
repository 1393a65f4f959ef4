"""Adapters for chat platforms: `base.py` defines the protocol, `telegram.py` is the reference implementation."""
