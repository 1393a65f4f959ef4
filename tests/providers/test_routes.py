from __future__ import annotations

import asyncio
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from perdure.config.settings import Settings
from perdure.core.errors import ConfigError, ErrorVerdict, ProviderError
from perdure.core.messages import Entry, assistant, user
from perdure.core.usage import NOT_REPORTED, CanonicalUsage
from perdure.providers.credentials import Credentials
from perdure.providers.registry import PROVIDERS, address_of, find_provider, find_provider_by_url, missing_key
from perdure.providers.routes import (
    AuxiliaryCaller,
    EndpointChain,
    RouteCursor,
    Summarizer,
    TaskUsage,
    adapt_request,
    auxiliary_chain,
    endpoint_for,
    main_route,
)
from perdure.providers.transport import Transport
from perdure.providers.types import Endpoint, ModelRequest, Reply

KEYS = {"ANTHROPIC_API_KEY": "ka", "OPENAI_API_KEY": "ko", "OPENROUTER_API_KEY": "kr"}
MAIN = Endpoint("anthropic", "https://api.anthropic.com", "anthropic_messages", "claude-sonnet-5-5", "ka")


def settings(**sections: Any) -> Settings:
    return Settings.model_validate(sections)


def no_key(_: str) -> None:
    return None


def verdict(kind: Any) -> ErrorVerdict:
    return ErrorVerdict(kind, "x")


@pytest.mark.spec("J3")
def test_settings_and_keys_become_the_main_endpoint() -> None:
    route = main_route(settings(model={"provider": "anthropic", "name": "claude-opus-5"}), lookup=KEYS.get)
    assert route is not None
    assert route.main == Endpoint("anthropic", "https://api.anthropic.com", "anthropic_messages", "claude-opus-5", "ka")
    route = main_route(settings(model={"base_url": "http://127.0.0.1:8000/v1/", "name": "m"}), lookup=KEYS.get)
    assert route is not None
    assert route.main == Endpoint("custom", "http://127.0.0.1:8000/v1", "chat_completions", "m", None)
    route = main_route(settings(model={"base_url": "https://api.anthropic.com"}), lookup=KEYS.get, api_key="mine")
    assert route is not None
    assert (route.main.provider, route.main.api_key, route.main.model) == ("anthropic", "mine", "claude-sonnet-5-5")
    route = main_route(settings(model={"provider": "openai"}), lookup=KEYS.get, api_mode="codex_responses")
    assert route is not None
    assert route.main.api_mode == "codex_responses"


def test_without_a_provider_the_first_key_found_decides_and_without_a_key_nothing_does() -> None:
    route = main_route(settings(), lookup={"OPENROUTER_API_KEY": "kr"}.get)
    assert route is not None
    assert (route.main.provider, route.main.api_key) == ("openrouter", "kr")
    assert main_route(settings(), lookup=no_key) is None


