"""API keys come from the environment that is handed in, and blank ones are none."""

from __future__ import annotations

from perdure.config.credentials import api_key_for, variables_set


def test_a_key_is_found_and_cleaned_of_pasted_white_space() -> None:
    assert api_key_for("OPENAI_API_KEY", {"OPENAI_API_KEY": " sk-1\n"}) == "sk-1"


def test_unset_and_blank_are_none() -> None:
    assert api_key_for("OPENAI_API_KEY", {}) is None
    assert api_key_for("OPENAI_API_KEY", {"OPENAI_API_KEY": "  "}) is None


def test_which_variables_hold_a_key() -> None:
    environ = {"GROQ_API_KEY": "g", "OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": "a"}
    wanted = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GROQ_API_KEY")
    assert variables_set(wanted, environ) == ("ANTHROPIC_API_KEY", "GROQ_API_KEY")
