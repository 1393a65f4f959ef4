"""What a simulator answers next: a row of steps, taken one per request, or a function from request to step."""

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
    """A tool call to make; arguments may be text, to send JSON that is none."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str | None = None

    @property
    def arguments_text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Say:
    """A reply. Cut to the request's max_tokens, like a real one."""

    text: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    refusal: str = ""
    # The wire's own word, in place of the one that fits: a stream with tool calls may still end with "stop".
    finish: str | None = None
    chunk_chars: int = 12
    # Before the response begins, and between its pieces.
    delay_s: float = 0.0
    chunk_delay_s: float = 0.0
    # Each piece begins with the moment it is sent, in nanoseconds of this machine's stopwatch: for measuring delays.
    is_stamped: bool = False
    # After so many events of the stream the connection is gone, or the service reports an error.
    drop_after: int | None = None
    fail_after: int | None = None
    reports_usage: bool = True
    # Some services stream when asked not to, and the other way round.
    form: Literal["as_asked", "plain", "stream"] = "as_asked"


@dataclass(frozen=True, slots=True)
class Fail:
    """An error answer: a named sample of what services really print, or a body of your own."""

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
    """Bytes as they are: an HTML page, half a JSON body, noise."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Drop:
    """The connection closes before a byte of an answer."""

    delay_s: float = 0.0


Step = Say | Fail | Raw | Drop


@dataclass(frozen=True, slots=True)
class ScriptRequest:
    """What a script function is given."""

    path: str
    body: Mapping[str, Any]
    number: int


ScriptFunction = Callable[[ScriptRequest], Step | str]
Script = Iterable[Step | str] | ScriptFunction


class Prompter:
    """Hands out the script's steps; behind its end, a plain reply that counts the requests."""

    def __init__(self, script: Script) -> None:
        self._function = script if callable(script) else None
        self._steps: Iterator[Step | str] = iter(()) if callable(script) else iter(script)
        self._added: list[Step | str] = []

    def add(self, *steps: Step | str) -> None:
        """More steps, after those that are there."""
        self._added.extend(steps)

    def next(self, asked: ScriptRequest) -> Step:
        step = self._function(asked) if self._function else next(self._steps, None)
        if step is None:
            step = self._added.pop(0) if self._added else f"Simulated reply {asked.number}."
        return Say(step) if isinstance(step, str) else step


def load_script(path: Path) -> list[Step]:
    """A script from a JSON file: a list of texts and of objects with one of `say`, `calls`, `fail`, `raw`, `drop`."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the script {path}: {error}") from error
    if not isinstance(raw, list):
        raise ConfigError(f"the script {path} is no JSON list of steps")
    return [parse_step(step, at=f"{path}, step {n}") for n, step in enumerate(raw, 1)]


def parse_step(raw: object, *, at: str) -> Step:
    """One step from its JSON form. Raises ConfigError, which says what is wrong and where."""
    if isinstance(raw, str):
        return Say(raw)
    if not isinstance(raw, dict):
        raise ConfigError(f"{at}: a step is a text or an object, not {type(raw).__name__}")
    given = dict(raw)
    try:
        if "fail" in given:
            what = given.pop("fail")
            return Fail(**({"sample": what} if isinstance(what, str) else {"status": what}), **given)
        if "raw" in given:
            return Raw(body=str(given.pop("raw")).encode(), **given)
        if given.pop("drop", False):
            return Drop(**given)
        calls = tuple(Call(**c) for c in given.pop("calls", ()))
        return Say(text=str(given.pop("say", "")), calls=calls, **given)
    except TypeError as error:
        raise ConfigError(f"{at}: {str(error).split(') ')[-1]}") from error
