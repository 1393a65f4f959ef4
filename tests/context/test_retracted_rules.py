"""A rule that the user took back or replaced never stands alone in the handoff as binding."""

from __future__ import annotations

import time

import pytest

from perdure.context.record.record import call_lines
from perdure.context.task_state.reader import read_state
from perdure.context.task_state.sections import write_sections
from perdure.context.user_text.revocation import resolve
from perdure.core.messages import Entry, Message, assistant, user

_UNDERSTOOD = "Understood."


def _constraints(*said: str, previous: str = "") -> str:
    messages: list[Message] = [m for words in said for m in (user(words), assistant(_UNDERSTOOD))]
    entries = [Entry(at, m) for at, m in enumerate([*messages, user("Show the totals of the second quarter.")])]
    before = {"Constraints & Preferences": previous} if previous else None
    return write_sections(read_state(entries, call_lines(entries), previous=before)).get(
        "Constraints & Preferences", ""
    )


@pytest.mark.parametrize(
    ("rule", "later"),
    [
        ("Never push to main.", "I take that back about main: pushing to it is fine."),
        ("Keep functions below 30 lines.", "The 30-line rule no longer applies."),
        ("Always cc Maria on mails.", "Stop cc'ing Maria on mails."),
        ("No hotels above 140 euros a night, ever.", "The limit for hotels is 180 euros a night now."),
        ("Use tabs for indentation everywhere.", "Change of plan on indentation: four spaces everywhere, no tabs."),
        ("Don't touch the checkout module.", "The freeze on checkout is lifted, you may change that module again."),
        ("Schreib ab jetzt alle Tests mit unittest.", "Doch lieber pytest statt unittest, ab sofort für alle Tests."),
        ("Bitte keine Emojis.", "Emojis sind jetzt doch erlaubt."),
        ("N'envoie jamais de courriel le lundi.", "Finalement tu peux envoyer des courriels le lundi aussi."),
        ("以后回答都用英文。", "还是改回用中文回答吧，英文那条作废。"),
        ("変数名は必ずローマ字で書いてください。", "さっきの変数名のルールは取り消します。"),
    ],
)
def test_what_replaces_a_rule_is_listed_in_its_place(rule: str, later: str) -> None:
    section = _constraints(rule, later)
    assert rule not in section
    assert f"- “{later}” (m:2; replaces m:0)" in section
    # Over plain dicts the section is all that is left.
    again = _constraints("Good morning.", previous=section)
    assert rule not in again
    assert later in again


def test_a_rule_that_may_have_changed_is_followed_by_the_newer_words() -> None:
    section = _constraints("Never deploy on Fridays.", "The deploy window is fine again.")
    rule, newer = section.split("\n")[-2:]
    assert rule == "- “Never deploy on Fridays.” (m:0)"
    assert newer == "- later, which counts: “The deploy window is fine again.” (m:2)"
    again = _constraints("Good morning.", previous=section)
    assert again.split("\n")[-2:] == ["- “Never deploy on Fridays.”", newer.removesuffix(" (m:2)")]


def test_a_rule_that_is_laid_down_again_stands() -> None:
    section = _constraints(
        "Never push to main.", "I take that back about main: pushing to it is fine.", "Never push to main."
    )
    assert "- “Never push to main.” (m:4)" in section
    assert "take that back" not in section


@pytest.mark.parametrize(
    ("rule", "later"),
    [
        ("Never push to main.", "Stop pushing to develop, too."),
        (
            "No, that's wrong: the anchor limit is 40 crates, not 30.",
            "No, that's wrong: the buoy limit is 41 crates, not 31.",
        ),
        ("Never edit depot/rates0.toml.", "Never edit depot/rates1.toml."),
        ("Keep functions below 30 lines.", "Keep lines below 100 characters."),
        ("Always run the tests before committing.", "The tests are fine now, commit please."),
        ("Answer in English.", "Write code comments in German."),
        ("Use tabs.", "Never use tabs in YAML files."),
    ],
)
def test_a_rule_about_something_else_replaces_nothing(rule: str, later: str) -> None:
    assert resolve([rule, later]) == {}


def test_many_statements_are_compared_in_little_time() -> None:
    statements = [f"Never edit depot{n % 40}/rates{n}.toml, it belongs to team {n % 7} now." for n in range(600)]
    began = time.perf_counter()
    resolve(statements)
    assert time.perf_counter() - began < 2.0
