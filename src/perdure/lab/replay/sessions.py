"""A recorded session as the replay needs it: turns of a user message and the replies and results that followed.

Consecutive user messages become one, a reply is followed by exactly one result per call, and the summaries that the
recording agent wrote when it compacted are taken out: they are its policy, not part of the conversation.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perdure.core.messages import SUMMARY_OPENINGS
from perdure.testing.simulator import Call

# Assumed where a log has no times: seconds a reply and a round of tools take.
REPLY_S, TOOLS_S = 4.0, 2.0
# Pauses before a user's next message where a log has no times, drawn by a generator seeded with the session's id. The
# octiles are those of 415 pauses in recorded coding sessions; the last figure is the 95th percentile.
PAUSE_QUANTILES_S = (2.0, 10.0, 50.0, 83.0, 121.0, 177.0, 275.0, 543.0, 1_330.0)
NO_RESULT = "[interrupted: no result was recorded]"
TURN_CUT = "(interrupted by the user)"
GO_ON = "(continue)"


@dataclass(frozen=True, slots=True)
class RecordedUsage:
    """The usage that the recording agent's provider billed for one call."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """One OpenAI-style message of a log, with its time and usage if the log has them."""

    body: Mapping[str, Any]
    # Seconds since the epoch; None where the log has no time.
    at_s: float | None = None
    usage: RecordedUsage | None = None
    # A summary with which the recording agent replaced what came before.
    is_summary: bool = False


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """A session that was recorded with any agent, as an importer read it."""

    id: str
    messages: tuple[RecordedMessage, ...]
    # The format it was read from, and the model that was recorded, if any.
    source: str = ""
    model: str = ""
    system_prompt: str = ""
    # The bill of a log that has it apart from its messages, calls for summaries included.
    billed: tuple[RecordedUsage, ...] = ()

    @property
    def has_times(self) -> bool:
        return any(m.at_s is not None for m in self.messages)

    @property
    def usages(self) -> tuple[RecordedUsage, ...]:
        """The recorded usages, call by call."""
        return self.billed or tuple(m.usage for m in self.messages if m.usage is not None)


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """One recorded reply, and the results of its calls by call id."""

    text: str
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    results: Mapping[str, str] = field(default_factory=dict)
    # When its request was sent, in seconds on the replay's clock.
    sent_s: float = 0.0
    # The summary that the recording agent put in the place of everything before this reply, if it did.
    summary: str | None = None


@dataclass(frozen=True, slots=True)
class ReplayTurn:
    """A user message and the replies to it; the last one makes no calls."""

    text: str
    steps: tuple[ReplayStep, ...]


@dataclass(frozen=True, slots=True)
class ToolShape:
    """A tool as far as its recorded calls show it: name and parameters."""

    name: str
    parameters: tuple[str, ...]

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": {name: {} for name in self.parameters}}


def message_text(body: Mapping[str, Any]) -> str:
    """Return the readable text of an OpenAI-style message."""
    content = body.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    return "\n".join(str(p.get("text", "")) for p in parts if isinstance(p, Mapping) and p.get("text"))


def is_summary(text: str) -> bool:
    """Whether a user message is the summary of a compaction, by the words that agents open them with."""
    return text.startswith(SUMMARY_OPENINGS)


def session_digest(session: RecordedSession) -> str:
    """Return a hash of everything in a session that affects its replay, to recognise copies and finished replays."""
    digest = hashlib.sha256(session.system_prompt.encode())
    for m in session.messages:
        digest.update(json.dumps([m.body, m.at_s, m.is_summary], sort_keys=True, default=str).encode())
    return digest.hexdigest()[:16]


def tool_shapes(turns: Iterable[ReplayTurn]) -> list[ToolShape]:
    """Return the tools that were called, in order of first use, with every parameter that was ever used."""
    tools: dict[str, dict[str, None]] = {}
    for turn in turns:
        for step in turn.steps:
            for call in step.calls:
                arguments = call.arguments if isinstance(call.arguments, Mapping) else {}
                tools.setdefault(call.name, {}).update(dict.fromkeys(arguments))
    return [ToolShape(name, tuple(parameters)) for name, parameters in tools.items()]


def read_turns(session: RecordedSession) -> list[ReplayTurn]:
    """Divide a session into turns that an agent can replay, with a time for every request."""
    return _TurnReader(session).read()


