"""Results that are data: which of their values the line and the detail of a call tell."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from perdure.context.record.call_json import complete_json
from perdure.context.record.calls import describe_call
from perdure.context.record.types import CallLine
from perdure.core.messages import ToolCall


def call(tool: str, body: object, **arguments: Any) -> CallLine:
    result = body if isinstance(body, str) else json.dumps(body, indent=2)
    return describe_call(ToolCall("c1", tool, json.dumps(arguments)), result)


def member(name: str, commits: int) -> dict[str, Any]:
    """A member of a team as an API lists them: two values and much around them."""
    return {
        "login": name,
        "id": 70_000_000 + commits,
        "node_id": "MDQ6VXNlcjE=",
        "avatar_url": f"https://pictures.test/{name}",
        "url": f"https://api.forge.test/users/{name}",
        "repos_url": f"https://api.forge.test/users/{name}/repos",
        "type": "User",
        "site_admin": False,
        "contributions": commits,
    }


MEMBERS = [("ada", 211), ("brook", 97), ("chen", 40), ("dara", 12)]


class TestObjects:
    def test_scalars_are_told_and_addresses_come_last(self) -> None:
        body = {
            "name": "acme/tides",
            "url": "https://forge.test/acme/tides",
            "node_id": "R_kgDOIlwd1Q",
            "stars": 18_211,
            "license": {"key": "mit", "url": "https://api.forge.test/licenses/mit"},
            "created_at": "2025-03-07T02:50:19Z",
            "topics": ["tides", "forecast"],
            "permissions": {"admin": False},
        }
        detail = call("get_repository", body, repository="acme/tides").detail
        assert "stars: 18211" in detail
        assert "license.key: mit" in detail
        assert "created_at: 2025-03-07T02:50:19Z" in detail
        assert "topics (2): tides, forecast" in detail
        assert "kgDO" not in detail
        assert "permissions" not in detail
        assert detail.index("topics") < detail.index("https://forge.test/acme/tides")

    def test_nested_lists_are_rows(self) -> None:
        body = {
            "reservation_id": "KX41QP",
            "cabin": "economy",
            "flights": [
                {"flight_number": "TD104", "origin": "OSL", "destination": "CDG", "date": "2026-04-02", "price": 152},
                {"flight_number": "TD220", "origin": "CDG", "destination": "LIS", "date": "2026-04-02", "price": 103},
            ],
            "payment_methods": {
                "card_11": {"source": "card", "last_four": "9725", "id": "card_11"},
                "gift_7": {"source": "gift", "amount": 157, "id": "gift_7"},
            },
        }
        detail = call("get_reservation", body, reservation_id="KX41QP").detail
        assert "reservation_id: KX41QP, cabin: economy" in detail
        assert "TD104 / OSL / CDG / 152" in detail
        assert "each date: 2026-04-02" in detail
        assert "gift_7 / gift / – / 157" in detail

    def test_signature_is_left_out(self) -> None:
        body = {
            "sha": "3adb4e90cbf14e8dd0b34ab72fcd02e3b550635f",
            "commit": {
                "message": "Round the rates",
                "verification": {"signature": "-----BEGIN PGP SIGNATURE-----\n" + "wsFcBAABCAAQBQJ" * 40},
            },
        }
        detail = call("get_commit", body, ref="main").detail
        assert "3adb4e90cbf14e8dd0b34ab72fcd02e3b550635f" in detail
        assert "Round the rates" in detail
        assert "PGP" not in detail


class TestLists:
    def test_two_telling_columns(self) -> None:
        line = call("list_contributors", [member(*m) for m in MEMBERS], repository="acme/tides")
        assert "login (contributions): ada (211), brook (97), chen (40), dara (12)" in line.detail
        assert "4 items" in line.line
        assert "ada (211)" in line.line
        assert "forge.test" not in line.detail

    def test_like_rows_have_one_header(self) -> None:
        rows = [{"order": f"W{n}", "total": 10 + n, "state": "open" if n % 2 else "paid"} for n in range(30)]
        detail = call("list_orders", rows, customer="c7").detail
        assert detail.count("(order / total / state):") == 1
        assert "W0 / 10 / paid | W1 / 11 / open" in detail
        assert len(detail) <= 2_100

    def test_what_does_not_fit_is_counted(self) -> None:
        rows = [{"order": f"W{n}", "note": f"{n} " + "long words " * 12, "total": n} for n in range(200)]
        detail = call("list_orders", rows, customer="c7").detail
        assert " more" in detail.split("\n")[-1]
        assert len(detail.split("\n")) <= 30

    def test_lines_of_objects(self) -> None:
        text = "\n".join(json.dumps(member(*m)) for m in MEMBERS)
        assert "brook (97)" in call("list_contributors", text, repository="acme/tides").detail

    def test_hits_of_a_search_have_title_domain_and_date(self) -> None:
        hits = [
            {
                "title": "Tides 2.0 is out",
                "url": "https://www.news.test/tides-2",
                "date": "2026-01-12",
                "snippet": "The release.",
            },
            {"title": "How tides work", "url": "https://sea.test/how?x=1", "snippet": "A primer of 40 pages."},
        ]
        detail = call("web_search", hits, query="tides").detail
        assert "Tides 2.0 is out (news.test, 2026-01-12): The release." in detail
        assert "How tides work (sea.test): A primer of 40 pages." in detail


class TestCutDocuments:
    @pytest.mark.parametrize(
        ("text", "body"),
        [
            ('[{"a": 1}, {"a": 2, "b": [1, 2', [{"a": 1}, {"a": 2, "b": [1]}]),
            ('{"a": "x, y", "b": {"c": 3}, "d": "unfini', {"a": "x, y", "b": {"c": 3}}),
            ('{"a": 1, "b": 2 [cut here] "c": 3}', {"a": 1}),
            ("[", None),
            ("{]", None),
        ],
    )
    def test_whole_members_are_read(self, text: str, body: object) -> None:
        assert complete_json(text) == body

    def test_both_ends_of_a_list_whose_middle_is_missing(self) -> None:
        text = json.dumps([member(f"user{n}", 400 - n) for n in range(40)], indent=2)
        cut = f"{text[:3_000]}\n[... 9,000 characters left out ...]\n{text[-3_000:]}"
        detail = call("list_contributors", cut, repository="acme/tides").detail
        assert "user0 (400)" in detail
        assert "user39 (361)" in detail
        assert "of a longer list, which is cut" in detail

    def test_large_documents_are_read_in_linear_time(self) -> None:
        text = json.dumps([member(f"user{n}", n) for n in range(1_500)])[:-40]
        start = time.perf_counter()
        call("list_contributors", text, repository="acme/tides")
        call("list_contributors", "[" * 200_000, repository="acme/tides")
        call("list_contributors", '[{"a": ' * 50_000, repository="acme/tides")
        assert time.perf_counter() - start < 1.5
