"""A failure is told by what failed: never by the names of errors in a text that was printed, nor by a line of a log."""

from __future__ import annotations

import json

from perdure.context.record.record import call_lines
from perdure.context.task_state.reader import read_state
from perdure.context.tool_calls.call_line import CallLine
from perdure.context.tool_calls.describe import describe_call
from perdure.core.messages import Entry, ToolCall, assistant, tool_result, user

_GUIDE = """Files found: 3

1: guide.md
# Harbour guide
- Please report every error that the gauge shows.

    Traceback (most recent call last):
      File "gauge.py", line 4, in read
    ValueError: no such gauge

Traceback (most recent call last):
  File "gauge.py", line 9, in open
ValueError: closed

The gauge is read once an hour. It has three parts:
the float, the scale and the clock.
Whoever reads it writes the level down.
Levels are in centimetres.
The zero of the scale is the lowest tide.
Tides are computed by the office.
The office sends them each month.
They hang beside the door.
Ask the harbour master for the key.
"""


def code(program: str, printed: str) -> CallLine:
    return describe_call(ToolCall("1", "python", json.dumps({"code": program})), printed)


class TestPrintedTexts:
    def test_a_traceback_in_a_file_that_was_printed_is_no_failure(self) -> None:
        line = code("print(files['guide.md'])", _GUIDE)
        assert line.outcome == "ok"
        assert "FAILED" not in line.line

    def test_a_traceback_at_the_end_is_a_failure_with_its_exception(self) -> None:
        printed = (
            'reading\nTraceback (most recent call last):\n  File "gauge.py", line 9, in open\nValueError: closed\n'
        )
        line = code("open_gauge()", printed)
        assert line.outcome == "failed"
        assert "gauge.py:9: ValueError: closed" in line.line

    def test_an_exception_with_a_message_of_two_lines_is_a_failure(self) -> None:
        printed = "Traceback (most recent call last):\n  File \"a.py\", line 2, in f\nKeyError: 'north\nsouth'\n"
        assert code("f()", printed).outcome == "failed"

    def test_the_name_of_an_error_in_a_document_is_no_headline(self) -> None:
        words = "\n".join(f"    Row {n} of the table of tides." for n in range(40))
        line = code("print(text[:900])", f"Found tides.py\nRaises\n    KeyError\n        If there is no tide.\n{words}")
        assert "KeyError" not in line.line

    def test_code_that_handles_errors_reports_none(self) -> None:
        body = "".join(
            f"    {['tide', 'level', 'scale', 'clock'][n % 4]}{n} = {'f' * (n % 7)}(scale)\n" for n in range(60)
        )
        handling = "    except TypeError:\n        pass\n    except KeyError:\n        raise\n"
        program = f"def read():\n    try:\n        a()\n{handling}{body}"
        line = code("print(source)", program)
        assert "except TypeError" not in line.detail


class TestGoTests:
    _LOG = "    hooks.go:196: Hook stop output: 2026/01/30 20:44:06 INFO stop component=hooks agent=a"

    def go(self, *lines: str) -> CallLine:
        output = "\n".join(lines) + "\nFAIL\nFAIL\texample.com/tides\t0.31s"
        return describe_call(ToolCall("1", "bash", json.dumps({"command": "go test ./..."})), f"Exit code 1\n{output}")

    def test_a_line_of_a_log_is_no_reason(self) -> None:
        line = self.go("--- FAIL: TestTide (0.28s)", self._LOG, "        Captured state: 3 files")
        assert "TestTide" in line.detail
        assert "INFO" not in line.detail

    def test_an_assertion_before_a_logged_line_is_the_reason(self) -> None:
        assertion = '    store.go:728: List() returned "a", want "b"'
        line = self.go("--- FAIL: TestTide (0.28s)", assertion, "2026/01/30 20:44:06 INFO stop component=hooks")
        assert "store.go:728: List() returned" in line.detail
        assert "INFO" not in line.detail


def test_searches_and_failed_fetches_are_no_pages_read() -> None:
    calls = [
        ("web_fetch", {"url": "https://a.example/tides"}, "# Tides\nThe tide is high at noon on the 4th of May."),
        ("web_fetch", {"url": "https://b.example"}, "Error: Failed to fetch url"),
        (
            "web_search",
            {"query": "tides"},
            json.dumps([{"title": "Tides", "url": "https://a.example", "snippet": "x"}]),
        ),
    ]
    messages = [user("Find out when the tide is high.")]
    for n, (name, arguments, result) in enumerate(calls):
        messages += [assistant("", [ToolCall(str(n), name, json.dumps(arguments))]), tool_result(str(n), result)]
    entries = [Entry(n, m) for n, m in enumerate(messages, 1)]
    counts = read_state(entries, call_lines(entries)).calls_since
    assert dict(counts) == {"page read": 1, "failed page read": 1, "web search": 1}
