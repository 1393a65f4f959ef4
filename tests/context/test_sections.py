"""Summaries are read leniently and shortened from their least valuable lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.context.handoff import SECTIONS
from perdure.context.sections import read_sections, shorten
from perdure.models.tokens import estimate_text


@pytest.mark.spec("E1")
def test_our_own_headings_are_read_exactly() -> None:
    text = "## Goal\nship\n## Blocked\n# a comment line\n### details\nx\n## Relevant Files\nNone\n"
    assert read_sections(text) == {"Goal": "ship", "Blocked": "# a comment line\n### details\nx"}


@pytest.mark.spec("E1")
@pytest.mark.parametrize(
    "text",
    [
        "**Goal**\nship\n**Remaining Work:**\n- test",
        "1. Goal:\nship\n2. Next Steps:\n- test",
        "# Primary Request and Intent\nship\n# Pending Tasks\n- test",
        "```markdown\n## Goal\nship\n\n## Remaining Work\n- test\n```",
        "<analysis>hm, hm</analysis>\n## Goal\nship\n## Remaining Work\n- test",
        "## 目标\nship\n## 下一步\n- test",
    ],
)
def test_headings_of_other_makes_find_their_section(text: str) -> None:
    assert read_sections(text) == {"Goal": "ship", "Remaining Work": "- test"}


def test_prose_without_headings_is_not_lost() -> None:
    assert read_sections("The parser was fixed.") == {"Critical Context": "The parser was fixed."}
    assert read_sections("") == {}


@pytest.mark.spec("E12")
def test_the_least_valuable_lines_go_first_and_no_line_is_cut() -> None:
    sections = {
        "Constraints & Preferences": "never push to main",
        "Completed Actions": "\n".join(f"{n}. did step number {n} of many" for n in range(1, 60)),
        "Resolved Questions": "\n".join(f"- question {n} was answered" for n in range(20)),
        "Critical Context": "port 8443",
    }
    short = shorten(sections, 300, size=estimate_text)
    assert short["Constraints & Preferences"] == "never push to main"
    assert short["Critical Context"] == "port 8443"
    assert sum(estimate_text(t) for t in short.values()) <= 300
    kept = short["Completed Actions"].splitlines()
    assert kept[0].endswith("left out]")
    assert kept[-1] == "59. did step number 59 of many", "the newest action goes last"
    assert set(kept[1:]) <= set(sections["Completed Actions"].splitlines())


@pytest.mark.spec("E12")
@given(
    st.dictionaries(st.sampled_from(SECTIONS), st.lists(st.text("abc xyz", max_size=60), max_size=20).map("\n".join)),
    st.integers(0, 500),
)
def test_shortening_keeps_to_its_size_and_to_whole_lines(sections: dict[str, str], most: int) -> None:
    short = shorten(sections, most, size=len)
    assert sum(map(len, short.values())) <= most
    for name, text in short.items():
        lines = set(sections[name].splitlines())
        assert all(line in lines or line.endswith("left out]") for line in text.splitlines())
    whole = sum(len(line) + 1 for t in sections.values() for line in t.splitlines()) + 4 * len(sections)
    if most >= whole:
        assert short == {n: text for n, t in sections.items() if (text := "\n".join(t.splitlines()))}
