"""Find the conversation that a request continues.

A client can name its conversation in a header or in the field `user`, or the response it continues. Otherwise it is
identified by the history it sends: after every answer, a fingerprint of the client's history is stored with the
position in the conversation. If the conversation has moved on since (the client regenerates or edits a message), or
another request is continuing it, the request continues in a branch from that position. An unknown history is imported
into a new conversation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.agent.prompt import assemble
from perdure.core.errors import NotFound
from perdure.core.messages import Message, ToolCall
from perdure.core.rules import find_call
from perdure.core.visibility import AnyUser
from perdure.gateway.auth.principal import Principal
from perdure.gateway.events.types import ChatKey
from perdure.gateway.openai_api.parameters import invalid_request
from perdure.gateway.openai_api.request import CompletionRequest, MessageDict, call_field
from perdure.gateway.workers.agent_pool import AgentPool, AgentSpec
from perdure.gateway.workers.routing import ChatRouting
from perdure.store.encoding import IdSource
from perdure.store.inbox import ConversationPosition
from perdure.store.queries import HistoryPosition
from perdure.store.records import RouteRecord, Span
from perdure.store.store import SessionStore

PLATFORM = "openai"
# Separates the agent's system prompt from the client's.
_CLIENT_PROMPT = "\n\n# What the client says about this conversation\n\n"
# How far back a reply can be whose calls are being answered: its results, and notes among them.
_TAIL_MESSAGES = 600


@dataclass(frozen=True, slots=True)
class ConversationMatch:
    """The target of a message: a chat, and the conversation if it is known."""

    chat: ChatKey
    conversation_id: str | None
    # Where the conversation must still be, with nothing pending, when the message is queued.
    position: ConversationPosition | None = None


class ConversationMatcher:
    """Matches and records client histories; synchronous, as the store is."""

    def __init__(self, store: SessionStore, pool: AgentPool, ids: IdSource) -> None:
        self._store = store
        self._pool = pool
        self._ids = ids
        self._routing = ChatRouting(store)

    def find(self, completion: CompletionRequest, principal: Principal, name: str | None) -> ConversationMatch:
        """Return the target of a request with an optional conversation name from its headers.

        Raises NotFound for a conversation that is not the principal's, ApiException for such a response and for tool
        results that no call waits for.
        """
        target = self._find(completion, principal, name)
        if completion.options.results:
            # If another request brought these results first, the inbox refuses this one or returns its first try.
            position = target.position or self._end_of(
                target.conversation_id or self._current_conversation(target.chat)
            )
            self._check_results(completion, position)
            return replace(target, position=position)
        if completion.previous_response_id is not None:
            # As with OpenAI, calls of that response need their outputs.
            self._check_results(completion, target.position or self._end_of(target.conversation_id))
        # Messages that name their conversation wait for each other.
        return target if name is None else replace(target, position=None)

    def branch(self, match: ConversationMatch, principal: Principal) -> ConversationMatch:
        """Return a branch from the position of a match, for a request that came while another one continues there."""
        if match.position is None:
            raise ValueError("the match has no position to branch from")
        branch = self._store.conversations.branch(match.position.conversation_id, at_seq=match.position.seq)
        return ConversationMatch(self._chat_key(principal, branch.conversation_id), branch.conversation_id)

    def _find(self, completion: CompletionRequest, principal: Principal, name: str | None) -> ConversationMatch:
        if completion.previous_response_id is not None:
            position = self._find_response(completion.previous_response_id, principal)
            chat = self._chat_key(principal, self._ids.new("t_"))
            start = self._match_history(completion, principal, within=None) or (position, 0)
            return self._resume_at(chat, *start, completion, principal, is_named=False)
        if name is not None and name.startswith("c_"):
            conversation = self._store.conversations.get(name, visibility=principal.user)
            return ConversationMatch(self._chat_key(principal, conversation.id), conversation.id)
        if name is None and completion.user is not None:
            return self._find_by_user_field(self._chat_key(principal, f"user:{completion.user}"), completion, principal)
        chat = self._chat_key(principal, name or self._ids.new("t_"))
        current = self._current_conversation(chat) if name is not None else None
        match = self._match_history(completion, principal, within=current)
        if match is not None:
            return self._resume_at(chat, *match, completion, principal, is_named=name is not None)
        if current is not None or not (completion.history or completion.system):
            # Let the hub start the conversation: it does so exactly once under concurrent requests.
            return ConversationMatch(chat, None)
        return self._start_conversation(chat, completion, principal, is_named=name is not None)

    def _find_by_user_field(
        self, chat: ChatKey, completion: CompletionRequest, principal: Principal
    ) -> ConversationMatch:
        """Match by the field `user`, which names a conversation unless the history matches another one."""
        current, match = (
            self._current_conversation(chat),
            self._match_history(completion, principal, within=None),
        )
        if match is not None:
            return self._resume_at(chat, *match, completion, principal, is_named=match[0].conversation_id == current)
        if completion.history and current is not None:
            return self._start_conversation(chat, completion, principal, is_named=False)
        if current is not None or not (completion.history or completion.system):
            return ConversationMatch(chat, None)
        return self._start_conversation(chat, completion, principal, is_named=True)

    def record_history(
        self,
        completion: CompletionRequest,
        answer: MessageDict,
        principal: Principal,
        conversation_id: str | None,
        *,
        response_id: str,
    ) -> None:
        """Store the client's position after an answer; without a conversation, its next request starts a new one."""
        seq = self._store.conversations.get(conversation_id).last_seq if conversation_id else 0
        position = HistoryPosition(conversation_id, seq)
        *_, (_, fingerprint) = _fingerprints(_base(completion, principal), (*completion.messages, answer))
        self._store.client_histories.put(fingerprint, position)
        if completion.is_stored:
            self._store.client_histories.put(_response_fingerprint(principal.user, response_id), position)

    def is_stored_response(self, response_id: str, principal: Principal) -> bool:
        """Return whether a response was stored for its user."""
        return self._store.client_histories.get(_response_fingerprint(principal.user, response_id)) is not None

    def _find_response(self, response_id: str, principal: Principal) -> HistoryPosition:
        position = self._store.client_histories.get(_response_fingerprint(principal.user, response_id))
        if position is None or not (
            position.conversation_id is None or self._exists(position.conversation_id, principal)
        ):
            raise invalid_request(
                f"no response {response_id!r}; it was not stored, or is too old", "previous_response_id",
                code="previous_response_not_found",
            )  # fmt: skip
        return position

    def _end_of(self, conversation_id: str | None) -> ConversationPosition | None:
        if conversation_id is None:
            return None
        return ConversationPosition(conversation_id, self._store.conversations.get(conversation_id).last_seq)

    def _check_results(self, completion: CompletionRequest, position: ConversationPosition | None) -> None:
        """Raise ApiException unless the results are those of the calls that wait at a position."""
        waiting = self._waiting_calls(position) if position is not None else []
        result_ids = [result.tool_call_id for result in completion.options.results]
        for result_id in result_ids:
            if find_call(waiting, result_id) is None:
                raise invalid_request(
                    f"no tool call with the {call_field(completion.field)} {result_id!r} waits for a result here",
                    completion.field, code="unknown_tool_call",
                )  # fmt: skip
        if missing := [c.id for c in waiting if not any(find_call((c,), r) for r in result_ids)]:
            raise invalid_request(f"these tool calls have no result: {', '.join(missing)}", completion.field)

    def _waiting_calls(self, position: ConversationPosition) -> list[ToolCall]:
        """Return the calls before a position that wait for results of the client."""
        last = position.seq
        result_ids: list[str | None] = []
        for entry in reversed(
            self._store.log.read(position.conversation_id, Span(max(1, last - _TAIL_MESSAGES), last))
        ):
            message = entry.message
            if message.kind == "tool":
                result_ids.append(message.tool_call_id)
            elif message.kind in ("user", "assistant"):
                calls = [c for c in message.tool_calls if c.is_for_client]
                return [c for c in calls if not any(find_call((c,), result_id) for result_id in result_ids)]
        return []

    def _match_history(
        self, completion: CompletionRequest, principal: Principal, *, within: str | None
    ) -> tuple[HistoryPosition, int] | None:
        """Return the position and length of the longest known prefix of the history."""
        history, base = completion.history, _base(completion, principal)
        fingerprints = [(n, p) for n, p in _fingerprints(base, history) if history[n - 1]["role"] == "assistant"]
        for count, fingerprint in reversed(fingerprints):
            position = self._store.client_histories.get(fingerprint)
            if position is None or (within is not None and position.conversation_id != within):
                continue
            if position.conversation_id is None or self._exists(position.conversation_id, principal):
                return position, count
        return None

    def _resume_at(
        self,
        chat: ChatKey,
        position: HistoryPosition,
        count: int,
        completion: CompletionRequest,
        principal: Principal,
        *,
        is_named: bool,
    ) -> ConversationMatch:
        """Continue at a known position: in its conversation, or in a branch if either side has diverged."""
        rest = completion.history[count:]
        if position.conversation_id is None:
            return (
                ConversationMatch(chat, None)
                if not rest
                else self._start_conversation(chat, completion, principal, is_named=is_named)
            )
        conversation = self._store.conversations.get(position.conversation_id)
        if not rest and conversation.last_seq == position.seq:
            # A named chat is already routed to this conversation and has its own queue.
            current = ConversationPosition(conversation.id, position.seq)
            return (
                ConversationMatch(chat, None, current)
                if is_named
                else ConversationMatch(self._chat_key(principal, conversation.id), conversation.id, current)
            )
        if is_named and not rest and self._store.inbox.pending(conversation.id):
            # The name leads to one conversation: a request that comes while a turn runs there starts no branch.
            return ConversationMatch(chat, None, ConversationPosition(conversation.id, position.seq))
        branch = self._store.conversations.branch(conversation.id, at_seq=position.seq)
        if is_named:
            self._routing.set(chat, branch.conversation_id)
        # Not by way of the name: another request may give that a branch of its own at the same moment.
        return self._continue_conversation(chat, branch.conversation_id, rest, is_named=False)

    def _start_conversation(
        self, chat: ChatKey, completion: CompletionRequest, principal: Principal, *, is_named: bool
    ) -> ConversationMatch:
        """Start a conversation with the client's history, and its system prompt after the agent's."""
        agent = self._pool.make_unbound(AgentSpec(chat, principal.has_scope("shell")))
        try:
            deps, endpoint = agent.deps, agent.endpoint
            prompt = assemble(deps.prompt_sources(deps.memory.snapshot(principal.user.stored_key)))
            session = self._store.conversations.create(
                system_prompt=prompt + (f"{_CLIENT_PROMPT}{completion.system}" if completion.system else ""),
                route=RouteRecord(endpoint.provider, endpoint.model, endpoint.api_mode),
                source=PLATFORM,
                user=principal.user,
            )
        finally:
            agent.close()
        return self._continue_conversation(chat, session.conversation_id, completion.history, is_named=is_named)

    def _continue_conversation(
        self, chat: ChatKey, conversation_id: str, messages: Sequence[MessageDict], *, is_named: bool
    ) -> ConversationMatch:
        if messages:
            self._store.append(conversation_id, [Message.from_dict(m) for m in messages])
        if not is_named:
            return ConversationMatch(ChatKey(chat.platform, chat.user, conversation_id), conversation_id)
        self._routing.set(chat, conversation_id)
        return ConversationMatch(chat, None)

    def _current_conversation(self, chat: ChatKey) -> str | None:
        current = self._routing.get(chat)
        try:
            conversation = self._store.conversations.get(current, visibility=chat.user) if current else None
            return conversation.id if conversation is not None else None
        except NotFound:  # deleted, or not visible to the principal
            return None

    def _exists(self, conversation_id: str, principal: Principal) -> bool:
        try:
            self._store.conversations.get(conversation_id, visibility=principal.user)
        except NotFound:
            return False
        return True

    @staticmethod
    def _chat_key(principal: Principal, name: str) -> ChatKey:
        return ChatKey(PLATFORM, principal.user, name)


