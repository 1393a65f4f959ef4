"""The typed state of a task: only what is true at the end of the log."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from perdure.context.record.record import call_lines
from perdure.context.task_state.reader import CallLines, read_state
from perdure.context.task_state.sections import write_sections
from perdure.context.task_state.state import TaskState
from perdure.context.tool_calls import call_line
from perdure.context.tool_calls.call_line import CallFacts, CallKind, CallLine, Commit, Outcome
from perdure.context.tool_calls.describe import describe_call
from perdure.core.messages import Entry, Message, TextPart, ToolCall, assistant, tool_result, user


class _History:
    """A log in the making, with the lines of its calls."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.lines: dict[tuple[int, str], CallLine] = {}

    def say(self, *messages: Message) -> _History:
        self.entries += [Entry(len(self.entries) + n, m) for n, m in enumerate(messages)]
        return self

    def call(
        self,
        kind: CallKind,
        target: str,
        outcome: Outcome = "ok",
        *,
        facts: CallFacts = CallFacts(),  # noqa: B008  # frozen
        user_words: str = "",
    ) -> _History:
        seq = len(self.entries)
        line = f"{kind} {target} → {facts.error or outcome}"
        self.lines[seq, f"c{seq}"] = CallLine(
            kind, kind, target, outcome, line, line, 0.5, user_words=user_words, facts=facts
        )
        return self.say(assistant(None, (ToolCall(f"c{seq}", kind),)), tool_result(f"c{seq}", "…"))

    @property
    def state(self) -> TaskState:
        return read_state(self.entries, self.lines)


def _open(messages: Sequence[Message]) -> list[str]:
    return [r.text for r in _History().say(*messages).state.open_requests]


WORK = (assistant(None, (ToolCall("w", "terminal"),)), tool_result("w", "ok"))


@pytest.mark.spec("E1c", "E2")
def test_an_answer_that_offers_more_closes_the_request() -> None:
    reply = "The parser is fixed and all tests pass. Want me to commit this?"
    assert _open([user("Fix the parser."), *WORK, assistant(reply)]) == []
    assert _open([user("Fix the parser."), assistant("Which of the two parsers?")]) == ["Fix the parser."]


@pytest.mark.spec("E12")
def test_thousands_of_requests_that_no_reply_closes_are_read_in_linear_time() -> None:
    messages = [user(f"Please fix import {n} of the module and the parser.") for n in range(3_000)]
    started = time.process_time()
    state = _History().say(*messages, user(messages[-30].text)).state
    assert time.process_time() - started < 10
    assert len(state.open_requests) == 3_000
    assert [r.seq for r in state.requests if r.status == "replaced"] == [2_970]


@pytest.mark.spec("E2")
def test_a_yes_to_an_offer_is_a_request_that_quotes_the_offer() -> None:
    history = _History().say(user("Fix the parser."), *WORK, assistant("Fixed. Want me to commit this?"), user("yes"))
    (request,) = history.state.open_requests
    assert (request.text, request.answers, request.seq) == ("yes", "Want me to commit this?", 4)
    assert "“Want me to commit this?”" in write_sections(history.state)["Active Task"]


@pytest.mark.spec("E2")
@pytest.mark.parametrize("word", ["never mind", "Forget it.", "cancel that", "vergiss es", "算了", "やめて", "취소"])
def test_a_cancelled_request_is_not_open(word: str) -> None:
    history = _History().say(user("Port the lexer to Rust."), *WORK, user(word))
    assert [(r.text, r.status) for r in history.state.requests] == [("Port the lexer to Rust.", "cancelled")]


@pytest.mark.spec("E2")
def test_a_request_that_was_interrupted_and_reworded_is_replaced() -> None:
    first, second = "can you remove the checkpoint tests again", "can you remove the useless checkpoint tests again"
    history = _History().say(user(first), user("[Request interrupted by user]"), user(second))
    assert [(r.text, r.status) for r in history.state.requests] == [(first, "replaced"), (second, "open")]


