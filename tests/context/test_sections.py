"""Summaries are read leniently and shortened from their least valuable lines."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perdure
from perdure.context.handoff import SECTIONS
from perdure.context.handoff_sections import read_sections, shorten
from perdure.context.task_state.active_task import parse_active_task, write_active_task
from perdure.context.task_state.state import TaskState, UserRequest
from perdure.models.tokens import estimate_text
from perdure.models.windows import window_budgets
from support.long_histories import working_session


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
        "## Ziel\nship\n## Nächste Schritte\n- test",
        "## Objectif\nship\n## Prochaines étapes\n- test",
        "## Цель\nship\n## Следующие шаги\n- test",
    ],
)
def test_headings_of_other_makes_find_their_section(text: str) -> None:
    assert read_sections(text) == {"Goal": "ship", "Remaining Work": "- test"}


@pytest.mark.spec("E1")
@pytest.mark.parametrize(
    ("title", "section"),
    [
        ("Resolved issues", "Resolved Questions"),
        ("已解决的问题", "Resolved Questions"),
        ("Unresolved issues", "Blocked"),
        ("未解决的问题", "Blocked"),
        ("Problèmes résolus", "Resolved Questions"),
        ("Estado actual", "Active State"),
        ("Ключевые решения", "Key Decisions"),
        ("Tâches terminées", "Completed Actions"),
    ],
)
def test_a_solved_problem_is_not_told_as_one_that_blocks(title: str, section: str) -> None:
    assert read_sections(f"## {title}\n- the port was taken") == {section: "- the port was taken"}


@pytest.mark.spec("F4")
def test_what_a_model_thinks_aloud_is_no_part_of_its_notes() -> None:
    thought = "<think>\n## Goal\nperhaps the printer\n## Blocked\nby nothing\n</think>"
    assert read_sections(f"{thought}\n## Goal\nship") == {"Goal": "ship"}


def test_prose_without_headings_is_not_lost() -> None:
    assert read_sections("The parser was fixed.") == {"Critical Context": "The parser was fixed."}
    assert read_sections("") == {}
    before = "The parser was fixed, and its tests were run. " * 10
    assert read_sections(f"{before}\n## Remaining Work\n- the printer")["Critical Context"] == before.strip()
    assert "Critical Context" not in read_sections("Here are the notes:\n## Goal\nship")


PARAGRAPH = " ".join(f"Step {n} moved module {n} and its tests passed." for n in range(200))


@pytest.mark.spec("E12", "F1")
def test_a_page_in_one_paragraph_gives_way_by_sentences_not_all_at_once() -> None:
    short = shorten(
        {"Goal": PARAGRAPH, "Completed Actions": PARAGRAPH, "Blocked": "port 80"}, 1_500, size=estimate_text
    )
    assert list(short) == ["Goal", "Completed Actions", "Blocked"]
    assert sum(estimate_text(t) for t in short.values()) <= 1_500
    first, told = short["Goal"].split("\n")
    assert PARAGRAPH.startswith(first)
    assert first.endswith("tests passed.")
    assert told.endswith("left out]")
    assert short["Completed Actions"].endswith("Step 199 moved module 199 and its tests passed."), "newest last"


@pytest.mark.spec("E12", "F1")
def test_a_single_line_is_given_up_only_where_every_section_must_give() -> None:
    sections = {"Goal": "ship the release", "Completed Actions": "\n".join(f"{n}. did step {n}" for n in range(99))}
    assert shorten(sections, 300, size=estimate_text)["Goal"] == "ship the release"


@pytest.mark.spec("E12", "F1")
def test_a_section_that_had_to_go_says_so_where_there_is_room() -> None:
    sections = {"Resolved Questions": "- " + "x" * 300, "Constraints & Preferences": "never push to main"}
    assert shorten(sections, 100, size=len) == {
        "Resolved Questions": "[1 more line left out]",
        "Constraints & Preferences": "never push to main",
    }


@pytest.mark.spec("E12", "F4", "C2")
@pytest.mark.parametrize("window", [32_000, 64_000])
def test_a_summary_over_its_cap_is_shortened_in_the_handoff(window: int) -> None:
    told = {
        "Goal": "ship it",
        "Completed Actions": "\n".join(f"{n}. bring component up to date in src" for n in range(900)),
    }
    text = "\n".join(f"## {name}\n{section}" for name, section in told.items())
    report = perdure.compress(
        working_session(60), context_length=window, summarize=lambda _: text, settings={"record_ratio": 0}
    )
    assert report.outcome == "compacted"
    assert report.handoff_data is not None
    cap = window_budgets(window).summary_cap_tokens
    sections = [t for name, t in report.handoff_data.sections.items() if name != "Active Task"]
    assert 0.8 * cap < sum(map(estimate_text, sections)) <= cap
    assert "“Please bring component_0 up to date in src/component_0.py.”" in report.handoff_data.section("Goal")
    assert "899. bring component up to date in src" in report.handoff_data.section("Completed Actions").splitlines()


@pytest.mark.spec("E1")
def test_a_summary_in_one_long_section_leaves_the_short_ones_their_room() -> None:
    sections = {
        "Goal": "ship the parser",
        "Completed Actions": "1. WROTE src/parser.py",
        "Remaining Work": "- run the tests",
        "Critical Context": "\n".join(
            f"Step {n}: something was looked at and described at length." for n in range(200)
        ),
    }
    shortened = shorten(sections, 1_000, size=estimate_text)
    assert {name: shortened[name] for name in ("Goal", "Completed Actions", "Remaining Work")} == {
        name: sections[name] for name in ("Goal", "Completed Actions", "Remaining Work")
    }
    assert estimate_text("\n".join(shortened.values())) <= 1_000


@pytest.mark.spec("E2", "C9")
def test_an_answered_request_cut_short_does_not_read_as_an_open_one() -> None:
    words = "\n".join(f"line {n} of the request" for n in range(20))
    task = write_active_task(TaskState(requests=(UserRequest(words, 1, "answered", own_words=words),)))
    for most in range(90, len(task), 20):
        short = shorten({"Active Task": task}, most, size=len).get("Active Task", "")
        assert parse_active_task(short).open == (), short


@pytest.mark.spec("E12")
def test_cuts_add_up_from_one_handoff_to_the_next() -> None:
    text = "\n".join(f"{n}. did step {n} of many" for n in range(40))
    once = shorten({"Completed Actions": text}, 600, size=len)["Completed Actions"]
    twice = shorten({"Completed Actions": once}, 300, size=len)["Completed Actions"].splitlines()
    assert twice[0] == f"[{40 - (len(twice) - 1)} more lines left out]"


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


@pytest.mark.spec("E1")
def test_a_handoff_does_not_depend_on_the_hash_seed_of_its_process() -> None:
    """Values of equal weight are listed in a fixed order, so that a compaction can be repeated elsewhere."""

    def compacted(seed: str) -> str:
        path = os.pathsep.join(p for p in sys.path if p)
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
        command = [sys.executable, "-m", "support.handoff_child"]
        return subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout

    first, second = compacted("1"), compacted("2")
    assert "## Index" in first
    assert first == second
