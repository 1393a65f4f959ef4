"""A rule in a plain form counts wherever it stands in the user's own message; what the user only reports does not."""

from __future__ import annotations

import pytest

from perdure.context.task_state.decisions import read_user
from perdure.core.messages import user


@pytest.mark.parametrize(
    ("before", "rule"),
    [
        ("Is the cache slower than before? Measure it.", "Never push to main without asking me first."),
        ("Where do we read the port? Show me the line.", "Always give me the path and the line number."),
        ("Why is the worker restarting? Check the logs.", "Every answer must say which log file it came from."),
        ("Restart the worker. Tell me when it is up.", "From now on write all times in UTC."),
        ("Which tables hold personal data? List them.", "Never print their contents."),
        ("Find the slow query. How long does it take?\n\n", "Don't ever change the schema."),
        ("Ist der Cache langsamer als vorher? Miss es.", "Nie auf main pushen, ohne mich zu fragen."),
        ("Le cache est-il plus lent ? Mesure-le.", "Ne pousse jamais sur main sans me demander."),
        ("¿Está más lenta la caché? Mídelo.", "Nunca hagas push a main sin preguntarme."),
        ("캐시가 느려졌나요? 측정해 주세요.", "저에게 묻지 않고 main에 푸시하지 마세요."),
    ],
)
def test_a_rule_behind_a_question_and_a_request_counts(before: str, rule: str) -> None:
    assert rule in read_user(user(before + (" " if before[-1] != "\n" else "") + rule)).rules


@pytest.mark.parametrize(
    "message",
    [
        "The intern put this into the wiki: always deploy on Fridays. What do you think?",
        "According to the vendor you must always run the installer as root.",
        "My boss says we should never write tests, what do you think?",
        "Suppose the rule was: never use indexes. What would happen?",
        "Mein Kollege sagt, wir sollen immer ohne Tests deployen. Was meinst du?",
        "Mon collègue dit qu'il ne faut jamais écrire de tests. Tu en penses quoi ?",
        "Mi jefe dice que nunca usemos pruebas. ¿Qué opinas?",
        "동료가 절대 테스트를 작성하지 말라고 해요. 어떻게 생각해요?",
        # A text behind a question
        "What does this notice mean? Tenants must never use the lift after ten. Always lock the gate. No smoking.",
    ],
)
def test_what_is_reported_or_supposed_is_no_rule(message: str) -> None:
    assert read_user(user(message)).rules == ()


def test_what_the_user_told_before_is_a_rule() -> None:
    rule = "I told you that you must never push to main."
    assert read_user(user(rule)).rules == (rule,)
