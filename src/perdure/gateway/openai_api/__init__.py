"""Endpoints compatible with OpenAI's Chat Completions and Responses APIs.

    request (parse) → conversation_match (find the conversation) → hub → turn (events) → response (format)

OpenAI clients send the whole history with each request. The stored conversation has more than the client knows, such
as the agent's own tool calls, so only the new messages are appended. Read `conversation_match.py` first.
"""

from perdure.gateway.openai_api.routes import OPENAI_ENDPOINTS, openai_router

__all__ = ["OPENAI_ENDPOINTS", "openai_router"]
