"""The composition root: the only place that knows every part and puts them together. `perdure.Agent` lives here.

settings → `routing` (where calls go) → `shared` (what one process has once: store, transport, what is known of models)
→ `wiring` (what one conversation has of its own: engine, tools, memory, prompt) → `agent.Agent`. Nothing here touches
the network; the embedded model is started when the first call needs it.
"""

from perdure.app.agent import Agent, WiredAgent
from perdure.app.runtime import Shared, open_user_store, route_to, shared_loop

__all__ = ["Agent", "Shared", "WiredAgent", "open_user_store", "route_to", "shared_loop"]
