"""Conformance checks for context engines, for plug-in authors.

    from perdure.context import conformance

    @pytest.mark.parametrize("check", conformance.CHECKS, ids=conformance.name_of)
    def test_my_engine(check):
        check(MyEngine)

or, without pytest: `python -m perdure.context.conformance my_package:MyEngine`. A check takes a factory (usually the
class) and raises AssertionError with the problem.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from inspect import isawaitable
from typing import Any

from perdure.context.compressor_state import MemoryState
from perdure.context.engine import Compaction, ContextEngine, EngineServices, Reason, as_compaction, is_async
from perdure.context.retention import shorten_head
from perdure.core import rules
from perdure.core.concurrency import run_coroutine
from perdure.core.errors import ErrorVerdict, ProviderError, ToolError
from perdure.core.messages import Entry, Message, ToolCall, assistant, canonical_json, system, tool_result, user
from perdure.core.ports import Summary
from perdure.core.usage import NOT_REPORTED, CanonicalUsage
from perdure.models.tokens import estimate_message

Make = Callable[[], ContextEngine]
Check = Callable[[Make], None]

WINDOW = 32_000
SMALL_WINDOW = 1_000
# Compactions in a row of a growing conversation.
ROUNDS = 4
REASONS: tuple[Reason, ...] = ("threshold", "preflight", "cold", "overflow", "hygiene", "background", "user", "model")


def long_history(turns: int = 40) -> list[Entry]:
    """Return a working session of about twice the window: requests, calls with long results, replies."""
    out: list[Message] = []
    for t in range(turns):
        out.append(user(f"Please bring component_{t} up to date in src/component_{t}.py."))
        for s in range(3):
            call = ToolCall(f"call_{t}_{s}", "terminal", json.dumps({"command": f"make component_{t} STEP={s}"}))
            out.append(assistant(None, (call,)))
            out.append(tool_result(call.id, f"component_{t} step {s}: compiled and linked\n" * 60, "terminal"))
        out.append(assistant(f"component_{t} is up to date; its tests pass."))
    out.append(user("Now write the release notes for version 4.2.0."))
    return [Entry(i, m) for i, m in enumerate(out)]


def odd_histories() -> dict[str, list[Entry]]:
    """Return malformed and extreme histories that occur in practice, by name."""
    lone = tool_result("no_such_call", "a result without a call")
    asking = assistant("let me look", (ToolCall("a", "terminal"), ToolCall("b", "terminal")))
    histories = {
        "empty": [],
        "one message": [user("hello")],
        "only system": [system("be careful")],
        "only tool results": [lone] * 30,
        "no user at all": [assistant(f"thought {i}") for i in range(30)],
        "nothing said": [Message("user", None), Message("assistant", None, kind="assistant")] * 15,
        "broken pairs": [user("go"), asking, tool_result("b", "x" * 9_000), lone, user("and?"), asking] * 10,
        "one huge message": [user("word " * 100_000)],
        "huge in the middle": [user("go"), assistant("word " * 100_000), user("and now?")],
        "same role in a row": [user(f"part {i} " * 400) for i in range(40)],
    }
    return {name: [Entry(i, m) for i, m in enumerate(messages)] for name, messages in histories.items()}


def check_needs_no_arguments(make: Make) -> None:
    """Check that the factory needs no arguments and that the engine has a name."""
    engine = make()
    _must(isinstance(engine, ContextEngine), f"{engine!r} is not a ContextEngine")
    _must(bool(engine.name), "the engine has no name")


def check_life_cycle(make: Make) -> None:
    """Check that every lifecycle method may be called in order, with and without services."""
    engine = make()
    engine.on_session_start("s_1")
    engine.update_model(context_length=WINDOW, model="m", provider="p", max_tokens=1_000)
    engine.update_from_response(CanonicalUsage(input_tokens=100, output_tokens=10))
    engine.update_from_response(NOT_REPORTED)
    engine.observe(long_history(2))
    engine.on_session_start("s_2", reason="compression", previous="s_1", services=_services())
    engine.on_session_start("s_2", reason="resume", services=_services())
    engine.on_session_end("s_2")


def check_says_when(make: Make) -> None:
    """Check that a small prompt never asks for a compaction and one that fills the window does."""
    engine = _start_engine(make)
    _must(engine.should_compress(10) is False, "asks to compact a prompt of 10 tokens")
    _must(engine.should_compress(WINDOW) is True, "does not ask to compact a prompt that fills the window")


def check_follows_the_window(make: Make) -> None:
    """Check that the engine adapts at once when the model switches to one with a smaller window."""
    engine = _start_engine(make)
    prompt = WINDOW // 8
    _must(engine.should_compress(prompt) is False, f"asks to compact {prompt} of {WINDOW} tokens")
    engine.update_model(context_length=prompt)
    _must(engine.should_compress(prompt) is True, "does not notice a smaller window")


def check_compacts(make: Make) -> None:
    """Check that a history of twice the window gets smaller, stays valid and keeps the newest request word for word."""
    engine, entries = _start_engine(make), long_history()
    _must(engine.has_content_to_compress(entries), "sees nothing to compact in a history of twice the window")
    done = _compress(engine, entries)
    _must(not done.is_noop, "changed nothing in a history of twice the window")
    after = [_message(item) for item in done.apply(entries)]
    _must(_tokens(after) < _tokens([e.message for e in entries]), "the new history is not smaller")
    _must(not rules.Pairs().violations(after), "a tool call was parted from its result")
    _must(any(m is entries[-1].message for m in after), "the newest user message is gone or was changed")


def check_compacts_again(make: Make) -> None:
    """Check that a conversation which grows beyond the window again is compacted again, each time."""
    engine, entries = _start_engine(make), long_history()
    for turn in range(ROUNDS):
        engine.update_from_response(CanonicalUsage(input_tokens=WINDOW))
        done = _compress(engine, entries)
        after = [_message(item) for item in done.apply(entries)]
        _must(not done.is_noop, f"compaction {turn + 1} of a growing conversation changed nothing")
        is_effective = _tokens(after) < _tokens([e.message for e in entries]) // 2
        _must(is_effective, f"compaction {turn + 1} of a growing conversation hardly freed anything")
        engine.on_session_start(f"s_{turn}", reason="compression", previous="s_check")
        engine.update_from_response(CanonicalUsage(input_tokens=_tokens(after)))
        entries = [Entry(i, m) for i, m in enumerate([*after, *(e.message for e in long_history())])]


def check_keeps_unread_results(make: Make) -> None:
    """Check that tool results the model has not read yet are kept unchanged while they fit the window."""
    engine, entries = _start_engine(make), long_history()
    calls = tuple(ToolCall(f"unread_{i}", "terminal") for i in range(3))
    results = [tool_result(c.id, f"measurement {c.id}: 42\n" * 300, "terminal") for c in calls]
    entries += [Entry(len(entries) + i, m) for i, m in enumerate([assistant(None, calls), *results])]
    after = [_message(item) for item in _compress(engine, entries).apply(entries)]
    _must(all(any(m is r for m in after) for r in results), "results the model has not read are gone or were changed")


def check_looks_before_it_asks(make: Make) -> None:
    """Check that no method but `compress` requests a summary, since the others are called before every request."""
    calls: list[str] = []

    def ask(prompt: str, *, max_tokens: int) -> Summary:
        calls.append(prompt)
        return Summary("")

    engine, entries = _start_engine(make, ask), long_history()
    engine.observe(entries)
    engine.should_compress(WINDOW)
    engine.has_content_to_compress(entries)
    _must(not calls, "asked the summary model before `compress` was called")


def check_fits_small_windows(make: Make) -> None:
    """Check that a history is compacted in a window of 1,000 tokens without errors, keeping the newest request."""
    engine, entries = _start_engine(make), long_history()
    engine.update_model(context_length=SMALL_WINDOW, model="model", provider="provider")
    done = _compress(engine, entries)
    after = [_message(item) for item in done.apply(entries)]
    _must(_tokens(after) < _tokens([e.message for e in entries]), "the new history is not smaller")
    _must(any(m is entries[-1].message for m in after), "the newest user message is gone or was changed")


def check_is_idempotent(make: Make) -> None:
    """Check that compacting again without new messages changes nothing."""
    engine, entries = _start_engine(make), long_history()
    done = _compress(engine, entries)
    again = [Entry(i, _message(item)) for i, item in enumerate(done.apply(entries))]
    _must(_compress(engine, again).is_noop, "a second compaction without new content changed something")


def check_mutates_nothing(make: Make) -> None:
    """Check that the engine does not mutate its arguments."""
    engine, entries = _start_engine(make), long_history()
    before = [e.message.to_dict() for e in entries]
    _result(engine, tuple(entries))
    _must([e.message.to_dict() for e in entries] == before, "the input was changed")


def check_survives_odd_histories(make: Make) -> None:
    """Check that no history makes the engine raise, and that each result is valid and has the newest user message."""
    for name, entries in odd_histories().items():
        engine = _start_engine(make)
        engine.has_content_to_compress(entries)
        done = _compress(engine, entries)
        after = [_message(item) for item in done.apply(entries)]
        _must(
            not rules.violations(rules.repair(shorten_head(after, head_tokens=WINDOW))), f"{name}: cannot be made valid"
        )
        newest = next((e.message for e in reversed(entries) if e.message.is_request), None)
        _must(newest is None or newest in after, f"{name}: the newest user message is gone")


def check_survives_bad_summarisers(make: Make) -> None:
    """Check that a summary model which fails or returns too little or too much neither stops a compaction nor loops."""
    answers: dict[str, str | Exception] = {
        "empty": "",
        "huge": "word " * 200_000,
        "raising": ProviderError(ErrorVerdict("overloaded", "busy", 529)),
        "raising anything": ValueError("boom"),
    }
    for name, answer in answers.items():
        calls: list[str] = []

        def ask(prompt: str, *, max_tokens: int, answer: str | Exception = answer, calls: list[str] = calls) -> Summary:
            calls.append(prompt)
            if isinstance(answer, Exception):
                raise answer
            return Summary(answer)

        engine, entries = _start_engine(make, ask), long_history()
        done = _compress(engine, entries)
        _must(len(calls) <= 50, f"{name}: {len(calls)} calls")
        after = [_message(item) for item in done.apply(entries)]
        _must(_tokens(after) <= _tokens([e.message for e in entries]), f"{name}: the new history is larger")


def check_takes_every_reason(make: Make) -> None:
    """Check that the engine accepts every reason and a focus topic."""
    for reason in REASONS:
        _compress(_start_engine(make), long_history(), reason=reason, focus_topic="the release notes")


def check_works_in_a_thread(make: Make) -> None:
    """Check that `compress` works in another thread while other methods are called."""
    engine, entries = _start_engine(make), long_history()
    results: list[object] = []
    worker = threading.Thread(target=lambda: results.append(_result(engine, entries)))
    worker.start()
    engine.should_compress(10)
    engine.update_from_response(CanonicalUsage(input_tokens=10))
    worker.join(60)
    _must(len(results) == 1, "compress did not come back from a worker thread")


def check_tools(make: Make) -> None:
    """Check that the engine's tool schemas have a type and a name, and that an unknown tool call raises ToolError."""
    engine = _start_engine(make)
    for schema in engine.get_tool_schemas():
        function = schema.get("function")
        _must(schema.get("type") == "function" and isinstance(function, dict), f"{schema!r} is not a tool schema")
        _must(bool(isinstance(function, dict) and function.get("name")), f"{schema!r} has no name")
    try:
        answer = engine.handle_tool_call("no_such_tool_at_all", {})
        if isawaitable(answer):
            run_coroutine(_to_coroutine(answer))
    except ToolError:
        return
    _must(False, "an unknown tool call must raise ToolError")


