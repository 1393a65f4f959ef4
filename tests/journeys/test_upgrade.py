"""What earlier versions left behind works with this one: see tests/fixtures/upgrade/README.md."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import sqlite3
import time
import warnings
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

import perdure
from perdure.cli.main import cli
from perdure.config.deprecated import DeprecatedSetting
from perdure.config.load import load
from perdure.context import conformance
from perdure.context.registry import engines
from perdure.core.messages import HANDOFF_FIRST_LINE
from perdure.lab.simulator import Asked, Call, Say, Simulator
from support.gateway_process import gateway_process

VERSIONS = sorted(p.parent for p in (Path(__file__).parents[1] / "fixtures" / "upgrade").glob("*/SHA256SUMS"))
SUMMARY = "\n\n".join(f"## {s}\nPier 4 is inspected." for s in ("Goal", "Completed Actions", "Critical Context"))
pytestmark = pytest.mark.filterwarnings("ignore::perdure.config.deprecated.DeprecatedSetting")


@dataclass(frozen=True)
class Upgrade:
    """A copy of one version's home folder, and what is in it."""

    source: Path
    home: Path
    expected: dict[str, Any]

    @property
    def database(self) -> Path:
        return self.home / "perdure.db"

    def id_of(self, name: str) -> str:
        return str(self.expected["conversations"][name]["id"])

    def agent(self, sim: Simulator, session_id: str | None = None, **settings: Any) -> perdure.Agent:
        loaded = load(flags=settings, home=self.home, environ={}).settings
        return perdure.Agent(
            base_url=sim.base_url, api_key="any", home=self.home, session_id=session_id, settings=loaded
        )


@pytest.fixture(params=VERSIONS, ids=lambda folder: folder.name)
def upgrade(request: pytest.FixtureRequest, tmp_path: Path) -> Upgrade:
    source, home = request.param, tmp_path / "home"
    shutil.copytree(source / "home", home)
    packed = home / "perdure.db.gz"
    (home / "perdure.db").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    return Upgrade(source, home, json.loads(gzip.decompress((source / "expected.json.gz").read_bytes())))


def reply(asked: Asked) -> str:
    return SUMMARY if asked.body["model"] == "small-1" else "Aye."


def test_there_is_a_fixture_and_no_file_of_it_was_ever_changed() -> None:
    assert VERSIONS
    for folder in VERSIONS:
        for line in (folder / "SHA256SUMS").read_text().splitlines():
            digest, name = line.split("  ")
            assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name


@pytest.mark.spec("I1")
def test_every_session_of_every_conversation_reads_as_it_did(upgrade: Upgrade) -> None:
    with perdure.open_store(upgrade.database) as store:
        for wanted in upgrade.expected["conversations"].values():
            conversation = store.conversations.get(wanted["id"])
            assert (conversation.kind, conversation.parent_id, conversation.title, conversation.todo) == (
                wanted["kind"],
                wanted["parent"],
                wanted["title"],
                wanted["todo"],
            )
            assert [s.id for s in store.conversations.chain(wanted["id"])] == wanted["chain"]
            for session in wanted["sessions"]:
                history = store.history(session["id"])
                assert [[e.seq, e.message.to_dict()] for e in history.entries] == session["messages"]
                assert history.session.system_prompt == session["system_prompt"]
                assert (history.session.parent_id, history.session.end_reason) == (
                    session["parent"],
                    session["end_reason"],
                )
                assert store.get_compression_tip(session["id"]) == wanted["tip"]


