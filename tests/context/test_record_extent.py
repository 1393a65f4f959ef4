"""What a line counts in a result that is cut: the size of the whole where a note names it, else of the part shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.context.summary_input import outcome
from perdure.context.tool_calls.call_line import CallLine
from perdure.context.tool_calls.describe import describe_call
from perdure.core.messages import ToolCall
from perdure.core.ports import StoredOutput
from perdure.tools.output_limits import OutputLimiter, OutputLimits, ToolOutcome, persisted_block
from perdure.tools.tool import ToolReply


def describe(name: str, result: str, **arguments: Any) -> CallLine:
    return describe_call(ToolCall("1", name, json.dumps(arguments)), result)


def run(command: str, result: str) -> CallLine:
    return describe("terminal", result, command=command)


def numbered(template: str, count: int) -> str:
    return "\n".join(template.format(n=n) for n in range(count))


def spilled(text: str, *, has_lines: bool = True) -> str:
    """The preview that a stored output leaves in the context."""
    stored = StoredOutput("ab12", "c1", "t1", len(text), "0", "/tmp/out")
    lines = text.count("\n") + 1 if has_lines else None
    return f"[exit 0]\n{persisted_block(stored, text[:1_000], text[-500:], lines=lines)}"


MATCHES = numbered("src/module_{n}.py:{n}: import tides", 300)
LOG = numbered("2026-03-02T10:00:00Z INFO request {n} done", 4_999) + "\n2026-03-02T11:00:00Z ERROR out of disk"


class TestStoredOutputs:
    def test_a_log_has_the_lines_of_the_whole_output(self) -> None:
        line = run("cat service.log", spilled(LOG)).line
        assert "log of 5,000 lines" in line
        assert "in the part shown" in line

    def test_a_marker_without_lines_has_its_characters(self) -> None:
        line = run("cat service.log", spilled(LOG, has_lines=False)).line
        assert f"log of {len(LOG):,} characters" in line

    def test_a_search_has_the_lines_of_the_whole_output(self) -> None:
        assert run("grep -rn tides src", spilled(MATCHES)).line == "`grep -rn tides src` → 300 lines"

    def test_the_lines_between_those_shown_are_not_counted(self) -> None:
        served = numbered("2026-11-18 request served in {n}", 4_000)
        assert "[…]" in run("./serve.sh", spilled(served)).detail
        assert " lines]" not in run("./serve.sh", spilled(served)).detail

    def test_the_limiter_counts_the_lines(self) -> None:
        class Sink:
            def write(self, text: str) -> None: ...

            def close(self) -> StoredOutput:
                return StoredOutput("ab12", "c1", "t1", len(MATCHES), "0", "/tmp/out")

            def abort(self) -> None: ...

        class Outputs:
            def begin(self, conversation_id: str, call_id: str) -> Sink:
                return Sink()

        limiter = OutputLimiter(Outputs(), OutputLimits(2_000, 4_000, 300))  # type: ignore[arg-type]
        result = limiter.limit_result(ToolOutcome(None, "t1", ToolReply(MATCHES)), "c1").reply.text
        assert " in 300 lines, " in result
        assert "→ 300 lines" in run("grep -rn tides src", result).line

    def test_a_page_of_a_file_that_did_not_fit_has_its_lines(self) -> None:
        result = (
            "<persisted-output>\n98,000 characters from /w/a.py (lines 1-2400) did not fit into the context. Read it "
            "again in smaller parts with read_file (offset, limit).\n\nFirst 200 characters:\n     1|x\n     2|y\n"
            "[… 97,000 characters …]\nLast 100:\n  2400|z\n</persisted-output>"
        )
        assert describe("read_file", result, path="/w/a.py").line == "read /w/a.py → 2,400 lines"

    def test_half_a_line_at_a_cut_is_no_total(self) -> None:
        text = numbered("tests/test_a.py::test_{n} PASSED", 200) + "\n=== 1112 passed in 4.00s ==="
        cut = text.index("12 passed in")
        stored = StoredOutput("ab12", "c1", "t1", len(text), "0", "/tmp/out")
        result = persisted_block(stored, text[:400], text[cut:] + "\nwrote report.xml\n", lines=201)
        assert "12 passed" not in run("pytest -v", result).line

    def test_a_pruned_result_has_the_lines_of_the_whole_output(self) -> None:
        assert "5,000 lines" in outcome(spilled(LOG))


NOTES = {
    "lines in the middle": ("\n... [60 lines truncated] ...\n", "70 lines"),
    "omitted lines": ("\n[… 1,190 lines omitted …]\n", "1,200 lines"),
    "of so many lines": ("\n[Output truncated: showing 10 of 3400 lines]\n", "3,400 lines"),
    "characters": ("\n[OUTPUT TRUNCATED - 9000 chars omitted out of 12000 total]\n", "12000 characters"),
    "no size": ("\n[Output truncated]\n", "of the part shown"),
    "tokens": ("\n…1234 tokens truncated…\n", "of the part shown"),
}


class TestOtherNotes:
    @pytest.mark.parametrize("kind", NOTES)
    def test_an_output_with_a_note_has_the_size_that_it_names(self, kind: str) -> None:
        note, size = NOTES[kind]
        lines = MATCHES.split("\n")
        result = "\n".join(lines[:5]) + note + "\n".join(lines[-5:])
        assert size in run("grep -rn tides src", result).line

    def test_frames_left_out_of_a_stack_trace_are_no_note(self) -> None:
        result = "\n".join([*MATCHES.split("\n")[:20], "\t... 23 common frames omitted"])
        assert run("cat trace.txt", result).line.endswith("→ 21 lines")

    def test_a_total_in_front_of_the_output(self) -> None:
        result = "Exit code: 0\nWall time: 1 seconds\nTotal output lines: 800\nOutput:\n" + numbered("item {n}", 30)
        assert run("grep -rn item src", result).line.endswith("→ 800 lines")


class TestHeadAndTail:
    def test_as_many_lines_as_head_lets_through_are_the_first_ones(self) -> None:
        shown = "\n".join(MATCHES.split("\n")[:20])
        assert run("grep -rn tides src | head -20", shown).line.endswith("→ first 20 lines")

    def test_fewer_lines_than_head_lets_through_are_all(self) -> None:
        shown = "\n".join(MATCHES.split("\n")[:17])
        assert run("grep -rn tides src | head -20", shown).line.endswith("→ 17 lines")

    def test_the_end_of_a_log(self) -> None:
        shown = "\n".join(LOG.split("\n")[-40:])
        assert "log of the last 40 lines: 1 ERROR, 39 INFO" in run("tail -n 40 service.log", shown).line

    def test_the_beginning_of_a_run_does_not_prove_that_it_passed(self) -> None:
        packages = numbered("ok  \texample.com/tides/p{n}\t0.1s", 8)
        assert run("go test ./... | head -8", packages).facts.tests is None
        assert "in the part shown" in run("go test ./... | head -8", packages).line
        assert run("go test ./...", packages).facts.tests is not None

    def test_passing_tests_in_the_middle_of_a_long_log_are_counted(self) -> None:
        every = [f"=== RUN   TestTide{n}\n--- PASS: TestTide{n} (0.00s)" for n in range(3_000)]
        assert "3000 passed" in run("go test -v ./...", "\n".join([*every, "PASS", "ok  \tx\t2s"])).line


class TestReadsAndSearches:
    def test_a_read_counts_the_lines_of_the_file_alone(self) -> None:
        body = numbered("{n:>6}→x", 100)
        reminder = "\n\n<system-reminder>\nThink\nof\nsafety.\n</system-reminder>\n"
        assert describe("Read", body + reminder, file_path="/w/a.py").line == "read /w/a.py → 100 lines"
        assert describe("read_file", f"{body}\n[end of a.py]", path="a.py").line == "read a.py → 100 lines"

    def test_a_page_of_a_file_is_told_as_one(self) -> None:
        body = numbered("{n:>6}|x", 10)
        page = f"{body}\n\n[Showing lines 182-191 of 870. Use :192 to continue]"
        assert describe("read", page, path="a.ts").line == "read a.ts → lines 182-191 of 870"
        more = f"{body}\n[more: continue with offset=11]"
        assert describe("read_file", more, path="a.ts").line == "read a.ts → 10 lines, not to the end"

    def test_a_page_of_the_web_has_the_size_of_the_whole(self) -> None:
        page = (
            "# Tides\n\n" + "The moon pulls the sea. " * 40 + "\n[950 of 120,000 characters; continue with offset=950]"
        )
        assert describe("web_fetch", page, url="https://a.test").line.endswith("(120,000 characters)")

    def test_a_search_has_the_number_that_it_names(self) -> None:
        page = "\n".join(MATCHES.split("\n")[:50]) + "\n[matches 1 to 50 of 300; continue with offset=50]"
        assert describe("search_files", page, pattern="tides").line == "search “tides” → 300 matches"
        files = "Found 3 files\nsrc/a.py\nsrc/b.py\nsrc/c.py"
        assert describe("Grep", files, pattern="tides").line == "search “tides” → 3 files"


class TestRemovedResults:
    PLACEHOLDER = "[Compacted history content moved to cold storage: evicted]"

    def test_what_was_removed_is_not_told_as_output(self) -> None:
        assert run("make deploy", "[old tool output cleared]").line == "`make deploy` → its output is no longer kept"
        assert describe("fetch", self.PLACEHOLDER, url="http://a.test").line.endswith("its output is no longer kept")

    def test_a_file_whose_content_was_removed_has_no_lines(self) -> None:
        line = describe("write", "Wrote 5086 bytes to a.html", path="a.html", content=self.PLACEHOLDER)
        assert line.line == "write a.html"
        assert line.facts.changed_files == ("a.html",)


class TestEdits:
    def test_an_edit_that_moves_lines_is_a_change(self) -> None:
        line = describe("Edit", "The file was updated.", file_path="a.py", old_string="x\ny", new_string="y\nx")
        assert line.line == "edit a.py → lines moved or reformatted"

    def test_an_edit_has_the_purpose_that_it_states(self) -> None:
        line = describe("edit", " 90| }", path="a.ts", input="§a.ts\n≔91fo..94rk\n", description="Remove the twin")
        assert line.line == "edit a.ts → Remove the twin"

    def test_an_edit_that_was_not_made_failed(self) -> None:
        line = describe(
            "edit", 'line 1: expected a full anchor such as "119sr"; got "5".', path="a.ts", input="§a.ts\n≔5\nlet x\n"
        )
        assert line.outcome == "failed"
        assert not line.facts.changed_files
