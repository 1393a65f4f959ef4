"""What an installed Perdure must be able to do: `smoke.py FOLDER`, run with the interpreter it is installed for."""

import sys
from pathlib import Path

import perdure
from perdure.testing.simulator import Simulator

folder = Path(sys.argv[1]).resolve()
assert folder in Path(perdure.__file__).resolve().parents, f"{perdure.__file__} is not the installed package"
for name in perdure.__all__:
    getattr(perdure, name)

messages = [{"role": "system", "content": "Be brief."}]
for n in range(40):
    messages.append({"role": "user", "content": f"Question {n}: " + "please look at this again. " * 60})
    messages.append({"role": "assistant", "content": f"Answer {n}."})
report = perdure.compress(messages, context_length=8_000)
assert report.outcome == "digest", report.message
assert perdure.estimate_tokens(report.messages) < perdure.estimate_tokens(messages) / 4, report.message

with Simulator(window=8_000, script=lambda request: "Noted.") as service:
    options = {"model": "any", "base_url": service.base_url, "api_key": "any", "home": folder / "home"}
    with perdure.Agent(settings={"model": {"context_length": 8_000}}, **options) as agent:
        for n in range(3):
            assert agent.chat(f"Note {n}: " + "the quay is wet. " * 100) == "Noted."
        assert agent.compress().outcome in ("compacted", "digest")
        assert agent.chat("Still there?") == "Noted."
    assert service.violations == []
print(f"perdure {perdure.__version__} works from its wheel")
