"""`!command`, /copy, /export, /edit, pasted images and the pager."""

from __future__ import annotations

import base64
import json
import os
import shutil
import stat
import threading
import time
from pathlib import Path

import pytest

from perdure.cli.chat.clipboard import as_mention, dropped_image, osc52, read_image, store_image
from perdure.cli.chat.command_context import ChatCommandContext
from perdure.cli.chat.controller import ChatController
from perdure.cli.chat.shell import UserShell, is_shell_line
from perdure.cli.editor import edit_text
from perdure.config.env import pager, user_shell
from perdure.context.user_text.intent import own_words
from perdure.core.errors import ConfigError
from perdure.core.messages import Message
from perdure.testing.simulator import Call, Say, Simulator
from support.typed import chatting

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 100


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SHELL", "/bin/sh")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def flags(sim: Simulator) -> dict[str, str]:
    return {"model.base_url": sim.base_url, "model.name": "m-1"}


class Room:
    """A chat without a terminal, and everything it wrote."""

    def __init__(self, sim: Simulator, *, can_copy: bool = True) -> None:
        self.written = ""
        self.surface = ChatCommandContext(flags(sim))
        self.controller = ChatController(self.surface, self._write, write_raw=self._write if can_copy else None)
        # The end of a turn is reported by its events; nobody listens here.
        self.controller._is_heard.set()

    def _write(self, text: str) -> None:
        self.written += text

    def say(self, line: str, *, pasted: tuple[str, ...] = ()) -> str:
        stop = self.surface.agent.events.listen(self.controller.on_event)
        try:
            return self.controller.answer(line, lambda what, seconds: None, pasted=pasted).text
        finally:
            stop()

    def close(self) -> None:
        self.controller.close()
        self.surface.store.close()


# -- !command --------------------------------------------------------------------------------------------------------


def test_a_command_of_the_users_is_shown_and_goes_with_the_next_message(home: Path) -> None:
    with Simulator(script=["Fine.", "Again."]) as sim:
        room = Room(sim)
        assert "exit 3" in room.say("! echo a-line; echo $((40+2)); exit 3")
        assert "  a-line\n  42\n" in room.written
        assert len(sim.requests) == 0
        room.say("what came out?")
        message = Message.from_dict(sim.requests[-1].body["messages"][-1])
        assert "$ echo a-line; echo $((40+2)); exit 3\na-line\n42\n[exit 3]" in message.text
        assert own_words(message).strip() == "what came out?"
        room.say("and now?")
        assert "a-line" not in json.dumps(sim.requests[-1].body["messages"][-1])
        room.close()


def test_only_a_typed_exclamation_mark_runs_anything(home: Path) -> None:
    assert is_shell_line("!ls", ())
    assert is_shell_line("! ls /tmp/x", ("ls /tmp/x",))
    assert not is_shell_line("!", ())
    assert not is_shell_line("!touch harm\nmore", ("!touch harm\nmore",))
    assert not is_shell_line("Hi!", ())


def test_secrets_in_an_output_do_not_reach_the_model() -> None:
    run = UserShell().run("echo OPENAI_API_KEY=sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD", lambda text: None)
    assert "abcdefghijklmnopqrstuvwxyz" in run.output
    assert "abcdefghijklmnopqrstuvwxyz" not in run.context.split("[exit")[0].split("\n", 4)[-1]


def test_a_long_output_is_cut_for_the_model_and_on_the_screen() -> None:
    written: list[str] = []
    run = UserShell().run("i=0; while [ $i -lt 6000 ]; do echo line-$i; i=$((i+1)); done", written.append)
    shown = "".join(written)
    assert "… 5,580 more lines" in shown
    assert shown.endswith("line-5998\n  line-5999\n"), "the end is where results are"
    assert shown.count("\n") < 500
    assert "line-0\n" in run.context
    assert "line-5999\n" in run.context
    assert "characters left out" in run.context
    assert len(run.context) < 14_000


