"""Which conversation a request goes on with.

A client that names its conversation (a header, or the field `user`) goes on with that one. One that does not is known
by what it sends: after every answer, a fingerprint of the history the client then holds is kept with the conversation's
place. The same fingerprint again means: go on here. Where the conversation has gone on meanwhile (the client
regenerates an answer, or edited one), it goes on in a branch from that very place; where nothing of the history is
known, it is taken over into a new conversation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.agent.prompt import assemble
from perdure.core.errors import NotFound
from perdure.core.messages import Message
from perdure.core.visibility import only
from perdure.gateway.auth.principal import Principal
from perdure.gateway.events.types import ChatKey
from perdure.gateway.openai_api.request import CompletionRequest, Said
from perdure.gateway.workers.agent_pool import AgentPool, AgentSpec
from perdure.gateway.workers.routing import ChatRouting
from perdure.store.ids import IdSource
from perdure.store.kv import HistoryPosition
from perdure.store.records import RouteRecord
from perdure.store.store import SessionStore

PLATFORM = "openai"
# Between the agent's own instructions and the client's.
_CLIENT_PROMPT = "\n\n# What the client says about this conversation\n\n"


@dataclass(frozen=True, slots=True)
class Thread:
    """Where a message goes: a chat, and within it a conversation where it is known already."""

    chat: ChatKey
    conversation_id: str | None


class Threads:
    """Finds and remembers. Synchronous, as the store is."""

    def __init__(self, store: SessionStore, pool: AgentPool, ids: IdSource) -> None:
        self._store = store
        self._pool = pool
        self._ids = ids
        self._pointers = ChatRouting(store)

    def find(self, asked: CompletionRequest, person: Principal, name: str | None) -> Thread:
        """The thread of a request whose header bears `name`, if any.

        Raises NotFound for a conversation id that is none of this person's.
        """
        if name is not None and name.startswith("c_"):
            conversation = self._store.conversations.get(name, visibility=only(person.user_key))
            return Thread(self._chat(person, conversation.id), conversation.id)
        if name is None and asked.user is not None:
            return self._of_user(self._chat(person, f"user:{asked.user}"), asked, person)
        chat = self._chat(person, name or self._ids.new("t_"))
        held = self._held(chat) if name is not None else None
        known = self._known(asked.history, person, within=held)
        if known is not None:
            return self._at(chat, *known, asked, person, is_named=name is not None)
        if held is not None or not (asked.history or asked.system):
            # Begun by the hub, which knows how to do so once, whichever processes are asked at the same moment.
            return Thread(chat, None)
        return self._begun(chat, asked, person, is_named=name is not None)

    def _of_user(self, chat: ChatKey, asked: CompletionRequest, person: Principal) -> Thread:
        """The field `user` names a conversation, unless the history shows that it names a person with several."""
        held, known = self._held(chat), self._known(asked.history, person, within=None)
        if known is not None:
            return self._at(chat, *known, asked, person, is_named=known[0].conversation_id == held)
        if asked.history and held is not None:
            return self._begun(chat, asked, person, is_named=False)
        if held is not None or not (asked.history or asked.system):
            return Thread(chat, None)
        return self._begun(chat, asked, person, is_named=True)

    def remember(self, asked: CompletionRequest, answer: str, person: Principal, conversation_id: str | None) -> None:
        """Keeps where the client is now that it holds the answer; no conversation: it begins a new one next."""
        history = (*asked.history, asked.new, {"role": "assistant", "content": answer})
        seq = self._store.conversations.get(conversation_id).last_seq if conversation_id else 0
        *_, (_, print_) = _prints(person.user_key, history)
        self._store.client_histories.put(print_, HistoryPosition(conversation_id, seq))

    def _known(
        self, history: Sequence[Said], person: Principal, *, within: str | None
    ) -> tuple[HistoryPosition, int] | None:
        """The longest part of the history that is known, and its length; a named chat knows only its own."""
        prints = [(n, p) for n, p in _prints(person.user_key, history) if history[n - 1]["role"] == "assistant"]
        for count, print_ in reversed(prints):
            place = self._store.client_histories.get(print_)
            if place is None or (within is not None and place.conversation_id != within):
                continue
            if place.conversation_id is None or self._exists(place.conversation_id, person):
                return place, count
        return None

    def _at(
        self,
        chat: ChatKey,
        place: HistoryPosition,
        count: int,
        asked: CompletionRequest,
        person: Principal,
        *,
        is_named: bool,
    ) -> Thread:
        """Goes on at a known place: in its conversation, or in a branch where either side has gone another way."""
        rest = asked.history[count:]
        if place.conversation_id is None:
            return Thread(chat, None) if not rest else self._begun(chat, asked, person, is_named=is_named)
        conversation = self._store.conversations.get(place.conversation_id)
        if not rest and conversation.last_seq == place.seq:
            # A named chat is in this conversation already, and keeps its own order of messages.
            return Thread(chat, None) if is_named else Thread(self._chat(person, conversation.id), conversation.id)
        branch = self._store.conversations.branch(conversation.id, at_seq=place.seq)
        return self._continued(chat, branch.conversation_id, rest, is_named=is_named)

    def _begun(self, chat: ChatKey, asked: CompletionRequest, person: Principal, *, is_named: bool) -> Thread:
        """A new conversation that holds what the client already knows, under its instructions and ours."""
        agent = self._pool.blank(AgentSpec(chat, person.may("shell"), lambda: None))
        try:
            parts, endpoint = agent.parts, agent.endpoint
            prompt = assemble(parts.prompt_sources(parts.memory.snapshot(person.user_key)))
            session = self._store.create(
                system_prompt=prompt + (f"{_CLIENT_PROMPT}{asked.system}" if asked.system else ""),
                route=RouteRecord(endpoint.provider, endpoint.model, endpoint.api_mode),
                source=PLATFORM,
                user_key=person.user_key,
            )
        finally:
            agent.close()
        return self._continued(chat, session.conversation_id, asked.history, is_named=is_named)

    def _continued(self, chat: ChatKey, conversation_id: str, said: Sequence[Said], *, is_named: bool) -> Thread:
        if said:
            self._store.append(conversation_id, [Message.from_dict(m) for m in said])
        if not is_named:
            return Thread(ChatKey(chat.platform, chat.user_key, conversation_id), conversation_id)
        self._pointers.set(chat, conversation_id)
        return Thread(chat, None)

    def _held(self, chat: ChatKey) -> str | None:
        current = self._pointers.get(chat)
        try:
            found = self._store.conversations.get(current, visibility=only(chat.user_key)) if current else None
            return found.id if found is not None else None
        except NotFound:  # deleted meanwhile, or not this person's
            return None

    def _exists(self, conversation_id: str, person: Principal) -> bool:
        try:
            self._store.conversations.get(conversation_id, visibility=only(person.user_key))
        except NotFound:
            return False
        return True

    @staticmethod
    def _chat(person: Principal, name: str) -> ChatKey:
        return ChatKey(PLATFORM, person.user_key, name)


def _prints(user_key: str, history: Sequence[Said]) -> Iterator[tuple[int, str]]:
    """A fingerprint of each beginning of a history, with its length. White space at the ends does not count."""
    print_ = hashlib.sha256(user_key.encode("utf-8", "surrogatepass")).hexdigest()
    for count, message in enumerate(history, 1):
        text = json.dumps([print_, message["role"], _settled(message["content"])], ensure_ascii=True)
        print_ = hashlib.sha256(text.encode()).hexdigest()
        yield count, print_


def _settled(content: Any) -> Any:
    if isinstance(content, str):
        return content.replace("\r\n", "\n").strip()
    return [{**part, "text": _settled(part["text"])} if "text" in part else part for part in content]
