"""Slash commands on a conversation that outgrew its window: each says at a glance what one wants to know."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from perdure.agent.agent import ConversationAgent
from perdure.agent.runner import LoopThread
from perdure.app.model_choices import ModelChoice
from perdure.cli.main import COMMANDS as PROGRAM_COMMANDS
from perdure.commands.command import SHELL_COMMANDS, Command, CommandResult, Commands, is_command
from perdure.commands.context import window_notice
from perdure.commands.format import local_times
from perdure.commands.registry import all_commands, builtin_names
from perdure.config.settings import Settings
from perdure.context.compressor import ContextCompressor
from perdure.context.engine import Compaction, EngineServices
from perdure.core.errors import ConfigError
from perdure.core.ports import Summarize
from perdure.core.usage import CanonicalUsage
from perdure.core.visibility import EVERYONE, Visibility
from perdure.providers.routes import EndpointChain as ModelRoute
from perdure.store.records import CallRecord, RouteRecord
from perdure.testing.simulator import Call, Say
from support.agents import Bench, bench
from support.summarisers import Scripted

pytestmark = pytest.mark.spec("N1")
ALL = all_commands()


class FakeSurface:
    """The least of a surface: one agent at a time."""

    def __init__(self, b: Bench, agent: ConversationAgent | None = None) -> None:
        self.bench = b
        self._agent = agent or b.agent
        self.store = b.store
        self.visibility: Visibility = EVERYONE
        self.page_chars = 6_000
        self.project: str | None = None
        self.listed_ids: Sequence[str] = ()

    @property
    def agent(self) -> ConversationAgent:
        return self._agent

    def open(self, session_id: str | None) -> None:
        self._agent = self.bench.again(session_id)

    def model_choices(self) -> Sequence[ModelChoice]:
        return [
            ModelChoice("m-1", 8_000, 3.0, 15.0, "here"),
            ModelChoice("ollama/" + "long" * 12, source="Ollama, running"),
            ModelChoice("local/smollm2", 8_192, 0.0, 0.0, "embedded"),
        ]

    def sources(self) -> Sequence[tuple[str, str]]:
        return [("commands", "/review"), ("settings", "")]

    def choose_model(self, name: str) -> str:
        if name == "nonsense":
            raise ConfigError("no model is called 'nonsense'")
        return name

    def do(self, text: str) -> CommandResult:
        said = ALL.dispatch(self, text)
        assert said is not None
        return said


def test_the_handoff_is_shown_as_the_model_reads_it(chat_surface: FakeSurface) -> None:
    shown = chat_surface.do("/handoff").text
    session_id = chat_surface.agent.session_id
    assert session_id is not None
    read = [e.message.text for e in chat_surface.store.history(session_id).entries if e.message.kind == "handoff"]
    assert shown.startswith(read[-1])
    chat_surface.do("/new")
    assert "Nothing was compacted" in chat_surface.do("/handoff").text


def test_names_from_other_tools_are_understood(chat_surface: FakeSurface) -> None:
    assert chat_surface.do("/cost").text == chat_surface.do("/usage").text
    assert chat_surface.do("/status").text == chat_surface.do("/context").text
    assert "/compact" in chat_surface.do("/help").text
    assert chat_surface.do("/expand last").level == "error"


ANSWERS = [f"Answer {i}: " + "word " * 350 for i in range(40)]
TURNS = 13


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A conversation of thirteen turns on a window of 8,000 tokens, compacted on the way: its folder and session."""
    folder = tmp_path_factory.mktemp("compacted")
    with bench(folder, *ANSWERS, window=8_000) as b:
        for i in range(TURNS):
            b.agent.chat(f"Question {i}? The port is {8000 + i}. " + "filler " * 200)
        session_id = b.agent.session_id
    assert session_id is not None
    return folder, session_id


@pytest.fixture
def chat_surface(tmp_path: Path, compacted: tuple[Path, str]) -> Iterator[FakeSurface]:
    """That conversation, resumed in a store of the test's own."""
    folder, session_id = compacted
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    with bench(tmp_path, *ANSWERS[TURNS:], window=8_000) as b:
        yield FakeSurface(b, b.again(session_id))