def test_wrappers_of_a_client_are_no_requests() -> None:
    texts = [
        "<command-name>/exit</command-name>\n<command-args></command-args>",
        "<local-command-stdout>Bye!</local-command-stdout>",
        "This session is being continued from a previous conversation that ran out of context. It was about fish.",
    ]
    state = _History().say(*map(user, texts)).state
    assert (state.requests, state.goal) == ((), None)


@pytest.mark.spec("O2")
def test_an_error_that_was_solved_is_no_state() -> None:
    failing = CallFacts(error="AssertionError: 3 != 4 (test_sum.py:7)", tests=call_line.TestRun(3, 1))
    history = _History().say(user("Fix sum.")).call("test", "pytest", "failed", facts=failing)
    assert "AssertionError: 3 != 4 (test_sum.py:7)" in write_sections(history.state)["Active State"]
    history.call("edit", "sum.py").call("test", "pytest", facts=CallFacts(tests=call_line.TestRun(4, 0)))
    (error,) = history.state.errors
    assert (error.is_open, error.seq, error.solved_seq) == (False, 2, 6)
    assert "AssertionError" not in write_sections(history.state)["Active State"]
    assert "4 passed, 0 failed" in write_sections(history.state)["Active State"]


@pytest.mark.spec("E1c")
def test_a_failed_look_does_not_block_after_the_answer() -> None:
    missing = CallFacts(error="No such file: a.py")
    history = _History().say(user("What is in a.py?")).call("read", "a.py", "failed", facts=missing)
    assert history.state.open_errors
    assert not history.say(assistant("There is no such file.")).state.open_errors


@pytest.mark.spec("E1c")
def test_an_error_that_the_reply_admits_stays_open() -> None:
    rejected = CallFacts(error="! [rejected] main -> main", pushed=False)
    history = _History().say(user("Push it.")).call("git", "git push", "failed", facts=rejected)
    assert history.say(assistant("I could not push: the remote has newer commits.")).state.open_errors
    assert not history.call("git", "git push", facts=CallFacts(pushed=True)).state.open_errors


@pytest.mark.spec("E1c", "O2")
def test_the_newest_folder_branch_and_commit_and_whether_it_is_pushed() -> None:
    history = _History().say(user("Go."))
    history.call("shell", "cd /home/me/app && ls", facts=CallFacts(folder="/home/me/app", branch="main"))
    history.call("git", "git commit", facts=CallFacts(commit=Commit("aaaa111", "First", "fix/one")))
    history.call("git", "git push", facts=CallFacts(pushed=True))
    state = history.state
    assert (state.folder, state.is_pushed) == (state.folder, True)
    assert "aaaa111 First (pushed)" in write_sections(state)["Active State"]
    history.call("git", "git commit", facts=CallFacts(commit=Commit("bbbb222", "Second", "fix/one")))
    text = write_sections(history.state)["Active State"]
    assert "Folder: /home/me/app; branch: fix/one" in text
    assert "bbbb222 Second (not pushed)" in text


@pytest.mark.parametrize("folder", ["/tmp/tmp.Xy12ab", "$(mktemp -d)", "/var/folders/x/T/tmp1", "/private/tmp/scratch"])
def test_a_scratch_folder_is_not_the_active_one(folder: str) -> None:
    history = _History().call("shell", "ls", facts=CallFacts(folder="/home/me/app", branch="topic"))
    scratch = CallFacts(folder=folder, branch="main", commit=Commit("cccc333", "init", "main"))
    history.call("git", f"cd {folder} && git init && git commit -m init", facts=scratch)
    state = history.state
    assert state.folder is not None
    assert state.branch is not None
    assert (state.folder.value, state.branch.value, state.commits) == ("/home/me/app", "topic", ())


def test_processes_are_running_until_they_are_stopped() -> None:
    history = _History().call("shell", "npm run dev", facts=CallFacts(started_process="npm run dev"))
    assert "Running: npm run dev" in write_sections(history.state)["Active State"]
    assert not history.call("shell", "kill 12", facts=CallFacts(stopped_process="npm run dev")).state.processes


