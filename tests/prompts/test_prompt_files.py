"""E8: prompts live in files, users override them, and a slip in an override is told instead of sent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import prompts
from perdure.core.errors import ConfigError

TEMPLATE = "Sum up in {{ budget_tokens }} tokens:\n{{text}}\n"


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    folder = tmp_path / "shipped"
    folder.mkdir()
    (folder / "sum_up.md").write_text(TEMPLATE)
    return folder


@pytest.mark.spec("E8")
def test_a_users_file_wins_over_the_shipped_one(tmp_path: Path) -> None:
    assert "Perdure" in prompts.load("identity")
    assert prompts.load("identity", tmp_path) == prompts.load("identity")
    (tmp_path / "identity.md").write_text("You are Bob.\n")
    assert prompts.load("identity", tmp_path) == "You are Bob.\n"
    assert prompts.render("identity", {}, tmp_path) == "You are Bob.\n"


@pytest.mark.parametrize(
    "name",
    ["", "..", "../identity", "/etc/passwd", "identity.md", "a/b", "a\\b", "ident\0ity", "Identity", "identity\n"],
)
def test_a_name_can_never_leave_the_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no prompt named"):
        prompts.load(name, tmp_path)


def test_an_unknown_name_lists_what_exists(tmp_path: Path) -> None:
    (tmp_path / "nonsense.md").write_text("x")
    with pytest.raises(ConfigError, match=r"no prompt named 'nonsense'; there are: .*identity"):
        prompts.load("nonsense", tmp_path)


@pytest.mark.spec("E8")
def test_an_override_with_an_unknown_placeholder_is_named(tmp_path: Path) -> None:
    (tmp_path / "identity.md").write_text("You are {{ nme }}.")
    with pytest.raises(ConfigError) as caught:
        prompts.render("identity", {}, tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/identity.md uses {{{{nme}}}}, which prompt 'identity' does not have; it has: none"
    )


@pytest.mark.parametrize("slip", ["{{}}", "{{two words}}", "{{a-b}}"])
def test_what_merely_looks_like_a_placeholder_is_told_too(slip: str, tmp_path: Path) -> None:
    (tmp_path / "identity.md").write_text(slip)
    with pytest.raises(ConfigError, match="which prompt 'identity' does not have"):
        prompts.render("identity", {}, tmp_path)


def test_single_braces_and_escaped_placeholders_are_text(tmp_path: Path) -> None:
    (tmp_path / "identity.md").write_text('Answer as {"a": {"b": 1} } or \\{{ name }}.')
    assert prompts.render("identity", {}, tmp_path) == 'Answer as {"a": {"b": 1} } or {{ name }}.'


def test_values_that_do_not_match_the_shipped_prompt_are_a_slip_of_the_caller(shipped: Path) -> None:
    with pytest.raises(ValueError, match="do not agree on mood"):
        prompts.render("sum_up", {"mood": "good", "text": "", "budget_tokens": "1"}, shipped=shipped)
    with pytest.raises(ValueError, match="do not agree on budget_tokens"):
        prompts.render("sum_up", {"text": ""}, shipped=shipped)


@pytest.mark.spec("E8")
def test_an_override_that_leaves_a_placeholder_out_is_told_which(shipped: Path, tmp_path: Path) -> None:
    (tmp_path / "sum_up.md").write_text("Sum up: {{text}}")
    with pytest.raises(ConfigError) as caught:
        prompts.render("sum_up", {"text": "x", "budget_tokens": "9"}, tmp_path, shipped=shipped)
    assert str(caught.value) == (
        f"{tmp_path}/sum_up.md leaves out {{{{budget_tokens}}}}, which prompt 'sum_up' needs; put it back"
    )


@given(text=st.text() | st.sampled_from(["{{budget_tokens}}", "\\{{text}}", "\\1", "{0}", "%s", "{{{{text}}}}"]))
def test_values_are_never_read_again(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("shipped")
    (folder / "sum_up.md").write_text(TEMPLATE)
    rendered = prompts.render("sum_up", {"text": text, "budget_tokens": "{{text}}"}, shipped=folder)
    assert rendered == "Sum up in {{text}} tokens:\n" + text + "\n"


def test_every_shipped_prompt_can_be_read() -> None:
    for name in prompts.names():
        assert prompts.load(name).strip()


def test_text_that_is_not_utf8_is_told(tmp_path: Path) -> None:
    (tmp_path / "identity.md").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ConfigError, match="not UTF-8"):
        prompts.load("identity", tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_an_unreadable_override_is_told(tmp_path: Path) -> None:
    place = tmp_path / "identity.md"
    place.write_text("x")
    place.chmod(0)
    with pytest.raises(ConfigError, match="cannot read"):
        prompts.load("identity", tmp_path)
