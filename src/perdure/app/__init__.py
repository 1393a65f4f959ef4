"""The composition root: builds agents from settings, and is the only package that imports all the others.

`perdure.Agent` lives here. settings → `runtime.Shared` (what one process has once: store, transport, model information)
→ `build.build_agent` (what one conversation has of its own: engine, tools, memory, prompt) → `agent.Agent`. Nothing
here touches the network; the embedded model is started when the first call needs it.
"""

from perdure.app.agent import Agent

# The name other agents have for it.
AIAgent = Agent

__all__ = ["AIAgent", "Agent"]
