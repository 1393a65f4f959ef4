"""What counts as a summary: sections with something in them, in whatever form models write them."""

from __future__ import annotations

import pytest

import perdure
from perdure import prompts
from perdure.context.handoff import SECTIONS
from perdure.context.handoff_sections import read_sections
from perdure.context.summarizer import problem_with
from support.long_histories import working_session
from support.summarisers import GOOD, Scripted

NOTES = "1. EDITED src/parser.py — 41 tests pass [tool: patch]"
PROMPT = prompts.load("summary")
NO_SUMMARIES = {
    "html": "<html><body>502 Bad Gateway</body></html> nginx error please try again later thanks a lot",
    "doctype": "<!DOCTYPE html>\n<title>Just a moment...</title>\n<h2>Goal</h2>\nchecking your browser for a moment",
    "fenced html": "```html\n<html><head></head><body>\n## Goal\nServer error in the application</body></html>\n```",
    "json error": '{"error": {"message": "rate limited", "type": "rate_limit_error", "code": 429}} please retry',
    "json detail": '{"detail": "## Goal\\nInternal Server Error, and more words to make it long enough"}',
    "prompt's last line": 'You said: The transcript ends here. Write the notes now, beginning with "## Active Task".',
    "the whole prompt": PROMPT,
    "the prompt's form": "\n\n".join(PROMPT.split("nothing to say.\n\n")[1].split("{{previous}}")[0].splitlines()),
    "prose": "The user and the assistant had a long talk about several files, and nothing was left open in the end.",
    "all none": "\n\n".join(f"## {name}\nNone" for name in SECTIONS),
    "all none, its own way": "\n\n".join(f"**{name}:**\n- n/a." for name in SECTIONS),
    "all none, translated": "\n\n".join(f"## {name}\n(なし)" for name in SECTIONS),
    "only what code writes": "## Active Task\n> please fix the parser\n\n## Goal\nNone\n\n## Completed Actions\nNone",
    "the same everywhere": "\n\n".join(
        f"## {name}\nThe work goes on well and the steps are clear." for name in SECTIONS
    ),
    "bare headings": "\n\n".join(f"## {name}" for name in SECTIONS),
    "an answer to the user": "## Installation\nRun `pip install it`, then restart the service and look at its log.",
}
SUMMARIES = {
    "as asked": f"## Completed Actions\n{NOTES}\n\n## Goal\nNone",
    "another level": f"#### Completed Actions\n{NOTES}",
    "bold": f"**Completed Actions**\n{NOTES}",
    "numbered": f"4. Completed Actions:\n{NOTES}",
    "numbered bold": f"1. **Primary Request and Intent**:\n   ship\n\n2. **Progress**:\n{NOTES}",
    "numbered hashes": f"## 4. Completed Actions\n{NOTES}",
    "fenced": f"```markdown\n## Completed Actions\n{NOTES}\n```",
    "preamble": f"Certainly! Here are the notes you asked for:\n\n## Completed Actions\n{NOTES}",
    "thinking aloud": f"<think>What matters?</think>\n## Completed Actions\n{NOTES}",
    "translated": f"## Erledigte Aufgaben (abgeschlossen)\n{NOTES}\n## Nächste Schritte\n- die Tests",
    "headings of its own": f"# Primary Request and Intent\nship\n# Progress\n{NOTES}",
    "on the same line": f"**Goal:** ship the parser\n**Completed Actions:** {NOTES}",
    "a list": f"- Goal: ship the parser\n- Completed Actions: {NOTES}",
}


def problem(text: str) -> str:
    return problem_with(text, "USER: please fix the parser", source_tokens=9_000, instructions=PROMPT)


@pytest.mark.spec("F4")
@pytest.mark.parametrize("name", NO_SUMMARIES)
def test_an_answer_without_filled_sections_is_no_summary(name: str) -> None:
    assert problem(NO_SUMMARIES[name])


@pytest.mark.spec("F4")
def test_a_reply_of_a_few_words_is_quoted_and_not_called_empty() -> None:
    assert problem("Understood,\n  done.") == "the summary is only “Understood, done.”"
    assert problem(" \n") == "the summary is empty"


@pytest.mark.spec("F4", "E1")
@pytest.mark.parametrize("name", SUMMARIES)
def test_notes_are_known_in_whatever_form_models_write_them(name: str) -> None:
    assert problem(SUMMARIES[name]) == ""
    assert NOTES in read_sections(SUMMARIES[name])["Completed Actions"]


@pytest.mark.spec("F4", "F1")
@pytest.mark.parametrize("name", ["html", "json error", "prose", "all none", "the prompt's form"])
def test_the_digest_is_written_where_the_answer_is_no_summary(name: str) -> None:
    report = perdure.compress(working_session(30), context_length=32_000, summarize=lambda _: NO_SUMMARIES[name])
    assert report.outcome == "digest"
    assert "could not be used" in report.message
    assert report.handoff_data is not None
    assert report.handoff_data.section("Completed Actions")


@pytest.mark.spec("F4", "E5")
def test_an_update_may_repeat_the_notes_so_far() -> None:
    ask = Scripted(GOOD)
    first = perdure.compress(working_session(30), context_length=32_000, summarize=ask)
    grown = [*first.messages, *working_session(30)]
    assert perdure.compress(grown, context_length=32_000, summarize=ask).outcome == "compacted"


@pytest.mark.spec("F4")
def test_a_page_of_opening_brackets_is_judged_at_once() -> None:
    for text in ("{" * 200_000, "[" * 200_000, "<" * 200_000, "**" * 100_000, "- " * 100_000):
        assert problem(text)
