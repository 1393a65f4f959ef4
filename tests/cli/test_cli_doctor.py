"""`perdure doctor`, `perdure completion` and one question: what works, what does not, and exit codes for scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.cli import doctor
from perdure.config.api_keys import FILE, StoredKeys, origin_of
from perdure.core.messages import assistant, user
from perdure.providers.discovery import ServerPort, local_servers
from perdure.store import open_store
from perdure.testing.simulator import Simulator
from support.terminal import perdure, perdure_process

KEY = "sk-secret-0123456789abcdef"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def pointing(sim: Simulator, provider: str = "openai") -> tuple[str, ...]:
    settings = (f"model.base_url={sim.base_url}", f"model.provider={provider}", "model.name=m-1")
    return tuple(part for setting in settings for part in ("--set", setting))


def test_an_empty_home_is_healthy_or_says_what_to_install(home: Path) -> None:
    done = perdure(home, "doctor", OPENAI_API_KEY="", ANTHROPIC_API_KEY="")
    for name in ("config", "home", "keys", "embedded", "database", "model", "endpoint", "window", "servers"):
        assert f"  {name}" in done.out
    assert done.status == (1 if "BROKEN" in done.out else 0)


def test_a_stored_key_of_a_server_that_nothing_uses_is_noted(home: Path) -> None:
    home.mkdir()
    StoredKeys(home, open_keyring=lambda: None).put("http://127.0.0.1:18089", KEY)
    assert "nothing uses the key for http://127.0.0.1:18089\n" in perdure(home, "doctor", "--offline").out
    for setting in (
        "model.base_url=http://127.0.0.1:18089/v1",
        "auxiliary.compression.base_url=http://127.0.0.1:18089",
    ):
        assert "nothing uses" not in perdure(home, "--set", setting, "doctor", "--offline").out


def test_a_long_path_begins_below_the_name_and_stays_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "columns", lambda: 60)
    lines = perdure(tmp_path / ("a" * 45), "doctor", "--offline").out.splitlines()
    home = next(n for n, line in enumerate(lines) if line.endswith("  home"))
    assert lines[home + 1] == f"    {tmp_path / ('a' * 45)}"
    assert any(line.startswith("ok      messages    0 checked") for line in lines)


def test_damaged_messages_are_found_named_and_the_rest_is_shown(home: Path) -> None:
    home.mkdir()
    with open_store(home / "perdure.db") as store:
        session = store.create(title="bills")
        for n in range(10):
            store.append(session.id, [user(f"pay 100{n} euros"), assistant("Paid.")])
    assert "20 checked, none damaged" in perdure(home, "doctor", "--offline").out
    verified = perdure(home, "sessions", "verify")
    assert (verified.status, verified.out) == (0, "20 messages: no damage found\n")

    path = home / "perdure.db"
    path.write_bytes(
        path.read_bytes().replace(b"pay 1003", b"pay 9003").replace(b'pay 1005 euros"', b"pay 1005 euros\xff")
    )
    owner = session.conversation_id
    changed, unreadable = f"{owner} m:7 differs from what was stored", f"{owner} m:11 is damaged and cannot be read"
    checked = perdure(home, "doctor", "--offline")
    assert (checked.status, f"2 damaged, of 20 checked; the first: {changed}" in checked.out) == (1, True)
    for ids in ((), (owner,)):
        verified = perdure(home, "sessions", "verify", *ids)
        assert verified.status == 1
        assert changed in verified.out
        assert unreadable in verified.out
        assert len(verified.out.splitlines()) == 2
    shown = perdure(home, "sessions", "show", owner)
    assert shown.status == 0
    assert "pay 1004 euros" in shown.out
    assert "[Message m:11 is damaged in the database and cannot be read.]" in shown.out
    assert changed in shown.err
    assert "backup" in shown.err


def test_the_window_says_who_told_it_and_a_model_that_is_not_there_is_broken(home: Path) -> None:
    assert "8,192 tokens (as it is started here)" in perdure(home, "doctor").out
    assert "4,096 tokens (from your settings)" in perdure(home, "--set", "model.context_length=4096", "doctor").out
    with Simulator() as sim:
        assert "tokens (assumed: nobody says how large it is)" in perdure(home, *pointing(sim, "custom"), "doctor").out
    missing = perdure(home, "--set", "model.name=nowhere.gguf", "doctor")
    assert missing.status == 1
    assert "BROKEN  endpoint    no model file at nowhere.gguf" in missing.out


def test_a_good_and_a_refused_key_are_told_apart_and_never_printed(home: Path) -> None:
    with Simulator(api_key=KEY) as sim:
        good = perdure(home, *pointing(sim), "doctor", OPENAI_API_KEY=KEY)
        bad = perdure(home, *pointing(sim), "doctor", OPENAI_API_KEY="sk-wrong-0123456789")
    assert (good.status, bad.status) == (0, 1)
    assert "answers" in good.out
    assert "refuses the key (401)" in bad.out
    assert KEY not in good.out + good.err
    assert "sk-wrong" not in bad.out + bad.err


def test_a_refused_custom_address_says_how_to_store_its_key_and_where_it_is_then(home: Path) -> None:
    with Simulator(script=["Welcome."], api_key=KEY) as sim:
        custom = pointing(sim, "custom")
        login = f"login {sim.base_url}"
        refused = perdure(home, *custom, "chat", "-q", "hello")
        assert (refused.status, login in refused.err) == (1, True), refused.err
        assert login in perdure(home, *custom, "doctor").out
        StoredKeys(home, open_keyring=lambda: None).put(origin_of(sim.base_url) or "", KEY)
        healthy = perdure(home, *custom, "doctor", OPENAI_API_KEY="sk-other-0123456789")
        assert "OPENAI_API_KEY (environment)" in healthy.out
        assert f"{origin_of(sim.base_url)} ({home / FILE})" in healthy.out
        assert "Welcome." in perdure(home, *custom, "chat", "-q", "hello").out


def test_a_missing_key_a_dead_server_and_a_broken_config_are_broken(home: Path) -> None:
    no_key = perdure(home, "--set", "model.provider=anthropic", "doctor", ANTHROPIC_API_KEY="")
    assert (no_key.status, "set ANTHROPIC_API_KEY" in no_key.out) == (1, True)
    where = ("--set", "model.base_url=http://127.0.0.1:9/v1", "--set", "model.name=m")
    dead = perdure(home, *where, "doctor")
    assert (dead.status, "cannot be reached" in dead.out) == (1, True)
    assert perdure(home, *where, "doctor", "--offline").status == 0
    (home / "config.yaml").write_text("compression:\n  threshold: 7\n", encoding="utf-8")
    broken = perdure(home, "doctor")
    assert (broken.status, "compression.threshold" in broken.out) == (1, True)


def test_a_broken_database_is_said_to_be(home: Path) -> None:
    home.mkdir()
    (home / "perdure.db").write_bytes(b"this is no database, but long enough to be read as one" * 40)
    done = perdure(home, "doctor", "--offline")
    assert (done.status, "BROKEN  database" in done.out) == (1, True)


def test_servers_on_this_machine_are_found() -> None:
    with Simulator(models=("m-1", "m-2")) as sim:
        port = int(sim.base_url.rsplit(":", 1)[1].split("/")[0])
        (found,) = local_servers((ServerPort("Some server", port, "vllm"), ServerPort("Nobody", 9, "ollama")))
    assert found.models[:2] == ("m-1", "m-2")
    assert found.base_url == f"http://127.0.0.1:{port}/v1"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_command(home: Path, shell: str) -> None:
    done = perdure(home, "completion", shell)
    assert (done.status, "_PERDURE_COMPLETE" in done.out) == (0, True)
    assert perdure(home, "completion", "tcsh").status == 2


def test_a_shell_completes_commands_without_importing_them_all(home: Path) -> None:
    told = {"_PERDURE_COMPLETE": "bash_complete", "COMP_WORDS": "perdure ses", "COMP_CWORD": "1"}
    assert perdure_process(home, **told).out == "plain,sessions\n"


def test_one_question_prints_the_answer_alone_and_names_the_conversation(home: Path) -> None:
    with Simulator(script=["Forty-two."]) as sim:
        done = perdure(home, *pointing(sim, "custom"), "chat", "-q", "what is the answer?")
    assert (done.status, done.out) == (0, "Forty-two.\n")
    assert "what is the answer?" in perdure(home, "sessions", "list").out


def test_json_prints_every_event_and_piped_text_goes_along(home: Path) -> None:
    with Simulator(script=["Yes."]) as sim:
        done = perdure(home, *pointing(sim, "custom"), "chat", "-q", "is it so?", "--json")
        events = [json.loads(line) for line in done.out.splitlines()]
    assert [events[0]["event"], events[-1]["event"]] == ["TurnStarted", "TurnFinished"]
    assert events[-1]["final_response"] == "Yes."


def test_a_question_without_a_key_is_refused_before_it_is_stored(home: Path) -> None:
    keyless = ("--set", "model.provider=anthropic")
    done = perdure(home, *keyless, "chat", "-q", "hello", ANTHROPIC_API_KEY="")
    assert (done.status, done.out) == (1, "")
    assert "set ANTHROPIC_API_KEY" in done.err
    assert "Nothing was stored." in done.err
    (event,) = perdure(home, *keyless, "chat", "-q", "hello", "--json", ANTHROPIC_API_KEY="").out.splitlines()
    assert (json.loads(event)["event"], json.loads(event)["error_kind"]) == ("TurnFinished", "auth")
    assert "hello" not in perdure(home, "sessions", "list").out


def test_a_question_to_an_unreachable_server_is_stored_for_another_try(home: Path) -> None:
    where = ("--set", "model.base_url=http://127.0.0.1:9/v1", "--set", "model.name=m")
    assert perdure(home, *where, "--set", "timeouts.connect_s=1", "chat", "-q", "read it all").status == 1
    assert "read it all" in perdure(home, "sessions", "list").out


def test_a_fallback_with_a_key_answers_where_the_main_key_is_missing(home: Path) -> None:
    with Simulator(script=["From the second."]) as sim:
        home.mkdir()
        fallback = f"{{provider: custom, model: m-1, base_url: '{sim.base_url}'}}"
        (home / "config.yaml").write_text(f"model: {{provider: anthropic}}\nfallback_providers: [{fallback}]\n")
        done = perdure(home, "chat", "-q", "hello", ANTHROPIC_API_KEY="")
    assert done.out == "From the second.\n"


def test_exit_codes_of_one_question(home: Path) -> None:
    with Simulator(script=["hi"], api_key=KEY) as sim:
        refused = perdure(home, *pointing(sim), "chat", "-q", "hello", OPENAI_API_KEY="sk-wrong-0123456789")
    assert (refused.status, refused.out) == (1, "")
    assert "the key was refused" in refused.err
    assert perdure(home, "chat", "-q", " ").status == 2
    assert perdure(home, "chat", "-q", "/nonsense").status == 1
    helped = perdure(home, "chat", "-q", "/help")
    assert (helped.status, "/compress" in helped.out) == (0, True)


def test_an_address_from_the_environment_is_called_and_named(home: Path) -> None:
    variables = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": ""}
    with Simulator(models=("gpt-5.5",)) as sim:
        variables["OPENAI_BASE_URL"] = sim.base_url
        fine = perdure(home, "doctor", **variables)
        answered = perdure(home, "-q", "hello", **variables)
        assert answered.status == 0
        assert sim.requests
    assert f"at {sim.base_url} (OPENAI_BASE_URL)" in fine.out
    assert f"{sim.base_url} answers" in fine.out
    gone = perdure(home, "doctor", **variables)
    assert gone.status == 1
    assert "check the variable OPENAI_BASE_URL" in gone.out


def test_every_check_is_a_line_of_json_for_scripts(home: Path) -> None:
    done = perdure(home, "doctor", "--offline", "--json", OPENAI_API_KEY="", ANTHROPIC_API_KEY="")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert {"config", "home", "keys", "database"} <= {check["name"] for check in found}
    assert all(check["state"] in ("ok", "note", "broken") for check in found)
    assert done.status == (1 if any(check["state"] == "broken" for check in found) else 0)
