"""Journal, metrics and spans: every figure is there, and not one word of what was said."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client.parser import text_string_to_metric_families

from perdure.agent.telemetry import TurnSpans, provider_name
from perdure.core.errors import ErrorVerdict
from perdure.core.events import (
    CallFinished,
    CallStarted,
    CompactionFinished,
    CompactionStarted,
    Event,
    OutputSpilled,
    Recovered,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from perdure.core.messages import ToolCall, tool_result
from perdure.core.usage import NOT_REPORTED, CanonicalUsage
from perdure.core.visibility import User
from perdure.gateway.events.types import ChatKey, CommandAnswered, GatewayEvent
from perdure.gateway.observability.base import Observer, RequestRecord, TurnObserver, TurnStats
from perdure.gateway.observability.logging import LogObserver, LogWriter, LogWriterHandler
from perdure.gateway.observability.metrics import Metrics
from perdure.gateway.observability.telemetry import SpanObserver, make_span_observer
from support.auth_app import FixedTokens, everything, make_app
from support.store import FakeClock

CHAT = ChatKey("http", User("alice"), "main")
CALL = ToolCall("call_1", "terminal", '{"command": "echo hunter2"}')
USAGE = CanonicalUsage(
    input_tokens=100, output_tokens=20, cache_read_tokens=50, cache_write_tokens=8, reasoning_tokens=5
)
TURN: tuple[GatewayEvent, ...] = (
    TurnStarted("t_1", "s_1", "c_1"),
    CompactionStarted("threshold", 9_000),
    CompactionFinished("compacted", 9_000, 3_000, "s_2", "about hunter2"),
    CallStarted("gpt-5-mini", 120, 8_000, 4_000, "openai"),
    TextDelta("I will tell hunter2"),
    CallFinished("gpt-5-mini", USAGE, 0.25, "openai"),
    ToolStarted(CALL),
    ToolFinished(CALL, tool_result("call_1", "hunter2", "terminal"), 0.5),
    OutputSpilled(CALL, "output:o_1", 999),
    CallStarted("gpt-5-mini", 150, 8_000, 4_000, "openai"),
    CallFinished("gpt-5-mini", NOT_REPORTED, None, "openai", "rate_limit"),
    Recovered(ErrorVerdict("rate_limit", "hunter2 again", 429), "waited 2 s"),
    TurnFinished("completed", "hunter2", USAGE),
)


def play(observers: Sequence[Observer], events: Sequence[GatewayEvent], turn_id: str = "t_1") -> None:
    clock = FakeClock()
    turns = TurnObserver(observers, clock)
    for event in events:
        clock.pass_ms(100)
        turns.on_event(CHAT, turn_id, event)


def figures(metrics: Metrics) -> dict[str, float]:
    """Every sample by its name and labels, as Prometheus would read it."""
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


# -- metrics ---------------------------------------------------------------------------------------------------------


def test_a_turn_is_counted_in_all_metrics() -> None:
    metrics = Metrics()
    play([metrics], TURN)
    found = figures(metrics)
    assert found["perdure_turns_total{outcome=completed,platform=http}"] == 1
    assert found["perdure_turn_seconds_sum{platform=http}"] == pytest.approx(1.2)
    assert found["perdure_first_text_seconds_sum{platform=http}"] == pytest.approx(0.4)
    assert found["perdure_model_calls_total{model=gpt-5-mini,provider=openai,verdict=ok}"] == 1
    assert found["perdure_model_calls_total{model=gpt-5-mini,provider=openai,verdict=rate_limit}"] == 1
    by_class = {"input": 100, "output": 20, "cache_read": 50, "cache_write": 8, "reasoning": 5}
    for name, tokens in by_class.items():
        assert found[f"perdure_tokens_total{{class={name},model=gpt-5-mini}}"] == tokens
    assert found["perdure_cost_usd_total{model=gpt-5-mini}"] == 0.25
    assert found["perdure_unpriced_calls_total{model=gpt-5-mini}"] == 1
    assert found["perdure_tool_calls_total{outcome=ok,tool=terminal}"] == 1
    assert found["perdure_spilled_outputs_total"] == 1
    assert found["perdure_compactions_total{outcome=compacted,reason=threshold}"] == 1
    assert found["perdure_recoveries_total{action=waited,kind=rate_limit}"] == 1


def test_hygiene_compactions_are_labelled_by_reason() -> None:
    metrics = Metrics()
    play([metrics], [CompactionStarted("hygiene", 9), CompactionFinished("failed", 9, 9, "s")])
    assert figures(metrics)["perdure_compactions_total{outcome=failed,reason=hygiene}"] == 1


def test_external_totals_are_read_at_scrape_time() -> None:
    metrics, counts = Metrics(), {"waiting": 3, "done": 0}
    metrics.gauge("queue_depth", "How much waits.", lambda: counts["waiting"])
    metrics.total("done", "Done.", lambda: counts["done"], outcome="well")
    counts["waiting"], counts["done"] = 7, 2
    found = figures(metrics)
    assert found["perdure_queue_depth"] == 7
    assert found["perdure_done_total{outcome=well}"] == 2


def test_unregistered_tool_names_get_no_time_series() -> None:
    metrics = Metrics()
    for number in range(50):
        call = ToolCall(f"c{number}", f"buy-now-at-evil-{number}", "{}")
        result = tool_result(call.id, "Error: there is no such tool", call.name)
        play([metrics], [ToolFinished(call, result, 0.1, is_error=True, state="failed", is_registered=False)])
    tools = [name for name in figures(metrics) if name.startswith("perdure_tool_calls_total")]
    assert tools == ["perdure_tool_calls_total{outcome=error,tool=other}"]


def test_label_cardinality_is_bounded() -> None:
    metrics = Metrics()
    for number in range(500):
        play([metrics], [CallFinished(f"model-{number}", USAGE, 0.0, "openai")], turn_id=f"t_{number}")
    models = {k for k in figures(metrics) if k.startswith("perdure_cost_usd_total")}
    assert len(models) <= 101
    assert "perdure_cost_usd_total{model=other}" in models


def test_rejected_requests_are_counted_by_reason() -> None:
    metrics = Metrics()
    app = make_app(FixedTokens(good=everything("alice")), observers=[metrics])
    ask(app, "/who", [("authorization", "Bearer good")])
    ask(app, "/who", [])
    ask(app, "/who", [("authorization", "Bearer bad")])
    ask(app, "/who", [("host", "evil.example")])
    ask(app, "/who", [("origin", "http://evil.example")], method="POST")
    found = figures(metrics)
    for reason in ("no_token", "invalid_token", "wrong_host", "wrong_origin"):
        assert found[f"perdure_rejected_requests_total{{reason={reason}}}"] == 1, reason
    assert found["perdure_requests_total{method=GET,route=/who,status=200}"] == 1


# -- the journal -----------------------------------------------------------------------------------------------------


def log_writer() -> tuple[LogWriter, io.StringIO]:
    stream = io.StringIO()
    return LogWriter("json", FakeClock(), stream), stream


def test_a_turn_is_one_log_line() -> None:
    log, stream = log_writer()
    play([LogObserver(log)], TURN)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["compaction", "recovery", "turn"]
    turn = lines[-1]
    assert turn["at"].startswith("2027-01-15T")
    known = {"turn": "t_1", "session": "s_1", "user": "alice", "platform": "http", "outcome": "completed"}
    assert known.items() <= turn.items()
    assert (turn["calls"], turn["tools"], turn["compactions"], turn["cost_usd"]) == (2, 1, 1, 0.25)
    assert (turn["input_tokens"], turn["cache_read_tokens"], turn["output_tokens"]) == (100, 50, 20)
    assert turn["ms"] == 1_200


def test_no_message_text_is_in_logs_metrics_or_spans() -> None:
    log, stream = log_writer()
    metrics, (provider, exporter) = Metrics(), traced()
    traces = make_span_observer(provider)
    assert traces is not None
    play([LogObserver(log), metrics, traces], (*TURN, CommandAnswered("hunter2")))
    everything_told = (
        stream.getvalue() + metrics.render().decode() + "".join(s.to_json() for s in exporter.get_finished_spans())
    )
    assert "t_1" in everything_told
    assert "hunter2" not in everything_told


def test_requests_are_logged_by_route_without_query_or_path() -> None:
    log, stream = log_writer()
    app = make_app(FixedTokens(good=everything("alice")), observers=[LogObserver(log)])
    ask(app, "/who?token=hunter2&q=hunter2", [("authorization", "Bearer good"), ("x-request-id", "proxy-1234567")])
    ask(app, "/hunter2", [("authorization", "Bearer good"), ("cookie", "hunter2"), ("x-request-id", 'hunter2"\\n')])
    ask(app, "/who", [("authorization", "Bearer hunter2")])
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert "hunter2" not in stream.getvalue()
    assert [(line["route"], line["status"]) for line in lines] == [("/who", 200), ("(none)", 404), ("(none)", 401)]
    assert lines[0]["request"] == "proxy-1234567"
    assert lines[0]["user"] == "alice"
    assert lines[2]["refused"] == "invalid_token"


def test_an_unexpected_error_is_answered_and_logged_by_type_and_location(caplog: pytest.LogCaptureFixture) -> None:
    log, stream = log_writer()
    app = make_app(FixedTokens(good=everything("alice")), observers=[LogObserver(log)])
    logger, handler = logging.getLogger("perdure"), LogWriterHandler(log)
    logger.addHandler(handler)
    try:
        answer = ask(app, "/boom", [("authorization", "Bearer good")])
    finally:
        logger.removeHandler(handler)
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
    assert answer.headers["content-security-policy"]
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert {"error": "RuntimeError", "level": "error"}.items() <= told[0].items()
    assert "auth_app.py:" in told[0]["where"]
    assert told[0]["text"].split()[1] == told[1]["request"] == answer.headers["x-request-id"]
    assert "hunter2" not in stream.getvalue() + answer.text


def test_what_libraries_log_is_redacted() -> None:
    log, stream = log_writer()
    logger = logging.Logger("some.library")
    logger.addHandler(LogWriterHandler(log))
    logger.warning(
        "called https://bob:hunter2secret@host/ with %s", "Authorization: Bearer pdr_" + "a1B2c3D4e5" * 4 + "xyz"
    )
    logger.info("nothing to see")
    line = json.loads(stream.getvalue())
    assert line["logger"] == "some.library"
    assert "hunter2secret" not in line["text"]
    assert "a1B2c3D4e5" not in line["text"]


def test_a_closed_stream_disables_the_log_only() -> None:
    stream = io.StringIO()
    log = LogWriter("json", FakeClock(), stream)
    stream.close()
    log.write("request", {})
    log.write("request", {})


def test_plain_lines_stay_lines() -> None:
    stream = io.StringIO()
    LogWriter("plain", FakeClock(), stream).write("request", {"a": "x\ny", "b": 1.23456, "c": None})
    assert stream.getvalue().count("\n") == 1
    assert 'a="x\\ny" b=1.235' in stream.getvalue()


def test_a_failing_observer_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def on_request(self, record: RequestRecord) -> None:
            raise RuntimeError("broken")

        def on_event(self, stats: TurnStats, event: GatewayEvent) -> None:
            raise RuntimeError("broken")

    metrics = Metrics()
    play([Broken(), metrics], TURN)
    assert figures(metrics)["perdure_turns_total{outcome=completed,platform=http}"] == 1
    app = make_app(FixedTokens(good=everything("alice")), observers=[Broken(), metrics])
    assert ask(app, "/who", [("authorization", "Bearer good")]).status_code == 200


def test_turns_whose_end_never_comes_are_forgotten() -> None:
    turns = TurnObserver([], FakeClock())
    for number in range(10_500):
        turns.on_event(CHAT, f"t_{number}", TurnStarted(f"t_{number}", "s"))
    assert len(turns._running) <= 10_000


# -- spans -----------------------------------------------------------------------------------------------------------


def traced() -> tuple[TracerProvider, InMemorySpanExporter]:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


def told(*events: Event) -> dict[str, ReadableSpan]:
    provider, exporter = traced()
    listener = TurnSpans(provider.get_tracer("test"))
    for event in events:
        listener.hear(event)
    return {span.name: span for span in exporter.get_finished_spans()}


def agent_events() -> list[Event]:
    return [event for event in TURN if not isinstance(event, CommandAnswered)]  # type: ignore[misc]  # TURN has none of ours


def test_a_turn_its_calls_and_its_tools_are_spans_by_the_conventions() -> None:
    found = told(*agent_events())
    turn, chat, tool = found["invoke_agent perdure"], found["chat gpt-5-mini"], found["execute_tool terminal"]
    assert (turn.kind, chat.kind, tool.kind) == (SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.INTERNAL)
    for child in (chat, tool, found["compact"]):
        assert child.parent is not None
        assert child.parent.span_id == turn.context.span_id
    assert (
        dict(turn.attributes or {}).items()
        >= {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "perdure",
            "gen_ai.conversation.id": "c_1",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-5-mini",
            "gen_ai.usage.input_tokens": 158,
            "gen_ai.usage.output_tokens": 20,
        }.items()
    )
    assert (
        dict(tool.attributes or {}).items()
        >= {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "terminal",
            "gen_ai.tool.call.id": "call_1",
            "gen_ai.tool.type": "function",
        }.items()
    )


def test_call_spans_count_cached_tokens_as_input() -> None:
    found = told(
        TurnStarted("t", "s", "c"),
        CallStarted("m", 1, 2, 3, "xai"),
        CallFinished("m", USAGE, 0.5, "xai"),
        TurnFinished("completed", ""),
    )
    assert (
        dict(found["chat m"].attributes or {}).items()
        >= {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "x_ai",
            "gen_ai.request.model": "m",
            "gen_ai.response.model": "m",
            "gen_ai.usage.input_tokens": 158,
            "gen_ai.usage.output_tokens": 20,
            "gen_ai.usage.cache_read.input_tokens": 50,
            "gen_ai.usage.cache_creation.input_tokens": 8,
            "gen_ai.usage.reasoning.output_tokens": 5,
        }.items()
    )
    assert found["chat m"].status.status_code is StatusCode.UNSET


def test_what_went_wrong_is_an_error_of_its_span() -> None:
    found = told(
        TurnStarted("t", "s"),
        CallStarted("m", 1, 2, 3, ""),
        CallFinished("m", NOT_REPORTED, None, "", "overloaded"),
        ToolStarted(CALL),
        ToolFinished(CALL, tool_result("call_1", "no", "terminal"), 0.1, is_error=True),
        TurnFinished("failed", "", error="it failed"),
    )
    for name, kind in (
        ("chat m", "overloaded"),
        ("execute_tool terminal", "tool_error"),
        ("invoke_agent perdure", "failed"),
    ):
        assert found[name].status.status_code is StatusCode.ERROR
        assert (found[name].attributes or {})["error.type"] == kind
    assert "gen_ai.usage.input_tokens" not in (found["chat m"].attributes or {})


def test_what_an_interrupt_left_open_is_closed() -> None:
    found = told(TurnStarted("t", "s"), CallStarted("m", 1, 2, 3), ToolStarted(CALL), TurnFinished("interrupted", ""))
    assert set(found) == {"invoke_agent perdure", "chat m", "execute_tool terminal"}
    assert all((span.attributes or {})["error.type"] == "interrupted" for span in found.values())


def test_turns_side_by_side_do_not_mix() -> None:
    provider, exporter = traced()
    watcher = SpanObserver(provider.get_tracer("test"))
    turns = TurnObserver([watcher], FakeClock())
    for event in TURN[:-1]:
        for turn_id in ("t_a", "t_b"):
            turns.on_event(CHAT, turn_id, event)
    for turn_id in ("t_a", "t_b"):
        turns.on_event(CHAT, turn_id, TURN[-1])
    found = exporter.get_finished_spans()
    roots = {s.context.span_id for s in found if s.parent is None}
    assert len(roots) == 2
    assert {s.parent.span_id for s in found if s.parent is not None} == roots
    assert {(s.attributes or {}).get("user.id") for s in found} == {"alice"}


@pytest.mark.parametrize(
    ("ours", "theirs"), [("openai", "openai"), ("anthropic", "anthropic"), ("bedrock", "aws.bedrock"), ("", "unknown")]
)
def test_provider_names_follow_the_conventions(ours: str, theirs: str) -> None:
    assert provider_name(ours) == theirs


# -- how it is asked -------------------------------------------------------------------------------------------------


def ask(app: Any, path: str, headers: list[tuple[str, str]], method: str = "GET") -> httpx.Response:
    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, path, headers=headers)

    return asyncio.run(run())


def test_without_the_extra_there_are_no_spans_and_nothing_is_missed() -> None:
    code = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter')):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "import perdure.core.errors, perdure.gateway.app\n"
        "from perdure.gateway.observability.telemetry import make_span_observer, open_tracer_provider\n"
        "print(type(make_span_observer()).__name__)\n"
        "with open_tracer_provider('off') as provider:\n"
        "    print(provider)\n"
        "try:\n"
        "    with open_tracer_provider('otlp'):\n"
        "        pass\n"
        "except perdure.core.errors.ConfigError as error:\n"
        "    print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # The web framework may bring the API part, which records nothing by itself.
    assert run.stdout.splitlines()[:2] == ["SpanObserver", "None"]
    assert "pip install 'perdure[telemetry]'" in run.stdout


def test_a_person_at_the_terminal_reads_of_no_refused_requests() -> None:
    stream = io.StringIO()
    log = LogWriter("plain", FakeClock(), stream, warnings_only=True)
    app = make_app(FixedTokens(good=everything("alice")), observers=[LogObserver(log)])
    assert ask(app, "/who", [("authorization", "Bearer old")]).status_code == 401
    assert stream.getvalue() == ""
    assert ask(app, "/boom", [("authorization", "Bearer good")]).status_code == 500
    assert "status=500" in stream.getvalue()
    log.write("turn", {"outcome": "failed"}, level="warning")
    assert "outcome=failed" in stream.getvalue()