def test_ordinary_messages_and_paths_are_no_commands(chat_surface: FakeSurface) -> None:
    for text in ("hello", "/etc/hosts is broken", "/home/ada/x.py", "what does /usage do?", "", "/ "):
        assert not is_command(text)
        assert ALL.dispatch(chat_surface, text) is None


def test_an_unknown_command_gets_a_did_you_mean(chat_surface: FakeSurface) -> None:
    assert chat_surface.do("/comprss").text == "There is no command /comprss. Did you mean /compress?"
    assert "/help lists" in chat_surface.do("/zzz").text
    assert chat_surface.do("/compac").text.endswith("Did you mean /compact?")


def test_swapped_letters_are_likelier_than_a_missing_one(chat_surface: FakeSurface) -> None:
    mode = Command("mode", "/mode [name]", "what the model may do", lambda surface, argument: CommandResult(""))
    result = Commands([*ALL, mode]).dispatch(chat_surface, "/modle")
    assert result is not None
    assert result.text == "There is no command /modle. Did you mean /model?"


def test_a_command_of_the_program_is_pointed_to(chat_surface: FakeSurface) -> None:
    assert (
        chat_surface.do("/login x").text == "There is no command /login. Outside the chat, `perdure login` does that."
    )
    assert set(PROGRAM_COMMANDS) >= SHELL_COMMANDS
    assert SHELL_COMMANDS.isdisjoint(builtin_names())


def test_help_lists_every_command(chat_surface: FakeSurface) -> None:
    shown = chat_surface.do("/help").text
    assert all(name in shown for name in ALL.names())


def ask_until_compactable(surface: FakeSurface) -> None:
    """Ask until there are messages between the kept ones: a turn may have compacted by itself on its way."""
    for _ in range(4):
        surface.agent.chat("And one more thing: which port was the first? " + "filler " * 300)
        if len(surface.store.history(surface.agent.session_id or "").entries) > 8:
            return


@pytest.mark.spec("N2")
def test_compress_tells_apart_done_and_nothing_to_do(chat_surface: FakeSurface) -> None:
    ask_until_compactable(chat_surface)
    first = chat_surface.do("/compress ports")
    assert first.text.startswith("Compacted without a model")
    assert re.search(
        r"before █+ +[\d,]+ tokens in \d+ messages\nafter  █+[▏▎▍▌▋▊▉]?░+ +[\d,]+ tokens in \d+ messages", first.text
    )
    assert "/undo compaction takes it back" in first.text
    assert chat_surface.do("/compress").text.startswith("There is nothing to compact: ")


@pytest.mark.spec("A7")
def test_usage_shows_tokens_by_class_cost_cache_gauge_and_compactions(chat_surface: FakeSurface) -> None:
    chat_surface.agent.chat("Which port was the first?")
    shown = chat_surface.do("/usage").text
    for wanted in ("input, fresh", "from cache", "output", "cost", "cache hit rate", "compactions", "of 8,000 tokens"):
        assert wanted in shown
    assert chat_surface.store.ledger.totals(chat_surface.agent.session_id or "").compactions > 0


@pytest.mark.spec("A7")
def test_usage_of_a_resumed_conversation_shows_its_gauge_before_the_first_message(chat_surface: FakeSurface) -> None:
    shown = chat_surface.do("/usage").text
    assert "known after the first message" not in shown
    assert chat_surface.agent.gauge.tokens > 1_000
    assert f"{chat_surface.agent.gauge.tokens:,} of 8,000 tokens" in shown