@pytest.mark.spec("I1")
def test_search_addresses_outputs_and_bills_are_as_they_were(upgrade: Upgrade) -> None:
    expected, main = upgrade.expected, upgrade.id_of("compacted")
    with perdure.open_store(upgrade.database) as store:
        store.rebuild.wait()
        assert [[h.conversation_id, h.address] for h in store.search("ferry")] == expected["found"]
        assert expected["outputs"]
        for output_id, whole in expected["outputs"].items():
            assert store.outputs.whole(output_id) == whole
            assert store.open(f"output:{output_id}", conversation_id=main).text == whole
            assert any(h.address == f"output:{output_id}" for h in store.search('"berth 399"'))
        for address, text in expected["opened"].items():
            assert store.open(address, conversation_id=main).text == text
        for name, wanted in expected["conversations"].items():
            assert len(store.ledger.calls(wanted["id"])) == expected["calls"][name]
            assert store.ledger.totals(wanted["id"]).cost_usd == pytest.approx(expected["cost_usd"][name])


@pytest.mark.spec("I1")
def test_any_session_id_resumes_at_the_tip_and_the_next_request_continues_what_was_sent(upgrade: Upgrade) -> None:
    wanted = upgrade.expected["conversations"]["compacted"]
    tip = wanted["sessions"][-1]
    with Simulator(window=16_000, script=reply) as sim, upgrade.agent(sim, wanted["chain"][0]) as agent:
        assert agent.chat("Is anyone still there?") == "Aye."
        assert agent.session_id == wanted["tip"]
        sent = sim.requests[-1].body["messages"]
        assert sent[0]["content"].startswith(tip["system_prompt"])
        assert _texts(sent[1:]) == [*(m["content"] for _, m in tip["messages"]), "Is anyone still there?"]
        assert sim.violations == []


@pytest.mark.spec("I1")
def test_a_compacted_conversation_is_compacted_again_and_both_compactions_can_be_undone(upgrade: Upgrade) -> None:
    wanted = upgrade.expected["conversations"]["compacted"]
    with Simulator(window=16_000, script=reply) as sim, upgrade.agent(sim, wanted["id"]) as agent:
        report = agent.compress()
        assert report.outcome == "compacted"
        store = agent.deps.store
        assert [s.id for s in store.conversations.chain(wanted["id"])] == [*wanted["chain"], agent.session_id]
        agent.undo()
        assert _contents(store.history(agent.session_id)) == _expected_contents(wanted["sessions"][-1])
        agent.undo()
        before = _expected_contents(wanted["sessions"][-2])
        assert _contents(store.history(agent.session_id))[: len(before)] == before


@pytest.mark.spec("I1")
def test_an_undone_compaction_stays_undone_and_is_made_again_when_asked(upgrade: Upgrade) -> None:
    wanted = upgrade.expected["conversations"]["undone"]
    with Simulator(window=16_000, script=reply) as sim, upgrade.agent(sim, wanted["id"]) as agent:
        agent.chat("And now?")
        assert all(HANDOFF_FIRST_LINE not in str(m["content"]) for m in sim.requests[-1].body["messages"])
        assert agent.compress().outcome == "compacted"
        assert sim.violations == []


@pytest.mark.spec("I1")
def test_a_branch_and_a_delegated_run_go_on_by_themselves(upgrade: Upgrade) -> None:
    with Simulator(window=16_000, script=reply) as sim:
        for name in ("branch", "delegated"):
            with upgrade.agent(sim, upgrade.id_of(name)) as agent:
                assert agent.chat("Go on.") == "Aye."
        with perdure.open_store(upgrade.database) as store:
            wanted = upgrade.expected["conversations"]["compacted"]
            assert _contents(store.history(wanted["id"])) == _expected_contents(wanted["sessions"][-1])


@pytest.mark.spec("I1")
def test_an_export_is_imported_once_with_all_its_sessions(upgrade: Upgrade, tmp_path: Path) -> None:
    lines = gzip.decompress((upgrade.source / "export.jsonl.gz").read_bytes()).decode().splitlines()
    wanted = upgrade.expected["conversations"]["compacted"]
    with perdure.open_store(tmp_path / "other.db") as store:
        store.transfer.import_jsonl(lines)
        store.transfer.import_jsonl(lines)
        for session in wanted["sessions"]:
            assert _contents(store.history(session["id"])) == _expected_contents(session)
        for output_id, whole in upgrade.expected["outputs"].items():
            assert store.outputs.whole(output_id) == whole


