"""Process queued messages: one queue per conversation, pooled agents and their leases, and the job that runs a turn."""

from __future__ import annotations
