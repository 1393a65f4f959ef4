"""Choosing in the live chat: models and conversations from a menu, with what one needs to know of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from perdure.app.runtime import MODEL_KEY, SCRIPTED_KEY, route_of
from perdure.cli.chat.command_context import ChatCommandContext
from perdure.cli.chat.controller import unlisted_lines, welcome_lines
from perdure.cli.chat.status import closing_lines, route_lines, status_line, window_note
from perdure.cli.main import cli
from perdure.commands.context import conversation_lines, insights_text
from perdure.commands.registry import all_commands
from perdure.config.load import load
from perdure.config.settings import Settings
from perdure.core.errors import ConfigError, ModelNotNamed
from perdure.core.usage import CanonicalUsage
from perdure.core.visibility import EVERYONE
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
            chat.see("● m-1", "in use", "Enter takes it")
            chat.wait_for(lambda: chat.line == "/model m-1")  # the one in use is selected
            rows = chat.offered_completions
            chat.type("\x1b[B" * (rows + 1) + "\r")  # round, and down to the second; one Enter chooses it
            chat.see("Going on with m-2", "/32,000")


def test_typing_filters_a_menu_whose_first_row_is_selected(home: Path) -> None:
    with Simulator(models=("other-1", "m-1", "m-2"), window=32_000) as sim:
        with chatting(home, {"model.base_url": sim.base_url, "model.name": "m-1"}) as chat:
            chat.see("/32,000")
            chat.type("/model\r")
            chat.wait_for(lambda: chat.line == "/model m-1")
            chat.type("oth")
            chat.wait_for(lambda: chat.line == "/model oth" and chat.offered_completions == 1)
            chat.type("\x7f\x7f\x7f")
            chat.wait_for(lambda: chat.line == "/model " and chat.offered_completions >= 3)
            chat.type("\x1b")
            chat.wait_for_empty_line()
            chat.type("/model\r")
            chat.wait_for(lambda: chat.line == "/model m-1")
            chat.type("\r")
            chat.see(f"Going on with m-1 ({sim.base_url.split('/')[2]}), in this chat.")
        assert not [request for request in sim.requests if request.body]


def test_enter_takes_the_first_row_that_the_filter_left(home: Path) -> None:
    with (
        Simulator(models=("shop-large", "shop-small", "m-10", "m-1"), window=32_000, script=["Fine.", "Yes."]) as sim,
        chatting(home, {"model.base_url": sim.base_url, "model.name": "m-1"}) as chat,
    ):
        chat.see("/32,000")
        chat.type("about the weather\r")
        chat.see("Fine.")
        chat.type("/model\r")
        chat.wait_for(lambda: chat.line == "/model m-1")
        chat.type("sma")
        chat.wait_for(lambda: chat.line == "/model sma" and chat.offered_completions == 1)
        chat.see("the first row")
        chat.type("\r")
        server = sim.base_url.split("/")[2]
        chat.see(f"Going on with shop-small ({server}), in this chat.")
        chat.type("/model m-1")
        chat.wait_for(lambda: chat.line == "/model m-1" and chat.offered_completions == 2)
        chat.type("\r")  # a full name is meant as it is, though the row of m-10 comes first
        chat.see(f"Going on with m-1 ({server}), in this chat.")
        chat.type("/new\r")
        chat.see("A new conversation")
        chat.type("hello\r")
        chat.see("Yes.")
        chat.type("/resume\r")
        chat.wait_for(lambda: chat.line.startswith("/resume c_"))
        chat.type("\x15/resume weather")
        chat.wait_for(lambda: chat.line == "/resume weather" and chat.offered_completions == 1)
        chat.type("\r")
        chat.see("Resumed c_", "about the weather")


def test_what_is_typed_in_a_menu_counts_as_it_is_after_escape(home: Path) -> None:
    with (
        Simulator(models=("shop-large", "shop-small"), window=32_000) as sim,
        chatting(home, {"model.base_url": sim.base_url, "model.name": "shop-large"}) as chat,
    ):
        chat.see("/32,000")
        chat.type("/model sma")
        chat.wait_for(lambda: chat.offered_completions == 1)
        chat.type("\x1b")
        chat.wait_for(lambda: chat.offered_completions == 0)
        chat.type("\r")
        chat.see(f"{sim.base_url.split('/')[2]} does not list 'sma'")


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


def test_a_command_typed_into_an_open_menu_takes_the_place_of_the_one_it_was_opened_for(home: Path) -> None:
    with (
        Simulator(models=("m-1", "m-2"), script=["Fine."]) as sim,
        chatting(home, {"model.base_url": sim.base_url}) as chat,
    ):
        chat.see("lists m-1, m-2; choose one below")
        chat.wait_for(lambda: chat.line == "/model m-1")
        chat.type("/search")
        chat.wait_for(lambda: chat.line == "/model /search")
        chat.type("\r")
        chat.see("/search takes a question")
        chat.type("/model\r")
        chat.wait_for(lambda: chat.line == "/model m-1")
        chat.type("/model m-2\r")
        chat.see("Going on with m-2")


@pytest.mark.parametrize("columns", [60, 80])
def test_what_a_menu_tells_of_a_model_is_not_cut_off(home: Path, columns: int) -> None:
    names = ("m-1", "a-model-with-quite-a-long-name-that-leaves-no-room")
    with Simulator(models=names, window=32_000) as sim:
        flags = {"model.base_url": sim.base_url, "model.name": "m-1"}
        with chatting(home, flags, columns=columns) as chat:
            chat.see("/32,000")
            chat.type("/model\r")
            chat.wait_for(lambda: chat.offered_completions >= 2)
            chat.see("in use, " if columns >= 80 else "● m-1", f"{sim.base_url.split('/')[2]} ")


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
        assert shown.text == "Going on with simulator (openai), in this chat."
        assert surface.agent.gauge.window == 200_000
        surface.agent.chat("hello")
        assert sim.requests[-1].body["model"] == "simulator"
        unlisted = all_commands().dispatch(surface, "/model simulatorhello")
        assert unlisted is not None
        assert "openai does not list 'simulatorhello'; it lists sim-1, simulator. Nothing" in unlisted.text
        assert surface.agent.endpoint.model == "simulator"
        surface.close()
        surface.store.close()


def test_the_only_model_of_an_endpoint_is_used_with_its_key(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Simulator(models=("m-1",), api_key="right") as sim:
        settings = Settings.model_validate({"model": {"base_url": sim.base_url}})
        assert route_of(settings, api_key="right").main.model == "m-1"
        with pytest.raises(ConfigError, match=r"refuses the key \(401\): `perdure login .*` stores another"):
            route_of(settings, api_key="wrong")
        with pytest.raises(ConfigError, match=r"asks for a key \(401\): `perdure login .*` stores one"):
            route_of(settings)
    with pytest.raises(ConfigError, match=r"cannot be reached .* check `model.base_url`"):
        route_of(settings)


def test_of_several_models_one_is_chosen_from_a_menu_before_anything_is_sent(home: Path) -> None:
    with Simulator(models=("m-1", "m-2"), script=["Fine."]) as sim:
        with chatting(home, {"model.base_url": sim.base_url}) as chat:
            chat.see("no model is chosen yet", "lists m-1, m-2", "Enter takes it")
            chat.type("\x1b")
            chat.wait_for_empty_line()
            chat.type("hello\r")
            chat.see("Choose a model first")
            chat.wait_for(lambda: chat.line == "hello")  # it comes back, to be sent once there is a model
            chat.type("\x15/model m-2\r")
            chat.see("Going on with m-2", "config set model.name m-2")
            chat.type("hello\r")
            chat.see("Fine.")
        (sent,) = [request.body for request in sim.requests if request.body]
        assert sent["model"] == "m-2"
        with pytest.raises(ModelNotNamed, match=r"lists 2 models and none is chosen: m-1, m-2.*the option `-m m-1`"):
            route_of(Settings.model_validate({"model": {"base_url": sim.base_url}}))


@contextmanager
def opened(
    flags: dict[str, str], session_id: str | None = None, *, offers_models: bool = False
) -> Iterator[ChatCommandContext]:
    surface = ChatCommandContext(flags, session_id=session_id, offers_models=offers_models)
    try:
        yield surface
    finally:
        surface.close()
        surface.store.close()


def test_a_resumed_conversation_has_its_model_again_and_says_so(home: Path) -> None:
    with Simulator(models=("m-1", "m-2"), script=["One.", "Two."]) as sim:
        flags = {"model.base_url": sim.base_url}
        with opened({**flags, "model.name": "m-1"}) as surface:
            surface.choose_model("m-2")
            surface.agent.chat("hello")
            surface.store_choices()
            session_id = surface.session_id
        # As a file has it: what the command line names goes before the conversation's own.
        (home / "config.yaml").write_text(f"model: {{base_url: '{sim.base_url}', name: m-1}}\n")
        with opened({}, session_id) as surface:
            assert surface.agent.endpoint.model == "m-2"
            assert surface.resume_notes == ("Going on with m-2, the model of this conversation; /model changes it.",)
        with opened({"model.name": "m-1"}, session_id) as surface:
            assert surface.agent.endpoint.model == "m-1"
            assert surface.resume_notes == ()


@pytest.mark.parametrize("path", ["/m-1", ""])
def test_a_resumed_conversation_goes_to_the_server_that_was_chosen_for_it(home: Path, path: str) -> None:
    with Simulator(models=("m-1",)) as configured, Simulator(models=("m-1",), script=["One."]) as chosen:
        home.mkdir()
        (home / "config.yaml").write_text(f"model: {{base_url: '{configured.base_url}', name: m-1}}\n")
        with opened({}) as surface:
            surface.choose_model(f"{chosen.base_url}{path}")
            surface.agent.chat("hello")
            surface.store_choices()
            session_id = surface.session_id
            # With its model, so that it needs no answer of the server to be resumed.
            stored = surface.store.conversation_state(session_id or "").get(MODEL_KEY)
            assert stored == f"{chosen.base_url}/m-1"
        with opened({}, session_id) as surface:
            assert surface.agent.endpoint.base_url == chosen.base_url
            assert surface.resume_notes == ("Going on with m-1, the model of this conversation; /model changes it.",)


def test_an_address_with_a_password_is_not_stored_with_the_conversation(home: Path) -> None:
    with Simulator(models=("m-1",), script=["One."]) as sim, opened({}) as surface:
        surface.choose_model(f"{sim.base_url.replace('://', '://ann:secret@')}/m-1")
        surface.agent.chat("hello")
        surface.store_choices()
        assert surface.store.conversation_state(surface.session_id or "").get(MODEL_KEY) is None


def test_the_command_to_go_on_comes_back_with_the_configured_window(home: Path) -> None:
    with Simulator(models=("m-1", "m-2"), window=128_000, script=["One.", "Two."]) as sim:
        shared = {"model.base_url": sim.base_url, "model.context_length": "12000"}
        with opened({**shared, "model.name": "m-2", "model.provider": "custom"}) as surface:
            surface.agent.chat("hello")
            surface.store_choices()
            session_id = surface.session_id
            assert "model.context_length=12000" in "\n".join(closing_lines(surface))
        for configured in ("", f"model: {{base_url: '{sim.base_url}', name: m-1}}\n"):
            (home / "config.yaml").write_text(configured)
            with opened(shared, session_id) as surface:
                surface.agent.measure()
                assert (surface.agent.endpoint.model, surface.agent.gauge.window) == ("m-2", 12_000)
                assert bool(surface.resume_notes) == bool(configured)
        # The window in the file is about the model that it names.
        (home / "config.yaml").write_text(f"model: {{base_url: '{sim.base_url}', name: m-1, context_length: 12000}}\n")
        with opened({}, session_id) as surface:
            surface.agent.measure()
            assert (surface.agent.endpoint.model, surface.agent.gauge.window) == ("m-2", 128_000)


def test_resume_in_a_chat_with_another_window_reports_it_once(home: Path) -> None:
    with Simulator(models=("m-1",), window=128_000, script=["One.", "Two."]) as sim:
        shared = {"model.base_url": sim.base_url, "model.name": "m-1"}
        with opened({**shared, "model.context_length": "12000"}) as surface:
            surface.agent.chat("hello")
            session_id = surface.session_id
        with chatting(home, shared) as chat:
            chat.see("/128,000")
            chat.type(f"/resume {session_id}\r")
            chat.see("The window is 128,000 tokens here; in this conversation it was 12,000.")
            chat.see("--set model.context_length=12000 \\", "  chat --resume c_")
            chat.type("more\r")
            chat.see("Two.")
        assert chat.shown.count("The window is 128,000") == 1


def test_the_command_to_go_on_has_no_window_of_a_model_that_was_left(home: Path) -> None:
    with Simulator(models=("m-1", "m-2"), window=128_000, script=["One."]) as sim:
        flags = {"model.base_url": sim.base_url, "model.name": "m-1", "model.context_length": "12000"}
        with opened(flags) as surface:
            surface.choose_model("m-2")
            surface.agent.chat("hello")
            assert "model.context_length" not in "\n".join(closing_lines(surface))


def test_a_window_configured_without_a_model_is_that_of_the_model_chosen_first(home: Path) -> None:
    with Simulator(models=("m-1", "m-2"), window=128_000, script=["One."]) as sim:
        flags = {"model.base_url": sim.base_url, "model.context_length": "12000"}
        surface = ChatCommandContext(flags, offers_models=True)
        assert (surface.agent.endpoint.model, surface.unchosen_models) == ("m-1", ("m-1", "m-2"))
        assert surface.choose_model("m-2").startswith("m-2")
        surface.agent.chat("hello")
        assert (surface.agent.endpoint.model, surface.agent.gauge.window) == ("m-2", 12_000)
        assert "model.context_length=12000" in "\n".join(closing_lines(surface))
        surface.close()
        surface.store.close()


def test_the_first_choice_of_a_configured_server_is_that_of_the_next_start(home: Path) -> None:
    with Simulator(models=("m-1", "m-2"), script=["One.", "Two."]) as sim:
        home.mkdir(exist_ok=True)
        (home / "config.yaml").write_text(f"model: {{base_url: {sim.base_url}}}  # mine\n")
        with opened({}, offers_models=True) as surface:
            assert surface.agent.endpoint.model == "m-1"
            assert surface.choose_model("m-2").endswith("from now on; `perdure config unset model.name` undoes that")
            assert surface.choose_model("m-2").endswith(", the default")
            assert [choice.name for choice in surface.model_choices() if choice.is_default] == ["m-2"]
            assert "from now on" not in surface.choose_model("m-1")
        with opened({}) as surface:
            assert surface.agent.endpoint.model == "m-2"
    assert "# mine" in (home / "config.yaml").read_text()


def test_a_choice_at_an_address_of_the_command_line_is_not_stored(home: Path) -> None:
    with Simulator(models=("m-1", "m-2")) as sim:
        with opened({"model.base_url": sim.base_url}, offers_models=True) as surface:
            assert surface.agent.endpoint.model == "m-1"
            assert "config set model.name m-2" in surface.choose_model("m-2")
        assert load().settings.model.name is None


def test_a_choice_at_an_address_of_the_environment_is_not_stored(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text("model: {provider: custom}\n")
    with Simulator(models=("m-1", "m-2")) as sim:
        monkeypatch.setenv("PERDURE_MODEL__BASE_URL", sim.base_url)
        with opened({}, offers_models=True) as surface:
            assert surface.agent.endpoint.model == "m-1"
            assert "config set model.name m-2" in surface.choose_model("m-2")
    monkeypatch.delenv("PERDURE_MODEL__BASE_URL")
    assert load().settings.model.name is None, "at another address it would name nothing"


def test_a_choice_that_cannot_be_stored_is_made_for_this_chat(home: Path) -> None:
    with Simulator(models=("m-1", "m-2"), script=["One."]) as sim:
        home.mkdir(exist_ok=True)
        (home / "config.yaml").write_text(f"model: &a {{base_url: {sim.base_url}}}\nauxiliary: {{vision: *a}}\n")
        with opened({}, offers_models=True) as surface:
            assert surface.agent.endpoint.model == "m-1"
            answer = surface.choose_model("m-2")
            assert "m-2" in answer
            assert "cannot be changed safely" in answer
            assert surface.agent.endpoint.model == "m-2"


def test_another_provider_of_the_command_line_is_not_called_at_the_configured_address(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key would be sent to that address."""
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(
        "model: {provider: openai-codex, base_url: 'http://127.0.0.1:1/v1', name: mine, context_length: 12000}\n"
    )
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-none")
    monkeypatch.setenv("OPENAI_CODEX_TOKEN", "none")
    with opened({"model.provider": "anthropic"}) as surface:
        endpoint = surface.agent.endpoint
        assert (endpoint.provider, endpoint.base_url) == ("anthropic", "https://api.anthropic.com")
        assert endpoint.model != "mine"
    # An alias of the same provider, and an address of this run, stay.
    with opened({"model.provider": "codex"}) as surface:
        assert (surface.agent.endpoint.base_url, surface.agent.endpoint.model) == ("http://127.0.0.1:1/v1", "mine")
    address = "http://127.0.0.1:2/v1"
    with opened({"model.provider": "anthropic", "model.base_url": address, "model.name": "x"}) as surface:
        assert surface.agent.endpoint.base_url == address