@pytest.mark.spec("L1")
def test_the_config_file_means_what_it_meant_and_former_names_are_pointed_out(upgrade: Upgrade) -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        settings = load(home=upgrade.home, environ={}).settings
    assert {str(w.message).partition(" ")[0] for w in shown if w.category is DeprecatedSetting} == {
        "model.cache_ttl",
        "compression.summary_model",
    }
    assert (settings.model.name, settings.model.provider, settings.model.context_length) == ("main-1", "custom", 16_000)
    assert settings.prompt_caching.cache_ttl == "1h"
    assert settings.auxiliary.compression.model == "small-1"
    assert (settings.compression.threshold, settings.compression.protect_last_n) == (0.6, 4)
    assert [(f.provider, f.model) for f in settings.fallback_providers] == [("groq", "llama-3"), ("custom", "qwen3")]
    assert settings.limits.max_cost_per_day == 2.5
    assert (settings.tools.disabled, settings.tools.plugins) == (("web",), ("harbour",))
    assert settings.gateway.requests_per_minute is None
    assert [(m.model, m.output_price_per_mtok) for m in settings.model_overrides] == [("main-1", 6)]


@pytest.mark.spec("L1")
def test_setting_one_value_leaves_every_other_line_of_the_config_file_alone(upgrade: Upgrade) -> None:
    path = upgrade.home / "config.yaml"
    before = path.read_text().splitlines()
    run = CliRunner().invoke(
        cli, ["config", "set", "compression.threshold", "0.7"], env={"PERDURE_HOME": str(upgrade.home)}
    )
    assert run.exit_code == 0, run.output
    after = path.read_text().splitlines()
    assert [(b, a) for b, a in zip(before, after, strict=True) if a != b] == [
        ("  threshold: 0.6        # later than the default", "  threshold: 0.7        # later than the default")
    ]


def test_prompt_overrides_and_memory_are_in_what_a_model_reads(upgrade: Upgrade) -> None:
    with Simulator(window=16_000, script=reply) as sim, upgrade.agent(sim) as agent:
        for n in range(4):
            agent.chat(f"vessel {n} " + f"moors at pier {n} " * 300)
        system = sim.requests[0].body["messages"][0]["content"]
        assert system.startswith("You are the harbour master's clerk.")
        assert "The pilot's radio channel is 12." in system
        assert "The user is called Maren." in system
        agent.compress("vessel 1")
        prompts = [str(r.body) for r in sim.requests if r.body["model"] == "small-1"]
        assert prompts
        assert all("RULE: write about vessel 1 first" in p for p in prompts)


def test_the_engine_plug_in_is_chosen_by_name_and_compacts(upgrade: Upgrade) -> None:
    env = {"PERDURE_HOME": str(upgrade.home)}
    run = CliRunner().invoke(cli, ["plugins", "use", "last_ten"], env=env)
    assert run.exit_code == 0, run.output
    with Simulator(window=16_000, script=reply) as sim, upgrade.agent(sim, upgrade.id_of("undone")) as agent:
        assert agent.warnings == []
        report = agent.compress()
        assert report.outcome == "compacted"
        agent.chat("Still there?")
        sent = _texts(sim.requests[-1].body["messages"][1:])
        assert sent[0] == "(last_ten left earlier messages out)"
        assert len(sent) == 1 + 10 + 1
        assert sim.violations == []
    for check in conformance.CHECKS:
        check(engines(upgrade.home).load("last_ten"))


def test_the_tool_plug_in_offers_its_tools_and_its_hooks_are_asked(upgrade: Upgrade) -> None:
    calls = (
        Call("tide", {"harbour": "Brest"}),
        Call("tide", {"harbour": "Atlantis"}),
        Call("berths", {"harbour": "Kiel"}),
        Call("write_file", {"path": "a.txt", "content": "x"}),
    )
    with Simulator(window=16_000, script=[Say(calls=calls), "Done."]) as sim, upgrade.agent(sim) as agent:
        results = [m["content"] for m in agent.run_conversation("Look.").messages if m["role"] == "tool"]
        assert agent.warnings == []
    assert results[0] == "high water at Brest in 4 hours (checked)"
    assert "there is no such harbour" in results[1]
    assert results[2] == "Kiel: 7 free berths"
    assert "not on Sundays" in results[3]


