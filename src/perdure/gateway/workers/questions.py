"""Approvals and the model's own questions over the wire: asked as an event, answered from anywhere, denied by default.

An open question is kept in the store, since the answer may arrive at another process than the one whose turn waits.
Where nobody follows the chat and nobody comes, an approval is denied after a short while; nobody is waited for longer
than the setting says.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from perdure.core.errors import InvalidMessage, NotFound, ToolError
from perdure.core.ports import ApprovalAnswer, ApprovalRequest, Clock
from perdure.gateway.auth.principal import Principal, Scope
from perdure.gateway.errors import ApiError, ApiException
from perdure.gateway.events.broker import Streams
from perdure.gateway.events.types import ChatKey, QuestionAsked, QuestionClosed
from perdure.gateway.executor import in_thread
from perdure.store.store import SessionStore

SCOPE = "questions"
# How long an approval waits in a chat that nobody follows.
UNATTENDED_S = 10.0
# How often a waiting turn looks for an answer that came in through another process.
_LOOK_S = 0.5
_APPROVALS: tuple[str, ...] = get_args(ApprovalAnswer)


@dataclass(frozen=True, slots=True)
class QuestionOrigin:
    """Where a question arises: which turn, in which chat."""

    chat: ChatKey
    turn_id: str
    # What the turn may do: nobody answers for it who may not do as much.
    scopes: frozenset[Scope] = frozenset()


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question nobody has answered yet, as the one it is for may see it."""

    question: QuestionAsked
    place: QuestionOrigin
    expires_at_ms: int


class QuestionBoard:
    """Every question of this process, and the way in for answers to anybody's."""

    def __init__(
        self,
        store: SessionStore,
        streams: Streams,
        *,
        clock: Clock,
        timeout_s: float,
        is_attended: Callable[[ChatKey], bool],
        unattended_s: float = UNATTENDED_S,
    ) -> None:
        self._state = store.state(SCOPE)
        self._streams = streams
        self._clock = clock
        self._timeout_s = timeout_s
        self._unattended_s = min(unattended_s, timeout_s)
        self._is_attended = is_attended
        self._answered: dict[str, asyncio.Event] = {}

    async def ask(
        self,
        place: QuestionOrigin,
        kind: Literal["approval", "clarify"],
        text: str,
        *,
        choices: Sequence[str] = (),
        reason: str = "",
        covers: str = "",
        dangerous: Sequence[str] = (),
    ) -> str:
        """The answer; "" where nobody gave one in time."""
        ident = f"q_{secrets.token_hex(12)}"
        asked = QuestionAsked(ident, kind, text, tuple(choices), reason, covers, tuple(dangerous))
        until_ms = self._clock.now_ms() + round(self._timeout_s * 1_000)
        await in_thread(self._state.set, asked.question_id, _kept(asked, place, until_ms))
        self._answered[asked.question_id] = asyncio.Event()
        self._streams.publish(place.chat, place.turn_id, asked)
        answer = ""
        try:
            answer = await self._wait(asked.question_id, place.chat)
        finally:
            self._answered.pop(asked.question_id, None)
            self._streams.publish(place.chat, place.turn_id, QuestionClosed(asked.question_id, answer))
            await in_thread(self._state.set, asked.question_id, None)
        return answer

    async def answer(self, question_id: str, text: str, person: Principal) -> None:
        """Takes an answer, whichever process waits for it. Raises NotFound, InvalidMessage, ApiException."""
        kept: Any = await in_thread(self._state.get, question_id) if question_id.startswith("q_") else None
        if not _is_for(kept, person) or kept.get("answer") is not None:
            raise NotFound(f"no open question {question_id!r}")
        if missing := _missing_scopes(kept, person):
            needed = f"the turn that asks runs with the scope {missing[0]}; answering it needs a token that has it too"
            raise ApiException(ApiError(403, "missing_scope", needed))
        if kept["kind"] == "approval" and text not in _APPROVALS:
            raise InvalidMessage(f"an approval is answered with one of: {', '.join(_APPROVALS)}")
        if not text.strip():
            raise InvalidMessage("the answer is empty")
        await in_thread(self._state.set, question_id, {**kept, "answer": text})
        if question_id in self._answered:
            self._answered[question_id].set()

    async def open_for(self, person: Principal) -> list[OpenQuestion]:
        """What waits for this person, in any process, oldest first."""
        kept = await in_thread(self._state.items)
        now = self._clock.now_ms()
        mine = [
            OpenQuestion(
                QuestionAsked(
                    ident,
                    k["kind"],
                    k["text"],
                    tuple(k["choices"]),
                    k["reason"],
                    k.get("covers", ""),
                    tuple(k.get("dangerous", ())),
                ),
                QuestionOrigin(ChatKey(*k["chat"]), k["turn_id"]),
                k["expires_at"],
            )
            for ident, k in kept.items()
            if _is_for(k, person) and k.get("answer") is None and k["expires_at"] > now
        ]
        return sorted(mine, key=lambda q: q.expires_at_ms)

    async def forget_expired(self) -> None:
        """Takes away what a process that died had asked."""
        for ident, kept in (await in_thread(self._state.items)).items():
            if kept["expires_at"] < self._clock.now_ms() - 60_000:
                await in_thread(self._state.set, ident, None)

    async def _wait(self, question_id: str, chat: ChatKey) -> str:
        arrived = self._answered[question_id]
        began = self._clock.monotonic_s()
        was_attended = False
        while True:
            was_attended = was_attended or self._is_attended(chat)
            patience_s = self._timeout_s if was_attended else self._unattended_s
            left_s = began + patience_s - self._clock.monotonic_s()
            kept = await in_thread(self._state.get, question_id)
            if kept is not None and kept.get("answer") is not None:
                return str(kept["answer"])
            if left_s <= 0:
                return ""
            try:
                await asyncio.wait_for(arrived.wait(), min(_LOOK_S, left_s))
            except TimeoutError:
                continue


