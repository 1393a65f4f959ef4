"""Approval requests and clarifying questions: published as events, answered through any process, denied by default.

Open questions are stored, since the answer may arrive at another process than the one that waits. In a chat without
subscribers an approval is denied after a short timeout; otherwise after the configured one.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from perdure.core.errors import InvalidMessage, NotFound, ToolError
from perdure.core.ports import ApprovalAnswer, ApprovalRequest, Clock, Refusal, parse_refusal
from perdure.core.visibility import EVERYONE, Visibility, user_from_key
from perdure.gateway.auth.principal import Principal, Scope
from perdure.gateway.errors import MissingScope
from perdure.gateway.events.broker import EventBroker
from perdure.gateway.events.types import ChatKey, QuestionAsked, QuestionClosed
from perdure.gateway.executor import run_blocking
from perdure.store.store import SessionStore

SCOPE = "questions"
# Timeout of an approval in a chat without subscribers.
UNATTENDED_S = 10.0
# Polling interval for answers that arrive through another process.
_POLL_S = 0.5
_APPROVALS: tuple[str, ...] = get_args(ApprovalAnswer)
# Where every answer covers this one call only.
_FOR_ONE_CALL = ("once", "no")


@dataclass(frozen=True, slots=True)
class QuestionOrigin:
    """The turn and chat that a question comes from."""

    chat: ChatKey
    turn_id: str
    # The turn's scopes: a principal needs the same to answer for it.
    scopes: frozenset[Scope]
    # Only readers whose visibility covers this one see the question: it may quote the conversation of its turn.
    required_visibility: Visibility


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """An unanswered question, as listed for its user."""

    question: QuestionAsked
    origin: QuestionOrigin
    expires_at_ms: int


class QuestionRegistry:
    """The open questions of this process, and the entry point for answers to those of any process."""

    def __init__(
        self,
        store: SessionStore,
        broker: EventBroker,
        *,
        clock: Clock,
        timeout_s: float,
        unattended_s: float = UNATTENDED_S,
    ) -> None:
        self._state = store.state(SCOPE)
        self._broker = broker
        self._clock = clock
        self._timeout_s = timeout_s
        self._unattended_s = min(unattended_s, timeout_s)
        self._answer_events: dict[str, asyncio.Event] = {}
        # The turn of each question that this process waits for.
        self._turns: dict[str, str] = {}

    def is_asking(self, turn_id: str) -> bool:
        """Whether a turn of this process waits for an answer."""
        return turn_id in self._turns.values()

    async def ask(
        self,
        origin: QuestionOrigin,
        kind: Literal["approval", "clarify"],
        text: str,
        *,
        choices: Sequence[str] = (),
        reason: str = "",
        covers: str = "",
        dangerous: Sequence[str] = (),
    ) -> str:
        """Publish a question and wait for the answer; "" after the timeout."""
        question_id = f"q_{secrets.token_hex(12)}"
        question = QuestionAsked(question_id, kind, text, tuple(choices), reason, covers, tuple(dangerous))
        expires_at_ms = self._clock.now_ms() + round(self._timeout_s * 1_000)
        await run_blocking(self._state.set, question.question_id, _to_stored(question, origin, expires_at_ms))
        self._answer_events[question.question_id] = asyncio.Event()
        self._turns[question.question_id] = origin.turn_id
        self._broker.publish(origin.chat, origin.turn_id, question, required_visibility=origin.required_visibility)
        answer, is_stopped = "", False
        try:
            answer = await self._wait(question.question_id, origin.chat)
        except asyncio.CancelledError:
            is_stopped = True
            raise
        finally:
            self._answer_events.pop(question.question_id, None)
            self._turns.pop(question.question_id, None)
            closed = QuestionClosed(question.question_id, answer, is_stopped)
            self._broker.publish(origin.chat, origin.turn_id, closed, required_visibility=origin.required_visibility)
            await run_blocking(self._state.set, question.question_id, None)
        return answer

    async def answer(self, question_id: str, text: str, principal: Principal) -> None:
        """Store an answer, whichever process waits for it. Raises NotFound, InvalidMessage, MissingScope."""
        stored: Any = await run_blocking(self._state.get, question_id) if question_id.startswith("q_") else None
        if not _is_for(stored, principal) or stored.get("answer") is not None:
            raise NotFound(f"no open question {question_id!r}")
        if missing := _missing_scopes(stored, principal):
            raise MissingScope(f"the turn runs with the scope {missing[0]}; answering requires a token with that scope")
        if stored["kind"] == "approval" and text not in _APPROVALS and parse_refusal(text) == "no":
            words = ", ".join(_APPROVALS)
            raise InvalidMessage(f"an approval must be answered with one of: {words}; or with “no, ” and a reason")
        if not text.strip():
            raise InvalidMessage("the answer is empty")
        await run_blocking(self._state.set, question_id, {**stored, "answer": text})
        if question_id in self._answer_events:
            self._answer_events[question_id].set()

    async def withdraw(self, turn_id: str, *, required_visibility: Visibility) -> None:
        """Close the questions of a turn that was taken over from another process, which no longer waits for answers."""
        for question_id, stored in (await run_blocking(self._state.items)).items():
            if stored["turn_id"] == turn_id and question_id not in self._answer_events:
                await run_blocking(self._state.set, question_id, None)
                closed = QuestionClosed(question_id, "")
                self._broker.publish(_chat_of(stored), turn_id, closed, required_visibility=required_visibility)

    async def open_for(self, principal: Principal) -> list[OpenQuestion]:
        """Return the principal's open questions of all processes, oldest first."""
        stored = await run_blocking(self._state.items)
        now = self._clock.now_ms()
        questions = [
            OpenQuestion(
                QuestionAsked(
                    question_id,
                    k["kind"],
                    k["text"],
                    tuple(k["choices"]),
                    k["reason"],
                    k.get("covers", ""),
                    tuple(k.get("dangerous", ())),
                ),
                QuestionOrigin(_chat_of(k), k["turn_id"], frozenset(k.get("scopes", ())), _required_visibility(k)),
                k["expires_at"],
            )
            for question_id, k in stored.items()
            if _is_for(k, principal) and k.get("answer") is None and k["expires_at"] > now
        ]
        return sorted(questions, key=lambda q: q.expires_at_ms)

    async def forget_expired(self) -> None:
        """Delete the questions of processes that died."""
        for question_id, stored in (await run_blocking(self._state.items)).items():
            if stored["expires_at"] < self._clock.now_ms() - 60_000:
                await run_blocking(self._state.set, question_id, None)

    async def _wait(self, question_id: str, chat: ChatKey) -> str:
        answer_event = self._answer_events[question_id]
        started_s = self._clock.monotonic_s()
        was_attended = False
        while True:
            was_attended = was_attended or self._broker.channel(chat).has_subscribers
            timeout_s = self._timeout_s if was_attended else self._unattended_s
            remaining_s = started_s + timeout_s - self._clock.monotonic_s()
            stored = await run_blocking(self._state.get, question_id)
            if stored is not None and stored.get("answer") is not None:
                return str(stored["answer"])
            if remaining_s <= 0:
                return ""
            try:
                await asyncio.wait_for(answer_event.wait(), min(_POLL_S, remaining_s))
            except TimeoutError:
                continue


