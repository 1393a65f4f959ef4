"""Bad requests: a fitting status and one plain sentence, whatever was asked for."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.web_ui_api import SeededStore

BAD = [
    ("/conversations", {"limit": 0}, 422),
    ("/conversations", {"limit": 201}, 422),
    ("/conversations", {"limit": "many"}, 422),
    ("/conversations", {"limit": 10**30}, 422),
    ("/conversations", {"since": -1}, 422),
    ("/conversations", {"until": 10**20}, 422),
    ("/conversations", {"cursor": "nonsense"}, 400),
    ("/conversations", {"cursor": "²:c_1"}, 400),
    ("/conversations", {"cursor": "9" * 50}, 400),
    ("/conversations", {"q": "x" * 1_001}, 422),
    ("/search", {"q": "x", "limit": 10_000}, 422),
    ("/usage", {"days": 0}, 422),
    ("/usage", {"days": 10**9}, 422),
    ("/live", {"cursor": "nonsense"}, 400),
    ("/live", {"cursor": "1~2"}, 400),
    ("/conversations/{}/timeline", {"limit": 501}, 422),
    ("/conversations/{}/timeline", {"before": -5}, 422),
    ("/conversations/{}/timeline", {"around": 10**30}, 422),
    ("/conversations/{}/timeline", {"before": 3, "after": 3}, 400),
    ("/conversations/{}/open", {}, 422),
    ("/conversations/{}/open", {"address": "nonsense"}, 404),
    ("/conversations/{}/open", {"address": "m:0"}, 404),
    ("/conversations/{}/open", {"address": "m:99999999"}, 404),
    ("/conversations/{}/open", {"address": "m:1", "offset": -1}, 422),
    ("/conversations/{}/open", {"address": "m:1", "limit": 10**7}, 422),
    ("/conversations/{}/open", {"address": "output:../../etc/passwd"}, 404),
    ("/conversations/{}/open", {"address": "h:1"}, 404),
    ("/conversations/{}/handoffs/x", {}, 422),
    ("/conversations/c_1", {}, 404),
    ("/conversations/c_", {}, 404),
    ("/conversations/s_%00", {}, 404),
    ("/conversations/%F0%9F%9A%80", {}, 404),
    ("/conversations/" + "c" * 101, {}, 422),
]


@pytest.mark.parametrize(("path", "params", "status"), BAD)
def test_a_bad_request_is_refused_in_plain_words(
    seeded: SeededStore, path: str, params: dict[str, Any], status: int
) -> None:
    given, answer = seeded.api.ask(path.format(seeded.story.long), **params)
    assert given == status
    assert isinstance(answer["detail"], str)
    assert 5 < len(answer["detail"]) < 200
    assert "Traceback" not in answer["detail"]


def test_a_beginning_of_an_id_is_not_enough(seeded: SeededStore) -> None:
    """It would tell which ids of others begin so."""
    for user in ("ann", None):
        assert seeded.api.ask(f"/conversations/{seeded.story.long[:-2]}", user)[0] == 404


def test_offsets_beyond_the_end_are_empty_pages(seeded: SeededStore) -> None:
    page = seeded.api.get(f"/conversations/{seeded.story.long}/open", address="m:1", offset=10**9)
    assert (page["text"], page["next_offset"]) == ("", None)
    far = seeded.api.get(f"/conversations/{seeded.story.long}/timeline", after=10**9)
    assert (far["messages"], far["first_seq"]) == ([], None)


def test_only_reading_is_offered(seeded: SeededStore) -> None:
    for method in ("post", "put", "patch", "delete"):
        answer = getattr(seeded.api.client, method)("/api/page/conversations", headers={"x-user": "ann"})
        assert answer.status_code == 405


ODD = st.text(max_size=40) | st.integers(-(10**20), 10**20).map(str)


@settings(max_examples=40)
@given(any_id=ODD, text=ODD, number=ODD, user=st.sampled_from(["ann", "bob", None]))
def test_nothing_that_is_asked_breaks_the_server(
    seeded: SeededStore, any_id: str, text: str, number: str, user: str | None
) -> None:
    one = f"/conversations/{quote(any_id, safe='', errors='replace') or 'x'}"
    requests: list[tuple[str, dict[str, Any]]] = [
        ("/conversations", {"q": text, "source": text, "model": text, "cursor": number}),
        ("/conversations", {"since": number, "until": number, "limit": number}),
        ("/search", {"q": text, "limit": number}),
        ("/usage", {"days": number}),
        (one, {}),
        (f"{one}/timeline", {"around": number}),
        (f"/conversations/{seeded.story.long}/open", {"address": text, "offset": number}),
        (f"/conversations/{seeded.story.long}/timeline", {"after": number, "limit": number}),
    ]
    for path, params in requests:
        status, answer = seeded.api.ask(path, user, **params)
        assert status in (200, 400, 404, 422), (path, params)
        assert status == 200 or isinstance(answer["detail"], str)


def test_a_long_answer_is_packed_for_whoever_takes_it_so(seeded: SeededStore) -> None:
    path = f"/api/page/conversations/{seeded.story.long}/timeline"
    packed = seeded.api.client.get(path, headers={"accept-encoding": "gzip"}, params={"limit": 500})
    plain = seeded.api.client.get(path, headers={"accept-encoding": "identity"}, params={"limit": 500})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 3
    assert packed.json() == plain.json()
    assert packed.headers["cache-control"] == "no-store"