def _base(completion: CompletionRequest, principal: Principal) -> str:
    """Return the fingerprint of what precedes the history: the response that it continues, or nothing."""
    if completion.previous_response_id is not None:
        return _response_fingerprint(principal.user, completion.previous_response_id)
    return hashlib.sha256(principal.user.stored_key.encode("utf-8", "surrogatepass")).hexdigest()


def _fingerprints(base: str, history: Sequence[MessageDict]) -> Iterator[tuple[int, str]]:
    """Yield the length and fingerprint of each prefix of a history; surrounding whitespace is ignored."""
    fingerprint = base
    for count, message in enumerate(history, 1):
        # Some clients drop the text of messages with tool calls; the calls identify the message well enough.
        content = "" if message.get("tool_calls") else _normalize(message["content"])
        values = [fingerprint, message["role"], content, *_call_identity(message)]
        fingerprint = hashlib.sha256(json.dumps(values, ensure_ascii=True).encode()).hexdigest()
        yield count, fingerprint


def _response_fingerprint(user: AnyUser, response_id: str) -> str:
    text = json.dumps(["response", user.stored_key, response_id], ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _call_identity(message: MessageDict) -> Iterator[Any]:
    """Yield what identifies the calls of a message, or the call it answers; clients may write arguments differently."""
    if calls := message.get("tool_calls"):
        yield [[c.id, c.name, _normalize_arguments(c)] for c in map(ToolCall.from_dict, calls)]
    if message["role"] == "tool":
        yield message.get("tool_call_id")


def _normalize_arguments(call: ToolCall) -> str:
    arguments = call.parsed_arguments()
    return call.arguments.strip() if arguments is None else json.dumps(arguments, sort_keys=True)


def _normalize(content: Any) -> Any:
    if content is None:
        return ""
    if isinstance(content, str):
        return content.replace("\r\n", "\n").strip()
    return [{**part, "text": _normalize(part["text"])} if "text" in part else part for part in content]
