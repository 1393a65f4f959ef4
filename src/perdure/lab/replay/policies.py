"""The context policies that a session can be replayed under, and how they are named: `NAME:key=value,…`.

`compressor`, `digest` and every installed engine are the real ones, with the agent's own settings. The others are
small engines of the lab: what agents do without a summary (`none`, `truncate`, `mask`), what Hermes documents
(`hermes`), and what the recording agent did itself (`recorded`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.context.compaction_input import tokens_of
from perdure.context.engine import (
    Compaction,
    ContextEngine,
    EngineServices,
    Insert,
    Keep,
    Reason,
    StartReason,
    Step,
    append_keep,
    unchanged_compaction,
)
from perdure.context.registry import engines
from perdure.context.summary_input import describe_calls, outcome, result_line
from perdure.core.concurrency import describe_error
from perdure.core.errors import ConfigError
from perdure.core.messages import Entry, user
from perdure.core.rules import cut_points
from perdure.core.usage import CanonicalUsage

MASKED = "[old tool output removed]"
# Tokens of a window that no session fills: `none` and `recorded` are never stopped by it.
UNLIMITED = 10_000_000


class LabEngine(ContextEngine):
    """Compacts at a share of the window; two passes in a row that free too little stop it until a prompt fits again."""

    _LEAST_FREED = 0.1
    _MOST_STRIKES = 2

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._window = 0
        self._strikes = 0
        self._waits = False
        self._services = EngineServices()

    @property
    def threshold_tokens(self) -> int:
        return int(self._threshold * self._window)

    def on_session_start(
        self,
        session_id: str,
        *,
        reason: StartReason = "new",
        previous: str | None = None,
        services: EngineServices | None = None,
    ) -> None:
        self._services = services or self._services
        self._waits = reason == "compression"

    def update_model(
        self, *, context_length: int, model: str = "", provider: str = "", max_tokens: int | None = None
    ) -> None:
        self._window = context_length

    def update_from_response(self, usage: CanonicalUsage) -> None:
        self._waits = False
        if usage.reported and usage.prompt_tokens < self.threshold_tokens:
            self._strikes = 0

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        if self._waits or self._strikes >= self._MOST_STRIKES:
            return False
        return prompt_tokens is not None and prompt_tokens >= self.threshold_tokens

    def _make_compaction(self, messages: Sequence[Entry], steps: Sequence[Step]) -> Compaction:
        before = sum(map(tokens_of, messages))
        done = Compaction("compacted", tuple(steps), source=messages)
        after = sum(tokens_of(item if isinstance(item, Entry) else Entry(0, item)) for item in done.apply(messages))
        self._strikes = self._strikes + 1 if after > before * (1 - self._LEAST_FREED) else 0
        return Compaction("compacted", tuple(steps), before_tokens=before, after_tokens=after, source=messages)


class NoCompaction(LabEngine):
    """A policy that never compacts and sends everything."""

    name = "none"

    def __init__(self) -> None:
        super().__init__(1.0)

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return False

    def compress(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> Compaction:
        return unchanged_compaction(messages, "This policy never compacts.")


class Truncation(LabEngine):
    """A policy that drops the oldest messages at the threshold until `keep` of the window is left."""

    name = "truncate"

    def __init__(self, threshold: float, keep: float) -> None:
        super().__init__(threshold)
        self._keep = keep

    def compress(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> Compaction:
        start = tail_start(messages, int(self._keep * self._window), least_messages=0)
        if start <= 0:
            return unchanged_compaction(messages, "There is nothing to drop.")
        return self._make_compaction(messages, (Keep(start, len(messages)),))


class OutputMask(LabEngine):
    """A policy that blanks all tool results but the newest at the threshold, then drops old messages if need be."""

    name = "mask"

    def __init__(self, threshold: float, keep_results: int, target: float) -> None:
        super().__init__(threshold)
        self._keep_results = keep_results
        self._target = target

    def compress(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> Compaction:
        results = [i for i, e in enumerate(messages) if e.message.role == "tool"]
        masked = {i for i in results[: -self._keep_results or None] if len(messages[i].message.text) > len(MASKED)}
        sizes = [len(MASKED) // 4 + 8 if i in masked else tokens_of(e) for i, e in enumerate(messages)]
        start = 0
        if sum(sizes) > self._target * self._window:
            start = tail_start(messages, int(self._target * self._window), least_messages=0, sizes=sizes)
        steps: list[Step] = []
        for i in range(start, len(messages)):
            if i in masked:
                steps.append(Insert(messages[i].message.with_content(MASKED)))
            else:
                append_keep(steps, i)
        return self._make_compaction(messages, steps)


class HermesPolicy(LabEngine):
    """Hermes Agent's documented compaction.

    At `threshold` of the window: the first `protect_first` messages and a tail of `target` of the threshold, at least
    `protect_last` messages unless they exceed it by half, stay. A summary of what lies between, with old tool outputs
    as one line each, replaces it, and is updated by the next one.
    """

    name = "hermes"
    _BANNER = "[CONTEXT COMPACTION: REFERENCE ONLY] Earlier turns were compacted into the summary below.\n\n"
    _TEXT_CHARS, _ARGUMENT_CHARS, _RESULT_CHARS = 5_500, 1_200, 200
    _SUMMARY_SHARE, _LEAST_SUMMARY, _MOST_SUMMARY, _WINDOW_SHARE = 0.20, 2_000, 12_000, 0.05

    def __init__(self, threshold: float, target: float, protect_first: int, protect_last: int) -> None:
        super().__init__(threshold)
        self._target = target
        self._protect_first = protect_first
        self._protect_last = protect_last

    async def compress(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> Compaction:
        cuts = cut_points([e.message for e in messages])
        head = min((c for c in cuts if c >= self._protect_first), default=len(messages))
        budget = int(self.threshold_tokens * self._target)
        tail = tail_start(messages, budget, least_messages=self._protect_last)
        if tail <= head:
            return unchanged_compaction(messages, "Head and tail leave nothing between them.")
        middle = [e for e in messages[head:tail] if not _is_handoff(e)]
        previous = next((e.message.text for e in messages[head:tail] if _is_handoff(e)), "")
        if not middle:
            return unchanged_compaction(messages, "Nothing but a summary lies between head and tail.")
        try:
            summary = await self._summarize(middle, previous)
        except Exception as error:  # without a summary this policy leaves a note in its place
            summary = f"Summary generation was unavailable ({describe_error(error)}). Earlier turns were removed."
        steps: list[Step] = [Keep(0, head)] if head else []
        return self._make_compaction(
            messages, [*steps, Insert(user(self._BANNER + summary)), Keep(tail, len(messages))]
        )

    async def _summarize(self, middle: Sequence[Entry], previous: str) -> str:
        if self._services.summarize is None:
            raise ConfigError("no summary model")
        share = int(sum(map(tokens_of, middle)) * self._SUMMARY_SHARE)
        cap = min(int(self._window * self._WINDOW_SHARE), self._MOST_SUMMARY)
        budget = min(max(share, self._LEAST_SUMMARY), cap)
        notes = f"<notes-so-far>\n{previous}\n</notes-so-far>\n\n" if previous else ""
        prompt = (
            f"Summarize these turns of a conversation for a different assistant, in about {budget} tokens, by section."
            f"\n\n{notes}<transcript>\n{self._transcript(middle)}\n</transcript>"
        )
        return str((await self._services.summarize(prompt, max_tokens=budget)).text)

    def _transcript(self, middle: Sequence[Entry]) -> str:
        lines: list[str] = []
        notes: dict[str, Any] = {}
        for entry in middle:
            message = entry.message
            if message.role == "tool":
                text = message.text
                note = notes.get(message.tool_call_id or "")
                lines.append(text if len(text) <= self._RESULT_CHARS else result_line(note, outcome(text)))
                continue
            lines.append(f"[{message.role}] {message.text[: self._TEXT_CHARS]}")
            notes.update(zip((c.id for c in message.tool_calls), (n for n, _ in describe_calls(message)), strict=False))
            lines += [f"  {c.name} {c.arguments[: self._ARGUMENT_CHARS]}" for c in message.tool_calls]
        return "\n".join(lines)


class RecordedPolicy(LabEngine):
    """A policy that compacts where the recording agent did, to the summary that it wrote."""

    name = "recorded"

    def __init__(self, take_summary: Callable[[], str | None]) -> None:
        super().__init__(1.0)
        self._next_summary = take_summary
        self._summary: str | None = None

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        self._summary = self._next_summary()
        return self._summary is not None

    def compress(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> Compaction:
        if self._summary is None or not messages:
            return unchanged_compaction(messages, "The recording agent did not compact here.")
        return self._make_compaction(messages, (Insert(user(self._summary)),))


def tail_start(
    messages: Sequence[Entry], budget: int, *, least_messages: int, sizes: Sequence[int] | None = None
) -> int:
    """Return where a tail within a token budget begins, moved back to a point that splits no call from its results."""
    sizes = sizes or list(map(tokens_of, messages))
    start, total = len(messages), 0
    while start > 0 and total + sizes[start - 1] <= budget:
        start -= 1
        total += sizes[start]
    least = max(0, len(messages) - least_messages)
    if start > least and sum(sizes[least:]) <= 1.5 * budget:
        start = least
    cuts = cut_points([e.message for e in messages])
    return max((c for c in cuts if c <= start), default=0)


def _is_handoff(entry: Entry) -> bool:
    return entry.message.kind == "handoff"


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy by name with its parameters."""

    name: str
    parameters: tuple[tuple[str, float | bool | str], ...] = ()

    @property
    def label(self) -> str:
        """The policy as written on the command line: `NAME:key=value,…`."""
        values = ",".join(f"{key}={_text(value)}" for key, value in self.parameters)
        return f"{self.name}:{values}" if values else self.name

    @property
    def has_window(self) -> bool:
        """Whether the policy depends on the replayed window."""
        return self.name not in ("none", "recorded")

    def settings(self) -> dict[str, Any]:
        """Return the settings that an agent is replayed with under this policy."""
        if self.name in _LAB_ENGINES or self.name == "recorded":
            return {"compression": {"cost_rule": "off"}}
        compression = dict(self.parameters)
        if self.name == "digest":
            return {"compression": {**compression, "summarize": False}}
        return {"compression": compression, "context": {"engine": self.name}}

    def engine(self, take_summary: Callable[[], str | None]) -> ContextEngine | None:
        """Return the lab's engine for this policy; None if the agent's settings choose an installed one."""
        if self.name == "recorded":
            return RecordedPolicy(take_summary)
        if self.name not in _LAB_ENGINES:
            return None
        kind, defaults = _LAB_ENGINES[self.name]
        return kind(**{**defaults, **dict(self.parameters)})


