"""A line claims what the output proves, in whole words: no push that failed, no pass of a run that did not end."""

from __future__ import annotations

import json

import pytest

from perdure.context.record.record import draw_record
from perdure.context.tool_calls.call_line import CallLine
from perdure.context.tool_calls.describe import describe_call
from perdure.context.tool_calls.output import clip_middle, one_line
from perdure.core.messages import Entry, Message, ToolCall, tool_result, user


def run(command: str, result: str, **arguments: str) -> CallLine:
    return describe_call(ToolCall("1", "terminal", json.dumps({"command": command, **arguments})), result)


class TestQuietCommands:
    def test_a_quiet_push_with_a_fallback_that_spoke_is_no_push(self) -> None:
        line = run('git push -q origin main || echo "no push"', "no push")
        assert line.facts.pushed is None
        assert line.line.endswith("→ no push")

    def test_a_quiet_push_with_a_fallback_that_kept_silent_is_one(self) -> None:
        assert run("git push -q origin main || exit 1", "").facts.pushed is True

    def test_a_quiet_commit_that_a_hook_stopped_is_none(self) -> None:
        output = "husky - pre-commit hook exited with code 1 (error)\nabcdef1 Old title"
        line = run('git commit -qm "Fix tides" ; git log -1 --oneline', output)
        assert "committed" not in line.line
        assert line.facts.commit is None

    @pytest.mark.parametrize("command", ["git push --dry-run origin main", "git push -n origin main"])
    def test_a_dry_run_pushes_nothing(self, command: str) -> None:
        line = run(command, "To github.com:a/b.git\n   1234abc..2345bcd  main -> main")
        assert line.facts.pushed is None
        assert "would push main" in line.line

    def test_a_silent_build_with_a_fallback_proves_nothing(self) -> None:
        line = run("make build || true", "")
        assert line.facts.tests is None
        assert line.line == "`make build || true` → no output"


class TestRuns:
    def test_an_interrupted_run_did_not_pass(self) -> None:
        line = run("pytest -q", "....\n!!!!!!!!!! KeyboardInterrupt !!!!!!!!!!\n4 passed in 2.10s")
        assert line.facts.tests is None
        assert line.line.endswith("4 passed, KeyboardInterrupt")

    def test_tests_that_were_left_out_are_counted(self) -> None:
        assert run("pytest -q -k tide", "..\n2 passed, 318 deselected in 0.2s").line.endswith(
            "2 passed, 318 deselected"
        )

    def test_a_long_command_keeps_files_and_filter(self) -> None:
        command = (
            "cd /w && PYTHONPATH=src timeout 300 python -m pytest tests/unit/test_harbour.py tests/unit/test_tides.py "
            "-x -vv --tb=short -p no:cacheprovider --durations=5 -k 'spring and not neap' 2>&1 | tail -20"
        )
        failed = "FAILED tests/unit/test_tides.py::test_spring - AssertionError: the level is 4.2 and not 3.9 at noon"
        line = run(command, f"{failed}\n1 failed, 3 passed in 0.30s", description="Run the tests of the tides").line
        assert "tests/unit/test_harbour.py tests/unit/test_tides.py -k 'spring and not neap'" in line
        assert "1 failed, 3 passed: test_spring" in line or "test_tides.py::test_spring" in line

    def test_a_program_that_is_missing_is_a_failure(self) -> None:
        line = run("ruff check . && pytest", "All checks passed!\nbash: pytest: command not found")
        assert line.outcome == "failed"
        assert "pytest: command not found" in line.line

    def test_the_status_of_a_timeout_is_named(self) -> None:
        assert "exit 124 (timed out)" in run("timeout 9 ./soak", "[exit 124]\nround 1\nround 2").line

    def test_lines_with_a_place_in_the_code_are_no_errors_by_their_words(self) -> None:
        log = "\n".join(f"src/app.py:{n}: processed row {n}, no errors" for n in range(12))
        line = run("./import.sh", log)
        assert line.outcome == "ok"
        assert line.facts.tests is None

    def test_errors_with_a_place_in_the_code_are_found_in_any_output(self) -> None:
        line = run("./import.sh", "src/app.c:12: error: expected ';'\nstopped")
        assert line.outcome == "failed"