def test_an_output_without_end_is_not_held_and_its_characters_stay_whole() -> None:
    written: list[str] = []
    run = UserShell().run("yes äöü漢字 | head -c 9000001", written.append)
    assert len(run.output) < 14_000
    assert "\ufffd" not in run.output[:-1], "a character that two reads share"
    short = UserShell().run("printf 'one\ntwo'", written.append)
    assert short.output == "one\ntwo"
    assert "".join(written).endswith("  one\n  two\n")


def test_an_interrupt_ends_the_command_and_all_it_started() -> None:
    shell, written = UserShell(), threading.Event()
    runs = []
    thread = threading.Thread(
        target=lambda: runs.append(shell.run("echo on; sleep 600 & wait", lambda _: written.set()))
    )
    thread.start()
    assert written.wait(30)
    assert shell.interrupt()
    thread.join(30)
    assert runs[0].exit_code < 0
    assert "stopped" in runs[0].summary
    assert not shell.interrupt()


# -- taking things out -----------------------------------------------------------------------------------------------


def test_an_answer_is_copied_through_the_terminal(home: Path) -> None:
    with Simulator(script=["First.", "Second."]) as sim:
        room = Room(sim)
        assert "0 answers" in room.say("/copy")
        room.say("one")
        room.say("two")
        assert "7 characters" in room.say("/copy")
        assert room.written.endswith(f"\x1b]52;c;{base64.b64encode(b'Second.').decode()}\x07")
        room.say("/copy 2")
        assert base64.b64encode(b"First.").decode() in room.written
        assert "a number" not in room.say("/copy x")
        room.close()
        plain = Room(sim, can_copy=False)
        assert osc52("x" * 80_000) is None
        plain.close()


def test_a_conversation_is_exported_as_markdown_and_as_json(home: Path, tmp_path: Path) -> None:
    calls = Say("Let me look.", calls=(Call("terminal", {"command": "echo '```'"}),))
    with Simulator(script=[calls, "It is **done**."]) as sim:
        room = Room(sim)
        assert "Nothing has been said" in room.say("/export")
        room.say("Is it done?")
        text = room.say("/export")
        path = Path(text.split(" to ")[1])
        assert path.parent == tmp_path
        page = path.read_text()
        assert page.startswith("# Is it done?\n\n## You")
        assert "It is **done**." in page
        assert "Call of `terminal`" in page
        assert "````" in page, "a fence longer than the one in the output"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        room.say("/export talk.json")
        messages = json.loads((tmp_path / "talk.json").read_text())
        assert messages[-1]["content"] == "It is **done**."
        assert "there already" in room.say("/export talk.json")
        assert "ends so" in room.say("/export talk.pdf")
        room.close()


# -- taking things in ------------------------------------------------------------------------------------------------


def test_an_image_in_the_clipboard_becomes_a_file_that_is_attached(tmp_path: Path) -> None:
    image = tmp_path / "clip.png"
    image.write_bytes(PNG)
    assert read_image([("no-such-program",), ("cat", str(image))]) == PNG
    assert read_image([("echo", "text")]) is None
    path = store_image(PNG, tmp_path / "pasted")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert as_mention(path) == f"@{path} "
    assert as_mention(Path("/a b.png")) == '@"/a b.png" '


