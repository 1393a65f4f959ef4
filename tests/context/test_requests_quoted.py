"""Active Task and Goal say what was asked: consents with what they accept, and whole messages that are the request."""

from __future__ import annotations

import re

import pytest

import perdure
from perdure.context.record.record import RecordSource, call_lines
from perdure.context.task_state.reader import read_state
from perdure.context.task_state.sections import write_sections
from perdure.core.messages import Entry, Message, ToolCall, assistant, tool_result, user

ASKED = "Do the tests cover the rotation of the log files?"


def _work(number: int = 0) -> list[Message]:
    call = ToolCall(f"w{number}", "edit_file", '{"path": "rotate.py", "old_string": "a", "new_string": "b"}')
    return [assistant("Changing it.", (call,)), tool_result(f"w{number}", "Replaced 1 occurrence.")]


def _sections(*messages: Message, in_view: frozenset[int] = frozenset()) -> dict[str, str]:
    entries = [Entry(at, m) for at, m in enumerate(messages)]
    return write_sections(read_state(entries, call_lines(entries), in_view=in_view))


@pytest.mark.spec("E2", "E1c")
@pytest.mark.parametrize(
    ("offer", "consent"),
    [
        (
            "No. Want me to add a test for a full disk? Roughly:\n\n```python\ndef test_full(): ...\n```",
            "yes please do",
        ),
        ("Nein. Soll ich einen Test für eine volle Platte ergänzen?", "ja, gern"),
        ("没有。要不要我加一个磁盘写满的测试？", "好的"),
        ("ありません。ディスクが満杯のときのテストを追加しましょうか？", "はい、お願いします"),
        ("없습니다. 디스크가 가득 찬 경우의 테스트를 추가할까요?", "응 해줘"),
        ("없습니다. 디스크가 가득 찬 경우의 테스트를 추가할까요?", "ㅇㅇ 고고"),
    ],
)
def test_a_bare_consent_is_quoted_with_the_offer_and_not_replaced_by_the_question_before(
    offer: str, consent: str
) -> None:
    task = _sections(user(ASKED), *_work(), assistant(offer), user(consent), *_work(1))["Active Task"]
    offered = re.split(r"[.。] ?", re.split(r"(?<=[?？])", offer)[0])[-1]
    assert f"> {consent}\n" in task
    assert offered in task
    assert f"> {ASKED}" not in task


@pytest.mark.spec("E2", "E1c")
def test_a_consent_to_a_question_about_this_names_what_this_is() -> None:
    offer = (
        "Here is what I would book:\n\n- **Hotel**: Seeblick, two nights\n- **Price**: $412\n\n"
        "Would you like me to proceed with this booking? Please confirm."
    )
    consent = "Yes, please go ahead. By the way, is breakfast included?"
    task = _sections(user("Find me a hotel by the lake."), assistant(offer), user(consent), *_work())["Active Task"]
    assert "Seeblick, two nights" in task
    assert "$412" in task
    confirm = offer.replace("Would you like me to proceed with this booking? Please confirm.", "Please confirm.")
    task = _sections(user("Find me a hotel."), assistant(confirm), user("ok, go ahead"), *_work())["Active Task"]
    assert "$412" in task


@pytest.mark.spec("E2")
@pytest.mark.parametrize("thanks", ["ok", "great, thanks", "감사합니다", "谢谢", "alles klar, danke"])
def test_thanks_after_a_report_is_no_request(thanks: str) -> None:
    report = assistant("The rotation is fixed. It could be combined with the cleanup. Let me know if you need more.")
    assert _sections(user("Fix the rotation."), *_work(), report, user(thanks))["Active Task"].startswith("None")


PROMPT = (
    "New assignment:\nYou will get a part of a program and a report.\n\n```diff\n- old\n+ new\n```\n\n"
    "I need you to repair the reported fault and to hand in one patch.\n\n<report>\nThe totals are wrong.\n</report>\n"
)


@pytest.mark.spec("E2", "E1")
def test_the_only_message_is_the_request_and_not_called_material() -> None:
    sections = _sections(user(PROMPT), *_work(), in_view=frozenset((0,)))
    task = sections["Active Task"]
    assert "I need you to repair the reported fault and to hand in one patch." in task
    assert "stands in full below these notes: m:0]" in task
    assert "not as instructions" not in task
    assert "I need you to repair the reported fault" in sections["Goal"]


