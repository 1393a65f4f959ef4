"""How the gateway's agents are made: over what the process shares, for one person, in one chat."""

from __future__ import annotations

from perdure.agent.agent import ConversationAgent
from perdure.app import Shared, WiredAgent, route_to
from perdure.app.wiring import AgentUser
from perdure.gateway.lanes.pointers import key_of
from perdure.gateway.lanes.pool import AgentSpec
from perdure.gateway.lanes.questions import TurnVoice
from perdure.providers.routes import EndpointChain


class Agents:
    """The AgentMaker of a real gateway."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def make(self, wanted: AgentSpec, *, user_key: str, session_id: str | None, voice: TurnVoice) -> ConversationAgent:
        speaker = AgentUser(
            wanted.chat.platform,
            user_key,
            chat_key=key_of(wanted.chat),
            has_shell=wanted.has_shell,
            approver=voice,
            asker=voice,
        )
        return WiredAgent(self._shared, speaker, session_id=session_id)

    def route_to(self, name: str) -> EndpointChain:
        return route_to(self._shared.settings, name)
