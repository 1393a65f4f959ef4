"""What went wrong in a conversation: counted in its header and the list, and listed in order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from perdure.core.errors import ErrorKind, kind_label
from perdure.core.messages import CUT_OFF, ToolCall, assistant, tool_result, user
from perdure.store.records import StoredEvent
from perdure.store.store import SessionStore, open_store
from perdure.web import static
from support.agents import bench
from support.store import FakeClock
from support.web_ui_api import Asking

STOPPED_WORDS = 'it said "why": "interrupted" and : "failed"'
# One event each, and the filters of the list that show a conversation with it.
EVENTS: tuple[tuple[str, Mapping[str, Any], set[str]], ...] = (
    ("turn_failed", {"reason": "401: wrong key"}, {"failures", "failed", "errors"}),
    ("model_refused", {"model": "gpt-5"}, {"failures", "failed", "refused"}),
    ("turn_stopped", {}, {"stopped"}),
    ("partial_reply", {"text": "Half", "why": "interrupted"}, {"stopped"}),
    ("recovery", {"kind": "rate_limit", "action": "reroute", "message": "slow"}, {"failures", "errors"}),
    ("tools", {"states": {"a": "failed"}}, {"failures", "tools"}),
    ("tools", {"states": {"a": "refused"}}, {"refused"}),
    ("partial_reply", {"text": STOPPED_WORDS, "why": "transport"}, set()),
    ("tools", {"states": {"a": "completed", "b": "interrupted"}}, set()),
)
FILTERS = ("failures", "failed", "refused", "stopped", "errors", "tools")


@pytest.mark.parametrize(("kind", "payload", "filters"), EVENTS)
def test_each_kind_of_failure_is_counted_once_and_found_by_its_filters(
    tmp_path: Path, kind: str, payload: Mapping[str, Any], filters: set[str]
) -> None:
    with open_store(tmp_path / "p.db") as store:
        session = store.create(user_key="ann")
        store.append(session.id, user("hello"))
        store.ledger.record_event(StoredEvent(session.id, kind, dict(payload)))
        store.create(user_key="ann", title="Nothing happened here")
        api = Asking(store)
        matching = {only for only in FILTERS if api.get("/conversations", only=only)["conversations"]}
        head = api.get(f"/conversations/{session.id}")
        row = next(r for r in api.get("/conversations")["conversations"] if r["id"] == session.conversation_id)
    assert matching == filters
    assert sum(head["failures"].values()) == (1 if filters else 0)
    assert head["failures"] == {name: row["figures"][name] for name in head["failures"]}


@pytest.mark.parametrize("kind", [None, ["rate_limit"], 7])
def test_a_damaged_event_is_listed_with_the_others(tmp_path: Path, kind: object) -> None:
    with open_store(tmp_path / "p.db") as store:
        session = store.create(user_key="ann")
        store.append(session.id, user("hello"))
        store.ledger.record_event(StoredEvent(session.id, "recovery", {"kind": kind, "action": "reroute"}))
        rows = Asking(store).get(f"/conversations/{session.id}/failures")["failures"]
    assert [row["text"].startswith("recovered from") for row in rows] == [True]


def _troubled(store: SessionStore, clock: FakeClock) -> str:
    session = store.create(user_key="ann")
    store.append(session.id, user("go"))
    clock.pass_ms(10)
    store.append(session.id, assistant(None, (ToolCall("c1", "terminal", "{}"), ToolCall("c2", "write_file", "{}"))))
    clock.pass_ms(10)
    run = StoredEvent(session.id, "tools", {"states": {"c1": "failed", "c2": "refused"}, "exit_codes": {"c1": 3}})
    results = [
        tool_result("c1", "[exit 3]\nno such file", name="terminal", state="failed"),
        tool_result("c2", "Refused by the user.", name="write_file", state="refused"),
    ]
    store.append(session.id, results, events=[run])
    clock.pass_ms(10)
    for kind, payload in (
        ("recovery", {"kind": "overloaded", "action": "reroute"}),
        ("turn_failed", {"reason": "401: wrong key"}),
    ):
        store.ledger.record_event(StoredEvent(session.id, kind, payload))
        clock.pass_ms(10)
    store.append(session.id, user("again"))
    clock.pass_ms(10)
    store.ledger.record_event(StoredEvent(session.id, "turn_stopped", {}))
    return session.id


def test_failures_are_listed_in_order_each_with_its_place_and_a_sentence(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_store(tmp_path / "p.db", clock=clock) as store:
        session = _troubled(store, clock)
        api = Asking(store)
        rows = api.get(f"/conversations/{session}/failures")["failures"]
        events = {e["id"]: e for e in api.get(f"/conversations/{session}/timeline")["events"]}
        marks = api.get(f"/conversations/{session}/context")["marks"]
    assert [(r["kind"], r["seq"], r["text"]) for r in rows] == [
        ("tool_failed", 3, "terminal failed with exit code 3"),
        ("tool_refused", 4, "write_file was refused: it did not run"),
        ("recovery", 4, "recovered from overloaded: it was tried again with another key or provider"),
        ("turn_failed", 4, "the turn failed: 401: wrong key"),
        ("turn_stopped", 5, "the turn was stopped"),
    ]
    # The web UI jumps to the event itself, which the timeline shows behind the same message.
    for row in rows:
        if row["event_id"] is not None:
            assert events[row["event_id"]]["after_seq"] == row["seq"]
    assert [(m["kind"], m["seq"], m["text"]) for m in marks] == [(r["kind"], r["seq"], r["text"]) for r in rows]


def test_a_stopped_reply_is_in_the_timeline_and_its_stop_right_behind_it(tmp_path: Path) -> None:
    reply = replace(assistant("The walrus sleeps"), extra={CUT_OFF: "interrupted"})
    with open_store(tmp_path / "p.db") as store:
        session = store.create(user_key="ann")
        store.append(session.id, [user("Where?"), reply])
        store.ledger.record_event(StoredEvent(session.id, "turn_stopped", {"has_text": True}))
        api = Asking(store)
        timeline = api.get(f"/conversations/{session.id}/timeline")
        (row,) = api.get(f"/conversations/{session.id}/failures")["failures"]
    assert [(m["text"], m["cut_off"]) for m in timeline["messages"]] == [
        ("Where?", None),
        ("The walrus sleeps", "interrupted"),
    ]
    assert [(e["kind"], e["after_seq"]) for e in timeline["events"]] == [("turn_stopped", 2)]
    assert row["text"] == "the turn was stopped while the reply was being written"


def test_failures_of_others_are_not_found(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_store(tmp_path / "p.db", clock=clock) as store:
        session = _troubled(store, clock)
        assert Asking(store).ask(f"/conversations/{session}/failures", user="bob")[0] == 404


def test_the_failures_of_a_real_conversation_agree_in_every_view(tmp_path: Path) -> None:
    from perdure.testing.simulator import Call, Fail, Say

    def breaks() -> str:
        """Never works."""
        raise ValueError("no")

    script = (
        Say(calls=(Call("breaks", {}, "c1"),)),
        "It does not work.",
        Say("I cannot help with that.", finish="content_filter"),
        Fail(status=401, body={"error": {"message": "wrong key", "type": "authentication_error"}}),
    )
    with bench(tmp_path, *script, tools=[breaks]) as b:
        for text in ("try it", "do something bad", "hello"):
            b.agent.run_conversation(text)
        session = b.agent.session_id or ""
        api = Asking(b.store)
        head = api.get(f"/conversations/{session}", user=None)
        rows = api.get(f"/conversations/{session}/failures", user=None)["failures"]
        events = api.get(f"/conversations/{session}/timeline", user=None)["events"]
    assert {name: n for name, n in head["failures"].items() if n} == {
        "failed_turns": 1, "model_refusals": 1, "failed_tool_calls": 1,
    }  # fmt: skip
    assert [r["kind"] for r in rows] == ["tool_failed", "model_refused", "turn_failed"]
    assert [e["kind"] for e in events if e["kind"] != "notice"] == ["model_refused", "turn_failed"]
    # A refusal stands right behind the answer it is about.
    refused = next(e for e in events if e["kind"] == "model_refused")
    assert refused["after_seq"] == rows[1]["seq"] == 6


def test_the_web_ui_names_kinds_of_errors_as_the_terminal_does() -> None:
    script = (Path(static.__file__).parent / "static/assets/js/event.js").read_text("utf-8")
    table = script.partition("const ERRORS = {")[2].partition("}")[0]
    names = dict(re.findall(r'(\w+): "([^"]+)"', table))
    kinds = get_args(ErrorKind)
    assert set(names) <= set(kinds)
    assert {kind: names.get(kind, kind.replace("_", " ")) for kind in kinds} == {k: kind_label(k) for k in kinds}
