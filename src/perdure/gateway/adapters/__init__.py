"""Doors for chat platforms: `contract.py` is what one is, `telegram.py` the model for more."""
