"""Every example runs, in a home of its own, and prints what it promises."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.providers.local import has_runtime, packaged_weights
from support.forked import run_forked

EXAMPLES = Path(__file__).parents[2] / "examples"
SAYS = {
    "minimal_agent.py": "go on with: perdure chat --resume s_",
    "own_engine.py": "12 calls; the last one carried",
    "streaming.py": "callback: The tide goes out.",
    "own_store.py": "You said 8080.",
    "own_tool.py": "model said: Go at four.",
}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.name)
def test_the_example_runs(path: Path, tmp_path: Path) -> None:
    if path.name == "minimal_agent.py" and not (has_runtime() and packaged_weights()):
        pytest.skip("the embedded model is not installed")
    keys = {k: v for k, v in os.environ.items() if not k.endswith(("_API_KEY", "_TOKEN"))}
    environ = {**keys, "PERDURE_HOME": str(tmp_path), "PERDURE_MODEL__MAX_TOKENS": "24"}
    done = run_forked([str(path)], env=environ, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert SAYS.get(path.name, "") in done.stdout
