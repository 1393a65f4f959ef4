"""`perdure plugins`: M3, and the refusals of M2."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.terminal import CTRL_C, perdure, perdure_in_terminal

ENGINE = """\
from perdure import ContextEngine

class Engine(ContextEngine):
    def update_from_response(self, usage): pass
    def should_compress(self, prompt_tokens=None): return False
    def compress(self, messages, *, focus_topic=None, reason="threshold"): return [e.message for e in messages]

plugin = Engine
"""


def write_engine(home: Path, name: str, code: str = ENGINE) -> Path:
    folder = home / "plugins" / "context_engine" / name
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(code)
    return folder


@pytest.mark.spec("M2", "M3")
def test_list_says_what_there_is_where_it_is_and_what_is_active(tmp_path: Path) -> None:
    place = write_engine(tmp_path, "mine", "raise RuntimeError('listing must not run me')")
    shadow = write_engine(tmp_path, "compressor")
    lines = perdure(tmp_path, "plugins", "list").out.splitlines()
    assert lines[0].split()[:3] == ["*", "compressor", "built-in"]
    assert lines[1].split()[:2] == ["windows", "built-in"]
    assert lines[2].endswith(f"{shadow}  (ignored: the name 'compressor' always means the built-in)")
    assert lines[3].split() == ["mine", "folder", str(place)]


@pytest.mark.spec("M2", "M3")
def test_use_writes_the_choice_and_list_shows_it(tmp_path: Path) -> None:
    write_engine(tmp_path, "mine")
    assert perdure(tmp_path, "plugins", "use", "mine").out == "context.engine = mine\n"
    assert (tmp_path / "config.yaml").read_text() == "context:\n  engine: mine\n"
    assert "* mine" in perdure(tmp_path, "plugins", "list").out
    assert perdure(tmp_path, "plugins", "use", "compressor").status == 0


@pytest.mark.spec("M2")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "mnie",
            "context engine 'mnie' not found (did you mean 'mine'?); installed: compressor, windows, bad, mine",
        ),
        ("bad", "is broken: ZeroDivisionError"),
        ("odd", "is broken: dict is no ContextEngine"),
    ],
)
def test_use_refuses_what_is_unknown_or_broken(name: str, said: str, tmp_path: Path) -> None:
    write_engine(tmp_path, "mine")
    write_engine(tmp_path, "bad", "1 / 0")
    write_engine(tmp_path, "odd", "plugin = dict")
    run = perdure(tmp_path, "plugins", "use", name)
    assert run.status == 1
    assert said in run.err
    assert len(run.err.splitlines()) == 1
    assert not (tmp_path / "config.yaml").exists()


@pytest.mark.spec("M2")
def test_an_engine_that_is_gone_does_not_lock_anyone_out(tmp_path: Path) -> None:
    perdure(tmp_path, "config", "set", "context.engine", "gone")
    run = perdure(tmp_path, "plugins", "list")
    assert run.status == 0
    assert run.err == "perdure: context.engine is 'gone', which is not there; 'compressor' is used instead\n"


@pytest.mark.spec("M3")
def test_bare_it_lists_and_in_a_terminal_it_asks(tmp_path: Path) -> None:
    write_engine(tmp_path, "mine")
    assert perdure(tmp_path, "plugins").out == perdure(tmp_path, "plugins", "list").out
    prompt = "Use which engine (compressor, windows, mine) [compressor]: "
    run = perdure_in_terminal(tmp_path, "plugins", typed="mine\n", prompt=prompt)
    assert run.status == 0
    assert "context.engine = mine\n" in run.out
    kept = perdure_in_terminal(tmp_path, "plugins", typed="\n", prompt="[mine]: ")
    assert kept.status == 0
    assert "context.engine" not in kept.out


def test_ctrl_c_ends_with_130_and_changes_nothing(tmp_path: Path) -> None:
    run = perdure_in_terminal(tmp_path, "plugins", typed=CTRL_C, prompt="]: ")
    assert run.status == 130
    assert "perdure: interrupted" in run.out
    assert not (tmp_path / "config.yaml").exists()
