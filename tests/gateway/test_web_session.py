"""The web UI's session: one half of a token in a cookie, the other with the page, and neither is enough."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from http.cookies import SimpleCookie

import pytest
from fastapi import Depends, FastAPI
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from perdure.gateway.auth.middleware import require_scope
from perdure.gateway.auth.web_session import join_token, split_token, web_session_router
from support.auth_app import FixedTokens, everything, make_app

TOKEN = "pdr_" + "aB3-_" * 8
ORIGIN = "http://127.0.0.1:8089"


def app_with_sessions(public_url: str | None = None) -> FastAPI:
    app = make_app(FixedTokens(**{TOKEN: everything("ann")}))
    app.include_router(web_session_router(public_url=public_url), dependencies=[Depends(require_scope("read"))])
    return app


@pytest.fixture
def browser() -> Iterator[TestClient]:
    with TestClient(app_with_sessions(), base_url=ORIGIN) as client:
        yield client


def bearer(token: str = TOKEN) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=100))
def test_both_halves_make_the_token_and_each_alone_is_noise(token: str) -> None:
    cookie, key = split_token(token)
    assert join_token(cookie, key) == token
    # Of a few bytes, two random splits may be the same.
    assert split_token(token) != (cookie, key) or len(token) < 4, "the same token is split differently each time"
    other = split_token(token)[1]
    assert join_token(cookie, other) != token or len(token) < 4
    assert token.encode() not in base64.urlsafe_b64decode(cookie) or len(token) < 4


@pytest.mark.parametrize("halves", [("", ""), ("é", "é"), ("YQ==", "YWI="), ("no base64!", "YQ=="), ("", "YQ==")])
def test_halves_that_do_not_fit_are_no_token(halves: tuple[str, str]) -> None:
    assert join_token(*halves) in (None, "")


def test_a_second_tab_needs_the_cookie_and_the_key(browser: TestClient) -> None:
    key = browser.post("/api/session", headers=bearer()).json()["key"]
    # The cookie is for the API alone, so it is sent by hand to the test's own route.
    cookie = "; ".join(f"{c.name}={c.value}" for c in browser.cookies.jar)
    browser.cookies.clear()
    assert browser.get("/who", headers={"cookie": cookie, "x-perdure-key": key}).json() == {"user": "ann"}
    assert browser.get("/who", headers={"cookie": cookie}).status_code == 401
    assert browser.get("/who", headers={"x-perdure-key": key}).status_code == 401
    assert browser.get("/who", headers={"cookie": cookie, "x-perdure-key": split_token(TOKEN)[1]}).status_code == 401


def test_a_session_begins_with_a_valid_token_only(browser: TestClient) -> None:
    assert browser.post("/api/session").status_code == 401
    assert browser.post("/api/session", headers=bearer("pdr_wrong")).status_code == 401
    key = browser.post("/api/session", headers=bearer()).json()["key"]
    again = browser.post("/api/session", headers={"x-perdure-key": key})
    assert (again.status_code, again.json()["error"]["code"]) == (400, "no_token")


@pytest.mark.parametrize(
    ("origin", "public_url", "is_secure"),
    [(ORIGIN, None, False), ("https://127.0.0.1", None, True), (ORIGIN, "https://agents.example", True)],
)
def test_the_cookie_is_for_this_server_its_api_and_no_script(
    origin: str, public_url: str | None, is_secure: bool
) -> None:
    with TestClient(app_with_sessions(public_url), base_url=origin) as browser:
        header = browser.post("/api/session", headers=bearer()).headers["set-cookie"]
    ((name, morsel),) = SimpleCookie(header).items()
    assert name == ("perdure_8089" if "8089" in origin else "perdure")
    assert (morsel["httponly"], morsel["samesite"].lower(), morsel["path"]) == (True, "strict", "/api")
    assert bool(morsel["secure"]) is is_secure
    assert TOKEN not in header


def test_signing_out_removes_the_cookie(browser: TestClient) -> None:
    key = browser.post("/api/session", headers=bearer()).json()["key"]
    assert browser.get("/api/session", headers={"x-perdure-key": key}).status_code == 200
    assert browser.delete("/api/session", headers={"x-perdure-key": key}).status_code == 204
    assert browser.get("/api/session", headers={"x-perdure-key": key}).status_code == 401
