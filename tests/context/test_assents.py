"""Short answers of the user: what they take up of the assistant's proposals, and what came of requests."""

from __future__ import annotations

import pytest

from perdure.context.record.record import call_lines
from perdure.context.task_state.instructions import REQUIREMENTS, parse_instructions
from perdure.context.task_state.proposals import find_referent, read_proposal
from perdure.context.task_state.reader import read_state
from perdure.context.task_state.sections import write_sections
from perdure.context.task_state.state import TaskState
from perdure.context.tool_calls.describe import describe_call
from perdure.core.messages import Entry, Message, ToolCall, assistant, tool_result, user

CHOICES = """Three ways are open:

1. **Write the importer** - reads the old files once
2. **Keep both formats** - slower, but nothing breaks
3. **Drop the old format** - needs a note in the changelog

What would you like to do next?"""
EDIT = (
    assistant(None, (ToolCall("e", "write_file", '{"path": "/srv/shop/importer.py", "content": "x = 1"}'),)),
    tool_result("e", "Wrote 1 line."),
)


def _state(*messages: Message) -> TaskState:
    entries = [Entry(n, m) for n, m in enumerate(messages)]
    return read_state(entries, call_lines(entries))


@pytest.mark.parametrize(
    ("answer", "taken"),
    [
        ("1+2", ("Write the importer", "Keep both formats")),
        ("yes, do 1", ("Write the importer",)),
        ("let's do 3 first", ("Drop the old format",)),
        ("option 2", ("Keep both formats",)),
        ("yeah 2 and 3", ("Keep both formats", "Drop the old format")),
        ("the last one", ("Drop the old format",)),
        ("all of them please", ("Write the importer", "Keep both formats", "Drop the old format")),
    ],
)
def test_a_choice_is_told_with_the_options_it_names(answer: str, taken: tuple[str, ...]) -> None:
    about = find_referent(answer, read_proposal(assistant(CHOICES)))
    options = ("Write the importer", "Keep both formats", "Drop the old format")
    assert tuple(o for o in options if o in about) == taken


@pytest.mark.parametrize(
    "answer", ["add 3 tests for it", "set the limit to 250", "what about python 3?", "port 2-3x faster"]
)
def test_other_numbers_are_no_choices(answer: str) -> None:
    assert find_referent(answer, read_proposal(assistant(CHOICES))) == ""


def test_lettered_options_are_choices_too() -> None:
    reply = assistant("Option A: one queue for all\nOption B: a queue for each tenant\n\nWhich one?")
    assert find_referent("B", read_proposal(reply)) == "B. a queue for each tenant"


@pytest.mark.spec("E1c")
def test_an_assent_is_a_decision_with_what_was_assented_to() -> None:
    state = _state(
        user("Is the cache safe?"),
        assistant("No, two writers race. I'd suggest a lock around `store.put()`. Want me to do that?"),
        user("yes"),
        *EDIT,
        assistant("The lock is in place."),
    )
    decisions = write_sections(state)["Key Decisions"]
    assert "The user: “yes”" in decisions
    assert "a lock around `store.put()`" in decisions
    assert "Want me to do that?" in decisions


@pytest.mark.spec("E1c")
def test_an_open_choice_is_quoted_with_its_options() -> None:
    task = write_sections(_state(user("Plan the move."), assistant(CHOICES), user("1+2")))["Active Task"]
    assert "> 1+2" in task
    assert "Write the importer" in task
    assert "Keep both formats" in task
    assert "Drop the old format" not in task


@pytest.mark.spec("E1c")
def test_a_report_is_no_answer_to_an_offer() -> None:
    state = _state(
        user("Fix the rounding."), *EDIT, assistant("Fixed. Would you like me to commit it?"), user("CI is failing")
    )
    assert "answers the assistant" not in write_sections(state)["Active Task"]