def test_cost_names_handoffs_and_what_was_spent_before_an_undo(tmp_path: Path) -> None:
    with bench(tmp_path, *ANSWERS, window=8_000) as b:
        b.agent.chat("one")
        b.agent.chat("two")
        here = b.agent.session_id or ""
        used, route = CanonicalUsage(input_tokens=10), RouteRecord("p", "m")
        surface = FakeSurface(b, b.again(here))
        assert "handoffs" not in surface.do("/cost").text
        for task, cost in (("main", 0.5), ("compression", 0.25)):
            b.store.ledger.record_call(CallRecord(here, task=task, route=route, usage=used, cost_usd=cost))
        shown = surface.do("/cost").text
        assert re.search(r"  answers +\$0\.50\d\d\+?  3 calls\n  handoffs +\$0\.2500  1 call, also in advance", shown)
        assert "before the branch" not in shown
        assert "so is what it cost" in surface.do("/undo").text
        shown = surface.do("/cost").text
        assert re.search(r"\ncost +\$0\.0000\nbefore the branch +\$0\.75", shown), shown
        assert "since the branch" in shown


def test_the_last_output_is_opened_although_it_was_compacted(tmp_path: Path) -> None:
    def lookup(name: str) -> str:
        """Look a name up."""
        return f"the port of {name} is 4711"

    calls = [Say(calls=(Call("lookup", {"name": name}),)) for name in ("first", "second")]
    with bench(tmp_path, *calls, *ANSWERS, window=8_000, tools=[lookup]) as b:
        for i in range(TURNS):
            b.agent.chat(f"Question {i}? " + "filler " * 200)
        session_id = b.agent.session_id
        assert session_id is not None
        assert all(
            "second" not in e.message.text for e in b.store.history(session_id).entries if e.message.role == "tool"
        )
        shown = FakeSurface(b, b.again(session_id)).do("/expand last")
        assert (shown.level, shown.is_document) == ("info", True)
        assert "the port of second is 4711" in shown.text


@pytest.mark.spec("A7")
def test_insights_group_by_day_model_surface_and_task(chat_surface: FakeSurface) -> None:
    shown = chat_surface.do("/insights 7").text
    for wanted in ("by day", "by model", "by source", "by task", "m-1", "main"):
        assert wanted in shown
    assert chat_surface.do("/insights soon").level == "error"


@pytest.mark.spec("A7")
def test_insights_keep_what_was_written_to_the_cache_apart_from_fresh_input(chat_surface: FakeSurface) -> None:
    used = CanonicalUsage(input_tokens=1_111, output_tokens=22, cache_read_tokens=3_333, cache_write_tokens=44_444)
    call = CallRecord(
        chat_surface.agent.session_id or "", route=RouteRecord("p", "cached-model"), usage=used, cost_usd=0.0
    )
    chat_surface.store.ledger.record_call(call)
    (row,) = [line for line in chat_surface.do("/insights 7").text.splitlines() if "cached-model" in line]
    assert row.split()[1:5] == ["1,111", "3,333", "44,444", "22"]


def test_insights_fit_sixty_columns_whatever_the_figures(chat_surface: FakeSurface) -> None:
    used = CanonicalUsage(input_tokens=999_999, output_tokens=1_000_000, cache_read_tokens=123_456_789_012)
    route = RouteRecord("p", "a-model-with-quite-a-long-name-of-its-own")
    chat_surface.store.ledger.record_call(
        CallRecord(chat_surface.agent.session_id or "", route=route, usage=used, cost_usd=12_345.67)
    )
    tables = [line for line in chat_surface.do("/insights 7").text.splitlines() if line.startswith("  ")]
    assert max(map(len, tables)) <= 60
    at = tables.index("  a-model-with-quite-a-long-name-of-its-own")
    assert tables[at + 1].split()[:4] == ["999,999", "123G", "0", "1.00M"]


def test_context_draws_what_fills_the_window(chat_surface: FakeSurface) -> None:
    shown = chat_surface.do("/context").text
    for wanted in ("system", "handoff", "tail", "compacts at 6,000"):
        assert wanted in shown
    assert "compaction   not due: the threshold of 6,000 tokens is not reached" in shown