def test_a_sealed_handoff_in_plain_messages_is_recognised_with_the_installation_key(
    upgrade: Upgrade, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(upgrade.home))
    messages = upgrade.expected["plain"]["messages"]
    for vessel in range(20, 32):
        messages += [
            {"role": "user", "content": f"vessel {vessel} " * 300},
            {"role": "assistant", "content": "Logged."},
        ]
    report = perdure.compress(messages, context_length=16_000)
    # An unknown handoff would be kept or quoted as foreign text; a known one is replaced by the next.
    openings = [m["content"] for m in report.messages if HANDOFF_FIRST_LINE in str(m["content"])]
    assert report.outcome == "digest"
    assert len(openings) == 1
    assert openings[0].count(HANDOFF_FIRST_LINE) == 1
    assert "vessel 0" in openings[0]


@pytest.mark.spec("K1")
def test_a_gateway_knows_its_tokens_chats_and_clients_and_answers_what_was_left_unanswered(upgrade: Upgrade) -> None:
    served = upgrade.expected["gateway"]
    _as_if_written_today(upgrade.database)
    with (
        Simulator(window=16_000, script=reply) as sim,
        gateway_process(upgrade.home, sim, settings={"model.name": "main-1"}) as gateway,
        httpx.Client(
            base_url=gateway.url, headers={"authorization": f"Bearer {served['token']}"}, timeout=30, trust_env=False
        ) as client,
    ):
        assert client.get(f"/api/messages/{served['answered']['turn_id']}").json() == served["answered"]
        assert _answer(client, served["waiting"]["turn_id"])["text"] == "Aye."
        body = {"content": "And the lighthouse?", "chat": "desk"}
        again = client.post("/api/messages?wait=true", json=body).json()
        assert again["conversation_id"] == served["answered"]["conversation_id"]
        asked = [*served["client_history"], {"role": "user", "content": "And tomorrow?"}]
        client.post("/v1/chat/completions", json={"model": "perdure", "messages": asked}).raise_for_status()
        assert httpx.get(f"{gateway.url}/api/questions", trust_env=False).status_code == 401
    with perdure.open_store(upgrade.database) as store:
        store.rebuild.wait()
        (known,) = [h for h in store.search('"Which flag flies today"') if h.role == "user"]
        assert [m.to_dict()["content"] for m in store.history(known.conversation_id).messages][-2] == "And tomorrow?"


def _answer(client: httpx.Client, turn_id: str) -> dict[str, Any]:
    for _ in range(200):
        answer: dict[str, Any] = client.get(f"/api/messages/{turn_id}").json()
        if answer["state"] == "done":
            return answer
        time.sleep(0.05)
    raise AssertionError("the message was not answered")


def _as_if_written_today(database: Path) -> None:
    """Answers and fingerprints are kept for a while only, and a fixture grows old."""
    now_ms = int(time.time() * 1000)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE fingerprint SET kept_at = ?", (now_ms,))
        connection.execute("UPDATE inbox SET done_at = ? WHERE state = 'done'", (now_ms,))
        connection.execute("UPDATE inbox SET expires_at = 0 WHERE state <> 'done'")


def _texts(messages: list[dict[str, Any]]) -> list[str]:
    """Every text that was sent; requests join neighbours of the same role into parts of one message."""
    contents = [m["content"] for m in messages]
    return [text for c in contents for text in ([c] if isinstance(c, str) else [part["text"] for part in c])]


def _contents(history: Any) -> list[Any]:
    return [e.message.to_dict() for e in history.entries]


def _expected_contents(session: dict[str, Any]) -> list[Any]:
    return [message for _, message in session["messages"]]
