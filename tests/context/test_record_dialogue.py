"""The record of conversations: what both sides stated, what services answered, and no greetings."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

import perdure
from perdure.context.record.record import call_lines, draw_record
from perdure.context.record.statements import Statement, dialogue_share, read_utterance
from perdure.context.text import Passage, size_of, split_passages, split_sentences
from perdure.context.tool_calls.call_line import CallLine
from perdure.context.tool_calls.describe import describe_call
from perdure.context.user_text.standing_instructions import is_standing, may_bind
from perdure.core.messages import Entry, Message, ToolCall, assistant, tool_result, user
from perdure.models.tokens import estimate_text
from perdure.models.windows import window_budgets
from support.long_histories import working_session

FOODS = ("そば", "ラーメン", "カレー", "ピザ", "グラタン", "パスタ", "シチュー", "オムレツ", "ナポリタン", "ハンバーグ")
TOWNS = ("軽井沢", "石垣島", "宮古島", "北海道", "金沢市", "名古屋", "鎌倉市", "仙台市", "熊本県", "新潟市")


def _entries(*messages: Message) -> list[Entry]:
    return [Entry(n, m) for n, m in enumerate(messages)]


def japanese_chat(days: int = 20) -> list[Message]:
    """Chats of some days: a greeting, a question with its answer, and small talk each."""
    chat: list[Message] = []
    for n in range(days):
        town, food = TOWNS[n % 10], FOODS[n % 10]
        chat += [
            user("こんにちは！よろしくお願いします！"),
            assistant("こんにちは～よろしくお願いします！"),
            user("夏休みはどこに行きましたか？"),
            assistant(f"去年{n + 3}月に{town}で{food}を食べました。"),
            user("いいですね！本当にそうですよね。。"),
            assistant("そうですね～。ありがとうございました！"),
        ]
    return chat


def _service(name: str, arguments: dict[str, Any], result: object, call_id: str = "c1") -> list[Message]:
    call = ToolCall(call_id, name, json.dumps(arguments))
    text = result if isinstance(result, str) else json.dumps(result)
    return [assistant(None, (call,)), tool_result(call_id, text)]


def _line(name: str, arguments: dict[str, Any], result: object) -> CallLine:
    text = result if isinstance(result, str) else json.dumps(result)
    return describe_call(ToolCall("c1", name, json.dumps(arguments)), text)


@pytest.mark.spec("C2")
def test_a_chat_is_recorded_by_what_both_sides_stated_and_not_by_greetings() -> None:
    record = draw_record(_entries(*japanese_chat()), budget=3_600)
    for n in range(20):
        assert f"{n + 3}月に{TOWNS[n % 10]}" in record
    assert record.count("よろしくお願いします") < 2
    assert "ありがとうございました" not in record


@pytest.mark.spec("C2")
def test_a_short_answer_stands_below_its_question() -> None:
    chat = [
        *japanese_chat(6),
        user("キラーとサバイバーのどちらが得意ですか？"),
        assistant("リージョンです。"),
        *japanese_chat(6),
    ]
    record = draw_record(_entries(*chat), budget=3_000)
    assert "のどちらが得意ですか？\nASSISTANT [37]: リージョンです。" in record


@pytest.mark.spec("C2")
def test_the_facts_of_a_user_are_there_among_long_advice() -> None:
    talk: list[Message] = []
    for n in range(30):
        talk.append(user(f"My cousin Hallvard{n} sold me a Torkel{n} bike for ${310 + n}. What should I check?"))
        advice = [f"{k}. Check the brakes, the chain and the tyres of part {k} before each ride." for k in range(1, 15)]
        talk.append(assistant("A used bike needs a look at its moving parts.\n\n" + "\n".join(advice)))
    record = draw_record(_entries(*talk), budget=4_500)
    for n in range(30):
        assert f"Hallvard{n} sold me a Torkel{n} bike for ${310 + n}" in record


@pytest.mark.spec("C2")
def test_conversations_of_several_customers_stay_apart() -> None:
    talk: list[Message] = []
    for n in range(4):
        talk += [
            user(f"Hello! I am customer Nyberg{n} and my order N-77{n} has not arrived."),
            assistant(f"Order N-77{n} left the warehouse on 2026-03-1{n}."),
            user(f"Then send it to 1{n} Harbour Road, please."),
            assistant(f"Done, it goes to 1{n} Harbour Road."),
        ]
    record = draw_record(_entries(*talk), budget=6_000)
    assert record.count("(new conversation)") == 3
    for n in range(1, 4):
        assert f"USER (new conversation) [{4 * n}]: I am customer Nyberg{n}" in record


@pytest.mark.spec("C2")
def test_a_handoff_of_a_chat_uses_its_budget() -> None:
    raw = [m.to_dict() for m in japanese_chat(300)]
    report = perdure.compress(raw, context_length=32_000)
    assert report.handoff_data is not None
    least = window_budgets(32_000).record_tokens
    assert estimate_text(report.handoff_data.record) > 1.2 * least
    assert estimate_text(report.handoff) < 16_000


@pytest.mark.spec("C2")
def test_lines_that_were_carried_over_keep_their_titles_and_both_sides() -> None:
    earlier = "\n".join(
        f"USER (new conversation): My tram {n} was late.\nASSISTANT: Tram {n} is run by Holm{n} Transit."
        for n in range(40)
    )
    talk: list[Message] = []
    for n, town in enumerate(TOWNS * 2):
        talk += [user(f"Where is {town} {n}?"), assistant(f"{town} {n} is on line {n + 60}, behind Vester{n}.")]
    record = draw_record(_entries(*talk), budget=3_600, earlier=earlier)
    lines = record.splitlines()
    questions = sum("My tram" in line for line in lines)
    answers = sum("Transit" in line for line in lines)
    assert questions < 2 * answers
    assert record.count("(new conversation): My tram") == questions
    assert sum(f"behind Vester{n}" in record for n in range(20)) >= 18


@pytest.mark.spec("C2")
def test_work_on_files_is_no_dialogue_and_calls_of_services_are_not_work() -> None:
    session = _entries(*(Message.from_dict(m) for m in working_session(30, chars=2_000)))
    assert dialogue_share(session, call_lines(session)) == 0.0
    case = _entries(user("Cancel N-771, please."), *_service("cancel_order", {"id": "N-771"}, {"status": "cancelled"}))
    assert dialogue_share(case, call_lines(case)) == 1.0


@pytest.mark.spec("C2")
def test_what_a_research_session_wrote_is_recorded_like_a_report() -> None:
    page = "The harbour has a long history and many visitors come every year to see it. " * 60
    report = "# Harbour study\n\n" + "\n".join(
        f"- Berth {n} was built in {1900 + n} and is {n + 4}.5 m deep." for n in range(1, 25)
    )
    messages = [user("Study the harbour.")]
    for n in range(6):
        fetch = ToolCall(f"f{n}", "web_fetch", json.dumps({"url": f"https://example.org/{n}"}))
        messages += [assistant(None, (fetch,)), tool_result(f"f{n}", f"# Page {n}\n\n{page}")]
    write = ToolCall("w1", "write_file", json.dumps({"path": "/out/study.md", "content": report}))
    messages += [assistant(None, (write,)), tool_result("w1", "OK")]
    record = draw_record(_entries(*messages), budget=6_000)
    assert "REPORT (/out/study.md)" in record
    assert sum(f"Berth {n} was built in {1900 + n}" in record for n in range(1, 25)) >= 20


# -- services --------------------------------------------------------------------------------------------------------

BOOKING: dict[str, Any] = {
    "booking_id": "QX4T2P",
    "customer_id": "lena_holm_41",
    "cabin": "economy",
    "legs": [
        {"flight": "SK802", "date": "2026-06-02", "price": 188},
        {"flight": "SK455", "date": "2026-06-09", "price": 231},
    ],
    "payments": [{"method": "card_8812", "amount": 419}],
    "created_at": "2026-03-01T10:11:12",
    "avatar_url": "https://api.example.org/a.png",
    "status": "confirmed",
}


@pytest.mark.spec("C2")
def test_the_line_of_a_change_has_what_was_changed_and_the_values_of_the_answer() -> None:
    line = _line("update_booking", {"booking_id": "QX4T2P", "legs": BOOKING["legs"], "pay_with": "card_8812"}, BOOKING)
    call, _, outcome = line.line.partition(" → ")
    assert call.startswith("update_booking booking_id=QX4T2P, legs=SK802 2026-06-02 188 | SK455 2026-06-09 231, pay")
    assert "status: confirmed" in outcome
    assert "card_8812 419" in outcome
    assert "booking_id" not in outcome
    assert "{'" not in line.line + line.detail


@pytest.mark.spec("C2")
def test_the_line_of_a_lookup_has_states_amounts_and_names_before_origins() -> None:
    outcome = _line("get_booking", {"booking_id": "QX4T2P"}, BOOKING).line.partition(" → ")[2]
    assert outcome.startswith("status: confirmed")
    for value in ("lena_holm_41", "card_8812 419", "SK802 2026-06-02 188"):
        assert value in outcome
    assert "api.example.org" not in outcome


@pytest.mark.spec("C2")
def test_changes_come_before_lookups_and_thoughts_are_left_out() -> None:
    messages = [user("Please rebook my trips.")]
    for n in range(12):
        booking = {**BOOKING, "booking_id": f"QX{n}"}
        messages += _service("get_booking", {"booking_id": f"QX{n}"}, booking, f"g{n}")
        messages += _service("think", {"thought": f"I should now rebook QX{n} because it is next."}, "", f"t{n}")
        messages += _service("update_booking", {"booking_id": f"QX{n}", "cabin": "business"}, booking, f"u{n}")
    record = draw_record(_entries(*messages), budget=3_200)
    for n in range(12):
        assert f"→ update_booking booking_id=QX{n}, cabin=business → status: confirmed" in record
    assert "→ get_booking booking_id=QX0 → " not in record
    assert "think" not in record


@pytest.mark.spec("C2")
def test_a_failed_change_names_what_was_tried() -> None:
    line = _line("book_room", {"hotel": "Aalborg Inn", "nights": 3}, "Error: no room left on 2026-06-03")
    assert line.line == "book_room hotel=Aalborg Inn, nights=3 → FAILED: Error: no room left on 2026-06-03"
    assert line.worth > _line("get_room", {"hotel": "Aalborg Inn"}, "Error: no such hotel").worth


# -- CJK -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "昨日は新しいレストランで友達と一緒にパスタを食べました。とても美味しかったです。",
        "昨天我和朋友在新开的餐厅吃了意大利面，味道非常好。",
    ],
)
def test_the_size_of_cjk_text_follows_its_tokens(text: str) -> None:
    assert 0.8 < size_of(text * 20) / (3.4 * estimate_text(text * 20)) < 1.25


def test_repeated_full_stops_end_one_sentence() -> None:
    text = "誰を攻略するんですか？？私は苦手なので。。ゲームは「好き。」です。"
    assert split_sentences(text) == ["誰を攻略するんですか？？", "私は苦手なので。。", "ゲームは「好き。」です。"]


@pytest.mark.spec("E1")
@pytest.mark.parametrize(
    "sentence",
    [
        "この時期暑いから外に出て運動しようって気にはあんまりならないですよね。",
        "本当はやらないほうがいいですね。",
        "見た事はないですが、名前だけ知ってます！",
        "別のゲームに浮気してます。",
        "特别是站在山顶上，我的心情一下子变得非常舒畅。",
        "我还喜欢商业、棋牌、绘画和美酒。",
        "Hi, I'd like to cancel my return flight.",
    ],
)
def test_small_talk_and_stories_are_no_instructions(sentence: str) -> None:
    assert not is_standing(sentence)


@pytest.mark.spec("E1")
@pytest.mark.parametrize(
    "sentence",
    [
        "テストを消さないでください。",
        "設定ファイルは触らないでね。",
        "回答は3行以内にしてほしいです。",
        "インデントはスペース2つが好みです。",
        "外部のライブラリは使わないで。",
        "我更喜欢简短的回答。",
        "我只用 Python 3.11。",
        "别动生产环境。",
        "我喜欢简短的提交信息。",
        "I'd like to check each migration before you run it.",
    ],
)
def test_rules_in_the_same_words_are_instructions(sentence: str) -> None:
    assert is_standing(sentence)


def test_chatting_is_no_remark_that_may_bind() -> None:
    assert not may_bind("出かけるのが好きで、家でじっとしていることが出来ないんですよね。")
    assert may_bind("請求書は金曜日に発送します。")


@pytest.mark.spec("E1b", "O1")
def test_a_change_by_a_service_names_what_was_created_and_paid() -> None:
    arguments = {"user_id": "u_17", "cabin": "economy", "flights": [{"flight_number": "HX136", "date": "2026-05-20"}]}
    body = {
        "user_id": "u_17",
        "total_baggages": 3,
        "origin": "JFK",
        "payment_history": [{"payment_id": "card_44", "amount": 250}, {"payment_id": "gift_9", "amount": -55}],
        "reservation_id": "QXZ917",
        "created_at": "2026-05-15T15:00:00",
    }
    line = describe_call(ToolCall("c", "book_reservation", json.dumps(arguments)), json.dumps(body)).line
    assert "reservation_id: QXZ917, payment_history: card_44 250 | gift_9 -55" in line


@pytest.mark.spec("E1b", "O1")
def test_a_look_up_by_a_service_lists_dates_and_balances_before_personal_data() -> None:
    body = {
        "email": "x@example.com",
        "payment_methods": {"gift_card_22": {"source": "gift_card", "id": "gift_card_22", "amount": 123}},
        "membership": "gold",
        "flights": [{"flight_number": "HX137", "date": "2026-05-17"}],
    }
    line = describe_call(ToolCall("c", "get_user_details", json.dumps({"user_id": "u_17"})), json.dumps(body)).line
    assert "payment_methods: gift_card_22 123, flights: HX137 2026-05-17, membership: gold" in line


@pytest.mark.spec("O1")
def test_who_writes_little_is_quoted_nearly_whole() -> None:
    names = ("oak", "elm", "ash", "fir", "yew", "box", "bay", "fig", "gum", "ivy")
    wishes = []
    messages = []
    for n in range(80):
        trees = names[n % 10], names[n // 10]
        wishes.append(f"We would rather sit by the {trees[0]} with aunt {trees[1]} than walk, she wrote in week {n}.")
        points = "\n".join(
            f"- Option {k} of plan {n}: take line {n + k} to stop {n * k}, platform {k}." for k in range(20)
        )
        messages += [user(wishes[-1]), assistant(f"Some plans for week {n}:\n{points}")]
    text = str(perdure.compress([m.to_dict() for m in messages], context_length=32_000).messages)
    assert sum(wish in text for wish in wishes) >= 0.9 * len(wishes)


@pytest.mark.spec("O1")
def test_the_title_of_a_work_counts_more_than_the_words_around_it() -> None:
    plain = read_utterance(Statement("assistant", split_passages("我推荐你看一部电影，内容非常精彩。"), is_final=True))
    titled = read_utterance(Statement("assistant", split_passages("我推荐你看《银河补习班》。"), is_final=True))
    assert "《银河补习班》" in titled.terms[0]
    assert titled.terms[0]["《银河补习班》"] > max(plain.terms[0].values())


@pytest.mark.spec("D9")
@pytest.mark.parametrize("text", ["?" * 60_000 + "x", "(" * 30_000 + "x", "#" * 30_000 + " stop x"])
def test_a_message_of_marks_is_read_as_an_utterance_in_linear_time(text: str) -> None:
    """Measured in processor time: a loaded machine does not count."""
    statement = Statement("assistant", (Passage(text, text[:80], 1.0),))
    began_s = time.process_time()
    utterance = read_utterance(statement)
    assert time.process_time() - began_s < 1
    assert not utterance.asks
    assert not utterance.greets
