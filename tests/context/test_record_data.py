"""Results that are data: which of their values the line and the detail of a call tell."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

import perdure
from perdure.context.record.documents import fair_share, page_passages, within_share
from perdure.context.record.record import draw_record
from perdure.context.tool_calls.call_line import CallLine
from perdure.context.tool_calls.describe import describe_call
from perdure.context.tool_calls.json_results import complete_json
from perdure.core.messages import Entry, ToolCall, assistant, tool_result, user


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

    def test_the_excerpt_of_a_hit_begins_with_what_its_title_does_not_say(self) -> None:
        title = "Tidal energy in 2031: costs and sites - Coastal Review"
        excerpt = (
            "Tidal energy in 2031: costs and sites. Read more about tidal energy in 2031: costs and sites."
            " here is everything you have to know about it. The Orkney array delivers 14 MW at 92 euros per MWh."
            " A second site near Brest follows in 2033, with turbines of the same kind, and a cable to the mainland."
        )
        hits = [{"title": title, "url": "https://coast.test/a", "content": excerpt}]
        hits.append({"title": "Other", "url": "https://coast.test/b", "content": "Short."})
        detail = call("web_search", hits, query="tidal energy").detail
        assert "/a): … The Orkney array delivers 14 MW at 92 euros per MWh. A second site near Brest" in detail
        assert "Other (https://coast.test/b): Short." in detail

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

    def test_hits_of_a_search_have_title_address_and_date(self) -> None:
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
        assert "Tides 2.0 is out (https://www.news.test/tides-2, 2026-01-12): The release." in detail
        assert "How tides work (https://sea.test/how?x=1): A primer of 40 pages." in detail


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
        call("list_contributors", "[" * 60_000 + "," * 60_000, repository="acme/tides")
        call("list_contributors", '[{"a": ' * 50_000, repository="acme/tides")
        assert time.perf_counter() - start < 1.5


README = """# Tides

