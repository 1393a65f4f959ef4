"""`/context`: what fills the window, part by part, summing to what the gauge says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from perdure.agent.prompt import ContextFile, PromptSources, Skill, assemble, memory_part
from perdure.app.model_choices import ModelChoice
from perdure.commands.context import CONTEXT
from perdure.context.task_state.overview import describe_state
from perdure.context.task_state.state import PlanItem, TaskState
from perdure.core.messages import Message, ToolCall, assistant, user
from perdure.core.ports import MemorySnapshot
from perdure.core.visibility import EVERYONE, Visibility
from perdure.store.search.documents import score_documents
from perdure.tools.deferred import DeferredTools
from perdure.tools.tool import Tool
from support.agents import Bench, bench

ROW = re.compile(r"^(\S.*?) +[█░▏▎▍▌▋▊▉ ]* +([\d,]+) +\d+%$", re.MULTILINE)
PARTS = ["system", "tools", "memory", "head", "handoff", "tail", "tool outputs", "free"]


class FakeSurface:
    """The least of a surface."""

    visibility: Visibility = EVERYONE
    page_chars = 6_000
    project: str | None = None
    listed_ids: Sequence[str] = ()

    def __init__(self, b: Bench, session_id: str | None = None) -> None:
        self.store = b.store
        self.agent = b.again(session_id)

    def open(self, session_id: str | None) -> None:
        raise AssertionError("nothing is opened by looking")

    def model_choices(self) -> Sequence[ModelChoice]:
        return ()

    def sources(self) -> Sequence[tuple[str, str]]:
        return [("commands", "/review"), ("settings", "")]

    def choose_model(self, name: str) -> str:
        return name

    def rows(self) -> dict[str, int]:
        shown = CONTEXT.run(self, "").text
        return {name: int(n.replace(",", "")) for name, n in ROW.findall(shown)}


@pytest.mark.spec("A6")
def test_every_part_has_its_row_and_they_sum_to_the_window(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "MEMORY.md").write_text("# Ports\n\nThe database listens on 54321. " + "It is slow. " * 40)
    with bench(tmp_path, "An answer.", window=8_000, recall=lambda text: "Recalled: the port was 54321. " * 10) as b:
        chat_surface = FakeSurface(b)
        before = chat_surface.rows()
        assert list(before) == PARTS
        assert before["memory"] > 100
        assert before["tail"] == 0
        assert b.store.conversations.list().conversations == ()
        chat_surface.agent.chat("Which port? " + "filler " * 200)
        after = chat_surface.rows()
    assert sum(after.values()) == 8_000
    assert sum(after.values()) - after["free"] == chat_surface.agent.gauge.tokens
    assert after["memory"] > before["memory"] + 40  # the recalled passage
    assert after["tail"] > 150


def test_a_resumed_conversation_is_measured_before_anything_is_said_in_it(tmp_path: Path) -> None:
    with bench(tmp_path, "x") as b:
        session = b.store.create(system_prompt="Be brief.")
        b.store.append(session.id, [user("word " * 500), assistant("Noted.")])
        rows = FakeSurface(b, session.id).rows()
    assert rows["tail"] > 400
    assert rows["free"] < 32_000


@pytest.mark.spec("O2")
def test_the_state_of_the_task_is_shown_from_the_log(tmp_path: Path) -> None:
    with bench(tmp_path, "x") as b:
        session = b.store.create(system_prompt="Be brief.")
        b.store.append(
            session.id, [user("Port the lexer to C."), assistant("Done."), user("Never push. Now the parser.")]
        )
        shown = CONTEXT.run(FakeSurface(b, session.id), "").text
    assert "The parts are estimates, fitted to the total." in shown
    assert "open request:      “Never push. Now the parser.”" in shown
    assert "the user's rules:  1: “Never push.”" in shown


def test_the_next_item_of_the_plan_is_shown() -> None:
    plan = (PlanItem("read", True, 1), PlanItem("write the change", False, 1), PlanItem("test it", False, 1))
    assert ("plan", "1 of 3 done, next: write the change") in describe_state(TaskState(plan=plan))


def test_reasons_of_refusals_are_no_rules_of_the_user(tmp_path: Path) -> None:
    call = ToolCall("c1", "terminal", '{"command": "rm x.csv"}')
    refused = (
        "Error: terminal was not run, the user refused: “no, keep x.csv”. Approval was needed because: it deletes"
        " files. Do not try it in another form."
    )
    with bench(tmp_path, "x") as b:
        session = b.store.create(system_prompt="Be brief.")
        said = [
            user("Never push. Clear the folder."),
            assistant("", tool_calls=(call,)),
            Message("tool", refused, tool_call_id="c1", name="terminal", tool_state="refused"),
            assistant("Kept."),
            user("wait, not that one"),
        ]
        b.store.append(session.id, said)
        shown = CONTEXT.run(FakeSurface(b, session.id), "").text
    assert "the user's rules:  1: “Never push.”" in shown
    assert "refused calls:     1; the newest reason: “no, keep x.csv”" in shown


@pytest.mark.parametrize(
    "memory", [MemorySnapshot("", ""), MemorySnapshot("- likes tea", ""), MemorySnapshot("# Mine", "x")]
)
@pytest.mark.parametrize("skills", [(), (Skill("dig", "/s/SKILL.md", "digs"),)])
def test_the_memory_is_found_in_a_prompt_and_nothing_else_with_it(memory: MemorySnapshot, skills: list[Skill]) -> None:
    rich = MemorySnapshot(memory.memory and f"{memory.memory}\n\n# A heading of its own\n\nmore", memory.user)
    for given in (memory, rich):
        sources = PromptSources("I am it.", given, skills, [ContextFile("AGENTS.md", "# Rules\n\nBe kind.")], "Linux")
        shown = memory_part(assemble(sources))
        assert bool(shown) == bool(given.memory or given.user)
        assert given.memory in shown
        assert given.user in shown
        assert not {"I am it.", "Be kind.", "digs", "Linux"} & set(re.split(r"[\n:]+ ?", shown))
    assert memory_part("A prompt of somebody's own.\n\n# What now\n\nx") == ""


@pytest.mark.spec("O6")
def test_what_deferred_tools_save_is_shown(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {f"field_{n}": {"type": "string"} for n in range(20)}}
    many = [Tool(f"desk__tool_{n}", "Does one thing. " * 20, schema, str) for n in range(40)]
    with bench(tmp_path, "An answer.", tools=many) as b:
        assert "found by need" not in CONTEXT.run(FakeSurface(b), "").text
        chat_surface = FakeSurface(b)
        chat_surface.agent.deps.tools.deferred = DeferredTools(score_documents, threshold_tokens=3_000)
        before, shown = chat_surface.rows()["tools"], CONTEXT.run(chat_surface, "").text
        assert "40 tools listed in" in shown
        assert "found by need: saves" in shown
        assert before < 3_000