_LAB_ENGINES: Mapping[str, tuple[Callable[..., ContextEngine], Mapping[str, float]]] = {
    "none": (NoCompaction, {}),
    "truncate": (Truncation, {"threshold": 0.8, "keep": 0.4}),
    "mask": (OutputMask, {"threshold": 0.5, "keep_results": 10, "target": 0.4}),
    "hermes": (HermesPolicy, {"threshold": 0.5, "target": 0.2, "protect_first": 3, "protect_last": 20}),
}
DEFAULT_POLICIES = ("recorded", "none", "truncate", "mask", "hermes", "digest", "compressor")


def parse_policy(text: str, *, home: Path | None = None) -> Policy:
    """Parse `NAME:key=value,…`. Raises ConfigError for an unknown name, or a parameter it does not have."""
    name, _, rest = text.strip().partition(":")
    pairs = [part.partition("=") for part in rest.split(",") if part.strip()]
    wrong = next((key for key, sign, _ in pairs if not sign), None)
    if wrong is not None:
        raise ConfigError(f"policy {text!r}: {wrong!r} should look like key=value")
    keys = [key.strip() for key, _, _ in pairs]
    if len(set(keys)) < len(keys):
        raise ConfigError(f"policy {text!r}: {next(k for k in keys if keys.count(k) > 1)!r} is given twice")
    policy = Policy(name, tuple((key.strip(), _value(value.strip())) for key, _, value in pairs))
    names = (*_LAB_ENGINES, "recorded", "digest")
    installed = engines(home).names()
    if name not in names and name not in installed:
        raise ConfigError(f"there is no policy {name!r}; there are: {', '.join(dict.fromkeys((*names, *installed)))}")
    _check_parameters(policy)
    return policy


