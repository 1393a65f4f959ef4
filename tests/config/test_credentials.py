"""API keys come from the environment that is handed in, and blank ones are none."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import perdure
from perdure.config.api_keys import api_key_for


def test_a_key_is_found_and_cleaned_of_pasted_white_space() -> None:
    assert api_key_for("OPENAI_API_KEY", {"OPENAI_API_KEY": " sk-1\n"}) == "sk-1"


def test_unset_and_blank_are_none() -> None:
    assert api_key_for("OPENAI_API_KEY", {}) is None
    assert api_key_for("OPENAI_API_KEY", {"OPENAI_API_KEY": "  "}) is None


def test_the_environment_is_read_in_config_alone() -> None:
    package = Path(perdure.__file__).parent
    readers = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        # Parsing takes long, and a module that reads the environment has one of these words.
        if re.search("environ|getenv", source := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(source))
        if (isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv"))
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "os"
            and {a.name for a in node.names} & {"environ", "getenv"}
        )
    }
    assert {reader for reader in readers if not reader.startswith("config/")} == set()
    assert "config/env.py" in readers
