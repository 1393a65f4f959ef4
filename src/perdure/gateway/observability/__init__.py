"""Request and turn logs, metrics and spans; figures only, never message content."""

from __future__ import annotations
