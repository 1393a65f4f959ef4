"""A chat as a surface of the slash commands: they run in a thread, see one person's things, and change where one is."""

from __future__ import annotations

from collections.abc import Callable

from perdure.agent.agent import ConversationAgent
from perdure.core.errors import NotFound
from perdure.gateway.guards.people import Principal
from perdure.gateway.lanes.pool import MODEL_KEY
from perdure.providers.routes import EndpointChain
from perdure.store.store import SessionStore


class GatewayCommandContext:
    """What a command is lent for one message."""

    def __init__(
        self,
        store: SessionStore,
        agent: ConversationAgent,
        person: Principal,
        *,
        route_to: Callable[[str], EndpointChain],
    ) -> None:
        self.store = store
        self.agent = agent
        self.visibility = person.visibility
        self._route_to = route_to
        # Where the chat goes on: as it was, unless a command says otherwise.
        self.has_moved = False
        self.target: str | None = None

    def open(self, session_id: str | None) -> None:
        """The chat goes on there. Raises NotFound for a conversation that is somebody else's."""
        if session_id is not None:
            session_id = self.store.conversations.get(session_id, visibility=self.visibility).id
        self.has_moved, self.target = True, session_id

    def choose_model(self, name: str) -> str:
        """Kept with the conversation, so that whichever process goes on with it uses the same."""
        route = self._route_to(name)
        if self.agent.session_id is None:
            raise NotFound("Nothing has been said yet; the model can be chosen once the conversation has begun.")
        self.agent.switch_model(route)
        self.store.conversation_state(self.agent.session_id).set(MODEL_KEY, name)
        return f"{route.main.model} ({route.main.provider})"
