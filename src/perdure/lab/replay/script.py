"""The scripted model of a replay: the recorded replies in order, and a stand-in for the summary model.

The stand-in draws its summary from the recording, whatever the prompt looks like: lines of prose, spread evenly over
what is new since the last summary, and a part of the earlier one where the prompt has it. It is the same for every
policy that asks a model, so that policies are compared and not models or prompts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from perdure.lab.replay.sessions import ReplayStep, ReplayTurn
from perdure.providers.types import ModelRequest
from perdure.testing.simulator import Say, count_text
from perdure.tools.tool import ToolContext

# The output allowance of a request, at most: a share of a small window.
MAX_OUTPUT = 16_000
_OUTPUT_SHARE = 4
# The mean length of summaries that a coding agent really wrote.
TARGET_TOKENS = 2_800
_LINE_CHARS = 160
_NOTES = re.compile(r"<notes-so-far>\n(.*?)\n</notes-so-far>", re.DOTALL)
# Of a summary that updates an earlier one, so much is carried over.
_CARRIED = 0.4
_SECTIONS = ("Goal", "Completed Actions", "Active State", "Key Decisions", "Relevant Files", "Critical Context")
_ITEM = re.compile(r"^(?:\d+\.|-) ")
_WORD = re.compile(r"[A-Za-z]{2,}|[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")
_LEAST_WORDS, _LEAST_LETTERS = 5, 0.75
# Longer results are not read by the stand-in: a summary model is given one line of them.
_SHORT_RESULT = 200


def output_allowance(window: int) -> int:
    """Return the most output tokens that requests ask for in a window."""
    return min(MAX_OUTPUT, window // _OUTPUT_SHARE)


class ReplayClock:
    """A clock that is set to the recorded times; wall clock and monotonic clock are the same."""

    def __init__(self, start_s: float) -> None:
        self.now_s = start_s

    def now_ms(self) -> int:
        return int(self.now_s * 1_000)

    def monotonic_s(self) -> float:
        return self.now_s


class ReplayScript:
    """Plays a recorded session: its replies in order, the results of their calls, and the recorded compactions."""

    def __init__(self, turns: Sequence[ReplayTurn], clock: ReplayClock) -> None:
        self._steps = [step for turn in turns for step in turn.steps]
        self._clock = clock
        self._results = {call: text for step in self._steps for call, text in step.results.items()}
        self._prose = [lines for turn in turns for lines in _prose_of(turn)]
        self._summarized = 0
        self.position = 0
        self._summary_at: int | None = None

    @property
    def step(self) -> ReplayStep:
        """The next recorded reply."""
        return self._steps[self.position]

    def set_clock(self) -> None:
        """Set the clock to the time at which the next request was sent."""
        if self.position < len(self._steps):
            self._clock.now_s = max(self._clock.now_s, self.step.sent_s)

    def answer(self, request: ModelRequest) -> Say:
        """Return the recorded reply, or a summary for a request of the context engine."""
        if not request.system:
            return Say(self._summary(request.entries[0].message.text, request.max_tokens or MAX_OUTPUT))
        if self.position >= len(self._steps):
            return Say("(the log ends here)")
        self.set_clock()
        step = self.step
        self.position += 1
        return Say(step.text, thinking=step.thinking, calls=step.calls)

    def take_summary(self) -> str | None:
        """Return, once, the summary that the recording agent wrote before the next reply; None if it wrote none."""
        if self.position >= len(self._steps) or self._summary_at == self.position or self.step.summary is None:
            return None
        self._summary_at = self.position
        return self.step.summary

    def _summary(self, prompt: str, max_tokens: int) -> str:
        """Return a summary of what is new since the last one; a second one at the same point is about the same."""
        start = self._summarized if self.position > self._summarized else 0
        lines = [line for step in self._prose[start : self.position] for line in step]
        self._summarized = self.position
        return write_summary(prompt, lines, max_tokens)

    async def serve(self, context: ToolContext, **arguments: object) -> str:
        """Return the recorded result of a call, at the time of the request that follows it."""
        self.set_clock()
        return self._results.get(context.call_id, "(no output)")


def _prose_of(turn: ReplayTurn) -> Iterator[list[str]]:
    """Yield the lines of prose of each step; the first step includes the user's message."""
    for number, step in enumerate(turn.steps):
        texts = [turn.text] if number == 0 else []
        texts += [step.text, *(r for r in step.results.values() if len(r) <= _SHORT_RESULT)]
        yield [line.strip() for text in texts for line in text.splitlines() if _is_prose(line.strip())]


def _is_prose(line: str) -> bool:
    letters = sum(c.isalpha() or c == " " for c in line)
    return letters >= _LEAST_LETTERS * len(line) and len(_WORD.findall(line)) >= _LEAST_WORDS


def write_summary(prompt: str, lines: Sequence[str], max_tokens: int) -> str:
    """Return a summary by section: lines that are carried over from earlier notes in the prompt, then new ones."""
    target = min(max_tokens, TARGET_TOKENS) - 60
    notes = _NOTES.search(prompt)
    earlier = [_ITEM.sub("", line) for line in (notes[1] if notes else "").splitlines() if _ITEM.match(line)]
    carried = list(_sample(earlier, int(target * _CARRIED)))
    items = [*carried, *_sample(lines, target - sum(count_text(line) + 2 for line in carried))]
    size = -(-len(items) // len(_SECTIONS)) or 1
    sections = []
    for n, heading in enumerate(_SECTIONS):
        rows = items[n * size : (n + 1) * size]
        body = "\n".join(f"{i}. {row}" for i, row in enumerate(rows, n * size + 1)) or "None"
        sections.append(f"## {heading}\n{body}")
    return "\n\n".join(["## Active Task\nNone", *sections])


def _sample(lines: Sequence[str], budget: int) -> Iterator[str]:
    """Yield lines spread evenly over all of them, shortened to fit a token budget."""
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