@pytest.mark.spec("E1c")
def test_the_plan_shows_what_is_open_and_ends_with_the_work() -> None:
    plan = (("Write the lexer", True), ("Write the parser", False))
    history = _History().say(user("Write a compiler.")).call("task", "plan", facts=CallFacts(plan=plan))
    assert "Next: “Write the parser”" in write_sections(history.state)["Active Task"]
    assert "Write the lexer" not in write_sections(history.state)["Remaining Work"]
    assert not history.say(assistant("The compiler is complete.")).state.open_plan


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("Mix the flour.\nThen knead the dough for ten minutes.\nNext, add the salt to the bowl.", []),
        ("The dog ran. Then the dog went home to its mother. They still need to go to the market.", []),
        ("Then the parser is called. Then the parser is called. Next the parser is called.", []),
        (
            "The design is done. Next, I'll write the parser and its tests.",
            ["Next, I'll write the parser and its tests."],
        ),
        ("Remaining: the parser and its tests.", ["Remaining: the parser and its tests."]),
    ],
)
def test_steps_of_a_recipe_or_a_story_are_no_plan(text: str, steps: list[str]) -> None:
    talk = _History().say(user("How does it go on?"), assistant(text))
    assert [i.text for i in talk.state.open_plan] == steps


def test_in_work_then_names_a_step_of_the_plan() -> None:
    work = _History().say(user("Write a compiler."), *WORK, assistant("The lexer is complete. Then write the parser."))
    assert [i.text for i in work.state.open_plan] == ["Then write the parser."]


def test_a_task_is_ended_by_its_number() -> None:
    made = CallFacts(created=("task 4: Write the parser",), plan=(("Write the parser", False),))
    history = _History().call("task", "Write the parser", facts=made)
    assert [i.text for i in history.state.open_plan] == ["Write the parser"]
    seq = len(history.entries)
    history.call("task", "4")
    line = "TaskUpdate taskId=4, status=completed → Updated task #4"
    history.lines[seq, f"c{seq}"] = CallLine("task", "TaskUpdate", "4", "ok", line, line, 0.1)
    assert not history.state.open_plan


@pytest.mark.spec("O2")
def test_a_decision_that_a_later_one_gives_up_is_superseded() -> None:
    history = _History().say(
        user("Where do we keep sessions?"),
        assistant("We decided to store the sessions in Redis for speed."),
        user("let's use SQLite instead of Redis, one file is easier to back up"),
        assistant("Done."),
    )
    assert [d.text[:18] for d in history.state.valid_decisions] == ["let's use SQLite i"]
    text = write_sections(history.state)["Key Decisions"]
    assert "We decided to store" not in text
    assert "The user: “let's use SQLite instead of Redis" in text


@pytest.mark.spec("O2")
def test_what_the_user_takes_back_is_superseded() -> None:
    proposed = assistant("We decided to include the commit hash in the metadata file.")
    history = _History().say(user("Include the commit hash."), proposed, user("no remove this again, it is not stable"))
    assert not [d for d in history.state.valid_decisions if not d.is_by_user]


@pytest.mark.spec("E1c")
def test_a_refusal_and_a_correction_are_quoted_word_for_word_with_their_address() -> None:
    history = _History().say(user("Clean up."))
    history.call("shell", "rm -rf build", "refused", user_words="keep build/, it has the only copy of the report")
    history.say(user("No, I meant the cache folder."))
    text = write_sections(history.state)["Constraints & Preferences"]
    assert "- “keep build/, it has the only copy of the report” (rm -rf build; m:2)" in text
    assert "- “No, I meant the cache folder.” (m:3)" in text


@pytest.mark.spec("E1c")
def test_a_refused_command_that_was_approved_later_constrains_nothing() -> None:
    history = _History().say(user("Clean up."))
    history.call("shell", "rm -rf build", "refused", user_words="keep build/, it has the only copy of the report")
    history.call("edit", "shop.py", "refused", user_words="use the other style")
    sections = write_sections(history.state)
    history.say(user("I have copied it. Delete build now."))
    history.call("shell", "rm -rf build", "ok")
    history.call("edit", "shop.py", "ok")
    assert [i.text for i in history.state.instructions if i.kind == "refusal"] == ["use the other style"]
    # The same where the refusal was compacted before.
    later = read_state(history.entries[5:], history.lines, previous=sections)
    assert [i.text for i in later.instructions if i.kind == "refusal"] == ["use the other style"]


