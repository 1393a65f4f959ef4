"""Programs that speak OpenAI's API, as installed from their registries, against a real gateway.

`make clients` installs them, apart from Perdure and from each other, and runs these tests. Each program of `programs/`
gets its requests on stdin and prints what it got. Every client is a user of its own, so that its conversations can be
counted: a client whose history is not matched leaves a conversation for every request.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure.gateway.auth.principal import Scope
from perdure.testing.simulator import Simulator
from support.gateway_process import GatewayProcess, gateway_process
from support.packages import package
from support.planned_model import WEATHER, plan, planned

anthropic = package("anthropic")

HERE = Path(__file__).parent
INSTALLED = Path(os.environ.get("PERDURE_CLIENTS", HERE.parents[1] / ".clients"))
NODE = INSTALLED / "node"
TIMEOUT_S = 280
ADA = {"name": "Ada", "age": 36}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
ROME = ["get_weather", {"city": "Rome"}]
REQUESTS = {
    "tool": WEATHER,
    "tool_plan": plan({"say": "A moment.", "calls": [ROME]}, "It is sunny."),
    "quiet_tool_plan": plan({"calls": [ROME]}, "It is sunny."),
    "person": PERSON,
    "person_plan": plan(json.dumps(ADA)),
    "person_call": plan({"calls": [["Person", ADA]]}),
    "person_result": plan({"calls": [["final_result", ADA]]}),
    "codex_plan": plan({"say": "I run it.", "calls": [["exec_command", {"cmd": "echo by codex > made.txt"}]]}, "Done."),
    "open_webui_plan": plan({"say": "Let me see.", "calls": [["get_current_timestamp", {}]]}, "It is late."),
    "aider_plan": plan('hello.py\n```\ndef greet():\n    return "hello"\n```\n'),
}
CLIENTS = (
    "openai",
    "openai-js",
    "ai-sdk",
    "litellm",
    "langchain",
    "pydantic-ai",
    "llm",
    "codex",
    "aider",
    "open-webui",
)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    scopes: tuple[Scope, ...] = ("chat", "read")
    settings = {"gateway.requests_per_minute": "null"}
    with (
        Simulator(script=planned) as sim,
        gateway_process(
            tmp_path_factory.mktemp("clients"), sim, users=dict.fromkeys(CLIENTS, scopes), settings=settings
        ) as running,
    ):
        yield running


def python_of(folder: str, package: str) -> list[str]:
    """The interpreter of an environment that has the package; skips where there is none."""
    python = INSTALLED / folder / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{package} is not installed: make clients")
    check = [str(python), "-c", f"import importlib.metadata as m; m.version({package!r})"]
    if subprocess.run(check, capture_output=True).returncode:
        pytest.skip(f"{package} is not installed: make clients")
    return [str(python)]


def run(gateway: GatewayProcess, user: str, program: list[str], **environment: str) -> dict[str, Any]:
    """What a program printed last."""
    shared = {"PERDURE_URL": f"{gateway.url}/v1", "PERDURE_KEY": gateway.tokens[user], "NO_PROXY": "127.0.0.1"}
    done = subprocess.run(
        program,
        input=json.dumps(REQUESTS),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        cwd=NODE if program[0] == "node" else None,
        env={**os.environ, **shared, "LITELLM_LOCAL_MODEL_COST_MAP": "True", **environment},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    printed: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return printed


def run_python(gateway: GatewayProcess, user: str, package: str, *, folder: str = "python") -> dict[str, Any]:
    program = HERE / "programs" / f"{user.replace('-', '_')}_client.py"
    return run(gateway, user, [*python_of(folder, package), str(program)])


def run_node(gateway: GatewayProcess, user: str, package: str) -> dict[str, Any]:
    if shutil.which("node") is None or not (NODE / "node_modules" / package).exists():
        pytest.skip(f"{package} is not installed: make clients")
    # Evaluated in the folder of its packages: imports are looked up from there.
    code = (HERE / "programs" / f"{user.replace('-', '_')}_client.mjs").read_text()
    return run(gateway, user, ["node", "--input-type=module", "--eval", code])


def conversations(gateway: GatewayProcess, user: str) -> list[Mapping[str, Any]]:
    page = httpx.get(
        f"{gateway.url}/api/page/conversations", headers=gateway.headers(user), params={"limit": 50}, trust_env=False
    ).json()
    found: list[Mapping[str, Any]] = page["conversations"]
    return found


def test_openai_python(gateway: GatewayProcess) -> None:
    assert run_python(gateway, "openai", "openai") == {
        "arguments": ["Rome"],
        "tools": "It is sunny.",
        "person": ADA,
        "response": ADA,
        "embeddings": "unsupported_endpoint",
    }
    assert len(conversations(gateway, "openai")) == 3


def test_openai_javascript(gateway: GatewayProcess) -> None:
    assert run_node(gateway, "openai-js", "openai") == {
        "tools": "It is sunny.",
        "streamed": ["get_weather"],
        "usage": True,
        "person": ADA,
        "responses": "It is sunny.",
    }
    assert len(conversations(gateway, "openai-js")) == 4


def test_vercel_ai_sdk(gateway: GatewayProcess) -> None:
    expected = {
        "tools": "It is sunny.",
        "steps": 2,
        "streamed": "A moment.It is sunny.",
        "usage": True,
        "person": ADA,
    }
    assert run_node(gateway, "ai-sdk", "ai") == {"compatible": expected, "responses": expected}
    assert len(conversations(gateway, "ai-sdk")) == 6


def test_litellm(gateway: GatewayProcess) -> None:
    assert run_python(gateway, "litellm", "litellm") == {
        "finish_reason": "tool_calls",
        "tool_answer": "It is sunny.",
        "streamed_calls": ["get_weather"],
        "person": ADA,
    }
    assert len(conversations(gateway, "litellm")) == 3


def test_langchain(gateway: GatewayProcess) -> None:
    printed = run_python(gateway, "langchain", "langchain-openai")
    for api in ("chat", "responses"):
        assert printed[f"{api}_calls"] == ["get_weather"]
        assert printed[f"{api}_answer"] == "It is sunny."
        assert printed[f"{api}_streamed"] == [{"city": "Rome"}]
    for method in ("json_schema", "json_mode", "function_calling"):
        assert printed[method] == ADA
    assert len(conversations(gateway, "langchain")) == 7


def test_pydantic_ai(gateway: GatewayProcess) -> None:
    printed = run_python(gateway, "pydantic-ai", "pydantic-ai-slim")
    for api in ("chat", "responses"):
        assert printed[api] == {
            "tools": "It is sunny.",
            "history": "heard: and then?",
            "stream": "It is sunny.",
            "ToolOutput": ADA,
            "NativeOutput": ADA,
            "PromptedOutput": ADA,
        }
    assert len(conversations(gateway, "pydantic-ai")) == 10


def test_llm(gateway: GatewayProcess) -> None:
    assert run_python(gateway, "llm", "llm") == {
        "plain": "heard: hello",
        "continued": "heard: and then?",
        "person": ADA,
        "tools": "A moment. It is sunny.",
        "tools_unstreamed": "A moment. It is sunny.",
    }
    assert len(conversations(gateway, "llm")) == 4


def test_codex(gateway: GatewayProcess) -> None:
    codex = NODE / "node_modules" / ".bin" / "codex"
    if not codex.exists():
        pytest.skip("@openai/codex is not installed: make clients")
    program = [*python_of("python", "openai"), str(HERE / "programs" / "codex_client.py")]
    assert run(gateway, "codex", program, CODEX=str(codex)) == {"answer": "Done.", "file": "by codex"}
    assert len(conversations(gateway, "codex")) == 1


def test_aider(gateway: GatewayProcess) -> None:
    printed = run_python(gateway, "aider", "aider-chat", folder="aider")
    assert printed["file"] == 'def greet():\n    return "hello"\n', printed["log"]


def test_open_webui(gateway: GatewayProcess) -> None:
    printed = run_python(gateway, "open-webui", "open-webui", folder="open-webui")
    assert printed["models"] == ["perdure"]
    assert printed["tools"].split("\n") == ["Let me see.", "It is late."]
    assert printed["again"] == "heard: and then?"
    assert len(conversations(gateway, "open-webui")) == 1


def test_anthropic_is_refused_by_name(gateway: GatewayProcess) -> None:
    key = gateway.tokens["openai"]
    with (
        anthropic.Anthropic(base_url=gateway.url, auth_token=key, max_retries=0) as client,
        pytest.raises(anthropic.NotFoundError) as refused,
    ):
        client.messages.create(model="perdure", max_tokens=9, messages=[{"role": "user", "content": "hi"}])
    assert "POST /v1/messages is not available; the agent has POST /v1/chat/completions" in str(refused.value)
