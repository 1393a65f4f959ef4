"""Serve long texts in pages or as files: tool outputs by id, and the answer of a turn by its turn id."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from fastapi.responses import StreamingResponse

from perdure.core.errors import NotFound
from perdure.gateway.api.schemas import OutputPage
from perdure.gateway.auth.middleware import require_scope
from perdure.gateway.auth.principal import Principal
from perdure.gateway.events.access import is_visible_to
from perdure.store.store import SessionStore

ReadPrincipal = Annotated[Principal, Depends(require_scope("read"))]
_SAFE = re.compile(r"[^A-Za-z0-9_.-]")


def output_router(store: SessionStore) -> APIRouter:
    """Routes that return stored outputs visible to the principal; any other output is a 404."""
    router = APIRouter(prefix="/api", tags=["outputs"])

    # Sync routes, which FastAPI runs in threads, since the store is synchronous.
    @router.get("/outputs/{output_id}", response_model=OutputPage)
    def read(
        output_id: Annotated[str, Path(min_length=1, max_length=200)],
        principal: ReadPrincipal,
        offset: Annotated[int, Query(ge=0, le=10**15)] = 0,
        limit: Annotated[int, Query(ge=1, le=1_000_000)] = 20_000,
        download: Annotated[bool, Query(description="Return the whole text as a file.")] = False,
    ) -> Any:
        """Return a page of a long text, or the whole text as a file."""
        source = (
            _find_answer(store, output_id, principal)
            if output_id.startswith("t_")
            else _find_output(store, output_id, principal)
        )
        if download:
            name = _SAFE.sub("_", output_id)
            headers = {"content-disposition": f'attachment; filename="{name}.txt"'}
            return StreamingResponse(
                (p.encode("utf-8", "replace") for p in source.pieces()),
                media_type="text/plain; charset=utf-8",
                headers=headers,
            )
        text, total = source.read(offset, limit)
        end = offset + len(text)
        return {
            "id": output_id,
            "text": text,
            "offset": offset,
            "total_chars": total,
            "next_offset": end if text and end < total else None,
        }

    return router


class _ToolOutput:
    """A tool output that was too large for the context."""

    def __init__(self, store: SessionStore, output_id: str, conversation_id: str) -> None:
        self._outputs, self._id, self._conversation = store.outputs, output_id, conversation_id

    def pieces(self) -> Iterator[str]:
        return self._outputs.pieces(self._id, conversation_id=self._conversation)

    def read(self, offset: int, limit: int) -> tuple[str, int]:
        page = self._outputs.read(self._id, conversation_id=self._conversation, offset=offset, limit=limit)
        return page.text, page.total_chars


class _AnswerText:
    """The final answer of a turn, read as a long text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def pieces(self) -> Iterator[str]:
        yield self._text

    def read(self, offset: int, limit: int) -> tuple[str, int]:
        return self._text[offset : offset + limit], len(self._text)


def _find_output(store: SessionStore, output_id: str, principal: Principal) -> _ToolOutput:
    owner = store.outputs.get(output_id).conversation_id
    if not principal.visibility.covers(store.conversations.get(owner).user):
        raise NotFound(f"no output {output_id!r}")
    return _ToolOutput(store, output_id, owner)


def _find_answer(store: SessionStore, turn_id: str, principal: Principal) -> _AnswerText:
    queued = store.inbox.get(turn_id)
    if queued.result is None or not is_visible_to(principal.visibility, queued, store):
        raise NotFound(f"no output {turn_id!r}")
    return _AnswerText(str(queued.result.get("text", "")))
