"""The pages that explain the source name files that exist."""

from __future__ import annotations

import re

import pytest

from support.source_tree import ROOT, SRC

PAGES = ("architecture.md", "turn.md", "tokens.md", "providers.md", "gateway.md", "redaction.md", "search.md")
FILES = {str(path.relative_to(SRC / "perdure")) for path in SRC.rglob("*.py")}


@pytest.mark.parametrize("page", PAGES)
def test_every_source_file_named_on_a_page_exists(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    names = set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", text))
    links = set(re.findall(r"\]\(\.\./([^)#\s]+\.py)", text))
    # A package's own page or table row may leave the folder out.
    assert {n for n in names if not _is_source_file(n) and not (ROOT / n).exists()} == set()
    assert {link for link in links if not (ROOT / link).exists()} == set()


def _is_source_file(name: str) -> bool:
    return any(file == name or file.endswith(f"/{name}") for file in FILES)
