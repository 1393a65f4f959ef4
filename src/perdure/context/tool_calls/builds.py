"""Read the output of builds, linters and type checkers: errors with file and line, or that there were none."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perdure.context.tool_calls.call_line import NO_FACTS, CallFacts, TestRun
from perdure.context.tool_calls.output import (
    CallFinding,
    OutputView,
    clip_middle,
    count_noun,
    join_rows,
    one_line,
    shorten_paths,
    unique,
)
from perdure.context.tool_calls.test_runs import JS_LOCATION

_MAX_ERRORS = 40

# What a compiler or linter reports of a line, whatever its language.
_COMPLAINS = re.compile(
    r"(?i)error|warn|fail|expect|undefined|undeclared|unused|unresolved|unknown|unreachable|invalid|illegal|missing|"
    r"mismatch|incompatible|redeclared|redefin|duplicate|deprecated|syntax|cannot|can't|could not|not |no |must|should|"
    r"does ?n't|is ?n't|has no|too (?:many|few|long)|assert|panic|exception|shadow|\b[A-Z]{1,4}\d{3,5}\b"
)

# "[lint:go] " and the like: task runners that prefix each line.
_PREFIX = r"(?:\[[\w:.@/-]{1,40}\] )?"
_LOCATION = re.compile(
    rf"^\s*{_PREFIX}(?:ERROR in |error: |\[ERROR\] )?"
    r"((?:[A-Za-z]:)?[\w./@+~\\-]*[\w@+~-]\.[A-Za-z]\w{0,7}|[\w./-]*Makefile)"
    r"(?::(\d+)(?::(\d+))?|\((\d+)(?:,(\d+))?\))(?::\s*|\s+-\s+|\s+)(\S.*)$"
)
_DIAGNOSTIC = re.compile(
    r"(?i)(?:fatal |syntax |type )?(?:error|warning)\b|undefined\b|undeclared\b|[A-Z]{1,6}-?\d{2,5}\b|"
    r"\w+(?:Error|Exception)\b"
)
_LOCATED = re.compile(r"\S+:\d+: ")
_WARNING = re.compile(r"(?i)^(?:warning|note|info|remark|help)\b")
_RUST = re.compile(r"^(error(?:\[\w+\])?: (?!test failed, to rerun).+)$")
_RUST_LOCATION = re.compile(r"^\s*--> (\S+:\d+):\d+")
_RUFF_HEAD = re.compile(r"^([A-Z]{1,5}\d{3,4}) (?:\[\*\] )?(\S.*)$")
_ESLINT_FILE = re.compile(r"^(?:/|\w:|\.{0,2}/)?[\w./@-]+\.\w{1,5}$")
_ESLINT_ERROR = re.compile(r"\d\s++error\s")
_ESLINT = re.compile(r"^\s+(\d+):\d+\s+error\s++(.+?)(?:(?<!\s)\s{2,}+(\S++))?$")
_PLAIN = re.compile(
    rf"^{_PREFIX}\s*(FAILED: .+|ninja: (?:error|build stopped).+|make(?:\[\d+\])?: \*\*\* .+|"
    r".*undefined reference to .+|ld: .+|collect2: error.+|CMake Error.+|npm (?:ERR!|error) .+|"
    r"BUILD FAILED.*|error: (?!test failed, to rerun).+|ERROR: .+|fatal error: .+|Error: .+|.*: command not found.*|"
    r"would reformat .+|\[error\] .+|panic: .+|.*cannot find module .+|Traceback .+|\w*Error: .+)$"
)
_TOTAL = re.compile(
    rf"^{_PREFIX}(\d+ (?:issues?|errors?|problems?|warnings?)(?: generated)?[.:]?(?: .*)?|Found \d+ errors?.*|"
    r"Success: no issues.*|All checks passed!?|[✖✗] \d+ problems?.*|BUILD SUCCESS.*|"
    r"\d+ files? (?:would be )?(?:re|left )?(?:formatted|unchanged).*|"
    r"Build succeeded.*|Compiled successfully.*|✓ built in .*|Finished (?:`\w+` profile|dev|release|test) .*|"
    r"ninja: no work to do.*|"
    r"Checked \d+ files.*|No (?:errors|issues) found.*|Successfully (?:built|installed|tagged) .*|up to date, .*|"
    r"added \d+ packages?.*|\[100%\] Built target .*|(?:warning|error): `\S+` .*generated \d+.*|could not compile .*)$",
    re.M,
)
_GOOD_TOTAL = re.compile(
    r"(?i)^(?:0 |success|all checks|build succe|compiled succ|✓|finished|no (?:errors|issues)|added|up to date)"
)


def read_build(view: OutputView, *, is_strict: bool) -> CallFinding | None:
    """Read the errors of a build; with `is_strict` only lines with file:line, for commands that may not be builds."""
    errors = _errors(view, is_strict=is_strict)
    if is_strict and not view.exit_code and not any(map(_COMPLAINS.search, errors)):
        # Lines of a log or of a search, with the file and line they are from.
        errors = []
    totals = [m[1].strip() for m in _TOTAL.finditer(view.text)]
    if view.exit_code == 0:
        errors = [e for e in errors if "error" in e.lower() or not totals]
    is_failure = bool(errors) and not (totals and _GOOD_TOTAL.match(totals[-1]) and not view.exit_code)
    if not is_failure:
        if is_strict or not totals:
            return None
        is_install = re.match(r"(?:added|up to date|Successfully installed)", totals[-1]) is not None
        facts = NO_FACTS if is_install else CallFacts(tests=TestRun(passed=None, failed=0))
        return CallFinding(one_line(totals[-1], 100), (), facts, False, 0.3)
    located = [e for e in errors if _LOCATED.match(e)]
    errors = located + [e for e in errors if not _LOCATED.match(e)]
    first = errors[0]
    total = next((t for t in reversed(totals) if not _GOOD_TOTAL.match(t)), "")
    count = total or count_noun(len(located or errors), "error") + view.extent.limits
    return CallFinding(
        headline=f"{one_line(count, 60).rstrip('.:')}: {clip_middle(shorten_paths(first), 180)}",
        rows=tuple(join_rows(errors, limit=950, row_chars=260)),
        facts=CallFacts(tests=TestRun(None, len(errors), tuple(errors[:_MAX_ERRORS])), error=one_line(first, 240)),
        is_failure=True,
        worth=0.75,
        title=one_line(count, 60).rstrip(".:"),
    )


def _errors(view: OutputView, *, is_strict: bool) -> list[str]:
    errors: list[str] = []
    lines, text = view.lines, f"\n{view.text}"
    # Of most formats an output has nothing at all.
    has_places, has_eslint, may_be_rust = "--> " in text, _ESLINT_ERROR.search(text) is not None, "\nerror" in text
    eslint_file = ""
    for number, line in enumerate(lines):
        if (match := _LOCATION.match(line)) is not None:
            message = match[6]
            is_remark = _WARNING.match(message) or message.startswith(("In function", "In file", "At ", ": #", "# "))
            # What a Go test logs is indented, with the line alone; the compiler names the column, too.
            is_log = match[1].endswith(".go") and match[3] is None and (line[0] in " \t" or " INFO " in message)
            if message.count("`") % 2:
                # A quoted text of several lines.
                message = " ".join([message, *lines[number + 1 : number + 5]]).split("^", 1)[0]
            # In the output of any program a line with a file and a line number is an error if it has the form of one.
            is_loose = (
                is_strict and not view.exit_code and not (match[3] or match[5]) and not _DIAGNOSTIC.match(message)
            )
            if not is_remark and not is_log and not is_loose:
                errors.append(f"{match[1]}:{match[2] or match[4]}: {one_line(message, 220)}")
        elif may_be_rust and (match := _RUST.match(line)) is not None:
            location = _following_location(lines, number)
            errors.append(f"{location}: {match[1]}" if location else match[1])
        elif (
            has_places
            and (match := _RUFF_HEAD.match(line)) is not None
            and (location := _following_location(lines, number))
        ):
            errors.append(f"{location}: {match[1]} {match[2]}")
        elif eslint_file and (match := _ESLINT.match(line)) is not None:
            errors.append(f"{eslint_file}:{match[1]}: {match[2]}" + (f" ({match[3]})" if match[3] else ""))
        elif has_eslint and _ESLINT_FILE.match(line):
            eslint_file = line
        elif not is_strict and _PLAIN.match(line) is not None:
            errors.append(_with_frame(one_line(line, 260), lines[number + 1 : number + 4]))
    return unique(errors)


def _with_frame(error: str, following: Sequence[str]) -> str:
    """Return an error with the place in the code that the stack trace below it begins with."""
    frame = next((m for x in following if x.lstrip().startswith("at ") and (m := JS_LOCATION.search(x))), None)
    return f"{frame[1]}: {error}" if frame is not None else error


def _following_location(lines: tuple[str, ...], number: int) -> str:
    """Return the `--> file:line` that belongs to the message before it."""
    for line in lines[number + 1 : number + 4]:
        if (match := _RUST_LOCATION.match(line)) is not None:
            return match[1]
    return ""