[![build](https://badges.test/b.svg)](https://ci.test/tides) [![license](https://badges.test/l.svg)](https://l.test)

[English](./README.md) | [Deutsch](./README_de.md) | [Español](./README_es.md)

> [!NOTE] As we move to Tides 3.0 in May, the 2.x branch only receives fixes. Its archive stays online.

Tides is a forecast engine for harbours. It was started by [Ada Brook](https://people.test/ada?ref=readme).

## Contents

- [Install](#install)
- [Usage](#usage)

## Install

The [installer](https://get.test/tides?os=all&utm=readme) needs one command.

- [Python](https://python.test/downloads): version 3.12+

## Usage

The console shows the forecast of a harbour. Then it waits.

Save reports as: `tides_HARBOUR.md`

Share

Sign up

42
"""


class TestPages:
    def test_statements_are_told_without_targets_and_navigation(self) -> None:
        text = "\n".join(p.text for p in page_passages(README))
        assert "The installer needs one command." in text
        assert "started by Ada Brook" in text
        for noise in ("https://", "badges", "Deutsch", "Sign up", "42"):
            assert noise not in text

    def test_news_and_figures_outrank_other_sentences(self) -> None:
        worth = {p.text.removeprefix("> "): p.worth for p in page_passages(README)}
        other = worth["Then it waits."]
        note = next(w for t, w in worth.items() if "Tides 3.0 in May" in t)
        assert note > worth["The console shows the forecast of a harbour."] > other
        assert worth["- Python: version 3.12+"] > other
        assert worth["Install:"] < other

    def test_label_is_shown_with_what_it_introduces(self) -> None:
        assert "Save reports as: `tides_HARBOUR.md`" in [p.text for p in page_passages(README)]

    def test_names_of_a_list_come_before_the_description_of_one(self) -> None:
        names = ("Alder", "Birch", "Cedar (default)", "Douglas")
        items = "\n".join(f"- **{n}**: {'a long description of its uses and properties, ' * 4}" for n in names)
        page = f"# Engines\n\nEngines that can be chosen:\n\n{items}\n  - Requires `KEY`\n"
        passages = within_share(page_passages(page), 160)
        shown = [p.text for p in passages if p.worth]
        assert all(f"- {name}" in shown for name in names)

    def test_fetched_page_is_told_by_its_statements(self) -> None:
        line = call("web_fetch", README, url="https://forge.test/tides")
        assert "Tides" in line.line
        assert "Tides 3.0 in May" in line.detail
        assert "badges" not in line.detail

    def test_page_inside_an_object(self) -> None:
        body = {"title": "Tides 3.0", "date": "2026-05-02", "url": "https://n.test/3", "content": README}
        assert "Tides 3.0 · 2026-05-02" in call("web_fetch", body, url="https://n.test/3").detail

    def test_short_texts_are_whole_before_long_ones_grow(self) -> None:
        assert fair_share([100, 200, 5_000], 1_000) == 700
        assert fair_share([4_000, 5_000], 1_000) == 500
        assert fair_share([], 1_000) == 0

    def test_share_keeps_the_best_passages_with_their_headings(self) -> None:
        passages = within_share(page_passages(README), 200)
        chosen = [p for p in passages if p.worth]
        assert 0 < sum(len(p.text) for p in chosen) <= 200
        assert any("Tides 3.0 in May" in p.text for p in chosen)


def research(pages: int) -> list[Entry]:
    """A session that reads a long page and several short results."""
    section = "## Part {n}\n\nPart {n} describes one more step of the work in a sentence of its own.\n\n"
    long_page = "# Manual\n\n" + "".join(section.format(n=n) for n in range(300))
    messages = [user("Compare the harbours.")]
    for n in range(pages):
        depths = [{"harbour": f"H{n}", "depth": 11 + n}, {"harbour": "X", "depth": 3}]
        body = long_page if n == 0 else json.dumps(depths)
        name = "web_fetch" if n == 0 else "get_depths"
        arguments = json.dumps({"url": f"https://h.test/{n}"})
        messages.append(assistant(None, (ToolCall(f"c{n}", name, arguments),)))
        messages.append(tool_result(f"c{n}", body))
    return [Entry(n, m) for n, m in enumerate(messages)]


def test_one_long_page_leaves_room_for_the_values_of_other_results() -> None:
    record = draw_record(research(9), budget=6_000)
    for n in range(1, 9):
        assert f"H{n} ({11 + n})" in record
    assert "Part 3 describes" in record


def test_each_result_shows_its_first_values_before_one_is_whole() -> None:
    messages = [user("Look at my bookings.")]
    for n in range(8):
        legs = [{"leg": f"T{n}{k}", "from": "OSL", "to": f"P{k}", "price": 90 + k, "seat": f"{k}A"} for k in range(12)]
        body = {
            "booking": f"B{n}",
            "cabin": "economy",
            "bags": n,
            "note": "no change after check-in " * 4,
            "legs": legs,
        }
        call_id = f"c{n}"
        messages.append(assistant(None, (ToolCall(call_id, "get_booking", json.dumps({"booking": f"B{n}"})),)))
        messages.append(tool_result(call_id, json.dumps(body)))
    record = draw_record([Entry(n, m) for n, m in enumerate(messages)], budget=3_200)
    for n in range(8):
        assert re.search(rf"\bB{n}\b.*(?:\n.*)?cabin: economy, bags: {n}", record)


def test_the_summarizer_reads_the_values_of_results() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Compare the depths of all harbours."}]
    for n in range(24):
        rows = [
            {"pier": f"P{n}-{k}", "depth": 1_000 * n + k, "note": f"sounding {k} was taken at low water"}
            for k in range(12)
        ]
        body = json.dumps([{**row, "picture_url": f"https://h.test/{n}/{'x' * 150}"} for row in rows])
        function = {"name": "get_depths", "arguments": json.dumps({"harbour": n})}
        messages.append(
            {"role": "assistant", "tool_calls": [{"id": f"c{n}", "type": "function", "function": function}]}
        )
        messages.append({"role": "tool", "tool_call_id": f"c{n}", "content": body})
    prompts: list[str] = []
    perdure.compress(messages, context_length=20_000, summarize=lambda prompt: prompts.append(prompt) or "")
    missing = [n for n in range(18) if f"P{n}-11 / {1_000 * n + 11} / sounding 11" not in prompts[0]]
    assert missing == []
