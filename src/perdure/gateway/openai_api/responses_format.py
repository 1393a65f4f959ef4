"""Format responses of the Responses API: complete, or as its server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Literal

from perdure.core.events import ReasoningDelta, RefusalDelta, TextDelta, TurnFinished
from perdure.core.messages import ToolCall
from perdure.core.usage import CanonicalUsage
from perdure.gateway.events.types import CommandAnswered
from perdure.gateway.openai_api.parameters import MODEL, item_id_of, response_id_of
from perdure.gateway.openai_api.response import IDLE
from perdure.gateway.openai_api.turn import CompletionTurn

Status = Literal["in_progress", "completed", "incomplete", "failed"]
# Parameters of the request that the response repeats, with their default values.
_REPEATED: Mapping[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}


_CUT_REASONS = {"content_filter": "content_filter"}


class ResponseObject:
    """The response object of one turn, and its events."""

    def __init__(self, turn_id: str, created_s: int, body: Mapping[str, Any]) -> None:
        self._turn_id = turn_id
        self._created_s = created_s
        self._body = body
        self._number = 0

    def build(self, turn: CompletionTurn) -> dict[str, Any]:
        """Return the complete response."""
        status = message_status(turn.end, turn.client_calls)
        output = self._output(turn.text, turn.client_calls, status=status, is_refusal=turn.is_refusal)
        return self._final_response(turn, output)

    def rebuild(self, end: TurnFinished | CommandAnswered) -> dict[str, Any]:
        """Build the response object of a turn that ended earlier, from its stored final event."""
        if isinstance(end, CommandAnswered):
            return self._response("completed", self._output(end.text, ()), usage=usage_to_dict(CanonicalUsage()))
        status = message_status(end, end.client_calls)
        is_refusal = end.finish == "refusal"
        output = self._output(end.final_response, end.client_calls, status=status, is_refusal=is_refusal)
        return self._response(status, output, **incomplete_details(end, status), usage=usage_to_dict(end.usage))

    def _output(
        self, text: str, calls: tuple[ToolCall, ...], *, status: Status = "completed", is_refusal: bool = False
    ) -> list[dict[str, Any]]:
        message = self.message_item(text, index=0, status=status, is_refusal=is_refusal)
        return [*([message] if text or not calls else []), *(self.call_item(call, i) for i, call in enumerate(calls))]

    async def stream(self, turn: CompletionTurn) -> AsyncIterator[bytes]:
        """Yield the events of the response, under their official names."""
        for name in ("response.created", "response.in_progress"):
            yield self.event(name, response=self._response("in_progress", []))
        items = ItemStream(self)
        async for delta in turn.deltas():
            if delta is None:
                yield IDLE
            else:
                for event in items.feed(delta):
                    yield event
        if (failure := turn.failure) is not None:
            error = {"code": "server_error" if failure.status >= 500 else failure.code, "message": failure.message}
            yield self.event("response.failed", response=self._response("failed", items.output, error=error))
            return
        for event in items.close(turn):
            yield event
        final = self._final_response(turn, items.output)
        yield self.event(f"response.{final['status']}", response=final)

    def _final_response(self, turn: CompletionTurn, output: list[dict[str, Any]]) -> dict[str, Any]:
        status = message_status(turn.end, turn.client_calls)
        details = incomplete_details(turn.end, status)
        conversation = {"conversation_id": turn.conversation_id}
        return self._response(status, output, **details, usage=usage_to_dict(turn.usage), perdure=conversation)

    def _response(self, status: Status, output: list[dict[str, Any]], **values: Any) -> dict[str, Any]:
        repeated = {k: default if self._body.get(k) is None else self._body[k] for k, default in _REPEATED.items()}
        head = {
            "id": response_id_of(self._turn_id),
            "object": "response",
            "created_at": self._created_s,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "model": MODEL,
            "output": list(output),
            "reasoning": {"effort": None, "summary": None},
            "usage": None,
        }
        return head | repeated | values

    def message_item(
        self, text: str, *, index: int, status: Status = "completed", is_refusal: bool = False
    ) -> dict[str, Any]:
        content = [] if status == "in_progress" else [refusal_part(text) if is_refusal else text_part(text)]
        head = {"id": item_id_of("msg", self._turn_id, index), "type": "message", "status": status}
        return {**head, "role": "assistant", "content": content}

    def reasoning_item(self, text: str, *, index: int) -> dict[str, Any]:
        summary = [{"type": "summary_text", "text": text}] if text else []
        return {"id": item_id_of("rs", self._turn_id, index), "type": "reasoning", "summary": summary}

    def call_item(self, call: ToolCall, index: int, *, status: Status = "completed") -> dict[str, Any]:
        arguments = "" if status == "in_progress" else call.arguments
        head = {"id": item_id_of("fc", self._turn_id, index), "type": "function_call", "status": status}
        return {**head, "call_id": call.id, "name": call.name, "arguments": arguments}

    def event(self, name: str, /, **values: Any) -> bytes:
        data = {"type": name, "sequence_number": self._number, **values}
        self._number += 1
        # ASCII output keeps lone surrogates, which cannot be encoded, as escapes.
        return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


class ItemStream:
    """The output items of a streamed response: reasoning before the text, the text, then calls."""

    def __init__(self, response: ResponseObject) -> None:
        self._response = response
        self.output: list[dict[str, Any]] = []
        self._thoughts: list[str] = []
        self._texts: list[str] = []
        self._is_refusal = False

    def feed(self, delta: TextDelta | ReasoningDelta) -> Iterator[bytes]:
        """Yield the events of one delta. A refusal that follows other text is part of that text."""
        if isinstance(delta, ReasoningDelta):
            return self.reasoning(delta.text)
        if not self._texts:
            self._is_refusal = isinstance(delta, RefusalDelta)
        return self.text(delta.text)

    def reasoning(self, text: str) -> Iterator[bytes]:
        """Yield the events of a reasoning delta; none after the first text, since a response has one text."""
        if self._texts:
            return
        item = self._response.reasoning_item("", index=0)
        where = {"item_id": item["id"], "output_index": 0, "summary_index": 0}
        if not self._thoughts:
            yield self._event("response.output_item.added", output_index=0, item=item)
            part = {"type": "summary_text", "text": ""}
            yield self._event("response.reasoning_summary_part.added", **where, part=part)
        self._thoughts.append(text)
        yield self._event("response.reasoning_summary_text.delta", **where, delta=text)

    def text(self, text: str) -> Iterator[bytes]:
        if not self._texts:
            yield from self._close_reasoning()
            item = self._response.message_item("", index=self._index, status="in_progress")
            yield self._event("response.output_item.added", output_index=self._index, item=item)
            yield self._event("response.content_part.added", **self._text_position, part=self._part(""))
        self._texts.append(text)
        if self._is_refusal:
            yield self._event("response.refusal.delta", **self._text_position, delta=text)
        else:
            yield self._event("response.output_text.delta", **self._text_position, delta=text, logprobs=[])

    def close(self, turn: CompletionTurn) -> Iterator[bytes]:
        """Yield the events that end open items, then those of the tool calls."""
        if not self._texts and not turn.client_calls:
            yield from self.text("")
        yield from self._close_reasoning()
        yield from self._close_text(message_status(turn.end, turn.client_calls))
        for i, call in enumerate(turn.client_calls):
            index, item = self._index, self._response.call_item(call, i)
            opening = self._response.call_item(call, i, status="in_progress")
            yield self._event("response.output_item.added", output_index=index, item=opening)
            where = {"item_id": item["id"], "output_index": index}
            yield self._event("response.function_call_arguments.delta", **where, delta=call.arguments)
            yield self._event(
                "response.function_call_arguments.done", **where, name=call.name, arguments=call.arguments
            )
            yield self._finish_item(item)

    def _close_reasoning(self) -> Iterator[bytes]:
        if not self._thoughts or self.output:
            return
        text = "".join(self._thoughts)
        item = self._response.reasoning_item(text, index=0)
        where = {"item_id": item["id"], "output_index": 0, "summary_index": 0}
        yield self._event("response.reasoning_summary_text.done", **where, text=text)
        yield self._event("response.reasoning_summary_part.done", **where, part=item["summary"][0])
        yield self._finish_item(item)

    def _close_text(self, status: Status) -> Iterator[bytes]:
        if not self._texts:
            return
        text, where = "".join(self._texts), self._text_position
        if self._is_refusal:
            yield self._event("response.refusal.done", **where, refusal=text)
        else:
            yield self._event("response.output_text.done", **where, text=text, logprobs=[])
        yield self._event("response.content_part.done", **where, part=self._part(text))
        item = self._response.message_item(text, index=self._index, status=status, is_refusal=self._is_refusal)
        yield self._finish_item(item)

    def _part(self, text: str) -> dict[str, Any]:
        return refusal_part(text) if self._is_refusal else text_part(text)

    def _finish_item(self, item: dict[str, Any]) -> bytes:
        event = self._event("response.output_item.done", output_index=self._index, item=item)
        self.output.append(item)
        return event

    @property
    def _index(self) -> int:
        return len(self.output)

    @property
    def _text_position(self) -> dict[str, Any]:
        item = self._response.message_item("", index=self._index)
        return {"item_id": item["id"], "output_index": self._index, "content_index": 0}

    def _event(self, name: str, /, **values: Any) -> bytes:
        return self._response.event(name, **values)


def message_status(end: TurnFinished | CommandAnswered | None, calls: tuple[ToolCall, ...]) -> Status:
    """Return the status of a text, and of a response that ends with it: "incomplete" if it was cut off."""
    if calls or not isinstance(end, TurnFinished):
        return "completed"
    is_cut = end.outcome in ("budget", "interrupted") or end.finish in ("length", "content_filter")
    return "incomplete" if is_cut else "completed"


def incomplete_details(end: TurnFinished | CommandAnswered | None, status: Status) -> dict[str, Any]:
    if status != "incomplete" or not isinstance(end, TurnFinished):
        return {}
    reason = "interrupted" if end.outcome == "interrupted" else _CUT_REASONS.get(end.finish, "max_output_tokens")
    return {"incomplete_details": {"reason": reason}}


def text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def refusal_part(text: str) -> dict[str, Any]:
    return {"type": "refusal", "refusal": text}


def usage_to_dict(usage: CanonicalUsage) -> dict[str, Any]:
    """Return the token usage of the whole turn, in the names of this API."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }
