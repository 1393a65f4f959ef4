"""How a request is refused: with a status that fits and one plain sentence, whatever was asked for."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from perdure.core.errors import NotFound, StoreError, StoreUnavailable

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class PageRoute(APIRoute):
    """A route whose failures are told in plain words."""

    def get_route_handler(self) -> Handler:
        answer = super().get_route_handler()

        async def refuse_plainly(request: Request) -> Response:
            try:
                return await answer(request)
            except RequestValidationError as error:
                raise HTTPException(422, _plain(error)) from error
            except NotFound as error:
                raise HTTPException(404, str(error)) from error
            except StoreUnavailable as error:
                raise HTTPException(503, str(error)) from error
            except StoreError as error:
                raise HTTPException(400, str(error)) from error

        return refuse_plainly


def _plain(error: RequestValidationError) -> str:
    said = [f"{'.'.join(str(p) for p in e['loc'][1:]) or 'the request'}: {e['msg']}" for e in error.errors()]
    return "; ".join(said)
