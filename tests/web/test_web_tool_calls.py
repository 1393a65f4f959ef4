"""Tool calls and failed turns in the timeline: a call is never apart from its results, and each says how it ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure.core.messages import Message, ToolCall, ToolState, assistant, tool_result, user
from perdure.core.ports import StoredOutput
from perdure.store.records import StoredEvent
from perdure.store.store import SessionStore, open_store
from perdure.tools.output_limits import persisted_block
from perdure.tools.runtime import INTERRUPTED
from perdure.web.views.timeline import kept_output
from support.web_ui_api import Asking


def calls(*ids: str, name: str = "terminal") -> Message:
    return assistant("", tuple(ToolCall(i, name, "{}") for i in ids))


def rows_of(store: SessionStore, session_id: str, **params: Any) -> list[dict[str, Any]]:
    page = Asking(store).get(f"/conversations/{session_id}/timeline", **params)
    return list(page["messages"])


def test_a_page_never_ends_between_a_call_and_its_results(tmp_path: Path) -> None:
    with open_store(tmp_path / "p.db") as store:
        session = store.create(user_key="ann")
        store.append(session.id, [user(f"m{n}") for n in range(39)])
        ids = [f"c{n}" for n in range(60)]
        store.append(session.id, [calls(*ids), *(tool_result(i, "done") for i in ids), user("next")])
        first = rows_of(store, session.id, after=0, limit=40)
        assert [m["seq"] for m in first] == list(range(1, 101))
        # From within the results on: all that are left, and each says which message called it.
        rest = rows_of(store, session.id, after=50, limit=1)
        assert [m["seq"] for m in rest] == list(range(51, 101))
        assert {m["call_seq"] for m in rest} == {40}
        # Whoever pages backwards has the later ones already.
        assert [m["seq"] for m in rows_of(store, session.id, before=42, limit=3)] == [39, 40, 41]


def test_a_result_names_the_nearest_call_with_its_id_though_ids_are_used_again(tmp_path: Path) -> None:
    with open_store(tmp_path / "p.db") as store:
        session = store.create(user_key="ann")
        for name in ("one", "two", "three"):
            store.append(session.id, [user("go"), calls("call_0", name=name), tool_result("call_0", "done")])
        whole = rows_of(store, session.id)
        part = rows_of(store, session.id, after=5, limit=1)
    assert [(m["tool_name"], m["call_seq"]) for m in whole if m["role"] == "tool"] == [
        ("one", 2), ("two", 5), ("three", 8),
    ]  # fmt: skip
    assert [(m["seq"], m["tool_name"], m["call_seq"]) for m in part] == [(6, "two", 5)]


@pytest.mark.parametrize("head", ["", "[exit 0]\n", "[stopped: still running after 2 s; use background=true]\n"])
def test_an_output_kept_apart_is_known_behind_the_tools_own_first_line(head: str) -> None:
    stored = StoredOutput("o_1abc", "c_1", "call_1", 198_000, "0" * 64, "/home/ann/.perdure/o_1abc.txt")
    kept = kept_output(head + persisted_block(stored, "the start", "the end"))
    assert kept is not None
    assert (kept.id, kept.chars) == ("o_1abc", 198_000)
    assert kept.preview.startswith(f"{head}First 9 characters:\nthe start")
    assert kept.preview.endswith("the end")
    assert "/home/ann" not in kept.preview
    assert "read_file" not in kept.preview


def test_what_merely_printed_the_words_of_a_kept_output_is_not_taken_for_one() -> None:
    stored = StoredOutput("o_1abc", "c_1", "call_1", 198_000, "0" * 64, "")
    block = persisted_block(stored, "a", "b")
    assert kept_output(f"[exit 0]\nfrom a log:\n{block}") is None
    assert kept_output(f"see {block}") is None


def test_each_result_says_how_its_call_ended(tmp_path: Path) -> None:
    states = {"c1": "completed", "c2": "failed", "c3": "refused", "c4": "interrupted"}
    recorded = {"seconds": {"c1": 1.5, "c2": 0.2, "c3": 3.6}, "states": states, "exit_codes": {"c1": 0, "c2": 127}}
    results = ["[exit 0]\nError: only printed", "[exit 127]\n", "Error: not run, the person said no", INTERRUPTED]
    with open_store(tmp_path / "p.db") as store:
        session = store.create(user_key="ann")
        said = [user("go"), calls(*states), *(tool_result(i, t) for i, t in zip(states, results, strict=True))]
        store.append(session.id, said, events=[StoredEvent(session.id, "tools", recorded)])
        rows = [m for m in rows_of(store, session.id) if m["role"] == "tool"]
    assert [m["state"] for m in rows] == list(states.values())
    assert [m["exit_code"] for m in rows] == [0, 127, None, None]
    # The time of a refused call is how long the person thought about it.
    assert [m["seconds"] for m in rows] == [1.5, 0.2, None, None]


def test_the_state_stored_with_a_result_outweighs_its_words(tmp_path: Path) -> None:
    states: tuple[ToolState, ...] = ("completed", "failed", "refused", "interrupted")
    texts = ["Error: only printed", "fine", "all right", "[exit 0]\nyes"]
    with open_store(tmp_path / "p.db") as store:
        session = store.create(user_key="ann")
        ids = [f"c{n}" for n in range(4)]
        results = [tool_result(i, t, state=s) for i, t, s in zip(ids, texts, states, strict=True)]
        store.append(session.id, [user("go"), calls(*ids), *results])
        rows = [m for m in rows_of(store, session.id) if m["role"] == "tool"]
    assert [m["state"] for m in rows] == list(states)


def test_conversations_older_than_the_record_are_read_by_their_words(tmp_path: Path) -> None:
    results = ["[exit 0]\nfine", "[exit 2]\nno such file", "Error: terminal failed: no", INTERRUPTED, "plain"]
    ids = [f"c{n}" for n in range(len(results))]
    with open_store(tmp_path / "p.db") as store:
        session = store.create(user_key="ann")
        store.append(session.id, [user("go"), calls(*ids), *(tool_result(*r) for r in zip(ids, results, strict=True))])
        rows = rows_of(store, session.id)
    assert [m["state"] for m in rows] == [None, None, "completed", "failed", "failed", "interrupted", "completed"]
    assert [m["exit_code"] for m in rows][2:] == [0, 2, None, None, None]


def test_a_failed_turn_stands_in_the_timeline_with_its_reason(tmp_path: Path) -> None:
    with open_store(tmp_path / "p.db") as store:
        session = store.create(user_key="ann")
        store.append(session.id, user("hello"))
        store.ledger.record_event(StoredEvent(session.id, "turn_failed", {"reason": "401: wrong key"}))
        page = Asking(store).get(f"/conversations/{session.id}/timeline")
    assert [(e["kind"], e["after_seq"], e["payload"]["reason"]) for e in page["events"]] == [
        ("turn_failed", 1, "401: wrong key")
    ]
