"""Test support that ships with Perdure: `simulator` replaces model services on loopback."""