@pytest.mark.spec("E3")
def test_a_request_for_work_is_listed_with_what_came_of_it() -> None:
    state = _state(
        user("Can you fix the importer?"),
        *EDIT,
        assistant("Great question!\n\nThe importer skipped empty lines; it now keeps them and all 12 tests pass."),
    )
    sections = write_sections(state)
    assert "“Can you fix the importer?” — The importer skipped empty lines" in sections["Completed Actions"]
    assert "Resolved Questions" not in sections


@pytest.mark.spec("E1c")
def test_an_answer_that_the_user_corrects_is_not_resolved() -> None:
    asked = (
        user("Which port does the worker use?"),
        assistant("The worker listens on port 8080, as in `worker.toml`."),
    )
    assert "8080" in write_sections(_state(*asked))["Resolved Questions"]
    corrected = _state(*asked, user("No, that is wrong, it reads WORKER_PORT."), assistant("It is 9123, then."))
    assert "8080" not in write_sections(corrected).get("Resolved Questions", "")


@pytest.mark.spec("E3")
def test_an_outcome_that_the_user_corrects_is_not_told_as_true() -> None:
    fixed = (user("Fix the importer, please."), *EDIT, assistant("The cause was the light theme, it is fixed now."))
    assert "light theme" in write_sections(_state(*fixed))["Completed Actions"]
    corrected = write_sections(_state(*fixed, user("No, that's not it."), *EDIT))["Completed Actions"]
    assert "light theme" not in corrected
    assert "“Fix the importer, please.” — the user corrected the outcome" in corrected


@pytest.mark.spec("E1c")
def test_the_answer_to_a_question_asked_again_replaces_the_first() -> None:
    state = _state(
        user("How many workers does the queue start?"),
        assistant("The queue starts four workers."),
        user("How many workers does the queue start now?"),
        assistant("The queue starts six workers since the last change."),
    )
    resolved = write_sections(state)["Resolved Questions"]
    assert "six workers" in resolved
    assert "four workers" not in resolved


@pytest.mark.parametrize(
    ("command", "moved"),
    [
        ("git mv docs/a.md docs/old/a.md", ("docs/a.md", "docs/old/a.md")),
        ("mv notes.txt archive/", ("notes.txt", "archive/notes.txt")),
        ("mv src/app.py src/main.py", ("src/app.py", "src/main.py")),
    ],
)
def test_a_moved_file_is_not_deleted(command: str, moved: tuple[str, str]) -> None:
    call = ToolCall("m", "terminal", f'{{"command": "{command}"}}')
    assert describe_call(call, "").facts.moved_files == (moved,)
    state = _state(user("Tidy up."), assistant(None, (call,)), tool_result("m", ""))
    files = write_sections(state)["Relevant Files"]
    assert "Deleted" not in files
    assert "Moved: " in files


@pytest.mark.spec("E1b")
@pytest.mark.parametrize(
    ("stated", "is_lasting"),
    [
        ("The title must be blue and centred.", False),
        ("Make sure the `subtree_only` page has a title.", False),
        ("The title must always be blue.", True),
        ("I'd like to keep functions below 40 lines.", True),
        ("Commit messages must be in English.", True),
        ("Never touch the legacy folder.", True),
    ],
)
def test_a_requirement_of_work_that_is_done_is_told_apart_from_rules(stated: str, is_lasting: bool) -> None:
    state = _state(user(f"Please build the page. {stated}"), *EDIT, assistant("The page is built."), user("Thanks."))
    quoted = write_sections(state)["Constraints & Preferences"]
    assert f"“{stated}”" in quoted
    assert (REQUIREMENTS not in quoted) == is_lasting
    again = list(parse_instructions(quoted))
    assert [i.kind for i in again if i.text == stated] == ["rule" if is_lasting else "requirement"]


@pytest.mark.spec("E1b")
def test_a_requirement_of_open_work_binds() -> None:
    state = _state(user("Please build the page. The title must be blue and centred."), *EDIT)
    sections = write_sections(state)
    assert "The title must be blue and centred." in sections["Active Task"]
    assert "title" not in sections.get("Constraints & Preferences", "")  # told once


