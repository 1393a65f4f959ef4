"""Run the demo's conversation: a real agent on a generated repository, with the simulator as its provider."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from perdure.agent.context_usage import ContextUsage, last_usage
from perdure.app import Agent
from perdure.app.runtime import SCRIPTED_KEY
from perdure.config.load import validate_settings
from perdure.core.events import CompactionFinished, Event, OutputSpilled, ToolFinished, TurnFinished
from perdure.core.ports import ApprovalAnswer, ApprovalRequest, Refusal
from perdure.lab.demo.project import build_project
from perdure.lab.demo.script import QUIZ, REFUSAL, ScriptedModel, build_turns, prompt_text
from perdure.models.tokens import estimate_message
from perdure.store.store import SessionStore, open_user_store
from perdure.testing.simulator import Simulator
from perdure.testing.simulator.rules import RuleViolation

WINDOW = 18_000
MODEL = "claude-sonnet-4-5"
_TITLE = "Demo: orders that outgrow the window"
_FIRST_HITS = 5
# Events are delivered by another thread, shortly after a turn has ended.
_EVENTS_S = 5.0


@dataclass(frozen=True, slots=True)
class QuizResult:
    """The place where a quiz answer was found: in the prompt, in the first hits of a search, or in neither."""

    question: str
    answer: str
    where: str


@dataclass(frozen=True, slots=True)
class DemoSummary:
    conversation_id: str
    turns: int
    compactions: int
    spilled: int
    # Tokens of the whole conversation, of what is in view at its end, and of all prompts.
    history_tokens: int
    context_tokens: int
    prompt_tokens: int
    cache_hit_rate: float
    cost_usd: float | None
    quiz: tuple[QuizResult, ...]


class _DemoUser:
    """The demo's approver: refuses to delete the exports, with a reason, and allows everything else."""

    def __init__(self, on_question: Callable[[ApprovalRequest, str], None]) -> None:
        self._on_question = on_question

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | Refusal:
        is_refused = "rm " in request.action
        self._on_question(request, REFUSAL if is_refused else "yes")
        return Refusal(REFUSAL) if is_refused else "once"