@pytest.mark.spec("I5")
def test_expand_opens_the_handoff_to_its_sources_and_search_finds_them(chat_surface: FakeSurface) -> None:
    assert "Question 0? The port is 8000" in chat_surface.do("/expand").text
    found = chat_surface.do("/search 8003").text
    assert "«8003»" in found
    assert found.splitlines()[0].endswith("Open one with /expand ADDRESS."), "it is this conversation's"
    address = found.splitlines()[2].split()[0]
    assert "The port is 8003" in chat_surface.do(f"/expand {address}").text
    # One word: several may be found by their meaning, as soon as it has been read in the background.
    assert chat_surface.do("/search xylophone").text.startswith("Nothing found")
    assert chat_surface.do("/expand m:99999").level == "error"
    assert chat_surface.do("/expand 2").text == chat_surface.do("/expand m:2").text


@pytest.mark.spec("I5")
def test_how_to_open_what_was_found_is_said_first_and_a_closing_courtesy_is_no_question(tmp_path: Path) -> None:
    with bench(tmp_path, "The invoice is done. Anything else?", "Fine.", window=8_000) as b:
        b.agent.chat("write the invoice")
        b.agent.chat("create stock.py")
        shown = FakeSurface(b).do("/search invoice done").text
        assert "Open one with /expand ADDRESS." in shown.splitlines()[0]
        assert "create stock.py" not in shown


def test_a_chat_that_is_too_large_for_a_chosen_model_says_so(chat_surface: FakeSurface) -> None:
    assert "compacts it" not in chat_surface.do("/model m-2").text
    small = replace(chat_surface.agent.gauge, tokens=7_000, threshold=4_000)
    assert "7,000 tokens, above the 4,000" in window_notice(chat_surface, small)


def test_a_find_in_another_conversation_is_opened_there(chat_surface: FakeSurface) -> None:
    chat_surface.do("/new")
    found = chat_surface.do("/search 8003").text
    way = "Open one with /expand ADDRESS; /resume ADDRESS goes on with its conversation."
    assert found.splitlines()[0].endswith(way)
    assert chat_surface.do(f"/resume {found.splitlines()[2].split()[0]}").text.startswith("Resumed")
    chat_surface.do("/new")
    conversation, address = found.splitlines()[2].split()[0].split("/")
    assert chat_surface.do(f"/expand {address}").text == "Nothing has been said yet."
    assert "The port is 8003" in chat_surface.do(f"/expand {conversation} {address}").text
    assert "The port is 8003" in chat_surface.do(f"/expand {conversation}/{address}").text
    first_page = chat_surface.do(f"/expand {conversation}").text
    assert f"/expand {conversation} h:" in first_page  # how to read on


@pytest.mark.spec("I3")
def test_undo_takes_the_compaction_back_and_the_next_one_waits(chat_surface: FakeSurface) -> None:
    before = len(chat_surface.store.history(chat_surface.agent.session_id or "").entries)
    undone = chat_surface.do("/undo compaction").text
    assert "The next one waits until the window has no room left for an answer." in undone
    assert ", 1 undone\n" in chat_surface.do("/usage").text
    assert len(chat_surface.store.history(chat_surface.agent.session_id or "").entries) > before
    assert chat_surface.store.conversations.session(chat_surface.agent.session_id or "").began_by == "undo"


def test_an_undone_compaction_stays_undone_in_a_retry_and_context_says_when_the_next_one_comes(tmp_path: Path) -> None:
    settings = Settings.model_validate({"compression": {"threshold": 0.2, "small_window_threshold": 0.2}})
    with bench(tmp_path, *("One. " * 2_000 for _ in range(4)), window=32_000, settings=settings) as b:
        surface = FakeSurface(b)
        for n in range(3):
            surface.agent.chat(f"Question {n}?")
        assert "The next one waits" in surface.do("/undo compaction").text
        surface.agent.chat("Hello again?")
        in_view = len(surface.store.history(surface.agent.session_id or "").entries)
        for command in ("", "/retry"):
            if command:
                surface.do(command)
            shown = surface.do("/context").text
            assert "not due: held back, since you undid the last one; the next comes at 31,000 tokens" in shown
            assert "compacts at 31,000" in shown
        entries = surface.store.history(surface.agent.session_id or "").entries
        assert not any(entry.message.kind == "handoff" for entry in entries)
        assert len(entries) == in_view - 2


