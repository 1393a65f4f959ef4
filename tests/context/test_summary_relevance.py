"""A summary has to be about its source: fluent text about other things is refused, whatever its headings."""

from __future__ import annotations

import time

import pytest

from perdure.context.summarizer import problem_with
from perdure.context.summary_relevance import _split_passages, _terms, _terms_of_passages, is_about

DEPLOYMENT = """USER: Set up a workflow that deploys to the app wren-api on each push to main.
ASSISTANT: I wrote .github/workflows/deploy.yml with setup-flyctl; FLY_API_TOKEN is a secret of the repository.
→ gh run watch 8812734: failure, app not found "wren-api"
ASSISTANT: The app is called wren-api-prod. I changed fly.toml and pushed 77ab01e; run 8812790 succeeded in 74 seconds.
USER: Run the migrations before the deploy, with python manage.py migrate, and tell me how long they take.
ASSISTANT: The migrations need 12 seconds on the copy of the production database; the step is called migrate-first.
USER: Good. Then add a health check on /readyz before the traffic is switched."""
OUTING = """USER: 来月の社員旅行の案を三つ出してください。参加者は22人、予算は一人三万円です。
ASSISTANT: 一、箱根の温泉一泊。二、軽井沢でサイクリング。三、金沢の日帰り観光です。
USER: 箱根は去年行きました。軽井沢は雨の場合どうしますか。
ASSISTANT: 雨の場合はアウトレットと旧三笠ホテルの見学に変えられます。宿は一人二万六千円です。
USER: では軽井沢で日程表を作ってください。宿は駅の近くがいいです。"""

TRUE = {
    "in the same language": (
        "## Goal\nDeploy wren-api-prod by a workflow on each push to main.\n## Completed Actions\n"
        "1. CREATE .github/workflows/deploy.yml with setup-flyctl and the secret FLY_API_TOKEN.\n"
        "2. EDIT fly.toml: the app is wren-api-prod (77ab01e), run 8812790 succeeded.\n"
        "3. ADD the step migrate-first: python manage.py migrate, 12 seconds.\n"
        "## Remaining Work\nA health check on /readyz before the traffic is switched.",
        DEPLOYMENT,
    ),
    "in another language": (
        "## Goal\nDéployer wren-api-prod à chaque envoi sur la branche principale.\n## Completed Actions\n"
        "1. Créé .github/workflows/deploy.yml avec setup-flyctl et FLY_API_TOKEN.\n"
        "2. Corrigé fly.toml (77ab01e), l'exécution 8812790 a réussi.\n"
        "3. Ajouté l'étape migrate-first, qui lance manage.py migrate en 12 secondes.\n"
        "## Remaining Work\nVérifier /readyz avant de basculer le trafic.",
        DEPLOYMENT,
    ),
    "in another script": (
        "## Goal\n每次推送到主分支时部署 wren-api-prod。\n## Completed Actions\n"
        "1. 新建 .github/workflows/deploy.yml，使用 setup-flyctl 和 FLY_API_TOKEN。\n"
        "2. 修改 fly.toml（77ab01e），运行 8812790 成功。\n3. 增加步骤 migrate-first，用时 12 秒。\n"
        "## Remaining Work\n切换流量之前检查 /readyz。",
        DEPLOYMENT,
    ),
    "in Japanese": (
        "## Goal\n社員22人の旅行を計画する。予算は一人三万円。\n## Completed Actions\n"
        "1. 箱根、軽井沢、金沢の三つの案を出した。\n2. 雨の場合はアウトレットと旧三笠ホテルの見学に変える。\n"
        "## Key Decisions\n箱根は去年行ったので軽井沢に決まった。宿は一人二万六千円。\n"
        "## Remaining Work\n軽井沢の日程表を作る。宿は駅の近く。",
        OUTING,
    ),
    "of a talk without names, in another language": (
        "## Goal\nPlan a company outing for a group of colleagues.\n## Completed Actions\n"
        "1. Proposed hot springs, cycling in the highlands and a day of sightseeing.\n"
        "2. Explained what to do when it rains: shops and a visit to the old hotel.\n"
        "## Key Decisions\nThe springs were visited last year, so the highlands were chosen.\n"
        "## Remaining Work\nWrite the schedule; the lodging should be near the station.",
        OUTING,
    ),
}
INVENTED = {
    "another project": "## Goal\nMove the billing service from MySQL to PostgreSQL without downtime.\n"
    "## Completed Actions\n1. CREATE migrations/0042_invoices.sql with the new invoice tables.\n"
    "2. TEST pytest tests/billing: 118 passed.\n## Active State\nBranch feature/pg-cutover, last commit 9c1e77a.\n"
    "## Key Decisions\nDual writes for two weeks, then reads are moved.\n## Remaining Work\nBackfill the ledger table.",
    "no project at all": "## Goal\nHelp the user train for a half marathon in October.\n## Completed Actions\n"
    "1. Wrote a plan of twelve weeks with three runs a week.\n2. Explained how to pace the long run and when to rest.\n"
    "## Key Decisions\nRuns are on Tuesdays, Thursdays and Sundays because of work.\n"
    "## Remaining Work\nStrength exercises, and an adjusted plan after the knee pain.",
    "the words of any project": "## Goal\nImprove the quality of the code base and keep all tests green.\n"
    "## Completed Actions\n1. Reviewed the main modules and cleaned up several functions.\n"
    "2. Fixed a number of failing checks and improved the error handling.\n"
    "## Key Decisions\nPrefer simple solutions and small, focused commits.\n"
    "## Remaining Work\nContinue with the remaining tasks and update the documentation.",
    "another language": "## Goal\nHilfe bei der Steuererklärung der Familie.\n## Completed Actions\n"
    "1. Anlage N und die Fahrtkosten mit 23 Kilometern berechnet.\n"
    "2. Kinderbetreuung als Sonderausgabe in Zeile 4711 eingetragen.\n"
    "## Key Decisions\nDie Pauschale für das Arbeitszimmer reicht aus.\n"
    "## Remaining Work\nBelege suchen und die Erklärung bis Ende Juli abschicken.",
}


