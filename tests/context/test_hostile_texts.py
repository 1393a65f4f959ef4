"""Foreign text is read in linear time, whatever it repeats: a text of 50,000 characters takes no minutes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure.context.handoff_sections import read_sections
from perdure.context.summary_check import quotes_in
from perdure.context.task_state.requests import read_cancellation
from perdure.context.tool_calls.output import read_output
from perdure.context.tool_calls.test_runs import read_tests
from perdure.context.user_text.standing_instructions import is_particular
from perdure.store.search.snippets import _sentences

CHARS = 50_000
# About ten times what it takes; a search from each character to the end takes longer, mostly by far.
MOST_SECONDS = 2.5

Messages = list[dict[str, Any]]


def seconds(action: Callable[[], object]) -> float:
    begin = time.process_time()
    action()
    return time.process_time() - begin


def call(number: int, name: str, **arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": f"c{number}", "function": function}]}


def result(number: int, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": text}


def listings(first: int, last: int) -> Messages:
    return [m for n in range(first, last) for m in (call(n, "terminal", command="ls"), result(n, "a.py\nb.py\n"))]


def history(messages: Messages) -> Messages:
    begin: Messages = [{"role": "user", "content": "Fix the shop in /w/shop.py please."}]
    end: Messages = [
        {"role": "assistant", "content": "The shop works."},
        {"role": "user", "content": "And now the tests."},
    ]
    return [*begin, *listings(0, 2), *messages, *listings(10, 30), *end, *listings(30, 50)]


def long_text(begin: str, repeated: str, end: str = "") -> str:
    return begin + repeated * (CHARS // len(repeated)) + end


@pytest.mark.parametrize(
    "page",
    [
        long_text("# Page\n", " ", "x"),
        long_text("# Page\n", "\n", "x"),
        long_text("# Page\n[label](target) ", "\x02"),
    ],
    ids=["blanks", "blank lines", "label marks"],
)
def test_pages_are_read_in_linear_time(page: str) -> None:
    messages = history([call(9, "read_file", path="/w/page.md"), result(9, page)])
    assert seconds(lambda: perdure.compress(messages, context_length=200_000)) < MOST_SECONDS


@pytest.mark.parametrize(
    "output",
    [
        long_text('{"name": "shop", "text": "', '\\"'),
        long_text("1 passed\n", "100 200 300 ", "\n"),
        long_text("Failed:    1, Passed:  2\n", f"Failed {'a.' * 500}\n"),
        long_text("Tests: 4, Assertions: 4, Failures: 1.\n", f"1) {'a::' * 350}\nx\n"),
        long_text("Tests run: 4, Failures: 2, Errors: 0\n", f"[ERROR] {'a' * 500}.{'a' * 500} \n"),
        long_text("/w/a.js\n", f"  1:1 error{' ' * 1_000}x y\n"),
        long_text("To github.com:a/b\n", f"{' ' * 1_000}x\n"),
    ],
    ids=["json", "table of numbers", "dotnet", "phpunit", "junit", "eslint", "push"],
)
@pytest.mark.parametrize("command", ["make test", "git push", "npx eslint ."])
def test_outputs_are_read_in_linear_time(output: str, command: str) -> None:
    messages = history([call(9, "terminal", command=command), result(9, output)])
    assert seconds(lambda: perdure.compress(messages, context_length=200_000)) < MOST_SECONDS


@pytest.mark.parametrize("role", ["user", "assistant"])
@pytest.mark.parametrize("text", [long_text("# a", " ", "x"), long_text("# a ", "#", "x")], ids=["blanks", "signs"])
def test_headings_are_read_in_linear_time(role: str, text: str) -> None:
    messages = history([{"role": role, "content": text}, {"role": "user", "content": "Go on."}])
    assert seconds(lambda: perdure.compress(messages, context_length=200_000)) < MOST_SECONDS


def test_files_that_were_written_are_read_in_linear_time() -> None:
    code = long_text("", f"private{' ' * 280}!\n")
    messages = history([call(9, "write_file", path="/w/a.java", content=code), result(9, "ok")])
    assert seconds(lambda: perdure.compress(messages, context_length=200_000)) < MOST_SECONDS


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (quotes_in, long_text("- ", "“")),
        (read_sections, long_text("## ", "*", " x")),
        (read_sections, long_text("## a", " ", "x")),
        (is_particular, long_text("", "then ")),
        (read_cancellation, ("please stop here " * 20)[:239]),
        (read_tests, read_output("1 passed\n" + "100 200 300 " * 20)),
        (lambda text: list(_sentences(text)), long_text("", " ", "x")),
    ],
    ids=["quotations", "stars", "blanks", "then", "stop", "numbers", "sentences"],
)
def test_no_repetition_takes_long(read: Callable[[Any], object], text: Any) -> None:
    assert seconds(lambda: read(text)) < MOST_SECONDS


def test_a_count_of_tests_is_found_below_a_table_of_numbers() -> None:
    finding = read_tests(read_output("100 200 300 400 500 600\n=== 2 failed, 13 passed, 1 skipped in 0.53s ===\n"))
    assert finding is not None
    assert finding.headline.startswith("2 failed, 13 passed")


def test_a_request_is_withdrawn_behind_bare_cancellations() -> None:
    for words in ("Please stop. Forget the export", "Stop here, please, forget the export", "stopp, vergiss das Menü"):
        assert read_cancellation(words) is not None
