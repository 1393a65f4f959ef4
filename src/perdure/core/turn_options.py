"""Options that the sender of a message sets for its turn: client tools, answer format, limits.

They apply to one turn only and are stored with the queued message, so that another process can run it the same way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perdure.core.errors import PerdureError
from perdure.core.messages import Message

AUTO, REQUIRED = "auto", "required"


class AnswerRejected(PerdureError):
    """Raised when the model's answer does not meet the turn options (format, required call) even after a retry."""


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """The requirement that the answer be JSON: any object, or a value that fits `schema`."""

    schema: Mapping[str, Any] | None = None
    name: str = "answer"
    is_strict: bool | None = None

    @property
    def instructions(self) -> str:
        """The instructions for the model, sent whether or not its provider enforces the format."""
        text = "Give your final answer as JSON only: no other text, no Markdown fences."
        if self.schema is None:
            return f"{text} It must be one JSON object."
        return f"{text} It must fit this JSON schema:\n{json.dumps(self.schema, ensure_ascii=False)}"


@dataclass(frozen=True, slots=True)
class Unattended:
    """Marks a turn that runs without a user: a call that needs approval is refused unless these rules allow it."""

    allowed: tuple[str, ...] = ()
    # The folder to work in; None: that of the process.
    folder: str | None = None


@dataclass(frozen=True, slots=True)
class TurnOptions:
    """The options of one turn. Without any, the turn runs as configured."""

    # Function schemas of tools that the client runs itself.
    tools: tuple[Mapping[str, Any], ...] = ()
    # AUTO, REQUIRED (one of the client's tools must be called), or the name of the tool to call.
    tool_choice: str = AUTO
    allows_parallel_calls: bool = True
    answer_format: AnswerFormat | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    # Texts before which an answer ends.
    stop: tuple[str, ...] = ()
    # Results of calls that an earlier turn returned to the client.
    results: tuple[Message, ...] = ()
    unattended: Unattended | None = None
    # The model of a conversation that starts with this turn; None: the configured one.
    model: str | None = None
    # The names of the client's tools.
    tool_names: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tool_names", frozenset(tool["function"]["name"] for tool in self.tools))

    @property
    def requires_call(self) -> bool:
        """Whether the turn must end with a call of one of the client's tools."""
        return bool(self.tools) and self.tool_choice != AUTO

    def stop_index(self, text: str) -> int | None:
        """Return the index of the first stop sequence in an answer; None if it has none."""
        return min((at for stop in self.stop if (at := text.find(stop)) >= 0), default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return the options as JSON values, without those that are not set."""
        answer = self.answer_format
        values = {
            "tools": [dict(tool) for tool in self.tools],
            "tool_choice": self.tool_choice if self.tool_choice != AUTO else None,
            "is_serial": not self.allows_parallel_calls,
            "max_tokens": self.max_tokens,
            "stop": list(self.stop),
            "results": [result.to_dict() for result in self.results],
            "model": self.model,
        }
        out: dict[str, Any] = {name: value for name, value in values.items() if value}
        if self.temperature is not None:
            out["temperature"] = self.temperature
        if self.unattended is not None:
            out["unattended"] = {"allowed": list(self.unattended.allowed), "folder": self.unattended.folder}
        if answer is not None:
            out["answer_format"] = {"schema": answer.schema, "name": answer.name, "is_strict": answer.is_strict}
        return out

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> TurnOptions:
        """Rebuild options from the JSON values of `to_dict`."""
        answer, unattended = raw.get("answer_format"), raw.get("unattended")
        return cls(
            tools=tuple(raw.get("tools") or ()),
            tool_choice=raw.get("tool_choice") or AUTO,
            allows_parallel_calls=not raw.get("is_serial"),
            answer_format=AnswerFormat(**answer) if answer is not None else None,
            max_tokens=raw.get("max_tokens"),
            temperature=raw.get("temperature"),
            stop=tuple(raw.get("stop") or ()),
            results=tuple(Message.from_dict(result) for result in raw.get("results") or ()),
            unattended=Unattended(tuple(unattended["allowed"]), unattended.get("folder"))
            if unattended is not None
            else None,
            model=raw.get("model"),
        )


NO_OPTIONS = TurnOptions()