def test_an_address_without_a_provider_gets_no_other_providers_key(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text("model: {base_url: 'http://127.0.0.1:1/v1', name: mine}\n")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    with opened({"model.provider": "openai"}) as surface:
        assert surface.agent.endpoint.base_url == "https://api.openai.com/v1"
    for provider in ("custom", "vllm"):
        with opened({"model.provider": provider}) as surface:
            assert (surface.agent.endpoint.base_url, surface.agent.endpoint.api_key) == ("http://127.0.0.1:1/v1", None)


def test_a_mode_that_the_project_does_not_grant_is_reported(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "app"
    (folder / ".perdure").mkdir(parents=True)
    (folder / ".perdure" / "permissions.yaml").write_text("mode: ask\n")
    monkeypatch.chdir(folder)
    with opened({"model.provider": "local", "permissions.mode": "edits"}) as surface:
        lines = list(route_lines(surface))
        assert surface.permissions.mode == "ask"
        assert len([line for line in lines if "the permission mode is ask, not edits" in line]) == 1
    for flags in ({}, {"permissions.mode": "plan"}):
        with opened({"model.provider": "local", **flags}) as surface:
            assert not any("permission mode is" in line for line in route_lines(surface))


def test_a_stricter_mode_of_the_command_line_beats_that_of_a_trusted_project(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "app"
    (folder / ".perdure").mkdir(parents=True)
    (folder / ".perdure" / "permissions.yaml").write_text("mode: all\n")
    monkeypatch.chdir(folder)
    assert CliRunner().invoke(cli, ["permissions", "trust", "--yes"]).exit_code == 0
    for flags, mode in (({}, "all"), ({"permissions.mode": "plan"}, "plan"), ({"permissions.mode": "edits"}, "edits")):
        with opened({"model.provider": "local", **flags}) as surface:
            assert surface.permissions.mode == mode


def test_a_resumed_conversation_whose_model_cannot_be_used_says_why(home: Path) -> None:
    with Simulator(models=("m-1",)) as sim, opened({"model.base_url": sim.base_url, "model.name": "m-1"}) as surface:
        session = surface.store.create(route=RouteRecord("anthropic", "claude-sonnet-5-5", "anthropic_messages"))
        (home / "config.yaml").write_text(f"model: {{base_url: '{sim.base_url}', name: m-1}}\n")
        with opened({}, session.id) as resumed:
            assert resumed.agent.endpoint.model == "m-1"
            (note,) = resumed.resume_notes
        assert "was with anthropic/claude-sonnet-5-5, which cannot be used here" in note
        assert "m-1 goes on" in note


def test_a_resumed_conversation_is_never_freer_than_it_was(home: Path) -> None:
    with Simulator(models=("m-1",), script=["One."]) as sim:
        flags = {"model.base_url": sim.base_url, "model.name": "m-1"}
        with opened({**flags, "permissions.mode": "ask"}) as surface:
            surface.agent.chat("hello")
            surface.store_choices()
            session_id = surface.session_id
        with opened(flags, session_id) as surface:
            assert surface.permissions.mode == "ask"
            assert surface.resume_notes == (
                "Permission mode ask, as in this conversation before, not edits; /mode changes it.",
            )
        with opened({**flags, "permissions.mode": "plan"}, session_id) as surface:
            assert (surface.permissions.mode, surface.resume_notes) == ("plan", ())
        with opened(flags, session_id) as surface:
            assert surface.permissions.mode == "plan"


def test_the_command_to_go_on_has_the_environment_and_settings_of_this_run(home: Path) -> None:
    with Simulator(models=("m-1",), script=["One."]) as sim:
        flags = {"model.base_url": sim.base_url, "model.name": "m-1", "credentials.command": "pass show key"}
        with opened(flags) as surface:
            surface.agent.chat("hello")
            text = "\n".join(closing_lines(surface))
    assert f"Go on with it:\n  PERDURE_HOME={home} \\\n" in text
    command = text.partition("Go on with it:\n")[2].replace(" \\\n ", "")
    assert f" --set model.base_url={sim.base_url}" in command
    assert " chat --resume c_" in command
    assert "pass show" not in text


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
        for shown in (
            status_line(surface),
            *conversation_lines(surface.store, surface.session_id or "", surface.settings),
        ):
            assert "$0.0000" not in shown
        assert "cost unknown" in status_line(surface)
        *_, cost, why, command = closing_lines(surface)
        assert cost.split() == ["cost", "unknown"]
        assert why == "no price known for 1 call; in dollars for a million tokens, in and out:"
        assert command.endswith(" models price m-without-a-price IN OUT`")
        record(surface, 0.25)
        assert "cost $0.2500+" in status_line(surface)
        *_, cost, why, command = closing_lines(surface)
        assert cost.split() == ["cost", "$0.2500+"]
        assert why.startswith("+: no price known for 1 call; "), "what the + stands for"
        set_price = CliRunner().invoke(cli, ["models", "price", "m-without-a-price", "1", "2"])
        assert set_price.exit_code == 0, set_price.output
        assert list(closing_lines(surface))[-1].startswith("+: a price is set by now, ")
        surface.close()
        surface.store.close()


@pytest.mark.parametrize("model", ["m-1", "m-2"])
def test_a_resumed_conversation_has_the_model_that_was_chosen_from_several(home: Path, model: str) -> None:
    with Simulator(models=("m-1", "m-2"), script=["One.", "Two."]) as sim:
        flags = {"model.base_url": sim.base_url}
        surface = ChatCommandContext(flags, offers_models=True)
        assert surface.agent.endpoint.model == "m-1"
        surface.choose_model(model)
        surface.agent.chat("hello")
        session_id = surface.session_id
        surface.store_choices()
        surface.close()
        surface.store.close()
        surface = ChatCommandContext(flags, session_id=session_id, offers_models=True)
        assert (surface.agent.endpoint.model, surface.unchosen_models) == (model, ())
        surface.close()
        surface.store.close()


def test_an_assumed_window_is_neither_reported_nor_offered(home: Path) -> None:
    flags = {"model.base_url": "http://127.0.0.1:1/v1", "model.name": "m-1"}
    with (
        Simulator(models=("m-1",), script=["One."]) as sim,
        opened({**flags, "model.base_url": sim.base_url, "model.context_length": "12000"}) as surface,
    ):
        surface.agent.chat("hello")
        session_id = surface.session_id or ""
    with opened(flags, session_id) as surface:
        surface.agent.measure()
        assert surface.agent.gauge.is_assumed
        assert window_note(surface) is None
        call = surface.store.ledger.calls(session_id, limit=1)[0]
        surface.store.ledger.record_call(replace(call, window_tokens=128_000))
    with opened({**flags, "model.context_length": "12000"}, session_id) as surface:
        surface.agent.measure()
        assert surface.agent.gauge.window == 12_000
        assert window_note(surface) is None


def test_a_mistyped_model_is_stored_with_a_word_about_the_nearest(home: Path) -> None:
    def set_name(name: str) -> tuple[int, str]:
        result = CliRunner().invoke(cli, ["config", "set", "model.name", name])
        return result.exit_code, result.output

    assert set_name("gpt-5") == (0, "model.name = gpt-5\n")
    assert set_name("gpt-5.5-2026-01-01") == (0, "model.name = gpt-5.5-2026-01-01\n")
    code, output = set_name("gemini-2.5-por")
    assert code == 0
    assert "the catalogue has no model 'gemini-2.5-por' of gemini; the nearest: gemini-2.5-pro" in output
    code, output = set_name("gpt5")
    assert code == 0
    assert "no catalogue; the nearest: gpt-5, " in output
    asked = CliRunner().invoke(cli, ["chat", "-q", "hello"])
    assert asked.exit_code == 1
    assert asked.output.count("'gpt5'") == 1
    assert "the model 'gpt5' is no file" in asked.output
    assert "in a chat lists what can be called here" in " ".join(asked.output.split())
    assert "Nothing was stored." in asked.output


def test_a_model_that_nobody_knows_is_no_small_embedded_one(home: Path) -> None:
    with opened({"model.name": "nosuch"}, None) as surface:
        first = "\n".join(welcome_lines(surface))
        assert "using      nosuch (local)" in first
        assert "very small model" not in first
        assert "'nosuch' is no file on this machine and in no catalogue. /model lists what can be called" in first
    with opened({}, None) as surface:
        assert "very small model" in "\n".join(welcome_lines(surface))


def test_a_call_that_was_refused_costs_nothing_and_asks_for_no_price(home: Path) -> None:
    with Simulator(models=("qwen3:8b",)) as sim, opened({"model.base_url": sim.base_url, "model.name": "nosuch"}) as s:
        s.agent.run_conversation("hello")
        assert "cost $0.0000" in status_line(s)
        assert list(closing_lines(s))[-1].split() == ["cost", "$0.0000"]
        assert "unknown" not in insights_text(s.store, 1, visibility=EVERYONE)


def test_a_model_that_a_server_of_ones_own_does_not_list_is_reported_at_the_start(home: Path) -> None:
    with Simulator(models=("qwen3:8b",)) as sim:
        flags = {"model.base_url": sim.base_url, "model.name": "nosuch"}
        with chatting(home, flags) as chat:
            chat.see("does not list 'nosuch'; it lists qwen3:8b. /model goes on with another.")
        with opened({**flags, "model.name": "qwen3:8b"}, None) as surface:
            assert not list(unlisted_lines(surface.agent.endpoint))


def test_a_choice_says_how_far_it_reaches(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.app.model_choices.unlisted_notice", lambda endpoint: None)  # no network
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-none")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    name = "claude-opus-4-5"
    assert CliRunner().invoke(cli, ["config", "set", "model.name", "claude-sonnet-4-5"]).exit_code == 0
    with opened({}, None) as surface:
        label = surface.choose_model(f"anthropic/{name}")
        assert f"{name} (anthropic), in this chat; for all: " in label
        assert label.endswith(f"config set model.name {name}`")
        assert surface.choose_model("anthropic/claude-sonnet-4-5") == "claude-sonnet-4-5 (anthropic), the default"
        assert "config set model.provider local` and " in surface.choose_model("local/smollm2")
    with opened({"model.name": name}, None) as surface:
        assert surface.choose_model("openai/gpt-5").endswith("gpt-5 (openai), in this chat")


def test_a_mistyped_model_is_reported_where_it_is_chosen(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    surface = ChatCommandContext({})
    with pytest.raises(ConfigError, match=r"'gpt5' is no file .* the nearest: gpt-5, .* Nothing has changed"):
        surface.choose_model("gpt5")
    monkeypatch.setattr("perdure.app.model_choices.unlisted_notice", lambda endpoint: None)  # no network
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-none")
    label = surface.choose_model("anthropic/claude-sonet-4-5")
    assert label.startswith("claude-sonet-4-5 (anthropic); the catalogue has no model 'claude-sonet-4-5' of anthropic;")
    surface.close()
    surface.store.close()


def test_the_models_of_a_server_of_ones_own_are_checked_by_its_list(home: Path) -> None:
    with Simulator(models=("qwen3:8b", "m-2")) as sim:
        assert CliRunner().invoke(cli, ["config", "set", "model.base_url", sim.base_url]).exit_code == 0
        assert CliRunner().invoke(cli, ["config", "set", "model.name", "m-2"]).output == "model.name = m-2\n"
        output = CliRunner().invoke(cli, ["config", "set", "model.name", "qwen3:9b"]).output
        assert "does not list 'qwen3:9b'; it lists qwen3:8b, m-2. It is stored all the same." in " ".join(
            output.split()
        )


def test_a_scripted_conversation_sends_nothing_before_a_model_is_chosen(home: Path) -> None:
    with Simulator(models=("m-1",), script=["One.", "Two."]) as sim:
        for name, value in (("model.base_url", sim.base_url), ("model.name", "m-1")):
            assert CliRunner().invoke(cli, ["config", "set", name, value]).exit_code == 0
        surface = ChatCommandContext({})
        surface.agent.chat("hello")
        session_id = surface.session_id
        surface.store.conversation_state(session_id or "").set(SCRIPTED_KEY, True)
        surface.close()
        surface.store.close()
        asked = CliRunner().invoke(cli, ["chat", "--resume", "last", "-q", "more"])
        assert (asked.exit_code, "choose a model with /model" in asked.output) == (1, True)
        with chatting(home, {}, session_id=session_id) as chat:
            chat.see("A script took the part")
            chat.wait_for(lambda: chat.chat._status.startswith("no model chosen"))
            chat.type("go on\r")
            chat.see("Choose a model first")
            chat.wait_for(lambda: chat.line == "go on")
            chat.type("\x15/model m-1\r")
            chat.see("Going on with m-1")
            chat.type("go on\r")
            chat.see("Two.")
        assert len([request for request in sim.requests if request.body]) == 2


@pytest.mark.usefixtures("home")
def test_what_a_script_answered_is_no_cost_of_the_model_chosen_after_it() -> None:
    with Simulator(models=("m-1",), script=["One."]) as sim:
        surface = ChatCommandContext({"model.base_url": sim.base_url, "model.name": "m-1"})
        surface.agent.chat("hello")
        session_id = surface.session_id or ""
        conversation = surface.store.conversations.get(session_id)
        call = surface.store.ledger.calls(session_id)[-1]
        surface.store.ledger.record([replace(call, cost_usd=0.4341)])
        surface.store.conversation_state(session_id).set(SCRIPTED_KEY, {conversation.id: 0.1841})
        assert "cost $0.2500+" in status_line(surface)
        usage = all_commands().dispatch(surface, "/usage")
        assert usage is not None
        assert re.search(r"cost +\$0\.2500.*not billed +\$0\.1841 +by a script", usage.text, re.DOTALL)
        surface.close()
        surface.store.close()


def test_the_status_of_a_model_that_takes_no_tools_promises_none(home: Path) -> None:
    surface = ChatCommandContext({"model.provider": "local", "model.name": "smollm2"})
    assert surface.agent.endpoint.provider == "local"
    assert "no tools" in status_line(surface).split(" · ")
    assert not [line for line in welcome_lines(surface) if "edits" in line]
    surface.close()
    surface.store.close()


def test_a_conversation_whose_model_is_not_chosen_has_one_reading_everywhere(home: Path) -> None:
    with Simulator(models=("m-1",), window=20_000, script=["One. " * 800, "Two."]) as sim:
        flags = {"model.base_url": sim.base_url, "model.name": "m-1"}
        surface = ChatCommandContext(flags | {"model.context_length": "20000"})
        surface.agent.chat("hello " * 900)
        session_id = surface.session_id or ""
        surface.store.conversation_state(session_id).set(SCRIPTED_KEY, True)
        surface.close()
        surface.store.close()

        # Resumed where other settings hold: nobody has chosen them for this conversation.
        other = {"model.base_url": sim.base_url, "model.context_length": "9000"}
        surface = ChatCommandContext(other, session_id=session_id)
        commands = all_commands()
        stored = surface.store.ledger.context_usage(session_id)
        assert stored is not None
        assert stored.window == 20_000
        reading = f"{stored.tokens:,}/20,000"
        assert reading in status_line(surface)
        context = commands.dispatch(surface, "/context")
        assert context is not None
        assert f" {stored.tokens:,} of 20,000 tokens" in context.text
        assert "compaction " not in context.text, "nothing is known of a model that is not chosen"
        assert reading in status_line(surface), "looking does not change it"
        assert "would cost" in status_line(surface)

        commands.dispatch(surface, "/compress")
        stored = surface.store.ledger.context_usage(session_id)
        assert stored is not None
        assert f"{stored.tokens:,}/20,000" in status_line(surface)
        context = commands.dispatch(surface, "/context")
        assert context is not None
        assert f" {stored.tokens:,} of 20,000 tokens" in context.text
        assert len([request for request in sim.requests if request.body]) == 1
        surface.close()
        surface.store.close()


def test_the_first_choice_of_a_model_is_no_switch(home: Path) -> None:
    with (
        Simulator(models=("m-1", "m-2"), window=32_000, script=["Fine."]) as sim,
        chatting(home, {"model.base_url": sim.base_url}) as chat,
    ):
        chat.see("no model is chosen yet")
        chat.wait_for(lambda: chat.line.startswith("/model"))
        chat.type("\x15")
        chat.type("/model m-2\r")
        chat.see("Going on with m-2")
        chat.type("hello\r")
        chat.see("Fine.")
        assert "m-1 →" not in chat.shown
        chat.type("/model m-1\r")
        chat.see("Going on with m-1")
        assert "m-2 → m-1" not in chat.shown, "told once, by the command's answer"
        assert chat.chat._desk is not None
        surface = chat.chat._desk.surface
        events = surface.store.ledger.events(surface.session_id or "", kind="model_switch")
        assert [e.payload["new"] for e in events] == ["m-1"]
