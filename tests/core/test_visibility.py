"""Whose data it is is a type: no string stands for the owner of the machine."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.core.errors import NotFound
from perdure.core.ports import RecallQuery
from perdure.core.visibility import OWNER, User, user_from_key
from perdure.store import open_store
from perdure.testing.simulator import Simulator
from perdure.tools.tool import ToolContext
from support.source_tree import modules


@pytest.mark.parametrize("key", ["", "\0", "ann\0"])
def test_a_key_that_would_be_stored_as_the_owners_or_anothers_is_refused(key: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a user has a key"):
        User(key)
    with open_store(tmp_path / "perdure.db") as store:
        with pytest.raises(perdure.ConfigError, match="user_key is a user's key"):
            store.create(user_key=key)
        with pytest.raises(perdure.ConfigError, match="user_key is a user's key"):
            perdure.Agent("m", "openai", api_key="k", store=store, home=tmp_path, user_key=key)
        assert store.conversations.list().conversations == ()


def test_a_conversation_without_a_user_is_the_owners(tmp_path: Path) -> None:
    with open_store(tmp_path / "perdure.db") as store:
        owners, anns = store.create(), store.create(user_key="ann")
        assert store.conversations.get(owners.id).user == OWNER
        assert store.conversations.get(anns.id).user == User("ann")


@pytest.mark.parametrize("cut", [None, 12])
def test_an_agent_resumes_no_conversation_of_another_user(tmp_path: Path, cut: int | None) -> None:
    with Simulator() as sim, open_store(tmp_path / "perdure.db") as store:

        def agent(**options: Any) -> perdure.Agent:
            return perdure.Agent(
                "m-1", base_url=sim.base_url, settings={}, home=tmp_path, tools=(), store=store, **options
            )

        with agent(user_key="ann") as one:
            one.chat("the code is 4217")
            session_id = one.session_id or ""
        for asked in (session_id[:cut], "s_unknown"):
            with agent(user_key="bob", session_id=asked) as one:
                with pytest.raises(NotFound, match=f"^no conversation or session '{asked}'$"):
                    one.chat("what did I tell you?")
                with pytest.raises(NotFound):
                    one.open()
        assert len(sim.requests) == 1
        assert len(store.history(session_id).entries) == 2
        for options in ({"user_key": "ann"}, {}):  # herself, and the owner of the machine
            with agent(session_id=session_id[:cut], **options) as one:
                assert len(one.open().live.entries) == 2


def test_a_branch_of_another_users_conversation_is_refused_like_one_of_an_unknown_id(tmp_path: Path) -> None:
    with open_store(tmp_path / "perdure.db") as store:
        anns = store.create(user_key="ann")
        for any_id in (anns.id, anns.conversation_id, "s_unknown"):
            with pytest.raises(NotFound, match=f"^no conversation or session '{any_id}'$"):
                store.conversations.branch(any_id, visibility=User("bob"))
        assert store.conversations.branch(anns.id, visibility=User("ann")).parent_id == anns.id


def test_a_damaged_key_is_readable_and_not_the_owners() -> None:
    assert user_from_key("\0") not in (OWNER, User("ann"))


def test_plugins_written_for_keys_still_read_them() -> None:
    assert ToolContext("call_1", user=User("ann")).user_key == "ann"
    assert RecallQuery("text", "c_1", User("ann")).user_key == "ann"


def test_no_signature_takes_an_empty_user_key() -> None:
    empty = []
    for name, module in modules().items():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                defaults = zip(reversed(node.args.args), reversed(node.args.defaults), strict=False)
                pairs = [*defaults, *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]
                empty += [f"{name}.{node.name}" for arg, value in pairs if _is_empty(arg.arg, value)]
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                empty += [f"{name}:{node.lineno}"] if _is_empty(node.target.id, node.value) else []
    assert empty == []


def _is_empty(name: str, value: ast.expr | None) -> bool:
    return name in ("user", "user_key") and isinstance(value, ast.Constant) and value.value == ""