class Demo:
    """One demo in a folder of its own: `project/` is the workspace, `home/` has the log."""

    def __init__(
        self,
        folder: Path,
        *,
        on_event: Callable[[Event], None],
        on_question: Callable[[ApprovalRequest, str], None] = lambda request, answer: None,
        chunk_delay_s: float = 0.0,
        engine: str = "compressor",
    ) -> None:
        self.workspace, self.home = folder / "project", folder / "home"
        self._on_event = on_event
        self._engine = engine
        self._user = _DemoUser(on_question)
        self._turns = build_turns()
        self._model = ScriptedModel(self._turns, chunk_delay_s=chunk_delay_s)
        self._simulator = Simulator(window=WINDOW, script=self._model)
        self._agent: Agent | None = None
        self._store: SessionStore | None = None
        self._compactions = self._spilled = 0
        self._is_turn_over = threading.Event()

    @property
    def messages(self) -> tuple[str, ...]:
        """The user's messages, one for each turn."""
        return tuple(turn.message for turn in self._turns)

    @property
    def agent(self) -> Agent:
        if self._agent is None:
            raise RuntimeError("the demo is not open")
        return self._agent

    @property
    def store(self) -> SessionStore:
        if self._store is None:
            raise RuntimeError("the demo is not open")
        return self._store

    @contextlib.contextmanager
    def open(self) -> Iterator[Demo]:
        """Build the repository and start the agent in it; the caller's working directory is restored at the end."""
        self.workspace.mkdir(parents=True)
        build_project(self.workspace)
        settings = validate_settings(
            {
                "model": {"context_length": WINDOW, "max_tokens": 2_000},
                # Handoffs are drawn from the log, without a model.
                "compression": {"summarize": False},
                "context": {"engine": self._engine},
            }
        )
        self.home.mkdir(parents=True)
        with (
            self._simulator as service,
            contextlib.closing(open_user_store(settings, self.home)) as store,
            contextlib.chdir(self.workspace),
            Agent(
                MODEL,
                "anthropic",
                base_url=service.root_url,
                api_key="demo",
                settings=settings,
                store=store,
                home=self.home,
                source="terminal",
                approver=self._user,
            ) as agent,
        ):
            self._agent, self._store = agent, store
            stop = agent.events.listen(self._hear)
            try:
                yield self
            finally:
                stop()

    def take_turn(self, number: int) -> str:
        """Send the user's message of a turn and return the answer, once all of its events were delivered."""
        self._model.begin(number)
        self._is_turn_over.clear()
        answer = self.agent.run_conversation(self._turns[number].message).final_response
        self._is_turn_over.wait(_EVENTS_S)
        self._set_title()
        self._mark_as_scripted()
        return answer

    def _set_title(self) -> None:
        """Title the conversation, which is otherwise named by the first message after it is resumed."""
        conversation = self.store.conversations.get(self.agent.session_id or "")
        if not conversation.title:
            self.store.conversations.set_title(conversation.id, _TITLE)

    def _mark_as_scripted(self) -> None:
        conversation = self.store.conversations.get(self.agent.session_id or "")
        cost_usd = self.store.ledger.totals(conversation.id).cost_usd
        self.store.conversation_state(conversation.id).set(SCRIPTED_KEY, {conversation.id: cost_usd or 0.0})

    @property
    def usage(self) -> ContextUsage:
        """The context usage by what is stored of the last call, as the chat shows it that resumes the conversation."""
        return last_usage(self.store, self.agent.session_id or "", self.agent.gauge)

    @property
    def violations(self) -> list[RuleViolation]:
        """The protocol rules that a request of the agent broke; empty if all is well."""
        return self._simulator.violations

    def summarize(self) -> DemoSummary:
        """Measure what the conversation used, and hold the quiz."""
        store, session_id = self.store, self.agent.session_id or ""
        totals = store.ledger.totals(session_id)
        conversation_id = store.conversations.get(session_id).id
        log = store.log.reader(conversation_id)
        messages = [entry.message for entry in log.read(0, 1 << 40) if entry.message.kind != "handoff"]
        return DemoSummary(
            conversation_id=conversation_id,
            turns=len(self._turns),
            compactions=self._compactions,
            spilled=self._spilled,
            history_tokens=sum(map(estimate_message, messages)),
            context_tokens=self.usage.tokens,
            prompt_tokens=totals.usage.prompt_tokens,
            cache_hit_rate=totals.usage.cache_hit_rate or 0.0,
            cost_usd=totals.cost_usd,
            quiz=tuple(self._quiz(conversation_id)),
        )

    def _hear(self, event: Event) -> None:
        self._compactions += isinstance(event, CompactionFinished) and event.outcome in ("compacted", "digest")
        # The terminal tool stores long outputs while they are written.
        is_stored = isinstance(event, ToolFinished) and "<persisted-output>" in event.result.text
        self._spilled += is_stored or isinstance(event, OutputSpilled)
        self._on_event(event)
        if isinstance(event, TurnFinished):
            self._is_turn_over.set()

    def _quiz(self, conversation_id: str) -> Iterator[QuizResult]:
        visible = prompt_text(self._simulator.requests[-1].body)
        for q in QUIZ:
            where = "in view" if q.answer in visible else "lost"
            if where == "lost" and self._is_found(q.question, q.answer, conversation_id):
                where = "one question away"
            yield QuizResult(q.question, q.answer, where)

    def _is_found(self, question: str, answer: str, conversation_id: str) -> bool:
        store = self.store
        hits = store.search(question, limit=_FIRST_HITS)
        texts = (store.open(hit.address, conversation_id=conversation_id).text for hit in hits)
        return any(answer in text for text in texts)