ASSERTIONS = {
    "maven": (
        "[ERROR] Tests run: 2, Failures: 1, Errors: 0, Skipped: 0 <<< FAILURE! - in com.x.CartTest\n"
        "[ERROR] com.x.CartTest.discountOnce  Time elapsed: 0.01 s  <<< FAILURE!\n"
        "[ERROR]   CartTest.discountOnce:44 expected: <90> but was: <81>\n"
        "[ERROR] Tests run: 3602, Failures: 1, Errors: 0, Skipped: 0",
        "1 failed, 3601 passed: CartTest.discountOnce — CartTest.java:44: expected: <90> but was: <81>",
    ),
    "dotnet": (
        "  Failed Cart.Tests.DiscountOnce [12 ms]\n  Error Message:\n   Assert.Equal() Failure\nExpected: 90\n"
        "Actual:   81\n  Stack Trace:\n     at Cart.Tests.DiscountOnce() in /w/CartTests.cs:line 14\n\n"
        "Failed!  - Failed:     1, Passed:   120, Skipped:     0, Total:   121",
        "Cart.Tests.DiscountOnce — /w/CartTests.cs:14: Assert.Equal() Failure Expected: 90 Actual: 81",
    ),
    "phpunit": (
        "1) CartTest::testDiscountOnce\nFailed asserting that 81 matches expected 90.\n\n/w/tests/CartTest.php:14\n\n"
        "FAILURES!\nTests: 3, Assertions: 5, Failures: 1.",
        "CartTest::testDiscountOnce — /w/tests/CartTest.php:14: Failed asserting that 81 matches expected 90.",
    ),
    "jest": (
        "  ● cart › applies the discount once\n\n    expect(received).toBe(expected) // Object.is equality\n\n"
        "    Expected: 90\n    Received: 81\n\n      at Object.<anonymous> (src/cart.test.ts:14:26)\n\n"
        "Tests:       1 failed, 3 skipped, 901 passed, 905 total",
        "901 passed, 3 skipped: cart › applies the discount once — src/cart.test.ts:14: Expected: 90 Received: 81",
    ),
    "a script": (
        "Error: no harbour\n    at Object.<anonymous> (/w/seed.js:3:7)\nnpm error Test failed.",
        "/w/seed.js:3: Error: no harbour",
    ),
}


@pytest.mark.parametrize("runner", ASSERTIONS)
def test_a_failure_has_its_assertion_and_place(runner: str) -> None:
    output, expected = ASSERTIONS[runner]
    assert expected in run("npm test", output).line


class TestTables:
    def test_the_row_that_differs_is_shown(self) -> None:
        pods = [f"web-{n}   1/1     Running   0   3d" for n in range(40)]
        table = ["NAME  READY  STATUS  RESTARTS  AGE", *pods[:20], "worker-z9 0/1 CrashLoopBackOff 17 1h", *pods[20:]]
        assert "worker-z9 0/1 CrashLoopBackOff 17 1h" in run("kubectl get pods", "\n".join(table)).detail

    def test_a_query_has_its_rows_and_columns(self) -> None:
        rows = [f"  {n} | harbour {n} | {n * 3}" for n in range(200)]
        output = "\n".join([" id | name | level", "----+------+------", *rows, "(200 rows)"])
        assert run('psql -c "select * from t"', output).line.endswith("→ 200 rows: id | name | level")


class TestWholeWords:
    def test_a_cut_is_made_between_words(self) -> None:
        assert one_line("the harbour master closed the northern gate", 30) == "the harbour master closed the…"

    def test_a_cut_leaves_no_bracket_or_quote_open(self) -> None:
        text = "func findCommit(repository *git.Repository, checkpoint string, limits map[string]int) error"
        assert one_line(text, 60) == "func findCommit(repository *git.Repository, checkpoint…)"
        assert one_line('the log says "no such harbour is known to the master of the tides"', 40).endswith('…"')

    def test_a_cut_leaves_no_colon(self) -> None:
        assert (
            one_line("these were the results of the run: 12 of 40 failed", 36) == "these were the results of the run…"
        )

    def test_both_ends_of_a_path_are_whole_names(self) -> None:
        path = "search in /home/dev/work/harbours/northern/services/billing/gateways/integration/tests"
        assert clip_middle(path, 60) == "search in /home/dev/work/harbours … /integration/tests"

    def test_a_line_that_announces_another_has_it(self) -> None:
        output = "Files in the archive:\n" + "\n".join(f"member {n} of the archive" for n in range(70))
        assert run("./inspect", output).line.endswith("→ 71 lines: Files in the archive: member 0 of the archive")

    def test_of_a_long_output_a_whole_line_is_told(self) -> None:
        build = "\n".join(
            ["09:00:06 [@astrojs/node] Enabling sessions with filesystem storage in the folder of the adapter"]
            + [f"09:00:0{n} [vite] chunk {n} of the server rendered" for n in range(8)]
            + ["09:00:16 [build] Complete!"]
        )
        assert run("./site build", build).line.endswith("→ 10 lines: 09:00:16 [build] Complete!")


def test_a_merged_pull_request_says_what_came() -> None:
    output = "From https://github.com/a/b\nUpdating 65d88b6..d364611\nFast-forward\n 4 files changed, 2 insertions(+)"
    assert (
        "merged, Fast-forward, updated 65d88b6..d364611, 4 files changed" in run("gh pr merge 47 --merge", output).line
    )


