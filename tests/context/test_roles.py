"""The parts facts play: which stand in an error or a decision, and what that does to their weight."""

from __future__ import annotations

import pytest

from perdure.context.analysis import Roles, analysis_of, ledger_of, outcome_in, roles_in
from perdure.context.facts import facts_of
from perdure.context.facts.ranking import weigh
from perdure.core.messages import Entry, Message, assistant, tool_result, user


def roles_of(message: Message) -> Roles:
    return roles_in(Entry(1, message))


@pytest.mark.spec("E12")
@pytest.mark.parametrize(
    ("result", "facts"),
    [
        ("Error: could not read /etc/app/limits.toml", {"/etc/app/limits.toml"}),
        ("错误：找不到 /etc/app/limits.toml", {"/etc/app/limits.toml"}),
        ("エラー: /etc/app/limits.toml が読めません", {"/etc/app/limits.toml"}),
        ("오류: /etc/app/limits.toml 파일이 없습니다", {"/etc/app/limits.toml"}),
        (
            'Traceback (most recent call last):\n  File "/srv/app/load.py", line 12, in load\n    run(x)\n'
            "KeyError: 'retry_limit'",
            {"/srv/app/load.py", "retry_limit"},
        ),
        ("src/parse.ts(14,3): note\nsrc/emit.ts:7:1 - error TS2304: no name lineStart", {"src/parse.ts", "lineStart"}),
        ("    at run (/srv/web/main.js:10:5)\nTypeError: readHeader is not a function", {"/srv/web/main.js"}),
    ],
)
def test_what_an_error_names_and_where_it_points_to_stands_in_an_error(result: str, facts: set[str]) -> None:
    assert facts <= roles_of(tool_result("c1", result)).errors


def test_of_a_failing_result_only_what_the_error_is_about_stands_in_an_error() -> None:
    result = "reading /srv/app/one.py\nreading /srv/app/two.py\nError: bad_header in /srv/app/two.py"
    assert roles_of(tool_result("c1", result)).errors == {"bad_header", "/srv/app/two.py"}


def test_a_result_that_went_well_has_no_errors() -> None:
    assert roles_of(tool_result("c1", "wrote /srv/app/one.py:12")) == Roles()


@pytest.mark.spec("E12")
@pytest.mark.parametrize(
    "text",
    [
        "We decided to keep the figures in ledger_store from here.",
        "I'll go on: the root cause is that ledger_store was never closed.",
        "我们决定把所有的数据都保存在 ledger_store 里面，这样以后比较容易查找。",
        "データは今後すべて ledger_store に保存することにしました。よろしくお願いします。",
        "앞으로 모든 데이터는 ledger_store 에 저장하기로 결정했습니다. 확인해 주세요.",
    ],
)
@pytest.mark.parametrize("speak", [assistant, user])
def test_what_user_and_assistant_decide_names_facts_of_a_decision(text: str, speak: type[Message]) -> None:
    assert roles_of(speak(text)).decisions == {"ledger_store"}


def test_what_stands_beside_a_decision_is_no_part_of_it() -> None:
    said = "I looked at old_table first. We decided to use ledger_store instead of a file."
    assert roles_of(assistant(said)).decisions == {"ledger_store"}


def test_a_question_of_the_user_decides_nothing() -> None:
    assert roles_of(user("Could you have a look at ledger_store for me?")) == Roles()


@pytest.mark.spec("E12")
def test_a_role_raises_the_weight_and_nothing_else_does() -> None:
    messages = [assistant("Both alpha_store and gamma_store hold the figures of last month.")]
    entries = [facts_of(m) for m in messages]
    plain = weigh(entries).chance
    assert plain["alpha_store"] == plain["gamma_store"]
    for role in ("errors", "decisions"):
        weighed = weigh(entries, **{role: [(0, frozenset(("alpha_store", "not_in_any_entry")))]}).chance
        assert weighed["alpha_store"] > plain["alpha_store"]
        assert weighed["gamma_store"] == plain["gamma_store"]
        assert "not_in_any_entry" not in weighed


@pytest.mark.spec("E12")
@pytest.mark.parametrize(
    ("marked", "unmarked"),
    [
        (assistant("We decided that alpha_store keeps the figures."), assistant("You can see gamma_store here now.")),
        (tool_result("c1", "Error: alpha_store cannot be read"), tool_result("c2", "So far gamma_store can be read")),
    ],
)
def test_where_only_one_of_two_equals_fits_it_is_the_one_with_a_role(marked: Message, unmarked: Message) -> None:
    for messages in ([marked, unmarked], [unmarked, marked]):
        entries = [Entry(n, m) for n, m in enumerate([user("Look at the stores, please."), *messages])]
        lines = ledger_of(entries).lines_for(budget_chars=30)
        assert "alpha_store" in lines.text
        assert "gamma_store" not in lines.text


def test_roles_rest_on_what_was_read_before() -> None:
    entry = Entry(1, tool_result("c1", "Error: no such table ledger_store"))
    first = roles_in(entry)
    assert roles_in(entry) is first
    assert outcome_in(entry)[1]
    spoken = Entry(2, user("We decided to keep the figures in ledger_store from here."))
    roles_in(spoken)
    assert analysis_of(spoken) is analysis_of(spoken)


def test_a_secret_in_an_error_plays_no_part() -> None:
    found = roles_of(tool_result("c1", "Error: denied for https://bob:hunter2secret@db.example.org/x_table"))
    assert not any("hunter2secret" in fact for fact in found.errors)
