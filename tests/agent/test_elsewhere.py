"""Two processes, one conversation: whoever goes on with it knows what the other did, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.agent.agent import ConversationAgent
from perdure.core.events import Event, Notice
from support.agents import Bench, bench
from support.long_histories import working_session


def heard_by(agent: ConversationAgent) -> list[str]:
    """What an agent says about the conversation having gone on, from now on."""
    told: list[str] = []

    def hear(event: Event) -> None:
        if isinstance(event, Notice) and "elsewhere" in event.text:
            told.append(event.text)

    agent.events.tap(hear)
    return told


def sent(b: Bench) -> list[str]:
    """The words of the last request, without the system prompt."""
    return [str(m["content"]) for m in b.sim.requests[-1].body["messages"] if m["role"] != "system"]


@pytest.mark.spec("I7", "J1")
def test_what_was_said_elsewhere_is_known_before_the_next_message_goes_out(tmp_path: Path) -> None:
    with bench(tmp_path, "One.", "Two, from afar.", "Three.", "Four.") as b:
        told = heard_by(b.agent)
        b.agent.chat("first")
        b.again(b.agent.session_id).chat("second,\nsaid elsewhere")
        assert told == []
        assert b.agent.chat("third") == "Three."
        assert sent(b) == ["first", "One.", "second,\nsaid elsewhere", "Two, from afar.", "third"]
        assert told == [
            "This conversation went on elsewhere: 2 messages were added. It goes on from there.\n"
            "  you: second, said elsewhere\n  it : Two, from afar."
        ]
        b.agent.chat("fourth")
        assert len(told) == 1, "it is said once"
        assert b.sim.violations == []


@pytest.mark.spec("I2", "I4", "I7")
def test_a_compaction_made_elsewhere_is_gone_on_from(tmp_path: Path) -> None:
    with bench(tmp_path, "One.", "Two.", "Three.", window=200_000) as b:
        told = heard_by(b.agent)
        b.agent.run_conversation("And now?", conversation_history=working_session(24))
        before, other = b.agent.session_id, b.again(b.agent.session_id)
        assert other.compress().outcome == "digest"
        b.agent.chat("go on")
        assert b.agent.session_id == other.session_id != before
        assert [line.split(". ")[0] for line in told] == ["This conversation went on elsewhere: it was compacted"]
        assert len(sent(b)) < len(b.sim.requests[0].body["messages"])
        # And back: the other one hears of the turn, and of a compaction taken back.
        b.agent.undo()
        heard = heard_by(other)
        other.chat("and on")
        assert heard[0].startswith(
            "This conversation went on elsewhere: 2 messages were added, and a compaction was taken back."
        )
        assert other.session_id == b.agent.session_id
        assert b.sim.violations == []


def test_what_one_did_oneself_is_no_news(tmp_path: Path) -> None:
    with bench(tmp_path, *["Fine."] * 5, window=200_000) as b:
        told = heard_by(b.agent)
        b.agent.run_conversation("And now?", conversation_history=working_session(24))
        b.agent.compress()
        b.agent.chat("go on")
        b.agent.compress()
        b.agent.undo()
        b.agent.compress()
        b.agent.undo()
        b.agent.chat("and on")
        branch = b.store.conversations.branch(b.store.get_compression_tip(b.agent.session_id or ""), at_seq=10)
        for session_id in (b.agent.session_id, branch.id):
            resumed = b.again(session_id)
            again = heard_by(resumed)
            resumed.chat("and on")
            assert again == []
        assert told == []


@pytest.mark.spec("E9", "I7")
def test_what_was_scrubbed_elsewhere_is_not_sent_again(tmp_path: Path) -> None:
    def recall(text: str) -> str:
        return "The pass phrase used to be plover-9917."

    with bench(tmp_path, "One.", "Two.", "Three.", recall=recall) as b:
        told = heard_by(b.agent)
        b.agent.chat("The pass phrase is plover-9917.")
        session_id = b.agent.session_id or ""
        b.store.scrub(session_id, lambda text: text.replace("plover-9917", "[REDACTED]"))
        assert "plover-9917" not in str(b.store.conversation_state(session_id).items()), "recalled context included"
        b.agent.chat("go on")
        *earlier, newest = sent(b)
        assert "The pass phrase is [REDACTED]." in earlier[0]
        assert "plover-9917" not in str(earlier)
        assert "go on" in newest
        assert told == ["This conversation went on elsewhere: secrets were redacted. It goes on from there."]
        b.agent.chat("and on")
        assert len(told) == 1, "it is said once"
