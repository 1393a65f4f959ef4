"""Nobody sees another's: every route, from the router's own table, with every id of somebody else's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.routing import APIRoute

from perdure.core.visibility import User, Visibility
from perdure.store.store import SessionStore
from perdure.web import web_ui_router
from support.web_ui_api import SeededStore, visibility_of

# What each parameter of a path is filled with; a route with another one fails here until it is thought of.
FILLED = {"seq": "1"}
NEEDED = {"/api/page/conversations/{any_id}/open": {"address": "m:1"}}


def _routes(store: SessionStore) -> list[APIRoute]:
    routes = [r for r in web_ui_router(store, visibility_of=visibility_of).routes if isinstance(r, APIRoute)]
    assert len(routes) == 11
    return routes


def _paths(seeded: SeededStore, *, any_id: str) -> list[tuple[str, dict[str, str]]]:
    """Every route that names a conversation, with this one put in."""
    named = [r for r in _routes(seeded.store) if "{any_id}" in r.path]
    assert len(named) >= 5
    return [(r.path.format(any_id=any_id, **FILLED).removeprefix("/api/page"), NEEDED.get(r.path, {})) for r in named]


@pytest.mark.parametrize("stranger", ["bob", "", "ANN", "ann "])
def test_every_route_answers_a_stranger_as_if_the_conversation_were_not_there(
    seeded: SeededStore, stranger: str
) -> None:
    owned = [seeded.story.long, seeded.story.branch, seeded.story.delegate, seeded.story.undone]
    owned += [s.id for s in seeded.store.conversations.chain(seeded.story.long)]
    for any_id in owned:
        for path, params in _paths(seeded, any_id=any_id):
            status, answer = seeded.api.ask(path, stranger, **params)
            never = seeded.api.ask(path.replace(any_id, "c_0000000000000000000"), stranger, **params)
            assert (status, never[0]) == (404, 404), path
            assert answer["detail"].replace(any_id, "ID") == never[1]["detail"].replace("c_0000000000000000000", "ID")


def test_the_owner_and_whoever_sees_everything_are_answered(seeded: SeededStore) -> None:
    seq = max(seeded.store.log.handoffs(seeded.story.long))
    for user in ("ann", None):
        for path, params in _paths(seeded, any_id=seeded.story.long):
            assert seeded.api.ask(path.replace("/handoffs/1", f"/handoffs/{seq}"), user, **params)[0] == 200, path


def test_lists_searches_filters_and_sums_hold_one_s_own_alone(seeded: SeededStore) -> None:
    mine = {c.id for c in seeded.store.conversations.list(visibility=User("bob"), limit=1_000).conversations}
    assert mine == {seeded.story.others}
    assert {r["id"] for r in seeded.api.get("/conversations", "bob", limit=200)["conversations"]} == mine
    assert {r["id"] for r in seeded.api.get("/conversations", "bob", q="a")["conversations"]} <= mine
    assert seeded.api.get("/conversations", "bob", q="lease")["conversations"] == []
    assert seeded.api.get("/search", "bob", q="lease worker row 54321", limit=200)["hits"] == []
    assert seeded.api.get("/search", "ann", q="swordfish")["hits"] == []
    assert {h["conversation_id"] for h in seeded.api.get("/search", "bob", q="swordfish")["hits"]} == mine
    assert seeded.api.get("/filters", "bob") == {"sources": ["telegram"], "models": ["m-9"]}
    usage = seeded.api.get("/usage", "bob", days=3_650)
    assert (usage["totals"]["calls"], usage["by_day"], usage["saved_by_compaction_tokens"]) == (0, [], 0)
    everything = seeded.api.get("/conversations", None, limit=200)["conversations"]
    assert {seeded.story.others, seeded.story.long} <= {r["id"] for r in everything}


def test_an_output_of_another_user_is_not_opened_through_one_s_own_conversation(seeded: SeededStore) -> None:
    output = seeded.store.outputs.list(seeded.story.long)[0]
    address = f"output:{output.id}"
    assert seeded.api.ask(f"/conversations/{seeded.story.others}/open", "bob", address=address)[0] == 404
    assert seeded.api.ask(f"/conversations/{seeded.story.branch}/open", "ann", address=address)[0] == 200


def test_nothing_an_answer_says_names_a_place_on_the_machine(seeded: SeededStore) -> None:
    """Where outputs lie is nobody's business: a path tells of the machine and its user."""
    answers: list[Any] = [seeded.api.get(f"/conversations/{seeded.story.long}")]
    answers.append(seeded.api.get(f"/conversations/{seeded.story.long}/context"))
    places = [o.location for o in seeded.store.outputs.list(seeded.story.long)]
    assert places
    assert not any(place in json.dumps(answers) for place in places)


def test_a_visibility_of_raises_what_it_will(seeded: SeededStore) -> None:
    from fastapi import FastAPI, HTTPException, Request
    from fastapi.testclient import TestClient

    def refuse(request: Request) -> Visibility:
        raise HTTPException(401, "say who you are")

    app = FastAPI()
    app.include_router(web_ui_router(seeded.store, visibility_of=refuse))
    client = TestClient(app)
    for route in _routes(seeded.store):
        path = route.path.format(any_id=seeded.story.long, **FILLED)
        assert client.get(path, params=NEEDED.get(route.path, {})).status_code == 401
