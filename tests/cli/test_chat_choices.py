"""Choosing in the live chat: models and conversations from a menu, with what one needs to know of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.cli.chat.command_context import ChatCommandContext
from perdure.cli.chat.status import closing_lines, status_line
from perdure.commands.context import totals_lines
from perdure.commands.registry import all_commands
from perdure.core.errors import ConfigError
from perdure.core.usage import CanonicalUsage
from perdure.store.records import CallRecord, RouteRecord
from perdure.testing.simulator import Simulator
from support.typed import chatting


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


def test_a_model_is_chosen_from_a_menu_and_its_window_is_right_at_once(home: Path) -> None:
    with Simulator(models=("m-1", "m-2"), window=32_000) as sim:
        flags = {"model.base_url": sim.base_url, "model.name": "m-1", "model.context_length": "8000"}
        with chatting(home, flags) as chat:
            chat.see("/8,000")
            chat.type("/model\r")
            chat.see("m-2", "32,000")
            chat.type("\x1b[B\x1b[B\r")  # down to the second
            chat.type("\r")
            chat.see("Going on with m-2", "/32,000")


def test_escape_closes_the_menu_and_leaves_the_model_as_it_is(home: Path) -> None:
    with Simulator(models=("m-1", "m-2"), window=32_000, script=["Fine."]) as sim:
        with chatting(home, {"model.base_url": sim.base_url, "model.name": "m-1"}) as chat:
            chat.see("/32,000")
            chat.type("/model\r")
            chat.see("m-2")
            chat.type("\x1b")
            chat.wait_for_empty_line()
            chat.type("hello\r")
            chat.see("Fine.")
        assert sim.requests[-1].body["messages"][-1]["content"] == "hello"
        assert sim.requests[-1].body["model"] == "m-1"


def test_a_model_without_a_key_is_not_chosen(home: Path) -> None:
    surface = ChatCommandContext({"model.provider": "local"})
    with pytest.raises(ConfigError, match="perdure login anthropic"):
        surface.choose_model("anthropic/claude-sonnet-5-5")
    assert surface.agent.endpoint.provider == "local"
    surface.close()
    surface.store.close()


def test_a_model_chosen_by_number_is_called_at_the_configured_address(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-for-this-address")
    with Simulator(models=("sim-1", "simulator"), window=200_000, script=["Here."]) as sim:
        surface = ChatCommandContext(
            {"model.provider": "openai", "model.base_url": sim.base_url, "model.name": "sim-1"}
        )
        shown = all_commands().dispatch(surface, "/model 2")
        assert shown is not None
        assert shown.text == "Going on with simulator (openai)."
        assert surface.agent.gauge.window == 200_000
        surface.agent.chat("hello")
        assert sim.requests[-1].body["model"] == "simulator"
        unlisted = all_commands().dispatch(surface, "/model nosuch")
        assert unlisted is not None
        assert "Warning: 'openai' does not list 'nosuch'; it lists sim-1, simulator" in unlisted.text
        surface.close()
        surface.store.close()


@pytest.mark.spec("A5")
def test_the_cost_of_free_and_unpriced_models_together_is_unknown_and_never_0(home: Path) -> None:
    def record(surface: ChatCommandContext, cost_usd: float | None) -> None:
        used = CanonicalUsage(input_tokens=10, output_tokens=2)
        call = CallRecord(surface.session_id or "", route=RouteRecord("p", "m"), usage=used, cost_usd=cost_usd)
        surface.store.ledger.record_call(call)

    with Simulator(script=["Hello."]) as sim:
        surface = ChatCommandContext({"model.base_url": sim.base_url, "model.name": "m-without-a-price"})
        surface.agent.chat("hello")
        record(surface, 0.0)
        for shown in (status_line(surface), *totals_lines(surface.store.ledger.totals(surface.session_id or ""))):
            assert "$0.0000" not in shown
        assert "cost unknown" in status_line(surface)
        assert list(closing_lines(surface))[-1].split() == ["cost", "unknown"]
        record(surface, 0.25)
        assert "cost $0.2500+" in status_line(surface)
        assert list(closing_lines(surface))[-1].split() == ["cost", "$0.2500+"]
        surface.close()
        surface.store.close()
