"""Bounded views of tool output; the text operations that every kind of call needs; calls that never ended.

Results may have megabytes in one line, escape sequences and control characters. `read_output` reduces them once, in
linear time, to a text that the other modules may search freely. A call may not have run, or not have ended: refused by
the user, a guard or a hook, interrupted, in the background.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from perdure.context.tool_calls.call_line import NO_FACTS, CallFacts, Outcome
from perdure.context.tool_calls.output_extent import WHOLE, OutputExtent, find_notes, read_extent, without_notes
from perdure.core.messages import ToolState

LINE_CHARS = 160
DETAIL_CHARS = 1_200
DATA_CHARS = 2_000
# Of a report or a plan, which is kept as prose.
MAX_REPORT_CHARS = 24_000
_MAX_ROWS = 28
_COUNT_OF_MORE = re.compile(r"… (\d{1,9}) more")
# A result of more characters or lines is reduced to its head, its tail and the marked lines between them.
_WHOLE_CHARS = 64_000
_WHOLE_LINES = 2_500
_WINDOW_CHARS = 24_000
_WINDOW_LINES = 800
_MARKED_CHARS = 24_000
_HITS_PER_MARK = 24
_LONG_LINE = 2_000
_MARKS = (
    "FAIL", "rror", "ERROR", "panic", "xception", "\nE  ", " passed", "CONFLICT", "not ok", "Warning ",
    '" 50', "[crit]", "FATAL", "CRITICAL",
)  # fmt: skip
# A stack trace below a marked line, up to this many lines.
_TRACE_LINES = 30
_IN_TRACE = (" ", "\t", "Traceback", "Caused by")

# A line is cut between words, unless the word at the cut is longer.
_LONGEST_WORD = 24
_BOUNDARY = re.compile(r"[ /]")
_DANGLING = " ,;:–—-=(<[{“‘\"'`"
_PAIRED = re.compile(r"[()\[\]{}“”\"`]")
_CLOSING = {"(": ")", "[": "]", "{": "}", "“": "”", '"': '"', "`": "`"}
_MOST_CLOSING = 4

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)|[@-_])?")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200b-\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# How shells of different agents report the exit status, before the output and after it.
_RAN = re.compile(
    r"(?:Exit code|Exit status|exit code:) (-?\d{1,3})\b\n?|\[exit (-?\d{1,3})\]\n?|\[ended by signal (\d+)\]\n?|"
    r"(?:Chunk ID: [^\n]*\n)?(?:Wall time: [^\n]*\n)?(?:Exit code:|Process exited with code) (-?\d{1,3})\n"
    r"(?:(?:Wall time|Original token count|Total output lines): [^\n]*\n)*Output:\n"
)
_ENDED = re.compile(
    r"(?:^|\n)(?:\[?\(?"
    r"(?:(?:Command|Process) (?:exited|failed) with |The command completed with |[Ee]xited with |[Ee]xit )(?:exit )?"
    r"(?:[Cc]ode|status):? (-?\d{1,3})\b[^\n]{0,20}(?:\nSignal: [^\n]*)?(?:\n[\w ]{3,24}: [^\n]{0,80}){0,3}|"
    r"\W{0,4}(?:EXIT|Exit|exit|RC|rc|EXIT_CODE|exit_code)\s?[:=]\s?(\d{1,3})\W{0,4})\Z"
)
_PERSISTED = re.compile(
    r"\s*<persisted-output>\s*(?:The output is (?P<size>[\d,]+ characters)[^\n]*?(?: in (?P<lines>[\d,]+) lines?)?, "
    r"too [^\n]* kept at (?P<address>\S+?)(?: \([^\n]*\))?\.\nRead parts with [^\n]*\n|"
    r"(?P<part>[\d,]+ characters) from [^\n]*?(?: \(lines (?P<first>\d+)-(?P<last>\d+)\))? did not fit [^\n]*\n|"
    r"Output too large(?: \((?P<kb>[^)\n]{1,20})\))?[^\n]* saved to: (?P<file>\S+)\s+Preview \([^\n]*)"
)
_TOTAL_LINES = re.compile(r"Total output lines: (\d+)")
_TEXT_PART = re.compile(r'\[\s*\{\s*"type"\s*:\s*"text"')
_EXIT_HINT = re.compile(r"\b(?:rc|RC)")
_PREVIEW_MARK = re.compile(r"^(?:First [\d,]+ characters:|Last [\d,]+:)\n", re.M)
_LONG_LOCATION = re.compile(r"(?<!\S)[^\s:]{37,}(?=:\d)")
_CODE_LOCATION = re.compile(r"(?<![\w./@+-])[\w./@+-]*[\w-]\.[A-Za-z]\w{0,4}:\d+(?!\.?\w)")
_CWD_RESET = re.compile(r"\n?Shell cwd was reset to ([^\n]{1,300})\s*\Z")


@dataclass(frozen=True, slots=True)
class CallFinding:
    """The finding of one reader of an output: a headline for the line, rows of detail, and facts."""

    headline: str
    rows: tuple[str, ...] = ()
    facts: CallFacts = NO_FACTS
    is_failure: bool = False
    worth: float = 0.3
    # The headline above the rows, where these repeat the headline of the line.
    title: str | None = None
    # The rows are values, which nothing else may tell: they have more room.
    is_data: bool = False


@dataclass(frozen=True, slots=True)
class OutputView:
    """The output of a command, bounded and without escape sequences; `raw` is all that the result holds of it."""

    raw: str
    text: str
    lines: tuple[str, ...]
    total_lines: int
    exit_code: int | None = None
    folder: str = ""
    # Where the whole output is stored, if only its ends were shown.
    address: str = ""
    extent: OutputExtent = WHOLE

    @property
    def size(self) -> str:
        """The size of the whole output as far as it is known."""
        return self.extent.describe(self.total_lines)


@dataclass(frozen=True, slots=True)
class OpenedOutput:
    """All that a result holds of an output, without what wraps it."""

    raw: str
    exit_code: int | None
    folder: str
    address: str
    extent: OutputExtent

    def view(self) -> OutputView:
        """Reduce the output to what may be searched."""
        visible, total, extent = _without_notes(self.raw, self.extent)
        text = plain_text(_cut_long_text(visible))
        lines = tuple(filter(None, map(str.rstrip, text.split("\n"))))
        return OutputView(self.raw, "\n".join(lines), lines, total, self.exit_code, self.folder, self.address, extent)


def read_output(result: str) -> OutputView:
    """Reduce a result to what may be searched: bounded, plain text, with its exit status apart."""
    return open_output(result).view()


def open_output(result: str) -> OpenedOutput:
    """Take an output from its result, with its exit status apart."""
    exit_code, raw = _unwrap(result)
    folder = ""
    raw = without_reminders(raw)
    extent = WHOLE
    if (match := _RAN.match(raw)) is not None:
        if (whole := _TOTAL_LINES.search(match[0])) is not None:
            extent = OutputExtent("some", int(whole[1]))
        exit_code = int(next(filter(None, match.groups()), "0")) * (-1 if match[3] else 1)
        raw = raw[match.end() :]
    else:
        tail = raw[-400:].rstrip()
        if _may_tell_exit(tail) and (match := _ENDED.search(tail)) is not None:
            exit_code = int(match[1] or match[2])
            raw = raw[:-400] + tail[: match.start()]
    if "Shell cwd" in raw[-400:] and (match := _CWD_RESET.search(raw[-400:])) is not None:
        folder = match[1]
        raw = raw[:-400] + raw[-400:][: match.start()]
    address = ""
    if (match := _PERSISTED.match(raw[:1_200])) is not None:
        address = match["address"] or match["file"] or ""
        extent = _stored_extent(match)
        raw = _PREVIEW_MARK.sub("", raw[match.end() :].rstrip().removesuffix("</persisted-output>"))
    return OpenedOutput(raw, exit_code, folder, address, extent)


def _stored_extent(match: re.Match[str]) -> OutputExtent:
    """Return the size of an output of which a preview is left."""
    lines = int(match["lines"].replace(",", "")) if match["lines"] else None
    if match["last"]:
        lines = int(match["last"]) - int(match["first"]) + 1
    return OutputExtent("some", lines, match["size"] or match["part"] or match["kb"] or "")


def _without_notes(raw: str, extent: OutputExtent) -> tuple[str, int, OutputExtent]:
    """Separate the notes about what was left out from an output; return it with its lines and its extent."""
    total = count_lines(raw)
    if notes := find_notes(raw):
        noted = extent if extent.is_partial else read_extent(notes, total)
        visible, gaps = without_notes(raw)
        return visible, count_lines(visible) - gaps, noted
    return raw, total, WHOLE if extent.lines is not None and total >= extent.lines else extent


def _may_tell_exit(tail: str) -> bool:
    if "xit" in tail or "XIT" in tail:
        return True
    return ("rc" in tail or "RC" in tail) and _EXIT_HINT.search(tail) is not None


def _unwrap(result: str) -> tuple[int | None, str]:
    """Take the output from JSON: {"output": "…", "exit_code": 0, "error": null}, or a list of text parts."""
    head = result[:200].lstrip()
    if head.startswith("[") and _TEXT_PART.match(head) and isinstance(parts := parse_json(result), list):
        texts = [p["text"] for p in parts if isinstance(p, dict) and isinstance(p.get("text"), str)]
        return None, "\n".join(texts) if texts else result
    if not head.startswith("{") or not re.match(r'\{\s*"(?:output|stdout|exit_code|success|error)"\s*:', head):
        return None, result
    body = parse_json(result)
    if not isinstance(body, dict) or not ("output" in body or "stdout" in body):
        return None, result
    outputs = [body.get(k) for k in ("output", "stdout", "stderr", "error")]
    code = body.get("exit_code", body.get("returncode"))
    return code if isinstance(code, int) else None, "\n".join(t for t in outputs if isinstance(t, str) and t)


def parse_json(text: str) -> object:
    """Parse a JSON document of a bounded size; None where it is not one."""
    if len(text) > 400_000:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def without_reminders(text: str) -> str:
    """Remove what an agent appends to results on its own account."""
    if "<system-reminder>" not in text[-6000:]:
        return text
    tail = text.rstrip()
    while tail.endswith("</system-reminder>") and (start := tail.rfind("<system-reminder>", len(tail) - 6000)) >= 0:
        tail = tail[:start].rstrip()
    return tail


def count_lines(text: str) -> int:
    stripped = text.rstrip()
    return stripped.count("\n") + 1 if stripped else 0


def _cut_long_text(text: str) -> str:
    if len(text) <= _WHOLE_CHARS and text.count("\n") <= _WHOLE_LINES:
        return text
    start = min(_WINDOW_CHARS, len(text) // 2)
    end = max(len(text) - _WINDOW_CHARS, start)
    position = -1
    for _ in range(_WINDOW_LINES):
        position = text.find("\n", position + 1, start)
        if position < 0:
            break
    start = position if position >= 0 else start
    position = len(text)
    for _ in range(_WINDOW_LINES):
        position = text.rfind("\n", end, position)
        if position < 0:
            break
    end = position if position >= 0 else end
    # Whole lines, so that half a line is not read as one.
    if (newline := text.rfind("\n", max(0, start - _LONG_LINE), start)) > 0:
        start = newline
    if (newline := text.find("\n", end, end + _LONG_LINE)) > 0:
        end = newline
    return "\n".join([text[:start], *_marked_lines(text, start, end), text[end:]])


def _marked_lines(text: str, start: int, end: int) -> list[str]:
    """Return the lines with a mark of failure between two offsets, each with the two lines that follow it."""
    spans: dict[int, int] = {}
    for mark in _MARKS:
        position = start
        for _ in range(_HITS_PER_MARK):
            position = text.find(mark, position, end)
            if position < 0:
                break
            low = max(text.rfind("\n", max(start, position - 400), position + 1) + 1, position - 200, start)
            spans[low] = min(_end_of_report(text, position, end), low + 1_200)
            newline = text.find("\n", position + len(mark), end)
            if newline < 0:
                break
            position = newline
    pieces: list[str] = []
    used = last = 0
    for low in sorted(spans):
        high = spans[low]
        if high <= last or used > _MARKED_CHARS:
            continue
        pieces.append(text[max(low, last) : high])
        used += high - max(low, last)
        last = high
    return pieces


def _end_of_report(text: str, position: int, end: int) -> int:
    """Return the offset behind the two lines that follow a marked one, or behind the stack trace there."""
    high = position
    for number in range(_TRACE_LINES):
        high = text.find("\n", high + 1, end)
        if high < 0:
            return end
        if number >= 2 and not text.startswith(_IN_TRACE, high + 1):
            break
    return high


def plain_text(text: str) -> str:
    """Remove escape sequences and carriage returns, and shorten lines without end."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if len(text) > _LONG_LINE and any(len(line) > _LONG_LINE for line in text.split("\n")):
        text = "\n".join(clip_middle(line, 1_200) if len(line) > _LONG_LINE else line for line in text.split("\n"))
    return text


