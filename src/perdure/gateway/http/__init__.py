"""The gateway's own doors over HTTP: messages in, answers out as JSON, as server-sent events or over a WebSocket."""
