"""Print messages, tool calls and notices to the terminal."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

from perdure.agent.callbacks import status_line as status_text
from perdure.cli.chat.activity import (
    TARGET_CHARS,
    Activity,
    RunningCall,
    failure_label,
    is_plan_done,
    named_call,
    plan_lines,
    plan_summary,
)
from perdure.cli.chat.markdown import Blocks, MarkdownBlock
from perdure.cli.chat.tool_output import change_size, output_lines, shorten_preview, stored_output, whole_output
from perdure.cli.style import Style, fit_lines, paint_diff, runnable, safe, wrap_lines
from perdure.core.display import join_preview
from perdure.core.events import (
    CallStarted,
    CompactionFinished,
    CompactionStarted,
    Event,
    HelperFinished,
    HelperStarted,
    ModelSwitched,
    Notice,
    OutputSpilled,
    ReasoningDelta,
    Recovered,
    RetryScheduled,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from perdure.core.messages import ToolCall

# A call's row shows at least this much of what the call works on.
_LEAST_TARGET_CHARS = 16
# How many outputs the key can go back to, and how soon it must be pressed again for that.
_KEPT_OUTPUTS = 30
_STEP_BACK_S = 10.0


def running_line(call: ToolCall, seconds: float) -> str:
    return f"● {named_call(call)} … {seconds:.0f} s"


def finished_line(event: ToolFinished, spilled: OutputSpilled | None, ink: Style, *, width: int = 0) -> str:
    """`● terminal pytest tests/ · exit 1 · 0.8 s · 3,204 characters`, in one row of `width` where that is given."""
    mark = ink.bad("✗") if event.is_error else ink.good("●")
    text = event.result.text
    size, address = (spilled.chars, spilled.address) if spilled is not None else stored_output(text) or (len(text), "")
    figures = [f"{event.seconds:.1f} s", change_size(event) or f"{size:,} characters"]
    if event.state == "refused":  # it did not run: its time is that of the question
        figures = [failure_label(event.state, None)]
    elif event.is_error:
        figures.insert(0, failure_label(event.state, event.exit_code))
    location = f" · kept at {address}" if address else ""
    end = f"· {' · '.join(figures)}"
    room = width - len(end) - len(event.call.name) - 4 if width else TARGET_CHARS
    if location and width and room - len(location) < _LEAST_TARGET_CHARS:
        # An address is copied from the screen: it is not wrapped, but has a row of its own.
        end += f"\n  {location.removeprefix(' · ')}"
    else:
        end, room = end + location, room - len(location) if width else room
    return f"{mark} {named_call(event.call, min(TARGET_CHARS, room))} {ink.dim(end)}\n"


def stopped_line(call: ToolCall, ink: Style, *, width: int) -> str:
    """Return the row of a call that was interrupted before it had a result."""
    end = "· stopped"
    target = named_call(call, min(TARGET_CHARS, width - len(end) - len(call.name) - 4))
    return f"{ink.warn('■')} {target} {ink.dim(end)}\n"


def spilled_line(event: OutputSpilled, ink: Style) -> str:
    return ink.dim(f"  {event.call.name}: {event.chars:,} characters kept at {event.address}") + "\n"


# A live block beyond this is drawn as plain text: what is drawn many times must stay cheap.
_PAINT_CHARS = 4_000
# Keys come first: a block that grows is painted anew no oftener than the eye can follow.
_PAINT_EVERY_S = 0.08
_SAME_CHARS = 20
Write = Callable[[str], None]


class ChatTranscript:
    """One chat's output. Used from one thread; `write` takes whole lines, `live` is drawn as often as one likes."""

    def __init__(
        self,
        write: Write,
        *,
        width: Callable[[], int],
        ink: Style,
        shows_reasoning: bool = False,
        streams: bool = True,
        tool_lines: int = 6,
        can_unfold: bool = True,
        awaits_approval: Callable[[str], bool] = lambda call_id: False,
    ) -> None:
        # Whether there is a key that shows a tool's output whole.
        self._can_unfold = can_unfold
        self._write = write
        self._width = width
        self._ink = ink
        self._shows_reasoning = shows_reasoning
        self._streams = streams
        self._tool_lines = tool_lines
        # Calls that have a result, their whole outputs or changes, and the address of a stored one; newest first.
        self._outputs: deque[tuple[str, str, str]] = deque(maxlen=_KEPT_OUTPUTS)
        # Which of them the key shows next, and until when; later it is the newest again.
        self._next_output, self._steps_back_until_s = 0, float("-inf")
        # What the last `unfold` returned: its address, "" where it is not stored, and the name of the output before it.
        self.unfolded_address = self.earlier_output = ""
        self._blocks = Blocks()
        self._unseen = ""
        self._has_gap = False
        self._thought = ""
        self._thinks_since_s: float | None = None
        # What is going on, and since when.
        self._activity: tuple[str, float] | None = None
        self._work = Activity(ink, tool_lines=tool_lines, awaits_approval=awaits_approval)
        self._has_new_plan = False
        self._spilled: dict[str, OutputSpilled] = {}
        self._is_answered = False
        self._drawn: tuple[tuple[str, int], str] = (("", 0), "")
        self._drawn_at_s = float("-inf")

    def hold(self, call_id: str) -> None:
        """Show that a call waits for its approval."""
        self._work.hold(call_id)

    def release(self, call_id: str) -> None:
        """Show that the approval of a call has been answered."""
        self._work.release(call_id)

    # -- events ------------------------------------------------------------------------------------------------------

    def show(self, event: Event) -> None:
        self._work.take(event)
        match event:
            case TextDelta(text):
                self._end_thinking()
                self._take(text)
            case ReasoningDelta(text):
                self._think(text)
            case TurnStarted():
                self._is_answered = False
            case CallStarted():
                self.busy("thinking")
            case ToolStarted():
                self._end_text()
            case ToolFinished():
                self._show_call(event)
            case HelperStarted() | HelperFinished():
                self._show_helper(event)
            case OutputSpilled():
                self._note_spill(event)
            case CompactionStarted(reason=reason, before_tokens=before):
                self._end_text()
                # Who asked for it reads what came of it in the command's own answer.
                self._is_answered = reason == "user"
                self.busy(f"compacting about {before:,} tokens")
            case TurnFinished():
                self._finish(event)
            case ModelSwitched(reason="chosen"):
                pass  # the answer to the user's command names the model
            case CompactionFinished() | Recovered() | RetryScheduled() | ModelSwitched() | Notice():
                self._tell(event)
            case _:
                pass

    def busy(self, what: str) -> None:
        """Something that takes a while has begun; the same words again do not start its clock anew."""
        if self._activity is None or self._activity[0] != what:
            self._activity = (what, time.monotonic())

    def idle(self) -> None:
        self._activity = None

    def stop(self, *, is_cut: bool = False) -> None:
        """End the display of a turn: print the rest of the answer, and show calls without a result as stopped.

        Where the answer `is_cut`, Markdown marks that are left open are closed.
        """
        self._end_text(is_cut=is_cut)
        for running in self._work.end():
            self._write(stopped_line(running.call, self._ink, width=self._width()))
            self._show_printed(running)
        self.idle()

    def _show_printed(self, running: RunningCall) -> None:
        """Print the last output preview of an interrupted call."""
        if (output := running.output) is None:
            return
        for line in shorten_preview(output, most=self._tool_lines, width=self._width(), ink=self._ink):
            self._write(f"{line}\n")
        self._keep_output(running.call, safe(join_preview(output.first, output.last)))

    def _keep_output(self, call: ToolCall, text: str, address: str = "") -> None:
        self._outputs.appendleft((named_call(call), text, address))
        self._next_output = 0

    def _keep_result(self, event: ToolFinished) -> None:
        stored = stored_output(event.result.text)
        self._keep_output(event.call, whole_output(event), stored[1] if stored else "")

    def unfold(self) -> str:
        """Return the newest tool output, whole; asked again soon, the one before it. A sentence where there is none.

        Of a stored output it has both ends, and `unfolded_address` is where all of it is.
        """
        self.unfolded_address = self.earlier_output = ""
        if not self._outputs:
            return "No tool has run in this conversation yet."
        now_s = time.monotonic()
        n = self._next_output if now_s < self._steps_back_until_s else 0
        self._next_output, self._steps_back_until_s = n + 1, now_s + _STEP_BACK_S
        if n == len(self._outputs):
            self._next_output = 0
            return "No earlier output is kept; Ctrl-O begins with the newest again."
        name, text, self.unfolded_address = self._outputs[n]
        whole = f"{name}\n{text}" if text else f"{name}: no output"
        self.earlier_output = self._outputs[n + 1][0] if n + 1 < len(self._outputs) else ""
        return whole

    def remember(self, results: Iterable[ToolFinished]) -> None:
        """Keep the outputs of a resumed conversation, oldest first, instead of those of the one before."""
        self._outputs.clear()
        for event in results:
            self._keep_result(event)

    def pause_steps(self) -> Callable[[], None]:
        """Stop the clock for pressing the key again, while an output is read; the result starts it anew."""
        is_running = time.monotonic() < self._steps_back_until_s

        def start() -> None:
            if is_running:
                self._steps_back_until_s = time.monotonic() + _STEP_BACK_S

        return start

    def unfold_lines(self, width: int, *, paged_from: int | None = None) -> list[str]:
        """Return what `unfold` does in rows of a width, with a diff in its colours, and what the key shows next.

        From `paged_from` rows on they are read in a pager, which takes the keys until it is left.
        """
        lines = safe(self.unfold()).split("\n")
        start = next((n for n, line in enumerate(lines) if line.startswith("@@ ")), len(lines))
        rows = [*wrap_lines(lines[:start], width), *paint_diff(lines[start:], width, self._ink)]
        if not self.earlier_output:
            return rows
        in_pager = list(wrap_lines([f"(after q, Ctrl-O shows {self.earlier_output})"], width))
        if paged_from is not None and len(rows) + len(in_pager) >= paged_from:
            return [*rows, *in_pager]
        return [*rows, *wrap_lines([f"(Ctrl-O again: {self.earlier_output})"], width)]

    # -- the live part -----------------------------------------------------------------------------------------------

    def live(self, *, width: int, rows: int) -> str:
        """Return what is still happening, as at most `rows` lines."""
        lines = self._live_block(width) if self._streams else []
        if lines and self._has_gap:
            lines = ["", *lines]
        if self._shows_reasoning and self._thought:
            lines = [*lines, *(self._ink.dim(line) for line in self._thought.split("\n")[-3:])]
        now_s = time.monotonic()
        lines += self._work.lines(width)
        if self._activity is not None and not self._work.is_waiting and not self._blocks.live.strip():
            what, began = self._activity
            lines.append(self._ink.dim(f"{_spinner(now_s)} {what} … {now_s - began:.0f} s"))
        return "\n".join(lines[-rows:]) if rows > 0 else ""

    def _live_block(self, width: int) -> list[str]:
        text = self._blocks.live
        if not text.strip():
            return []
        if len(text) > _PAINT_CHARS:
            # From a place that moves in steps: rows that are on the screen stay as they are.
            start = (len(text) - _PAINT_CHARS) // _PAINT_CHARS * _PAINT_CHARS
            return _wrap_lines(safe(text[start:]), width)
        now_s = time.monotonic()
        is_due = now_s - self._drawn_at_s >= _PAINT_EVERY_S or not text.startswith(self._drawn[0][0][:_SAME_CHARS])
        if self._drawn[0] != (text, width) and is_due:
            self._drawn = ((text, width), self._render_markdown(text, width))
            self._drawn_at_s = now_s
        return self._drawn[1].rstrip("\n").split("\n")

    # -- inside ------------------------------------------------------------------------------------------------------

    def _take(self, text: str) -> None:
        """Prints what is finished as it comes, or keeps all of it for the end where that is wanted."""
        if self._streams:
            self._print(self._blocks.feed(text))
        else:
            self._unseen += text

    def _print(self, blocks: list[MarkdownBlock]) -> None:
        for block in blocks:
            rendered = self._render_markdown(block.markdown, self._width())
            if rendered:
                self._write(f"\n{rendered}" if self._has_gap else rendered)
            self._has_gap = not block.source.rstrip("\n ") or block.source.endswith("\n\n")
        if blocks:
            self.idle()

    def _render_markdown(self, markdown: str, width: int) -> str:
        from perdure.cli.chat.markdown_render import (
            render_markdown,  # rich costs a fifth of a second: not before the first answer
        )

        return render_markdown(markdown, width=width, is_color=self._ink.is_color)

    def _think(self, text: str) -> None:
        if self._thinks_since_s is None:
            self._thinks_since_s = time.monotonic()
        if not self._shows_reasoning:
            return
        *whole, self._thought = (self._thought + safe(text)).split("\n")
        for line in whole:
            self._write(self._ink.dim(line) + "\n")

    def _end_thinking(self) -> None:
        if self._thinks_since_s is None:
            return
        took_s = time.monotonic() - self._thinks_since_s
        rest, self._thought, self._thinks_since_s = self._thought, "", None
        if rest:
            self._write(self._ink.dim(rest) + "\n")
        if not self._shows_reasoning:
            self._write(self._ink.dim(f"thought for {took_s:.0f} s") + "\n")

    def _end_text(self, *, is_cut: bool = False) -> None:
        self._end_thinking()
        unseen, self._unseen = self._unseen, ""
        self._print([*self._blocks.feed(unseen), *self._blocks.end(is_cut=is_cut)])
        self._has_gap = False

    def _show_call(self, event: ToolFinished) -> None:
        call, helper = event.call, self._work.helper(event.helper)
        if helper is not None:
            line = finished_line(event, None, self._ink, width=self._width() - 4)
            self._write(f"  {self._ink.dim(str(helper.number))} {line}")
        elif call.name == "todo" and self._work.plan and not event.is_error:
            self._has_new_plan = True
            self._write_words(f"● {plan_summary(self._work.plan)}", self._ink.good)
        else:
            self._write(finished_line(event, self._spilled.pop(call.id, None), self._ink, width=self._width()))
            self._show_output(event)

    def _show_helper(self, event: HelperStarted | HelperFinished) -> None:
        helper = self._work.helper(event.helper)
        if helper is None:
            return
        if isinstance(event, HelperStarted):
            self._end_text()
            self._write_words(f"◇ helper {helper.number}: {helper.task}", self._ink.key)
            return
        end = "done" if event.outcome == "completed" else f"ended ({event.outcome})"
        steps = f"{helper.steps} step{'' if helper.steps == 1 else 's'}"
        self._write(self._ink.dim(f"◇ helper {helper.number} {end} · {event.seconds:.1f} s · {steps}") + "\n")

    def _show_output(self, event: ToolFinished) -> None:
        self._keep_result(event)
        for line in output_lines(
            event, most=self._tool_lines, width=self._width(), ink=self._ink, can_unfold=self._can_unfold
        ):
            self._write(f"{line}\n")

    def _note_spill(self, event: OutputSpilled) -> None:
        """Report a spill on its tool's line, or on a separate line if that one is printed already."""
        if self._work.is_running(event.call):
            self._spilled[event.call.id] = event
        else:
            self._write(spilled_line(event, self._ink))

    def _tell(self, event: Event) -> None:
        self._end_text()
        self.idle()
        if (status := status_text(event)) and not self._is_answered:
            if isinstance(event, CompactionFinished) and event.outcome in ("compacted", "digest"):
                status = f"{status} /handoff shows it."
            is_loud = isinstance(event, Recovered | RetryScheduled) or (
                isinstance(event, Notice) and event.level == "warning"
            )
            self._write_words(f"· {safe(status)}", self._ink.warn if is_loud else self._ink.dim)

    def _write_words(self, text: str, in_colour: Callable[[str], str]) -> None:
        """Our own words, wrapped between them."""
        self._write("".join(f"{in_colour(line)}\n" for line in fit_lines(text.split("\n"), self._width())))

    def _finish(self, event: TurnFinished) -> None:
        self.stop(is_cut=event.outcome in ("interrupted", "failed"))
        if self._has_new_plan and not is_plan_done(self._work.plan):
            lines = [plan_summary(self._work.plan), *plan_lines(self._work.plan)]
            self._write_words("\n".join(lines), self._ink.dim)
        self._has_new_plan = False
        if event.outcome == "failed":
            self._write_words(safe(runnable(event.error or "the turn failed")), self._ink.bad)
        elif event.outcome == "interrupted":
            self._write(self._ink.dim("■ stopped; the conversation is kept") + "\n")
        elif line := _missing_answer(event):
            self._write_words(f"· {line}", self._ink.warn)
        self._write("\n")


def _missing_answer(event: TurnFinished) -> str:
    """Return a line about a completed turn without an answer, and why; "" for one that has an answer."""
    if event.finish == "refusal":
        return "The model refused to answer."
    if event.finish == "content_filter":
        return "A content filter of the provider cut the answer off."
    return "The model gave no answer. /retry asks again." if event.missing_answer == "no_answer" else ""


def _spinner(now_s: float) -> str:
    return "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"[int(now_s * 8) % 10]


def _wrap_lines(text: str, width: int) -> list[str]:
    """Wrap text to lines narrower than the terminal, between words where there are any."""
    width = max(1, width - 1)
    rows: list[str] = []
    for line in text.split("\n"):
        start = 0
        while len(line) - start > width:
            blank = line.rfind(" ", start + 1, start + width + 1)
            end = blank if blank > 0 else start + width
            rows.append(line[start:end])
            start = end + (blank > 0)
        rows.append(line[start:])
    return rows