def test_a_commit_in_another_folder_says_so() -> None:
    commands = [*(f"cat /srv/tides/src/module_{n}.py" for n in range(6)), 'cd ../docs && git commit -m "Bump"']
    outputs = [*("x = 1" for _ in range(6)), "[main 1234abc] Bump\n 1 file changed, 1 insertion(+)"]
    entries = [Entry(1, user("Bump the docs"))]
    for number, (command, output) in enumerate(zip(commands, outputs, strict=True)):
        call = ToolCall(f"c{number}", "terminal", json.dumps({"command": command}))
        entries.append(Entry(2 * number + 2, Message("assistant", "", tool_calls=(call,), kind="assistant")))
        entries.append(Entry(2 * number + 3, tool_result(call.id, output, "terminal")))
    assert "commit 1234abc “Bump” on main (1 file changed, 1 insertion(+)) (in ../docs)" in draw_record(
        entries, budget=4_000
    )


class TestMoreClaims:
    def test_a_value_other_than_the_one_asked_for_is_told(self) -> None:
        body = {"reservation_id": "FQ8", "cabin": "basic_economy", "user_id": "u1", "total": 370}
        call = ToolCall("1", "update_reservation", json.dumps({"reservation_id": "FQ8", "cabin": "economy"}))
        assert "cabin: basic_economy (not economy)" in describe_call(call, json.dumps(body)).line

    def test_a_package_without_a_matching_test_did_not_pass(self) -> None:
        output = "ok  \tx/a\t0.1s [no tests to run]\nok  \tx/b\t0.2s [no tests to run]\nok  \tx/c\t0.3s\n"
        line = run("go test ./... -run Worktree", output).line
        assert line.endswith("→ 1 package passed, no tests to run in 2 packages")

    def test_tests_that_were_only_compiled_are_told_so(self) -> None:
        line = run("go test -tags=e2e -c ./cmd/harbour/cli/e2e_test/... -o /dev/null 2>&1", "").line
        assert line == "`go test -tags=e2e -c ./cmd/harbour/cli/e2e_test/...` → ok"

    def test_a_diff_without_output_shows_nothing(self) -> None:
        assert run("git diff --stat", "").line == "`git diff --stat` → nothing to show"

    def test_a_list_of_files_is_named(self) -> None:
        line = run("git diff --name-only", "src/a.py\nsrc/b.py\nsrc/c.py\nsrc/d.py\nsrc/e.py").line
        assert line.endswith("→ 5 lines: src/a.py, src/b.py, src/c.py, src/d.py, src/e.py")

    def test_the_end_of_a_long_error_has_its_reason(self) -> None:
        name = "github.com/harbour-works/harbour/plumbing/format/configuration/loader"
        output = f'cmd/harbour/cli/integration_test/testenv.go:25:2: "{name}" imported and not used'
        line = run("go vet ./cmd/harbour/cli/integration_test/...", f"[exit 1]\n{output}").line
        assert "testenv.go:25" in line
        assert line.endswith("imported and not used")

    def test_a_file_is_named_by_its_first_definition(self) -> None:
        content = "//go:build e2e\n\npackage e2e\n\nfunc TestHarbour(t *testing.T) {\n}\n"
        call = ToolCall("1", "write", json.dumps({"path": "a_test.go", "content": content}))
        assert describe_call(call, "ok").line == "write a_test.go → 6 lines: func TestHarbour(t *testing.T) {"

    def test_a_failing_test_keeps_its_place_in_the_code(self) -> None:
        message = "HumanAdded = 0, want 5 (five comments captured by the attribution of the second prompt of the user)"
        output = (
            f"    attribution_test.go:198: {message}\n--- FAIL: TestManualCommit_Attribution (0.69s)\nFAIL\nFAIL\tx\t1s"
        )
        command = "go test -tags=integration -v ./cmd/harbour/cli/integration_test -run TestManualCommit_Attribution"
        line = run(command, output).line
        assert "TestManualCommit_Attribution — attribution_test.go:198: HumanAdded = 0, want 5" in line

    def test_the_diff_of_a_pull_request_is_one(self) -> None:
        diff = "diff --git a/src/a.py b/src/a.py\n--- a/src/a.py\n+++ b/src/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2"
        assert run("gh pr diff 284", diff).line.endswith("→ diff of 1 file: src/a.py")

    def test_a_search_of_the_web_has_its_titles(self) -> None:
        links = [{"title": f"Page {n} about tides", "url": f"https://a.test/{n}"} for n in range(3)]
        result = f'Web search results for query: "tides"\n\nLinks: {json.dumps(links)}\n\nTides are told by the moon.'
        line = describe_call(ToolCall("1", "WebSearch", json.dumps({"query": "tides"})), result).line
        assert "3 results: Page 0 about tides, Page 1 about tides" in line


def test_files_that_were_read_share_a_line() -> None:
    entries = [Entry(1, user("Where is the level of the harbour computed?"))]
    for number in range(4):
        call = ToolCall(f"c{number}", "read_file", json.dumps({"path": f"src/part_{number}.py", "offset": 40}))
        entries.append(Entry(2 * number + 2, Message("assistant", "", tool_calls=(call,), kind="assistant")))
        entries.append(Entry(2 * number + 3, tool_result(call.id, "    40|x = 1\n[end of file]", "read_file")))
    record = draw_record(entries, budget=8_000)
    assert sum("src/part_" in line for line in record.split("\n")) == 1
    assert all(f"src/part_{number}.py" in record for number in range(4))