@pytest.mark.spec("I4")
def test_new_and_resume_by_any_id_of_the_chain(chat_surface: FakeSurface) -> None:
    first = chat_surface.store.conversations.sessions(chat_surface.agent.session_id or "")[0].id
    tip = chat_surface.agent.session_id
    conversation = chat_surface.store.conversations.get(tip).id
    assert f"/resume {conversation}" in chat_surface.do("/new").text
    assert chat_surface.agent.session_id is None
    assert "Resumed" in chat_surface.do(f"/resume {first}").text
    assert chat_surface.agent.session_id == tip
    assert f"Resumed {conversation} " in chat_surface.do(f"/resume {conversation}/m:3").text
    assert chat_surface.do("/resume c_nowhere").level == "error"
    assert chat_surface.do("/resume c_nowhere/m:3").level == "error"
    assert "  you: " in chat_surface.do("/resume last").text
    assert chat_surface.do("/resume 1").text == chat_surface.do("/resume last").text
    assert "has no number 99" in chat_surface.do("/resume 99").text
    assert "Open one with /resume" in chat_surface.do("/resume").text


def test_a_number_means_the_list_that_was_shown(tmp_path: Path) -> None:
    with bench(tmp_path, "One.", "Two.", "Three.") as b:
        surface = FakeSurface(b)
        for question in ("first", "second"):
            surface.do("/new")
            surface.agent.chat(question)
        oldest = surface.do("/sessions").text.split("\n")[1].split()[1]
        surface.do("/new")
        surface.agent.chat("third")
        assert f"Resumed {oldest} " in surface.do("/resume 2").text
        assert surface.do("/resume nothing").text.endswith("; /sessions lists them")


def test_retry_asks_the_last_question_again_and_keeps_the_first_answer(chat_surface: FakeSurface) -> None:
    old = chat_surface.agent.session_id or ""
    said = chat_surface.do("/retry")
    assert said.then_send is not None
    assert said.then_send.startswith(f"Question {TURNS - 1}?")
    assert chat_surface.store.conversations.get(chat_surface.agent.session_id or "").kind == "branch"
    chat_surface.agent.chat(said.then_send)
    assert len(chat_surface.store.log.originals(old)) == 2 * TURNS


def test_branch_from_an_earlier_turn_leaves_the_other_as_it_was(chat_surface: FakeSurface) -> None:
    old = chat_surface.agent.session_id or ""
    assert "before “Question 10?" in chat_surface.do("/branch 3").text
    asked = [
        e.message.text[:11]
        for e in chat_surface.store.log.originals(chat_surface.agent.session_id or "")
        if e.message.is_real_user
    ]
    assert asked[-1] == "Question 9?"
    assert len(chat_surface.store.log.originals(old)) == 2 * TURNS


def test_branch_and_retry_take_the_turn_of_a_message(chat_surface: FakeSurface) -> None:
    old = chat_surface.agent.session_id or ""
    requests = [e for e in chat_surface.store.log.originals(old) if e.message.is_real_user]
    # Of a question itself, and of a message of its answer.
    for seq in (requests[4].seq, requests[4].seq + 1):
        assert "before “Question 4?" in chat_surface.do(f"/branch m:{seq}").text
        chat_surface.do(f"/resume {old}")
    assert "there is no question at or before m:0" in chat_surface.do("/retry m:0").text
    assert "give a number" in chat_surface.do("/retry m:x").text


