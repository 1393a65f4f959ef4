"""HTTP endpoints: messages in; answers out as JSON, server-sent events or over a WebSocket."""

from __future__ import annotations
