"""The gateway's own OpenAPI document, tried with whatever it allows and whatever it does not: never a 5xx."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from perdure.testing.simulator import Simulator
from support.gateway_process import obedient
from support.gateway_server import Running, running_gateway
from support.packages import package
from support.postgres import PostgresBackend
from support.postgres import server_ends_with_the_run as server_ends_with_the_run
from support.store import BACKENDS

schemathesis = package("schemathesis")
MODES = ("positive", "negative")
# Of each operation, in the suite and in the long run.
EXAMPLES, MANY_EXAMPLES = 5, 300


@pytest.fixture(scope="module", params=BACKENDS)
def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("fuzz")
    # On PostgreSQL many a text that SQLite takes is refused; neither may be a surprise.
    database = PostgresBackend(folder, is_new=True).url if request.param == "postgresql" else None
    users: dict[str, Any] = {"alice": ("chat", "read", "admin")}
    with (
        Simulator(script=obedient) as sim,
        running_gateway(folder, sim, users=users, gateway={"question_timeout_s": 1}, database=database) as running,
    ):
        for text in ("say hello", "say more", "/title fuzz"):
            told = requests.post(
                f"{running.url}/api/messages?wait=true",
                json={"content": text},
                headers=running.headers("alice"),
                timeout=30,
            )
            assert told.status_code == 200
        yield running


def _operations(document: dict[str, Any]) -> list[Any]:
    return [found.ok() for found in schemathesis.openapi.from_dict(document).get_all_operations()]


@cache
def _cases(document: str, mode: str, examples: int) -> list[tuple[Any, dict[str, Any], bool]]:
    """Requests, their path parameters, and whether these name what exists. Making them takes longer than sending them,
    so that both databases get the same."""
    made: list[tuple[Any, dict[str, Any], bool]] = []
    for operation in _operations(json.loads(document)):

        @seed(7)
        @settings(
            max_examples=examples,
            deadline=None,
            derandomize=False,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)), is_known=st.booleans())
        def collect(case: Any, is_known: bool) -> None:
            made.append((case, dict(case.path_parameters or {}), is_known))

        # What takes nothing cannot be given anything wrong.
        with suppress(Unsatisfiable):
            collect()
    return made


def _known(gateway: Running) -> dict[str, str]:
    """Ids that exist, so that not every path ends at "not found"."""
    conversation = gateway.store.conversations.list().conversations[0]
    return {"any_id": conversation.id, "chat": "main", "model": "perdure", "seq": "1"}


def _try(gateway: Running, case: Any, session: requests.Session) -> int:
    """The status of a call; of an answer that goes on, only its beginning is waited for."""
    asked = case.as_transport_kwargs(base_url=gateway.url)
    # A connection kept for later may be closed by the server just as it is used again, which would tell nothing.
    asked["headers"] = {**dict(asked.get("headers") or {}), **gateway.headers("alice"), "connection": "close"}
    try:
        with session.request(**asked, stream=True, timeout=20) as answer:
            for _ in answer.iter_content(4_096):
                break
            return answer.status_code
    except (requests.exceptions.InvalidHeader, UnicodeError):
        return 0  # what no client can send


@pytest.mark.parametrize("mode", MODES)
def test_fuzzed_requests_never_cause_a_server_error(mode: str, gateway: Running) -> None:
    _fuzz(gateway, mode, EXAMPLES)


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
def test_fuzzed_requests_never_cause_a_server_error_in_many_runs(mode: str, gateway: Running) -> None:
    _fuzz(gateway, mode, MANY_EXAMPLES)


def _fuzz(gateway: Running, mode: str, examples: int) -> None:
    session, tried = requests.Session(), 0
    session.trust_env = False
    known = _known(gateway)
    for case, parameters, is_known in _cases(json.dumps(gateway.app.openapi()), mode, examples):
        if parameters:
            case.path_parameters = {k: known.get(k, v) if is_known else v for k, v in parameters.items()}
        status = _try(gateway, case, session)
        tried += status > 0
        assert status < 500, f"{case.as_curl_command()} → {status}"
    assert tried > 15 * examples
    assert '"status": 5' not in gateway.log.getvalue()


def test_every_operation_is_described(gateway: Running) -> None:
    found = _operations(gateway.app.openapi())
    assert len(found) > 20
    for operation in found:
        assert "4XX" in operation.definition.raw["responses"], operation.label
    document = gateway.app.openapi()
    assert "HTTPValidationError" not in json.dumps(document)
    assert document["paths"]["/healthz"]["get"]["security"] == []
    assert document["paths"]["/api/messages"]["post"]["security"] == [{"token": []}]
    for public in ("/healthz", "/readyz"):
        assert "No token required" in document["paths"][public]["get"]["responses"]["4XX"]["description"]
    told = requests.get(f"{gateway.url}/openapi.json", headers=gateway.headers("alice"), timeout=20)
    assert told.json() == document
