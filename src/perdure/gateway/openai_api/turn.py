"""Run the turn of one request: convert its events to deltas, and record the client's history."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

from perdure.core.errors import NotFound
from perdure.core.events import CallStarted, Outcome, ReasoningDelta, TextDelta, TurnFinished
from perdure.core.usage import CanonicalUsage
from perdure.gateway.auth.principal import Principal
from perdure.gateway.errors import ApiError
from perdure.gateway.events.types import CommandAnswered, QuestionAsked, Ticket
from perdure.gateway.executor import run_blocking
from perdure.gateway.openai_api.conversation_match import ConversationMatcher
from perdure.gateway.openai_api.request import CompletionRequest
from perdure.gateway.openai_api.response import DONE, ResponseBuilder, finish_reason, format_chunk
from perdure.gateway.workers.hub import Hub

_log = logging.getLogger(__name__)
# Interval of the comments that keep proxies from closing the connection while tools run.
_IDLE_S = 15.0
_UNATTENDED_ANSWER = "No user can answer through this API; decide yourself, and state your decision."


class CompletionTurn:
    """The turn of one request. `end`, `text` and `conversation_id` are set once `deltas` is exhausted."""

    def __init__(
        self,
        hub: Hub,
        matcher: ConversationMatcher,
        completion: CompletionRequest,
        principal: Principal,
        ticket: Ticket,
    ) -> None:
        self._hub = hub
        self._matcher = matcher
        self._completion = completion
        self._principal = principal
        self._ticket = ticket
        self._calls = 0
        # The text sent to the client, which will be part of its next history.
        self._sent: list[str] = []
        self.end: TurnFinished | CommandAnswered | None = None
        self.conversation_id: str | None = ticket.conversation_id

    async def deltas(self) -> AsyncIterator[dict[str, str]]:
        """Yield deltas; an empty one when idle. Stops the turn if the consumer closes the iterator."""
        try:
            async for batch in self._hub.feeds.turn(
                self._ticket, visibility=self._principal.visibility, idle_s=_IDLE_S
            ):
                for sequenced in batch:
                    if delta := await self._delta(sequenced.event):
                        yield delta
                if not batch:
                    yield {}
            if self.end is not None:
                await self._record_history()
        finally:
            if self.end is None:
                self._hub.stop_turns({self._ticket.turn_id})

    @property
    def usage(self) -> CanonicalUsage:
        return self.end.usage if isinstance(self.end, TurnFinished) else CanonicalUsage()

    @property
    def outcome(self) -> Outcome:
        return self.end.outcome if isinstance(self.end, TurnFinished) else "completed"

    @property
    def failure(self) -> ApiError | None:
        """The error, if there is no answer. Clients should not retry: the message is stored."""
        if self.end is None:
            return ApiError(503, "stopped", "the gateway is shutting down; the message is stored and will be answered")
        if isinstance(self.end, TurnFinished) and self.end.outcome == "failed":
            message = self.end.error or "the turn failed"
            return ApiError(502, "turn_failed", message, headers={"x-should-retry": "false"})
        return None

    async def stream(self, builder: ResponseBuilder) -> AsyncIterator[bytes]:
        """Yield the response as server-sent chunks."""
        yield builder.chunk({"role": "assistant", "content": ""})
        async for delta in self.deltas():
            yield builder.chunk(delta) if delta else b": idle\n\n"
        if (failure := self.failure) is not None:
            yield format_chunk(failure.body)
            yield DONE
            return
        yield builder.chunk({}, reason=finish_reason(self.outcome), perdure={"conversation_id": self.conversation_id})
        if self._completion.wants_usage:
            yield builder.usage_chunk(self.usage)
        yield DONE

    async def text(self) -> str:
        """Return the complete answer; without streaming it is the final text only."""
        async for _ in self.deltas():
            pass
        return "".join(self._sent)

    async def _delta(self, event: object) -> dict[str, str] | None:
        match event:
            case CallStarted():
                self._calls += 1
            case TextDelta(text) if self._completion.is_stream:
                return self._send_text(text)
            case ReasoningDelta(text) if self._completion.is_stream:
                return {"reasoning_content": text}
            case QuestionAsked(question_id=question, kind=kind):
                await self._decline(question, kind)
            case TurnFinished() | CommandAnswered():
                return self._end(event)
        return None

    def _send_text(self, text: str) -> dict[str, str]:
        # The model's texts before and after a tool call are two messages; the client gets one.
        gap = "\n\n" if self._calls > 1 and self._sent else ""
        self._calls = min(self._calls, 1)
        self._sent.append(gap + text)
        return {"content": gap + text}

    def _end(self, event: TurnFinished | CommandAnswered) -> dict[str, str] | None:
        self.end = event
        text = event.text if isinstance(event, CommandAnswered) else event.final_response
        # If another process ran the turn, or it was answered before, the final event is all there is.
        return self._send_text(text) if text and not self._sent else None

    async def _decline(self, question_id: str, kind: str) -> None:
        """Deny an approval at once, since this API has no way to ask the user."""
        try:
            await self._hub.answer(question_id, "no" if kind == "approval" else _UNATTENDED_ANSWER, self._principal)
        except NotFound:  # closed by another client
            _log.info("question %s was closed already", question_id)

    async def _record_history(self) -> None:
        queued = await self._hub.get_message(self._ticket.turn_id, self._principal)
        self.conversation_id = queued.conversation_id
        is_answered = not (isinstance(self.end, TurnFinished) and self.end.outcome == "failed")
        if is_answered:
            answer = "".join(self._sent)
            await run_blocking(
                self._matcher.record_history, self._completion, answer, self._principal, self.conversation_id
            )
