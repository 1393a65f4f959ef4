"""Run the turn of one request: convert its events to deltas, and record the client's history."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.events import CallStarted, Outcome, ReasoningDelta, RefusalDelta, TextDelta, TurnFinished
from perdure.core.messages import ToolCall
from perdure.core.usage import CanonicalUsage
from perdure.gateway.auth.principal import Principal
from perdure.gateway.errors import ApiError
from perdure.gateway.events.types import CommandAnswered, QuestionAsked, Ticket
from perdure.gateway.executor import run_blocking
from perdure.gateway.openai_api.conversation_match import ConversationMatcher
from perdure.gateway.openai_api.parameters import response_id_of
from perdure.gateway.openai_api.request import CompletionRequest
from perdure.gateway.workers.hub import Hub

_log = logging.getLogger(__name__)
# Interval of the comments that keep proxies from closing the connection while tools run.
_IDLE_S = 15.0
_UNATTENDED_ANSWER = "No user can answer through this API; decide yourself, and state your decision."

# None: nothing happened for a while.
TurnDelta = TextDelta | ReasoningDelta | None


class StopFilter:
    """Ends a streamed text before the first of its stop sequences."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._buffer = ""
        self._is_over = False

    def feed(self, text: str) -> str:
        """Add streamed text; return what can be sent, holding back a possible start of a stop sequence."""
        if not self._stops or self._is_over:
            return "" if self._is_over else text
        self._buffer += text
        starts = [i for stop in self._stops if (i := self._buffer.find(stop)) >= 0]
        if starts:
            self._is_over = True
            return self._buffer[: min(starts)]
        count = max(_overlap(self._buffer, stop) for stop in self._stops)
        ready, self._buffer = self._buffer[: len(self._buffer) - count], self._buffer[len(self._buffer) - count :]
        return ready

    def end(self) -> str:
        """Return the text held back, at the end of the stream."""
        rest, self._buffer = self._buffer, ""
        return "" if self._is_over else rest


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of a text begin the stop sequence."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)


