"""`/handoff edit`: the user's editor decides what the model reads in place of compacted messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.cli.chat.command_context import ChatCommandContext, ChatUser
from perdure.cli.chat.controller import ChatController
from perdure.testing.simulator import Simulator


@pytest.mark.parametrize(
    ("edit", "answer", "is_changed"),
    [
        (lambda text: text.replace("## Goal\n", "## Goal\nShip on Friday.\n"), "as you edited it", True),
        (lambda text: None, "The handoff is as it was.", False),
        (lambda text: f"{text}\n\n", "The handoff is as it was.", False),
        (lambda text: "", "no section is left", False),
        (None, "There is no editor here.", False),
    ],
)
def test_what_is_saved_in_the_editor_counts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    edit: Callable[[str], str | None] | None,
    answer: str,
    is_changed: bool,
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    with Simulator(script=["word " * 400] * 9) as sim:
        flags = {"model.base_url": sim.base_url, "model.name": "m-1", "compression.summarize": "false"}
        surface = ChatCommandContext(flags, person=ChatUser(edit=edit))
        desk = ChatController(surface, lambda text: None)
        assert "no handoff to edit" in desk.answer("/handoff edit", lambda what, seconds: None).text
        for n in range(6):
            surface.agent.chat(f"question {n}")
        desk.answer("/compress", lambda what, seconds: None)
        before = desk.answer("/handoff", lambda what, seconds: None).text
        assert "PERDURE HANDOFF" in before
        assert answer in desk.answer("/handoff edit", lambda what, seconds: None).text
        after = desk.answer("/handoff", lambda what, seconds: None).text
        assert (after != before) == is_changed
        assert ("Ship on Friday. [user]" in after) == is_changed
        desk.close()
        surface.store.close()
