"""aider: edits a file in a repository of its own."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

request = json.load(sys.stdin)
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "hello.py").write_text('def greet():\n    return "hi"\n')
subprocess.run(["git", "init", "-q", str(folder)], check=True)
switched_off = ("check-update", "show-model-warnings", "show-release-notes", "auto-commits", "pretty", "gitignore")
options = ["--edit-format", "whole", "--analytics-disable", "--yes-always", *(f"--no-{name}" for name in switched_off)]
program = [sys.executable, "-m", "aider", "--model", "openai/perdure", *options]
done = subprocess.run(
    [*program, "--message", request["aider_plan"], "hello.py"],
    capture_output=True,
    text=True,
    cwd=folder,
    env={
        **os.environ,
        "OPENAI_API_BASE": os.environ["PERDURE_URL"],
        "OPENAI_API_KEY": os.environ["PERDURE_KEY"],
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "HOME": str(folder),
    },
    stdin=subprocess.DEVNULL,
)
print(json.dumps({"file": (folder / "hello.py").read_text(), "log": (done.stdout + done.stderr)[-2000:]}))
