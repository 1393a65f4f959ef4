"""HTTP routes that the web UI reads from: conversations, timelines, handoffs, search, usage. All of them are GET.

They return only what the requesting principal may see (`ScopedStore`); messages are sent through `gateway.api`.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Annotated, Any, Literal, cast, get_args

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response, StreamingResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel

from perdure.core.concurrency import SystemClock
from perdure.core.errors import NotFound, StoreError, StoreUnavailable
from perdure.core.ports import Clock
from perdure.core.visibility import Visibility
from perdure.models.catalog import Catalog
from perdure.store.listing import ConversationFilter, ListOrder
from perdure.store.records import Conversation
from perdure.store.statistics import FailureKind, OrderKey
from perdure.store.store import SessionStore
from perdure.web import schemas
from perdure.web.live import LiveFeed
from perdure.web.schemas import OpenedPage
from perdure.web.scoped_store import ScopedStore
from perdure.web.views.chart import context_chart
from perdure.web.views.conversations import conversation_head, conversation_page, filters, search_page
from perdure.web.views.failures import list_failures
from perdure.web.views.handoff import handoff_view
from perdure.web.views.timeline import TimelineCursor, timeline_page
from perdure.web.views.usage import usage_view


def opened_page(scope: ScopedStore, conversation: Conversation, address: str, *, offset: int, limit: int) -> OpenedPage:
    """Return a page of the text at an address of the conversation. Raises NotFound if it has no such address."""
    page = scope.store.open(address, conversation_id=conversation.id, offset=offset, limit=limit)
    return OpenedPage.model_validate(page)


Handler = Callable[[Request], Coroutine[Any, Any, Response]]

# Compressing a shorter response takes longer than sending it.
_WORTH_PACKING = 16_384


class WebUIRoute(APIRoute):
    """A route that compresses long responses and reports errors as one plain sentence."""

    def get_route_handler(self) -> Handler:
        answer = super().get_route_handler()

        async def answer_plainly(request: Request) -> Response:
            try:
                return await _compress(await answer(request), request)
            except RequestValidationError as error:
                raise HTTPException(422, _validation_message(error)) from error
            except NotFound as error:
                raise HTTPException(404, str(error)) from error
            except StoreUnavailable as error:
                raise HTTPException(503, str(error)) from error
            except StoreError as error:
                raise HTTPException(400, str(error)) from error

        return answer_plainly


async def _compress(response: Response, request: Request) -> Response:
    """Compress a long response body if the client accepts it; streams are left as they are."""
    body = getattr(response, "body", b"")
    if len(body) < _WORTH_PACKING or "gzip" not in request.headers.get("accept-encoding", "").lower():
        return response
    # The lowest level takes a third of the time and compresses nearly as well.
    packed = await asyncio.to_thread(gzip.compress, body, 1)
    headers = {k: v for k, v in response.headers.items() if k != "content-length"}
    headers |= {"content-encoding": "gzip", "vary": "Accept-Encoding"}
    return Response(packed, status_code=response.status_code, headers=headers)


def _validation_message(error: RequestValidationError) -> str:
    """Join validation errors in plain words: `limit: must be less than or equal to 200; q: Field required`."""
    return "; ".join(
        f"{'.'.join(str(p) for p in e['loc'][1:]) or 'the request'}: {_error_body(str(e['msg']))}"
        for e in error.errors()
    )


def _error_body(message: str) -> str:
    return message.removeprefix("Value error, ").replace("Input should be", "must be")


VisibilityOf = Callable[[Request], Visibility]


async def _sight_of(request: Request) -> ScopedStore:
    return cast(ScopedStore, request.state.page_sight)


# The largest integer that JavaScript represents exactly.
_MOST = 2**53
Seen = Annotated[ScopedStore, Depends(_sight_of)]
Moment = Annotated[int | None, Query(ge=0, le=_MOST, description="UTC epoch milliseconds")]
Seq = Annotated[int | None, Query(ge=0, le=_MOST)]
Words = Annotated[str, Query(max_length=1_000)]
Name = Annotated[str | None, Query(max_length=200)]
Only = Annotated[
    Literal["compacted", "failures", "failed", "refused", "stopped", "errors", "tools"] | None,
    Query(description="Compacted, with any failure, or with one kind of failure."),
]
_FAILURES_OF: Mapping[str | None, Sequence[FailureKind]] = {
    # What the user stopped or refused is the user's own doing.
    "failures": tuple(k for k in get_args(FailureKind) if k not in ("stopped_turns", "refused_tool_calls")),
    "failed": ("failed_turns", "model_refusals"),
    "refused": ("model_refusals", "refused_tool_calls"),
    "stopped": ("stopped_turns",),
    "errors": ("provider_errors", "failed_turns"),
    "tools": ("failed_tool_calls",),
}
AnyId = Annotated[str, Path(max_length=100)]


def web_ui_router(
    store: SessionStore,
    *,
    visibility_of: VisibilityOf,
    dependencies: Sequence[Any] = (),
    clock: Clock | None = None,
    catalog: Catalog | None = None,
    is_closing: Callable[[], bool] = lambda: False,
) -> APIRouter:
    """Build every route of `schemas.py`. `visibility_of` returns whose conversations a request may see; it may raise
    HTTPException. `dependencies` are FastAPI's, run before each route. `catalog` has the prices for savings.
    `is_closing` ends live streams when the server shuts down."""

    def look(request: Request) -> None:
        request.state.page_sight = ScopedStore(store, visibility_of(request), time, prices)
        request.state.page_feed = feed

    time, prices = clock or SystemClock(), catalog or Catalog()
    feed = LiveFeed(store.changes, is_closing=is_closing)
    router = APIRouter(
        prefix="/api/page",
        route_class=WebUIRoute,
        tags=["page"],
        dependencies=[*dependencies, Depends(look)],
        responses={status: {"model": schemas.ErrorBody} for status in (400, 404, 422, 503)},
    )
    one = "/conversations/{any_id}"
    router.get("/conversations", response_model=schemas.ConversationListResponse)(conversations)
    router.get("/search", response_model=schemas.SearchPage)(search)
    router.get("/filters", response_model=schemas.Filters)(what_to_filter_by)
    router.get(one, response_model=schemas.ConversationHead)(head)
    router.get(f"{one}/timeline", response_model=schemas.TimelineResponse)(timeline)
    router.get(f"{one}/context", response_model=schemas.ContextChart)(context)
    router.get(f"{one}/failures", response_model=schemas.FailureList)(failures)
    router.get(f"{one}/handoffs/{{seq}}", response_model=schemas.HandoffView)(handoff)
    router.get(f"{one}/open", response_model=schemas.OpenedPage)(open_address)
    router.get("/usage", response_model=schemas.UsageView)(usage)
    router.get("/live", response_class=StreamingResponse)(live)
    return router


def conversations(
    scope: Seen,
    q: Words = "",
    source: Name = None,
    model: Name = None,
    since: Moment = None,
    until: Moment = None,
    only: Only = None,
    sort: OrderKey = "updated",
    direction: Literal["asc", "desc"] = "desc",
    cursor: Name = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Response:
    """Conversations, by default the last used first; with `q` the matching ones, the best first."""
    filters = ConversationFilter(
        scope.visibility,
        source or None,
        model or None,
        since,
        until,
        is_compacted=only == "compacted",
        failures=_FAILURES_OF.get(only, ()),
    )
    order = ListOrder(sort, is_ascending=direction == "asc")
    return _json(conversation_page(scope, filters, query=q, cursor=cursor or None, limit=limit, order=order))


def search(
    scope: Seen,
    q: Words = "",
    source: Name = None,
    since: Moment = None,
    until: Moment = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
) -> Response:
    """Search hits, best first."""
    return _json(
        search_page(scope, q, ConversationFilter(scope.visibility, source or None, None, since, until), limit=limit)
    )


def what_to_filter_by(scope: Seen) -> Response:
    """The sources and models to filter by."""
    return _json(filters(scope))


def head(scope: Seen, any_id: AnyId) -> Response:
    """The header of a conversation."""
    return _json(conversation_head(scope, scope.conversation(any_id)))


def timeline(
    scope: Seen,
    any_id: AnyId,
    before: Seq = None,
    after: Seq = None,
    around: Seq = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Response:
    """A page of the timeline: the newest, or those before, after or around a message; oldest first."""
    return _json(timeline_page(scope, scope.conversation(any_id), TimelineCursor(before, after, around), limit=limit))


def context(scope: Seen, any_id: AnyId) -> Response:
    """The parts of the prompt, call by call."""
    return _json(context_chart(scope, scope.conversation(any_id)))


def failures(scope: Seen, any_id: AnyId) -> Response:
    """What went wrong in a conversation, oldest first."""
    return _json(schemas.FailureList(failures=list_failures(scope, scope.conversation(any_id))))


def handoff(scope: Seen, any_id: AnyId, seq: Annotated[int, Path(ge=0, le=_MOST)]) -> Response:
    """A handoff and its sources."""
    return _json(handoff_view(scope, scope.conversation(any_id), seq))


def open_address(
    scope: Seen,
    any_id: AnyId,
    address: Annotated[str, Query(max_length=200)],
    offset: Annotated[int, Query(ge=0, le=_MOST)] = 0,
    limit: Annotated[int, Query(ge=1, le=200_000)] = 20_000,
) -> Response:
    """Open an address of the conversation: m:57, m:120-180, h:501, output:o_…"""
    return _json(opened_page(scope, scope.conversation(any_id), address, offset=offset, limit=limit))


def usage(scope: Seen, days: Annotated[int, Query(ge=1, le=3_650)] = 30) -> Response:
    """Tokens and cost of the last days, today included."""
    return _json(usage_view(scope, days=days))


async def live(
    request: Request, scope: Seen, cursor: Annotated[str | None, Query(max_length=5_000)] = None
) -> Response:
    """Server-sent events for changed conversations."""
    feed = cast(LiveFeed, request.state.page_feed)
    # A reconnecting browser sends its cursor as Last-Event-ID.
    stream = feed.stream(scope.visibility, request.headers.get("last-event-id") or cursor or None)
    # Errors must be raised before the stream begins.
    first = await anext(stream)

    async def lines() -> AsyncIterator[str]:
        try:
            yield first
            async for line in stream:
                yield line
        finally:
            await stream.aclose()

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(lines(), media_type="text/event-stream", headers=headers)


def _json(answer: BaseModel) -> Response:
    """Build a JSON response; called in the worker thread, since serializing a long timeline takes milliseconds."""
    return Response(answer.model_dump_json(), media_type="application/json", headers={"Cache-Control": "no-store"})