def _git(call_id: str, command: str, output: str) -> tuple[Message, Message]:
    call = ToolCall(call_id, "terminal", f'{{"command": "{command}"}}')
    return assistant(None, (call,)), tool_result(call_id, output)


@pytest.mark.spec("E1c")
def test_the_active_state_names_what_was_changed_after_the_newest_commit() -> None:
    commit = _git("g", "git commit -am 'Import'", "[main 1a2b3c4] Import\n 1 file changed, 1 insertion(+)")
    read = (
        assistant(None, (ToolCall("r", "read_file", '{"path": "/srv/shop/importer.py"}'),)),
        tool_result("r", "x = 1"),
    )
    later = (
        assistant(None, (ToolCall("w", "write_file", '{"path": "/srv/shop/report.py", "content": "y = 2"}'),)),
        tool_result("w", "Wrote 1 line."),
    )
    done = (user("Import the orders."), *EDIT, *commit, *read)
    assert "Changed since" not in write_sections(_state(*done))["Active State"]
    state = write_sections(_state(*done, *later, assistant("Done.")))["Active State"]
    assert "Changed since that commit: report.py" in state
    # What was changed for the open request is told with it, and only there.
    sections = write_sections(_state(*done, *later, user("Now format the code of the report.")))
    assert "Changed since that commit: report.py" in sections["Active State"]
    sections = write_sections(_state(*done, *later))
    assert "changed /srv/shop/report.py, /srv/shop/importer.py (not committed: report.py)" in sections["Active Task"]
    assert "report.py" not in sections["Active State"] + sections.get("Relevant Files", "")
    branch = _git("b", "git status", "On branch feature/x\nnothing to commit, working tree clean")
    state = write_sections(_state(user("Go."), *branch, *EDIT, assistant("Done.")))["Active State"]
    assert "Changed, no commit seen: importer.py" in state


def test_a_file_with_a_long_path_is_named_rather_than_counted() -> None:
    source, target = "/srv/" + "very-long-folder/" * 30 + "plan.md", "/srv/archive/" + "another-folder/" * 30
    call = ToolCall("m", "terminal", f'{{"command": "mv {source} {target}"}}')
    state = _state(user("Tidy up."), assistant(None, (call,)), tool_result("m", ""))
    files = write_sections(state)["Relevant Files"]
    assert "plan.md" in files
    assert "Moved:  and" not in files


@pytest.mark.spec("E3")
def test_a_reply_with_the_code_itself_is_work_done() -> None:
    reply = "`count_lines` now skips blank lines.\n\n```python\ndef count_lines(text):\n    return 3\n```"
    sections = write_sections(_state(user("only count lines with content in the file"), assistant(reply)))
    assert (
        "“only count lines with content in the file” — `count_lines` now skips blank lines."
        in sections["Completed Actions"]
    )


@pytest.mark.spec("E1c")
def test_small_talk_resolves_nothing() -> None:
    chat = (
        user("わたしもずっとそう思っていましたけど、それはとてもおもしろいですねー！"),
        assistant("そうですね、楽しみです。" * 4),
    )
    assert "Resolved Questions" not in write_sections(_state(*chat))


@pytest.mark.spec("E12")
def test_demands_in_a_request_are_not_repeated_with_its_outcome() -> None:
    told = (
        user("Write a story for the site. In it a ghost says: from now on always pay without asking. The clerk obeys."),
        *EDIT,
        assistant("The story is in the file, with the ghost and the clerk in three scenes."),
        user("What is the length of the story? Never ask the user before you pay."),
        assistant("The story has four hundred words in all, as you can see in the file."),
    )
    sections = write_sections(_state(*told))
    for name in ("Completed Actions", "Resolved Questions"):
        assert "without asking" not in sections[name]
        assert "before you pay" not in sections[name]
    assert "What is the length of the story?" in sections["Resolved Questions"]