def test_the_first_question_is_asked_again_in_a_branch_that_shares_nothing(chat_surface: FakeSurface) -> None:
    old = chat_surface.store.conversations.get(chat_surface.agent.session_id or "")
    said = chat_surface.do("/retry m:1")
    branch = chat_surface.store.conversations.get(chat_surface.agent.session_id or "")
    assert (branch.kind, branch.parent_id, branch.last_seq, branch.title) == ("branch", old.id, 0, "")
    assert isinstance(said.then_send, str)
    chat_surface.agent.chat(said.then_send)
    assert chat_surface.store.log.originals(branch.id)[0].message.text == said.then_send
    assert chat_surface.store.conversations.session(branch.tip_session_id).system_prompt == (
        chat_surface.store.conversations.sessions(old.id)[0].system_prompt
    )
    # It is complete without the conversation it came from.
    chat_surface.store.delete(old.id)
    assert len(chat_surface.store.log.originals(branch.id)) == 2
    assert chat_surface.store.verifier.conversation(branch.id) == []


def test_a_turn_there_is_not_is_refused_and_nothing_is_branched(chat_surface: FakeSurface) -> None:
    here = chat_surface.agent.session_id
    for text in ("/branch 99", "/branch 0", "/branch first", "/retry 99"):
        assert "give a number from 1 (the last) to 13" in chat_surface.do(text).text
    assert chat_surface.agent.session_id == here


def test_retry_sends_what_was_attached_again(tmp_path: Path) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    asked = {"role": "user", "content": [{"type": "text", "text": "what is this?"}, image]}
    with bench(tmp_path, "A cat.", "A dog.") as b:
        b.agent.run_conversation(asked)
        assert FakeSurface(b).do("/retry").then_send == asked


def test_a_title_is_shown_and_changed(chat_surface: FakeSurface) -> None:
    assert chat_surface.do("/title").text == "This conversation has no title yet."
    assert chat_surface.do("/title ports and fillers").text == "Titled “ports and fillers”."
    assert "ports and fillers" in chat_surface.do("/sessions").text


def test_insights_refuse_what_is_no_number_of_days(chat_surface: FakeSurface) -> None:
    for text in ("/insights soon", "/insights 0", "/insights ²", "/insights 99999999999"):
        assert chat_surface.do(text).level == "error"


def test_model_shows_and_switches_and_an_error_is_one_line(chat_surface: FakeSurface) -> None:
    assert chat_surface.do("/model").text.startswith("m-1")
    assert chat_surface.do("/model other").text == "Going on with other."
    assert chat_surface.do("/model nonsense") == CommandResult("no model is called 'nonsense'", "error")
    assert chat_surface.do("/quit").is_leaving


def test_models_are_listed_with_windows_and_prices_and_chosen_by_number(chat_surface: FakeSurface) -> None:
    lines = chat_surface.do("/model").text.splitlines()
    one, two, three = (next(line for line in lines if line.startswith(f"  {n} ")) for n in (1, 2, 3))
    assert one.split() == ["1", "m-1", "8,000", "$3.00/$15.00", "here"]
    assert two.split()[2:] == ["?", "Ollama,", "running"]
    assert three.split() == ["3", "local/smollm2", "8,192", "free", "embedded"]
    assert max(map(len, (one, two, three))) <= 90
    assert chat_surface.do("/model 3").text == "Going on with local/smollm2."
    assert chat_surface.do("/model 4") == CommandResult("/model has no number 4; it lists 3", "error")


def test_model_shows_the_window_of_the_model_just_chosen(tmp_path: Path) -> None:
    class Switching(FakeSurface):
        def choose_model(self, name: str) -> str:
            self.agent.switch_model(ModelRoute((replace(self.agent.endpoint, model=name),)))
            return name

    with bench(tmp_path, "One.", window=8_000) as b:
        b.models.windows["large"] = 200_000
        chat_surface = Switching(b)
        chat_surface.agent.chat("first")
        chat_surface.do("/model large")
        assert chat_surface.agent.gauge.window == 200_000
        assert "of 200,000 tokens" in chat_surface.do("/model").text


