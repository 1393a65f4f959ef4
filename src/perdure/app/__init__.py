"""The composition root: builds agents from settings and wires the packages below it together.

`perdure.Agent` is defined here. settings → `runtime.Shared` (one per process: store, transport, model information)
→ `build.build_agent` (one per conversation: engine, tools, memory, prompt) → `agent.Agent`. Building an agent sends no
request; the embedded model is started by the first call to it.
"""

from perdure.app.agent import Agent

# The name other agents have for it.
AIAgent = Agent

__all__ = ["AIAgent", "Agent"]
