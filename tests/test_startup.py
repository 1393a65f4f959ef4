"""Starting is quick because nothing heavy is imported before it is needed; what is imported is the robust measure."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = (
    "pydantic", "httpx", "genai_prices", "rich", "ruamel", "prompt_toolkit", "sqlite3", "psycopg", "asyncio",
    "tree_sitter", "tree_sitter_bash",
)  # fmt: skip

# A machine may be slow, so the bars have room here; the figures themselves are held in `make bench`.
ROOM = 1.5

IMPORT = "import perdure"
AGENT_CLASS = "import perdure; perdure.Agent"
AGENT_MADE = """
import pathlib, perdure
perdure.Agent(model="m", base_url="http://127.0.0.1:9/v1", api_key="any", home=pathlib.Path.home()).close()
"""
# What only some conversations need; their patterns and parsers are slow to import.
RARELY_NEEDED = (
    "perdure.providers.errors.classify",
    "perdure.tools.builtin.html",
    "perdure.tools.shell_safety.analyzer",
    "perdure.context.handoff_writer",
    "perdure.context.record.record",
    "perdure.context.user_text.intent",
)
CHAT_OPENED = """
from perdure.cli.chat.command_context import ChatCommandContext
from perdure.cli.chat.controller import ChatController
surface = ChatCommandContext({"model.base_url": "http://127.0.0.1:9/v1", "model.name": "m"})
controller = ChatController(surface, print)
controller.transcript(print, lambda: 80, controller.ink)
assert controller.status()
controller.close()
"""
HELP = """
import contextlib, io
from perdure.cli.main import cli
with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
    cli(["--help"], prog_name="perdure")
assert "Commands:" in shown.getvalue()
"""

APPROVALS = """
import contextlib, io
from perdure.cli.main import cli
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    cli(["approvals", "list"], prog_name="perdure")
"""


def imported_by(code: str, home: Path) -> set[str]:
    report = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    environ = {"HOME": str(home), "PATH": os.environ["PATH"]}
    run = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True, env=environ)
    return set(json.loads(run.stdout.splitlines()[-1]))


@pytest.mark.parametrize("code", [IMPORT, HELP], ids=["import perdure", "perdure --help"])
def test_nothing_heavy_is_imported_before_it_is_needed(code: str, tmp_path: Path) -> None:
    roots = {name.partition(".")[0] for name in imported_by(code, tmp_path)}
    assert "perdure" in roots
    assert roots.isdisjoint(HEAVY), sorted(roots & set(HEAVY))


def test_naming_the_agent_class_imports_no_library_and_none_of_the_slow_packages(tmp_path: Path) -> None:
    loaded = imported_by(AGENT_CLASS, tmp_path)
    assert "perdure.app.agent" in loaded
    # asyncio and sqlite3 are the standard library's own, and in every agent's signature.
    libraries = set(HEAVY) - {"asyncio", "sqlite3"}
    assert {name.partition(".")[0] for name in loaded}.isdisjoint(libraries)
    slow = ("perdure.config.settings", "perdure.context.compressor", "perdure.redaction", "perdure.tools.toolbox")
    assert loaded.isdisjoint((*slow, *RARELY_NEEDED)), sorted(loaded & {*slow, *RARELY_NEEDED})


def test_an_agent_is_made_without_what_only_some_conversations_need(tmp_path: Path) -> None:
    loaded = imported_by(AGENT_MADE, tmp_path)
    assert "perdure.context.compressor" in loaded
    assert loaded.isdisjoint(RARELY_NEEDED), sorted(loaded & set(RARELY_NEEDED))
    unneeded = {"httpx", "genai_prices", "rich", "prompt_toolkit", "click", "psycopg", "fastapi", "mcp", "tree_sitter"}
    roots = {name.partition(".")[0] for name in loaded}
    assert roots.isdisjoint(unneeded), sorted(roots & unneeded)


def test_a_chat_shows_its_status_before_what_the_first_answer_needs_is_imported(tmp_path: Path) -> None:
    loaded = imported_by(CHAT_OPENED, tmp_path)
    slow = {*RARELY_NEEDED, "rich", "markdown_it"}
    assert loaded.isdisjoint(slow), sorted(loaded & slow)


def test_import_perdure_loads_nothing_else_of_its_own(tmp_path: Path) -> None:
    assert {name for name in imported_by(IMPORT, tmp_path) if name.startswith("perdure")} == {"perdure"}


def test_help_imports_no_command_but_the_options_of_chat(tmp_path: Path) -> None:
    loaded = {name for name in imported_by(HELP, tmp_path) if name.startswith("perdure.")}
    terminal = {"", ".main", ".lazy", ".help", ".output", ".style", ".chat", ".chat.command"}
    assert {name for name in loaded if name.split(".")[1] != "core"} == {f"perdure.cli{name}" for name in terminal}


def test_what_only_reads_the_store_loads_no_agent(tmp_path: Path) -> None:
    loaded = imported_by(APPROVALS, tmp_path)
    assert "perdure.store.store" in loaded
    assert not {name for name in loaded if name.startswith(("perdure.agent", "perdure.app", "perdure.tools.approval"))}


@pytest.mark.parametrize(
    ("arguments", "bar_s"), [(["-c", IMPORT], 0.1), (["-c", AGENT_CLASS], 0.3), (["-m", "perdure", "--help"], 0.2)]
)
def test_starting_stays_in_the_order_of_its_bar(arguments: list[str], bar_s: float) -> None:
    def took_s() -> float:
        """Processor time, which a busy machine does not lengthen as it does the clock's."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(took_s() for _ in range(3)) < bar_s * ROOM