def test_editing_keys_of_the_line(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src" / "inner").mkdir(parents=True)
    (tmp_path / "src" / "inner" / "only.py").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    with Simulator() as sim, chatting(home, flags(sim)) as chat:
        chat.see("m-1")
        chat.type("\x16")
        chat.see("An image in the clipboard is read by one of wl-paste, xclip, pngpaste; none is installed here.")
        chat.type("a👩\u200d👩\u200d👧👍🏽\x7f")
        chat.wait_for(lambda: chat.line == "a👩\u200d👩\u200d👧")
        chat.type("\x1b[D!")
        chat.wait_for(lambda: chat.line == "a!👩\u200d👩\u200d👧")
        chat.type("\x1b[3~\x7f\x7f")
        chat.wait_for(lambda: not chat.line)
        # Tab takes the only path, and goes on inside it where it is a folder.
        chat.type("see @sr")
        for wanted in ("see @src/", "see @src/inner/", "see @src/inner/only.py"):
            chat.wait_for(lambda: chat.offered_completions == 1)
            chat.type("\t")
            chat.wait_for(lambda wanted=wanted: chat.line == wanted)


def test_a_dropped_image_is_attached_and_other_pastes_are_not(tmp_path: Path) -> None:
    image = tmp_path / "a b.png"
    image.write_bytes(PNG)
    escaped = str(image).replace(" ", "\\ ")
    for text in (str(image), f"'{image}'", escaped, f"file://{str(image).replace(' ', '%20')}"):
        assert dropped_image(text) == image
    (tmp_path / "notes.txt").write_text("x")
    for text in (f"see {image}", f"{image}\n{image}", str(tmp_path / "notes.txt"), "b.png", "/no/such.png"):
        assert dropped_image(text) is None


def test_a_dropped_image_goes_with_the_message(home: Path, tmp_path: Path) -> None:
    image = tmp_path / "dot.png"
    image.write_bytes(PNG)
    with Simulator(script=["A dot."]) as sim, chatting(home, flags(sim)) as chat:
        chat.see("m-1")
        chat.type(f"\x1b[200~{image}\x1b[201~what is it?\r")
        chat.see("attached dot.png", "A dot.")
        assert "image_url" in json.dumps(sim.requests[-1].body["messages"][-1])


def test_a_message_is_written_in_the_editor(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "%s from the editor" "$(cat "$1")" > "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    with Simulator(script=["Fine."]) as sim, chatting(home, flags(sim)) as chat:
        chat.see("m-1")
        chat.type("/edit a draft\r")
        chat.see("from the editor")
        chat.type("\r")
        chat.see("Fine.")
        assert sim.requests[-1].body["messages"][-1]["content"] == "a draft from the editor"


# -- reading ---------------------------------------------------------------------------------------------------------


def test_a_long_document_opens_in_the_pager_and_a_short_one_does_not(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = tmp_path / "pages"
    program = tmp_path / "show"
    program.write_text(f'#!/bin/sh\ncat > "{pages}"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PAGER", str(program))
    answer = "\n\n".join(f"Paragraph {n}." for n in range(60))
    with Simulator(script=[answer, "Short."]) as sim, chatting(home, flags(sim)) as chat:
        chat.see("m-1")
        chat.type("go on\r")
        chat.see("Paragraph 59.", "cache")
        chat.type("/expand m:1\r")
        chat.see("[m:1 · user")
        assert not pages.exists()
        chat.type("/expand m:2\r")
        give_up_s = time.monotonic() + 30
        while not (pages.exists() and "Paragraph 59." in pages.read_text()):
            assert time.monotonic() < give_up_s
            time.sleep(0.02)
        chat.type("again\r")
        chat.see("Short.")


def test_the_key_opens_a_stored_output_whole(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = tmp_path / "pages"
    monkeypatch.setenv("PAGER", f"dd of={pages} status=none")
    script = [Say(calls=(Call("terminal", {"command": "seq 10000 34999"}),)), "Counted."]
    with Simulator(script=script) as sim, chatting(home, flags(sim)) as chat:
        chat.see("m-1")
        chat.type("count\r")
        chat.see("Ctrl-O shows all of it", "Counted.")
        chat.wait_for(lambda: chat.is_idle)
        chat.type("\x0f")
        chat.see("› /expand output:o_")
        chat.wait_for(lambda: pages.exists() and "\n34999" in pages.read_text())
        assert len([line for line in pages.read_text().split() if line.isdecimal()]) == 25_000
        assert "persisted-output" not in pages.read_text()


def test_pager_and_shell_are_the_users() -> None:
    assert user_shell("ls", {"SHELL": "/bin/zsh"}) == ["/bin/zsh", "-c", "ls"]
    assert user_shell("ls", {})[0] == "/bin/sh"
    assert pager({"PAGER": "cat -A"}) == ["cat", "-A"]
    assert pager({"PAGER": "/no/such/pager"}) is None
    assert os.name == "nt" or (pager({}) or ["less", "-R"])[-1] == "-R"


@pytest.mark.skipif(shutil.which("less") is None, reason="less is not installed")
def test_the_prompt_of_less_shows_how_to_close_it_unless_the_user_has_one() -> None:
    assert any(option.startswith("-P") and "q closes" in option for option in pager({}) or [])
    # A line of the text may name a command, and `/` searches in less. It fits a row of sixty columns, also at the end.
    (prompt,) = (option for option in pager({}) or [] if option.startswith("-P"))
    assert "/ searches, q closes; then type" in prompt
    assert len(prompt.removeprefix("-Ps").replace("?e", "").replace(".", "").replace("\\", "")) < 60
    assert pager({"LESS": "-Pmine -i"}) == ["less", "-X", "-R"]
    assert pager({"PAGER": "less -Pmine"}) == ["less", "-Pmine", "-X", "-R"]


@pytest.mark.parametrize(("command", "why"), [("false", "ended with status 1"), ("/no/such/editor", "cannot start")])
def test_an_editor_that_fails_says_so_and_leaves_the_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, command: str, why: str
) -> None:
    monkeypatch.setenv("VISUAL", command)
    with Simulator(script=["Heard."]) as sim, chatting(home, flags(sim)) as chat:
        chat.see("m-1 ·")
        chat.type("/edit a draft\r")
        chat.see(why)
        assert chat.line == "a draft"


def test_the_error_of_an_editor_ends_its_rows_between_words(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "false")
    with Simulator(script=["Heard."]) as sim, chatting(home, flags(sim), columns=40) as chat:
        chat.see("m-1 ·")
        chat.type("/edit a draft\r")
        chat.see("the editor 'false' ended with status 1;\nthe text is as it was\n")


def test_a_text_that_is_not_saved_in_the_editor_stays(tmp_path: Path) -> None:
    saves = tmp_path / "saves"
    saves.write_text('#!/bin/sh\nprintf "new\\n" > "$1"\n')
    saves.chmod(0o755)
    assert edit_text("old", {"EDITOR": "true"}) is None
    assert edit_text("old", {"EDITOR": str(saves)}) == "new"
    with pytest.raises(ConfigError, match="ended with status 1; the text is as it was"):
        edit_text("old", {"EDITOR": "false"})


@pytest.mark.parametrize(
    ("saved", "text"), [(r"\357\273\277a\r\nb\r\n", "a\nb"), (r"\351t\351\n", "\ufffdt\ufffd"), ("", "")]
)
def test_an_editor_may_save_in_the_way_of_its_system(tmp_path: Path, saved: str, text: str) -> None:
    editor = tmp_path / "editor"
    editor.write_text(f"#!/bin/sh\nprintf '{saved}' > \"$1\"\n")
    editor.chmod(0o755)
    assert edit_text("old", {"EDITOR": str(editor)}) == text


def test_bytes_that_are_no_text_can_be_edited(tmp_path: Path) -> None:
    shows = tmp_path / "shows"
    shows.write_text(f'#!/bin/sh\ncp "$1" {tmp_path}/shown\n')
    shows.chmod(0o755)
    assert edit_text("caf\udce9", {"EDITOR": str(shows)}) is None
    assert (tmp_path / "shown").read_text() == "caf?"


def test_a_text_that_has_no_place_to_be_edited_in_is_an_error_and_no_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="cannot write a file for the editor: No such file"):
        edit_text("old", {"EDITOR": "true"})
