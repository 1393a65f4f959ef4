"""The door that speaks OpenAI's Chat Completions, so that clients made for that API talk to the agent as they are.

    request → `reading` (what is new) → `threads` (which conversation) → hub → `answering` → `writing` (shapes)

Such clients send the whole history each time. Ours is kept, with everything the client never saw, so only what is new
is taken from them. Read `threads.py` first.
"""

from perdure.gateway.openai_api.routes import openai_router

__all__ = ["openai_router"]
