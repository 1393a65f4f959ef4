"""Replay one recorded session under one context policy: the real agent, with a model that repeats recorded replies.

Tool results come from the recording, the clock is set to the recorded times, and nothing is sent anywhere. A replay is
deterministic: a compaction that is being prepared in the background is awaited before the next turn.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from perdure.agent.agent import ConversationAgent
from perdure.agent.runner import LoopThread
from perdure.app.build import AgentUser, Wiring
from perdure.app.runtime import Shared
from perdure.config.load import validate_settings
from perdure.core.errors import PerdureError
from perdure.core.events import CompactionFinished, Event
from perdure.lab.replay.facts import Need, find_needs
from perdure.lab.replay.measures import MeasureRecorder, SessionMeasures
from perdure.lab.replay.policies import UNLIMITED, Policy
from perdure.lab.replay.prices import cache_models
from perdure.lab.replay.provider import ReplayProvider
from perdure.lab.replay.script import ReplayClock, ReplayScript, output_allowance
from perdure.lab.replay.sessions import RecordedSession, ReplayTurn, ToolShape, read_turns, session_digest, tool_shapes
from perdure.store.encoding import TimeIds
from perdure.store.store import SessionStore, open_store
from perdure.testing.simulator import strict
from perdure.tools.tool import Tool

MODEL = "claude-sonnet-4-5"
SYSTEM_PROMPT = "You are a coding agent. Work with the tools at hand until the user's request is done."
# A turn may make more calls than a real one ever does.
_MOST_CALLS = 100_000
# The path of a stored output is random, too; a preview leaves out a path as long as this.
_LONG_NAME = "replay" * 40

T = TypeVar("T")


def _tool(shape: ToolShape, serve: Callable[..., object]) -> Tool:
    return Tool(
        name=shape.name,
        description=f"{shape.name}, as recorded.",
        parameters=shape.schema,
        handler=serve,
        context_parameter="context",
        is_read_only=True,
    )


@dataclass(frozen=True, slots=True)
class ReplayJob:
    """A replay to run: one session, one policy, one window."""

    session: RecordedSession
    policy: Policy
    window: int


async def _inline(work: Callable[[], T]) -> T:
    """Run blocking work where it is: a replay is alone on its event loop."""
    return work()


def replay(job: ReplayJob) -> SessionMeasures:
    """Replay a session and measure it. Raises PerdureError where the agent cannot go on."""
    started_s = time.process_time()
    turns, needs = _prepare(_SessionKey(session_digest(job.session), job.session))
    if not turns:
        raise PerdureError("the session holds no reply to replay")
    with tempfile.TemporaryDirectory(prefix=scratch_prefix(), dir=scratch_folder()) as folder:
        measures = _Replay(job, turns, needs, Path(folder)).run()
    return replace(measures, own_s=round(time.process_time() - started_s, 3))


@dataclass(frozen=True, slots=True)
class _SessionKey:
    """A cache key for a session: equal for sessions with the same content."""

    digest: str
    session: RecordedSession = field(compare=False)


@lru_cache(maxsize=2)
def _prepare(key: _SessionKey) -> tuple[list[ReplayTurn], list[list[Need]]]:
    """Return the turns of a session and the needs of its replies; cached for the next policy."""
    turns = read_turns(key.session)
    return turns, find_needs(turns)


def scratch_folder() -> Path:
    """Return a folder for temporary stores, in memory if the system has one."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())


def scratch_prefix() -> str:
    """Return the prefix of this process's temporary folder names."""
    return f"perdure-replay-{os.getpid()}-"


def remove_scratch() -> None:
    """Remove the temporary folders of this process, which is about to exit without its `finally` blocks."""
    for folder in scratch_folder().glob(f"{scratch_prefix()}*"):
        shutil.rmtree(folder, ignore_errors=True)


class _Replay:
    """One run of a replay job, with a store and a temporary folder of its own."""

    def __init__(
        self, job: ReplayJob, turns: Sequence[ReplayTurn], needs: Sequence[Sequence[Need]], folder: Path
    ) -> None:
        self._job = job
        self._turns = turns
        self._folder = folder
        self._clock = ReplayClock(turns[0].steps[0].sent_s)
        self._script = ReplayScript(turns, self._clock)
        self._recorder = MeasureRecorder(needs, position=lambda: self._script.position - 1)
        window = job.window if job.policy.has_window else UNLIMITED
        self._window = window
        self._provider = ReplayProvider(
            strict(window=window, max_output=output_allowance(window), sum_overflow="stop_reason"),
            cache_models(lambda: self._clock.now_s),
            reply=self._script.answer,
            now_s=lambda: self._clock.now_s,
            on_call=self._recorder.on_call,
        )

    def run(self) -> SessionMeasures:
        # Previews of stored outputs are part of prompts: with random ids in them two replays differ by a few tokens.
        (self._folder / _LONG_NAME).mkdir()
        ids = TimeIds(self._clock, random.Random(self._job.session.id).getrandbits)
        store = open_store(self._folder / _LONG_NAME / "replay.db", clock=self._clock, ids=ids)
        # Vectors are made in the background and only where an extra is installed: searches would depend on both.
        store.vectors.close()
        loop_thread = LoopThread()
        try:
            agent = self._agent(store, loop_thread)
            agent.events.tap(self._on_event)
            self._recorder.watch(agent)
            try:
                loop_thread.run(self._run_turns(agent))
                return self._recorder.finish(self._job, self._provider, store, agent)
            finally:
                agent.close()
        finally:
            store.close()

    async def _run_turns(self, agent: ConversationAgent) -> None:
        for turn in self._turns:
            self._script.set_clock()
            self._recorder.begin_turn(turn.text)
            end = self._script.position + len(turn.steps)
            result = await agent.arun_conversation(turn.text)
            if result.outcome != "completed":
                raise PerdureError(f"the turn {result.outcome} after {self._script.position} replies: {result.error}")
            if self._script.position != end:
                raise PerdureError(f"the replay left the recording at reply {end}")
            await agent.open().gate.wait_for_preparation()

    def _agent(self, store: SessionStore, loop_thread: LoopThread) -> ConversationAgent:
        policy = self._job.policy
        settings = validate_settings(
            {
                **policy.settings(),
                "model": {
                    "name": MODEL,
                    "provider": "anthropic",
                    "context_length": self._window,
                    "max_tokens": output_allowance(self._window),
                },
                "agent": {"max_turns": _MOST_CALLS, "loop_repeats": 0},
            }
        )
        shared = Shared(
            settings,
            home=self._folder,
            store=store,
            api_key="replay",
            loop_thread=loop_thread,
            send=self._provider,
            clock=self._clock,
            run_blocking=_inline,
        )
        wiring = Wiring(shared, AgentUser("replay"))
        deps = wiring.make_deps([_tool(shape, self._script.serve) for shape in tool_shapes(self._turns)])
        engine = policy.engine(self._script.take_summary)
        return ConversationAgent(
            deps if engine is None else replace(deps, engine=engine),
            loop_thread,
            services=wiring.engine_services,
            events=wiring.events,
            system_prompt=self._job.session.system_prompt or SYSTEM_PROMPT,
        )

    def _on_event(self, event: Event) -> None:
        if isinstance(event, CompactionFinished):
            self._recorder.on_compaction(event)