CHECKS: tuple[Check, ...] = (
    check_needs_no_arguments,
    check_life_cycle,
    check_says_when,
    check_follows_the_window,
    check_looks_before_it_asks,
    check_compacts,
    check_compacts_again,
    check_keeps_unread_results,
    check_fits_small_windows,
    check_is_idempotent,
    check_mutates_nothing,
    check_survives_odd_histories,
    check_survives_bad_summarisers,
    check_takes_every_reason,
    check_works_in_a_thread,
    check_tools,
)


def name_of(check: Check) -> str:
    return getattr(check, "__name__", repr(check)).removeprefix("check_")


def run(make: Make) -> list[tuple[str, str]]:
    """Run every check; return their names, each with its problem or ""."""
    results = []
    for check in CHECKS:
        try:
            check(make)
        except Exception as error:  # a plug-in may raise anything
            results.append((name_of(check), f"{type(error).__name__}: {error}"))
        else:
            results.append((name_of(check), ""))
    return results


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or ":" not in arguments[0]:
        print("usage: python -m perdure.context.conformance package.module:EngineClass", file=sys.stderr)
        return 2
    module, _, attribute = arguments[0].partition(":")
    try:
        make = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        print(f"{arguments[0]} cannot be found: {error}", file=sys.stderr)
        return 2
    results = run(make)
    for name, wrong in results:
        print(f"{'FAILED' if wrong else 'ok':<7}{name.replace('_', ' ')}{f': {wrong}' if wrong else ''}")
    return 1 if any(wrong for _, wrong in results) else 0


