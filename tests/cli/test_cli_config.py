"""`perdure config`, used as a person uses it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.cli.editor import edit_file
from perdure.core.errors import ConfigError
from perdure.testing.simulator import Simulator
from support.terminal import perdure


def test_set_get_list_unset(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert perdure(home, "config", "get", "compression.threshold").out == "0.5\n"
    assert perdure(home, "config", "list", "--changed").out == "everything is at its default\n"
    assert perdure(home, "config", "set", "compression.threshold", ".60").out == "compression.threshold = 0.6\n"
    assert perdure(home, "config", "get", "compression.threshold").out == "0.6\n"
    assert perdure(home, "config", "list", "--changed").out == (
        f"compression.threshold  0.6           from {home}/config.yaml, line 2\n"
    )
    assert perdure(home, "config", "unset", "compression.threshold").out == "compression.threshold = 0.5, the default\n"
    assert "was not in config.yaml" in perdure(home, "config", "unset", "compression.threshold").out


def test_a_wrong_value_is_one_plain_line_and_status_1(tmp_path: Path) -> None:
    run = perdure(tmp_path, "config", "set", "compression.threshold", "1.5")
    assert (run.status, run.out) == (1, "")
    why = "is not allowed: a share: a number above 0, at most 1 (from the command line)"
    assert run.err == f"perdure: compression.threshold = 1.5 {why}\n"
    negative = perdure(tmp_path, "config", "set", "compression.protect_last_n", "-1")
    assert negative.err.startswith("perdure: compression.protect_last_n = -1 is not allowed")
    unknown = perdure(tmp_path, "config", "get", "compression.treshold")
    assert unknown.status == 1
    assert "did you mean 'compression.threshold'?" in unknown.err


def test_a_threshold_in_tokens_is_refused_with_the_share_that_is_meant(tmp_path: Path) -> None:
    with Simulator(models=("m-1",), window=16_000) as sim:
        perdure(tmp_path, "config", "set", "model.base_url", sim.base_url)
        perdure(tmp_path, "config", "set", "model.name", "m-1")
        meant = perdure(tmp_path, "config", "set", "compression.threshold", "4000")
        more = perdure(tmp_path, "config", "set", "compression.threshold", "40_000")
    assert meant.status == 1
    assert "4,000 tokens are 0.25 of the window, which has 16,000: `" in meant.err
    assert meant.err.endswith(" config set compression.threshold 0.25`\n")
    assert more.err.endswith("The window has 16,000 tokens; 0.25 of it is 4,000\n")


def test_an_entry_of_a_list_cannot_be_set_alone_and_a_price_has_a_command(tmp_path: Path) -> None:
    refused = perdure(tmp_path, "config", "set", "model_overrides.work-small.price", "1").err
    assert "model_overrides is a list; each item: a mapping with `model`, and any of `provider`, `context_" in refused
    assert "models price NAME IN OUT`" in refused
    assert "did you mean" not in refused


def test_a_broken_file_is_told_by_every_reader_and_can_still_be_mended(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("compression:\n  threshold: 9\n  enabled: perhaps\n")
    for command in (["config", "list"], ["config", "get", "model.name"], ["plugins", "list"]):
        run = perdure(tmp_path, *command)
        assert run.status == 1
        assert [line.startswith("perdure: compression.") for line in run.err.splitlines()] == [True, True]
    assert perdure(tmp_path, "config", "path").out == f"{path}\n"
    mended = perdure(tmp_path, "config", "set", "compression.threshold", "0.9")
    assert mended.status == 0
    assert mended.err.startswith("perdure: still wrong: compression.enabled = 'perhaps'")


def test_a_flag_wins_for_one_run_and_a_variable_over_the_file(tmp_path: Path) -> None:
    variable = {"PERDURE_AGENT__MAX_TURNS": "7"}
    run = perdure(tmp_path, "config", "set", "agent.max_turns", "5", **variable)
    assert run.err == "perdure: the variable PERDURE_AGENT__MAX_TURNS is set and wins over the file\n"
    assert perdure(tmp_path, "config", "get", "agent.max_turns").out == "5\n"
    assert perdure(tmp_path, "config", "get", "agent.max_turns", **variable).out == "7\n"
    assert perdure(tmp_path, "--set", "agent.max_turns=9", "config", "get", "agent.max_turns", **variable).out == "9\n"


def test_a_section_and_lists_can_be_read(tmp_path: Path) -> None:
    perdure(tmp_path, "config", "set", "fallback_providers", "groq/llama, openrouter")
    assert perdure(tmp_path, "config", "get", "fallback_providers").out == '["groq/llama", "openrouter"]\n'
    assert "prompt_caching.cache_ttl = 5m\n" in perdure(tmp_path, "config", "get", "prompt_caching").out
    listed = perdure(tmp_path, "config", "list", "store").out
    assert [line.split()[0] for line in listed.splitlines()] == ["store.path", "store.url"]


def test_a_password_is_masked_in_lists_and_given_when_asked_for_by_name(tmp_path: Path) -> None:
    url = "postgresql://me:hunter2@db/perdure"
    assert "hunter2" not in perdure(tmp_path, "config", "set", "store.url", url).out
    assert "hunter2" not in perdure(tmp_path, "config", "list").out
    assert perdure(tmp_path, "config", "get", "store.url").out == f"{url}\n"


def test_edit_starts_from_an_explained_file_and_checks_what_came_of_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    fine = perdure(home, "config", "edit", EDITOR="true")
    assert (fine.status, fine.out) == (0, f"{home}/config.yaml is fine\n")
    assert "#  threshold: 0.5\n" in (home / "config.yaml").read_text()
    assert (home / "config.yaml").stat().st_mode & 0o777 == 0o600
    wrong = perdure(home, "config", "edit", VISUAL="sed -i s/^#model:/modl:/", EDITOR="false")
    assert wrong.status == 1
    assert "unknown setting 'modl' (did you mean 'model'?)" in wrong.err


@pytest.mark.parametrize(
    ("editor", "said"),
    [("false", "ended with status 1"), ("no-such-editor --wait", "cannot start"), ("'", "cannot start")],
)
def test_an_editor_that_does_not_work_is_told(editor: str, said: str, tmp_path: Path) -> None:
    run = perdure(tmp_path, "config", "edit", EDITOR=editor)
    assert run.status == 1
    assert said in run.err
    assert "Traceback" not in run.err


def test_without_any_editor_it_says_what_to_do(tmp_path: Path) -> None:
    run = perdure(tmp_path, "config", "edit", PATH="/nowhere")
    assert run.status == 1
    assert run.err == f"perdure: no editor found; set EDITOR to one, or open {tmp_path}/config.yaml yourself\n"
    with pytest.raises(ConfigError, match="cannot start the editor 'nope'"):
        edit_file(tmp_path / "config.yaml", {"EDITOR": "nope"})


def test_a_home_that_cannot_be_made_is_one_plain_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run = perdure(tmp_path / "file" / "home", "config", "set", "model.name", "x")
    assert run.status == 1
    assert run.err.startswith("perdure: cannot ")
    assert len(run.err.splitlines()) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_home_can_be_read_and_says_that_nothing_was_changed(tmp_path: Path) -> None:
    perdure(tmp_path, "config", "set", "model.name", "x")
    tmp_path.chmod(0o500)
    try:
        run = perdure(tmp_path, "config", "set", "model.name", "y")
        assert run.err == f"perdure: cannot write {tmp_path}/config.yaml: Permission denied; nothing was changed\n"
        assert perdure(tmp_path, "config", "get", "model.name").out == "x\n"
    finally:
        tmp_path.chmod(0o700)


def test_a_setting_by_its_old_name_is_one_line_on_stderr_and_works(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("model:\n  cache_ttl: 1h\n")
    command = [sys.executable, "-m", "perdure", "config", "get", "prompt_caching.cache_ttl"]
    environ = {**os.environ, "PERDURE_HOME": str(tmp_path)}
    run = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert run.stdout == "1h\n"
    assert run.stderr == (
        "perdure: model.cache_ttl is now called prompt_caching.cache_ttl; it still works, but write the new name "
        f"(from {tmp_path}/config.yaml, line 2)\n"
    )


@pytest.mark.filterwarnings("ignore::perdure.config.deprecated.DeprecatedSetting")
def test_a_setting_can_be_written_and_taken_out_by_its_old_name(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("model:\n  cache_ttl: 1h\n")
    assert perdure(tmp_path, "config", "unset", "model.cache_ttl").status == 0
    assert perdure(tmp_path, "config", "get", "prompt_caching.cache_ttl").out == "5m\n"
    written = perdure(tmp_path, "config", "set", "compression.summary_model", "small")
    assert written.out == "auxiliary.compression.model = small\n"
    assert perdure(tmp_path, "config", "get", "auxiliary.compression.model").out == "small\n"


def test_a_provider_nobody_knows_is_refused_unless_it_has_an_address(tmp_path: Path) -> None:
    for key in ("model.provider", "auxiliary.compression.provider"):
        refused = perdure(tmp_path, "config", "set", key, "nonsense")
        assert (refused.status, refused.out) == (1, "")
        assert "provider 'nonsense' is not known and has no base_url; known: anthropic, openai," in refused.err
        assert perdure(tmp_path, "config", "set", key, "nous").status == 0
    perdure(tmp_path, "config", "set", "model.base_url", "http://127.0.0.1:9/v1")
    own = perdure(tmp_path, "config", "set", "model.provider", "house")
    assert (own.status, own.err) == (0, "")
    mistyped = perdure(tmp_path, "config", "set", "model.provider", "antropic")
    assert (mistyped.status, mistyped.out) == (0, "model.provider = antropic\n")
    assert "'antropic' is not a known provider; did you mean 'anthropic'?" in mistyped.err
    assert perdure(tmp_path, "config", "set", "auxiliary.compression.provider", "auto").status == 0


def test_a_provider_beside_the_address_of_another_server_is_reported(tmp_path: Path) -> None:
    address = "http://10.0.0.5:8000/v1"
    assert perdure(tmp_path, "config", "set", "model.base_url", address).err == ""
    assert perdure(tmp_path, "config", "set", "model.provider", "vllm").err == ""  # has no key of its own
    reported = perdure(tmp_path, "config", "set", "model.provider", "openai")
    assert (reported.status, reported.out) == (0, "model.provider = openai\n")
    assert f"model.base_url is {address}: openai is called there, and its key is sent there." in reported.err
    assert "config unset model.base_url` calls openai at its own address" in reported.err
    assert "its key is sent there" in perdure(tmp_path, "config", "set", "model.base_url", "http://10.0.0.6/v1").err
    assert perdure(tmp_path, "config", "set", "model.base_url", "https://api.openai.com/v1").err == ""


@pytest.mark.parametrize(
    ("key", "value", "warning"),
    [
        (
            "tools.disabled",
            "termnal",
            "no tool or toolset 'termnal', so nothing was disabled; did you mean",
        ),
        ("tools.pinned", "fils", "no tool or toolset 'fils', so nothing was pinned; did you mean 'files'?"),
        ("tools.plugins", "wether", "tool plug-in 'wether' not found"),
        (
            "permissions.deny",
            "termnal(rm *)",
            "no tool is called 'termnal' (termnal(rm *), your settings)",
        ),
        ("context.engine", "window", "context engine 'window' not found"),
    ],
)
def test_a_name_that_nothing_has_is_reported_where_it_is_set_and_by_doctor(
    tmp_path: Path, key: str, value: str, warning: str
) -> None:
    run = perdure(tmp_path, "config", "set", key, value)
    assert (run.status, run.out.startswith(f"{key} = ")) == (0, True)
    assert warning in " ".join(run.err.split())
    assert not (tmp_path / "perdure.db").exists()
    assert warning in perdure(tmp_path, "doctor", "--offline").out


def test_names_of_known_tools_and_of_mcp_servers_are_not_reported(tmp_path: Path) -> None:
    server = "mcp_servers:\n  - {name: hub, command: /nonexistent}\n"
    (tmp_path / "config.yaml").write_text(server, encoding="utf-8")
    for key in ("tools.disabled", "tools.pinned"):
        assert perdure(tmp_path, "config", "set", key, "web,clarify,lcm_grep,mcp:hub,hub__merge").err == ""
    assert perdure(tmp_path, "config", "set", "permissions.deny", "hub__merge,read_file(*.env)").err == ""


@pytest.mark.parametrize("key", ["fallback_providers", "auxiliary.compression.fallback"])
def test_a_fallback_to_an_unknown_provider_is_refused(tmp_path: Path, key: str) -> None:
    refused = perdure(tmp_path, "config", "set", key, "groq,opnrouter/z-ai/glm-4.6")
    assert (refused.status, refused.out) == (1, "")
    assert "provider 'opnrouter' is not known and has no base_url (did you mean 'openrouter'?)" in refused.err
    assert perdure(tmp_path, "config", "set", key, "groq,openrouter/z-ai/glm-4.6").status == 0


def test_doctor_reports_a_side_job_without_a_usable_provider(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("auxiliary: {compression: {fallback: [grq]}}\n", encoding="utf-8")
    report = perdure(tmp_path, "doctor", "--offline").out
    assert (
        "auxiliary.compression.fallback: provider 'grq' is not known and has no base_url (did you mean 'groq'?)"
        in report
    )
