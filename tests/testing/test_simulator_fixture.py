"""The pytest fixture, as a user's own test suite would use it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SUITE = """
import httpx

def ask(simulator, *messages):
    body = {"model": "m", "messages": list(messages)}
    return httpx.post(f"{simulator.base_url}/chat/completions", json=body, trust_env=False)

def test_good(simulator):
    simulator.add("Hello.")
    assert ask(simulator, {"role": "user", "content": "hi"}).json()["choices"][0]["message"]["content"] == "Hello."

def test_bad(simulator):
    ask(simulator, {"role": "user", "content": "hi"}, {"role": "user", "content": "again"})
"""


def test_a_users_test_gets_a_simulator_and_fails_when_it_breaks_a_rule(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["perdure.testing.simulator.fixture"]\n', encoding="utf-8")
    (tmp_path / "test_mine.py").write_text(SUITE, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    # Without the plug-ins of our own environment, which take longer to import than the tests to run.
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, env=environment)
    assert "the service would have refused: /v1/chat/completions: Conversation roles must alternate" in ran.stdout
    # A broken rule is found at teardown: both bodies ran, one of them is an error.
    assert "2 passed, 1 error" in ran.stdout
