"""One question from a script: what is piped in stays text, and a terminal is not steered by an answer."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from perdure.cli.chat.command import _model_settings
from perdure.cli.chat.one_shot import ask_once
from perdure.config.load import load
from perdure.providers.registry import is_endpoint_of
from perdure.testing.simulator import Call, Fail, Say, Simulator
from support.forked import fork

STEERING = "\x1b[31mred\x1b[0m \x1b]8;;http://x\x07link\x1b[6n \x9b5n \u202egnp.exe\b done"


def _run(
    folder: Path, *arguments: str, piped: str = "", stdout: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "PERDURE_HOME": str(folder / "home"), "LANG": "C.UTF-8"}
    process = fork(
        ["-m", "perdure", *arguments],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=environ,
    )
    assert process.stdin is not None
    process.stdin.write(piped)
    out, errors = process.communicate(60)
    return subprocess.CompletedProcess(process.args, process.wait(), out, errors)


def _ask(folder: Path, sim: Simulator, *arguments: str, piped: str = "", stdout: int = subprocess.PIPE) -> str:
    options = ("--set", f"model.base_url={sim.base_url}", "--set", "model.name=m-1")
    run = _run(folder, *options, "chat", *arguments, piped=piped, stdout=stdout)
    assert run.returncode == 0, run.stderr
    return str(run.stdout + run.stderr)


def test_a_path_in_piped_text_attaches_nothing(tmp_path: Path) -> None:
    (tmp_path / "secret.env").write_text("TOPSECRET=42", encoding="utf-8")
    (tmp_path / "notes.md").write_text("MY NOTES", encoding="utf-8")
    piped = 'a bug report\nlook at @secret.env\n@app.route("/x")\n'
    with Simulator(script=["Fine.", "Fine."]) as sim:
        output = _ask(tmp_path, sim, "-q", "review @notes.md", piped=piped)
        assert "attached notes.md" in output
        assert "secret.env" not in output
        assert "there is no" not in output
        _ask(tmp_path, sim, piped=piped)
        sent = [str(request.body) for request in sim.requests]
    assert not any("TOPSECRET" in body for body in sent)
    assert "MY NOTES" in sent[0]
    assert all("look at @secret.env" in body for body in sent)


def test_a_piped_question_needs_no_chat_before_it(tmp_path: Path) -> None:
    with Simulator(script=["Blue."]) as sim:
        options = ("--set", f"model.base_url={sim.base_url}", "--set", "model.name=m-1")
        run = _run(tmp_path, *options, piped="name one colour\n")
        assert (run.returncode, run.stdout) == (0, "Blue.\n"), run.stderr
        assert "name one colour" in str(sim.requests[-1].body)


def test_an_answer_cannot_steer_a_terminal_and_a_pipe_gets_it_as_it_is(tmp_path: Path) -> None:
    with Simulator(script=[STEERING, STEERING]) as sim:
        assert _ask(tmp_path, sim, "-q", "hi").startswith(STEERING)
        ours, theirs = pty.openpty()
        _ask(tmp_path, sim, "-q", "hi", stdout=theirs)
        os.close(theirs)
        shown = os.read(ours, 10_000).decode()
        os.close(ours)
    assert shown.startswith("[31mred[0m ]8;;http://xlink[6n 5n gnp.exe done")
    assert not any(c in shown for c in "\x1b\x9b\x07\b\u202e")


def test_an_answer_is_wrapped_between_words_in_a_terminal_only(tmp_path: Path) -> None:
    prose, code = "- " + "wonderful " * 12, "echo " + "unbroken " * 12
    answer = f"{prose.rstrip()}\n\n```sh\n{code.rstrip()}\n```\n{prose.rstrip()}"
    with Simulator(script=[answer, answer]) as sim:
        assert _ask(tmp_path, sim, "-q", "hi").startswith(answer)
        ours, theirs = pty.openpty()
        _ask(tmp_path, sim, "-q", "hi", stdout=theirs)
        os.close(theirs)
        lines = os.read(ours, 10_000).decode().replace("\r\n", "\n").split("\n")
        os.close(ours)
    wrapped = ["- " + " ".join(["wonderful"] * 7), "  " + " ".join(["wonderful"] * 5)]
    assert lines == [*wrapped, "", "```sh", code.rstrip(), "```", *wrapped, ""]


def test_a_model_that_is_not_there_is_named_by_the_option_that_chose_it(tmp_path: Path) -> None:
    with Simulator(script=[Fail("openai_no_model")] * 3) as sim:
        run = _run(tmp_path, "--set", f"model.base_url={sim.base_url}", "-m", "m-9", "-q", "hi")
    assert run.returncode == 1
    assert "/model." not in run.stderr
    assert "`model.name`, or -m" in run.stderr
    assert "Choose another model with -m NAME" in run.stderr
    assert "refused again" not in run.stderr


def test_a_call_that_nobody_could_approve_is_named_with_what_allows_it(tmp_path: Path) -> None:
    removes = Say(calls=(Call("terminal", {"command": "rm -rf ./scratch"}),))
    with Simulator(script=[removes, "I may not."] * 2) as sim:
        options = ["--set", f"model.base_url={sim.base_url}", "-m", "m-1", "-q", "clean up"]
        for extra, is_said in ((), True), (("--mode", "plan"), False):
            run = _run(tmp_path, *options, *extra)
            assert (run.returncode, run.stdout) == (0, "I may not.\n")
            assert ("refused, because -q asks nobody: terminal rm -rf ./scratch." in run.stderr) is is_said
            assert ("by a rule of permissions.allow: terminal(rm -rf ./scratch)" in run.stderr) is is_said
            assert ("--resume last` goes on as a chat, which asks" in run.stderr) is is_said


def test_a_refused_call_of_a_command_of_ones_own_is_named_too(tmp_path: Path) -> None:
    commands = tmp_path / "home" / "commands"
    commands.mkdir(parents=True)
    (commands / "tidy.md").write_text("Remove ./scratch.\n")
    removes = Say(calls=(Call("terminal", {"command": "rm -rf ./scratch"}),))
    with Simulator(script=[removes, "I may not."]) as sim:
        assert "refused, because -q asks nobody: terminal rm" in _ask(tmp_path, sim, "-q", "/tidy")


def test_the_events_end_where_nothing_answers_by_the_name_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    flags = {"model.provider": "local", "model.name": "smolm-typo"}
    assert ask_once(flags, "hi", as_json=True) == 1
    printed = capsys.readouterr()
    assert "Nothing was stored." in printed.err
    (end,) = map(json.loads, printed.out.splitlines())
    assert (end["event"], end["outcome"]) == ("TurnFinished", "failed")
    assert "smolm-typo" in end["error"]


def test_an_option_without_its_question_points_to_the_pipe(tmp_path: Path) -> None:
    run = _run(tmp_path, "-q", piped="hi")
    assert run.returncode == 2
    assert "Option '-q' requires an argument. Or pipe the question in, without -q." in run.stderr


def test_the_embedded_model_is_named_as_in_the_chat() -> None:
    assert _model_settings("local/smollm2", None) == {"model.name": "smollm2", "model.provider": "local"}
    assert _model_settings("meta/llama", None) == {"model.name": "meta/llama"}
    at_a_server = {"model.provider": "custom", "model.base_url": "http://10.0.0.5:8000/v1", "model.name": "org/m"}
    assert _model_settings("http://10.0.0.5:8000/v1/org/m", None) == at_a_server
    assert _model_settings("local/x", "custom") == {"model.name": "local/x", "model.provider": "custom"}


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ({"base_url": "http://127.0.0.1:9102", "name": "corp-large"}, None),
        ({"provider": "anthropic", "name": "claude-x"}, None),
        ({"name": "~/mine.gguf"}, "~/mine.gguf"),
        ({"provider": "local", "name": "smollm2"}, "smollm2"),
    ],
)
def test_the_embedded_provider_does_not_take_another_ones_model(
    tmp_path: Path, model: dict[str, str], name: str | None
) -> None:
    (tmp_path / "config.yaml").write_text(json.dumps({"model": model}))
    loaded = load(environ={}, home=tmp_path, flags={"model.provider": "local"}, is_endpoint_of=is_endpoint_of)
    assert (loaded.settings.model.provider, loaded.settings.model.name) == ("local", name)


def test_events_that_nobody_reads_any_more_end_the_question_quietly(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PERDURE_HOME": str(tmp_path / "home")}
    with Simulator(script=[Say("endless words " * 2_000, chunk_delay_s=0.02)]) as sim:
        options = ("--set", f"model.base_url={sim.base_url}", "--set", "model.name=m-1")
        asking = fork(
            ["-m", "perdure", *options, "chat", "-q", "hi", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environ,
            cwd=tmp_path,
        )
        try:
            assert asking.stdout is not None
            assert asking.stderr is not None
            assert asking.stdout.readline().startswith("{")
            asking.stdout.close()
            errors = asking.stderr.read()
            assert asking.wait(60) == 141
        finally:
            asking.kill()
            asking.wait()
    assert errors == ""
