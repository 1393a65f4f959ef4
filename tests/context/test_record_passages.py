"""Prose is split into passages that carry their worth and what introduces them."""

from __future__ import annotations

import time

import pytest

from perdure.context.text import clip, split_passages, split_sentences

REVIEW = """Perfect! I've finished the review.

## Findings
Let me list them:

1. **Race in `cache.py:41`** - the lock is taken after the read, so two writers can interleave
2. Missing test for `load()`

| File | Verdict |
|------|---------|
| a.py | fine |
| b.py | must be rewritten because the parser drops the last line of every file it reads |

```python
LIMIT = 40
```

Should I fix both?
"""


def _texts(text: str) -> list[str]:
    return [p.text for p in split_passages(text)]


def test_headings_items_rows_code_and_sentences_are_passages_of_their_own() -> None:
    assert _texts(REVIEW) == [
        "Perfect!",
        "I've finished the review.",
        "Findings:",
        "Let me list them:",
        "1. Race in `cache.py:41` - the lock is taken after the read, so two writers can interleave",
        "2. Missing test for `load()`",
        "| File | Verdict",
        "| a.py | fine",
        "| b.py | must be rewritten because the parser drops the last line of every file it reads",
        "LIMIT = 40",
        "Should I fix both?",
    ]


def test_an_item_needs_the_line_that_introduces_it_and_a_row_its_header() -> None:
    passages = split_passages(REVIEW)
    item, row = passages[4], passages[7]
    assert passages[item.lead].text == "Let me list them:"
    assert passages[passages[item.lead].lead].text == "Findings:"
    assert passages[row.lead].text == "| File | Verdict"


def test_conclusions_are_worth_more_than_narration_and_filler() -> None:
    worth = {p.text: p.worth for p in split_passages(REVIEW)}
    cause = split_passages("It fails because the lock is taken too late.")[0].worth
    assert worth["Perfect!"] < 0.1
    assert split_passages("Now let me look at the config file.")[0].worth < 0.2
    assert cause > 0.8
    assert worth["Should I fix both?"] > 0.7


@pytest.mark.parametrize(
    "text",
    ["Let me check the tests.", "Now let's fix editor.test.ts:", "I'll run the suite again.", "让我看看配置文件。"],
)
def test_an_announcement_of_the_next_step_is_narration(text: str) -> None:
    assert split_passages(text)[0].worth < 0.2


def test_rows_and_items_are_shortened_instead_of_dropped() -> None:
    long_row = split_passages(REVIEW)[8]
    assert long_row.short.startswith("| b.py | must be rewritten")
    assert len(long_row.short) < len(long_row.text)
    assert long_row.short.endswith("…")


def test_a_text_is_clipped_at_the_end_of_a_clause() -> None:
    assert clip("The cache is stale, so that every second read returns old data", 36) == "The cache is stale…"
    assert clip("short", 40) == "short"


def test_abbreviations_versions_and_file_names_do_not_end_a_sentence() -> None:
    assert split_sentences("Use v1.2 of a.py, e.g. The old one. It works. 好的。继续吧") == [
        "Use v1.2 of a.py, e.g. The old one.",
        "It works.",
        "好的。",
        "继续吧",
    ]


def test_splitting_is_linear_in_the_length_of_the_text() -> None:
    hostile = ("**" * 2_000 + "a. " * 20_000 + "`" * 5_000 + "|" * 5_000 + "\n") * 2
    started = time.process_time()
    split_passages(hostile)
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize(
    "line",
    ["Verdict: ready after one change", "**Final verdict:** ready", "## Conclusion: the cache is not needed",
     "- Decision: keep both formats", "**Recommendation**: wait", "### Verdict\n\nReady after one change."],
)  # fmt: skip
def test_a_verdict_is_worth_as_much_as_any_conclusion(line: str) -> None:
    passages = split_passages(f"The parser reads headers first. It is called twice.\n\n{line}\n\nThe rest is style.")
    assert max(p.worth for p in passages[2:-1]) == 1.0
    assert split_passages("It is late. The decision table has rows. Then more.")[1].worth < 1.0
