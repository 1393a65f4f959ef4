"""The engine `windows` at work: a scripted model takes notes, starts fresh windows, and looks into earlier ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure.app import Agent
from perdure.context.notebook import NotebookLog
from perdure.core.events import CompactionFinished, ToolFinished
from perdure.store.store import SessionStore, open_store
from perdure.testing.simulator import Call, Say, ScriptRequest, Simulator, strict

WINDOW = 16_000


def read_page(number: int) -> str:
    """Reads a page."""
    return f"page {number}\n" + f"plain words of page {number}, one after another\n" * 90


@dataclass
class Talk:
    agent: Agent
    sim: Simulator
    store: SessionStore
    events: list[object]

    @property
    def rollovers(self) -> int:
        return sum(isinstance(e, CompactionFinished) and e.outcome == "digest" for e in self.events)

    @property
    def view(self) -> str:
        """Everything the model saw in its last request."""
        return "\n".join(str(m) for m in self.sim.requests[-1].body["messages"])

    def results(self, name: str) -> list[str]:
        return [e.result.text for e in self.events if isinstance(e, ToolFinished) and e.call.name == name]


@contextmanager
def talk(folder: Path, script: Any, *, engine: str = "windows", model: str = "m", **settings: Any) -> Iterator[Talk]:
    with (
        Simulator(strict(), window=WINDOW, script=script) as sim,
        open_store(folder / "p.db") as store,
        Agent(
            model=model,
            provider="custom",
            base_url=sim.base_url,
            api_key="none",
            store=store,
            home=folder,
            tools=[read_page, "context"],
            settings={
                "model": {"context_length": WINDOW},
                "compression": {"summarize": False, **settings.pop("compression", {})},
                "context": {"engine": engine},
                **settings,
            },
        ) as agent,
    ):
        made = Talk(agent, sim, store, [])
        agent.events.tap(made.events.append)
        yield made
        assert sim.violations == []


class Reader:
    """Reads pages until it has been in so many windows; then it answers from what it sees, or searches once."""

    def __init__(self, windows: int) -> None:
        self.windows = windows
        self.pages = 0

    def __call__(self, request: ScriptRequest) -> Any:
        view = "\n".join(str(m.get("content")) for m in request.body["messages"] if m["role"] != "system")
        if "What was the code" in view:
            known = re.search(r"\bHERON-\d+", view)
            return f"It was {known[0]}." if known else Say("", calls=(Call("lcm_grep", {"query": "the vault code"}),))
        number = re.search(r"This is window (\d+)", view)
        if int(number[1] if number else 1) > self.windows:
            return "All pages are read."
        self.pages += 1
        calls = tuple(Call("read_page", {"number": self.pages + n}) for n in (0, 1000, 2000))
        return Say(f"Reading page {self.pages}.", calls=calls)


@pytest.mark.spec("O5", "M1")
def test_after_fifty_windows_the_model_still_knows_what_it_was_told_first(tmp_path: Path) -> None:
    with talk(tmp_path, Reader(50), agent={"max_turns": 1_000, "loop_repeats": 1_000}) as t:
        t.agent.chat("The vault code is HERON-5521. Never edit rates.csv.")
        t.agent.chat("Now read all the pages.")
        assert t.rollovers == 50
        assert "“Never edit rates.csv.” (m:1)" in t.view
        assert t.agent.chat("What was the code I gave you at the very beginning?") == "It was HERON-5521."
        assert len(t.results("lcm_grep")) <= 1, "in view, or one question away"
        assert len(t.store.addresses.windows(t.agent.session_id or "")) == 51


@pytest.mark.spec("O5")
def test_notes_stay_in_view_across_windows_and_leave_the_prefix_alone_between_them(tmp_path: Path) -> None:
    note = Call("notes", {"action": "add", "heading": "Decisions", "text": "Retry three times, then give up."})
    fresh = Call("new_context", {"reason": "pages are read", "next": "write the summary"})
    pages = tuple(Call("read_page", {"number": n}) for n in range(3))
    late = Call("notes", {"action": "replace", "heading": "Decisions", "old": "three", "text": "five"})
    script = [Say("", calls=pages), Say("", calls=(note,)), Say("", calls=(fresh,)), Say("", calls=(late,)), "Done."]
    with talk(tmp_path, script) as t:
        t.agent.chat("Read the pages, then sum up.")
        before, after, last = (r.body["messages"] for r in t.sim.requests[2:5])
        assert "page 2" in str(before)
        assert len(str(after)) < len(str(before)) - 6_000, "a fresh window"
        assert "### Decisions\\nRetry three times" in str(after)
        assert "Read the pages, then sum up." in str(after)
        assert "write the summary" in str(after), "what comes next is in the call itself"
        assert last[: len(after)] == after, "an edit changes nothing that was sent before it"
        history = t.store.history(t.agent.session_id or "").entries
        assert NotebookLog.read(history).notebook.text == "### Decisions\nRetry five times, then give up."


@pytest.mark.spec("O5")
def test_one_turn_on_a_small_window_leaves_the_notebook_whole(tmp_path: Path) -> None:
    def note(n: int) -> Say:
        text = f"Decision {n}: " + "we keep the schema as agreed; " * 30
        return Say("", calls=(Call("notes", {"action": "add", "heading": f"H{n}", "text": text}),))

    look = Say("", calls=(Call("notes", {"action": "view"}),))
    pages = Say("", calls=tuple(Call("read_page", {"number": n}) for n in range(3)))
    script = [*map(note, range(7)), pages, "Done.", "Small.", look, "Small.", look, "Large."]
    small = [{"model": "small", "context_length": 9_000}]
    with talk(tmp_path, script, model_overrides=small) as t:
        t.agent.chat("Take notes.")
        t.agent.switch_model("small")
        t.agent.chat("On the small window.")
        t.agent.compress()
        t.agent.chat("Look.")
        assert t.results("notes")[-1].count("Decision") == 7
        assert len(t.results("notes")[-1].encode()) < 4_700
        assert "of 4,500 bytes" in t.results("notes")[-1]
        t.agent.switch_model("m")
        t.agent.chat("Back.")
        whole = "\n".join(
            f"### H{n}\nDecision {n}: " + ("we keep the schema as agreed; " * 30).rstrip() for n in range(7)
        )
        assert t.results("notes")[-1].startswith(whole)
        t.agent.compress()
        t.agent.chat("And in the next window?")
        assert whole in t.view.replace("\\n", "\n")


@pytest.mark.spec("O5", "J5")
def test_notes_of_one_message_are_taken_in_its_order(tmp_path: Path) -> None:
    def change(n: int, **arguments: str) -> Call:
        return Call("notes", {"heading": f"R{n}", **arguments})

    script = [
        Say(
            "",
            calls=(
                change(n, action="add", text="port 1"),
                change(n, action="replace", old="port 1", text="port 2"),
                change(n, action="replace", old="port 2", text="port 3"),
            ),
        )
        for n in range(12)
    ]
    with talk(tmp_path, [*script, "Done."]) as t:
        t.agent.chat("Take notes.")
        assert [r for r in t.results("notes") if r.startswith("Error")] == []
        history = t.store.history(t.agent.session_id or "").entries
        assert [text for _, text in NotebookLog.read(history).notebook.sections] == ["port 3"] * 12


@pytest.mark.spec("O5")
def test_an_undo_and_a_branch_take_the_notes_of_what_they_leave_out_with_them(tmp_path: Path) -> None:
    def note(text: str) -> Say:
        return Say("", calls=(Call("notes", {"action": "add", "heading": "Log", "text": text}),))

    pages = Say("", calls=tuple(Call("read_page", {"number": n}) for n in range(3)))
    fresh = Say("", calls=(Call("new_context", {"reason": "r", "next": "n"}),))
    with talk(tmp_path, [note("one"), pages, "Done.", note("two"), fresh, "Done.", note("three"), "Done."]) as t:
        for message in ("first", "second", "third"):
            t.agent.chat(message)
        tip = t.agent.session_id or ""
        entries = t.store.history(tip).entries
        assert NotebookLog.read(entries).notebook.text == "### Log\none\ntwo\nthree"
        t.agent.undo()
        undone = t.store.history(t.agent.session_id or "").entries
        assert NotebookLog.read(undone).notebook.text == "### Log\none\ntwo\nthree"
        second = next(e.seq for e in undone if e.message.text == "second")
        branch = t.store.conversations.branch(tip, at_seq=second - 1)
        assert NotebookLog.read(t.store.history(branch.id).entries).notebook.text == "### Log\none"


def test_the_notebook_is_bounded_and_says_so(tmp_path: Path) -> None:
    long = Call("notes", {"action": "add", "heading": "Log", "text": "word " * 2_000})
    short = Call("notes", {"action": "add", "heading": "Log", "text": "short"})
    bad = Call("notes", {"action": "replace", "heading": "Nope", "text": "x"})
    look = Call("notes", {"action": "view"})
    with talk(
        tmp_path,
        [Say("", calls=(long,)), Say("", calls=(short,)), Say("", calls=(bad,)), Say("", calls=(look,)), "Done."],
    ) as t:
        t.agent.chat("Take notes.")
        results = [m["content"] for m in t.sim.requests[-1].body["messages"] if m["role"] == "tool"]
        assert "may have 8,000 bytes" in results[0]
        assert results[1] == "Noted. The notebook has 13 of 8,000 bytes."
        assert "there is no heading 'Nope'; there are: Log" in results[2]
        assert results[3] == "### Log\nshort\n[13 of 8,000 bytes]"


@pytest.mark.spec("C7", "M1")
@pytest.mark.parametrize("engine", ["windows", "compressor"])
def test_the_model_sees_its_context_and_has_it_compacted_with_a_focus(tmp_path: Path, engine: str) -> None:
    pages = tuple(Call("read_page", {"number": n}) for n in range(3))
    show, compact = Call("context", {}), Call("context", {"action": "compact", "focus": "page 2"})
    script = [Say("", calls=pages), "Read.", Say("", calls=(show,)), Say("", calls=(compact,)), "Done."]
    with talk(tmp_path, script, engine=engine) as t:
        t.agent.chat("Read the pages.")
        t.agent.chat("How full are you?")
        assert "context" in [tool["function"]["name"] for tool in t.sim.requests[0].body["tools"]]
        reading = t.results("context")[0]
        assert re.search(r"[\d,]+ of 16,000 tokens \(\d+%\); compacted at 8,000\.", reading)
        assert "Largest messages:\n- m:3, read_page: " in reading
        events = t.store.ledger.events(t.agent.session_id or "", kind="compaction")
        assert [(e.payload["reason"], e.payload["outcome"]) for e in events] == [("model", "digest")]
        last = t.sim.requests[-1].body["messages"]
        assert "The conversation is compacted before your next step." in str(last[-1]["content"])
        assert len(str(last)) < len(str(t.sim.requests[-2].body["messages"])) - 6_000, "before the next step"


@pytest.mark.spec("C1")
def test_with_compaction_turned_off_the_model_cannot_ask_for_it(tmp_path: Path) -> None:
    asks = (Call("context", {"action": "compact"}), Call("new_context", {"reason": "r", "next": "n"}))
    with talk(tmp_path, [Say("", calls=asks), "Done."], compression={"enabled": False}) as t:
        t.agent.chat("Try it.")
        results = [m["content"] for m in t.sim.requests[-1].body["messages"] if m["role"] == "tool"]
        assert all("the user has turned compaction off" in r for r in results)
        assert t.rollovers == 0


@pytest.mark.spec("M4")
def test_the_log_tools_come_with_the_engine_or_by_a_setting(tmp_path: Path) -> None:
    names = {"lcm_grep", "lcm_describe", "lcm_expand"}
    for number, (engine, tools, setting, is_offered) in enumerate(
        [
            ("windows", [read_page], False, True),
            ("compressor", [read_page], True, False),
            ("compressor", ["default"], True, True),
            ("compressor", ["default"], False, False),
        ]
    ):
        with (
            Simulator(strict(), script=["Hello."]) as sim,
            Agent(
                model="m",
                provider="custom",
                base_url=sim.base_url,
                api_key="none",
                store=tmp_path / f"{number}.db",
                home=tmp_path,
                tools=tools,
                settings={"context": {"engine": engine, "lcm_tools": setting}},
            ) as agent,
        ):
            agent.chat("Hello.")
            offered = {t["function"]["name"] for t in sim.requests[0].body["tools"]}
            assert (names <= offered) is is_offered
            assert names.isdisjoint(offered) is not is_offered


@pytest.mark.spec("M4", "I6")
def test_a_search_counts_each_message_once_and_does_not_find_itself(tmp_path: Path) -> None:
    def grep(query: str) -> Say:
        return Say("", calls=(Call("lcm_grep", {"query": query}),))

    with talk(tmp_path, [grep("heron"), "Found.", grep("cormorant"), "Nothing.", grep("cormorant"), "Nothing."]) as t:
        for message in ("The heron nests at the weir.", "Once more.", "And again."):
            list(t.agent.stream(message))
        found, nothing, again = (m["content"] for m in t.sim.requests[-1].body["messages"] if m["role"] == "tool")
        assert found.startswith("Searched 2 messages: heron")
        assert found.count("m:") == 1
        assert "The «heron» nests at the weir." in found
        assert nothing.startswith("Searched 6 messages: none has the word.")
        assert "m:9" not in again, "nor an earlier search"


@pytest.mark.spec("C1", "C7")
def test_the_context_tool_says_that_compaction_is_off(tmp_path: Path) -> None:
    with talk(tmp_path, [Say("", calls=(Call("context", {}),)), "Done."], compression={"enabled": False}) as t:
        t.agent.chat("How full are you?")
        assert re.search(r"[\d,]+ of 16,000 tokens \(\d+%\); compaction is off\.", t.results("context")[0])


def test_the_largest_messages_are_no_larger_than_the_parts_they_are_in(tmp_path: Path) -> None:
    pages = Say("", calls=(Call("read_page", {"number": 1}),))
    with talk(tmp_path, [pages, Say("", calls=(Call("context", {}),)), "Done."]) as t:
        t.agent.chat("Read a page.")
        reading = t.results("context")[0]
        outputs, page = re.search(r"outputs ([\d,]+)", reading), re.search(r"read_page: ([\d,]+)", reading)
        assert outputs is not None
        assert page is not None
        assert int(page[1].replace(",", "")) <= int(outputs[1].replace(",", "")) + 1


@pytest.mark.spec("O5")
def test_a_fresh_window_is_not_left_for_another_one_at_once(tmp_path: Path) -> None:
    pages = Say("", calls=tuple(Call("read_page", {"number": n}) for n in range(3)))
    fresh = Say("", calls=(Call("new_context", {"reason": "r", "next": "n"}),))
    page = Say("", calls=(Call("read_page", {"number": 9}),))
    with talk(tmp_path, [pages, fresh, fresh, fresh, page, fresh, "Done."]) as t:
        t.agent.chat("Read the pages.")
        results = [r.partition(",")[0] for r in t.results("new_context")]
        begins, refused = "A fresh window begins before your next step", "Nothing was added since this window began"
        assert results == [begins, refused, refused, begins]


@pytest.mark.parametrize("model", ["m", "smollm2"])
def test_a_model_without_tools_is_not_referred_to_the_notes_tool(tmp_path: Path, model: str) -> None:
    with talk(tmp_path, lambda _: "Yes. " + "word " * 300, model=model) as t:
        for n in range(8):
            t.agent.chat(f"question {n}: " + "words about the parser " * 150)
        t.agent.compress()
        t.agent.chat("And now?")
        assert "the assistant's own notes" in t.view
        assert ("`notes`" in t.view) == (model == "m")