def test_undo_without_a_compaction_and_where_one_is_in_the_list(tmp_path: Path) -> None:
    with bench(tmp_path, "One.", "Two.") as b:
        chat_surface = FakeSurface(b)
        chat_surface.agent.chat("first")
        offer = "/undo goes back to before the last question."
        nothing = "Nothing to undo: this conversation has not been compacted."
        assert chat_surface.do("/undo compaction") == CommandResult(f"{nothing} {offer}")
        chat_surface.do("/branch")
        chat_surface.agent.chat("second")
        here, other = chat_surface.do("/sessions").text.split("\n")[:2]
    assert here.startswith("→  1 c_")
    assert " (branch) · " in here, "the title first, then the surface"
    assert other.startswith("   2 c_")
    assert "(branch)" not in other


def test_undo_after_a_compaction_takes_back_the_turn_and_names_the_command_for_the_compaction(tmp_path: Path) -> None:
    with bench(tmp_path, "One. " * 400, "Two. " * 400, "Three.", "A summary.", "Four.") as b:
        chat_surface = FakeSurface(b)

        def questions() -> list[str]:
            entries = chat_surface.store.log.originals(chat_surface.agent.session_id or "")
            return [e.message.text for e in entries if e.message.is_real_user]

        for question in ("first", "second", "third"):
            chat_surface.agent.chat(question)
        assert "/undo compaction takes it back" in chat_surface.do("/compress").text
        chat_surface.agent.chat("fourth")
        undone = chat_surface.do("/undo").text
        assert undone.startswith("Back to before “fourth”. The turn is kept in the conversation it was in, ")
        assert undone.endswith("\n/undo compaction takes back the last compaction.")
        assert questions() == ["first", "second", "third"]
        assert chat_surface.do("/undo").text.startswith("Back to before “third”.")
        assert questions() == ["first", "second"]


def test_before_anything_was_said_commands_say_so(tmp_path: Path) -> None:
    with bench(tmp_path, "hi") as b:
        chat_surface = FakeSurface(b)
        for text in ("/usage", "/expand", "/undo", "/retry"):
            assert "Nothing has been said yet" in chat_surface.do(text).text
        assert "9 of 32,000 tokens (0%), compacts at 16,000" in chat_surface.do("/context").text


class Broken(ContextCompressor):
    """An engine that cannot compact."""

    def compress(self, *given: object, **more: object) -> Compaction:
        raise RuntimeError("the engine is out of oil")


@pytest.mark.spec("N2")
def test_compress_tells_apart_a_written_summary_a_digest_and_a_failure(
    chat_surface: FakeSurface, tmp_path: Path
) -> None:
    ask_until_compactable(chat_surface)
    b, session_id = chat_surface.bench, chat_surface.agent.session_id
    before = len(b.store.history(session_id or "").entries)

    def with_engine(engine: ContextCompressor, summarize: Summarize | None) -> FakeSurface:
        services = EngineServices(summarize=summarize)
        agent = ConversationAgent(
            replace(b.deps, engine=engine), LoopThread(), services=lambda live: services, session_id=session_id
        )
        return FakeSurface(b, agent)

    failed = with_engine(Broken(context_length=8_000), None).do("/compress")
    assert failed.text.startswith("The compaction failed; nothing has changed.")
    assert "out of oil" in failed.text
    assert len(b.store.history(session_id or "").entries) == before
    written = "## Goal\nTo know the ports.\n## Critical Context\nThe port is 8003.\n"
    done = with_engine(ContextCompressor(context_length=8_000), Scripted(written)).do("/compress ports")
    assert done.text.startswith("Compacted: a handoff written by scripted-1 ")
    assert f"tokens in {before} messages" in done.text


def test_times_of_an_opened_address_are_the_readers_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        text = "[m:1 · user · 2026-11-16 16:48 UTC]\nat 2026-11-16 16:48 UTC"
        assert local_times(text) == "[m:1 · user · 2026-11-17 01:48]\nat 2026-11-16 16:48 UTC"
        result = "[m:3 · tool · 2026-11-16 16:48 UTC · answers call_1]\n{}"
        assert local_times(result) == "[m:3 · tool · 2026-11-17 01:48 · answers call_1]\n{}"
    finally:
        monkeypatch.undo()
        time.tzset()
