"""Real recorded conversations, where they are at hand: export, import into an empty store, resume."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.data import Skip, sessions

from perdure.core.messages import user
from perdure.core.rules import Pairs
from perdure.store import Span, open_store
from support.store import handoff


@pytest.mark.spec("I9", "I4")
@pytest.mark.parametrize("name", ["entire_cli", "gjc_ko", "memorybank_cn"])
def test_a_real_conversation_exports_imports_and_resumes(tmp_path: Path, name: str) -> None:
    try:
        recorded = next(s["messages"] for s in sessions(name) if len(s["messages"]) > 12)
    except (Skip, StopIteration):
        pytest.skip("recorded sessions are not here")
    with open_store(tmp_path / "here.db") as here, open_store(tmp_path / "there.db") as there:
        session = here.transfer.import_messages(recorded)
        entries = here.history(session.id).entries
        cuts = sorted(Pairs().cut_points([e.message for e in entries]))
        tail = entries[cuts[len(cuts) * 3 // 4]].seq
        child = here.compact(session.id, (Span(1, 1), handoff(), Span(tail, entries[-1].seq)))
        here.append(child.id, user("and then?"))
        there.transfer.import_jsonl(list(here.transfer.export_jsonl(session.id)))
        assert there.get_compression_tip(session.id) == child.id
        assert there.history(child.id).messages == here.history(child.id).messages
        resumed = there.append(session.id, user("resumed elsewhere"))
        assert resumed.session_id == child.id
        assert [e.seq for e in there.log.expand(child.id)] == [e.seq for e in there.log.originals(child.id)]
        exported = [m for m in there.transfer.export_messages(session.id) if m["role"] != "system"]
        assert exported[: len(entries)] == [e.message.to_dict() for e in entries]
        word = max(entries[0].message.text.split(), key=len)
        assert any(h.tip_session_id == child.id for h in there.search(word))