@pytest.mark.spec("F2")
@pytest.mark.parametrize("case", TRUE)
def test_a_true_summary_is_accepted(case: str) -> None:
    summary, source = TRUE[case]
    assert problem_with(summary, source, source_tokens=4_000) == ""


@pytest.mark.spec("F2")
@pytest.mark.parametrize("case", INVENTED)
def test_varied_nonsense_under_every_heading_is_refused(case: str) -> None:
    assert problem_with(INVENTED[case], DEPLOYMENT, source_tokens=4_000) == "the summary is about something else"


def test_a_summary_of_another_conversation_is_refused() -> None:
    summary, _ = TRUE["in Japanese"]
    assert not is_about(summary, DEPLOYMENT)


def test_notes_so_far_are_a_source_too() -> None:
    summary = INVENTED["another project"]
    notes = summary.replace("## ", "### ")
    assert problem_with(summary, DEPLOYMENT, source_tokens=4_000, notes=notes) == ""


def test_a_few_new_words_are_not_judged() -> None:
    assert is_about("## Goal\nBring the components up to date.\n## Key Decisions\nThe parser stays recursive.", OUTING)


@pytest.mark.parametrize("unit", ["a", "x1 ", "漢", "\n", "é", "a.", "A/"])
def test_judging_takes_linear_time(unit: str) -> None:
    text = unit * (400_000 // len(unit))
    start = time.process_time()
    is_about("\n".join([text[:40_000], *INVENTED["another project"].splitlines()]), text)
    assert time.process_time() - start < 3.0


SAME_PROJECT = """## Goal
Deploy wren-api by a workflow on each push to main, and run the migrations before the deploy.
## Completed Actions
1. EDIT .github/workflows/nightly.yml: the app is wren-api-staging (51bd9f2), run 8790011 failed after 312 seconds.
2. EDIT scripts/rollback_release.py so that a failed health check on /livez switches the traffic back.
3. RUN python manage.py migrate: migration 0187_ledger_index took 96.4 seconds on the production database.
4. ASK the user for FLY_ORG_SLUG; it is wren-eu-2.
## Remaining Work
Raise the timeout_minutes of the workflow to 25 and delete the app wren-api-old3."""


def test_a_summary_of_another_session_of_the_project_is_told_by_its_values() -> None:
    assert not is_about(SAME_PROJECT, DEPLOYMENT)
    source = SAME_PROJECT.replace("## ", "USER: ").replace("EDIT", "ASSISTANT: I changed")
    assert is_about(SAME_PROJECT, source)


def test_values_that_a_summary_computes_are_allowed() -> None:
    computed = TRUE["in the same language"][0] + (
        "\n## Critical Context\nTwo of 2 runs (8812734, 8812790) took 74 and 12 seconds, 86s in all, on 2024-05-02,"
        "\nwith .github/workflows/deploy.yml, fly.toml, manage.py and FLY_API_TOKEN; 77ab01e is pushed; 100% done."
    )
    assert is_about(computed, DEPLOYMENT)


@pytest.mark.parametrize(
    "text",
    [
        "the migration 0187_ledger took 96.4 seconds\n" * 60,
        "USER: “don’t migrate” … → bash: 3 of 12345678901 migrations\n" * 50,
        "migrationémigration éclair naïve12 手順は migration です 1234\n" * 50,
        "x" * 3_000 + "migration" + "7" * 900,
    ],
)
def test_the_terms_of_passages_are_those_of_the_pattern(text: str) -> None:
    words = "migration took migrate bash seconds éclair clair naïve ledger 手順 the don"
    wanted = frozenset(_terms(words)) | {"12345678", "0187", "96", "1234", "77777777"}
    assert list(_terms_of_passages(text, wanted)) == [
        wanted & _terms(text[start:end]) for start, end in _split_passages(text)
    ]