class _TurnReader:
    """Reads the messages of one session into turns, in one pass."""

    def __init__(self, session: RecordedSession) -> None:
        self._session = session
        self._messages = [m for m in session.messages if m.body.get("role") in ("user", "assistant", "tool")]
        self._pauses = random.Random(session.id)
        self._now_s = next((m.at_s for m in self._messages if m.at_s is not None), 0.0)
        self._turns: list[ReplayTurn] = []
        self._texts: list[str] = []
        self._steps: list[ReplayStep] = []
        self._summary: str | None = None
        self._used_ids: set[str] = set()

    def read(self) -> list[ReplayTurn]:
        i = 0
        while i < len(self._messages):
            message = self._messages[i]
            role = message.body["role"]
            if message.is_summary:
                self._summary = message_text(message.body)
            elif role == "user":
                self._user(message)
            elif role == "assistant":
                i = self._reply(i)
                continue
            i += 1
        self._close()
        return self._turns

    def _user(self, message: RecordedMessage) -> None:
        text = message_text(message.body)
        if is_summary(text):
            self._summary = text
            return
        if not text.strip():
            return
        if self._steps:
            self._close()
        if not self._session.has_times:
            low = self._pauses.randrange(len(PAUSE_QUANTILES_S) - 1)
            self._now_s += self._pauses.uniform(PAUSE_QUANTILES_S[low], PAUSE_QUANTILES_S[low + 1])
        self._advance(message.at_s)
        self._texts.append(text)

    def _reply(self, i: int) -> int:
        """Read a reply, the replies right after it, and their results; return the index after them."""
        texts: list[str] = []
        thoughts: list[str] = []
        calls: list[Call] = []
        sent_s = self._now_s
        while i < len(self._messages) and self._is_reply(self._messages[i]):
            body = self._messages[i].body
            texts.append(message_text(body))
            thoughts.append(str(body.get("thinking") or body.get("reasoning") or ""))
            calls += [_call(raw) for raw in body.get("tool_calls") or ()]
            self._advance(self._messages[i].at_s)
            i += 1
        if not self._session.has_times:
            self._now_s += REPLY_S
        results: dict[str, str] = {}
        while i < len(self._messages) and self._messages[i].body["role"] == "tool":
            body = self._messages[i].body
            results.setdefault(str(body.get("tool_call_id") or ""), message_text(body))
            self._advance(self._messages[i].at_s)
            i += 1
        if calls and not self._session.has_times:
            self._now_s += TOOLS_S
        calls, results = self._with_unique_ids(calls, results)
        text = "\n\n".join(filter(None, texts))
        thinking = "\n\n".join(filter(None, thoughts))
        if not text.strip() and not calls:
            text = "(no text)"
        if self._steps and not self._steps[-1].calls:
            # Nothing that is replayed came between two final replies: a summary, an image, a blank message.
            self._close()
            self._texts.append(GO_ON)
        elif not self._texts and not self._steps:
            self._texts.append("(the log begins with a reply)")
        self._steps.append(ReplayStep(text, thinking, tuple(calls), results, sent_s, self._summary))
        self._summary = None
        return i

    @staticmethod
    def _is_reply(message: RecordedMessage) -> bool:
        return message.body["role"] == "assistant" and not message.is_summary

    def _with_unique_ids(self, calls: Sequence[Call], results: Mapping[str, str]) -> tuple[list[Call], dict[str, str]]:
        """Return calls with ids that are unique in the session, and a result for each by its new id."""
        unique: list[Call] = []
        served: dict[str, str] = {}
        for n, call in enumerate(calls):
            recorded_id = call.id or ""
            new_id = recorded_id or f"call_{len(self._used_ids)}_{n}"
            while new_id in self._used_ids:
                new_id += "x"
            self._used_ids.add(new_id)
            unique.append(Call(call.name, call.arguments, new_id))
            served[new_id] = results.get(recorded_id, NO_RESULT) or "(no output)"
        return unique, served

    def _advance(self, at_s: float | None) -> None:
        if at_s is not None:
            self._now_s = max(self._now_s, at_s)

    def _close(self) -> None:
        """End the turn; one that ends with calls gets a last reply, as an agent stops when it is interrupted."""
        if not self._steps:
            return
        if self._steps[-1].calls:
            self._steps.append(ReplayStep(TURN_CUT, sent_s=self._now_s))
        self._turns.append(ReplayTurn("\n\n".join(self._texts), tuple(self._steps)))
        self._texts, self._steps = [], []


def _call(raw: Mapping[str, Any]) -> Call:
    function = raw.get("function") or {}
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError:
            arguments = {"text": arguments}
    if not isinstance(arguments, Mapping):
        arguments = {"value": arguments}
    return Call(_tool_name(str(function.get("name") or "tool")), dict(arguments), str(raw.get("id") or "") or None)


def _tool_name(name: str) -> str:
    """Return the name with characters that services refuse replaced."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name)[:64] or "tool"