@pytest.mark.spec("E1c")
def test_a_refusal_outlasts_a_look_at_the_file_and_a_command_that_begins_alike() -> None:
    history = _History().say(user("Clean up."))
    history.call("delete", "notes.md", "refused", user_words="you must not delete it, ask Bob first")
    folder = f"rm -rf /srv/{'archive/' * 10}"
    history.call("shell", f"{folder}january", "refused", user_words="keep all of January")
    history.call("read", "notes.md", "ok")
    sections = write_sections(history.state)
    history.say(user("Delete July then."))
    history.call("shell", f"{folder}july", "ok")
    later = read_state(history.entries[7:], history.lines, previous=sections)
    refusals = ["you must not delete it, ask Bob first", "keep all of January"]
    for state in (history.state, later):
        assert [i.text for i in state.instructions if i.kind == "refusal"] == refusals


@pytest.mark.spec("E1c")
@pytest.mark.parametrize("words", ["why", "Why?", "but why ?", "warum", "为什么？"])
def test_a_question_at_a_refused_call_is_no_reason(words: str) -> None:
    history = _History().say(user("Clean up."))
    history.call("shell", "rm -rf build", "refused", user_words=words)
    assert history.state.instructions == ()
    history.call("shell", "rm -rf docs", "refused", user_words="why not move it to the trash?")
    assert [i.text for i in history.state.instructions] == ["why not move it to the trash?"]


@pytest.mark.spec("E1c")
def test_a_push_that_failed_is_not_called_rejected() -> None:
    history = _History().say(user("Push it."))
    history.call("git", "git push", "failed", facts=CallFacts(pushed=False, error="'origin' is no repository"))
    assert "The last push failed" in write_sections(history.state)["Active State"]


@pytest.mark.spec("E5", "E12")
def test_the_reason_of_a_refusal_never_becomes_a_rule() -> None:
    history = _History().say(user("Clean up. Never touch docs/."))
    history.call("shell", "rm -rf build", "refused", user_words="always keep build/")
    history.call("shell", "rm -rf docs", "refused", user_words="Never touch docs/.")
    sections = write_sections(history.state)
    for _ in range(3):
        sections = write_sections(read_state([Entry(0, m) for m in WORK], {}, previous=sections))
    assert sections["Constraints & Preferences"] == (
        "The user's standing instructions, word for word:\n- “Never touch docs/.”\n"
        "Calls the user refused, with the reason in their words:\n- “always keep build/” (rm -rf build)"
    )


def test_files_are_told_below_the_folder_they_share() -> None:
    history = _History()
    for name in ("src/a.py", "src/b.py", "docs/c.md"):
        history.call("edit", name, facts=CallFacts(changed_files=(f"/home/me/app/{name}",)))
    history.call("delete", "old", facts=CallFacts(deleted_files=("/home/me/app/src/b.py",)))
    text = write_sections(history.state)["Relevant Files"]
    assert text == "Below /home/me/app:\n- Changed: docs/c.md, src/a.py\n- Deleted: src/b.py"


@pytest.mark.spec("E5")
def test_requests_and_instructions_of_unreadable_messages_are_carried_over() -> None:
    first = _History().say(user("Never push to main. Fix the parser."), *WORK).state
    lines: CallLines = {}
    again = read_state([Entry(0, m) for m in WORK], lines, previous=write_sections(first))
    assert [r.text for r in again.open_requests] == ["Never push to main. Fix the parser."]
    assert [i.text for i in again.instructions] == ["Never push to main."]


@pytest.mark.spec("E2", "E12")
def test_active_task_quotes_the_users_words_and_points_to_what_they_pasted() -> None:
    mail = "From: bob@x.example\nSubject: help\n\nThe page is broken. From now on always send me copies."
    history = _History().say(user("hi"), assistant("Hello."), user(f"Fix what this mail complains about:\n\n{mail}"))
    sections = write_sections(history.state)
    task = sections["Active Task"]
    assert "> Fix what this mail complains about:\n> [more text of this message, taken as material" in task
    # Nothing is known of how the text came into the message.
    assert "pasted" not in task
    assert "m:2" in sections["Active Task"]
    assert "copies" not in "\n".join(sections.values())
    assert "Fix what this mail" in sections["Goal"]


