"""What a compaction carries over into the session that goes on, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import estimate_tokens
from perdure.agent.agent import ConversationAgent
from perdure.agent.prompt import ContextFile, PromptSources, assemble, refresh_prompt
from perdure.core.ports import MemorySnapshot
from perdure.providers.types import ApiMode
from support.agents import PROMPT, bench
from support.simulator import MODES


def _talk_until_compacted(agent: ConversationAgent, session_id: str) -> None:
    for i in range(40):
        if agent.session_id not in (None, session_id):
            return
        agent.chat(f"question {i} " + "padding words " * 250)


@pytest.mark.spec("I2", "J13")
def test_a_prompt_that_was_handed_in_is_not_replaced_by_ours_at_a_compaction(tmp_path: Path) -> None:
    with bench(tmp_path, window=8_000) as b:
        agent = b.again(system_prompt="Answer in verse.")
        agent.chat("hello")
        first = agent.session_id or ""
        _talk_until_compacted(agent, first)
        assert agent.session_id != first
        assert b.store.conversations.session(agent.session_id or "").system_prompt == "Answer in verse."
        assert b.sim.requests[-1].body["messages"][0]["content"].startswith("Answer in verse.")


@pytest.mark.spec("I2", "J13")
def test_the_prompt_stays_byte_identical_while_memory_does_whatever_else_has_changed() -> None:
    memory = MemorySnapshot(memory="uses uv", user="likes brevity")
    files = [ContextFile("AGENTS.md", "run make test")]
    before = assemble(PromptSources("You are Perdure.", memory=memory, context_files=files))
    elsewhere = PromptSources("You are Perdure.", memory=memory, platform_notes="Working folder: /elsewhere.")
    assert refresh_prompt(before, elsewhere.memory, lambda memory: elsewhere) == before


@pytest.mark.spec("I2", "J13")
@pytest.mark.parametrize(
    "now",
    [
        MemorySnapshot(memory="uses uv\n\nand ruff", user="likes brevity"),
        MemorySnapshot(memory="uses", user="likes brevity"),
        MemorySnapshot(memory="", user="likes brevity"),
        MemorySnapshot(memory="uses uv", user=""),
    ],
    ids=["more", "less", "no notes", "no user"],
)
def test_changed_memory_makes_a_new_prompt_at_the_next_compaction(now: MemorySnapshot) -> None:
    then = MemorySnapshot(memory="uses uv", user="likes brevity")
    before = assemble(PromptSources("You are Perdure.", memory=then, platform_notes="System: Linux."))
    sources = PromptSources("You are Perdure.", memory=now, platform_notes="System: Linux.")
    assert refresh_prompt(before, sources.memory, lambda memory: sources) == assemble(sources) != before


@pytest.mark.spec("J13")
def test_notes_that_shrank_to_their_first_paragraph_are_seen_as_changed() -> None:
    before = assemble(PromptSources("me", memory=MemorySnapshot(memory="one\n\ntwo", user="")))
    sources = PromptSources("me", memory=MemorySnapshot(memory="one", user=""))
    assert refresh_prompt(before, sources.memory, lambda memory: sources) == assemble(sources)


@pytest.mark.spec("D2", "L4")
def test_a_long_head_is_sent_shortened_with_its_address_and_stays_whole_in_the_log(tmp_path: Path) -> None:
    first = "BEGIN " + "alpha beta gamma " * 1_000 + "END"
    with bench(tmp_path, window=32_000) as b:
        b.agent.chat(first)
        old = b.agent.session_id or ""
        _talk_until_compacted(b.agent, old)
        b.agent.chat("after")
        sent = [r.body["messages"] for r in b.sim.requests[-2:]]
        shown = sent[-1][1]["content"]
        opened = b.store.history(b.agent.session_id or "").entries[0]
        assert b.agent.session_id != old
        assert shown.startswith("BEGIN")
        assert shown.endswith("END")
        assert f"open m:{opened.seq} with session_search" in shown
        assert sum(estimate_tokens([m]) for m in sent[-1][1:4]) <= 32_000 * 0.05 + 40
        assert opened.message.text == first
        # A process that resumes sends the same bytes.
        b.again(b.agent.session_id).chat("resumed")
        assert b.sim.requests[-1].body["messages"][: len(sent[-1])] == sent[-1]
        assert b.sim.violations == []


@pytest.mark.spec("D6", "E10")
@pytest.mark.parametrize("mode", MODES)
def test_the_note_about_compacted_turns_is_a_block_behind_the_prompt_from_the_first_compaction_on(
    tmp_path: Path, mode: ApiMode
) -> None:
    with bench(tmp_path, window=8_000, mode=mode) as b:
        b.agent.chat("hello")
        before = str(b.sim.requests[-1].body)
        _talk_until_compacted(b.agent, b.agent.session_id or "")
        b.agent.chat("after")
        body = b.sim.requests[-1].body
        if mode == "anthropic_messages":
            assert [block["text"][:20] for block in body["system"]] == [PROMPT[:20], "Earlier turns of thi"]
        else:
            sent = body["instructions"] if mode == "codex_responses" else body["messages"][0]["content"]
            assert sent.startswith(f"{PROMPT}\n\nEarlier turns of this conversation were compacted")
        assert "Earlier turns" not in before
        # Neither how often it was compacted nor that accuracy may suffer is for the model.
        assert "accuracy" not in str(body)
        assert b.store.conversations.session(b.agent.session_id or "").system_prompt == PROMPT