class TurnVoice:
    """The Approver and Asker of one agent: asks in the chat of whichever turn is under way."""

    def __init__(self, questions: QuestionBoard) -> None:
        self._questions = questions
        self.place: QuestionOrigin | None = None

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Whatever is no answer is a no."""
        answer = await self._ask(
            "approval",
            request.action,
            choices=_APPROVALS,
            reason=request.reason,
            covers=request.covers,
            dangerous=request.dangerous,
        )
        return next((known for known in get_args(ApprovalAnswer) if known == answer), "no")

    async def ask(self, question: str, choices: Sequence[str] = ()) -> str:
        answer = await self._ask("clarify", question, choices=choices)
        if not answer:
            raise ToolError("nobody answered the question in time; decide yourself, and say what you assumed")
        return answer

    def _ask(self, kind: Literal["approval", "clarify"], text: str, **more: Any) -> Awaitable[str]:
        if self.place is None:
            raise ToolError("nobody is here to be asked")
        return self._questions.ask(self.place, kind, text, **more)


def _kept(asked: QuestionAsked, place: QuestionOrigin, until_ms: int) -> dict[str, Any]:
    chat = place.chat
    return {
        "kind": asked.kind,
        "text": asked.text,
        "choices": list(asked.choices),
        "reason": asked.reason,
        "covers": asked.covers,
        "dangerous": list(asked.dangerous),
        "scopes": sorted(place.scopes),
        "chat": [chat.platform, chat.user_key, chat.chat],
        "turn_id": place.turn_id,
        "expires_at": until_ms,
        "answer": None,
    }


def _is_for(kept: Any, person: Principal) -> bool:
    """One's own questions alone: not even an administrator approves what runs in somebody else's name."""
    return isinstance(kept, dict) and kept["chat"][1] == person.user_key


def _missing_scopes(kept: Mapping[str, Any], person: Principal) -> list[str]:
    """What the turn that asks may do and this person may not; `admin` shows more but runs nothing."""
    return [scope for scope in kept.get("scopes", ()) if scope in ("chat", "shell") and scope not in person.scopes]
