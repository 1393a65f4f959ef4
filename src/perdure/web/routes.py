"""How a request of the page is answered: long answers packed, failures with a fitting status and one plain sentence."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from perdure.core.errors import NotFound, StoreError, StoreUnavailable

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

# Packing a shorter answer takes longer than sending it.
_WORTH_PACKING = 16_384


class PageRoute(APIRoute):
    """A route that packs what is long and refuses in plain words, whatever was asked for."""

    def get_route_handler(self) -> Handler:
        answer = super().get_route_handler()

        async def answer_plainly(request: Request) -> Response:
            try:
                return await _packed(await answer(request), request)
            except RequestValidationError as error:
                raise HTTPException(422, _plain(error)) from error
            except NotFound as error:
                raise HTTPException(404, str(error)) from error
            except StoreUnavailable as error:
                raise HTTPException(503, str(error)) from error
            except StoreError as error:
                raise HTTPException(400, str(error)) from error

        return answer_plainly


async def _packed(response: Response, request: Request) -> Response:
    """A body that is long and wanted packed, packed; a stream has none."""
    body = getattr(response, "body", b"")
    if len(body) < _WORTH_PACKING or "gzip" not in request.headers.get("accept-encoding", "").lower():
        return response
    # The lowest level: it takes a third of the time and leaves little more than the highest.
    packed = await asyncio.to_thread(gzip.compress, body, 1)
    headers = {k: v for k, v in response.headers.items() if k != "content-length"}
    headers |= {"content-encoding": "gzip", "vary": "Accept-Encoding"}
    return Response(packed, status_code=response.status_code, headers=headers)


def _plain(error: RequestValidationError) -> str:
    """`limit: Input should be less than or equal to 200`, one after the other."""
    return "; ".join(
        f"{'.'.join(str(p) for p in e['loc'][1:]) or 'the request'}: {_said(str(e['msg']))}" for e in error.errors()
    )


def _said(message: str) -> str:
    return message.removeprefix("Value error, ").replace("Input should be", "must be")
