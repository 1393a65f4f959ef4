"""Wrong arguments of the public functions are refused with errors that name them, before anything is opened."""

from __future__ import annotations

import asyncio
import decimal
import fractions
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

import perdure
from perdure.core.arguments import SECRET_TEXT, TEXT, TOKENS, check_arguments, optional, require
from perdure.store.store import SessionStore
from perdure.testing.simulator import Simulator

LIST = [{"role": "user", "content": "x " * 400}, {"role": "assistant", "content": "y " * 400}] * 20
WINDOW = {"context_length": 8_000}
HALF_A_CHARACTER = "\ud800"

PLAIN: Any = perdure  # wrong types are the point


class Whole:
    """An integer of another library, such as a scalar of an array."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"settings": [1]}, "settings"),
        ({"settings": "x.yaml"}, "settings"),
        ({"settings": 3}, "settings"),
        ({"callbacks": [print]}, "callbacks"),
        ({"home": 3}, "home"),
        ({"home": ""}, "home"),
        ({"user_key": ""}, "user_key"),
        ({"user_key": 3}, "user_key"),
        ({"user_key": "a\0b"}, "user_key"),
        ({"session_id": 3}, "session_id"),
        ({"system_prompt": 3}, "system_prompt"),
        ({"source": 3}, "source"),
        ({"approver": 3}, "approver"),
        ({"asker": print}, "asker"),
        ({"api_key": 3}, "api_key"),
        ({"provider": ""}, "provider"),
        ({"model": ""}, "model"),
        ({"model": 3}, "model"),
        ({"on_progress": 3}, "on_progress"),
    ],
)
def test_a_wrong_argument_of_an_agent_is_named_before_its_store_is_opened(
    tmp_path: Path, options: dict[str, Any], name: str
) -> None:
    store = tmp_path / "store" / "perdure.db"
    required: dict[str, Any] = {"model": "m", "base_url": "http://127.0.0.1:9/v1", "home": tmp_path, "store": store}
    with pytest.raises(perdure.ConfigError, match=rf"^{name} is .*given: ") as error:
        PLAIN.Agent(**{**required, **options})
    assert "command line" not in str(error.value)
    assert not store.parent.exists()


def test_wrong_arguments_of_a_turn_are_named_before_a_conversation_begins(tmp_path: Path) -> None:
    wrong: list[tuple[str, Callable[[Any], Any]]] = [
        ("system_message", lambda agent: agent.run_conversation("x", system_message=3)),
        ("system_message", lambda agent: asyncio.run(agent.arun_conversation("x", 3))),
        ("task_id", lambda agent: agent.run_conversation("x", task_id=HALF_A_CHARACTER)),
        ("model", lambda agent: agent.switch_model(None)),
        ("model", lambda agent: agent.switch_model("")),
        ("sections", lambda agent: agent.edit_handoff(3)),
    ]
    with Simulator() as sim, perdure.Agent("m", base_url=sim.base_url, home=tmp_path, settings={}, tools=()) as agent:
        for name, call in wrong:
            with pytest.raises(perdure.ConfigError, match=f"^{name} is "):
                call(agent)
        assert (agent.session_id, sim.requests) == (None, [])


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"settings": "x"}, "settings"),
        ({"settings": [1]}, "settings"),
        ({"handoff_max_chars": "9"}, "handoff_max_chars"),
        ({"handoff_key": "abc"}, "handoff_key"),
        ({"summarize": 3}, "summarize"),
        ({"context_length": 0}, "context_length"),
        ({"context_length": True}, "context_length"),
        ({"context_length": "x"}, "context_length"),
        ({"context_length": 0.9}, "context_length"),
        ({"context_length": float("nan")}, "context_length"),
        ({"context_length": float("inf")}, "context_length"),
        ({"context_length": decimal.Decimal("NaN")}, "context_length"),
        ({"context_length": 8j}, "context_length"),
    ],
)
def test_wrong_arguments_of_compactions_are_named(options: dict[str, Any], name: str) -> None:
    for function in (PLAIN.compress, PLAIN.compress_if_needed):
        with pytest.raises(perdure.ConfigError, match=f"^{name} is "):
            function(LIST, **{**WINDOW, **options})
    with pytest.raises(perdure.ConfigError, match=f"^{name} is "):
        PLAIN.ContextCompressor(**{**WINDOW, **options})


def test_wrong_arguments_of_an_engine_and_of_the_functions_are_named() -> None:
    wrong: list[tuple[str, Callable[[], Any]]] = [
        ("tools", lambda: PLAIN.compress_if_needed(LIST, tools=3, **WINDOW)),
        ("messages", lambda: PLAIN.ContextCompressor(**WINDOW).compress(None)),
        ("messages", lambda: asyncio.run(PLAIN.ContextCompressor(**WINDOW).acompress("x"))),
        ("prompt_tokens", lambda: PLAIN.ContextCompressor(**WINDOW).should_compress("x")),
        ("prompt_tokens", lambda: PLAIN.ContextCompressor(**WINDOW).should_compress(float("nan"))),
        ("tools", lambda: PLAIN.estimate_tokens(LIST, tools=iter([3]))),
        ("messages", lambda: PLAIN.estimate_tokens(None)),
        ("system", lambda: PLAIN.estimate_tokens(LIST, system=3)),
        ("tools", lambda: PLAIN.estimate_tokens(LIST, tools=[3])),
        ("model", lambda: PLAIN.estimate_tokens(LIST, model=3)),
        ("request_tokens", lambda: PLAIN.classify_error(400, "x", request_tokens="a")),
        ("messages", lambda: PLAIN.apply_cache_control({"role": "user", "content": "x"})),
        ("messages", lambda: PLAIN.apply_anthropic_cache_control(None)),
        ("a message", lambda: PLAIN.apply_cache_control([3])),
        ("name", lambda: PLAIN.register_context_engine(3, perdure.ContextCompressor)),
        ("factory", lambda: PLAIN.register_context_engine("mine", 3)),
    ]
    for name, call in wrong:
        with pytest.raises(perdure.PerdureError, match=rf"^{name} is .*given: "):
            call()


@pytest.mark.parametrize(
    "number", [7_000.0, 7_000.9, Whole(7_000), decimal.Decimal(7_000), fractions.Fraction(14_000, 2)]
)
def test_a_count_may_be_any_real_number(number: Any) -> None:
    engine = PLAIN.ContextCompressor(context_length=number, max_tokens=number, handoff_max_chars=number)
    assert engine.budgets == PLAIN.ContextCompressor(context_length=7_000, max_tokens=7_000).budgets
    assert engine.should_compress(number)
    assert not engine.should_compress(type(number)(1))
    report = PLAIN.compress(LIST, context_length=number, handoff_max_chars=number)
    assert report.messages == PLAIN.compress(LIST, context_length=7_000, handoff_max_chars=7_000).messages
    needed = PLAIN.compress_if_needed(LIST, context_length=number, prompt_tokens=number)
    assert (needed.outcome, needed.messages) == (report.outcome, report.messages)
    verdicts = [PLAIN.classify_error(400, "", request_tokens=size) for size in (7_000, number)]
    assert verdicts[0] == verdicts[1]


@pytest.mark.parametrize("as_iterable", [iter, deque, lambda messages: dict(enumerate(messages)).values()])
def test_messages_may_be_any_iterable(as_iterable: Callable[[Any], Any]) -> None:
    functions: list[Callable[[Any], Any]] = [
        lambda m: PLAIN.compress(m, **WINDOW),
        lambda m: PLAIN.compress_if_needed(m, prompt_tokens=7_000, **WINDOW),
        lambda m: asyncio.run(PLAIN.acompress(m, **WINDOW)),
        lambda m: asyncio.run(PLAIN.acompress_if_needed(m, **WINDOW)),
        lambda m: PLAIN.ContextCompressor(**WINDOW).compress(m),
        lambda m: asyncio.run(PLAIN.ContextCompressor(**WINDOW).acompress(m)),
    ]
    for function in functions:
        report, expected = function(as_iterable(LIST)), function(LIST)
        assert (report.outcome, report.before_tokens) == ("digest", expected.before_tokens)
    unchanged = PLAIN.compress_if_needed(as_iterable(LIST[:2]), **WINDOW)
    assert (unchanged.outcome, unchanged.messages) == ("nothing_to_do", LIST[:2])
    assert PLAIN.ContextCompressor(**WINDOW).has_content_to_compress(as_iterable(LIST))
    assert PLAIN.estimate_tokens(as_iterable(LIST)) == PLAIN.estimate_tokens(LIST)


def test_tools_may_be_any_iterable() -> None:
    tools = [{"type": "function", "function": {"name": f"tool_{i}", "description": "x " * 200}} for i in range(30)]
    assert PLAIN.estimate_tokens(LIST[:2], tools=iter(tools)) == PLAIN.estimate_tokens(LIST[:2], tools=tools)
    reports = [PLAIN.compress_if_needed(LIST[:2], tools=t, **WINDOW) for t in (iter(tools), tools)]
    assert reports[0] == reports[1]


def test_a_turn_takes_a_task_id_of_any_kind_and_a_hidden_key(tmp_path: Path) -> None:
    options: dict[str, Any] = {"home": tmp_path, "settings": {}, "tools": (), "api_key": SecretStr("sk-abc")}
    with Simulator(script=["one"]) as sim, PLAIN.Agent("m", base_url=sim.base_url, **options) as agent:
        started: list[str] = []
        agent.events.listen(lambda event: started.append(getattr(event, "task_id", "")))
        assert agent.run_conversation("x", task_id=5).final_response == "one"
        assert started[0] == "5"
        assert agent.endpoint.api_key == "sk-abc"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SessionStore]:
    with perdure.open_store(tmp_path / "perdure.db") as opened:
        yield opened


def test_wrong_arguments_of_a_store_are_named(store: Any, tmp_path: Path) -> None:
    session_id = store.create().id
    wrong: list[tuple[str, Callable[[], Any]]] = [
        ("any_id", lambda: store.append(3, LIST)),
        ("messages", lambda: store.append(session_id, None)),
        ("session_id", lambda: store.history(None)),
        ("query", lambda: store.search(None)),
        ("title", lambda: store.create(title=3)),
        ("user_key", lambda: store.create(user_key="")),
        ("user_key", lambda: store.create(user_key=HALF_A_CHARACTER)),
        ("any_id", lambda: store.delete(3)),
        ("address", lambda: store.open(3, conversation_id=session_id)),
        ("path", lambda: store.backup(None)),
        ("limit", lambda: store.search("hello", limit="3")),
        ("rewordings", lambda: store.search("hello", rewordings=None)),
        ("rewordings", lambda: store.search("hello", rewordings="hi")),
        ("visibility", lambda: store.search("hello", visibility="ann")),
        ("offset", lambda: store.open("m:1", conversation_id=session_id, offset=None)),
        ("limit", lambda: store.open("m:1", conversation_id=session_id, limit="9")),
        ("messages", lambda: store.transfer.import_messages(3)),
    ]
    for name, call in wrong:
        with pytest.raises(perdure.PerdureError, match=rf"^{name} is .*given: "):
            call()
    assert store.history(session_id).entries == ()


def test_a_search_and_a_page_take_any_real_number(store: Any) -> None:
    session_id = store.create().id
    store.append(session_id, [{"role": "user", "content": "hello"}] * 5)
    assert len(store.search("hello", limit=3.0, rewordings=iter(["hi"]))) == 3
    page = store.open("m:1", conversation_id=session_id, offset=1.0, limit=Whole(4))
    assert page == store.open("m:1", conversation_id=session_id, offset=1, limit=4)


def test_a_store_may_be_any_path_object(tmp_path: Path) -> None:
    class Where:
        def __fspath__(self) -> str:
            return str(tmp_path / "perdure.db")

    with perdure.open_store(Where()) as opened:
        opened.create(title="mine")
    options: dict[str, Any] = {"home": tmp_path, "settings": {}, "tools": ()}
    with PLAIN.Agent("m", base_url="http://127.0.0.1:9/v1", store=Where(), **options) as agent:
        assert agent.deps.is_library
    assert (tmp_path / "perdure.db").exists()


def test_an_agent_in_a_folder_that_was_deleted_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(perdure.ConfigError, match="the working folder does not exist any more"):
        PLAIN.Agent("m", base_url="http://127.0.0.1:9/v1", home=tmp_path, settings={}, store=tmp_path / "p.db")


def test_a_secret_is_never_in_the_message_and_a_long_value_is_cut() -> None:
    with pytest.raises(perdure.ConfigError, match=r"^api_key is a text; given: a value of type bytes$"):
        require("api_key", b"sk-secret", SECRET_TEXT)
    with pytest.raises(perdure.ConfigError) as error:
        require("title", ["x" * 10_000] * 10_000, TEXT)
    assert len(str(error.value)) < 400


def test_a_value_that_cannot_be_represented_is_named_by_its_type() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("detached")

    with pytest.raises(perdure.ConfigError, match="given: <Broken instance"):
        require("title", Broken(), TEXT)


def test_a_checked_function_takes_its_defaults_and_stays_what_it_is() -> None:
    @check_arguments(text=TEXT, limit=optional(TOKENS))
    async def shorten(text: str, *, limit: int | None = None) -> str:
        return text[:limit]

    assert asyncio.iscoroutinefunction(shorten)
    assert asyncio.run(shorten("abc")) == "abc"
    assert asyncio.run(shorten(text="abc", limit=2)) == "ab"
    with pytest.raises(perdure.ConfigError, match="limit is a number of tokens, or None; given: 'x'"):
        asyncio.run(shorten("abc", limit="x"))  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'text'"):
        asyncio.run(shorten())  # type: ignore[call-arg]  # Python's own error for an argument that is not there


def test_settings_of_a_compaction_are_a_section_or_whole_settings_and_name_the_nearest() -> None:
    for settings in ({"threshold": 0.3}, {"compression": {"threshold": 0.3}}, {}):
        assert perdure.compress(LIST[:1], settings=settings, **WINDOW).outcome == "nothing_to_do"
        engine = perdure.ContextCompressor(settings=settings, context_length=200_000)
        assert engine.budgets.threshold_tokens == (60_000 if settings else 100_000)
    for wrong in ({"thresold": 0.3}, {"compression": {"thresold": 0.3}}):
        with pytest.raises(perdure.ConfigError, match=r"'compression.thresold' \(did you mean 'compression.threshold'"):
            perdure.compress(LIST, settings=wrong, **WINDOW)
    with pytest.raises(perdure.ConfigError, match="inside `compression:`"):
        perdure.compress(LIST, settings={"compression.threshold": 0.3}, **WINDOW)
