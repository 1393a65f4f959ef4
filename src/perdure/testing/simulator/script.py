"""Scripts: a sequence of steps, one per request, or a function from request to step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from perdure.core.errors import ConfigError
from perdure.testing.simulator.samples import SAMPLES


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call to make; arguments may be text, to send invalid JSON."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str | None = None

    @property
    def arguments_text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Say:
    """A reply, truncated to the request's max_tokens like a real one."""

    text: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    refusal: str = ""
    # Overrides the finish reason: a stream with tool calls may still end with "stop".
    finish: str | None = None
    chunk_chars: int = 12
    # Before the response begins, and between its chunks.
    delay_s: float = 0.0
    chunk_delay_s: float = 0.0
    # Prefix each chunk with the monotonic time in nanoseconds, to measure latency.
    is_stamped: bool = False
    # After this many events the connection drops, or the service reports an error.
    drop_after: int | None = None
    fail_after: int | None = None
    reports_usage: bool = True
    # Some services stream without "stream": true, or ignore it.
    form: Literal["as_asked", "plain", "stream"] = "as_asked"


@dataclass(frozen=True, slots=True)
class Fail:
    """An error response: a named sample of a real one, or a custom body."""

    sample: str | None = None
    status: int | None = None
    body: Mapping[str, Any] | str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0

    def answer(self) -> tuple[int, Mapping[str, Any] | str]:
        if self.sample is None:
            return self.status or 500, {} if self.body is None else self.body
        if self.sample not in SAMPLES:
            raise ConfigError(f"no error sample {self.sample!r}; there are: {', '.join(sorted(SAMPLES))}")
        status, body = SAMPLES[self.sample]
        return self.status or status, self.body if self.body is not None else body


@dataclass(frozen=True, slots=True)
class Raw:
    """Raw bytes: HTML, truncated JSON, noise."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection before the first byte of a response."""

    delay_s: float = 0.0


Step = Say | Fail | Raw | Drop


@dataclass(frozen=True, slots=True)
class ScriptRequest:
    """The argument of a script function."""

    path: str
    body: Mapping[str, Any]
    number: int


ScriptFunction = Callable[[ScriptRequest], Step | str]
Script = Iterable[Step | str] | ScriptFunction


class Prompter:
    """Iterates over the script's steps; after the last, a default reply with the request number."""

    def __init__(self, script: Script) -> None:
        self._function = script if callable(script) else None
        self._steps: Iterator[Step | str] = iter(()) if callable(script) else iter(script)
        self._added: list[Step | str] = []

    def add(self, *steps: Step | str) -> None:
        """Append steps."""
        self._added.extend(steps)

    def next(self, request: ScriptRequest) -> Step:
        step = self._function(request) if self._function else next(self._steps, None)
        if step is None:
            step = self._added.pop(0) if self._added else f"Simulated reply {request.number}."
        return Say(step) if isinstance(step, str) else step


def load_script(path: Path) -> list[Step]:
    """Load a script from a JSON list of texts and of objects with one of `say`, `calls`, `fail`, `raw`, `drop`."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the script {path}: {error}") from error
    if not isinstance(raw, list):
        raise ConfigError(f"the script {path} is no JSON list of steps")
    return [parse_step(step, at=f"{path}, step {n}") for n, step in enumerate(raw, 1)]


def parse_step(raw: object, *, at: str) -> Step:
    """Parse one step from JSON. Raises ConfigError with the position of the error."""
    if isinstance(raw, str):
        return Say(raw)
    if not isinstance(raw, dict):
        raise ConfigError(f"{at}: a step is a text or an object, not {type(raw).__name__}")
    fields = dict(raw)
    try:
        if "fail" in fields:
            what = fields.pop("fail")
            return Fail(**({"sample": what} if isinstance(what, str) else {"status": what}), **fields)
        if "raw" in fields:
            return Raw(body=str(fields.pop("raw")).encode(), **fields)
        if fields.pop("drop", False):
            return Drop(**fields)
        calls = tuple(Call(**c) for c in fields.pop("calls", ()))
        return Say(text=str(fields.pop("say", "")), calls=calls, **fields)
    except TypeError as error:
        raise ConfigError(f"{at}: {str(error).split(') ')[-1]}") from error
