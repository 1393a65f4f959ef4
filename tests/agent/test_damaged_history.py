"""A conversation with damaged messages goes on: the person is told which, and the model gets a valid history."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from perdure.core.events import Event, Notice
from perdure.core.messages import ToolCall, assistant, tool_result, user
from support.agents import bench


@pytest.mark.spec("I8", "K1")
@pytest.mark.parametrize("seq", range(1, 5))
def test_a_conversation_with_a_damaged_message_is_resumed_and_said_so(tmp_path: Path, seq: int) -> None:
    with bench(tmp_path, "Fine.") as b:
        session = b.store.create(system_prompt="Be brief.")
        call = ToolCall("call_1", "terminal", '{"command":"ls"}')
        said = [
            user("list it"),
            assistant(None, (call,)),
            tool_result(call.id, "a b c", "terminal"),
            assistant("Done."),
        ]
        b.store.append(session.id, said)
        connection = sqlite3.connect(tmp_path / "perdure.db")
        with connection:
            connection.execute("DROP TRIGGER message_never_changes")
            connection.execute("UPDATE message SET body = substr(body, 3) WHERE seq = ?", (seq,))
        connection.close()

        agent = b.again(session.id)
        warnings: list[str] = []

        def hear(event: Event) -> None:
            if isinstance(event, Notice) and event.level == "warning":
                warnings.append(event.text)

        agent.events.tap(hear)
        assert agent.chat("and now?") == "Fine."
        assert b.sim.violations == []
        assert len(warnings) == 1
        assert f"{session.conversation_id} m:{seq} is damaged and cannot be read" in warnings[0]
        agent.close()
