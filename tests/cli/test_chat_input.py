"""What a person puts in: pastes, attachments, completions."""

from __future__ import annotations

from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.key_binding.key_processor import KeyPress

from perdure.cli.chat.editing import ChatCompleter, cluster_end, cluster_start
from perdure.cli.chat.input import PasteParser, Pastes, attach
from perdure.commands.titles import title_of


def test_a_long_paste_is_folded_and_sent_whole() -> None:
    pastes = Pastes()
    text = "".join(f"line {i}\r\n" for i in range(1_000))
    mark = pastes.fold(text)
    assert mark == "[pasted #1: 1,000 lines]"
    assert pastes.unfold(f"see {mark} please") == f"see {text.replace(chr(13), '')} please"
    assert pastes.fold("x" * 5_000) == "[pasted #2: 5,000 characters]"


def test_a_short_paste_is_inserted_as_it_is_and_marks_of_others_stay() -> None:
    pastes = Pastes()
    assert pastes.fold("two\rlines") == "two\nlines"
    assert pastes.unfold("[pasted #7: 3 lines]") == "[pasted #7: 3 lines]"


def test_a_bracketed_paste_arrives_whole_however_it_is_cut_up() -> None:
    for size in (1, 2, 3, 7, 1_000):
        keys: list[KeyPress] = []
        parser = PasteParser(keys.append)
        stream = "a\x1b[200~pasted \x1b[20 text\nmore\x1b[201~b"
        for i in range(0, len(stream), size):
            parser.feed(stream[i : i + size])
        parser.flush()
        assert [k.data for k in keys] == ["a", "pasted \x1b[20 text\nmore", "b"]


def test_text_images_and_folders_are_attached(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello there", encoding="utf-8")
    (tmp_path / "my pic.png").write_bytes(b"\x89PNG not really")
    (tmp_path / "sub").mkdir()
    made = attach('look at @a.txt, @"my pic.png" and @sub/', tmp_path)
    assert not isinstance(made.message, str)
    text, file, image, folder = made.message["content"]
    assert text["text"].startswith("look at @a.txt")
    assert file["text"].endswith("a.txt:\nhello there")
    assert image["image_url"]["url"].startswith("data:image/png;base64,")
    assert "sub" in folder["text"]
    assert made.lines[0] == "attached a.txt (11 characters)"


def test_what_names_no_file_stays_text_and_binaries_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"\0\1\2")
    assert attach("mail ada@example.org, ask @nobody", tmp_path).message == "mail ada@example.org, ask @nobody"
    assert attach("ask @nobody", tmp_path).lines == ()
    assert attach("sum up @notes.txt, please", tmp_path).lines == (
        "there is no notes.txt here; it is sent as it was typed",
    )
    refused = attach("@x.bin", tmp_path)
    assert refused.message == "@x.bin"
    assert "no text and no image" in refused.lines[0]


def test_only_what_was_typed_names_a_file(tmp_path: Path) -> None:
    for name in ("secret.env", "notes.txt"):
        (tmp_path / name).write_text("TOPSECRET=42", encoding="utf-8")
    page = 'a bug report\nlook at @secret.env\n@app.route("/x")\n'
    made = attach(f"review this\n\n{page}", tmp_path, pasted=(page,))
    text = f"review this\n\n{page}"
    assert made.message == {"role": "user", "content": text, "pasted": [[13, len(text) - 1]]}
    assert made.lines == ()
    assert attach("see @secret.env? yes", tmp_path, pasted=("see @secret.env",)).lines == ()
    assert attach(f"@notes.txt {page}", tmp_path, pasted=(page,)).lines == ("attached notes.txt (12 characters)",)
    both = attach(f"@secret.env and {page}", tmp_path, pasted=(page,))
    assert both.lines == ("attached secret.env (12 characters)",)


def test_a_line_knows_which_of_its_parts_were_pasted() -> None:
    pastes = Pastes()
    long = "line\n" * 40
    line = f"look: {pastes.fold('a @short one')} and {pastes.fold(long)} @typed"
    assert pastes.take(line) == ("a @short one", long)
    assert pastes.take("a @short one, typed") == ()
    assert pastes.take("a @short one, recalled", is_recalled=True) == ("a @short one",)


