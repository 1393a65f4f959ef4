"""Structured request and turn logs."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from perdure.core.events import CompactionFinished, Recovered, TurnFinished
from perdure.core.ports import Clock
from perdure.gateway.events.types import CommandAnswered, GatewayEvent
from perdure.gateway.observability.base import RequestRecord, TurnStats
from perdure.redaction import redact

Form = Literal["json", "plain", "off"]
# Polled every few seconds by monitoring; logged only on errors.
_UNLOGGED_ROUTES = frozenset({"/healthz", "/readyz", "/metrics"})
# Truncate third-party log messages, which may contain a whole request.
_MAX_TEXT = 2_000


class LogWriter:
    """Writer of log lines, JSON or plain text. Thread-safe; never raises, since a full disk must not end a turn."""

    def __init__(self, form: Form, clock: Clock, stream: TextIO | None = None, *, warnings_only: bool = False) -> None:
        self._form = form
        self.warnings_only = warnings_only
        self._clock = clock
        self._stream = stream or sys.stderr
        self._lock = threading.Lock()

    def write(self, event: str, fields: Mapping[str, Any], *, level: str = "info") -> None:
        """Write one line: time, level, event and the fields that are not None."""
        if self._form == "off" or (self.warnings_only and level == "info"):
            return
        at = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        present = {key: value for key, value in fields.items() if value is not None}
        if self._form == "json":
            line = json.dumps({"at": at, "level": level, "event": event, **present}, default=str)
        else:
            line = f"{at[11:19]} {level:7} {event} " + " ".join(f"{k}={_plain(v)}" for k, v in present.items())
        try:
            with self._lock:
                self._stream.write(line + "\n")
                self._stream.flush()
        except (OSError, ValueError):  # the stream is closed, or the disk is full
            self._form = "off"


class LogObserver:
    """Writes requests and turns to the log."""

    def __init__(self, log_writer: LogWriter) -> None:
        self._log_writer = log_writer

    def on_request(self, record: RequestRecord) -> None:
        if record.route in _UNLOGGED_ROUTES and record.status < 400:
            return
        if self._log_writer.warnings_only and record.status < 500:
            return  # the client reads why it was refused, such as a tab that was left open with an old token
        fields = {
            "request": record.request_id,
            "method": "WS" if record.kind == "websocket" else record.method,
            "route": record.route,
            "status": record.status,
            "refused": record.code,
            "ms": round(record.seconds * 1000, 1),
            "user": None if record.user is None else record.user.stored_key,
            "address": record.address,
            "bytes": record.sent_bytes,
        }
        self._log_writer.write("request", fields, level=_level(record.status))

    def on_event(self, stats: TurnStats, event: GatewayEvent) -> None:
        common = {
            "turn": stats.turn_id,
            "session": stats.session_id or None,
            "platform": stats.chat.platform,
            "user": stats.chat.user.stored_key,
        }
        match event:
            case TurnFinished(outcome=outcome):
                level = "warning" if outcome == "failed" else "info"
                self._log_writer.write("turn", {**common, "outcome": outcome, **_summarize(stats)}, level=level)
            case CommandAnswered(level=level):
                self._log_writer.write("command", {**common, "ms": round(stats.seconds * 1000, 1)}, level=level)
            case CompactionFinished(outcome=outcome, before_tokens=before, after_tokens=after):
                level = "warning" if outcome == "failed" else "info"
                fields = {**common, "outcome": outcome, "before_tokens": before, "after_tokens": after}
                self._log_writer.write("compaction", fields, level=level)
            case Recovered(verdict=verdict, action=action):
                fields = {**common, "kind": verdict.kind, "status": verdict.status, "action": action}
                self._log_writer.write("recovery", fields, level="warning")


class LogWriterHandler(logging.Handler):
    """Forwards the records of Python's logging to the LogWriter."""

    def __init__(self, log_writer: LogWriter, level: int = logging.WARNING) -> None:
        super().__init__(level)
        self._log_writer = log_writer

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = {"logger": record.name, "text": _message_of(record)}
        if record.exc_info and record.exc_info[0] is not None:
            # Only the type and location: the text and variables of an error may contain messages.
            fields |= {"error": record.exc_info[0].__name__, "where": _error_location(record)}
        self._log_writer.write("log", fields, level=record.levelname.lower())


def configure_logging(log_writer: LogWriter) -> None:
    """Send all logging of this process to the LogWriter only."""
    root = logging.getLogger()
    root.handlers = [LogWriterHandler(log_writer)]
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "httpx", "websockets"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
        # At INFO these log every request, including its query string.
        logger.setLevel(logging.WARNING)


def _summarize(stats: TurnStats) -> dict[str, int | float | None]:
    usage, first = stats.usage, stats.first_text_s
    return {
        "ms": round(stats.seconds * 1000, 1),
        "first_text_ms": None if first is None else round(first * 1000, 1),
        "calls": stats.calls,
        "tools": stats.tools,
        "compactions": stats.compactions,
        "input_tokens": usage.input_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": stats.cost_usd,
    }


def _level(status: int) -> str:
    return "error" if status >= 500 else "warning" if status >= 400 else "info"


def _message_of(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except (TypeError, ValueError):  # arguments that do not match the format string
        text = str(record.msg)
    return redact(text[:_MAX_TEXT])


def _error_location(record: logging.LogRecord) -> str | None:
    trace = record.exc_info[2] if record.exc_info else None
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else None


def _plain(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return json.dumps(text) if not text or any(c.isspace() or not c.isprintable() for c in text) else text