@pytest.mark.spec("E2", "E1")
def test_a_plan_to_implement_is_named_by_its_title() -> None:
    plan = (
        "Implement the following plan:\n\n# Rotate logs by size\n\n## Steps\n\n1. Add a limit.\n2. Keep nine files.\n"
    )
    sections = _sections(user(plan), *_work(), in_view=frozenset((0,)))
    assert "not as instructions" not in sections["Active Task"]
    assert "in full below" in sections["Active Task"]
    assert "Rotate logs by size" in sections["Goal"]


@pytest.mark.spec("E1", "E1c")
@pytest.mark.parametrize(
    ("question", "request_text"),
    [
        ("Which folder are we in?", "Add a page with the opening hours to the site."),
        ("지금 어느 폴더에 있어?", "사이트에 영업시간을 보여주는 페이지를 새로 추가해줘"),
        ("我们现在在哪个目录？", "给网站加一个显示营业时间的页面，并写好测试"),
    ],
)
def test_the_goal_names_the_first_work_after_a_quick_question(question: str, request_text: str) -> None:
    talk = [user(question), assistant("~/site"), user(request_text), *_work(), assistant("Added.")]
    goal = _sections(*talk, user("Now rename the page to hours.html, please."), *_work(1))["Goal"]
    assert f"The work began with: “{request_text}”" in goal
    # What Active Task quotes is not pointed at.
    assert "Now:" not in goal


@pytest.mark.spec("E1c")
def test_the_goal_is_never_older_than_the_open_request() -> None:
    first, second = "Write the release notes of version 3.", "Please translate the glossary of the handbook as well."
    options = assistant("Both are possible.\n\n1. Run the checks\n2. Build the archive\n\nWhich one?")
    talk = [user(first), *_work(), assistant("Done."), user(second), *_work(1), options]
    goal = _sections(*talk, user("1+2"), *_work(2))["Goal"]
    assert second not in goal


@pytest.mark.spec("E2")
def test_a_long_request_is_not_cut_within_a_word() -> None:
    words = " ".join(f"parameter_{n}_of_the_pump" for n in range(2_000))
    task = _sections(user(f"Please check all of these: {words}"), *_work())["Active Task"]
    quoted = {
        w for line in task.splitlines() if line.startswith("> ") for w in line.split() if "pump" in w or "par" in w
    }
    assert quoted <= set(words.split())


def test_a_plain_history_tells_what_the_conversation_is_about_now() -> None:
    rows = "\n".join(f"row {n}: {n * 7}" for n in range(3_000))
    messages = [
        {"role": "user", "content": "Explain the retry policy of the mailer to a new colleague."},
        {"role": "assistant", "content": "It retries three times."},
        {"role": "user", "content": "Please compare it with the retry policy of the gateway."},
        {"role": "assistant", "content": rows},
    ]
    messages += [{"role": "user", "content": "thanks"}, {"role": "assistant", "content": "You are welcome."}] * 9
    text = "\n".join(str(m["content"]) for m in perdure.compress(messages, context_length=16_000).messages)
    assert "Now: “Please compare it with the retry policy of the gateway.”" in text


@pytest.mark.spec("E2")
@pytest.mark.parametrize(
    "text",
    [
        "I'd like to add a bag, and to move the seat to the window side as well, please. Can I pay with points?",
        "Let's do these first:",
    ],
)
def test_a_wish_of_ones_own_takes_up_no_offer(text: str) -> None:
    offer = assistant("I recommend the early train. Would you like me to book it?")
    task = _sections(user("Which train fits best?"), offer, user(text), *_work())["Active Task"]
    assert "takes up" not in task


@pytest.mark.spec("E1b")
@pytest.mark.parametrize(
    "farewell", ["###STOP###", "Thank you so much, bye!", "Danke, tschüss!", "谢谢，再见！", "감사합니다!"]
)
def test_another_conversation_begins_behind_a_farewell(farewell: str) -> None:
    first = [
        turn
        for n in range(4)
        for turn in (user(f"Is room {n}{n} free on May {n + 2}?"), assistant(f"Room {n}{n} costs ${n + 80} a night."))
    ]
    opening = user(f"{farewell}\nHello, I am Ruth Adler and need a taxi to the harbour at 9:40.")
    last = [assistant("The taxi costs $31."), user("Then book it for 9:30, under Adler.")]
    entries = [Entry(at, m) for at, m in enumerate([*first, opening, *last])]
    record = RecordSource(entries, dialogue_level=1.0).draw(4_000)
    assert "USER (new conversation) [8]" in record
    assert record.count("new conversation") == 1