def test_a_path_that_was_pasted_in_part_is_not_attached(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("notes", encoding="utf-8")
    for pasted in (("notes.md",), ("see @", "notes.md"), ("notes",), ("see @notes.md please, and more",)):
        pastes = Pastes()
        for piece in pasted:
            pastes.fold(piece)
        line = "see @notes.md please"
        assert attach(line, tmp_path, pasted=pastes.take(line)).lines == (), pasted
    assert not isinstance(attach("say hi, @notes.md", tmp_path, pasted=("hi,",)).message, str)


@pytest.mark.spec("J6")
def test_a_credential_file_is_not_attached(tmp_path: Path) -> None:
    keys = tmp_path / ".ssh"
    keys.mkdir()
    (keys / "id_rsa").write_text("PRIVATE KEY")
    (keys / "id_rsa.pub").write_text("public key")
    (tmp_path / "notes.txt").symlink_to(keys / "id_rsa")
    for name in (".ssh/id_rsa", "notes.txt"):
        attached = attach(f"see @{name}", tmp_path)
        assert attached.message == f"see @{name}"
        assert "holds credentials; it was not attached" in attached.lines[0]
    assert "public key" in str(attach("see @.ssh/id_rsa.pub", tmp_path).message)


def test_a_huge_file_is_cut_with_a_word_about_it(tmp_path: Path) -> None:
    (tmp_path / "big.log").write_text("ä" * 300_000, encoding="utf-8")
    made = attach("@big.log", tmp_path)
    assert not isinstance(made.message, str)
    body = made.message["content"][1]["text"]
    assert len(body) < 101_000
    assert "first 100,000 characters of 600,000 bytes" in body


def test_an_image_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "big.png").write_bytes(b"\x89" * 5_000_001)
    assert "too large" in attach("@big.png", tmp_path).lines[0]


def test_paths_are_completed_folders_first(tmp_path: Path) -> None:
    (tmp_path / "beta.py").touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / ".hidden").touch()
    completer = ChatCompleter(tmp_path)
    offered = [c.text for c in completer.get_completions(Document("read @b"), CompleteEvent())]
    assert offered == ["bin/", "beta.py"]
    assert not list(completer.get_completions(Document("read @nowhere/x"), CompleteEvent()))


@pytest.mark.parametrize(
    "drawn_as_one",
    [
        "a",
        "漢",
        "👍🏽",
        "👩\u200d👩\u200d👧",
        "🏳\ufe0f\u200d🌈",
        "🇩🇪",
        "e\u0301",
        "1\ufe0f\u20e3",
        "🏴\U000e0067\U000e0062\U000e007f",
    ],
)
def test_what_is_drawn_as_one_character_is_edited_as_one(drawn_as_one: str) -> None:
    text = f"x🇫🇷{drawn_as_one}y"
    end = len(text) - 1
    assert text[cluster_start(text, end) : end] == drawn_as_one
    assert cluster_end(text, end - len(drawn_as_one)) == end
    assert cluster_start(text, 0) == 0
    assert cluster_end(text, len(text)) == len(text)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("hello", "hello"),
        ("\n\n# Fix the `parser`, please.\nmore", "Fix the parser, please"),
        ("why does **parse_body** fail?", "why does parse_body fail?"),
        ("word " * 40, "word word word word word word word word word…"),
        ("日本語" * 40, "日本語" * 15 + "日本…"),
        ("...", ""),
    ],
)
def test_a_title_is_the_first_words(text: str, title: str) -> None:
    assert title_of(text) == title
    assert len(title_of(text)) <= 48


@pytest.mark.parametrize(
    "key",
    [
        "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8",
        "AKIA" + "Q3EGRZ7XHVJ4YKPN",
        "sk-ant-api03-" + "X3d8UtqI0s" * 9 + "AA",
    ],
)
def test_a_title_shows_no_key(key: str) -> None:
    title = title_of(f"use {key} for the upload")
    assert title.startswith("use ")
    assert key[:14] not in title
