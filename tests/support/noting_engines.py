"""Context engines that have a note written by the summary model: as plain and as coroutine functions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import perdure
from perdure.context.engine import EngineServices, Reason, StartReason
from perdure.core.messages import Entry, Message
from perdure.core.usage import CanonicalUsage

TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}


class Noting(perdure.ContextEngine):
    """Keeps two messages behind a note that the summary model writes."""

    name = "noting"

    # Where its methods ran, for all engines of a class.
    threads: ClassVar[list[int]]

    def on_session_start(
        self,
        session_id: str,
        *,
        reason: StartReason = "new",
        previous: str | None = None,
        services: EngineServices | None = None,
    ) -> None:
        if services is not None:
            self.services = services

    def update_from_response(self, usage: CanonicalUsage) -> None:
        return

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return False

    def get_tool_schemas(self) -> Sequence[Mapping[str, Any]]:
        return [TOOL]

    def noted(self, text: str, messages: Sequence[Entry]) -> list[Message]:
        self.threads.append(threading.get_ident())
        return [Message("user", f"(notes: {text})", kind="note"), *(e.message for e in messages[-2:])]


class PlainNoting(Noting):
    """Written for the time before engines could be awaited."""

    threads: ClassVar[list[int]] = []

    def compress(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> list[Message]:
        assert self.services.summarize is not None
        return self.noted(self.services.summarize("note it down", max_tokens=100).text, messages)

    def handle_tool_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        self.threads.append(threading.get_ident())
        return "looked up"


class AwaitedNoting(Noting):
    threads: ClassVar[list[int]] = []

    async def compress(
        self, messages: Sequence[Entry], *, focus_topic: str | None = None, reason: Reason = "threshold"
    ) -> list[Message]:
        assert self.services.summarize is not None
        return self.noted((await self.services.summarize("note it down", max_tokens=100)).text, messages)

    async def handle_tool_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        await asyncio.sleep(0)
        self.threads.append(threading.get_ident())
        return "looked up"
