"""Codex: one task in a folder of its own, with a command that it runs here."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

request = json.load(sys.stdin)
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "home").mkdir()
(folder / "work").mkdir()
(folder / "home" / "config.toml").write_text(
    f"""
model = "perdure"
model_provider = "perdure"
approval_policy = "never"
sandbox_mode = "danger-full-access"

[model_providers.perdure]
name = "perdure"
base_url = "{os.environ["PERDURE_URL"]}"
env_key = "PERDURE_KEY"
wire_api = "responses"
"""
)
done = subprocess.run(
    [os.environ["CODEX"], "exec", "--skip-git-repo-check", request["codex_plan"]],
    capture_output=True,
    text=True,
    cwd=folder / "work",
    env={**os.environ, "CODEX_HOME": str(folder / "home")},
    stdin=subprocess.DEVNULL,
)
made = folder / "work" / "made.txt"
print(json.dumps({"answer": done.stdout.strip(), "file": made.read_text().strip() if made.exists() else done.stderr}))
