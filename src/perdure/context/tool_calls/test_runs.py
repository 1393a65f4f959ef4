"""Read the output of test runs: totals, failures with file and line, or that there were none.

Each reader knows one tool by its own output, because scripts and task runners hide which one ran.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from perdure.context.tool_calls.call_line import NO_FACTS, CallFacts, TestRun
from perdure.context.tool_calls.output import (
    CallFinding,
    OutputView,
    clip_middle,
    count_noun,
    join_rows,
    list_names,
    one_line,
    shorten_paths,
    unique,
)
from perdure.context.tool_calls.output_extent import WHOLE, OutputExtent

_MAX_FAILURES = 40
_MESSAGE_CHARS = 200
_DETAILED_FAILURES = 6
_COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped|xfailed|xpassed|deselected|todo|pending)\b")

# A word has no digit: a table of numbers could be split into counts in countless ways.
_PYTEST_TOTAL = re.compile(r"^=* ?((?:\d+ [^\W\d]+(?:, )?)+|no tests ran) in [\d.:hms]+.*$", re.M)
_PYTEST_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+\.py\S*(?:\[[^\]\n]*\])?)(?: - (.*))?$", re.M)
_PYTEST_VERBOSE = re.compile(r"^(\S+\.py::\S+(?: \S+\])?) (?:FAILED|ERROR)\b", re.M)
_PYTEST_STOP = re.compile(r"^!{3,} (?:_pytest\.outcomes\.)?(.{3,120}?) !{3,}$", re.M)
_PYTEST_HEAD = re.compile(r"^_{3,} (?:ERROR (?:at \w+ of|collecting) )?(\S.*?) _{3,}$")
_PYTEST_LOCATION = re.compile(r"^(\S+\.py):(\d+): ?(.*)$")
_PYTEST_ERROR = re.compile(r"^E {2,}(\S.*)$")

_GO_FAIL = re.compile(r"^[ \t]*--- FAIL: (\S+)", re.M)
_GO_START = re.compile(r"^\s*(?:=== (?:RUN|CONT|PAUSE|NAME)\s+(\S+)|--- (?:PASS|SKIP|FAIL): (\S+)|PASS$|FAIL\b|ok\s)")
_GO_LOG = re.compile(r"\b(?:INFO|DEBUG)\b|: (?:✓|Phase|Step|phase|step)")
_GO_STRONG = re.compile(r"(?i)\b(?:expected|got|want|fail|error|mismatch|unexpected|cannot)")
_GO_LATE = re.compile(r"(?:[Ee]rror|[Ff]ailed to|panic|fatal)\b[^\n]{0,200}$")
_GO_MESSAGE = re.compile(r"^\s+(\S+\.go:\d+): ?(.*)$")
_GO_SAYS = re.compile(
    r"(?i)\b(?:expect|want|got|error|fail|should|must|unexpected|mismatch|missing|not |cannot|could|nil|diff|"
    r"timed? ?out|trace)"
)

_CARGO_TOTAL = re.compile(r"^test result: (?:ok|FAILED)\. (\d+) passed; (\d+) failed", re.M)
_CARGO_FAIL = re.compile(r"^test (\S+)(?: - .*?)? \.\.\. FAILED", re.M)
_CARGO_PANIC = re.compile(r"^thread '([^']+)'.{0,30} panicked at (?:'(.*)', )?(\S+:\d+):\d+", re.M)

_JS_TOTAL = re.compile(r"^\s*Tests:?\s+((?:\d+ \w+(?:, | \| )?)+)", re.M)
_JS_FAIL = re.compile(
    r"^\s*(?:● (?!Console)(\S.*)|(?:FAIL|❯(?!.*:\d+:\d+$)|×|✗|✕|✖)\s+(\S.*? > .*|\S+\.(?:test|spec)\.\w+.*))$"
)
JS_LOCATION = re.compile(r"(?:at .*?\(?|❯ )(?<![\w./@-])([\w./@-]+\.[cm]?[jt]sx?:\d+):\d+\)?")
_JS_ERROR = re.compile(
    r"^\s*(?:[\w.]*Error\b.*|Expected:? .*|Received:? .*|expect\(.*|- Expected.*|thrown: .*|[-+] {3,}\S.*)$"
)
_PLAYWRIGHT_TOTAL = re.compile(r"^\s*(\d+) (passed|failed|flaky|skipped)\b", re.M)
_PLAYWRIGHT_FAIL = re.compile(r"^\s*\d+\) (?:\[[^\]\n]+\] › )?(\S+:\d+):\d+ › (.*?)[ ─]*$", re.M)
_PLAYWRIGHT_ERROR = re.compile(r"^\s*(Error: .*|Expected.*|Received.*|\w*Error: .*)$", re.M)
_MOCHA_TOTAL = re.compile(r"^\s*(\d+) (passing|failing|pending)\b", re.M)
_MOCHA_FAIL = re.compile(r"^\s{2}(\d+)\) (\S.*)$")
_TAP_TOTAL = re.compile(r"^(?:#|ℹ) (pass|fail)\s+(\d+)", re.M)
_TAP_FAIL = re.compile(
    r"^\s*(?:not ok \d+ -? ?(?!.*# (?:TODO|SKIP))(\S.*)|✖ (?!failing tests)(\S.*?)(?: \([\d.]+ms\))?)$", re.M
)
_BUN_TOTAL = re.compile(r"^\s*(\d+) (pass|fail)$", re.M)
_BUN_FAIL = re.compile(r"^\(fail\) (.*?)(?: \[[\d.]+ms\])?$", re.M)

_UNITTEST_TOTAL = re.compile(r"^Ran (\d+) tests? in", re.M)
_UNITTEST_RESULT = re.compile(r"^(?:FAILED \((.*)\)|OK\b.*)$", re.M)
_UNITTEST_FAIL = re.compile(r"^(?:FAIL|ERROR): (\S+(?: \(\S+\))?)")
_PY_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)')
_CTEST_TOTAL = re.compile(r"^(\d+)% tests passed, (\d+) tests? failed out of (\d+)", re.M)
_CTEST_FAIL = re.compile(
    r"^\s*\d+ - (\S.*?) \((?:Failed|Timeout|SEGFAULT|Not Run|Child aborted|Subprocess \w+|Exception.*?)\)",
    re.M,
)
_RSPEC_TOTAL = re.compile(r"^(\d+) examples?, (\d+) failures?", re.M)
_RSPEC_FAIL = re.compile(r"^rspec (\S+:\d+) # (.*)$", re.M)
_RSPEC_ERROR = re.compile(r"^\s+(?:Failure/Error: (.*)|(expected.*|got:? .*))$", re.M)
_JUNIT_TOTAL = re.compile(r"Tests run: (\d+), Failures: (\d+), Errors: (\d+)")
_JUNIT_FAIL = re.compile(r"^\[ERROR\]\s+((\w++)[\w.$]*\.\w++):(\d+)(?:->\S+)? ?(.*)$", re.M)
_JUNIT_NAME = re.compile(r"^\[ERROR\]\s+(?!Tests run)(\S+) .*<<< (?:FAILURE|ERROR)!", re.M)
_DOTNET_TOTAL = re.compile(r"Failed:\s+(\d+), Passed:\s+(\d+)")
_DOTNET_FAIL = re.compile(
    r"^[ \t]*Failed (?=\S+\.\S)(\S++).*+\n[ \t]*Error Message:\n([\s\S]{1,600}?)\n[ \t]*Stack Trace:\n"
    r"(?:.*\n){0,8}?.* in (\S+):line (\d+)",
    re.M,
)
_PHPUNIT_FAIL = re.compile(r"^\d+\) (?=\S+::\S)(\S++).*+\n((?:(?!/).*\n){1,12}?)(/\S+:\d+)$", re.M)
_GRADLE_FAIL = re.compile(
    r"^(\S+ > .+) FAILED$(?:\n\s+(\S.*))?(?:\n\s+at (?!.*\b(?:org\.junit|java\.base)).*\((\w+\.\w+:\d+)\))?", re.M
)
_PHPUNIT_TOTAL = re.compile(
    r"^(?:Tests: (\d+), Assertions: \d+(?:, Errors: (\d+))?(?:, Failures: (\d+))?|OK \((\d+) tests?)", re.M
)


def read_tests(view: OutputView) -> CallFinding | None:
    """Return the finding of the first runner that recognises the output; None where there is no test run in it."""
    text = view.text
    for marks, reader in _READERS:
        if any(m in text for m in marks):
            finding = reader(view)
            if finding is not None:
                return finding
    return None


def _finding(
    passed: int | None,
    failed: int | None,
    failures: list[str],
    extra: str = "",
    scope: str = "",
    notes: Sequence[str] = (),
    counted: OutputExtent = WHOLE,
) -> CallFinding:
    """Compose a finding; `failures` are rows of the form "name — file:line: message", `notes` are other rows.

    `counted` is the part of the output in which tests were counted, where the output has no total of its own.
    """
    failures = unique(failures)[:_MAX_FAILURES]
    count = failed or len(failures)
    parts = [f"{count} failed"] if count else []
    if passed is not None and (passed or not count):
        parts.append(f"{passed} {scope}passed")
    title = (", ".join(filter(None, [*parts, extra])) or "passed") + counted.limits
    rows = join_rows([*_failure_rows(failures), *notes], limit=1_070, row_chars=420)
    headline = title
    if count and rows:
        # The test with a message first, then the names of the others.
        first = max(failures or rows, key=lambda row: " — " in row)
        others = [_name_of(f) for f in failures if f != first]
        headline = f"{title}: {_short_row(first)}" + (f"; {list_names(others, 80)}" if others else "")
    # A number of packages is not a number of tests.
    run = TestRun(None if scope or counted.is_partial else passed, count, tuple(failures))
    # The beginning of a run does not prove that it passed.
    is_proven = count > 0 or counted.part != "first"
    facts = CallFacts(tests=run if is_proven else None, error=failures[0] if failures else "")
    return CallFinding(headline, tuple(rows), facts, count > 0, 0.85 if count else 0.45, title)


def _failure_rows(failures: list[str]) -> list[str]:
    """Every failing test by its name; the more there are, the less room has each message."""
    if sum(map(len, failures)) <= 850:
        return failures
    others = [_name_of(f).rsplit("::", 1)[-1] for f in failures[_DETAILED_FAILURES:]]
    room = 800 // len(failures) if not others else 105
    rows = [one_line(f if len(f) <= room else shorten_paths(f), max(105, room)) for f in failures[:_DETAILED_FAILURES]]
    return [*rows, f"also failed: {list_names(others, 390)}"] if others else rows


def _short_row(row: str) -> str:
    """Return a row for the headline: the name and the path leave room for the message."""
    name, dash, message = row.partition(" — ")
    # The file is named once.
    file, separator, test = name.partition("::") if "::" in name else name.partition(" > ")
    if separator and message.startswith(f"{file}:"):
        name = test
    return one_line(f"{clip_middle(name, 50)}{dash}{shorten_paths(message)}", 150)


def _name_of(failure: str) -> str:
    return clip_middle(failure.split(" — ", 1)[0], 80)


def _row(name: str, location: str, message: str) -> str:
    text = ": ".join(filter(None, (location, one_line(message, _MESSAGE_CHARS if location else 300))))
    return f"{name} — {text}" if text else name


def _read_pytest(view: OutputView) -> CallFinding | None:
    totals = list(_PYTEST_TOTAL.finditer(view.text))
    counts: dict[str, int] = {}
    for match in totals:
        for number, word in _COUNT.findall(match[1]):
            counts[word.rstrip("s") if word.startswith("error") else word] = int(number)
    named = [(m[1], m[2] or "") for m in _PYTEST_FAILED.finditer(view.text)]
    named += [(m[1], "") for m in _PYTEST_VERBOSE.finditer(view.text)]
    if not totals and not named:
        return None
    locations = _pytest_locations(view)
    rows: dict[str, str] = {}
    for name, message in named:
        location, assertion = locations.get(name.rsplit("::", 1)[-1], ("", ""))
        if name not in rows or message:
            rows[name] = _row(name, location, message if len(message) >= len(assertion) else assertion)
    if not rows:
        rows = {name: _row(name, location, message) for name, (location, message) in locations.items()}
    failed = counts.get("failed", 0) + counts.get("error", 0)
    passed = counts.get("passed") if totals else None
    extra = ", ".join(f"{counts[w]} {w}" for w in ("skipped", "xfailed", "deselected") if counts.get(w))
    if totals and "no tests ran" in totals[-1][1]:
        extra = "no tests ran"
    stop = _PYTEST_STOP.search(view.text)
    if stop is not None:
        extra = ", ".join(filter(None, (extra, one_line(stop[1], 60))))
    notes: list[str] = []
    if rows and not any(" — " in row for row in rows.values()):
        notes = unique(x[1:].strip() for x in view.lines if x.startswith("E  "))[:4]
    counted = WHOLE if totals else view.extent
    finding = _finding(passed, failed, list(rows.values()), extra, notes=notes, counted=counted)
    # A run that was interrupted proves nothing about the tests that it did not reach.
    return finding if stop is None or finding.is_failure else replace(finding, facts=NO_FACTS)


def _pytest_locations(view: OutputView) -> dict[str, tuple[str, str]]:
    """Return the file:line and the error of each test in the section of failures, by the name of its function."""
    locations: dict[str, tuple[str, str]] = {}
    name = message = ""
    for line in view.lines:
        if line[0] == "_" and (match := _PYTEST_HEAD.match(line)) is not None:
            name, message = match[1].rsplit(".", 1)[-1], ""
        elif name and line.startswith("E  ") and (match := _PYTEST_ERROR.match(line)) is not None:
            message = f"{message} {match[1]}" if message and len(message) < _MESSAGE_CHARS else message or match[1]
            locations[name] = (locations.get(name, ("", ""))[0], message)
        elif name and ".py:" in line and (match := _PYTEST_LOCATION.match(line)) is not None:
            locations[name] = (f"{match[1]}:{match[2]}", message or match[3])
    return locations


def _read_go(view: OutputView) -> CallFinding | None:
    lines = view.lines
    packages_ok = max(sum(line.startswith("ok  ") for line in lines), view.raw.count("\nok  \t"))
    broken = [words[1] for line in lines if line.startswith("FAIL\t") and len(words := line.split()) > 1]
    # The view may lack the middle of a long output.
    passed_tests = view.raw.count("--- PASS: ")
    failed_tests = unique(_GO_FAIL.findall(view.raw) or _GO_FAIL.findall(view.text)) if "--- FAIL" in view.text else []
    if not (failed_tests or packages_ok or broken or passed_tests or "PASS" in lines or "FAIL" in lines):
        return None
    notes = [one_line(line, 300) for line in lines if line.startswith(("panic:", "fatal error:"))][:2]
    rows: list[str] = []
    if failed_tests or broken:
        messages = _go_messages(lines)
        if len(failed_tests) == 1 and not messages.get(failed_tests[0]):
            # The output was cut, and with it the line that names the test.
            messages[failed_tests[0]] = messages[""]
        rows = [_row(name, "", _best_message(messages.get(name, []))) for name in failed_tests]
        if len(rows) == 1 and " — " not in rows[0] and notes:
            rows = [_row(rows[0], "", notes.pop(0))]
        has_leaf = {name.rsplit("/", depth)[0] for name in failed_tests for depth in range(1, name.count("/") + 1)}
        rows = [row for row in rows if " — " in row or row not in has_leaf]
        unbuilt = [x.split()[1] for x in lines if x.startswith("FAIL\t") and "[build failed]" in x]
        rows += [f"{package} — build failed" for package in unbuilt]
        if not rows:
            message = _best_message(messages.get("", []))
            rows = [_row(f"package {package}", "", message) for package in broken]
            notes += [] if message else _go_remarks(lines)
    extra = ""
    if not passed_tests and (without := view.raw.count("[no tests to run]")):
        # A package without a test that the filter matches did not pass one.
        packages_ok -= min(without, packages_ok)
        extra = f"no tests to run in {count_noun(without, 'package')}" if packages_ok else "no tests to run"
    scope = "" if passed_tests else "packages " if packages_ok > 1 else "package "
    finding = _finding(passed_tests or packages_ok or None, len(rows), rows, extra, scope, notes, view.extent)
    return replace(finding, facts=NO_FACTS) if extra == "no tests to run" and not rows else finding


def _go_remarks(lines: tuple[str, ...]) -> list[str]:
    return [one_line(x, 240) for x in lines if not _GO_START.match(x) and not x.startswith(("#", "[", "?"))][-3:]


def _go_messages(lines: tuple[str, ...]) -> dict[str, list[str]]:
    """Return what each test logged, by its name; "" for lines before the first name."""
    messages: dict[str, list[str]] = {}
    current = messages.setdefault("", [])
    for line in lines:
        if (match := _GO_START.match(line)) is not None:
            name = match[1] or match[2] or ""
            current = messages.setdefault(name, []) if name or messages[""] is not current else current
        elif (match := _GO_MESSAGE.match(line)) is not None:
            current.append(f"{match[1]}: {match[2]}")
        elif current and len(current[-1]) < 2 * _MESSAGE_CHARS and not _GO_LOG.search(line):
            current[-1] += " " + line.strip()
    return messages


def _best_message(messages: list[str]) -> str:
    """Return the assertions among what a test logged; up to three of them."""
    own = [m for m in messages if "_test.go:" in m[:120] and _GO_SAYS.search(m) and not _GO_LOG.search(m)]
    if not own:
        own = [m for m in messages if not _GO_LOG.search(m)]
        own = [m for m in own if _GO_SAYS.search(m)][-1:] or own[-1:] or _errors_logged(messages[-1:])
    if len(own) > 1:
        own.sort(key=lambda m: _GO_STRONG.search(m) is None)
        return " | ".join(one_line(m, 160) for m in own[:3])
    if own and len(own[0]) > _MESSAGE_CHARS and (late := _GO_LATE.search(own[0])) is not None:
        # A hook's output: the error is its last sentence.
        return f"{one_line(own[0], 60).rstrip('…')} … {late[0].strip()}"
    return own[0] if own else ""


def _errors_logged(messages: Sequence[str]) -> list[str]:
    """Return the place and the error of messages that end in one: what else a test logged is no reason to fail."""
    late = ((_GO_LATE.search(m), m.partition(" ")[0]) for m in messages)
    return [f"{place} … {match[0].strip()}" for match, place in late if match is not None]


def _read_cargo(view: OutputView) -> CallFinding | None:
    totals = [(int(m[1]), int(m[2])) for m in _CARGO_TOTAL.finditer(view.text)]
    names = [m[1] for m in _CARGO_FAIL.finditer(view.text)]
    if not totals and not names:
        return None
    locations: dict[str, str] = {}
    for match in _CARGO_PANIC.finditer(view.text):
        following = view.text[match.end() : match.end() + 400].split("\n")
        message = match[2] or " ".join(x.strip() for x in following[1:4] if not x.startswith(("note:", "stack")))
        locations[match[1]] = f"{match[3]}: {one_line(message, _MESSAGE_CHARS)}"
    rows = [f"{name} — {locations[name]}" if name in locations else name for name in unique(names)]
    return _finding(sum(p for p, _ in totals), sum(f for _, f in totals), rows, counted=view.extent)


def _read_javascript(view: OutputView) -> CallFinding | None:
    counts: dict[str, int] = {}
    for match in _JS_TOTAL.finditer(view.text):
        counts = {word: int(number) for number, word in _COUNT.findall(match[1])} or counts
    if not counts:
        return None
    rows = _javascript_failures(view.lines) if counts.get("failed") else []
    extra = ", ".join(f"{counts[w]} {w}" for w in ("skipped", "todo") if counts.get(w))
    return _finding(counts.get("passed", 0), counts.get("failed", 0), rows, extra)


def _javascript_failures(lines: tuple[str, ...]) -> list[str]:
    rows: dict[str, str] = {}
    for number, line in enumerate(lines):
        match = _JS_FAIL.match(line)
        if match is None:
            continue
        name = (match[1] or match[2]).strip()
        following = []
        for more in lines[number + 1 : number + 26]:
            if _JS_FAIL.match(more):
                break
            following.append(more)
        errors = [x.strip().removesuffix(" // Object.is equality") for x in following if _JS_ERROR.match(x)][:4]
        locations = [m[1] for x in following if "node_modules" not in x and (m := JS_LOCATION.search(x)) is not None]
        if any(x.startswith("Received") for x in errors):
            errors = [x for x in errors if not x.startswith("expect(")]
        if errors or name not in rows:
            rows[name] = _row(name, locations[0] if locations else "", " ".join(errors))
    detailed = {name: row for name, row in rows.items() if " — " in row}
    return list((detailed or rows).values())


def _read_mocha(view: OutputView) -> CallFinding | None:
    counts = {word: int(number) for number, word in _MOCHA_TOTAL.findall(view.text)}
    if not counts:
        return None
    rows: list[str] = []
    lines = view.lines
    summary = next((n for n, line in enumerate(lines) if re.match(r"\s*\d+ failing", line)), len(lines))
    for number in range(summary, len(lines)):
        if (match := _MOCHA_FAIL.match(lines[number])) is not None:
            block = lines[number + 1 : number + 20]
            title = [match[2], *(x.strip() for x in block[:4] if x.endswith(":") and "Error" not in x)]
            errors = [x.strip() for x in block if _JS_ERROR.match(x)][:2]
            locations = [m[1] for x in block if "node_modules" not in x and (m := JS_LOCATION.search(x)) is not None]
            rows.append(_row(" ".join(title).rstrip(":"), locations[0] if locations else "", " ".join(errors)))
    return _finding(counts.get("passing", 0), counts.get("failing", 0), rows[: counts.get("failing", 0)])


def _read_tap(view: OutputView) -> CallFinding | None:
    counts = {word: int(number) for word, number in _TAP_TOTAL.findall(view.text)}
    rows = [(m[1] or m[2]).strip() for m in _TAP_FAIL.finditer(view.text)]
    if not counts and not ("TAP version" in view.text or re.search(r"^1\.\.\d+$", view.text, re.M)):
        return None
    if counts and not counts.get("fail"):
        rows = []
    if not rows:
        return _finding(counts.get("pass"), counts.get("fail", 0), [])
    notes = [x.strip() for x in view.lines if _JS_ERROR.match(x) or x.lstrip().startswith("error:")][:3]
    notes += [m[1] for x in view.lines if "node:" not in x and (m := JS_LOCATION.search(x)) is not None][:2]
    return _finding(counts.get("pass"), counts.get("fail", len(rows)), unique(rows), notes=notes)


def _read_bun(view: OutputView) -> CallFinding | None:
    counts = {word: int(number) for number, word in _BUN_TOTAL.findall(view.text)}
    if "pass" not in counts:
        return None
    rows = [m[1] for m in _BUN_FAIL.finditer(view.text)]
    errors = [x.strip() for x in view.lines if re.match(r"\s*(?:error:|Expected:|Received:|at .*:\d+:\d+)", x)][:6]
    return _finding(counts["pass"], counts.get("fail", 0), unique(rows), notes=errors if rows else ())


def _read_unittest(view: OutputView) -> CallFinding | None:
    total = _UNITTEST_TOTAL.search(view.text)
    result = _UNITTEST_RESULT.search(view.text, total.end()) if total is not None else None
    if total is None or result is None:
        return None
    count = int(total[1])
    failed = sum(int(n) for n in re.findall(r"(?:failures|errors)=(\d+)", result[1] or ""))
    rows: list[str] = []
    name = location = ""
    for line in view.lines:
        if (match := _UNITTEST_FAIL.match(line)) is not None:
            name, location = match[1], ""
        elif name and (match := _PY_FRAME.match(line)) is not None:
            location = f"{match[1]}:{match[2]}"
        elif name and re.match(r"\w[\w.]*(?:Error|Exception|Failure|Exit)\b", line):
            rows.append(_row(name, location, line))
            name = ""
    return _finding(count - failed, failed, rows)


def _read_ctest(view: OutputView) -> CallFinding | None:
    match = _CTEST_TOTAL.search(view.text)
    if match is None:
        return None
    failed, total = int(match[2]), int(match[3])
    return _finding(total - failed, failed, [m[1] for m in _CTEST_FAIL.finditer(view.text)])


def _read_rspec(view: OutputView) -> CallFinding | None:
    match = _RSPEC_TOTAL.search(view.text)
    if match is None:
        return None
    rows = [f"{m[1]} — {m[2]}" for m in _RSPEC_FAIL.finditer(view.text)]
    errors = [(m[1] or m[2]).strip() for m in _RSPEC_ERROR.finditer(view.text)][:4]
    if len(rows) == 1 and errors:
        rows, errors = [f"{rows[0]}: {one_line(' '.join(errors), _MESSAGE_CHARS)}"], []
    return _finding(int(match[1]) - int(match[2]), int(match[2]), rows, notes=errors)


def _read_other(view: OutputView) -> CallFinding | None:
    """Maven, Gradle, .NET and PHPUnit."""
    if (match := None if not (every := _JUNIT_TOTAL.findall(view.text)) else every[-1]) is not None:
        run, failures, errors = map(int, match)
        rows = [_row(m[1], f"{m[2]}.java:{m[3]}", m[4]) for m in _JUNIT_FAIL.finditer(view.text)]
        rows = rows or _JUNIT_NAME.findall(view.text)
        return _finding(run - failures - errors, failures + errors, rows if failures + errors else [])
    if (dotnet := _DOTNET_TOTAL.search(view.text)) is not None:
        rows = [_row(name, "", "") for name in re.findall(r"^\s*Failed (\S+\.\S+)", view.text, re.M)]
        rows = [_row(m[1], f"{m[3]}:{m[4]}", m[2]) for m in _DOTNET_FAIL.finditer(view.text)] or rows
        return _finding(int(dotnet[2]), int(dotnet[1]), rows)
    if (php := _PHPUNIT_TOTAL.search(view.text)) is not None:
        failed = int(php[2] or 0) + int(php[3] or 0)
        rows = [_row(m[1], m[3], m[2]) for m in _PHPUNIT_FAIL.finditer(view.text)]
        rows = rows or re.findall(r"^\d+\) (\S+::\S+)", view.text, re.M)
        return _finding(int(php[1] or php[4]) - failed, failed, rows if failed else [])
    if rows := [_row(name, at, message) for name, message, at in _GRADLE_FAIL.findall(view.text)]:
        return _finding(None, len(rows), rows, counted=view.extent)
    return None


def _read_playwright(view: OutputView) -> CallFinding | None:
    counts = {word: int(number) for number, word in _PLAYWRIGHT_TOTAL.findall(view.text[-2_000:])}
    if not counts:
        return None
    failures = list(_PLAYWRIGHT_FAIL.finditer(view.text))
    rows: list[str] = []
    for number, match in enumerate(failures):
        end = failures[number + 1].start() if number + 1 < len(failures) else len(view.text)
        errors = _PLAYWRIGHT_ERROR.findall(view.text, match.end(), min(end, match.end() + 2_000))[:3]
        rows.append(_row(match[2], match[1], " ".join(errors)))
    extra = ", ".join(f"{counts[word]} {word}" for word in ("flaky", "skipped") if counts.get(word))
    return _finding(
        counts.get("passed", 0), counts.get("failed", 0), unique(rows) if counts.get("failed") else [], extra
    )


_Reader = Callable[[OutputView], CallFinding | None]
# The strings that an output of each runner contains, cheapest first.
_READERS: tuple[tuple[tuple[str, ...], _Reader], ...] = (
    (("--- FAIL", "--- PASS", "ok  \t", "FAIL\t", "[no test files]"), _read_go),
    (("test result: ",), _read_cargo),
    (("% tests passed",), _read_ctest),
    (("Tests:", "Tests  "), _read_javascript),
    (("] › ",), _read_playwright),
    ((" passing", " failing"), _read_mocha),
    (("Ran ",), _read_unittest),
    ((" example",), _read_rspec),
    ((".py::", " passed", " failed", "no tests ran", "FAILED ", "ERROR "), _read_pytest),
    (("TAP version", "# pass", "ℹ pass", "not ok "), _read_tap),
    ((" pass\n", " fail\n"), _read_bun),
    (("Tests run:", "Passed: ", "Assertions: ", " > ", "OK ("), _read_other),
)
