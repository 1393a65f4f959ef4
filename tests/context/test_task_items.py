"""Steps of a scenario and items of a task list are no standing instructions."""

from __future__ import annotations

import pytest

from perdure.context.task_state.decisions import read_user
from perdure.core.messages import user

SCENARIO = """so now a question, I do the following:

1. start a new session, run a prompt that changes files
2. I edit a single file
3. I run another prompt in the same session, again changes are made

How will my edit in 2 be handled?"""


@pytest.mark.spec("E1c")
@pytest.mark.parametrize(
    "text",
    [
        SCENARIO,
        "3. Make logs-only rewind test deterministic - Assert specific expected behavior",
        "2. Strengthen checkout tests - Add ValidateOrder calls",
        "The inline comment for AgentLines is misleading.",
        "The parse and trim helper functions also lack unit tests.",
    ],
)
def test_a_step_or_a_task_is_no_standing_instruction(text: str) -> None:
    assert read_user(user(text)).rules == ()


@pytest.mark.spec("E1c")
def test_a_numbered_item_with_words_of_scope_binds() -> None:
    assert read_user(user("2. Never push to main.")).rules == ("2. Never push to main.",)
    rules = "Rules for this work:\n\n1. short functions\n2. two reviewers per change"
    assert read_user(user(rules)).rules == ("1. short functions", "2. two reviewers per change")
