"""Proving grounds. `simulator` stands in for model services; read `simulator/__init__.py` first."""
