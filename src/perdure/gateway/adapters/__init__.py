"""Adapters for chat platforms: `base.py` defines the protocol, `telegram.py` and `discord.py` implement it."""
