"""`/compress` says which of four things came of it, with figures where there are any."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from perdure.agent.agent import ConversationAgent
from perdure.agent.runner import LoopThread
from perdure.app.model_choices import ModelChoice
from perdure.commands.context import compress
from perdure.context.compressor import ContextCompressor
from perdure.context.engine import Compaction, EngineServices
from perdure.core.ports import Summary
from perdure.core.visibility import OWNER, AnyUser
from perdure.store.store import SessionStore
from support.agents import Bench, bench

SUMMARY = "## Goal\nFill a window.\n\n## Completed Actions\n1. ASKED questions — answered [tool: none]"


class Broken(ContextCompressor):
    """Fails when it is asked to compact."""

    def compress(self, messages: Sequence[Any], **options: Any) -> Compaction:
        raise RuntimeError("out of ideas")


@dataclass
class FakeSurface:
    """The least of a surface: one agent."""

    agent: ConversationAgent
    store: SessionStore
    user: AnyUser = OWNER

    def open(self, session_id: str | None) -> None:
        raise NotImplementedError

    def model_choices(self) -> Sequence[ModelChoice]:
        return ()

    def sources(self) -> Sequence[tuple[str, str]]:
        return [("commands", "/review"), ("settings", "")]

    def choose_model(self, name: str) -> str:
        raise NotImplementedError


def _desk(b: Bench, engine: ContextCompressor, summarize: Any = None) -> FakeSurface:
    deps = replace(b.deps, engine=engine)
    agent = ConversationAgent(deps, LoopThread(), services=lambda live: EngineServices(summarize=summarize))
    for i in range(10):
        agent.chat(f"question {i} " + "padding words " * 150)
    return FakeSurface(agent, b.store)


@pytest.mark.spec("N2")
def test_done_by_a_model_tells_tokens_and_messages_before_and_after(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        said = compress(_desk(b, ContextCompressor(), lambda prompt, *, max_tokens: Summary(SUMMARY, "m-1")), "")
        assert said.level == "info"
        assert said.text.startswith("Compacted: a handoff written by m-1 covers 13 messages.\n")
        assert re.search(r"before \S+\s+[\d,.k]+ tokens in 20 messages", said.text)
        assert re.search(r"after  \S+\s+[\d,.k]+ tokens in \d+ messages", said.text)


@pytest.mark.spec("N2", "F3")
def test_a_digest_in_a_summarys_stead_is_a_warning_that_says_why(tmp_path: Path) -> None:
    def down(prompt: str, *, max_tokens: int) -> Summary:
        raise ConnectionError("the summary model is away")

    with bench(tmp_path) as b:
        said = compress(_desk(b, ContextCompressor(), down), "")
        assert said.level == "warning"
        assert said.text.startswith("Compacted without a model")
        assert "the summary model is away" in said.text.partition("\n")[0]
        assert said.text.count("ompacted") == 1


@pytest.mark.spec("N2")
def test_failed_unchanged_is_told_apart_from_nothing_to_do(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        chat_surface = _desk(b, Broken())
        before = chat_surface.agent.session_id
        said = compress(chat_surface, "")
        assert said.level == "warning"
        assert said.text.startswith("The compaction failed; nothing has changed.")
        assert "out of ideas" in said.text
        assert chat_surface.agent.session_id == before
        assert len(b.store.history(before or "").entries) == 20


def test_before_the_first_word_there_is_nothing_to_compact(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        assert compress(FakeSurface(b.agent, b.store), "").text == "Nothing to compact: nothing has been said yet."


def test_a_handoff_that_could_not_be_rewritten_is_a_warning_with_the_next_step(tmp_path: Path) -> None:
    answers = [SUMMARY, "Once upon a time there was a window, and nobody could say what had been asked about it."]

    def summarize(prompt: str, *, max_tokens: int) -> Summary:
        return Summary(answers.pop(0) if len(answers) > 1 else answers[0], "writer-1")

    with bench(tmp_path, *["Yes. " + "word " * 120] * 20, window=8_000, summarize=summarize) as b:
        for i in range(10):
            b.agent.chat(f"question {i} " + "padding words " * 20)
        surface = FakeSurface(b.agent, b.store)
        assert compress(surface, "").level == "info"
        result = compress(surface, "the padding")
        assert result.level == "warning", result.text
        assert "no summary could be written for a new handoff (the summary " in result.text
        assert "The present handoff stays" in result.text
        assert "/model chooses another model" in result.text
        assert "`perdure config set compression.summarize false`" in result.text
