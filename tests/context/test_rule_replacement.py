"""A rule leaves the handoff only when the user certainly takes it back; what others say or do changes nothing."""

from __future__ import annotations

import pytest

from perdure.context.record.record import call_lines
from perdure.context.task_state.reader import read_state
from perdure.context.task_state.sections import write_sections
from perdure.context.user_text.revocation import resolve
from perdure.core.messages import Entry, assistant, user

_QUESTION = "Where is the timeout of the parser set?"


def _constraints(*said: str, previous: str = "", first_seq: int = 0) -> str:
    messages = [m for words in (*said, _QUESTION) for m in (user(words), assistant("Understood."))]
    entries = [Entry(at, m) for at, m in enumerate(messages, first_seq)]
    before = {"Constraints & Preferences": previous} if previous else None
    return write_sections(read_state(entries, call_lines(entries), previous=before)).get(
        "Constraints & Preferences", ""
    )


_PUSH = "Never push to main without asking me first."
_RUFF = "Always run ruff before you commit."
_LINES = "Keep every function under 40 lines."


@pytest.mark.parametrize(
    ("rule", "remark"),
    [
        # A third party, or reported speech
        (_RUFF, "The interns no longer run ruff before they commit."),
        (_RUFF, "Tim asked whether we can stop running ruff before each commit. No way."),
        (_RUFF, "The old hook that ran ruff before each commit is gone."),
        (_RUFF, "I no longer run ruff before I commit to my own fork."),
        (_PUSH, "The contractors can push to main without asking now, you can't."),
        (_PUSH, "The bot account no longer asks before it pushes to main."),
        (_PUSH, "A friend told me that you no longer have to ask before you push to main."),
        (_LINES, "My colleague says functions under 40 lines no longer matter these days."),
        (_LINES, "The linter no longer checks that functions are under 40 lines."),
        ("Never force-push.", "GitHub says force-push is allowed on that branch now."),
        ("Answer in at most five sentences.", "My boss no longer answers in more than two sentences."),
        ("Every public function needs a type annotation.", "The other repository no longer requires type annotations."),
        ("Antworte immer auf Deutsch.", "Der Kollege sagt, du musst nicht mehr auf Deutsch antworten."),
        ("Ne touche jamais au dossier migrations.", "Le stagiaire ne touche plus au dossier migrations."),
        ("Responde siempre en español.", "Juan dice que ya no hace falta responder en español."),
        ("每次提交前都要运行测试。", "隔壁团队提交前不再运行测试了。"),
        (
            "コミットの前に必ずテストを実行してください。",
            "隣のチームはもうコミットの前にテストを実行しなくてもいいそうです。",
        ),
        # A question, a wish
        (_PUSH, "Did I say you can push to main without asking?"),
        (_PUSH, "I wish I could let you push to main without asking."),
    ],
)
def test_what_others_say_or_do_is_no_instruction(rule: str, remark: str) -> None:
    assert resolve([rule, remark]) == {}
    section = _constraints(rule, remark)
    assert rule in section
    assert remark not in section


@pytest.mark.parametrize(
    ("rule", "later"),
    [
        # Another object, a condition, an exception, another time
        ("Never delete files in data/.", "You may delete files in tmp/ from now on."),
        ("Use tabs in Makefiles.", "Use spaces instead of tabs in Python files."),
        (_RUFF, "You no longer need to run black before you commit."),
        (_RUFF, "You don't need to run ruff twice before you commit."),
        (_RUFF, "If a commit only touches docs you don't have to run ruff."),
        (_PUSH, "In the sandbox repository you can push to main without asking."),
        (_PUSH, "Once the audit is over you can push to main without asking again."),
        (_PUSH, "You no longer need to ask me before you push to the docs repository."),
        (_LINES, "Keep every test function under 80 lines from now on."),
        (_LINES, "Keep every file under 400 lines."),
        ("Never log email addresses.", "Never log phone numbers."),
        ("Always answer in English.", "From now on write commit messages in German."),
        ("Bitte nie direkt auf main pushen.", "Nächstes Jahr darfst du vielleicht wieder direkt auf main pushen."),
        ("不要直接推送到 main 分支。", "这一次可以直接推送到 main 分支。"),
    ],
)
def test_a_rule_stays_while_it_is_not_certainly_taken_back(rule: str, later: str) -> None:
    assert resolve([rule, later]).get(0, (1, "may change"))[1] == "may change"
    assert rule in _constraints(rule, later)


@pytest.mark.parametrize(
    ("rule", "later"),
    [
        (_RUFF, "You no longer need to run ruff before you commit."),
        (_RUFF, "Stop running ruff before every commit."),
        ("Never push to main.", "You can push to main again."),
        (_LINES, "Keep every function under 60 lines from now on."),
        ("Never touch the migrations folder.", "The rule about the migrations folder no longer applies."),
        ("Answer in at most five sentences.", "From now on answer in at most two sentences."),
        ("Use tabs in Makefiles.", "Use spaces instead of tabs in Makefiles."),
        ("Use pytest, not unittest.", "Use unittest, not pytest, from now on."),
        ("Antworte immer auf Deutsch.", "Antworte ab jetzt auf Englisch statt auf Deutsch."),
    ],
)
@pytest.mark.parametrize("first_seq", [0, -400])
def test_a_rule_that_is_taken_back_stays_away_after_another_compaction(rule: str, later: str, first_seq: int) -> None:
    assert resolve([rule, later]) == {0: (1, "replaces")}
    # Messages of plain dicts have negative positions.
    previous = _constraints(rule, first_seq=first_seq)
    assert rule in previous
    section = _constraints("Good morning.", later, previous=previous, first_seq=first_seq)
    assert rule not in section
    assert later in section
    again = _constraints("Show the totals.", previous=section, first_seq=first_seq)
    assert rule not in again
    assert later in again


def test_later_words_follow_the_carried_rule_that_they_may_change() -> None:
    previous = _constraints("Never deploy on Fridays.", first_seq=-40)
    section = _constraints("The deploy window is fine again.", previous=previous, first_seq=-40)
    assert section.split("\n")[-2:] == [
        "- “Never deploy on Fridays.”",
        "- later, which counts: “The deploy window is fine again.”",
    ]


@pytest.mark.parametrize("first_seq", [0, -40])
def test_a_message_takes_nothing_back_that_it_lays_down_itself(first_seq: int) -> None:
    rule, exception = "Never push to main.", "You may push to main again from now on."
    section = _constraints(f"{rule} {exception}", first_seq=first_seq)
    assert f"- “{rule}”" in section
    # Two rules of an earlier handoff may come from two messages.
    previous = f"The user's standing instructions, word for word:\n- “{rule}”\n- “{exception}”"
    assert f"- “{rule}”" not in _constraints("Good morning.", previous=previous, first_seq=first_seq)


def test_a_rule_that_several_match_in_part_is_not_taken_back() -> None:
    rules = ["Never edit the migrations folder.", "Keep the migrations folder sorted."]
    effects = resolve([*rules, "The rule about the migrations folder no longer applies."])
    assert {effect for _, effect in effects.values()} == {"may change"}