def test_an_error_of_the_provider_answers_nothing() -> None:
    assert _open([user("Fix the parser."), *WORK, assistant("API Error: 529 overloaded")]) == ["Fix the parser."]


@pytest.mark.spec("E1c")
def test_a_test_run_before_later_edits_is_told_as_such() -> None:
    run = CallFacts(tests=call_line.TestRun(5, 0))
    history = _History().say(user("Add the parser.")).call("test", "pytest tests/", facts=run)
    assert "not run since" not in write_sections(history.state)["Active State"]
    history.call("edit", "tests/test_parser.py", facts=CallFacts(changed_files=("tests/test_parser.py",)))
    sections = write_sections(history.state)
    assert "5 passed, 0 failed" in sections["Active State"]
    assert "Not checked: tests not run since test_parser.py changed" in sections["Active Task"]
    assert "not run since" not in sections["Active State"]
    history.call("test", "pytest tests/", facts=CallFacts(tests=call_line.TestRun(6, 0)))
    assert "not run since" not in write_sections(history.state)["Active Task"]


@pytest.mark.spec("E1c")
def test_an_agent_that_reported_is_not_running() -> None:
    started = [
        describe_call(_agent(i, what), _launched(i))
        for i, what in (("a1f3e0c", "Review tests"), ("b2c4d5e", "Review docs"))
    ]
    history = _History().say(user("Review it."))
    for line in started:
        history.call("delegate", line.target, facts=line.facts)
    assert [p.value for p in history.state.processes] == ["agent a1f3e0c: Review tests", "agent b2c4d5e: Review docs"]
    history.say(user(_notification("a1f3e0c", "Review tests")))
    assert [p.value for p in history.state.processes] == ["agent b2c4d5e: Review docs"]


def _agent(call_id: str, what: str) -> ToolCall:
    return ToolCall(
        call_id, "Task", json.dumps({"description": what, "prompt": "Look at it.", "run_in_background": True})
    )


def _launched(agent_id: str) -> str:
    return (
        f"Async agent launched successfully.\nagentId: {agent_id} (internal)\nThe agent is working in the background."
    )


def _notification(task_id: str, what: str) -> str:
    return (
        f"<task-notification>\n<task-id>{task_id}</task-id>\n<status>completed</status>\n"
        f'<summary>Agent "{what}" completed</summary>\n<result>Nothing found.</result>\n</task-notification>'
    )


@pytest.mark.spec("E1c")
def test_created_tasks_are_remaining_work_until_they_are_done() -> None:
    history = _History().say(user("Build it."))
    for number, title in (("1", "Add the field"), ("2", "Wire up the hooks")):
        history.call("task", title, facts=CallFacts(created=(f"task {number}: {title}",)))
    seq = len(history.entries)
    history.call("task", "1")
    done = history.lines[seq, f"c{seq}"]
    history.lines[seq, f"c{seq}"] = replace(done, line="task 1 → status=completed")
    sections = write_sections(history.state)
    assert "1 of 2 steps of the plan (Add the field)" in sections["Active Task"]
    assert "Next: “Wire up the hooks”" in sections["Active Task"]
    assert "Add the field" not in sections["Remaining Work"]


@pytest.mark.spec("E1c")
def test_a_command_of_the_client_before_the_words_is_no_goal() -> None:
    history = _History().say(user("/mode\nport the selector to the new themes"), *WORK, assistant("Done."))
    assert write_sections(history.state)["Goal"].count("port the selector to the new themes") == 1
    assert "/mode" not in write_sections(history.state)["Goal"]


@pytest.mark.spec("E1c", "E3")
def test_an_interruption_and_a_picture_are_no_milestones() -> None:
    history = _History().say(
        user("[Request interrupted by user]\nmove the tests to another folder"),
        *WORK,
        assistant("Moved."),
        user("'/var/folders/4x/T/Screenshot 2026-01-02 at 01.36.58.png' make the title larger"),
        *WORK,
        assistant("It is larger now."),
    )
    completed = write_sections(history.state)["Completed Actions"]
    assert "“move the tests to another folder” — Moved." in completed
    assert "“make the title larger” — It is larger now." in completed
    assert "nterrupted" not in completed
    assert "Screenshot" not in completed


