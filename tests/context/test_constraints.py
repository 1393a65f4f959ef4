"""Constraints & Preferences has what tells how to work from now on, and nothing that is over or lays nothing down."""

from __future__ import annotations

import time

import pytest

from perdure.context.record.record import call_lines
from perdure.context.task_state.instructions import parse_instructions, write_instructions
from perdure.context.task_state.reader import read_state
from perdure.context.task_state.sections import write_sections
from perdure.context.user_text.instruction_scope import is_for_one_task
from perdure.core.messages import Entry, Message, assistant, user


def _constraints(*messages: Message) -> str:
    entries = [Entry(at, m) for at, m in enumerate(messages)]
    return write_sections(read_state(entries, call_lines(entries))).get("Constraints & Preferences", "")


def _after(sentence: str) -> str:
    """Return the section after a request with a sentence was answered and another one was made."""
    return _constraints(user(sentence), assistant("That is done."), user("Show the totals of the second quarter."))


@pytest.mark.spec("E1", "E1c")
@pytest.mark.parametrize(
    "sentence",
    [
        "Never deploy on a Friday.",
        "Use uv, not pip.",
        "No, use pnpm, not npm.",
        "Nope, never leave that open.",
        "I prefer small commits over large ones.",
        "From now on I'd like to be asked before you install anything.",
        "When a test is flaky, mark it instead of deleting it.",
        "For now keep the legacy endpoint.",
        "Benutze immer die kurze Form der Anrede.",
        "Fass die Datei config.toml nicht an.",
        # In the form of a request for one step.
        "Stop rewriting my helpers.",
        "Use metric units throughout the docs.",
        "Would you mind not renaming my variables?",
        "Please leave files alone that you only read.",
        "Show me every change before you write it.",
        "Run all checks before each release.",
        "Nenne Variablen immer auf Englisch.",
        "Nenn mich bitte Tove.",
        "更新文档要用英文。",
        "每次提交之前都要先运行测试。",
        "不要修改数据库的结构。",
        "コメントは必ず英語で書いてください。",
        "本番サーバーには触らないでください。",
        "커밋 메시지는 항상 영어로 써줘",
        # Facts that the user wants to be remembered.
        "Remember that the test server listens on 7345 and that Tove Holm looks after it.",
        "List all routes, and remember that the admin pages are on port 7346.",
        "Merk dir: der Vertrag endet im Mai.",
        "허락 없이 배포하지 마",
    ],
)
def test_what_tells_how_to_work_stays_after_its_request(sentence: str) -> None:
    assert f"“{sentence}”" in _after(sentence)


@pytest.mark.spec("E1", "E1c")
@pytest.mark.parametrize(
    "sentence",
    [
        # What a "no" points at.
        "no, keep x.csv",
        "Wait, not that one.",
        # Facts, guesses, findings and questions.
        "My customer number is maria_lopez_4471.",
        "The old parser module has gone away on the develop branch.",
        "The helper close_quietly is declared in io_util.go but never used by anything.",
        "When the loader returns nil, the row count may be wrong, but the caller still reads it.",
        "I think even more of it could be deleted if we don't store the raw names.",
        "Like there should always be a row for each import.",
        "How can I make sure that I always arrive on time for the morning calls",
        "I prefer trains, and I was wondering how to plan the trip to the coast",
        "내 컴퓨터에 shopdata라는 폴더가 있어",
        "지금 작업하던 브랜치는 뭐야",
        "セールのときだけ買うんですよね、私は。",
        "以后我可以请你推荐几本书。",
        "Ich habe ein Verzeichnis namens auswertung auf dem Rechner.",
        "Yes, I'll keep in mind that the old board is slower.",
        # Requests for one piece of work, and permissions for it.
        "Read all guides and tell me the limits.",
        "show me every place where the tax is computed",
        "run all tests",
        "Update all dependencies to their newest versions.",
        "Lies alle Protokolle und nenn mir die Fehler.",
        "列出所有的配置文件",
        "모든 테스트를 실행해줘",
        "I'd like to move my hotel booking to another week.",
        "I would like to pay with the voucher that has the lowest value.",
        "I'd prefer the earliest train on that day.",
        "You can start several helpers for it.",
        "You may think as long as it takes.",
        "PR 올리고 리뷰까지 진행해줘",
        "把这个图表的标题改成红色吧",
        "グラフの色を青に変えてください。",
        "Ändere bitte die Überschrift der Tabelle.",
    ],
)
def test_what_lays_nothing_down_is_no_constraint(sentence: str) -> None:
    assert sentence not in _after(sentence)


@pytest.mark.spec("E1c", "E12")
def test_a_finding_of_the_assistants_that_the_user_sends_back_is_no_rule() -> None:
    finding = "The cleanup step must always run before the upload, as `sync.py` opens the archive without a lock."
    before = [user("Review the sync."), assistant(f"Two findings.\n\n1. {finding}\n2. A name is unclear.")]
    pasted = finding.replace("`", "")
    assert pasted not in _constraints(*before, user(f"Now handle 1:\n{pasted}"), assistant("Fixed."), user("Thanks."))
    short = "Never upload without a lock."
    offered = assistant("Shall I never upload without a lock?")
    assert short in _constraints(user("Review the sync."), offered, user(short), assistant("Noted."), user("Thanks."))


@pytest.mark.spec("E1c", "E5")
def test_remarks_that_an_earlier_version_listed_are_not_carried_on() -> None:
    section = (
        "The user's standing instructions, word for word:\n- “Never push to main.” (m:4)\n"
        "Remarks of the user that may bind, too, word for word:\n- “My folder is called shop.” (m:9)\n"
        "The user's corrections, word for word:\n- “No, in cents.” (m:11)"
    )
    kinds = [(i.text, i.kind) for i in parse_instructions(section)]
    assert kinds == [("Never push to main.", "rule"), ("No, in cents.", "correction")]
    entries = [Entry(0, user("Go on with the shop."))]
    state = read_state(entries, call_lines(entries), previous={"Constraints & Preferences": section})
    assert "My folder" not in write_instructions(state)


@pytest.mark.parametrize("words", ["go and ", "can you please "])
def test_words_before_an_order_are_read_once(words: str) -> None:
    begin = time.perf_counter()
    is_for_one_task(words * 24)
    assert time.perf_counter() - begin < 1.0
    assert is_for_one_task(f"{words}read all docs")