@pytest.mark.parametrize(
    ("provider", "fields", "says"),
    [
        ("acme", {}, "not known and has no base_url; known: anthropic"),
        ("custom", {"model": "m"}, "set model.base_url"),
        ("vllm", {}, "set model.name"),
    ],
)
def test_what_cannot_be_called_is_said_with_what_to_set(provider: str, fields: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        endpoint_for(provider, lookup=no_key, **fields)


def test_a_missing_key_is_said_with_where_to_put_it() -> None:
    line = missing_key(endpoint_for("anthropic", lookup=no_key))
    assert line is not None
    assert "ANTHROPIC_API_KEY" in line
    assert missing_key(endpoint_for("anthropic", lookup=KEYS.get)) is None
    assert missing_key(endpoint_for("ollama", model="m", lookup=no_key)) is None


@pytest.mark.parametrize(
    ("model", "keys", "provider"),
    [
        ("claude-sonnet-4-5", ["OPENAI_API_KEY", "ANTHROPIC_API_KEY"], "anthropic"),
        ("gpt-5.5", ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"], "openai"),
        ("o3-mini", ["OPENAI_API_KEY"], "openai"),
        ("gpt-4o", ["COPILOT_API_TOKEN"], "copilot"),
        # Nobody else serves it: the missing key is named instead of sending it to OpenAI.
        ("claude-sonnet-4-5", ["OPENAI_API_KEY"], "anthropic"),
        ("gemini-3.1-pro-preview", [], "gemini"),
        ("gpt-4o", [], "openai"),
        # Open weights are served by many.
        ("deepseek-r1-distill-llama-70b", ["GROQ_API_KEY"], "groq"),
        ("deepseek-chat", ["OPENAI_API_KEY", "DEEPSEEK_API_KEY"], "deepseek"),
        ("anthropic/claude-opus-5", ["OPENROUTER_API_KEY"], "openrouter"),
        ("gpt-oss-120b", ["GROQ_API_KEY"], "groq"),
    ],
)
def test_the_provider_follows_from_the_name_of_the_model(model: str, keys: list[str], provider: str) -> None:
    route = main_route(settings(model={"name": model}), lookup=dict.fromkeys(keys, "k").get)
    assert route is not None
    assert (route.main.provider, route.main.model) == (provider, model)


def test_an_unknown_name_without_a_key_is_left_to_the_embedded_model() -> None:
    assert main_route(settings(model={"name": "models/tiny.gguf"}), lookup=no_key) is None


def test_a_call_without_its_key_is_refused_before_anything_is_sent() -> None:
    endpoint = endpoint_for("anthropic", model="claude-opus-5", lookup=no_key)
    request = ModelRequest("claude-opus-5", [Entry(1, user("hello"))])
    with pytest.raises(ProviderError, match="set ANTHROPIC_API_KEY") as raised:
        asyncio.run(Transport().send(endpoint, request))
    assert raised.value.verdict.kind == "auth"
    assert not raised.value.may_be_billed


@pytest.mark.spec("J10")
@pytest.mark.parametrize("kind", ["rate_limit", "overloaded", "auth", "quota", "transport"])
def test_fallbacks_are_tried_in_order_and_the_conversation_stays_there(kind: str) -> None:
    chosen = settings(
        model={"provider": "anthropic", "name": "claude-opus-5"},
        fallback_providers=["openrouter/anthropic/claude-opus-5", {"provider": "openai", "model": "gpt-5.5"}],
    )
    route = main_route(chosen, lookup=KEYS.get)
    assert route is not None
    cursor = RouteCursor(route)

    async def walk() -> None:
        first = await cursor.advance(verdict(kind))
        assert first is not None
        assert (first.provider, first.model, first.api_key) == ("openrouter", "anthropic/claude-opus-5", "kr")
        assert cursor.endpoint is first
        second = await cursor.advance(verdict(kind))
        assert second is not None
        assert (second.provider, second.model) == ("openai", "gpt-5.5")
        assert await cursor.advance(verdict(kind)) is None
        assert cursor.endpoint is second

    asyncio.run(walk())
    cursor.restart()
    assert cursor.endpoint == route.main


@pytest.mark.spec("J10")
@pytest.mark.parametrize("kind", ["prompt_too_long", "output_cap", "bad_request", "unknown"])
def test_what_another_endpoint_would_not_mend_stays_where_it_is(kind: str) -> None:
    cursor = RouteCursor(EndpointChain((MAIN, MAIN)))
    assert asyncio.run(cursor.advance(verdict(kind))) is None


def counting(tmp_path: Path, printed: str) -> tuple[str, Path]:
    """A command that prints a key and leaves a line behind each time it runs."""
    log = tmp_path / "runs"
    return f"echo run >> {shlex.quote(str(log))}; {printed}", log


@pytest.mark.spec("J10", "J15")
def test_a_refused_key_is_refreshed_once_before_the_next_endpoint_is_tried(tmp_path: Path) -> None:
    command, log = counting(tmp_path, 'echo noise; echo "fresh-$1"')

    async def walk() -> None:
        cursor = RouteCursor(EndpointChain((MAIN, endpoint_for("openai", lookup=KEYS.get))), Credentials(command))
        same = await cursor.advance(verdict("auth"))
        assert same is not None
        assert (same.provider, same.api_key) == ("anthropic", "fresh-anthropic")
        moved = await cursor.advance(verdict("auth"))
        assert moved is not None
        assert moved.provider == "openai"

    asyncio.run(walk())
    assert log.read_text().count("run") == 1


@pytest.mark.parametrize(
    ("command", "says"),
    [("exit 3", "exit 3"), ("echo oops >&2; exit 1", "oops"), ("true", "printed nothing"), ("sleep 9", "within 0.2 s")],
)
def test_a_command_that_gives_no_key_is_said_and_the_refusal_stands(command: str, says: str) -> None:
    async def run() -> None:
        credentials = Credentials(command, timeout_s=0.2 if "sleep" in command else 10)
        with pytest.raises(ConfigError, match=says):
            await credentials.fetch("anthropic")
        assert await credentials.refresh(MAIN) is None

    started = time.monotonic()
    asyncio.run(run())
    assert time.monotonic() - started < 5, "a command that hangs must not hang the turn"


def test_callers_that_want_a_key_at_once_share_one_run(tmp_path: Path) -> None:
    command, log = counting(tmp_path, f"{shlex.quote(sys.executable)} -c 'print(\"k\")'")

    async def run() -> list[str | None]:
        credentials = Credentials(command)
        return await asyncio.gather(*(credentials.fetch("openai") for _ in range(5)))

    assert asyncio.run(run()) == ["k"] * 5
    assert log.read_text().count("run") == 1
    assert asyncio.run(Credentials(None).fetch("openai")) is None


@pytest.mark.spec("L1", "L5")
def test_a_request_is_aimed_at_its_endpoint() -> None:
    request = ModelRequest("", [Entry(0, user("hi"))])
    shot = adapt_request(request, MAIN, cache_ttl="1h")
    assert (shot.model, shot.cache_ttl) == ("claude-sonnet-5-5", "1h")
    other = adapt_request(request, endpoint_for("openai", lookup=KEYS.get))
    assert (other.cache_ttl, other.quirks.max_tokens_key) == (None, "max_completion_tokens")


@pytest.mark.spec("J10")
@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ({}, [("anthropic", "claude-haiku-5-5"), ("anthropic", "claude-sonnet-5-5")]),
        ({"provider": "main"}, [("anthropic", "claude-sonnet-5-5")]),
        ({"model": "claude-opus-5"}, [("anthropic", "claude-opus-5"), ("anthropic", "claude-sonnet-5-5")]),
        ({"provider": "openai"}, [("openai", "gpt-5.4-mini"), ("anthropic", "claude-sonnet-5-5")]),
        (
            {"provider": "openai", "model": "gpt-5.5", "fallback": ["openrouter/x/y"]},
            [("openai", "gpt-5.5"), ("openrouter", "x/y"), ("anthropic", "claude-sonnet-5-5")],
        ),
        (
            {"base_url": "http://127.0.0.1:8000/v1", "model": "q"},
            [("custom", "q"), ("anthropic", "claude-sonnet-5-5")],
        ),
    ],
)
def test_a_side_jobs_chain_ends_with_the_main_endpoint(task: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    chain = auxiliary_chain("compression", settings(auxiliary={"compression": task}), MAIN, lookup=KEYS.get)
    assert [(e.provider, e.model) for e in chain] == expected


def test_auto_does_not_send_a_services_small_model_to_another_address() -> None:
    proxy = Endpoint("anthropic", "https://proxy.example", "anthropic_messages", "claude-opus-5", "k")
    assert auxiliary_chain("vision", settings(), proxy, lookup=KEYS.get) == (proxy,)


class Service:
    """A scripted send: fails for the models it is told to, answers for the rest."""

    def __init__(self, **failures: ProviderError) -> None:
        self.failures = failures
        self.asked: list[tuple[str, str | None]] = []

    async def __call__(self, endpoint: Endpoint, request: ModelRequest) -> Reply:
        assert request.cache_ttl is None, "what is sent once is not worth writing to a cache"
        self.asked.append((request.model, endpoint.api_key))
        failure = self.failures.get(f"{endpoint.provider}_{endpoint.api_key}") or self.failures.get(endpoint.provider)
        if failure is not None:
            raise failure
        return Reply(assistant("short"), CanonicalUsage(5, 2), "stop", model=request.model)


def caller(send: Service, seen: list[TaskUsage], **kwargs: Any) -> AuxiliaryCaller:
    small = endpoint_for("openai", model="mini", lookup=KEYS.get)
    return AuxiliaryCaller(send, lambda _: (small, MAIN), record=seen.append, **kwargs)


@pytest.mark.spec("A4", "J10")
def test_a_side_job_falls_down_its_chain_and_its_usage_is_told_by_task() -> None:
    seen: list[TaskUsage] = []
    send = Service(openai=ProviderError(verdict("bad_request")))
    reply, endpoint = asyncio.run(caller(send, seen).call("web_extract", ModelRequest("", [Entry(0, user("hi"))])))
    assert (reply.message.text, endpoint.provider) == ("short", "anthropic")
    assert [(u.task, u.endpoint.model, u.usage.total_tokens) for u in seen] == [("web_extract", "claude-sonnet-5-5", 7)]
    assert send.asked == [("mini", "ko"), ("claude-sonnet-5-5", "ka")]


@pytest.mark.spec("A4")
def test_a_side_call_that_broke_off_in_its_answer_is_told_as_unreported() -> None:
    seen: list[TaskUsage] = []
    send = Service(openai=ProviderError(verdict("transport"), partial_text="half"))
    asyncio.run(caller(send, seen).call("compression", ModelRequest("", [Entry(0, user("hi"))])))
    assert [u.usage for u in seen] == [NOT_REPORTED, CanonicalUsage(5, 2)]


@pytest.mark.spec("A4")
def test_a_side_call_that_is_interrupted_is_told_as_unreported() -> None:
    seen: list[TaskUsage] = []

    async def never(endpoint: Endpoint, request: ModelRequest) -> Reply:
        await asyncio.sleep(3600)
        raise AssertionError("it was to be interrupted")

    async def run() -> None:
        side = AuxiliaryCaller(never, lambda _: (MAIN,), record=seen.append)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(side.call("vision", ModelRequest("", [Entry(0, user("hi"))])), 0.05)

    asyncio.run(run())
    assert [(u.task, u.usage) for u in seen] == [("vision", NOT_REPORTED)]


@pytest.mark.spec("J10")
def test_a_side_job_refreshes_a_refused_key_and_fails_with_the_last_error() -> None:
    seen: list[TaskUsage] = []
    send = Service(openai_ko=ProviderError(verdict("auth")))
    asyncio.run(
        caller(send, seen, credentials=Credentials("echo new")).call("vision", ModelRequest("", [Entry(0, user("hi"))]))
    )
    assert send.asked == [("mini", "ko"), ("mini", "new")]
    send = Service(openai=ProviderError(verdict("overloaded")), anthropic=ProviderError(verdict("quota")))
    with pytest.raises(ProviderError) as caught:
        asyncio.run(caller(send, seen).call("vision", ModelRequest("", [Entry(0, user("hi"))])))
    assert caught.value.verdict.kind == "quota"


def test_the_summariser_is_a_side_call_with_its_cost() -> None:
    seen: list[TaskUsage] = []
    side = caller(Service(), seen)
    summarize = Summarizer(side, run=lambda work: work, price=lambda usage, _: usage.total_tokens / 100)
    summary = asyncio.run(summarize("sum this up", max_tokens=50))
    assert (summary.text, summary.model, summary.cost_usd) == ("short", "mini", 0.07)
    assert seen[0].task == "compression"


@pytest.mark.spec("J3")
def test_nous_is_a_provider_by_name_and_by_address() -> None:
    where = endpoint_for("nous", model="Hermes-4-405B", lookup={"NOUS_API_KEY": "n-1"}.get)
    assert (where.base_url, where.api_mode) == ("https://inference-api.nousresearch.com/v1", "chat_completions")
    assert where.api_key == "n-1"
    assert (known := find_provider_by_url(where.base_url)) is not None
    assert known.name == "nous"


PROXY = "http://127.0.0.1:8477/v1"


@pytest.mark.parametrize("row", [row for row in PROVIDERS if row.address_variables], ids=lambda row: row.name)
def test_the_address_variable_of_a_providers_client_is_where_its_key_goes(row: Any) -> None:
    for variable in row.address_variables:
        found = {**KEYS, **dict.fromkeys(row.key_variables, "k"), variable.name: "http://proxy.test:8477"}
        endpoint = endpoint_for(row.name, model="m", lookup=found.get)
        assert endpoint.base_url == f"http://proxy.test:8477{variable.path}"
        assert endpoint.address_name == f"the variable {variable.name}"
        assert endpoint.api_key == ("k" if row.needs_key else None)
        ending_in_it = {**found, variable.name: f"http://proxy.test:8477/x{variable.path}/"}
        assert endpoint_for(row.name, model="m", lookup=ending_in_it.get).base_url.endswith(f"8477/x{variable.path}")


def test_a_configured_address_goes_before_the_variable_of_the_client() -> None:
    found = {**KEYS, "OPENAI_BASE_URL": PROXY}
    configured = main_route(settings(model={"provider": "openai", "base_url": "http://c.test/v1"}), lookup=found.get)
    assert configured is not None
    assert configured.main.base_url == "http://c.test/v1"
    assert configured.main.address_name == "`model.base_url`"
    by_variable = main_route(settings(model={"provider": "openai"}), lookup=found.get)
    assert by_variable is not None
    assert (by_variable.main.base_url, by_variable.main.api_key) == (PROXY, "ko")
    own = main_route(settings(model={"provider": "openai"}), lookup=KEYS.get)
    assert own is not None
    assert (own.main.base_url, own.main.address_name) == ("https://api.openai.com/v1", "the address")


def test_the_variable_of_one_client_redirects_no_other_providers_key() -> None:
    found = {**KEYS, "OPENAI_BASE_URL": PROXY, "OLLAMA_HOST": "gpu.test"}
    assert endpoint_for("anthropic", lookup=found.get).base_url == "https://api.anthropic.com"
    assert endpoint_for("openrouter", lookup=found.get).base_url == "https://openrouter.ai/api/v1"


def test_fallbacks_and_side_jobs_follow_the_variable_too() -> None:
    found = {**KEYS, "OPENAI_BASE_URL": PROXY}
    chosen = settings(
        model={"provider": "anthropic"},
        fallback_providers=["openai/gpt-5.5"],
        auxiliary={"compression": {"provider": "openai"}},
    )
    route = main_route(chosen, lookup=found.get)
    assert route is not None
    assert [e.base_url for e in route.endpoints] == ["https://api.anthropic.com", PROXY]
    assert auxiliary_chain("compression", chosen, route.main, lookup=found.get)[0].base_url == PROXY


def test_the_small_model_of_a_service_is_not_asked_of_the_proxy_in_the_variable() -> None:
    found = {**KEYS, "OPENAI_BASE_URL": PROXY}
    main = endpoint_for("openai", model="mine", lookup=found.get)
    assert [e.model for e in auxiliary_chain("compression", settings(), main, lookup=found.get)] == ["mine"]


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("gpu.test", "http://gpu.test:11434/v1"),
        ("gpu.test:80", "http://gpu.test:80/v1"),
        ("https://gpu.test/", "https://gpu.test/v1"),
        ("http://[::]:9000", "http://127.0.0.1:9000/v1"),
    ],
)
def test_the_host_of_ollama_is_read_as_its_own_client_reads_it(value: str, address: str) -> None:
    row = find_provider("ollama")
    assert row is not None
    assert address_of(row, {"OLLAMA_HOST": value}.get) == (address, "OLLAMA_HOST")


@pytest.mark.parametrize("value", ["proxy.test/v1", "ftp://proxy.test", "http://", "http://[::1", "http://h:port"])
def test_a_variable_without_an_address_is_an_error_instead_of_the_vendors_address(value: str) -> None:
    with pytest.raises(ConfigError, match="the variable OPENAI_BASE_URL is no address"):
        endpoint_for("openai", lookup={**KEYS, "OPENAI_BASE_URL": value}.get)
