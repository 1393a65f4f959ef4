"""Exceptions, named by what the caller should do about them.

PerdureError
├── ConfigError          fix the setting it names
│   ├── InvalidFlag        the command was called wrongly
│   ├── ModelNotNamed      choose one of `.models`, which the endpoint lists
│   └── NoSummaryModel     no model to ask for a summary: write the handoff without one
├── InvalidMessage       fix the message you handed in
├── PluginError          choose another plug-in, or mend this one
│   ├── PluginNotFound     nothing installed bears that name; the text lists what does
│   │   └── EngineNotFound   the same, for context engines
│   └── PluginBroken       found, but its own code failed
├── ProviderError        look at `.verdict`: the response of the service, and what may be done
├── StoreError           the data is untouched; the message states what to do
│   ├── StoreUnavailable   wrong path or URL, no permission, disk full
│   │   └── CommitUnknown    a write may have been stored: ask `.was_stored` before repeating it
│   ├── NewerSchema        written by a newer Perdure: upgrade
│   ├── CorruptStore       restore the backup it names
│   ├── NotFound           no such conversation, session, message or output
│   │   └── UnknownConversation  neither a conversation nor a session has that id
│   └── LeaseLost          another process writes this session now
├── SummarySuperseded    another model answers by now: drop what was being summarised
├── ToolError            becomes a tool result the model can read
└── TurnFailed           a turn ended without an answer; the text gives the cause
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from perdure.core.datastructures import MappingAccess

ErrorKind = Literal[
    "prompt_too_long",
    "output_cap",
    "rate_limit",
    "overloaded",
    "auth",
    "quota",
    "bad_request",
    "transport",
    "unknown",
]


@dataclass(frozen=True, slots=True)
class ErrorVerdict(MappingAccess):
    """The classification of a provider's error response: its kind, and any limits it states."""

    kind: ErrorKind
    message: str = ""
    status: int | None = None
    # The window the service stated, where it stated one.
    context_limit: int | None = None
    # The largest output cap the provider would accept, if stated.
    output_limit: int | None = None
    # The most tokens one request may have under the account's rate limit: no property of the model.
    request_limit: int | None = None
    # The most images one request may hold; None where the error is not about their number, or states none.
    image_limit: int | None = None
    retry_after_s: float | None = None
    # What to do, in place of the advice for errors of this kind; "": the message includes it.
    remedy: str | None = None


# Kinds that do not read as plain words.
_KIND_LABELS: dict[str, str] = {
    "output_cap": "output limit",
    "auth": "refused key",
    "quota": "exhausted quota",
    "bad_request": "rejected request",
    "transport": "connection failure",
    "unknown": "unexpected error",
}


def kind_label(kind: str) -> str:
    """Return an error kind, which may be a stored one, in the words a user reads."""
    return _KIND_LABELS.get(kind, kind.replace("_", " "))


class PerdureError(Exception):
    """The base class of all errors that Perdure raises; the message names the problem and the next step."""


class ConfigError(PerdureError):
    """Raised for a wrong setting or argument; the message names the key, the value given and what is allowed."""


class ModelNotNamed(ConfigError):
    """Raised when no model is configured and the endpoint lists several; `models` has their names."""

    def __init__(self, base_url: str, models: Sequence[str]) -> None:
        self.base_url = base_url
        self.models = tuple(models)
        names = ", ".join(self.models[:10]) + (" …" if self.models[10:] else "")
        super().__init__(
            f"{base_url} lists {len(self.models)} models and none is chosen: {names}."
            f" Choose one for this time with the option `-m {self.models[0]}`,"
            f" for good with `perdure config set model.name {self.models[0]}`."
        )


class InvalidFlag(ConfigError):
    """Raised when a setting given on the command line is unknown or has a wrong value."""


class NoSummaryModel(ConfigError):
    """Raised when no model is available to write a summary. It is not a failure, so no cool-down follows."""


class SummarySuperseded(PerdureError):
    """Raised in a summary call when the conversation switched to another model meanwhile; no cool-down follows."""


class InvalidMessage(PerdureError):
    """Raised when a message passed in by a caller or client is malformed."""


class PluginError(PerdureError):
    """Raised when a plug-in cannot be used; the built-in implementations still work."""


class PluginNotFound(PluginError):
    """Raised when no plug-in of that name is installed; the message lists the installed ones."""


class EngineNotFound(PluginNotFound):
    """Raised when no context engine of that name is installed; the message lists the installed ones."""


class PluginBroken(PluginError):
    """Raised when importing or creating a plug-in fails; the message gives its location and the cause."""


class ProviderError(PerdureError):
    """Raised when a model call fails; `verdict` classifies the error, `partial_text` is the text received so far.

    `may_be_billed` is False only where the service refused the request or never got it.
    """

    def __init__(
        self, verdict: ErrorVerdict, where: str = "", *, partial_text: str = "", may_be_billed: bool = True
    ) -> None:
        self.verdict = verdict
        self.where = where
        self.partial_text = partial_text
        self.may_be_billed = may_be_billed
        super().__init__(f"{where}: {verdict.message}" if where else verdict.message)

    def __reduce__(self) -> tuple[Any, ...]:
        return ProviderError, (self.verdict, self.where), {**self.__dict__}


class StoreError(PerdureError):
    """Raised when a store operation fails; stored data is unchanged."""


class StoreUnavailable(StoreError):
    """Raised when the database cannot be opened or written: wrong path, no permission, disk full."""


class CommitUnknown(StoreUnavailable):
    """Raised when a write may or may not have been stored; `was_stored` asks the database again.

    `was_stored` raises StoreUnavailable while the database cannot tell.
    """

    def __init__(self, message: str, *, was_stored: Callable[[], bool]) -> None:
        self.was_stored = was_stored
        super().__init__(message)


class NewerSchema(StoreError):
    """Raised when the database was written by a newer version of Perdure."""


class CorruptStore(StoreError):
    """Raised when the file is not a database, or is damaged."""


class NotFound(StoreError):
    """Raised when a conversation, session, message or output does not exist, or belongs to another user."""


class UnknownConversation(NotFound):
    """Raised for an id that neither a conversation nor a session has."""


class LeaseLost(StoreError):
    """Raised when another process holds the session's write lease, so that this one's copy may be out of date."""


class ToolError(PerdureError):
    """Raised by a tool that failed; its text becomes the tool result that the model reads."""


class TurnFailed(PerdureError):
    """Raised when a turn ends without an answer; the message gives the cause and the next step.

    `kind` is that of the service's error (`verdict.kind`), else "interrupted" or "failed", or why a turn that did end
    has no answer: "no_answer", "refusal", "content_filter" or "step_limit". `verdict` is what the error means, if a
    service sent one, `result` the whole result of the turn, and `partial_text` what had arrived of the reply. Its
    `__cause__` is the ProviderError.
    """

    def __init__(
        self, message: str, *, kind: str = "failed", verdict: ErrorVerdict | None = None, result: Any = None
    ) -> None:
        self.kind = kind
        self.verdict = verdict
        self.result = result
        super().__init__(message)

    @property
    def partial_text(self) -> str:
        return getattr(self.result, "partial_text", "")


class ToolRefused(ToolError):
    """Raised when a tool call is not allowed: by the user, by a hook, or because no user could be asked."""
