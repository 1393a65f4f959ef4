"""Names that applications, plug-ins and scripts rely on stay: signatures, methods, commands and deprecated aliases."""

from __future__ import annotations

import importlib
import inspect

import pytest
from click.testing import CliRunner

import perdure
from perdure.cli.main import cli
from perdure.core.errors import ErrorVerdict
from perdure.store.store import SessionStore

SIGNATURES = {
    "Agent": "model provider base_url api_key api_mode client settings store session_id tools callbacks system_prompt",
    "Agent.chat": "text",
    "Agent.achat": "text",
    "Agent.stream": "text",
    "Agent.run_conversation": "user_message system_message conversation_history task_id",
    "Agent.arun_conversation": "user_message system_message conversation_history task_id",
    "Agent.interrupt": "",
    "Agent.compress": "focus_topic",
    "compress": "messages context_length summarize focus_topic settings handoff_max_chars",
    "normalize_usage": "raw api_mode",
    "classify_error": "status body headers request_tokens",
    "estimate_tokens": "messages system tools model",
    "apply_cache_control": "messages ttl native_anthropic",
    "open_store": "",
    "register_context_engine": "",
    "ContextEngine.compress": "messages",
    "ContextCompressor.compress": "messages",
}
COMMANDS = (
    ["chat", "sessions", "usage", "insights", "config", "plugins", "models", "doctor", "serve", "gateway", "simulate"],
    ["sessions", "list", "show", "search", "export", "import", "delete", "scrub", "backup"],
    ["config", "get", "set", "path", "edit"],
    ["plugins", "list", "use"],
    ["models", "list", "install"],
)
# Former modules and the names in them that documentation showed, for one release.
ALIASES = {
    "perdure.lab.simulator": ("Simulator", "Say", "Call", "Asked", "Violation"),
    "perdure.lab.simulator.fixture": (),
    "perdure.agent.spans": ("TurnSpans",),
    "perdure.tools.plugins": ("register_tool_plugin",),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_public_signature_keeps_its_parameters(name: str) -> None:
    target: object = perdure
    for part in name.split("."):
        target = getattr(target, part)
    assert callable(target)
    assert set(SIGNATURES[name].split()) <= set(inspect.signature(target).parameters)


def test_results_and_stores_keep_their_attributes() -> None:
    messages = [{"role": ("user", "assistant")[n % 2], "content": f"line {n} " * 50} for n in range(60)]
    report = perdure.compress(messages, context_length=2_000)
    assert report.outcome in ("compacted", "digest", "nothing_to_do", "failed")
    assert (len(report.messages) > 0, bool(report.handoff)) == (True, True)
    assert report.after_tokens < report.before_tokens
    for name in ("append", "history", "get_compression_tip", "search", "create", "open", "compact", "undo"):
        assert callable(getattr(SessionStore, name)), name
    assert {"kind", "context_limit", "output_limit", "retry_after_s"} <= set(ErrorVerdict.__dataclass_fields__)
    assert isinstance(perdure.Agent.gauge, property)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_command_is_in_the_help(words: list[str]) -> None:
    group = [] if words[0] == "chat" else words[:1]
    text = CliRunner().invoke(cli, [*group, "--help"]).output
    names = words[len(group) :]
    assert [name for name in names if f"\n  {name}" not in text] == []


@pytest.mark.parametrize("module", ALIASES)
def test_a_former_module_is_an_alias_for_one_release(module: str) -> None:
    loaded = importlib.import_module(module)
    assert "eprecated alias" in (loaded.__doc__ or "")
    assert [name for name in ALIASES[module] if not hasattr(loaded, name)] == []