def unique_policies(policies: Iterable[Policy]) -> list[Policy]:
    """Return the policies without repetitions, whatever the order of their parameters."""
    return list({(p.name, tuple(sorted(dict(p.parameters).items()))): p for p in policies}.values())


def _check_parameters(policy: Policy) -> None:
    keys = [key for key, _ in policy.parameters]
    if policy.name in _LAB_ENGINES:
        accepted = _LAB_ENGINES[policy.name][1]
        unknown = next((key for key in keys if key not in accepted), None)
        if unknown is not None:
            has = f"it has: {', '.join(accepted)}" if accepted else "it takes no parameters"
            raise ConfigError(f"policy {policy.name!r} has no {unknown!r}; {has}")
        for key, value in policy.parameters:
            _check_value(policy.name, key, value, accepted[key])
    elif policy.name == "recorded" and keys:
        raise ConfigError("policy 'recorded' takes no parameters")
    elif policy.name == "digest" and "summarize" in keys:
        raise ConfigError("policy 'digest' never asks a model for a summary; 'compressor' does")
    else:
        from perdure.config.load import validate_settings

        validate_settings(policy.settings())


def _check_value(name: str, key: str, value: object, default: float) -> None:
    """Validate a parameter by the type of its default: a share of the window, or a count. Raises ConfigError."""
    if isinstance(default, int):
        is_allowed, kind = (
            isinstance(value, int) and not isinstance(value, bool) and value >= 0,
            "a whole number from 0",
        )
    else:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        is_allowed, kind = is_number and 0 < float(str(value)) <= 1, "a number above 0, at most 1"
    if not is_allowed:
        raise ConfigError(f"policy {name!r}: {key} = {_text(value)} is not allowed: {kind}")


def _value(text: str) -> float | bool | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return int(text) if text.lstrip("-").isdigit() else float(text)
    except ValueError:
        return text


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
