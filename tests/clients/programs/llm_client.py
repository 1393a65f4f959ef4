"""llm: its command line with a schema and with a tool, and a conversation that goes on."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

request = json.load(sys.stdin)
folder = pathlib.Path(tempfile.mkdtemp())
model = {
    "model_id": "perdure",
    "model_name": "perdure",
    "api_base": os.environ["PERDURE_URL"],
    "api_key_name": "perdure",
    "supports_tools": True,
    "supports_schema": True,
}
(folder / "extra-openai-models.yaml").write_text(json.dumps([model]))
environment = {**os.environ, "LLM_USER_PATH": str(folder)}


def llm(*arguments):
    program = [sys.executable, "-m", "llm", "prompt", "-m", "perdure", "--key", os.environ["PERDURE_KEY"], *arguments]
    done = subprocess.run(program, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout.strip()


functions = 'def get_weather(city: str) -> str:\n    """The weather in a city."""\n    return "sun"\n'
out = {
    "plain": llm("hello"),
    "continued": llm("-c", "and then?"),
    "person": json.loads(llm("--schema", json.dumps(request["person"]), request["person_plan"])),
    "tools": llm("--functions", functions, request["tool_plan"]),
    "tools_unstreamed": llm("--no-stream", "--functions", functions, request["tool_plan"]),
}
print(json.dumps(out))
