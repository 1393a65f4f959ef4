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

# Asked every few seconds by machines that only want to know whether we live.
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})


class Lines:
    """A watcher that writes."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def answered(self, answered: RequestRecord) -> None:
        if answered.route in _QUIET and answered.status < 400:
            return
        fields = {
            "request": answered.request_id,
            "method": "WS" if answered.kind == "websocket" else answered.method,
            "route": answered.route,
            "status": answered.status,
            "refused": answered.code,
            "ms": round(answered.seconds * 1000, 1),
            "user": answered.user_key,
            "address": answered.address,
            "bytes": answered.sent_bytes,
        }
        self._journal.write("request", fields, level=_level(answered.status))

    def heard(self, figures: TurnStats, event: GatewayEvent) -> None:
        known = {
            "turn": figures.turn_id,
            "session": figures.session_id or None,
            "platform": figures.chat.platform,
            "user": figures.chat.user_key,
        }
        match event:
            case TurnFinished(outcome=outcome):
                level = "warning" if outcome == "failed" else "info"
                self._journal.write("turn", {**known, "outcome": outcome, **_sums(figures)}, level=level)
            case CommandAnswered(level=level):
                self._journal.write("command", {**known, "ms": round(figures.seconds * 1000, 1)}, level=level)
            case CompactionFinished(outcome=outcome, before_tokens=before, after_tokens=after):
                level = "warning" if outcome == "failed" else "info"
                told = {**known, "outcome": outcome, "before_tokens": before, "after_tokens": after}
                self._journal.write("compaction", told, level=level)
            case Recovered(verdict=verdict, action=action):
                told = {**known, "kind": verdict.kind, "status": verdict.status, "action": action}
                self._journal.write("recovery", told, level="warning")


def _sums(figures: TurnStats) -> dict[str, int | float | None]:
    usage, first = figures.usage, figures.first_text_s
    return {
        "ms": round(figures.seconds * 1000, 1),
        "first_text_ms": None if first is None else round(first * 1000, 1),
        "calls": figures.calls,
        "tools": figures.tools,
        "compactions": figures.compactions,
        "input_tokens": usage.input_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": figures.cost_usd,
    }


def _level(status: int) -> str:
    return "error" if status >= 500 else "warning" if status >= 400 else "info"


Form = Literal["json", "plain", "off"]
# Text of another's can be a whole request; a line should stay a line.
_MAX_TEXT = 2_000


class Journal:
    """Writes lines. Safe to use from any thread; never raises, for a full disk must not end a turn."""

    def __init__(self, form: Form, clock: Clock, stream: TextIO | None = None, *, only_trouble: bool = False) -> None:
        self._form = form
        self._only_trouble = only_trouble
        self._clock = clock
        self._stream = stream or sys.stderr
        self._lock = threading.Lock()

    def write(self, event: str, fields: Mapping[str, Any], *, level: str = "info") -> None:
        """One line: when, how grave, what, and the fields that are set."""
        if self._form == "off" or (self._only_trouble and level == "info"):
            return
        at = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        known = {key: value for key, value in fields.items() if value is not None}
        if self._form == "json":
            line = json.dumps({"at": at, "level": level, "event": event, **known}, default=str)
        else:
            line = f"{at[11:19]} {level:7} {event} " + " ".join(f"{k}={_plain(v)}" for k, v in known.items())
        try:
            with self._lock:
                self._stream.write(line + "\n")
                self._stream.flush()
        except (OSError, ValueError):  # the reader has gone, or the disk is full
            self._form = "off"


class JournalHandler(logging.Handler):
    """Everything else that is logged in this process, as lines of the journal."""

    def __init__(self, journal: Journal, level: int = logging.WARNING) -> None:
        super().__init__(level)
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = {"logger": record.name, "text": _told(record)}
        if record.exc_info and record.exc_info[0] is not None:
            # The kind and place of an error; its text and its variables may hold what somebody said.
            fields |= {"error": record.exc_info[0].__name__, "where": _place(record)}
        self._journal.write("log", fields, level=record.levelname.lower())


def log_to(journal: Journal) -> None:
    """Sends what this process logs to the journal, and nowhere else."""
    root = logging.getLogger()
    root.handlers = [JournalHandler(journal)]
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "httpx", "websockets"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
        # At "info" these tell of every request, with its query string.
        logger.setLevel(logging.WARNING)


def _told(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except (TypeError, ValueError):  # a line whose arguments do not fit it
        text = str(record.msg)
    return redact(text[:_MAX_TEXT])


def _place(record: logging.LogRecord) -> str | None:
    trace = record.exc_info[2] if record.exc_info else None
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else None


def _plain(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return json.dumps(text) if not text or any(c.isspace() or not c.isprintable() for c in text) else text