def printable(text: str) -> str:
    """Remove what is not text, such as control characters, marks of direction and lone surrogates."""
    return _CONTROL.sub("", plain_text(text))


def one_line(text: str, limit: int) -> str:
    """Return the beginning of a text on one line, cut between words, with an ellipsis where it was cut."""
    piece = " ".join(text[: 4 * limit + 200].split())
    if len(piece) > limit:
        return _cut_line(piece, limit)
    return piece + "…" if len(text) > 4 * limit + 200 else piece


def _cut_line(piece: str, limit: int) -> str:
    """Cut a line, leaving neither half a word nor an open bracket or quote."""
    end = limit - 1
    space = piece.rfind(" ", max(limit // 2, end - _LONGEST_WORD), end + 1)
    head = piece[: space if space > 0 else end].rstrip(_DANGLING)
    closing = _closing(head)
    if closing and len(head) + len(closing) + 1 > limit:
        head = head[: limit - 1 - len(closing)].rstrip(_DANGLING)
        closing = _closing(head)
    return f"{head}…{closing}"


def _closing(text: str) -> str:
    """Return the brackets and quotes that close those which a text leaves open, if they are few."""
    opened: list[str] = []
    for mark in _PAIRED.findall(text):
        if opened and mark == opened[-1]:
            opened.pop()
        elif mark in _CLOSING:
            opened.append(_CLOSING[mark])
    return "".join(reversed(opened)) if len(opened) <= _MOST_CLOSING else ""


def clip_middle(text: str, limit: int) -> str:
    """Both ends of a text that is longer than `limit`, cut between words or names of a path."""
    if len(text) <= limit:
        return text
    tail_chars = limit // 3
    end, start = limit - tail_chars - 3, len(text) - tail_chars
    word = min(_LONGEST_WORD, limit // 4)
    space = max(text.rfind(" ", end - word, end + 1), text.rfind("/", end - word, end + 1))
    match = _BOUNDARY.search(text, start - 1, start + word)
    end, start = space if space > 0 else end, match.start() if match is not None else start
    return f"{text[:end].rstrip()} … {text[start:].lstrip()}"


def find_locations(text: str) -> list[str]:
    """Return the places in code that a text names as file:line."""
    return [m[0] for m in _CODE_LOCATION.finditer(text)]


def clip_located(text: str, limit: int) -> str:
    """Return both ends of a text on one line, and the file:line that its middle names."""
    piece = " ".join(text[:4_000].split())
    if len(piece) <= limit:
        return piece
    locations = [p for p in find_locations(piece)[-2:] if len(p) < limit // 2]
    clipped = clip_middle(piece, limit)
    missing = [p for p in locations if p not in clipped]
    return f"{clip_middle(piece, limit - len(missing[-1]) - 3)} … {missing[-1]}" if missing else clipped


def clip_path(path: str, limit: int) -> str:
    """Return the last folders and the name of a path that is longer than `limit`."""
    if len(path) <= limit:
        return path
    at = path.find("/", len(path) - limit + 1)
    if at < 0 and len(name := path.rsplit("/", 1)[-1]) <= 2 * limit:
        return name
    return f"…{path[at:]}" if at >= 0 else clip_middle(path, limit)


def shorten_paths(text: str) -> str:
    """Shorten the long paths before a line number, which would fill a line."""
    return _LONG_LOCATION.sub(lambda m: clip_path(m[0], 36), text)


def join_rows(rows: Iterable[str], *, limit: int, row_chars: int = 240) -> list[str]:
    """Rows within a number of characters; the last one counts those that did not fit."""
    out: list[str] = []
    used = 0
    every = [r for r in rows if r.strip()]
    for number, row in enumerate(every):
        piece = row if len(row) <= row_chars else clip_middle(row, row_chars)
        if out and (used + len(piece) > limit or len(out) >= _MAX_ROWS):
            # The last row may count some already.
            counted = _COUNT_OF_MORE.fullmatch(every[-1])
            more = len(every) - number + (int(counted[1]) - 1 if counted is not None else 0)
            out.append(f"… {more} more")
            break
        out.append(piece)
        used += len(piece) + 1
    return out


def count_noun(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def unique(values: Iterable[str]) -> list[str]:
    """Return the values without repetition, in order."""
    return list(dict.fromkeys(values))


def list_names(names: Sequence[str], limit: int) -> str:
    """Names separated by commas, with a count of those that do not fit."""
    out: list[str] = []
    used = 0
    for number, name in enumerate(names):
        if out and used + len(name) > limit:
            return f"{', '.join(out)} and {len(names) - number} more"
        out.append(name)
        used += len(name) + 2
    return ", ".join(out)


def merge_facts(parts: Sequence[CallFacts]) -> CallFacts:
    """Combine facts: tuples are joined, of single values the last non-empty one counts."""
    parts = [p for p in parts if p is not NO_FACTS]
    if len(parts) <= 1:
        return parts[0] if parts else NO_FACTS
    values: dict[str, Any] = {}
    for name in _FACT_NAMES:
        given = [v for p in parts if (v := getattr(p, name)) not in ("", None, ())]
        if given:
            is_joined = isinstance(given[0], tuple) and name != "plan"
            values[name] = tuple(dict.fromkeys(x for v in given for x in v)) if is_joined else given[-1]
    return replace(NO_FACTS, **values)


_FACT_NAMES = tuple(f.name for f in fields(CallFacts))


_HEAD_CHARS = 600
_REASON_CHARS = 4_000

# How Perdure reports a refusal, after the name of the tool; the group is the reason in the user's own words.
_OWN_REFUSALS = tuple(
    re.compile(pattern, re.S)
    for pattern in (
        r" was not run, the user refused: “(.*)”\. Approval was needed because: ",
        r" was not run, (?:the user refused|no one is available to approve it)[:.] ()",
        r" was stopped by a hook: ()",
    )
)
_NOT_BY_USER = ("no one is available", "by a hook")
# How other agents report one.
_OTHER_REFUSALS = tuple(
    re.compile(pattern, re.S)
    for pattern in (
        r"The user doesn't want to (?:proceed with this tool use|take this action)\b.{0,400}?the user said:\s*(.*)",
        r"The user doesn't want to (?:proceed with this tool use|take this action)\b()",
        r"\[?(?:Request )?(?:denied|rejected|declined) by (?:the )?user(?:: (.*?))?\]?\s*\Z",
        r"(?:Error: )?(?:The )?[Uu]ser (?:has )?(?:rejected|denied|declined|refused|cancell?ed)\b"
        r"[^:\n]{0,120}(?:: ?(.*))?\Z",
        r"(?:Error: )?(?:Permission|Approval) (?:to use \S+ (?:with [^\n]{0,300} )?)?(?:has been )?"
        r"(?:denied|refused|rejected)\b[^:\n]{0,120}(?:: ?(.*))?\Z",
        r"(?:Error: )?(?:Tool|Command|Action)\b[^:\n]{0,60}(?:rejected|denied|refused|declined|blocked) by "
        r"(?:the )?user[^:\n]{0,80}(?:: ?(.*))?\Z",
        r"BLOCKED: (?:User denied|.{0,80}denied by (?:the )?user)()",
    )
)
_REFUSAL_HINTS = (
    b"refused", b"doesn't want", b"denied", b"rejected", b"declined", b"by a hook", b"was not run", b"cancel"
)  # fmt: skip
_INTERRUPT_HINTS = (b"interrupt", b"abort", b"cancel")
_INTERRUPTED = re.compile(
    r"\[Interrupted before it finished|\[stopped: interrupted\]|\[Request interrupted by user|Command aborted\s*\Z|"
    r"(?:Error: )?(?:The )?(?:operation|tool call|command|request) was (?:aborted|interrupted|cancell?ed)|"
    r"Interrupted by user|"
    r"\[(?:Tool )?(?:call )?interrupted\]|\[(?:aborted|cancelled|canceled)\]|Operation aborted"
)
_TIMED_OUT = re.compile(
    r"\[stopped: still running after [^\]]*\]|Command timed out[^\n]*|timed out after [\d.]+ ?\w*|"
    r"was stopped: it took longer than [^\n]*"
)
_BACKGROUND = re.compile(
    r"Command running in background with ID: (\S+?)\.?(?:\s|$)|Started in the background as (\w+)|"
    r"(?:Background|background) (?:process|task|shell|job) (?:started|running)[^\n]{0,60}?"
    r"(?:ID|id|PID|pid|session)[:= ]+(\S+)|"
    r"Command was manually backgrounded by user with ID: (\S+?)\.?(?:\s|$)"
)


@dataclass(frozen=True, slots=True)
class UnfinishedCall:
    """The reason why a call did not run to its end; `words` is the user's reason, word for word."""

    outcome: Outcome
    message: str
    words: str = ""
    is_by_user: bool = True


def read_refusal(
    result: str, *, tool: str, state: ToolState | None, is_foreign: Callable[[], bool]
) -> UnfinishedCall | None:
    """Recognise a refused or interrupted call by its recorded state, or else by its result's beginning or end.

    A call with a state was refused only if that is its state, whatever its result reads like. Without one, where
    `is_foreign` the result may hold a text of another author, such as a page or a file: there no refusal is
    believed, and the words of the user are not taken from it.
    """
    if state == "refused":
        text = one_line(result.strip().removeprefix("Error: "), 300)
        return _read_own(result, tool) or UnfinishedCall("refused", text, is_by_user=False)
    if state == "interrupted":
        return UnfinishedCall("interrupted", "interrupted before it finished")
    # As bytes: text with a sign outside ASCII takes ten times as long to put into lower case.
    head = result[:_HEAD_CHARS].encode("utf-8", "replace").lower()
    if state is None and any(map(head.__contains__, _REFUSAL_HINTS)) and not is_foreign():
        refusal = _read_own(result, tool) or _read_other(result)
        if refusal is not None:
            return refusal
    edges = f"{result[:80]}\n{result[-140:]}".encode("utf-8", "replace").lower()
    if any(map(edges.__contains__, _INTERRUPT_HINTS)):
        start, end = result[:200].lstrip(), result[-140:].rstrip()
        match = _INTERRUPTED.match(start) or _INTERRUPTED.search(end, max(0, len(end) - 60))
        if match is not None:
            return UnfinishedCall("interrupted", "interrupted before it finished")
    return None


def _read_own(result: str, tool: str) -> UnfinishedCall | None:
    text = result[:_REASON_CHARS].strip().removeprefix("Error: ")
    if not tool or not text.startswith(f"{tool} was "):
        return None
    return _match_refusal(_OWN_REFUSALS, text, len(tool))


def _read_other(result: str) -> UnfinishedCall | None:
    return _match_refusal(_OTHER_REFUSALS, result[:_REASON_CHARS].strip(), 0)


def _match_refusal(patterns: Sequence[re.Pattern[str]], text: str, position: int) -> UnfinishedCall | None:
    for pattern in patterns:
        if (match := pattern.match(text, position)) is not None:
            words = (match[1] or "").strip()
            is_by_user = bool(words) or not any(hint in text for hint in _NOT_BY_USER)
            return UnfinishedCall("refused", one_line(words or text, 300), words, is_by_user)
    return None


def read_timeout(result: str) -> str:
    """Return the words of a timeout at either end of a result, or ""."""
    edges = result if len(result) <= 600 else f"{result[:300]}\n{result[-300:]}"
    if "timed out" not in edges and "stopped: " not in edges:
        return ""
    match = _TIMED_OUT.search(edges)
    return one_line(match[0].strip("[]"), 120) if match is not None else ""


def background_process(result: str) -> str:
    """Return the id of a process that was put into the background, or ""."""
    head = result[:400]
    match = _BACKGROUND.search(head) if "ackground" in head else None
    return next(filter(None, match.groups()), "") if match is not None else ""