def _start_engine(make: Make, ask: Callable[..., Summary] | None = None) -> ContextEngine:
    engine = make()
    engine.on_session_start("s_check", services=_services(_adapt_summarizer(ask, engine)))
    engine.update_model(context_length=WINDOW, model="model", provider="provider")
    return engine


def _services(ask: Callable[..., Any] | None = None) -> EngineServices:
    return EngineServices(summarize=ask, state=MemoryState())


def _adapt_summarizer(ask: Callable[..., Summary] | None, engine: ContextEngine) -> Callable[..., Any] | None:
    """Return the summarizer in the form this engine gets: a coroutine function if its `compress` is one."""
    if ask is None or not is_async(engine.compress):
        return ask

    async def summarize(prompt: str, *, max_tokens: int) -> Summary:
        return ask(prompt, max_tokens=max_tokens)

    return summarize


def _result(engine: ContextEngine, entries: Sequence[Entry], **options: Any) -> Any:
    result = engine.compress(entries, **options)
    return run_coroutine(_to_coroutine(result)) if isawaitable(result) else result


async def _to_coroutine(work: Awaitable[Any]) -> Any:
    return await work


def _compress(
    engine: ContextEngine, entries: Sequence[Entry], *, reason: Reason = "threshold", focus_topic: str | None = None
) -> Compaction:
    result = _result(engine, entries, focus_topic=focus_topic, reason=reason)
    done = as_compaction(result, entries)
    claims_effect = isinstance(result, Compaction) and result.outcome in ("compacted", "digest")
    _must(not (claims_effect and done.is_noop), "reports a compaction although it changed nothing")
    after = [_message(item) for item in done.apply(entries)]
    _must(not _repeats([e.message for e in entries], after), "a message of the history is in the new one twice")
    return done


def _repeats(before: Sequence[Message], after: Sequence[Message]) -> bool:
    """Whether `after` has a message of `before` more often than `before` itself has it."""
    allowed = Counter(canonical_json(m.to_dict()) for m in before)
    counts = Counter(canonical_json(m.to_dict()) for m in after)
    return any(count > allowed[key] > 0 for key, count in counts.items())


def _message(item: Entry | Message) -> Message:
    return item.message if isinstance(item, Entry) else item


def _tokens(messages: Sequence[Message]) -> int:
    return sum(map(estimate_message, messages))


def _must(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
