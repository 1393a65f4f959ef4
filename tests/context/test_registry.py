"""Which engine is chosen: folder, code, package, built-in; and never locked out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import perdure
from perdure.context.compaction_input import Item
from perdure.context.compressor import ContextCompressor
from perdure.context.conformance import long_history
from perdure.context.engine import Compaction, ContextEngine, EngineServices, unchanged_compaction
from perdure.context.registry import FallbackEngine, engines, register_context_engine, start_engine
from perdure.core.errors import ConfigError, EngineNotFound, ToolError
from perdure.core.usage import CanonicalUsage
from support.compaction import Shelf


class Mine(ContextCompressor):
    name = "mine"


def plugin_folder(home: Path, name: str, code: str) -> None:
    folder = home / "plugins" / "context_engine" / name
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(code)


FROM_FOLDER = """
from perdure.context.compressor import ContextCompressor

class FromFolder(ContextCompressor):
    name = "from-folder"

plugin = FromFolder
"""


@pytest.mark.spec("M2")
def test_the_built_in_is_there_without_asking(tmp_path: Path) -> None:
    started = start_engine("compressor", home=tmp_path)
    assert type(started.value) is ContextCompressor
    assert started.warning == ""
    assert engines(tmp_path).names()[0] == "compressor"


@pytest.mark.spec("M2")
def test_a_folder_comes_before_code(tmp_path: Path) -> None:
    register_context_engine("chosen_one", Mine)
    try:
        assert start_engine("chosen_one", home=tmp_path).value.name == "mine"
        plugin_folder(tmp_path, "chosen_one", FROM_FOLDER)
        assert start_engine("chosen_one", home=tmp_path).value.name == "from-folder"
    finally:
        engines().forget("chosen_one")
    assert "chosen_one" not in engines().names()


@pytest.mark.spec("M2")
def test_compressor_always_means_the_built_in(tmp_path: Path) -> None:
    plugin_folder(tmp_path, "compressor", FROM_FOLDER)
    assert type(start_engine("compressor", home=tmp_path).value) is ContextCompressor
    with pytest.raises(ConfigError, match="built in"):
        perdure.register_context_engine("compressor", Mine)


@pytest.mark.spec("M2")
def test_a_plug_in_is_never_active_by_itself(tmp_path: Path) -> None:
    plugin_folder(tmp_path, "trap", "raise SystemExit('ran')")
    assert "trap" in engines(tmp_path).names(), "listing runs nothing"
    assert start_engine("compressor", home=tmp_path).warning == ""


@pytest.mark.spec("M2")
@pytest.mark.parametrize(
    ("code", "why"),
    [
        (None, "not found"),
        ("import no_such_module_at_all", "broken"),
        ("plugin = lambda: 42", "not a perdure.ContextEngine"),
        ("raise SystemExit(3)", "broken"),
    ],
)
def test_a_missing_or_broken_one_falls_back_loudly(tmp_path: Path, code: str | None, why: str) -> None:
    if code is not None:
        plugin_folder(tmp_path, "lossy", code)
    started = start_engine("lossy", home=tmp_path)
    assert type(started.value) is ContextCompressor
    assert why in started.warning
    assert "compressor" in started.warning


@pytest.mark.spec("M2")
def test_choosing_an_unknown_name_is_refused_with_what_exists(tmp_path: Path) -> None:
    with pytest.raises(EngineNotFound, match="installed: compressor"):
        engines(tmp_path).load("compresor")


METHODS = (
    "on_session_start",
    "update_model",
    "observe",
    "update_from_response",
    "should_compress",
    "has_content_to_compress",
    "take_notices",
    "get_tool_schemas",
    "on_session_end",
)


def failing(method: str) -> ContextEngine:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no disk")

    made = Mine()
    setattr(made, method, fail)
    return made


@pytest.mark.spec("M2", "M1")
@pytest.mark.parametrize("method", METHODS)
def test_one_that_breaks_at_work_hands_over_to_the_built_in_and_says_so_once(method: str) -> None:
    made = failing(method)
    engine, entries = FallbackEngine(made, ContextCompressor), long_history()
    engine.on_session_start("s_1", services=EngineServices(state=Shelf()))
    engine.update_model(context_length=32_000)
    engine.observe(entries)
    engine.update_from_response(CanonicalUsage(input_tokens=20_000))
    assert engine.should_compress(20_000) is True, "the window it was told of holds for whoever stands in"
    assert engine.has_content_to_compress(entries)
    done = engine.compress(entries)
    assert isinstance(done, Compaction)
    assert not done.is_noop
    assert list(engine.get_tool_schemas()) == []
    engine.on_session_end("s_1")
    told = [*engine.take_notices(), *engine.take_notices()]
    assert [t for t in told if f"'mine' failed in {method}: RuntimeError: no disk" in t] == told
    assert (len(told), engine.name) == (1, "compressor")


@pytest.mark.spec("M2")
def test_one_that_works_is_left_alone_and_its_tools_and_compactions_may_fail() -> None:
    engine = FallbackEngine(failing("compress"), ContextCompressor)
    engine.update_model(context_length=1_000)
    with pytest.raises(RuntimeError, match="no disk"):
        engine.compress(long_history(2))
    with pytest.raises(ToolError):
        engine.handle_tool_call("no_such_tool", {})
    assert (engine.name, list(engine.take_notices())) == ("mine", [])


@pytest.mark.spec("M2")
def test_a_compaction_that_is_no_plan_is_replaced_by_one_of_the_built_in() -> None:
    class Broken(Mine):
        def compress(self, *_: object, **__: object) -> None:  # type: ignore[override]
            return None

    engine = FallbackEngine(Broken(), ContextCompressor)
    engine.on_session_start("s_1", services=EngineServices(state=Shelf()))
    engine.update_model(context_length=32_000)
    done = engine.compress(long_history())
    assert isinstance(done, Compaction)
    assert not done.is_noop
    assert engine.name == "compressor"
    (notice,) = engine.take_notices()
    assert notice == (
        "Context engine 'mine' failed in compress: compress must return a list of messages or a Compaction,"
        " not NoneType. Using 'compressor' instead until the next start."
    )


class Idle(Mine):
    """Never compacts anything."""

    def compress(self, messages: Sequence[Item], **_: object) -> Compaction:  # type: ignore[override]
        return unchanged_compaction(messages, "nothing")


@pytest.mark.spec("M2")
def test_passes_without_effect_replace_an_engine_only_while_the_prompt_does_not_fit() -> None:
    engine, entries = FallbackEngine(Idle(), ContextCompressor), long_history()
    engine.update_model(context_length=32_000)
    engine.should_compress(20_000)
    for _ in range(5):
        engine.compress(entries)
    assert engine.name == "mine", "the prompt still fits"
    engine.should_compress(31_500)
    engine.compress(entries)
    assert engine.name == "mine", "one pass may fail"
    done = engine.compress(entries, reason="overflow")
    assert isinstance(done, Compaction)
    assert (engine.name, done.is_noop) == ("compressor", False)
    (notice,) = engine.take_notices()
    assert "freed too little in repeated passes while the prompt no longer fits" in notice
