"""Whose data it is is a type: no string stands for the owner of the machine."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import perdure
from perdure.core.ports import RecallQuery
from perdure.core.visibility import OWNER, User, user_from_key
from perdure.store import open_store
from perdure.tools.tool import ToolContext
from support.source_tree import modules


@pytest.mark.parametrize("key", ["", "\0", "ann\0"])
def test_a_key_that_would_be_stored_as_the_owners_or_anothers_is_refused(key: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a user has a key"):
        User(key)
    with open_store(tmp_path / "perdure.db") as store:
        with pytest.raises(ValueError, match="a user has a key"):
            store.create(user_key=key)
        with pytest.raises(ValueError, match="a user has a key"):
            perdure.Agent("m", "openai", api_key="k", store=store, home=tmp_path, user_key=key)
        assert store.conversations.list().conversations == ()


def test_a_conversation_without_a_user_is_the_owners(tmp_path: Path) -> None:
    with open_store(tmp_path / "perdure.db") as store:
        owners, anns = store.create(), store.create(user_key="ann")
        assert store.conversations.get(owners.id).user == OWNER
        assert store.conversations.get(anns.id).user == User("ann")


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
