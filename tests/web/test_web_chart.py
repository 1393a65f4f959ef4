"""The context over time: every call as the ledger has it, and why what happened in between happened."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from perdure.core.usage import CanonicalUsage
from perdure.store.records import CallRecord, RouteRecord, StoredEvent
from perdure.store.store import open_store
from support.store import FakeClock
from support.web_ui_api import Asking, SeededStore

PARTS = ["system", "tools", "memory", "head", "handoff", "tail", "outputs"]


@pytest.mark.spec("A7")
def test_every_main_call_is_a_point_whose_parts_make_up_its_estimate(seeded: SeededStore) -> None:
    chart = seeded.api.get(f"/conversations/{seeded.story.long}/context")
    calls = [c for c in seeded.store.ledger.calls(seeded.story.long) if c.task == "main"]
    assert chart["parts"] == PARTS
    assert [p["started_at"] for p in chart["calls"]] == [c.started_at_ms for c in calls]
    for point, call in zip(chart["calls"], calls, strict=True):
        assert sum(point["composition"].values()) == point["estimate_tokens"] == call.estimate_tokens
        assert list(point["composition"]) == PARTS
        reported = call.usage.prompt_tokens or None
        assert (point["prompt_tokens"], point["window"]) == (reported, call.window_tokens)
        assert (point["threshold"], point["model"], point["verdict"]) == (
            call.threshold_tokens, call.route.model, call.verdict,
        )  # fmt: skip


def test_a_point_leads_to_the_message_its_call_was_made_after(seeded: SeededStore) -> None:
    chart = seeded.api.get(f"/conversations/{seeded.story.long}/context")
    kinds = {t.seq: t.entry.message.kind for t in seeded.store.timeline.page(seeded.story.long, limit=1_000).entries}
    answered = [p for p in chart["calls"] if not p["verdict"]]
    assert all(kinds[p["seq"]] in ("user", "tool", "handoff") for p in answered)
    assert [p["seq"] for p in answered] == sorted(p["seq"] for p in answered)
    assert {kinds[p["seq"] + 1] for p in answered} == {"assistant"}


@pytest.mark.spec("A7", "C3")
def test_a_compaction_says_why_in_a_plain_sentence(seeded: SeededStore) -> None:
    chart = seeded.api.get(f"/conversations/{seeded.story.long}/context")
    marks = [m for m in chart["marks"] if m["kind"] == "compaction"]
    events = seeded.store.ledger.events(seeded.story.long, kind="compaction")
    assert len(marks) == len(events) >= 2
    for mark, event in zip(marks, events, strict=True):
        before, after = event.payload["prompt_before"], event.payload["prompt_after"]
        assert before > after < event.payload["threshold"]
        # What a provider calls too long may be below the threshold.
        assert before >= event.payload["threshold"] or event.payload["reason"] == "overflow"
        threshold = event.payload["threshold"]
        # Only one at the very end has no call after it yet.
        next_calls = chart["calls"][mark["at"] : mark["at"] + 1]
        assert next_calls or mark is marks[-1]
        # At the end of a turn the last call's threshold counts: the next call may be one of another model.
        judged = chart["calls"][mark["at"] - 1 : mark["at"]] if event.payload["reason"] == "threshold" else next_calls
        assert judged or not next_calls
        assert all(call["threshold"] == threshold for call in judged)
        cause = {
            "preflight": f"because the prompt reached the threshold of {threshold:,}",
            "threshold": f"because the prompt had reached the threshold of {threshold:,} when the turn ended",
            "overflow": "because the provider reported that the prompt was too long for the model",
            "background": f"because the prompt reached the threshold of {threshold:,} (prepared in the background)",
        }[event.payload["reason"]]
        assert mark["text"] == f"compacted: {before:,} → {after:,} tokens, {cause}"
        # The prompt before it was larger than the one after it, and the mark stands between the two.
        larger = chart["calls"][mark["at"] - 1]["estimate_tokens"]
        assert all(call["estimate_tokens"] < larger for call in next_calls)


def test_spills_switches_and_recoveries_are_marked_with_their_reason(seeded: SeededStore) -> None:
    marks = seeded.api.get(f"/conversations/{seeded.story.long}/context")["marks"]
    texts: dict[str, list[str]] = {}
    for mark in marks:
        texts.setdefault(mark["kind"], []).append(mark["text"])
    assert re.fullmatch(
        r"dump_table returned [\d,]+ characters, too many for the context: stored at output:o_\w+", texts["spill"][0]
    )
    assert "model switched: gpt-5-nano → gpt-5, because you chose it" in texts["model_switch"]
    assert "model switched: gpt-5-mini → gpt-5-nano, because of rate limit" in texts["model_switch"]
    assert any(t.startswith("recovered from rate limit: it was tried again") for t in texts["recovery"])
    undone = seeded.api.get(f"/conversations/{seeded.story.undone}/context")["marks"]
    assert [m["kind"] for m in undone] == ["compaction", "undo"]
    assert undone[0]["text"].endswith("because you asked for it")


REASONS = {
    "threshold": "because the prompt had reached the threshold of 16,000 when the turn ended",
    "background": "because the prompt reached the threshold of 16,000 (prepared in the background)",
    "overflow": "because the provider reported that the prompt was too long for the model",
    "user": "because you asked for it",
    "a plug-in's own": "because of a plug-in's own",
    "": "for an unrecorded reason",
}


@pytest.mark.parametrize(("reason", "said"), REASONS.items())
def test_every_reason_has_its_words(tmp_path: Path, reason: str, said: str) -> None:
    """An old event states no threshold: that of the calls beside it is the one that was in force."""
    seeded: dict[str, Any] = {"outcome": "compacted", "reason": reason, "before": 20_000, "after": 5_000}
    clock = FakeClock()
    with open_store(tmp_path / "p.db", clock=clock) as store:
        session = store.create(user_key="ann")
        usage = CanonicalUsage(input_tokens=19_000)
        call = CallRecord(
            session.id, usage=usage, window_tokens=32_000, threshold_tokens=16_000, route=RouteRecord("x", "m")
        )
        for kind, payload in (("compaction", seeded), ("compaction", {**seeded, "outcome": "failed"})):
            store.ledger.record_call(call)
            clock.pass_ms(10)
            store.ledger.record_event(StoredEvent(session.id, kind, payload))
            clock.pass_ms(10)
        made, failed = Asking(store).get(f"/conversations/{session.id}/context")["marks"]
    assert made == {
        "kind": "compaction", "at": 1, "seq": 0, "event_id": 1, "text": f"compacted: 20,000 → 5,000 tokens, {said}",
        "before_tokens": 20_000, "after_tokens": 5_000,
    }  # fmt: skip
    assert (failed["at"], failed["text"]) == (2, f"compaction failed at 20,000 tokens; it was tried {said}")


def test_a_conversation_without_calls_has_an_empty_chart(seeded: SeededStore) -> None:
    chart = seeded.api.get(f"/conversations/{seeded.story.delegate}/context")
    assert (chart["calls"], chart["marks"]) == ([], [])