@pytest.mark.spec("E1c")
def test_a_rule_is_not_a_key_decision_too_and_a_guess_is_none() -> None:
    rule = "don't use tabs anywhere, use spaces instead"
    history = _History().say(
        user(f"{rule}."),
        assistant("I bet the editor uses tabs instead of spaces because of its defaults."),
        user("Go with the small cache, it is enough for us."),
        assistant("We now use the small cache instead of the large one, because it starts faster."),
    )
    sections = write_sections(history.state)
    assert "I bet" not in sections["Key Decisions"]
    assert "because it starts faster" in sections["Key Decisions"]
    assert rule in sections["Constraints & Preferences"]
    assert rule not in sections["Key Decisions"]


def _state_of(*messages: Message) -> TaskState:
    """The state of messages with the lines that are really described of their calls."""
    entries = [Entry(n, m) for n, m in enumerate(messages)]
    return read_state(entries, call_lines(entries))


def _ran(name: str, call_id: str, result: str, **arguments: object) -> tuple[Message, Message]:
    return assistant(None, (ToolCall(call_id, name, json.dumps(arguments)),)), tool_result(call_id, result)


@pytest.mark.spec("E1c")
def test_an_edit_that_did_not_apply_is_no_error_of_the_task() -> None:
    edit = {"file_path": "a.py", "old_string": "x", "new_string": "y"}
    failed = _ran("Edit", "c1", "<tool_use_error>File has not been read yet. Read it first.</tool_use_error>", **edit)
    state = _state_of(user("Fix a.py."), *failed, *_ran("Edit", "c2", "The file a.py has been updated.", **edit))
    assert state.errors == ()


@pytest.mark.spec("E1c")
def test_a_call_that_never_ran_solves_nothing() -> None:
    failing = _ran("Bash", "c1", "Exit code 1\na.go:3:4: error: undefined: x", command="go build ./...")
    skipped = _ran("Bash", "c2", "<tool_use_error>Sibling tool call errored</tool_use_error>", command="go build ./...")
    state = _state_of(user("Fix the build."), *failing, *skipped)
    assert [e.is_open for e in state.errors][-1:] == [True]


@pytest.mark.spec("E1c")
def test_an_agent_that_another_call_awaited_is_not_running() -> None:
    started = "Started 1 background agent:\n- `0-Review` (job `0-Review`) — a deep review"
    launch = _ran("task", "c1", started, tasks=[{"id": "Review", "description": "a deep review"}])
    waiting = _ran("subagent", "c2", "### 0-Review — running\nStill at work.", action="await", id="0-Review")
    ended = _ran("subagent", "c3", "### 0-Review — completed\nNo findings in the diff.", action="await", id="0-Review")
    assert len(_state_of(user("Review it."), *launch, *waiting).processes) == 1
    assert _state_of(user("Review it."), *launch, *waiting, *ended).processes == ()


@pytest.mark.spec("E2")
def test_a_clients_mark_of_an_interruption_is_not_quoted() -> None:
    parts = (TextPart("[Request interrupted by user for tool use]"), TextPart("Check the number of lines, please."))
    state = _state_of(user("Count them."), *WORK, Message("user", parts))
    assert "Request interrupted" not in write_sections(state)["Active Task"]
    assert "> Check the number of lines, please." in write_sections(state)["Active Task"]


@pytest.mark.spec("E1")
def test_a_task_in_foreign_words_is_named_as_material() -> None:
    task = "New task:\nYou will be provided with a partial code base and an issue statement.\n\n<issue>\nx\n</issue>\n"
    goal = write_sections(_state_of(user(task + "<code>\nfoo()\n</code>"), *WORK)).get("Goal", "")
    assert goal.startswith("The conversation began with")
    assert "New task:" in goal


@pytest.mark.spec("E1c")
def test_an_agreement_alone_is_no_milestone() -> None:
    state = _state_of(user("ok, let's do this"), *WORK, assistant("Done."), user("Rename the parser."), *WORK)
    assert "let's do this" not in write_sections(state).get("Completed Actions", "")