class ChatPrompter:
    """Asks for approvals and answers in the chat of the current turn (the Approver and Asker ports of one agent)."""

    def __init__(self, questions: QuestionRegistry) -> None:
        self._questions = questions
        self.origin: QuestionOrigin | None = None

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | Refusal:
        """Ask in the chat and return the decision; a timeout counts as "no", and words after a no go to the model."""
        answer = await self._ask(
            "approval",
            request.action,
            choices=_APPROVALS if request.is_lasting else _FOR_ONE_CALL,
            reason=_with_folder(request),
            covers=request.covers,
            dangerous=request.dangerous,
        )
        return next((choice for choice in get_args(ApprovalAnswer) if choice == answer), None) or parse_refusal(answer)

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        answer = await self._ask("clarify", question, choices=choices)
        if not answer:
            raise ToolError("no answer within the timeout; decide yourself, and state your assumption")
        return answer

    def _ask(self, kind: Literal["approval", "clarify"], text: str, **kwargs: Any) -> Awaitable[str]:
        if self.origin is None:
            raise ToolError("there is no user to ask")
        return self._questions.ask(self.origin, kind, text, **kwargs)


def _with_folder(request: ApprovalRequest) -> str:
    """Return the reason of a question, with the folder in which a command would run."""
    return f"{request.reason}. In the folder {request.folder}." if request.folder else request.reason


def _to_stored(question: QuestionAsked, origin: QuestionOrigin, expires_at_ms: int) -> dict[str, Any]:
    chat = origin.chat
    return {
        "kind": question.kind,
        "text": question.text,
        "choices": list(question.choices),
        "reason": question.reason,
        "covers": question.covers,
        "dangerous": list(question.dangerous),
        "scopes": sorted(origin.scopes),
        "conversation_of": origin.required_visibility.stored_key,
        "chat": [chat.platform, chat.user.stored_key, chat.chat],
        "turn_id": origin.turn_id,
        "expires_at": expires_at_ms,
        "answer": None,
    }


def _chat_of(stored: Mapping[str, Any]) -> ChatKey:
    platform, user_key, chat = stored["chat"]
    return ChatKey(platform, user_from_key(user_key), chat)


def _is_for(stored: Any, principal: Principal) -> bool:
    """Whether a stored question is the principal's own; not even an admin approves what runs as another user."""
    if not isinstance(stored, dict) or _chat_of(stored).user != principal.user:
        return False
    return principal.visibility.covers(_required_visibility(stored))


def _required_visibility(stored: Mapping[str, Any]) -> Visibility:
    # Questions of an older version have none: they were asked in the user's own conversation.
    if "conversation_of" not in stored:
        return _chat_of(stored).user
    user_key = stored["conversation_of"]
    return EVERYONE if user_key is None else user_from_key(user_key)


def _missing_scopes(stored: Mapping[str, Any], principal: Principal) -> list[str]:
    """Return the scopes the turn has and the principal lacks; `admin` grants visibility, not execution."""
    return [scope for scope in stored.get("scopes", ()) if scope in ("chat", "shell") and scope not in principal.scopes]
