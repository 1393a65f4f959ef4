"""Active Task tells how far the newest request is, and the sections tell nothing twice or beyond its time."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from perdure.context.fitting import whole_sentences
from perdure.context.record.outline import REQUEST_MARK
from perdure.context.record.record import RecordSource, call_lines
from perdure.context.task_state.reader import read_state
from perdure.context.task_state.sections import IN_TASK, write_sections
from perdure.context.tool_calls.shell import short_command
from perdure.core.messages import Entry, Message, ToolCall, assistant, tool_result, user
from perdure.core.rules import MISSING_RESULT

ASKED = "Please add a date column to the export of the orders."


def _call(number: int, name: str, arguments: dict[str, object], result: str, text: str | None = None) -> list[Message]:
    call = ToolCall(f"c{number}", name, json.dumps(arguments))
    return [assistant(text, (call,)), tool_result(f"c{number}", result)]


def _edit(number: int, path: str, text: str | None = None) -> list[Message]:
    arguments = {"path": path, "old_string": "a = 1", "new_string": f"a = {number}"}
    return _call(number, "edit_file", arguments, "Replaced 1 occurrence.", text)


def _run(number: int, command: str, output: str, text: str | None = None) -> list[Message]:
    return _call(number, "terminal", {"command": command}, output, text)


def _sections(*messages: Message, in_view: frozenset[int] = frozenset()) -> dict[str, str]:
    entries = [Entry(at, m) for at, m in enumerate(messages)]
    return write_sections(read_state(entries, call_lines(entries), in_view=in_view))


@pytest.mark.spec("E2", "E1c")
def test_active_task_names_all_files_of_the_task_and_what_was_not_checked() -> None:
    files = [f"/srv/shop/module_{n}.py" for n in range(12)]
    done = [m for n, path in enumerate(files) for m in _edit(n, path)]
    green = _run(90, "pytest -q", "4 passed in 0.1s")
    status = _run(91, "git status", "On branch export\nnothing to commit, working tree clean")
    before = [user("Look at the shop."), *_edit(80, "/srv/shop/old.py"), *green, *status, assistant("It is fine.")]
    sections = _sections(*before, user(ASKED), *done)
    task = sections["Active Task"]
    assert [path for path in files if path.rpartition("/")[2] not in task] == []
    assert "old.py" not in task
    assert "(not committed)" in task
    assert "Not checked: tests not run since" in task
    assert "module_3.py" not in sections["Relevant Files"]  # told once
    assert "Not checked" not in _sections(*before, user(ASKED), *done, *green)["Active Task"]


@pytest.mark.spec("E1c")
def test_files_beside_the_shared_folder_are_named_from_there_and_those_of_another_tree_whole() -> None:
    files = [*(f"/home/me/shop/src/api/{n}.py" for n in "abcdefg"), "/home/me/shop/scripts/run.sh", "/etc/hosts"]
    changes = [m for n, path in enumerate(files) for m in _edit(n, path)]
    names = _sections(user(ASKED), *changes, assistant("Done."))["Relevant Files"]
    assert names.startswith("Below /home/me/shop/src/api:")
    assert "../../scripts/run.sh" in names
    assert "/home/me/shop/scripts" not in names
    assert ", /etc/hosts" in names or ": /etc/hosts" in names


@pytest.mark.spec("E1c")
def test_tests_that_ran_again_in_another_command_are_not_called_unchecked() -> None:
    history = [user(ASKED), *_run(1, "bash check.sh", "3 passed in 0.1s"), *_edit(2, "/srv/shop/a.py")]
    assert "tests not run since a.py changed" in _sections(*history)["Active Task"]
    diff = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-a = 1\n+a = 2\n"
    sections = _sections(*history, *_run(3, "bash check.sh; git diff", diff))
    assert "not run since" not in sections["Active Task"]


@pytest.mark.spec("E1c")
def test_the_step_under_way_is_named_until_the_work_goes_on_without_a_word() -> None:
    history = [user(ASKED), *_run(1, "ls", "a.py", "Now the header of the CSV file:")]
    assert "- Under way: “Now the header of the CSV file:” (m:1)" in _sections(*history)["Active Task"]
    history += [*_run(2, "cat a.py", "x"), *_run(3, "cat b.py", "y")]
    assert "Under way" not in _sections(*history)["Active Task"]


@pytest.mark.spec("E1c")
def test_an_open_task_has_remaining_work_and_an_answered_one_none() -> None:
    history = [user(ASKED), *_edit(1, "/srv/shop/a.py")]
    sections = _sections(*history)
    assert sections["Remaining Work"] == sections["In Progress"] == IN_TASK
    assert "Remaining Work" not in _sections(*history, assistant("The column is there."))


@pytest.mark.spec("E1c")
def test_remaining_work_lists_what_fails_and_tests_that_were_not_run() -> None:
    green = _run(1, "pytest -q", "4 passed in 0.1s")
    next_step = _run(5, "ls", "a.py", "Now the column:")
    changed = [user(ASKED), *green, *_edit(2, "/srv/shop/a.py"), *next_step]
    assert _sections(*changed)["Remaining Work"].splitlines() == [f"- {IN_TASK}", "- Run the tests again"]
    red = _run(3, "pytest -q", "FAILED tests/test_a.py::test_date - assert 1 == 2\n1 failed, 3 passed in 0.1s")
    failing = _sections(*changed, *red, *_edit(4, "/srv/shop/a.py"), *_run(6, "ls", "a.py", "Now the date:"))
    assert "- Make `pytest -q` succeed (m:8)" in failing["Remaining Work"].splitlines()
    assert "Run the tests" not in failing["Remaining Work"]  # said once
    assert "Remaining Work" not in _sections(*changed, *green, assistant("The column is there."))


@pytest.mark.spec("E1c")
def test_a_step_whose_call_failed_is_not_under_way_and_the_failure_comes_next() -> None:
    red = _run(3, "pytest -q", "FAILED tests/test_a.py::test_date - assert 1 == 2\n1 failed in 0.1s", "Now the tests:")
    sections = _sections(user(ASKED), *_edit(2, "/srv/shop/a.py"), *red)
    assert "Under way" not in sections["Active Task"]
    assert "- Next: make `pytest -q` succeed (m:4)" in sections["Active Task"]
    assert sections["Remaining Work"] == IN_TASK  # the next step is told once


@pytest.mark.spec("E1c")
@pytest.mark.parametrize(
    ("words", "steps"),
    [
        ("Add the column, then commit and push.", ["commit", "push"]),
        ("Add the column and push it.", ["push"]),
        ("Add the column. 커밋하고 푸시해", ["commit", "push"]),
        ("Add the column, but don't commit.", []),
        ("Add the column to the commit message.", []),
        ("Why did you push the column?", []),
    ],
)
def test_a_commit_or_push_that_was_asked_for_remains_until_it_is_done(words: str, steps: list[str]) -> None:
    history = [user(words), *_edit(1, "/srv/shop/a.py"), *_run(3, "ls", "a.py", "Now the column:")]
    listed = [f"- {step.capitalize()}, as the user asked (m:0)" for step in steps]
    remaining = _sections(*history)["Remaining Work"].splitlines()
    assert [line for line in remaining if "as the user asked" in line] == listed
    commit = _run(2, "git commit -am 'Add the column'", "[main 1a2b3c4] Add the column\n 1 file changed")
    assert "Commit, as" not in _sections(*history, *commit)["Remaining Work"]


@pytest.mark.spec("E1c")
def test_a_request_without_a_subject_is_told_with_the_one_before_it() -> None:
    history = [
        user(ASKED),
        *_edit(1, "/srv/shop/a.py"),
        assistant("Done."),
        user("Sorry, do it again."),
        *_edit(2, "a.py"),
    ]
    task = _sections(*history)["Active Task"]
    assert f"> Sorry, do it again.\n(after “{ASKED}” (m:0))" in task


@pytest.mark.spec("E1c", "E12")
def test_the_goal_is_what_the_conversation_is_about_now() -> None:
    sections = _sections(
        user("Explain the retry policy of the mailer."),
        assistant("It retries three times."),
        user(ASKED),
        assistant("OK."),
    )
    assert sections["Goal"].splitlines() == [
        "The conversation began with: “Explain the retry policy of the mailer.” (m:0)",
        f"Now: “{ASKED}” (m:2)",
    ]


@pytest.mark.spec("E1c", "E12")
def test_the_goal_calls_nothing_the_beginning_that_is_not() -> None:
    rule = "Two rules for all of today: never push, and never touch rates.csv. "
    bug = "Now the bug: the imports of the shop fail since this morning, please find out why."
    goal = _sections(user(rule + bug), assistant("A cycle."), user("Thanks."))["Goal"]
    assert goal == f"The first task: “… {bug}” (m:0)"
    second = _sections(user("Tidy up the shop."), user("Forget it."), user(ASKED), assistant("OK."))["Goal"]
    assert second == f"The first task: “{ASKED}” (m:2)"
    whole = _sections(user("Tidy up the shop."), assistant("OK."), user("Thanks."))["Goal"]
    assert whole == "The conversation began with: “Tidy up the shop.” (m:0)"


@pytest.mark.spec("E1c", "E9")
@pytest.mark.parametrize("began", ["The conversation began with:", "The first task:"])
def test_the_goal_of_an_earlier_handoff_is_quoted_once(began: str) -> None:
    goal = f"{began} “Tidy up the shop.” (m:0)"
    entries = [Entry(40, user(ASKED)), Entry(41, assistant("OK."))]
    state = read_state(entries, call_lines(entries), previous={"Goal": goal})
    assert write_sections(state)["Goal"] == goal


@pytest.mark.spec("E1c")
def test_a_long_opening_is_never_cut_before_what_it_asks_for() -> None:
    story = "We moved the shop to the new cluster last week. " * 6
    opening = f"{story}Now the bug: Please find out why the totals of the invoices are one cent too low."
    goal = _sections(user(opening), assistant("Rounding."), user("Thanks."))["Goal"]
    assert "Please find out why the totals of the invoices are one cent too low." in goal
    assert "Now the bug:” " not in goal
    assert whole_sentences("One two three four. Then this: And that is long enough.", 30) == "One two three four. …"


@pytest.mark.spec("E1b")
@pytest.mark.parametrize(
    ("stated", "lasts"),
    [
        ("Don't fix anything, just validate it.", False),
        ("Can you review the branch, I am concerned about the places where we don't change the folder.", False),
        ("The prompt was finished, but no commit was made.", False),
        ("Don't fix anything without asking me.", True),
        ("Never fix anything, just validate it.", True),
        ("Don't push yet.", True),
        ("For now keep the old API.", True),
        ("No emojis.", True),
        ("Use tabs, not spaces.", True),
    ],
)
def test_what_binds_one_request_is_no_standing_instruction_after_it(stated: str, lasts: bool) -> None:
    talk = [
        user(f"Check the totals of the export. {stated}"),
        assistant("The totals are right, and nothing was changed."),
    ]
    rules = _sections(*talk, user("Thanks."))["Constraints & Preferences"] if lasts else ""
    assert lasts == (f"“{stated}”" in rules)
    if not lasts:
        assert stated not in _sections(*talk, user("Thanks.")).get("Constraints & Preferences", "")
    # While the request is open, it is quoted with it.
    assert stated in _sections(*talk[:1])["Active Task"]


@pytest.mark.spec("E1c")
def test_what_stays_in_view_is_not_told_again() -> None:
    question = "Which port does the staging server listen on?"
    talk = [user(question), assistant("The staging server listens on port 8443, behind the proxy."), user(ASKED)]
    assert "8443" in _sections(*talk)["Resolved Questions"]
    assert "Resolved Questions" not in _sections(*talk, in_view=frozenset((0, 1, 2)))
    long = "Please add one column for each of these. " + " ".join(f"Field {n} comes from table {n}." for n in range(90))
    assert len(_sections(user(long), in_view=frozenset((0,)))["Active Task"]) < 800


@pytest.mark.spec("E1c")
def test_the_address_of_a_refusal_is_that_of_the_message_with_its_words() -> None:
    refused = (
        "terminal was not run, the user refused: “keep the build folder”. Approval was needed because: it deletes."
    )
    result = tool_result("c1", refused, state="refused")
    call = ToolCall("c1", "terminal", '{"command": "rm -rf build"}')
    entries = [Entry(28, user("Clean up.")), Entry(29, assistant("Removing it.", (call,))), Entry(30, result)]
    text = write_sections(read_state(entries, call_lines(entries)))["Constraints & Preferences"]
    assert "m:30" in text
    assert "m:29" not in text


@pytest.mark.spec("E1c")
@pytest.mark.parametrize(
    ("words", "path", "is_failure"),
    [
        ("Written first, it should fail:", "/srv/shop/test_date.py", False),
        ("Run it without the fix, to see it red:", "/srv/shop/date_test.go", False),
        ("Now the tests:", "/srv/shop/test_date.py", True),
        ("It should fail:", "/srv/shop/date.py", True),
    ],
)
def test_a_test_that_is_red_on_purpose_is_no_failure(words: str, path: str, is_failure: bool) -> None:
    output = "FAILED test_date.py::test_column - AssertionError: no date\n1 failed, 4 passed in 0.1s"
    red = [user(ASKED), *_edit(1, path), *_run(2, "pytest -q", output, words)]
    sections = _sections(*red)
    assert ("make `pytest -q` succeed" in sections["Active Task"]) == is_failure
    assert ("written first" in sections["Active State"]) != is_failure
    # After the change it is an error like any other.
    changed = _sections(*red, *_edit(3, "/srv/shop/date.py"), *_run(4, "pytest -q", output, "It must not fail:"))
    assert "make `pytest -q` succeed" in changed["Active Task"]


@pytest.mark.spec("O1", "E2")
def test_the_record_marks_where_the_newest_request_is() -> None:
    done = [assistant("The export has no date column yet."), *_edit(1, "/a.py"), *_edit(2, "/b.py")]
    covered = [Entry(at + (at > 0), m) for at, m in enumerate(done)]
    record = RecordSource(covered, request_seq=1).draw(4_000)
    lines = record.splitlines()
    assert lines[1].startswith("ASSISTANT [0]")
    assert lines[2] == f"USER [1]: {REQUEST_MARK}"
    assert REQUEST_MARK not in RecordSource(covered, request_seq=9).draw(4_000)
    # A record that is carried over does not keep the mark of its time.
    assert REQUEST_MARK not in RecordSource((), earlier=record).draw(4_000)


def test_a_message_that_is_nothing_but_pasted_text_is_no_goal() -> None:
    entries = [
        Entry(at, m) for at, m in enumerate([user(ASKED), assistant("Done."), user("a log"), assistant("I see.")])
    ]
    state = read_state(entries, call_lines(entries))
    pasted = replace(state.requests[-1], own_words="", status="answered")
    sections = write_sections(replace(state, requests=(*state.requests[:-1], pasted)))
    assert "“”" not in sections["Goal"]


@pytest.mark.spec("E1c")
def test_an_announced_change_is_under_way_until_its_call_succeeded() -> None:
    look = _run(1, "cat a.py", "x", "Now I'll add the column to the header:")
    assert "- Under way: “Now I'll add the column to the header:”" in _sections(user(ASKED), *look)["Active Task"]
    changed = _sections(user(ASKED), *look, *_edit(2, "/srv/shop/a.py"))
    assert "Under way" not in changed["Active Task"]
    known = _sections(user(ASKED), *_run(1, "cat a.py", "x", "Let me check the header of the file:"))
    assert "Under way" not in known["Active Task"]


@pytest.mark.spec("E1c")
def test_a_step_of_the_plan_is_not_next_where_files_were_changed_since_the_plan() -> None:
    items = [{"content": "Write the report on prices", "status": "pending"}]
    plan = _call(1, "todo", {"todos": items}, "ok")
    assert "- Next: “Write the report on prices”" in _sections(user(ASKED), *plan)["Active Task"]
    task = _sections(user(ASKED), *plan, *_edit(2, "/srv/shop/report.md"))["Active Task"]
    assert "- Next" not in task
    assert (
        "- Not marked as done: “Write the report on prices”, but since the plan was updated report.md changed" in task
    )


@pytest.mark.spec("E1c")
def test_a_build_is_repeated_by_its_command_and_no_tests_are_invented() -> None:
    history = [user(ASKED), *_run(1, "npm run build", "src/a.ts(3,1): error TS2304: Cannot find name 'b'.\nexit 1")]
    history += [*_run(2, "npm run build", "✓ built in 2.1s"), *_edit(3, "/srv/shop/a.ts")]
    text = "\n".join(_sections(*history).values())
    assert "tests" not in text
    assert "Run `npm run build` again" in text


@pytest.mark.spec("E1c")
def test_tests_of_another_package_than_the_run_was_limited_to_are_not_covered() -> None:
    edits = [*_edit(1, "/srv/shop/store/keys_test.go"), *_edit(2, "/srv/shop/web/page_test.go")]
    run = _run(3, "go test ./web/ -run TestPage 2>&1 | tail -5", "ok  \tshop/web\t0.2s")
    task = _sections(user(ASKED), *edits, *run)["Active Task"]
    assert "no run has covered keys_test.go since changed" in task
    assert "page_test.go since" not in task
    every = _run(4, "go test ./...", "ok  \tshop/web\t0.2s\nok  \tshop/store\t0.2s")
    assert "Not checked" not in _sections(user(ASKED), *edits, *run, *every)["Active Task"]


@pytest.mark.spec("E1c")
def test_failures_counted_in_filtered_output_are_a_lower_bound_and_the_edit_after_it_is_named() -> None:
    output = "--- FAIL: TestDate (0.01s)\n    date_test.go:9: got 1, want 2"
    run = _run(1, "go test ./... 2>&1 | grep -A 20 'FAIL: TestDate' | head -30", output)
    state = _sections(user(ASKED), *run)["Active State"]
    assert "at least 1 failed (of filtered output)" in state
    later = _sections(user(ASKED), *run, *_edit(2, "/srv/shop/date.go"))
    assert "before the last edit" in later["Active State"]


@pytest.mark.spec("E1c")
def test_a_long_command_keeps_the_names_of_its_tests() -> None:
    folder = "./services/warehouse/internal/application/inventory/integration/..."
    command = f"cd /srv/shop && go test -tags=integration -count=1 {folder} -run TestStock_Reserved 2>&1 | tail -40"
    short = short_command(command, 80)
    assert short == "go test -tags=integration ./services/…/integration/... -run TestStock_Reserved"


@pytest.mark.spec("E1c")
def test_edited_files_without_a_commit_are_named_without_any_git_call() -> None:
    history = [user("Rename the field."), *_edit(1, "/srv/shop/a.py"), assistant("Renamed."), user("Why so?")]
    assert "Changed, no commit seen: a.py" in _sections(*history)["Active State"]


def _answered(words: str, reply: str, *work: Message) -> str:
    return _sections(user(words), *work, assistant(reply), user("And now the footer?")).get("Completed Actions", "")


@pytest.mark.spec("E1c")
def test_a_completed_action_tells_what_was_changed_and_where() -> None:
    done = _answered(
        "Please show prices with two decimals.",
        "All clean. Prices are now rounded by `money()` to two decimals. One thing to flag: `tax()` would round up.",
        *_edit(1, "/srv/shop/price.py"),
    )
    assert done.startswith("1. “Please show prices with two decimals.” — Prices are now rounded by `money()`")
    assert "(changed price.py)" in done
    assert "All clean" not in done
    assert "tax()" not in done
    praise = _answered(
        "Please show prices with two decimals.", "The changes look good.", *_edit(1, "/srv/shop/price.py")
    )
    assert praise == "1. “Please show prices with two decimals.” — changed price.py (m:0,3)"


@pytest.mark.spec("E1c")
def test_a_statement_about_code_that_a_later_edit_removed_is_left_out() -> None:
    history = [user("Check the hooks at each stop."), *_edit(1, "/srv/shop/stop.py")]
    history.append(assistant("Both ways now check the hooks at each stop by `EnsureHooks()`."))
    assert "EnsureHooks" in _sections(*history, user("And the prompt?"))["Completed Actions"]
    arguments = {"path": "/srv/shop/stop.py", "old_string": "EnsureHooks()\nrun()", "new_string": "run()"}
    moved = [
        *history,
        user("Do it at the prompt instead."),
        *_call(2, "edit_file", arguments, "Replaced 1 occurrence."),
    ]
    assert "EnsureHooks" not in _sections(*moved, assistant("Done."), user("Fine."))["Completed Actions"]


@pytest.mark.spec("E1c")
def test_a_reply_about_something_else_is_not_paired_with_the_question() -> None:
    done = _answered(
        "Can one list all subreddits?",
        f"PR merged; titles are now cut. {'The page is short. ' * 20}",
        *_edit(1, "/srv/shop/a.py"),
    )
    assert "subreddits" not in done
    assert "titles are now cut" in done


@pytest.mark.spec("E1c")
def test_merged_pull_requests_and_changes_of_services_are_completed_actions() -> None:
    merged = _run(1, "gh pr merge 47 --merge", "✓ Merged pull request acme/shop#47 (Add dates)")
    closed = _run(2, "gh issue close 12", "")
    failed = _run(3, "gh pr merge 48 --merge", "X Pull request acme/shop#48 is not mergeable")
    booked = _call(4, "cancel_reservation", {"reservation_id": "K1NW8N"}, '{"status": "cancelled", "refund": 120}')
    done = _sections(user(ASKED), *merged, *closed, *failed, *booked)["Completed Actions"]
    assert "DID merged PR #47" in done
    assert "DID closed issue #12" in done
    assert "#48" not in done
    assert "cancel_reservation reservation_id=K1NW8N → status: cancelled" in done


@pytest.mark.spec("E1c")
def test_an_answer_is_no_fragment_that_refers_to_what_is_left_out() -> None:
    reply = (
        "It sets up the folder:\n- `tmp/`\n- `logs/`\n\nAll three are idempotent.\n\n"
        "The setup also writes `settings.json` with the default branch."
    )
    answer = _sections(user("What does the setup do?"), assistant(reply), user(ASKED))["Resolved Questions"]
    assert "The setup also writes `settings.json`" in answer
    assert "idempotent" not in answer
    listed = "There are two ways:\n- lock the file `a.lock`\n- retry the write 3 times\n\nThis is safe."
    answer = _sections(user("How can we avoid the race?"), assistant(listed), user(ASKED))["Resolved Questions"]
    assert "There are two ways: lock the file `a.lock`; retry the write 3 times" in answer


@pytest.mark.spec("E1c")
def test_a_yes_takes_up_what_was_recommended_and_an_id_decides_nothing() -> None:
    offer = "1. **Add a note** - to the help text.\n2. **Leave it** - it is harmless as it is today.\n\n"
    offer += "I'd suggest the note in the help text:\n\nWant me to do that?"
    done = [user("yes"), *_edit(1, "/srv/shop/a.py"), assistant("Added."), user("Thanks! And the footer?")]
    decided = _sections(user("Which one?"), assistant(offer), *done)["Key Decisions"]
    assert "I'd suggest the note in the help text" in decided
    asked = assistant("Could you please provide your user ID?")
    assert "Key Decisions" not in _sections(user("Change my seat."), asked, user("Sure! My user ID is kim_12."))


@pytest.mark.spec("E1c")
def test_what_the_user_leaves_for_later_remains() -> None:
    words = "Add the column. Leave the charts for a follow-up PR."
    assert "- Left for later: “Leave the charts for a follow-up PR.” (m:0)" in _sections(user(words))["Remaining Work"]


@pytest.mark.spec("E1c")
def test_a_call_without_a_result_is_under_way() -> None:
    look = ToolCall("c9", "grep", json.dumps({"pattern": "date", "path": "/srv/shop"}))
    for answer in ([], [tool_result("c9", MISSING_RESULT)]):
        task = _sections(user(ASKED), *_edit(1, "/srv/shop/a.py"), assistant("", (look,)), *answer)["Active Task"]
        assert "- Under way: search “date” in /srv/shop, whose result is not known" in task
        after = _sections(user(ASKED), assistant("", (look,)), *answer, assistant("Done."), user("Now the header."))
        assert "Under way" not in after["Active Task"]


@pytest.mark.spec("E1c")
def test_running_the_tests_is_not_called_next_amid_the_edits() -> None:
    green = _run(1, "pytest -q", "4 passed in 0.1s")
    sections = _sections(user(ASKED), *green, *_edit(2, "/srv/shop/a.py"), *_edit(3, "/srv/shop/b.py"))
    assert "Next" not in sections["Active Task"]
    assert "- Not checked: tests not run since a.py, b.py changed" in sections["Active Task"]
    assert "- Run the tests again" in sections["Remaining Work"].splitlines()


@pytest.mark.spec("E1c")
def test_every_failing_test_is_named_as_the_state_and_blocks_nothing() -> None:
    output = (
        "FAILED tests/test_a.py::test_date - assert 1 == 2\nFAILED tests/test_b.py::test_zone - assert 3 == 4\n"
        "FAILED tests/test_c.py::test_total - assert 5 == 6\n3 failed, 1 passed in 0.1s"
    )
    sections = _sections(user(ASKED), *_edit(1, "/srv/shop/a.py"), *_run(2, "pytest -q", output))
    assert "test_date" in sections["Active State"]
    assert "failing as well: tests/test_b.py::test_zone, tests/test_c.py::test_total" in sections["Active State"]
    assert "Blocked" not in sections
    rejected = "! [rejected] main -> main (fetch first)\nerror: failed to push some refs to 'origin'"
    assert "git push" in _sections(user(ASKED), *_run(1, "git push", rejected))["Blocked"]


@pytest.mark.spec("E1c", "E2")
def test_a_question_that_the_user_puts_off_stays_pending_until_they_come_back_to_it() -> None:
    asked = "The old export was no fault. Should I restore the old exporter?\n- Restore it\n- Leave it\n\nWhich one?"
    history = [user(ASKED), *_edit(1, "/a.py"), assistant(asked), user("Quick question first: why is the file empty?")]
    answer = assistant("The file is empty, because nothing was ordered on that day.")
    pending = _sections(*history, answer, user("Look into ../shop for the orders."))["Pending User Asks"]
    assert "Should I restore the old exporter? … Which one?” (m:3); the user put the answer off." in pending
    back = _sections(*history, answer, user("Yes, restore the old exporter."))
    assert "Pending User Asks" not in back
    direct = _sections(*history[:-1], user("Leave it. Why is the file empty?"))
    assert "Pending User Asks" not in direct


@pytest.mark.spec("E1c")
@pytest.mark.parametrize(
    ("reply", "words", "then"),
    [
        # Not asked of the user.
        ("Why does it fail? The port was closed. It is open now.", "One more thing first: rename tides to moon.", ""),
        # An order, and what follows it.
        ("Fixed. Should I commit the change of the tides?", "Check first that the linter is green, then commit.", ""),
        # Asked again, and answered.
        ("Fixed. Shall I deploy it?", "Quick question first: which branch is this?", "On main. Deploy it now?"),
        ("Fixed. Shall I push?", "Quick question first: which branch is this?", "On main."),
    ],
)
def test_a_question_that_is_settled_is_not_called_put_off(reply: str, words: str, then: str) -> None:
    answered = [user(ASKED), assistant(reply), user(words), assistant(then or "Done.")]
    follows = [user("OK do that"), assistant("Done.")] if then.endswith("?") else [user("Push it"), assistant("Done.")]
    assert "Pending User Asks" not in _sections(*answered, *(follows if then else ()), user("Now the header."))


@pytest.mark.spec("E1c")
def test_what_is_done_is_listed_though_its_reply_is_in_view_where_nothing_else_would_be() -> None:
    done = [user(ASKED), *_edit(1, "/srv/shop/a.py"), assistant("Added the date column to the export."), user("Why?")]
    listed = _sections(*done, in_view=frozenset((3, 4)))["Completed Actions"]
    assert "Added the date column to the export." in listed
    commit = _run(2, "git commit -am 'Add the column'", "[main 1a2b3c4] Add the column\n 1 file changed")
    history = [*done[:3], *commit, *done[3:]]
    assert "Added the date" not in _sections(*history, in_view=frozenset((5, 6)))["Completed Actions"]


@pytest.mark.spec("E1")
def test_what_follows_a_summary_of_another_program_is_not_how_the_conversation_began() -> None:
    summary = user(
        "This session is being continued from a previous conversation that ran out of context. Summary: tides."
    )
    assert _sections(summary, user("Explain the gauge to the crew."), assistant("Why?"))["Goal"].startswith(
        "The first request after an earlier summary: “Explain the gauge"
    )


@pytest.mark.spec("E1c")
def test_the_answer_to_numbered_questions_is_no_row_of_numbers() -> None:
    reply = (
        "Two questions there:\n\n**1. Does the gauge look at the tides?**\n\nYes, lines 3-9 do:\n```py\nread()\n```\n\n"
        "**2. Can the shop import the gauge?**\n\nYes, it's safe. The chain is:\n```\nshop → gauge\n```\n\n"
        "And `gauge` only imports the standard library (`math`, `re`)."
    )
    sections = _sections(user("May the shop import the gauge, or is that a cycle?"), assistant(reply), user("Thanks"))
    assert "Yes, it's safe. And `gauge` only imports the standard library" in sections["Resolved Questions"]
    assert "1. 2." not in sections["Resolved Questions"]
