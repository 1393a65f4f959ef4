"""The scripted model of a replay: the recorded replies in order, and a stand-in for the summary model.

The stand-in extracts short lines from what it is given, deterministically and for free. It is the same for every policy
that asks a model, so that policies are compared and not models. Its length is that of summaries which agents really
wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from perdure.lab.replay.facts import extract_facts
from perdure.lab.replay.sessions import ReplayStep, ReplayTurn
from perdure.providers.types import ModelRequest
from perdure.testing.simulator import Say, count_text
from perdure.tools.tool import ToolContext

# The largest reply; recorded ones are not longer.
MAX_OUTPUT = 16_000
# The mean length of summaries that a coding agent really wrote.
TARGET_TOKENS = 2_800
_LINE_CHARS = 160
_NOTES = re.compile(r"<notes-so-far>\n(.*?)\n</notes-so-far>", re.DOTALL)
_TRANSCRIPT = re.compile(r"<transcript>\n(.*)\n</transcript>", re.DOTALL)
# Of a summary that updates an earlier one, so much is carried over.
_CARRIED = 0.4
_SECTIONS = ("Goal", "Completed Actions", "Active State", "Key Decisions", "Relevant Files", "Critical Context")
_ITEM = re.compile(r"^(?:\d+\.|-) ")


class ReplayClock:
    """The time of the recording; both clocks are the same."""

    def __init__(self, start_s: float) -> None:
        self.now_s = start_s

    def now_ms(self) -> int:
        return int(self.now_s * 1_000)

    def monotonic_s(self) -> float:
        return self.now_s


class ReplayScript:
    """Where the replay is: the replies in order, the results of their calls, and the recorded compactions."""

    def __init__(self, turns: Sequence[ReplayTurn], clock: ReplayClock) -> None:
        self._steps = [step for turn in turns for step in turn.steps]
        self._clock = clock
        self._results = {call: text for step in self._steps for call, text in step.results.items()}
        self.position = 0
        self._summary_at: int | None = None

    @property
    def step(self) -> ReplayStep:
        """The reply that comes next."""
        return self._steps[self.position]

    def set_clock(self) -> None:
        """Go to the time at which the next request was sent."""
        if self.position < len(self._steps):
            self._clock.now_s = max(self._clock.now_s, self.step.sent_s)

    def answer(self, request: ModelRequest) -> Say:
        """The recorded reply, or a summary for a request of the context engine."""
        if not request.system:
            return Say(write_summary(request.entries[0].message.text, request.max_tokens or MAX_OUTPUT))
        if self.position >= len(self._steps):
            return Say("(the log ends here)")
        self.set_clock()
        step = self.step
        self.position += 1
        return Say(step.text, thinking=step.thinking, calls=step.calls)

    def take_summary(self) -> str | None:
        """The summary that the recording agent wrote before the next reply, once."""
        if self.position >= len(self._steps) or self._summary_at == self.position or self.step.summary is None:
            return None
        self._summary_at = self.position
        return self.step.summary

    async def serve(self, context: ToolContext, **arguments: object) -> str:
        """The recorded result of a call, at the time of the request that follows it."""
        self.set_clock()
        return self._results.get(context.call_id, "(no output)")


def write_summary(prompt: str, max_tokens: int) -> str:
    """The summary of a prompt with a transcript, by section."""
    target = min(max_tokens, TARGET_TOKENS) - 60
    notes = _NOTES.search(prompt)
    transcript = _TRANSCRIPT.search(prompt)
    earlier = [_ITEM.sub("", line) for line in (notes[1] if notes else "").splitlines() if _ITEM.match(line)]
    carried = list(_sample(earlier, int(target * _CARRIED)))
    lines = [line.strip() for line in (transcript[1] if transcript else prompt).splitlines() if len(line.strip()) > 20]
    telling = [line for line in lines if extract_facts(line)] or lines
    spent = sum(count_text(line) + 1 for line in carried)
    fresh = list(_sample(telling, target - spent))
    items = [*carried, *fresh]
    size = -(-len(items) // len(_SECTIONS)) or 1
    sections = []
    for n, heading in enumerate(_SECTIONS):
        rows = items[n * size : (n + 1) * size]
        body = "\n".join(f"{i}. {row}" for i, row in enumerate(rows, n * size + 1)) or "None"
        sections.append(f"## {heading}\n{body}")
    return "\n\n".join(["## Active Task\nNone", *sections])


def _sample(lines: Sequence[str], budget: int) -> Iterator[str]:
    """Lines spread evenly over all of them, shortened, within a token budget."""
    unique = list(dict.fromkeys(line[:_LINE_CHARS] for line in lines))
    sizes = [count_text(line) + 2 for line in unique]
    if not unique or budget <= 0:
        return
    step = max(1.0, sum(sizes) / budget)
    position, spent = 0.0, 0
    while int(position) < len(unique):
        i = int(position)
        if spent + sizes[i] > budget:
            return
        spent += sizes[i]
        yield unique[i]
        position += step