class CompletionTurn:
    """Follows the turn of one request; `end`, `text` and `conversation_id` are final once `deltas` is exhausted."""

    def __init__(
        self,
        hub: Hub,
        matcher: ConversationMatcher,
        completion: CompletionRequest,
        principal: Principal,
        ticket: Ticket,
        *,
        can_be_repeated: bool = False,
    ) -> None:
        self._hub = hub
        self._matcher = matcher
        self._completion = completion
        self._principal = principal
        self._ticket = ticket
        self._calls = 0
        # An answer in a given format is sent once it is checked, and without the texts between tool calls.
        # So is one that an earlier request with the same key started: the first deltas may no longer be buffered.
        is_first = ticket.chat is not None
        self._is_live = completion.is_stream and is_first and completion.options.answer_format is None
        # A client that sent a key can come back for the answer, so it is not stopped when the connection is lost.
        self._can_be_repeated = can_be_repeated
        self._stop = StopFilter(completion.stop)
        # The text sent to the client, which will be part of its next history.
        self._sent: list[str] = []
        # The text of the reply that is being written, if it is sent as a whole.
        self._unsent: list[str] = []
        self.end: TurnFinished | CommandAnswered | None = None
        self.conversation_id: str | None = ticket.conversation_id

    async def deltas(self) -> AsyncIterator[TurnDelta]:
        """Yield the text and reasoning deltas of the turn; None while it is idle.

        If the consumer stops early and cannot come back, the turn is stopped.
        """
        try:
            async for batch in self._hub.feeds.turn(
                self._ticket, visibility=self._principal.visibility, idle_s=_IDLE_S
            ):
                for sequenced in batch:
                    if (delta := await self._delta(sequenced.event)) is not None:
                        yield delta
                if not batch:
                    yield None
            if self.end is not None:
                await self._record_history()
        finally:
            if self.end is None and not self._can_be_repeated:
                self._hub.stop_turns({self._ticket.turn_id})

    async def run(self) -> str:
        """Run to the end and return the answer; without streaming it is the final text only."""
        async for _ in self.deltas():
            pass
        return self.text

    @property
    def text(self) -> str:
        """The text sent so far."""
        return "".join(self._sent)

    @property
    def client_calls(self) -> tuple[ToolCall, ...]:
        """The calls that the client is to run."""
        return self.end.client_calls if isinstance(self.end, TurnFinished) else ()

    @property
    def usage(self) -> CanonicalUsage:
        return self.end.usage if isinstance(self.end, TurnFinished) else CanonicalUsage()

    @property
    def outcome(self) -> Outcome:
        return self.end.outcome if isinstance(self.end, TurnFinished) else "completed"

    @property
    def is_cut(self) -> bool:
        """Whether the answer is incomplete: interrupted, or ended at a limit of tokens or model calls."""
        if self.outcome in ("budget", "interrupted"):
            return True
        return isinstance(self.end, TurnFinished) and self.end.finish == "length"

    @property
    def is_refusal(self) -> bool:
        """Whether the model refused: the text is its refusal."""
        return isinstance(self.end, TurnFinished) and self.end.finish == "refusal"

    @property
    def is_filtered(self) -> bool:
        """Whether a filter of the provider cut the answer off."""
        return isinstance(self.end, TurnFinished) and self.end.finish == "content_filter"

    @property
    def failure(self) -> ApiError | None:
        """The API error if the turn has no answer, else None. Clients should not retry: the message is stored."""
        if self.end is None:
            return ApiError(503, "stopped", "the gateway is shutting down; the message is stored and will be answered")
        if isinstance(self.end, TurnFinished) and self.end.outcome == "failed":
            message = self.end.error or "the turn failed"
            if self.end.error_kind == "prompt_too_long":
                return ApiError(400, "context_length_exceeded", message, param=self._completion.field)
            return ApiError(502, "turn_failed", message, headers={"x-should-retry": "false"})
        return None

    async def _delta(self, event: object) -> TurnDelta:
        match event:
            case CallStarted():
                self._calls += 1
                self._unsent.clear()
            case TextDelta(text) if self._is_live:
                return self._send_text(text, type(event))
            case TextDelta(text):
                self._unsent.append(text)
            case ReasoningDelta() if self._completion.is_stream:
                return event
            case QuestionAsked(question_id=question, kind=kind):
                await self._decline(question, kind)
            case TurnFinished() | CommandAnswered():
                return self._end(event)
        return None

    def _send_text(self, text: str, kind: type[TextDelta]) -> TextDelta | None:
        # The model's texts before and after a tool call are two messages; the client gets one.
        gap = "\n\n" if self._calls > 1 and self._sent else ""
        self._calls = min(self._calls, 1)
        return self._forward(self._stop.feed(gap + text), kind)

    def _forward(self, text: str, kind: type[TextDelta]) -> TextDelta | None:
        if not text:
            return None
        self._sent.append(text)
        return kind(text)

    def _end(self, event: TurnFinished | CommandAnswered) -> TextDelta | None:
        self.end = event
        rest = self._stop.end()
        text = event.text if isinstance(event, CommandAnswered) else event.final_response
        if self.outcome == "interrupted":
            text = text or "".join(self._unsent)
        if text and not self._sent and not rest:
            # If another process ran the turn, or it was answered before, the final event is all there is.
            self._stop = StopFilter(self._completion.stop)
            rest = self._stop.feed(text) + self._stop.end()
        return self._forward(rest, RefusalDelta if self.is_refusal else TextDelta)

    async def _decline(self, question_id: str, kind: str) -> None:
        """Answer a question of the turn at once, since this API cannot ask its user: no approval, no choice."""
        try:
            await self._hub.answer(question_id, "no" if kind == "approval" else _UNATTENDED_ANSWER, self._principal)
        except NotFound:  # closed by another client
            _log.info("question %s was closed already", question_id)

    async def _record_history(self) -> None:
        queued = await self._hub.get_message(self._ticket.turn_id, self._principal)
        self.conversation_id = queued.conversation_id
        if isinstance(self.end, TurnFinished) and self.end.outcome == "failed":
            return
        answer: Mapping[str, Any] = {"role": "assistant", "content": self.text}
        if self.client_calls:
            answer = {**answer, "tool_calls": [call.to_dict() for call in self.client_calls]}
        await run_blocking(
            self._matcher.record_history,
            self._completion,
            answer,
            self._principal,
            self.conversation_id,
            response_id=response_id_of(self._ticket.turn_id),
        )
