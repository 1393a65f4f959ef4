"""What an agent is handed: a store that is none is refused, an approver is asked, what usage taught is kept."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, open_store
from perdure.core.errors import ConfigError
from perdure.core.ports import ApprovalAnswer, ApprovalRequest
from perdure.models.tokens import CalibrationStore
from perdure.testing.simulator import Call, Say, Simulator
from perdure.tools.tool import Tool, tool


def agent(sim: Simulator, folder: Path, **options: Any) -> Agent:
    options.setdefault("store", folder / "perdure.db")
    return Agent(model="m-1", base_url=sim.base_url, home=folder, settings={}, **options)


@pytest.mark.parametrize("wrong", [5, object(), ["perdure.db"], b"perdure.db"])
def test_a_store_that_is_none_is_refused_in_plain_words(tmp_path: Path, wrong: object) -> None:
    with Simulator() as sim, pytest.raises(ConfigError, match="store takes a path, a database URL or an open store"):
        agent(sim, tmp_path, store=wrong)


@pytest.mark.parametrize("wrong", [None, 3, b"talks.db", ["talks.db"]])
def test_open_store_refuses_what_is_neither_path_nor_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="open_store takes a path or a database URL"):
        open_store(wrong)
    assert not list(tmp_path.iterdir())


def test_the_home_folder_may_be_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with Simulator(script=["Yes."]) as sim:
        for home, folder in ((str(tmp_path / "a"), tmp_path / "a"), ("~/b", tmp_path / "b")):
            with Agent(model="m-1", base_url=sim.base_url, home=home, settings={}) as one:
                assert one.chat("Hello?") == "Yes." or home == "~/b"
            assert (folder / "perdure.db").is_file()


@pytest.mark.parametrize(
    ("options", "said"),
    [({"modle": "m-1"}, "no argument 'modle'; did you mean 'model'"), ({"xyz": 1}, "Agent has no argument 'xyz'$")],
)
def test_an_argument_that_there_is_not_is_named_with_the_nearest(options: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        Agent(**options)


class Person:
    """Answers every question alike, and remembers what was asked."""

    def __init__(self, answer: ApprovalAnswer) -> None:
        self.answer: ApprovalAnswer = answer
        self.asked: list[str] = []

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(request.action)
        return self.answer


@pytest.mark.spec("J6")
@pytest.mark.parametrize(("answer", "runs"), [("no", 0), ("once", 1)])
def test_an_approver_is_asked_about_own_tools_that_are_dangerous(
    tmp_path: Path, answer: ApprovalAnswer, runs: int
) -> None:
    ran: list[str] = []

    def wipe(disk: str) -> str:
        ran.append(disk)
        return "wiped"

    schema = {"type": "object", "properties": {"disk": {"type": "string"}}, "required": ["disk"]}
    wiper = Tool(name="wipe", description="Wipes a disk.", parameters=schema, handler=wipe, is_dangerous=True)
    calls = Say(calls=(Call("wipe", {"disk": "sda"}),))
    person = Person(answer)
    with Simulator(script=[calls, "Done.", calls, "Done."]) as sim:
        agent(sim, tmp_path, tools=[wiper], approver=person).chat("wipe it")
        assert (len(person.asked), len(ran)) == (1, runs)
        ran.clear()
        agent(sim, tmp_path, tools=[wiper]).chat("wipe it")  # nobody to ask
        assert ran == []


@pytest.mark.spec("J6")
@pytest.mark.parametrize("beside", [[], ["todo"]])
def test_risky_arguments_of_own_tools_are_refused_where_nobody_can_be_asked(tmp_path: Path, beside: list[str]) -> None:
    ran: list[str] = []

    @tool(command_parameter="command")
    def shell(command: str) -> str:
        """Runs a command."""
        ran.append(command)
        return "done"

    @tool(written_path_parameter="path")
    def put(path: str) -> str:
        """Writes a file."""
        ran.append(path)
        return "done"

    @tool(read_path_parameter="path")
    def get(path: str) -> str:
        """Reads a file."""
        ran.append(path)
        return "done"

    risky = ("shell", {"command": "rm -rf /"}), ("put", {"path": "/etc/passwd"}), ("get", {"path": "~/.ssh/id_rsa"})
    calls = Say(calls=(*(Call(name, arguments) for name, arguments in risky), Call("shell", {"command": "ls"})))
    with Simulator(script=[calls, "Done."]) as sim:
        result = agent(sim, tmp_path, tools=[shell, put, get, *beside]).run_conversation("clean up")
    answers = [m["content"] for m in result.messages if m["role"] == "tool"]
    assert ran == ["ls"]
    assert all("no one is available to approve it" in answer for answer in answers[:3])


@pytest.mark.spec("B2")
def test_what_usage_taught_about_a_model_is_there_in_the_next_conversation(tmp_path: Path) -> None:
    with Simulator(script=["One.", "Two."]) as sim:
        first = agent(sim, tmp_path, tools=[])
        first.chat("words of all kinds, " * 300)
        learned = first.conversation.open().live.counter.calibration.ratio
        assert learned != 1.0
        with open_store(tmp_path / "perdure.db") as store:
            assert CalibrationStore(store.state("calibrations")).get("custom", "m-1").ratio == pytest.approx(
                learned, abs=1e-3
            )
        fresh = agent(sim, tmp_path, tools=[])
        assert fresh.measure().window
        assert fresh.deps.calibration is not None
        assert fresh.deps.calibration.ratio == pytest.approx(learned, abs=1e-3)


def test_arguments_after_the_second_are_named_and_the_error_says_how(tmp_path: Path) -> None:
    build: Any = Agent
    with pytest.raises(TypeError, match=r"write Agent\(model, provider, base_url=…, api_key=…\)") as error:
        build("m-1", "custom", "http://127.0.0.1:9/v1", "sk-secret")
    assert "sk-secret" not in str(error.value)
    assert str(inspect.signature(Agent)).startswith("(model: ")
