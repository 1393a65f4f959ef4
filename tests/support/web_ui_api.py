"""The page's API over a store, asked as a browser asks it: a request says whose it is in a header."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from perdure.core.ports import Clock
from perdure.core.visibility import Everyone, Visibility, user_from_key
from perdure.models.catalog import Catalog
from perdure.store.store import SessionStore, open_store
from perdure.web import web_ui_router
from support.web_ui_story import Story, tell


def visibility_of(request: Request) -> Visibility:
    """By the header `x-user`; a request without it sees everything."""
    user = request.headers.get("x-user")
    return Everyone() if user is None else user_from_key(user)


def app_over(store: SessionStore, **options: Any) -> FastAPI:
    app = FastAPI()
    app.include_router(web_ui_router(store, visibility_of=visibility_of, **options))
    return app


class Asking:
    """Requests to the API of one store. What the server cannot answer is raised here, not turned into a 500."""

    def __init__(self, store: SessionStore, *, clock: Clock | None = None, catalog: Catalog | None = None) -> None:
        self.client = TestClient(app_over(store, clock=clock, catalog=catalog))

    def get(self, path: str, user: str | None = "ann", **params: Any) -> Any:
        """The answer's JSON; raises for any refusal."""
        status, answer = self.ask(path, user, **params)
        assert status == 200, (status, answer)
        return answer

    def ask(self, path: str, user: str | None = "ann", **params: Any) -> tuple[int, Any]:
        headers = {} if user is None else {"x-user": user}
        answer = self.client.get(f"/api/page{path}", headers=headers, params=params or None)
        return answer.status_code, answer.json()


@dataclass(frozen=True, slots=True)
class SeededStore:
    """A store full of talk, and its API."""

    store: SessionStore
    story: Story
    api: Asking


@contextmanager
def seeded_store(folder: Path) -> Iterator[SeededStore]:
    with open_store(folder / "perdure.db") as store:
        story = tell(store, folder / "home", turns=16, others=12)
        yield SeededStore(store, story, Asking(store))
