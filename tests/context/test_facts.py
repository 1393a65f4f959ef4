"""Facts: what is found, how it is weighed, and how it is quoted."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.context.facts import FactLedger, FactLines, facts_of
from perdure.context.facts.extraction import kind_of, parts_in, scan
from perdure.core.messages import Message, ToolCall, assistant, tool_result, user
from perdure.models.tokens import estimate_text


def call(name: str, call_id: str = "c1", **arguments: object) -> ToolCall:
    return ToolCall(call_id, name, json.dumps(arguments))


def lines(messages: list[Message], *, chars: int = 2_000, already: str = "", shown: str = "") -> FactLines:
    ledger = FactLedger.collect([facts_of(m) for m in messages])
    return ledger.lines_for(budget_chars=chars, already=already, visible=scan(shown))


@pytest.mark.spec("E12")
@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("see /srv/app/main.py:41 for it", "/srv/app/main.py"),
        ("open https://example.org/a?b=1#c, then", "https://example.org/a?b=1#c"),
        ("the id is 3f2504e0-4f89-11d3-9a0c-0305e82c3301.", "3f2504e0-4f89-11d3-9a0c-0305e82c3301"),
        ("commit 9fceb02d0ae598e9 fixed", "9fceb02d0ae598e9"),
        ("call parse_header(x) now", "parse_header"),
        ("new HttpClientFactory();", "HttpClientFactory"),
        ("port 18443 is taken", "18443"),
        ("请修改配置文件/etc/app/config.yaml然后重启", "/etc/app/config.yaml"),
        ("ファイル「src/主要.py」を開く", "src/主要.py"),
        ("설정은 retry_limit에 있습니다", "retry_limit"),
        (r"open C:\work\app\main.cs please", r"C:\work\app\main.cs"),
        ("src/a.go-12-	return nil", "src/a.go"),
        ("booking HAT-4711 is confirmed", "HAT-4711"),
    ],
)
def test_exact_things_are_found_in_any_script(text: str, fact: str) -> None:
    assert fact in scan(text)


def test_plain_words_and_years_are_no_facts() -> None:
    assert scan("The quick brown fox jumped over it in 2024, quite slowly.") == frozenset()


@pytest.mark.parametrize(
    ("fact", "kind"),
    [("report.find", "dotted"), ("report.md", "file"), ("and/or", "pair"), ("a/b/c", "path"), ("18443", "number")],
)
def test_kinds_tell_files_from_attributes_and_paths_from_word_pairs(fact: str, kind: str) -> None:
    assert kind_of(fact) == kind


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=400))
def test_scanning_never_fails_and_only_returns_what_the_text_has(text: str) -> None:
    for fact in scan(text):
        assert fact in text or fact.encode("utf-8", "replace").decode() in text.encode("utf-8", "replace").decode()


def test_arguments_that_are_no_json_are_read_as_text() -> None:
    found = facts_of(assistant(None, (ToolCall("c1", "run", "{broken /srv/app/main.py"),)))
    assert "/srv/app/main.py" in found.used


@pytest.mark.spec("E12")
def test_a_path_used_in_a_call_outranks_one_of_many_in_a_listing() -> None:
    listing = "\n".join(f"/srv/app/module_{n:03}.py" for n in range(120))
    messages = [
        assistant("Let me see which modules there are.", (call("list", path="/srv/app"),)),
        tool_result("c1", listing),
        assistant("The retry logic lives in this module.", (call("read", "c2", path="/srv/app/module_077.py"),)),
        tool_result("c2", "def retry(times): return times"),
        *[assistant("Thinking about the next step here.") for _ in range(6)],
    ]
    chance = FactLedger.collect([facts_of(m) for m in messages])._weights.chance
    assert chance["/srv/app/module_077.py"] > 5 * chance["/srv/app/module_078.py"]
    assert any(line.startswith("- /srv/app/module_077.py — ") for line in lines(messages, chars=300).files)


@pytest.mark.spec("E12")
def test_later_use_outranks_earlier_use() -> None:
    early = assistant("First this one.", (call("read", path="/srv/old/first_file.py"),))
    late = assistant("Then that one.", (call("read", "c2", path="/srv/new/second_file.py"),))
    between = [assistant("Working on it.") for _ in range(80)]
    chance = FactLedger.collect([facts_of(m) for m in [early, *between, late]])._weights.chance
    assert chance["/srv/new/second_file.py"] > chance["/srv/old/first_file.py"]


@pytest.mark.spec("E12")
def test_a_fact_is_quoted_with_a_contiguous_piece_of_its_source() -> None:
    source = "The upload fails because maxBodyBytes is smaller than the chunk that the browser sends."
    text = lines([user("why does it fail"), assistant(source)]).text
    assert "maxBodyBytes" in text
    quoted = next(line for line in text.split("\n") if "maxBodyBytes" in line).removeprefix("- assistant: ")
    assert all(piece in source for piece in quoted.split(" … "))
    assert len(quoted.split()) > 3


@pytest.mark.spec("E12")
def test_what_the_reader_sees_anyway_is_not_repeated() -> None:
    messages = [assistant("The value of retryBudgetSeconds decides how long the worker waits.")]
    assert "retryBudgetSeconds" in lines(messages).text
    assert lines(messages, already="we raised retryBudgetSeconds to 90").text == ""


@pytest.mark.spec("E12")
def test_what_kept_messages_show_comes_after_what_nothing_shows() -> None:
    messages = [
        assistant("The worker reads hiddenQueueName from its own environment at start."),
        assistant("The client reads visibleQueueName from its own environment at start."),
    ]
    tight = lines(messages, chars=60, shown="visibleQueueName is set").text
    assert "hiddenQueueName" in tight
    assert "visibleQueueName" not in tight
    assert "visibleQueueName" not in lines(messages, chars=2_000, shown="visibleQueueName is set").text
    assert "visibleQueueName" in lines(messages, chars=20_000, shown="visibleQueueName is set").text


@pytest.mark.spec("C2")
@settings(max_examples=25, deadline=None)
@given(room=st.integers(0, 3_000))
def test_the_budget_in_characters_is_never_overspent(room: int) -> None:
    messages = [
        assistant(f"Step {n} touches worker_{n}_settings and moduleNumber{n}Loader in the code.") for n in range(60)
    ]
    assert len(lines(messages, chars=room).text) <= room


@pytest.mark.spec("C2", "B2")
def test_a_budget_in_tokens_counts_cjk_as_dense() -> None:
    chinese = [
        assistant(f"第{n}步:我们把缓存队列参数 cache_queue_{n}_limit 调整为更大的数值以避免溢出") for n in range(200)
    ]
    english = [assistant(f"In step {n} we raise cache_queue_{n}_limit so that nothing overflows") for n in range(200)]
    sizes = [
        len(FactLedger.collect([facts_of(m) for m in ms]).lines_for(budget_tokens=400).text)
        for ms in (chinese, english)
    ]
    assert sizes[0] < sizes[1] * 0.8


@pytest.mark.spec("E9")
def test_secrets_are_redacted_in_every_line() -> None:
    secret = "sk-ant-api03-" + "a1B2c3D4e5F6g7H8" * 4
    text = lines([user(f"deploy with the key {secret} to the server build_host_07 please")]).text
    assert secret not in text


@pytest.mark.spec("E9")
def test_a_piece_of_a_secret_is_no_fact() -> None:
    """Cut out of its URL, a password no longer looks like one: it must be gone before facts are read."""
    url = "postgres://bob:s3cr3tPassw0rd@db.local/x"
    messages = [user(f"Deploy with {url} please")]
    for n in range(60):
        asked = call("terminal", f"c{n}", command=f"curl -H 'Authorization: Bearer sk-proj-{'Ab3d' * 12}' http://x/{n}")
        messages += [assistant("", (asked,)), tool_result(f"c{n}", f"DB_URL={url}\n" + "out " * 600)]
    text = lines(messages, chars=6_000).text
    assert "http://x/" in text
    assert "s3cr3tPassw0rd" not in text


def test_equal_input_gives_equal_lines() -> None:
    messages = [assistant(f"alphaBeta{n} and gamma_delta_{n} stand in one line of code") for n in range(40)]
    assert lines(messages, chars=900) == lines(messages, chars=900)


def test_nothing_to_tell_gives_no_lines() -> None:
    assert FactLedger.collect([]).lines_for(budget_chars=1_000) == FactLines()
    assert lines([user("hello there")], chars=500) == FactLines()
    assert lines([user("see build_host_07")], chars=0) == FactLines()


@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        "\x00\ud800",
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},),
        17,
        ["a", 3],
    ],
)
def test_odd_content_never_fails(content: object) -> None:
    message = Message.from_dict({"role": "user", "content": content})
    FactLedger.collect([facts_of(message)]).lines_for(budget_chars=200)


@pytest.mark.spec("E12")
def test_with_room_to_spare_a_path_whose_name_is_told_outranks_its_neighbours_in_the_listing() -> None:
    listed = [f"/srv/app/parts/piece{n:03}.py" for n in range(1_500)]
    history = [user("list them"), assistant("", (call("list"),)), tool_result("c1", "\n".join(listed))]
    untold = lines(history, chars=24_000).text
    missed = next(path for path in reversed(listed) if path not in untold)
    told = f"Next comes {missed.rpartition('/')[2]}"
    assert missed in lines(history, chars=24_000, already=told).text


@pytest.mark.spec("C2", "E12")
@pytest.mark.parametrize("tokens", [200, 900, 4_000])
def test_a_budget_in_tokens_is_kept_as_measured_and_used(tokens: int) -> None:
    """Lines of paths have fewer characters a token than prose: what they really come to decides."""
    listing = "\n".join(f"/srv/app-{n % 7}/x{n:04}/q_{n}_{n * 37 % 911}.py: 0x{n * 7919:08x}" for n in range(900))
    messages = [
        assistant("Let me list all of the generated modules.", (call("list", path="/srv"),)),
        tool_result("c1", listing),
    ]
    used = estimate_text(FactLedger.collect([facts_of(m) for m in messages]).lines_for(budget_tokens=tokens).text)
    assert 0.9 * tokens <= used <= tokens


@pytest.mark.spec("E12")
def test_what_the_user_named_and_nobody_used_yet_waits_to_be_used() -> None:
    messages = [
        user("Bring parseLedgerHeader and writeLedgerFooter up to date, please."),
        assistant("The reader calls renderLedgerPage in between.", (call("grep", pattern="parseLedgerHeader"),)),
        tool_result("c1", "src/ledger.py: def parseLedgerHeader(rows), def mergeLedgerRows(rows)"),
    ]
    chance = FactLedger.collect([facts_of(m) for m in messages])._weights.chance
    assert chance["writeLedgerFooter"] > 2 * chance["mergeLedgerRows"]


def test_what_the_user_pasted_counts_like_a_result() -> None:
    pasted = "\n".join(f"worker_{n} finished taskNumber{n}Done" for n in range(200))
    chance = FactLedger.collect([facts_of(user(f"look at failing_worker_name\n{pasted}"))])._weights
    assert "worker_7" in chance.results.last
    assert "worker_7" not in chance.user.last


def test_line_numbers_that_a_viewer_added_are_no_facts() -> None:
    found = scan("  1460→\tfoo = bar_baz(18443)\n  1461→\treturn old_name → new_name\n")
    assert found == {"bar_baz", "18443", "old_name", "new_name"}


@pytest.mark.spec("E12")
def test_a_folder_that_was_opened_is_told_by_itself_beside_the_files_in_it() -> None:
    messages = [
        assistant("The strategies live in one folder of their own.", (call("list", path="/srv/app/strategy"),)),
        tool_result("c1", "common.py"),
        assistant("The common one holds the retry logic.", (call("read", "c2", path="/srv/app/strategy/common.py"),)),
        tool_result("c2", "def retry(times): return times"),
    ]
    files = lines(messages).files
    assert any(line.startswith("- /srv/app/strategy — ") for line in files)
    assert any(line.startswith("- /srv/app/strategy/common.py — ") for line in files)


@pytest.mark.spec("E12")
def test_overlapping_pieces_of_one_source_are_quoted_once() -> None:
    source = "The worker reads retryBudget and retryDelay and retryFactor from its own environment at start."
    text = lines([assistant(source)]).text
    assert all(name in text for name in ("retryBudget", "retryDelay", "retryFactor"))
    assert text.count("retryDelay") == 1


@pytest.mark.spec("E12")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("edit src/store/base.py now", {"src/store", "store/base.py", "base.py", "src/store/base.py"}),
        ("the ParentTreeHash of it", {"TreeHash", "ParentTree"}),
        ("在load_config_file里", {"load_config", "config_file"}),
        ("HTTPServer2_test", {"HTTPServer2", "Server2_test"}),
    ],
)
def test_a_compound_name_shows_its_parts(text: str, shown: set[str]) -> None:
    assert shown <= parts_in(text)


def test_plain_words_and_halves_of_words_are_no_parts() -> None:
    assert parts_in("plain words only, Nothing else") == set()
    assert not {"tore/base.py", "ase.py"} & parts_in("src/store/base.py")


def test_a_path_without_end_takes_no_more_than_its_last_parts() -> None:
    assert len(parts_in("a1/" * 5_000)) < 100
