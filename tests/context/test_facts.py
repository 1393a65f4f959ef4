"""Facts: what is found, and how it is weighed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.context.exact_values import facts_of, kind_of, parts_in, scan, weigh
from perdure.context.record.value_index import ValueUse, draw_index, rank_values
from perdure.core.messages import Message, ToolCall, assistant, tool_result, user


def call(name: str, call_id: str = "c1", **arguments: object) -> ToolCall:
    return ToolCall(call_id, name, json.dumps(arguments))


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
    chance = weigh([facts_of(m) for m in messages]).chance
    assert chance["/srv/app/module_077.py"] > 5 * chance["/srv/app/module_078.py"]


@pytest.mark.spec("E12")
def test_later_use_outranks_earlier_use() -> None:
    early = assistant("First this one.", (call("read", path="/srv/old/first_file.py"),))
    late = assistant("Then that one.", (call("read", "c2", path="/srv/new/second_file.py"),))
    between = [assistant("Working on it.") for _ in range(80)]
    chance = weigh([facts_of(m) for m in [early, *between, late]]).chance
    assert chance["/srv/new/second_file.py"] > chance["/srv/old/first_file.py"]


@pytest.mark.spec("E9")
def test_a_piece_of_a_secret_is_no_fact() -> None:
    """Cut out of its URL, a password no longer looks like one: it must be gone before facts are read."""
    url = "postgres://bob:s3cr3tPassw0rd@db.local/x"
    messages = [user(f"Deploy with {url} please")]
    for n in range(60):
        asked = call("terminal", f"c{n}", command=f"curl -H 'Authorization: Bearer sk-proj-{'Ab3d' * 12}' http://x/{n}")
        messages += [assistant("", (asked,)), tool_result(f"c{n}", f"DB_URL={url}\n" + "out " * 600)]
    use = ValueUse.read([facts_of(m) for m in messages])
    text = draw_index(use, rank_values(use, visible=frozenset(), text=""), budget=6_000, text="")
    assert "http://x/" in text
    assert "s3cr3tPassw0rd" not in text


@pytest.mark.spec("E12")
def test_the_index_says_what_its_values_are_and_lists_no_scraps() -> None:
    messages: list[Message] = [user("Look at it.")]
    for n in range(8):
        read = call("read", f"r{n}", path="/srv/app/src/ledger.py", offset=1_810, limit=120_000)
        messages += [
            assistant("", (read,)),
            tool_result(f"r{n}", "renderLedgerPage() uses t.Log and ../page.js, ledger.py"),
        ]
    use = ValueUse.read([facts_of(m) for m in messages])
    text = draw_index(use, rank_values(use, visible=frozenset(), text=""), budget=2_000, text="")
    assert "- Files that calls worked on: /srv/app/src/ledger.py" in text
    assert "- In ledger.py: renderLedgerPage" in text
    for scrap in ("1810", "120000", "t.Log", "../page.js", ", ledger.py"):
        assert scrap not in text


def _index(*messages: Message) -> str:
    use = ValueUse.read([facts_of(m) for m in messages])
    return draw_index(use, rank_values(use, visible=frozenset(), text=""), budget=2_000, text="")


@pytest.mark.spec("E12")
@pytest.mark.parametrize(
    "scrap",
    [
        "/dev/null", "/dev/stderr", "140-212", "L12-L19", "240px", "~120ms", "17/20", "급등/급락", "files_with_matches",
        "run_in_background",
    ],
)  # fmt: skip
def test_the_index_lists_no_options_ranges_devices_or_quantities(scrap: str) -> None:
    run = call("terminal", "c1", command=f"show {scrap} of renderLedgerPage")
    text = _index(user(f"See {scrap}."), assistant(f"I use {scrap}.", (run,)), tool_result("c1", f"{scrap} done"))
    assert "renderLedgerPage" in text
    assert scrap not in text.partition(": ")[2].replace(f"show {scrap}", "")


@pytest.mark.parametrize("argument", ["timeout_ms", "limit", "max_output_tokens", "yield_time_ms", "start_line"])
def test_the_index_lists_no_number_that_only_says_how_a_call_runs(argument: str) -> None:
    run = call("terminal", "c1", command="deploy ledger_service", **{argument: 48_211})
    text = _index(user("Deploy."), assistant("", (run,)), tool_result("c1", "ok"))
    assert "ledger_service" in text
    assert "48211" not in text


def test_a_number_that_a_call_sets_keeps_its_name_in_the_index() -> None:
    move = call("set_quota", "c1", account="ledger_service", quota=48_000)
    assert "quota=48000" in _index(user("Move it."), assistant("", (move,)), tool_result("c1", "ok"))


def test_values_of_a_part_of_a_file_are_listed_by_the_file_alone() -> None:
    read = call("read", "c1", path="/srv/app/src/ledger.py:40-96")
    text = _index(user("Look."), assistant("", (read,)), tool_result("c1", "def renderLedgerPage(): ..."))
    assert "- In ledger.py: renderLedgerPage" in text


def test_a_printed_line_break_is_no_letter_of_the_name_behind_it() -> None:
    facts = scan(r"'Found:\nledger_rows = 3\tparseLedger()' and \nL031")
    assert {"ledger_rows", "parseLedger"} <= facts
    assert not any(fact.startswith(("nl", "nL", "tp")) for fact in facts)
    assert r"C:\new\nova_core.cs" in scan(r"open C:\new\nova_core.cs")


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
    weigh([facts_of(message)])


@pytest.mark.spec("E12")
def test_what_the_user_named_and_nobody_used_yet_waits_to_be_used() -> None:
    messages = [
        user("Bring parseLedgerHeader and writeLedgerFooter up to date, please."),
        assistant("The reader calls renderLedgerPage in between.", (call("grep", pattern="parseLedgerHeader"),)),
        tool_result("c1", "src/ledger.py: def parseLedgerHeader(rows), def mergeLedgerRows(rows)"),
    ]
    chance = weigh([facts_of(m) for m in messages]).chance
    assert chance["writeLedgerFooter"] > 2 * chance["mergeLedgerRows"]


def test_what_the_user_pasted_counts_like_a_result() -> None:
    pasted = "\n".join(f"worker_{n} finished taskNumber{n}Done" for n in range(200))
    chance = weigh([facts_of(user(f"look at failing_worker_name\n{pasted}"))])
    assert "worker_7" in chance.results.last
    assert "worker_7" not in chance.user.last


def test_line_numbers_that_a_viewer_added_are_no_facts() -> None:
    found = scan("  1460→\tfoo = bar_baz(18443)\n  1461→\treturn old_name → new_name\n")
    assert found == {"bar_baz", "18443", "old_name", "new_name"}


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


def test_the_index_names_the_argument_that_a_number_was_passed_as() -> None:
    call = ToolCall(id="1", name="set_port", arguments='{"name": "billing", "port": 36641}')
    messages = [user("Move the ports."), assistant("", (call,)), tool_result("1", "ok")]
    use = ValueUse.read([facts_of(m) for m in messages])
    text = draw_index(use, rank_values(use, visible=frozenset(), text=""), budget=2_000, text="")
    assert "port=36641" in text
